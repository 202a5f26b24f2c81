//! `gatewright reload` of what is listened at: addresses come and go while devices report.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Daemon, Said, WITHIN, folder, gatewright};
use gatewright_testbed::{free_port, wait_until};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread::{self, JoinHandle};

/// A description of devices and a service entity, line by line.
#[derive(Clone)]
struct Description {
    devices: Vec<String>,
    cse: Vec<String>,
    rest: String,
}

impl Description {
    fn new(listen: u16, http: u16) -> Self {
        let cse = "base = \"cse-gw\"\nid = \"/gw\"\nadmin = \"CAdmin\"\nstore = \"gw.db\"";
        Self {
            devices: Vec::new(),
            cse: cse.lines().map(str::to_owned).collect(),
            rest: String::new(),
        }
        .devices("listen", listen)
        .cse("http", http)
    }

    fn devices(mut self, key: &str, port: u16) -> Self {
        self.devices.retain(|line| !line.starts_with(key));
        self.devices.push(format!("{key} = \"127.0.0.1:{port}\""));
        self
    }

    fn cse(mut self, key: &str, port: u16) -> Self {
        self.cse.retain(|line| !line.starts_with(key));
        self.cse.push(format!("{key} = \"127.0.0.1:{port}\""));
        self
    }

    fn text(&self) -> String {
        let (devices, cse) = (self.devices.join("\n"), self.cse.join("\n"));
        format!("[devices]\n{devices}\n[cse]\n{cse}\n{}", self.rest)
    }
}

/// A gateway that is told of other descriptions.
struct Gateway(Daemon);

impl Gateway {
    fn start(name: &str, description: &Description) -> Self {
        let folder = folder(&format!("relisten-{name}"));
        // Paths of a description are as its process has them.
        let text = description.text().replace("gw.db", folder.join("gw.db").to_str().unwrap());
        Self(Daemon::start(folder, &text))
    }

    fn reload(&self, description: &Description) -> Said {
        let store = self.0.folder.join("gw.db");
        let text = description.text().replace("gw.db", store.to_str().unwrap());
        fs::write(self.0.folder.join("gateway.toml"), text).unwrap();
        self.0.ask(&["reload"])
    }

    /// What a reload changes.
    fn changes(&self, description: &Description) -> String {
        let said = self.reload(description);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        said.out
    }

    /// What a part tells of itself in words.
    fn word(&self, part: &str, name: &str) -> Option<String> {
        let status = self.0.ask(&["status", "--json"]).json();
        let part = status["parts"].as_array()?.iter().find(|it| it["name"] == part)?.clone();
        let word = part["words"].as_array()?.iter().find(|it| it[0] == name)?.clone();
        Some(word[1].as_str()?.to_owned())
    }

    fn counter(&self, part: &str, name: &str) -> u64 {
        let status = self.0.ask(&["status", "--json"]).json();
        let part =
            status["parts"].as_array().unwrap().iter().find(|it| it["name"] == part).cloned();
        let part = part.unwrap();
        let mut all =
            ["gauges", "counters"].into_iter().flat_map(|it| part[it].as_array().unwrap());
        all.find(|it| it[0] == name).unwrap()[1].as_u64().unwrap()
    }
}

/// Devices that report for `seconds`; what came of it.
fn devices(to: u16, seed: u8, seconds: u8, udp: bool) -> JoinHandle<Value> {
    thread::spawn(move || {
        let [to, seed, seconds] =
            [format!("127.0.0.1:{to}"), seed.to_string(), seconds.to_string()];
        let mut arguments = vec!["device", "simulate", "--json", "--kind", "thermometer"];
        arguments.extend(["--count", "3", "--rate", "20", "--patience", "60"]);
        arguments.extend(["--to", &to, "--seed", &seed, "--seconds", &seconds]);
        arguments.extend(udp.then_some("--udp"));
        gatewright(&arguments).json()
    })
}

/// Asks over a connection, and reads the answer whole: its head says how long it is.
fn ask(stream: &mut TcpStream, path: &str) -> Value {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: here\r\nX-M2M-Origin: CAdmin\r\nX-M2M-RI: {path}\r\n\
         X-M2M-RVI: 4\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let (mut head, mut octet) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut octet).unwrap();
        head.extend(octet);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.split_once("content-length: ").unwrap().1.split_once("\r\n").unwrap().0;
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream
}

/// The readings that are stored.
fn readings(http: u16) -> Vec<String> {
    let found = ask(&mut connect(http), "/cse-gw?fu=1&ty=4");
    let uris = found["m2m:uril"].as_array().unwrap().iter();
    let uris = uris.map(|uri| uri.as_str().unwrap().to_owned());
    uris.filter(|uri| !uri.contains("/about/")).collect()
}

/// All that is listened at moves under the devices: those that are there stay as they are, new ones
/// come to the new places, and each reading is stored once.
#[test]
fn readings_go_on_while_addresses_move() {
    let [listen, udp, http, listen2, udp2, http2, ws] = [(); 7].map(|()| free_port());
    let before = Description::new(listen, http).devices("udp", udp);
    let gateway = Gateway::start("moves", &before);
    let old = [devices(listen, 1, 6, false), devices(udp, 2, 6, true)];
    assert!(wait_until(WITHIN, || gateway.counter("devices", "associated") == 6));
    let readings_before = gateway.counter("devices", "readings");
    let mut kept = connect(http);
    let _ = ask(&mut kept, "/cse-gw");

    // What comes beside the others touches none of them.
    let beside = before.clone().cse("ws", ws);
    assert_eq!(gateway.changes(&beside), format!("[cse] ws: 127.0.0.1:{ws}\n"));
    let _ = (ask(&mut kept, "/cse-gw"), connect(ws));

    let after = beside.devices("listen", listen2).devices("udp", udp2).cse("http", http2);
    let changes = gateway.changes(&after);
    for (key, new, old) in [
        ("[devices] listen", listen2, listen),
        ("[devices] udp", udp2, udp),
        ("[cse] http", http2, http),
    ] {
        let line = format!("{key}: 127.0.0.1:{new}, not 127.0.0.1:{old}\n");
        assert!(changes.contains(&line), "{changes}");
    }
    let at = |part| gateway.word(part, "listens_at").unwrap();
    assert_eq!(at("devices"), format!("127.0.0.1:{listen2}, udp 127.0.0.1:{udp2}"));
    assert_eq!(at("cse"), format!("http://127.0.0.1:{http2}, ws://127.0.0.1:{ws}"));
    let held = || gateway.word("devices", "closes_when_devices_have_gone");
    assert_eq!(held(), Some(format!("udp 127.0.0.1:{udp}")));
    // Nobody is let in at the old ones, and a kept connection that asks nothing ends.
    for port in [listen, http] {
        assert!(wait_until(WITHIN, || TcpStream::connect(("127.0.0.1", port)).is_err()));
    }
    assert_eq!(kept.read(&mut [0]).unwrap(), 0);
    assert_eq!(gateway.counter("devices", "associated"), 6, "{}", gateway.0.said());
    let new = [devices(listen2, 3, 2, false), devices(udp2, 4, 2, true)];

    let mut values = 0;
    for (devices, of) in old.into_iter().map(|it| (it, "old")).chain(new.map(|it| (it, "new"))) {
        let answer = devices.join().unwrap();
        assert_eq!(answer["passed"], true, "{of}: {answer} {}", gateway.0.said());
        assert_eq!(answer["connections"], 3, "each device keeps its connection: {of}: {answer}");
        assert_eq!(answer["associations"], 3, "and its association: {of}: {answer}");
        values += answer["values"].as_u64().unwrap();
    }
    let mut stored = readings(http2);
    stored.sort_unstable();
    stored.dedup();
    assert_eq!(stored.len() as u64, values, "each once, none lost");
    assert!(values > readings_before);
    // The last device that was let in there has gone.
    assert!(wait_until(WITHIN, || held().is_none() && UdpSocket::bind(("127.0.0.1", udp)).is_ok()));
}

/// Somebody else listens there: the gateway says at which key and line, and is as it was, whatever
/// else was asked for.
#[test]
fn a_port_that_is_taken_changes_nothing() {
    let [listen, udp, http, other, ws] = [(); 5].map(|()| free_port());
    let before = Description::new(listen, http).devices("udp", udp);
    let gateway = Gateway::start("taken", &before);
    let report = devices(listen, 1, 4, false);
    assert!(wait_until(WITHIN, || gateway.counter("devices", "associated") == 3));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let port_udp = taken_udp.local_addr().unwrap().port();
    let wanted = before.clone().cse("http", other).cse("ws", ws);
    for (wrong, key, line, at) in [
        (wanted.clone().devices("listen", port), "[devices] listen", 3, port),
        (wanted.devices("udp", port_udp), "[devices] udp", 3, port_udp),
    ] {
        let refused = gateway.reload(&wrong);
        assert_eq!(refused.code, 1, "{}{}", refused.out, refused.err);
        let said = refused.err;
        for part in [
            "GW0171".to_owned(),
            format!("{key}: cannot listen on 127.0.0.1:{at}: Address already in use"),
            format!("gateway.toml:{line}:1"),
            "help: ".to_owned(),
            "nothing is changed".to_owned(),
        ] {
            assert!(said.contains(&part), "{part} in {said}");
        }
        let at = |part| gateway.word(part, "listens_at").unwrap();
        assert_eq!(at("devices"), format!("127.0.0.1:{listen}, udp 127.0.0.1:{udp}"));
        assert_eq!(at("cse"), format!("http://127.0.0.1:{http}"));
        for port in [other, ws] {
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        }
        let _ = ask(&mut connect(http), "/cse-gw");
    }
    let answer = report.join().unwrap();
    assert_eq!((&answer["passed"], &answer["connections"]), (&true.into(), &3.into()), "{answer}");
    assert_eq!(readings(http).len() as u64, answer["values"].as_u64().unwrap());
    // A gateway that is being started says the same.
    let folder = folder("relisten-start");
    let file = folder.join("gateway.toml");
    fs::write(&file, Description::new(port, other).text().replace("gw.db", "/nowhere/gw.db"))
        .unwrap();
    let run = || gatewright(&["run", file.to_str().unwrap()]);
    let said = run();
    assert_eq!(said.code, 69, "{}", said.err);
    assert!(
        said.err.contains("[cse] store") && said.err.contains("gateway.toml:7:1"),
        "{}",
        said.err
    );
    let db = folder.join("gw.db");
    let text = Description::new(port, other).text().replace("gw.db", db.to_str().unwrap());
    fs::write(&file, text).unwrap();
    let said = run().err;
    assert!(said.contains("GW0171") && said.contains("gateway.toml:2:1"), "{said}");
}

/// The place of one that goes may be taken: the same port for all addresses, or for another protocol.
#[test]
fn a_port_may_be_opened_wide_and_change_hands() {
    let [listen, http] = [(); 2].map(|()| free_port());
    let before = Description::new(listen, http);
    let gateway = Gateway::start("wide", &before);
    let mut wide = before.clone();
    let any = |line: &mut String| {
        *line = line.replace(&format!("127.0.0.1:{http}"), &format!("0.0.0.0:{http}"));
    };
    wide.cse.iter_mut().for_each(any);
    assert_eq!(
        gateway.changes(&wide),
        format!("[cse] http: 0.0.0.0:{http}, not 127.0.0.1:{http}\n")
    );
    let elsewhere = ("127.81.3.4", http);
    let mut stream = TcpStream::connect(elsewhere).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let _ = ask(&mut stream, "/cse-gw");
    // WebSocket has it now, and HTTP again.
    let other = free_port();
    let swapped = before.clone().cse("ws", http).cse("http", other);
    let changes = gateway.changes(&swapped);
    assert_eq!(changes.lines().count(), 2, "{changes}");
    let _ = (ask(&mut connect(other), "/cse-gw"), connect(http));
    assert_eq!(gateway.changes(&before).lines().count(), 2);
    let _ = ask(&mut connect(http), "/cse-gw");
    assert!(TcpStream::connect(("127.0.0.1", other)).is_err());
    assert_eq!(devices(listen, 1, 1, false).join().unwrap()["passed"], true);
}

/// What needs a restart is told where it stands, by the help, and by `check`.
#[test]
fn what_cannot_be_taken_is_told_at_its_key() {
    let [listen, http] = [(); 2].map(|()| free_port());
    let description = Description::new(listen, http);
    let gateway = Gateway::start("fixed", &description);
    let mut wrong = description.clone();
    wrong.cse.retain(|line| !line.starts_with("store"));
    wrong.cse.push("store = \"other.db\"".to_owned());
    wrong.devices.push("devices_max = 7".to_owned());
    let refused = gateway.reload(&wrong);
    assert_eq!(refused.code, 1, "{}", refused.out);
    for part in [
        "error[GW0170]: [devices] devices_max: 7, not 1000",
        "gateway.toml:3:1",
        "error[GW0170]: [cse] store: other.db, not ",
        "gateway.toml:9:1",
        "help: undo this change, or stop the gateway and start it again",
        "nothing is changed, as this needs a restart",
    ] {
        assert!(refused.err.contains(part), "{part} in {}", refused.err);
    }
    let mut gone = description.clone();
    gone.cse.clear();
    assert_eq!(gateway.reload(&gone).code, 78, "devices need it");
    assert_eq!(gateway.changes(&description).lines().count(), 1, "all is as it was");
    let mut keys: Vec<(String, Vec<String>)> = Vec::new();
    for key in gatewright_config::fixed_keys() {
        let (table, name) = key.split_once(' ').unwrap();
        match keys.iter_mut().find(|(known, _)| known == table) {
            Some((_, names)) => names.push(name.to_owned()),
            None => keys.push((table.to_owned(), vec![name.to_owned()])),
        }
    }
    let told: Vec<_> =
        keys.into_iter().map(|(table, names)| format!("{table} {}", names.join(", "))).collect();
    let help = gatewright(&["reload", "--help"]).out;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains(&format!("other values of {};", told.join("; "))), "{told:?} in {help}");
    let file = gateway.0.folder.join("gateway.toml");
    let checked = gatewright(&["check", file.to_str().unwrap()]).out;
    let line = "`gatewright reload` takes all but [cse] base, [cse] id, [cse] store";
    assert!(checked.contains(line), "{checked}");
}

/// The CSE above learns where this one is to be found.
#[test]
fn the_cse_above_learns_of_other_addresses() {
    let [above, listen, http, other] = [(); 4].map(|()| free_port());
    let upper = format!(
        "[gateway]\nname = \"above\"\n[cse]\nbase = \"cse-in\"\nid = \"/id-in\"\n\
         type = \"infrastructure\"\nadmin = \"CAdmin\"\nadmit = [\"/gw\"]\nhttp = \"127.0.0.1:{above}\"\n"
    );
    let _upper = Daemon::start(folder("relisten-above"), &upper);
    let mut description = Description::new(listen, http);
    description.rest = format!(
        "[cse.registrar]\nurl = \"http://127.0.0.1:{above}\"\nid = \"/id-in\"\nbase = \"cse-in\"\n"
    );
    let gateway = Gateway::start("below", &description);
    let poa = || ask(&mut connect(above), "/cse-in/gw")["m2m:csr"]["poa"].clone();
    let known = |port| poa() == serde_json::json!([format!("http://127.0.0.1:{port}")]);
    assert!(wait_until(WITHIN, || known(http)), "{}", poa());
    let _ = gateway.changes(&description.cse("http", other));
    assert!(wait_until(WITHIN, || known(other)), "{}", poa());
    let own = ask(&mut connect(other), "/cse-gw")["m2m:cb"]["poa"].clone();
    assert_eq!(own, serde_json::json!([format!("http://127.0.0.1:{other}")]));
}
