//! `gatewright reload` of what needs no privileges: gateway programs and relays of TCP.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Daemon, Said, WITHIN, examples, folder, gatewright};
use gatewright_testbed::wait_until;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// A gateway that is to be told of other descriptions.
struct Reloaded(Daemon);

impl Reloaded {
    /// Runs the description `text`, in whose folder are two relays of mail, and one more with the
    /// name of the first.
    fn start(name: &str, text: &str) -> Self {
        let folder = folder(&format!("reload-{name}"));
        fs::copy(examples().join("smtp.gate"), folder.join("smtp.gate")).unwrap();
        let relay = fs::read_to_string(examples().join("smtp_relay.gate")).unwrap();
        for (file, name) in [
            ("relay.gate", "smtp_relay"),
            ("other.gate", "other_relay"),
            ("twin.gate", "smtp_relay"),
        ] {
            let text = relay.replacen("gateway smtp_relay", &format!("gateway {name}"), 1);
            fs::write(folder.join(file), text).unwrap();
        }
        Self(Daemon::start(folder, text))
    }

    fn ask(&self, arguments: &[&str]) -> Said {
        self.0.ask(arguments)
    }

    fn describe(&self, text: &str) {
        fs::write(self.0.folder.join("gateway.toml"), text).unwrap();
    }

    /// What a reload changes: `program relay.gate: added`.
    fn reload(&self) -> String {
        let said = self.ask(&["reload"]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        said.out.replace(&format!("{}/", self.0.folder.display()), "")
    }

    /// Why a reload changes nothing.
    fn refused(&self) -> String {
        let said = self.ask(&["reload"]);
        assert_ne!(said.code, 0, "{}", said.out);
        said.err
    }

    /// Where the relay listens, as `status` tells.
    fn at(&self) -> SocketAddr {
        let told = self.ask(&["status"]).out;
        let (_, at) = told.split_once("inside at ").unwrap_or_else(|| panic!("{told}"));
        at.split([',', '\n']).next().unwrap().trim().parse().unwrap()
    }

    /// Has the relay's program say `text` in its answers.
    fn relay_says(&self, file: &str, text: &str) {
        let path = self.0.folder.join(file);
        let before = fs::read_to_string(&path).unwrap();
        let (head, rest) = before.split_once("reply(250, \"").unwrap();
        let (_, tail) = rest.split_once('"').unwrap();
        fs::write(path, format!("{head}reply(250, \"{text}\"{tail}")).unwrap();
    }
}

/// A client of the relay that has read the greeting.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        let mut client = Self(BufReader::new(stream));
        assert_eq!(client.line(), "220 gatewright\r\n");
        client
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn hello(&mut self) -> String {
        self.0.get_mut().write_all(b"HELO me\r\n").unwrap();
        self.line()
    }
}

const RELAY: &str = "[[program]]\nfile = \"relay.gate\"\nat = [\"inside=127.0.0.1:0\"]\n";

#[test]
fn programs_are_changed_added_and_removed() {
    let daemon = Reloaded::start("programs", RELAY);
    assert!(daemon.reload().contains("nothing is changed"));
    let at = daemon.at();
    let mut before = Client::new(at);

    // The program's text is another: it takes over at the same port, and sessions go on as they began.
    daemon.relay_says("relay.gate", "new");
    assert_eq!(daemon.reload(), "program relay.gate: changed\n");
    assert_eq!(before.hello(), "250 gatewright\r\n");
    assert_eq!(daemon.at(), at);
    assert!(wait_until(WITHIN, || Client::new(at).hello() == "250 new\r\n"));

    // One with an error changes nothing.
    let good = fs::read_to_string(daemon.0.folder.join("relay.gate")).unwrap();
    fs::write(daemon.0.folder.join("relay.gate"), good.replace("reply(250, \"new\")", "reply("))
        .unwrap();
    assert!(daemon.refused().contains("nothing is changed"));
    assert_eq!(Client::new(at).hello(), "250 new\r\n");
    fs::write(daemon.0.folder.join("relay.gate"), good).unwrap();

    // One whose address somebody else has changes nothing, whatever else is asked for.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let other =
        |port| format!("[[program]]\nfile = \"other.gate\"\nat = [\"inside=127.0.0.1:{port}\"]\n");
    daemon.relay_says("relay.gate", "newer");
    daemon.describe(&format!("{RELAY}{}", other(taken.local_addr().unwrap().port())));
    let told = daemon.refused();
    assert!(
        told.contains("nothing is changed: program /") && told.contains("other.gate"),
        "{told}"
    );
    assert_eq!(Client::new(at).hello(), "250 new\r\n");

    // Another program in its place, at its port.
    daemon.relay_says("other.gate", "other");
    daemon.describe(&other(at.port()));
    assert_eq!(daemon.reload(), "program relay.gate: removed\nprogram other.gate: added\n");
    assert!(wait_until(WITHIN, || Client::new(at).hello() == "250 other\r\n"));

    let page = daemon.ask(&["status", "--metrics"]).out;
    let of = "mode=\"program\",relay=\"other_relay\",handler=\"inside.hello\"";
    let count = format!("gatewright_sojourn_seconds_count{{{of}}} ");
    let count = page.lines().find_map(|line| line.strip_prefix(&count));
    assert!(count.is_some_and(|count| count != "0"), "{page}");

    // It goes, and comes back.
    daemon.describe(&proxy("x", "127.83.1.2:7000", "127.0.0.1:9".parse().unwrap()));
    let told = daemon.reload();
    assert!(told.contains("tcp_proxy x: added") && told.contains("other.gate: removed"), "{told}");
    assert!(wait_until(WITHIN, || TcpStream::connect(at).is_err()), "{}", daemon.0.said());
    assert!(!daemon.ask(&["status"]).out.contains("program"));
    daemon.describe(RELAY);
    assert_eq!(daemon.reload(), "tcp_proxy x: removed\nprogram relay.gate: added\n");
    assert_eq!(Client::new(daemon.at()).hello(), "250 newer\r\n");
}

/// Status, metrics and positions of messages could not tell two programs of one name apart.
#[test]
fn programs_of_one_name_are_refused_by_check_run_and_reload() {
    let daemon = Reloaded::start("names", RELAY);
    let twin = "[[program]]\nfile = \"twin.gate\"\nat = [\"inside=127.0.0.1:0\"]\n";
    daemon.describe(&format!("{RELAY}{twin}"));
    let file = daemon.0.folder.join("gateway.toml");
    let file = file.to_str().unwrap();
    let (check, run) =
        (gatewright(&["check", file]), gatewright(&["run", file, "--stop-after", "1"]));
    for said in [check, run, daemon.ask(&["reload"])] {
        assert_eq!(said.code, 78, "{}{}", said.out, said.err);
        for part in [
            "error[GW0195]: the programs relay.gate and twin.gate have the same name",
            "gateway.toml:5:8",
            "twin.gate",
            "gateway smtp_relay {",
            "help: give one of them another name",
        ] {
            assert!(said.err.contains(part), "{part}: {}", said.err);
        }
    }
    let found = gatewright(&["check", file, "--json"]);
    assert!(found.code == 78 && found.out.contains("GW0195"), "{}{}", found.out, found.err);
    // The one that runs is as it was, and takes one with a name of its own.
    assert_eq!(Client::new(daemon.at()).hello(), "250 gatewright\r\n");
    daemon.describe(&format!("{RELAY}{}", twin.replace("twin", "other")));
    assert_eq!(daemon.reload(), "program other.gate: added\n");
}

/// A relay of TCP from `listen` to a server.
fn proxy(name: &str, listen: &str, to: SocketAddr) -> String {
    let to = format!("{{ address = \"{}\", port = {} }}", to.ip(), to.port());
    format!("[tcp_proxy.{name}]\nlisten = \"{listen}\"\nforward = {to}\n")
}

/// A server that says its name to whoever connects.
fn server(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            stream.write_all(name.as_bytes()).unwrap();
            kept.push(stream);
        }
    });
    at
}

/// Who answers at the other end.
fn who(at: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let mut name = [0; 3];
    stream.read_exact(&mut name).unwrap();
    (stream, String::from_utf8(name.to_vec()).unwrap())
}

#[test]
fn relays_of_tcp_are_changed_added_and_removed() {
    // Addresses of this test's own.
    let [first, second] = ["127.83.2.1:7000", "127.83.2.2:7000"];
    let [one, two] = [server("one"), server("two")];
    let daemon = Reloaded::start("tcp", &proxy("x", first, one));
    let (mut kept, said) = who(first);
    assert_eq!(said, "one");

    // Another one comes; the first one's connections stay.
    daemon.describe(&(proxy("x", first, one) + &proxy("y", second, two)));
    assert_eq!(daemon.reload(), "tcp_proxy y: added\n");
    assert_eq!(who(second).1, "two");
    // One whose address somebody has changes nothing.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused =
        proxy("z", &taken.local_addr().unwrap().to_string(), one) + &proxy("y", second, one);
    daemon.describe(&(proxy("x", first, one) + &refused));
    let told = daemon.refused();
    assert!(told.contains("nothing is changed: tcp_proxy.z"), "{told}");
    assert_eq!(who(second).1, "two");
    kept.set_nonblocking(true).unwrap();
    let open = kept.read(&mut [0]).unwrap_err();
    assert_eq!(open.kind(), std::io::ErrorKind::WouldBlock, "it is still open");

    // It leads elsewhere now, and its connections are closed; what was counted stays.
    daemon.describe(&(proxy("x", first, two) + &proxy("y", second, two)));
    assert_eq!(daemon.reload(), "tcp_proxy x: changed\n");
    assert_eq!(who(first).1, "two");
    kept.set_nonblocking(false).unwrap();
    assert!(!matches!(kept.read(&mut [0]), Ok(1..)));
    let status = || daemon.ask(&["status"]).out;
    assert!(wait_until(WITHIN, || status().contains("accepted 4")), "{}", status());
    // One metric for both, with the relay's name.
    assert!(status().contains("delay in tcp proxy y: "), "{}", status());
    let page = daemon.ask(&["status", "--metrics"]).out;
    for name in ["x", "y"] {
        let count =
            format!("gatewright_sojourn_seconds_count{{mode=\"tcp_proxy\",relay=\"{name}\"}} ");
        let count = page.lines().find_map(|line| line.strip_prefix(&count));
        assert!(count.is_some_and(|count| count != "0"), "{page}");
    }
    daemon.describe(&proxy("y", second, two));
    assert_eq!(daemon.reload(), "tcp_proxy x: removed\n");
    assert!(wait_until(WITHIN, || TcpStream::connect(first).is_err()), "{}", daemon.0.said());
    assert_eq!(who(second).1, "two");
}
