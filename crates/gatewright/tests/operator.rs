//! The operator's verbs against a running gateway between two kernel hosts, in namespaces.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod running;
mod trials;

use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use running::{DESCRIPTION, Daemon, Running, SOUTH, Traffic, WITHIN, ping_times};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

fn main() {
    let needs = Needs::new().namespaces().program("ping").program("tshark");
    let tests: [(&str, fn()); 12] = [
        ("help_says_the_shape_of_a_status", help_says_the_shape_of_a_status),
        ("reload_changes_what_differs_and_loses_no_packet", reload_changes_what_differs),
        ("links_come_and_go_and_the_others_lose_nothing", links_come_and_go),
        ("idle_clients_do_not_hide_a_gateway", idle_clients_do_not_hide_a_gateway),
        ("sighup_reloads_and_control_may_move", sighup_reloads_and_control_may_move),
        ("top_tells_rates_drops_and_stays", top_tells_rates_drops_and_stays),
        ("capture_streams_what_passes", capture_streams_what_passes),
        ("neigh_lists_sets_and_forgets", neigh_lists_sets_and_forgets),
        (
            "a_router_is_advertised_and_forwards_as_described",
            a_router_is_advertised_and_forwards_as_described,
        ),
        ("link_is_taken_down_and_up", link_is_taken_down_and_up),
        ("trace_follows_one_packet", trace_follows_one_packet),
        ("route_lists_adds_and_removes", route_lists_adds_and_removes),
    ];
    trials::run_in_both(&needs, running::set_process_mode, tests)
}

/// The keys of objects in a shape of `--help`, `{a, b: [{c, d}]}`, each behind those above it.
fn keys_of_shape(shape: &str) -> BTreeSet<String> {
    let (mut above, mut keys) = (Vec::<String>::new(), BTreeSet::new());
    let mut last = String::new();
    let mut word = String::new();
    for letter in shape.chars() {
        if letter.is_ascii_alphanumeric() || letter == '_' {
            word.push(letter);
            continue;
        }
        if !word.is_empty() {
            last = above
                .iter()
                .chain([&std::mem::take(&mut word)])
                .cloned()
                .collect::<Vec<_>>()
                .join(".");
            keys.insert(last.clone());
        }
        match letter {
            '{' => above = last.split('.').map(str::to_owned).filter(|it| !it.is_empty()).collect(),
            '}' if above.is_empty() => break,
            '}' => drop(above.pop()),
            _ => {}
        }
    }
    keys
}

/// The keys of objects in a value, each behind those above it; times have a form of their own.
fn keys_of_value(value: &Value, above: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| keys_of_value(item, above, keys)),
        Value::Object(object) if !object.contains_key("nanos") => {
            for (key, value) in object {
                let key = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
                keys_of_value(value, &key, keys);
                keys.insert(key);
            }
        }
        _ => {}
    }
}

/// What `status` has with `--layers` only.
const WITH_LAYERS: [&str; 4] =
    ["attached.measured", "layers.measured", "measured_runs", "ways.measured"];

/// `gatewright status --help` says what `--json` has: every key of the answer, and no other one of
/// an object that is there; those of measured times with `--layers`.
fn help_says_the_shape_of_a_status() {
    let world = Running::start("shape");
    world.ask(&["attach", "count", "--at", "frame"]).text();
    let help = Command::new(env!("CARGO_BIN_EXE_gatewright")).args(["status", "--help"]).output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    let told = keys_of_shape(help.split_once("With --json: ").unwrap().1);
    let mut found = BTreeSet::new();
    keys_of_value(&world.ask(&["status", "--json"]).json(), "", &mut found);
    let measured: Vec<_> = WITH_LAYERS.iter().filter(|key| found.contains(**key)).collect();
    assert!(measured.is_empty(), "without --layers: {measured:?}");
    // A layer has a time once a packet was measured in it.
    let ping = world.north.command("ping").args(["-n", "-q", "-i0.02", "-w600", SOUTH]);
    let ping = ping.stdout(Stdio::null()).spawn().unwrap();
    let all_there = wait_until(WITHIN, || {
        keys_of_value(&world.ask(&["status", "--layers", "--json"]).json(), "", &mut found);
        WITH_LAYERS.iter().all(|key| found.contains(*key))
    });
    assert!(all_there, "with --layers: {found:?}");
    drop(ping);
    let untold: Vec<_> = found.difference(&told).collect();
    assert!(untold.is_empty(), "not in the help: {untold:?}");
    // What lists of nothing would hold is not there.
    let is_there = |key: &&String| match key.rsplit_once('.') {
        Some((above, _)) => found.iter().any(|known| known.starts_with(&format!("{above}."))),
        None => true,
    };
    // Only handlers at messages, relays, programs, balances and another description than the file's
    // have these, and hops are shown by who measures them.
    let may_lack = [
        "hops",
        "attached.messages",
        "attached.refused",
        "sojourn.relay",
        "sojourn.handler",
        "balances",
        "fallback",
    ];
    let is_due = |key: &&String| !may_lack.contains(&key.as_str());
    let missing: Vec<_> = told.difference(&found).filter(is_there).filter(is_due).collect();
    assert!(missing.is_empty(), "only in the help: {missing:?}");
}

const COUNT: &str = "[[attach]]\nhandler = \"count\"\nat = \"ether:ipv4\"\n";
const CAPTURE: &str = "[[attach]]\nhandler = \"capture\"\nat = \"frame\"\nfile = \"/dev/null\"\n";

fn handlers(world: &Running) -> Vec<(u64, String)> {
    let status = world.ask(&["status", "--json"]).json();
    let attached = status["attached"].as_array().unwrap().iter();
    attached
        .map(|one| (one["id"].as_u64().unwrap(), one["handler"].as_str().unwrap().to_owned()))
        .collect()
}

fn reload_changes_what_differs() {
    let world = Running::start("reload");
    assert!(world.ask(&["reload"]).text().contains("nothing is changed"));
    world.describe(&format!("{DESCRIPTION}{COUNT}"));
    assert_eq!(world.ask(&["reload"]).text(), "count at ether:ipv4: added\n");

    // A file with errors, and one that needs a restart: nothing changes.
    world.describe(&DESCRIPTION.replace("10.10.1.1/24", "10.10.1.1/33"));
    let refused = world.ask(&["reload"]);
    assert_eq!(refused.code, Some(78), "{}", refused.err);
    assert!(refused.err.contains("gateway.toml:4:") && refused.err.contains("nothing is changed"));
    world.describe(&format!("{DESCRIPTION}[link.new]\non = \"lan\"\nvlan = 10\n"));
    let refused = world.ask(&["reload"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("restart: link new: added"), "{}", refused.err);
    world.describe(&format!("{DESCRIPTION}[link.new]\ndevice = \"g2\"\n"));
    let refused = world.ask(&["reload"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("there is no interface g2"), "{}", refused.err);
    world.describe(&DESCRIPTION.replace("\"g1\"", "\"gone\""));
    let refused = world.ask(&["reload"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("no interface gone; there are: g0, g1"), "{}", refused.err);
    assert!(refused.err.contains("; it runs on as it was"), "{}", refused.err);
    assert!(world.ping(&["-c1", "-W30", SOUTH]), "the link runs on");
    assert_eq!(handlers(&world), [(1, "count".to_owned())], "nothing has changed");

    // Under traffic: handlers come and go, the counting one stays and counts on; addresses and
    // routes too.
    let hosts = [&world.north, &world.south];
    let traffic = Traffic::start(hosts, SOUTH, 400, Duration::from_millis(5));
    for round in 0..6 {
        let more = if round % 2 == 0 { format!("{CAPTURE}{COUNT}") } else { COUNT.to_owned() };
        let address =
            DESCRIPTION.replace("2.1/24\"", &format!("2.1/24\", \"10.10.2.{}/24\"", 10 + round));
        let route = format!("[[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.10.2.{}\"\n", 20 + round);
        world.describe(&format!("{address}{route}{more}"));
        let told = world.ask(&["reload"]).text();
        assert!(told.contains("10.9.0.0/16") && told.contains("capture at frame"), "{told}");
    }
    assert_eq!(traffic.answered(), 400, "{}", world.said());
    assert_eq!(handlers(&world), [(1, "count".to_owned())]);
    let status = world.ask(&["status", "--json"]).json();
    assert!(status["attached"][0]["packets"].as_u64().unwrap() >= 800, "{status}");
    let addresses = status["links"][1]["addresses"].to_string();
    assert!(addresses.contains("10.10.2.15/24") && !addresses.contains("2.14/24"), "{addresses}");

    // A link whose mode changes is opened anew, and passes packets again.
    world.describe(&DESCRIPTION.replace("\"packet\"", "\"auto\""));
    let told = world.ask(&["reload", "--json"]).json();
    let reopened = |change: &Value| change["how"].as_str().unwrap().contains("opened anew by");
    assert_eq!(
        told["changes"].as_array().unwrap().iter().filter(|c| reopened(c)).count(),
        2,
        "{told}"
    );
    // A cable whose end was just opened loses what is sent until the other end knows of it.
    assert!(wait_until(WITHIN, || world.ping(&["-c1", "-W1", SOUTH])));
}

fn links_come_and_go() {
    let world = Running::start("links");
    let east = Namespace::new().unwrap();
    let cable = Veth::pair(&world.middle, "g2", &east, "e0").unwrap();
    cable.b.add_address("10.10.3.2/24").unwrap();
    cable.b.add_address("fd00:3::2/64").unwrap();
    cable.up().unwrap();
    east.add_route("default", "10.10.3.1").unwrap();
    let came = format!(
        "{DESCRIPTION}[link.east]\ndevice = \"g2\"\naddresses = [\"10.10.3.1/24\", \"fd00:3::1/64\"]\n\
         [[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.10.3.2\"\n{COUNT}link = \"east\"\n"
    );
    let reach = || wait_until(WITHIN, || world.ping(&["-c1", "-W1", "10.10.3.2"]));
    let hosts = [&world.north, &world.south];
    let traffic = Traffic::start(hosts, SOUTH, 600, Duration::from_millis(10));
    for _ in 0..2 {
        world.describe(&came);
        let told = world.ask(&["reload"]).text();
        assert!(told.contains("link east: added") && told.contains("opened by"), "{told}");
        assert!(reach(), "{}", world.said());
        assert!(world.ask(&["route"]).text().contains("10.9.0.0/16"));
        world.ask(&["attach", "count", "--at", "frame", "--link", "east"]).text();
        assert_eq!(handlers(&world).len(), 2);
        world.describe(DESCRIPTION);
        let told = world.ask(&["reload"]).text();
        assert!(told.contains("link east: removed"), "{told}");
        assert!(!world.ping(&["-c1", "-W1", "10.10.3.2"]));
        assert!(!world.ask(&["route"]).text().contains("10.10.3"));
        assert!(!world.ask(&["status"]).text().contains("east"));
        assert!(
            world.ask(&["link", "down", "east"]).err.contains("there is no link east: lan, wan")
        );
        assert!(handlers(&world).is_empty(), "those on the link went with it");
    }
    // More than there is room for.
    let link = |number: u32| format!("[link.more{number}]\ndevice = \"m{number}\"\n");
    world.describe(&format!("{DESCRIPTION}{}", (0..5).map(link).collect::<String>()));
    let refused = world.ask(&["reload"]);
    assert!(refused.err.contains("link more4: added, and no further link fits"), "{}", refused.err);
    // One takes the place of another.
    world.describe(&came.replace("[link.east]", "[link.levant]").replace("\"east\"", "\"levant\""));
    let told = world.ask(&["reload"]).text();
    assert!(told.contains("link levant: added"), "{told}");
    assert!(reach(), "{}", world.said());
    assert_eq!(traffic.answered(), 600, "{}", world.said());
}

/// Clients that ask nothing take the place of no other process, however many they are; one that is
/// refused, as its own process has too many, knows that the gateway is busy and not away.
fn idle_clients_do_not_hide_a_gateway() {
    let host = Namespace::new().unwrap();
    let daemon = Daemon::start(
        "idle-clients",
        &host,
        "[link.t]\nmode = \"tun\"\ndevice = \"idle0\"\naddresses = [\"10.9.0.1/24\"]\n",
    );
    let path = daemon.folder.join("s");
    for count in [16, 200] {
        let connect = |_| std::os::unix::net::UnixStream::connect(&path).unwrap();
        let idle: Vec<_> = (0..count).map(connect).collect();
        let status = daemon.ask(&["status"]);
        assert_eq!(status.code, Some(0), "{count}: {}", status.err);
        drop(idle);
    }
    let busy = daemon.ask(&["events", "--level", "warning"]);
    assert!(busy.out.contains(" warning control-busy: "), "{}{}", busy.out, busy.err);
    drop(daemon);
    let gone = Command::new(env!("CARGO_BIN_EXE_gatewright"))
        .args(["status", "--socket"])
        .arg(&path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&gone.stderr);
    assert_eq!(gone.status.code(), Some(69), "{said}");
    assert!(said.contains("no gateway answers at"), "{said}");
}

fn sighup_reloads_and_control_may_move() {
    let world = Running::start("sighup");
    let says = |words: &str| wait_until(WITHIN, || world.said().contains(words));
    world.describe(&format!("{DESCRIPTION}{COUNT}"));
    world.process.hang_up().unwrap();
    assert!(says("SIGHUP: count at ether:ipv4: added"), "{}", world.said());
    world.describe("[link.lan]\nmtu = 1\n");
    world.process.hang_up().unwrap();
    assert!(says("GW0105") && says("nothing is changed"), "{}", world.said());
    assert_eq!(handlers(&world).len(), 1, "nothing has changed");
    // One that is not there is an event, too.
    fs::remove_file(world.folder.join("gateway.toml")).unwrap();
    let refused =
        || world.ask(&["events", "--level", "warning"]).out.matches("reload-refused").count();
    assert_eq!(refused(), 1, "that with errors");
    let told = world.ask(&["events", "--level", "warning"]).out;
    assert!(told.contains("gateway.toml:2:") && told.contains("GW0105"), "{told}");
    // So is one that the command refuses before the gateway sees it.
    let other = world.folder.join("other.toml");
    fs::write(&other, "[link.lan]\nmtu = 2\n").unwrap();
    assert_eq!(world.ask(&["reload", other.to_str().unwrap()]).code, Some(78));
    assert_eq!(refused(), 2, "by the command");
    let told = world.ask(&["events", "--level", "warning"]).out;
    assert!(told.contains("other.toml:2:"), "{told}");
    world.process.hang_up().unwrap();
    assert!(wait_until(WITHIN, || refused() == 3), "{}", world.said());
    assert!(says("No such file"), "{}", world.said());

    // The metrics page comes, moves, and goes; a place that is taken changes nothing.
    let page = |name: &str| {
        let path = world.folder.join(name);
        let get = std::os::unix::net::UnixStream::connect(path).and_then(|mut stream| {
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            std::io::read_to_string(stream)
        });
        get.is_ok_and(|said| said.contains("gatewright_link"))
    };
    let control = |name: &str| {
        let place = world.folder.join(name);
        format!("{DESCRIPTION}{COUNT}[control]\nmetrics = \"unix:{}\"\n", place.display())
    };
    for (name, gone) in [("m1", "m2"), ("m2", "m1"), ("m1", "m2")] {
        world.describe(&control(name));
        let told = world.ask(&["reload"]).text();
        let place = format!("[control] metrics: unix:{}", world.folder.join(name).display());
        assert!(told.starts_with(&place), "{told}");
        assert!(page(name), "{}", world.said());
        assert!(wait_until(WITHIN, || !world.folder.join(gone).exists()), "{gone}");
    }
    world.describe(&control("s").replace(COUNT, ""));
    let refused = world.ask(&["reload"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("metrics") && refused.err.contains("in use"), "{}", refused.err);
    assert!(page("m1") && handlers(&world).len() == 1, "nothing has changed");
    world.describe(&format!("{DESCRIPTION}{COUNT}"));
    world.process.hang_up().unwrap();
    assert!(wait_until(WITHIN, || !world.folder.join("m1").exists()));
    assert!(world.ping(&["-c1", "-W30", SOUTH]));
}

fn top_tells_rates_drops_and_stays() {
    let world = Running::start("top");
    let ping = world.north.command("ping").args(["-n", "-q", "-i0.01", "-w600", SOUTH]);
    let expired = world.north.command("ping").args(["-n", "-q", "-i0.01", "-w600", "-t1", SOUTH]);
    let started = [ping.stdout(Stdio::null()).spawn(), expired.stdout(Stdio::null()).spawn()];
    let pings = started.map(Result::unwrap);
    world.ask(&["attach", "count", "--at", "ether:ipv4", "--link", "lan"]).text();
    let rounds = || -> Vec<Value> {
        let rounds = world.ask(&["top", "--json", "--rounds", "2", "--interval", "0.5"]).text();
        rounds.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let received = |round: &Value| round["links"][0]["received"].as_f64().unwrap();
    // Two pings of at most 100 a second each; how many fewer is up to the machine, which may have no
    // time for any of them in one round.
    let mut told = rounds();
    assert!(
        wait_until(WITHIN, || received(&told[1]) > 1.0 || {
            told = rounds();
            false
        }),
        "{told:?}"
    );
    assert_eq!(told.len(), 2);
    let round = &told[1];
    let link = &round["links"][0];
    assert_eq!(link["name"], "lan");
    let received = received(round);
    assert!(received < 1000.0, "{round}");
    assert!(link["received_bits"].as_f64().unwrap() > received * 8.0 * 90.0, "{round}");
    let layer = |name: &str| {
        let layers = round["layers"].as_array().unwrap();
        layers.iter().find(|layer| layer["layer"] == name).unwrap().clone()
    };
    assert!(layer("ipv4")["receive"].as_f64().unwrap() > 1.0, "{round}");
    assert!(round["handlers"][0]["packets"].as_f64().unwrap() > 1.0, "{round}");
    assert!(round["sojourn"]["p99_ns"].as_u64() >= round["sojourn"]["p50_ns"].as_u64(), "{round}");
    assert!(round["sojourn"]["p50_ns"].as_u64().unwrap() > 0, "{round}");
    let once = world.ask(&["top", "--once"]).text();
    for part in ["LINK", "lan ", "LAYER", "ipv4", "HANDLER", "DELAY", "50 %"] {
        assert!(once.contains(part), "{part} is not in {once}");
    }
    assert!(!once.contains('\u{1b}'), "no terminal, no control sequences");
    drop(pings);
    let wrong = world.ask(&["top", "--interval", "0"]);
    assert_eq!(wrong.code, Some(2));
}

/// What tshark reads in a capture: one line a packet with these fields.
fn read(octets: &[u8], fields: &[&str]) -> Vec<String> {
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let mut tshark = Command::new("tshark")
        .args(["-n", "-r", "-", "-T", "fields"])
        .args(fields)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    tshark.stdin.take().unwrap().write_all(octets).unwrap();
    let output = tshark.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn capture_streams_what_passes() {
    let world = Running::start("capture");
    let ping = world.north.command("ping").args(["-n", "-q", "-i0.02", "-w600", SOUTH]);
    let ping = ping.stdout(Stdio::null()).spawn().unwrap();
    // Frames of one link, both ways, to standard output.
    let arguments = ["capture", "--link", "lan", "--protocol", "icmp", "--count", "6"];
    let said = world.command(&arguments).output().unwrap();
    assert_eq!(said.status.code(), Some(0), "{}", String::from_utf8_lossy(&said.stderr));
    let fields = ["frame.interface_name", "frame.packet_flags_direction", "icmp.type", "ip.dst"];
    let read_lines = read(&said.stdout, &fields);
    assert_eq!(read_lines.len(), 6, "{read_lines:?}");
    for line in &read_lines {
        let known = [format!("lan\t1\t8\t{SOUTH}"), "lan\t2\t0\t10.10.1.2".to_owned()];
        let known = known
            .map(|line| line.replace("\t1\t", "\t0x00000001\t").replace("\t2\t", "\t0x00000002\t"));
        assert!(known.contains(line), "{line} is not in {known:?}");
    }
    // Packets inside of the graph, one side, to a file; hops are spent between the two sides.
    let file = world.folder.join("up.pcapng");
    let file = file.to_str().unwrap();
    let arguments = ["capture", "--at", "ether:ipv4", "--side", "transmit", "--destination", SOUTH];
    let more = ["--seconds", "1", "--json", "--output", file];
    // In one second the machine may have no time for a ping.
    let mut told = Value::Null;
    let some = || {
        told = world.ask(&[&arguments[..], &more].concat()).json();
        told["packets"].as_u64().unwrap() > 0
    };
    assert!(wait_until(WITHIN, some), "{told}");
    let packets = usize::try_from(told["packets"].as_u64().unwrap()).unwrap();
    assert_eq!(told["missed"], 0, "{told}");
    let up = read(&fs::read(file).unwrap(), &["frame.protocols", "ip.ttl", "frame.comment"]);
    assert_eq!(up, vec!["raw:ip:icmp:data\t63\tether:ipv4"; packets]);
    drop(ping);
    capture_ends_in_order(&world);
    for (arguments, code, told) in [
        (["capture", "--at", "nowhere"], 1, "a position is"),
        (["capture", "--link", "land"], 1, "there is no link land: lan, wan"),
        (["capture", "--side", "up"], 1, "neither receive nor transmit"),
        (["capture", "--source", "1.2.3"], 1, "neither ADDRESS nor"),
        (["capture", "--json", "--count=1"], 2, "--output"),
    ] {
        let said = world.ask(&arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}");
        assert!(said.err.contains(told) || said.out.contains(told), "{arguments:?}: {}", said.err);
    }
}

/// The packets that are whole in a capture: enhanced packet blocks, of type 6 (pcapng §4.3).
fn packets(capture: &[u8]) -> usize {
    let word = |octets: &[u8]| u32::from_ne_bytes(octets.try_into().unwrap()) as usize;
    let (mut rest, mut count) = (capture, 0);
    while rest.len() >= 8 && rest.len() >= word(&rest[4..8]) {
        count += usize::from(word(&rest[..4]) == 6);
        rest = &rest[word(&rest[4..8])..];
    }
    count
}

/// Interrupted, it ends in order, and leaves no handler.
fn capture_ends_in_order(world: &Running) {
    let child = world.north.command(env!("CARGO_BIN_EXE_gatewright"));
    let child = child.args(["capture", "--socket"]).arg(world.folder.join("s"));
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let handlers = || world.ask(&["status", "--json"]).json()["handlers"].as_array().unwrap().len();
    assert!(wait_until(WITHIN, || handlers() == 2));
    assert!(ping_times(&world.north, 3, SOUTH));
    // What it was sent it has not written yet: it is interrupted when it has.
    let mut written = child.stdout().unwrap();
    let captured = Mutex::new(Vec::new());
    let whole = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut octets = [0; 4096];
            while let Ok(count @ 1..) = written.read(&mut octets) {
                captured.lock().unwrap().extend_from_slice(&octets[..count]);
            }
        });
        // Three pings are twelve frames.
        let whole = wait_until(WITHIN, || packets(&captured.lock().unwrap()) >= 12);
        child.interrupt().unwrap();
        whole
    });
    let captured = captured.into_inner().unwrap();
    assert!(whole, "{} octets", captured.len());
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(0), "{told}");
    assert!(told.contains("packets captured, 0 missed"), "{told}");
    assert!(read(&captured, &["frame.number"]).len() >= 12, "{told}");
    assert!(wait_until(WITHIN, || handlers() == 0));
    // A client that is killed leaves none either.
    let mut child = world.command(&["capture"]).stdout(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(WITHIN, || handlers() == 2));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(wait_until(WITHIN, || handlers() == 0));
}

fn neigh_lists_sets_and_forgets() {
    let world = Running::start("neigh");
    let of = |address: &str| {
        let listed = world.ask(&["neigh", "--json"]).json();
        let listed = listed["neighbours"].as_array().unwrap().clone();
        listed.into_iter().find(|one| one["address"] == address)
    };
    let learnt = of(SOUTH).unwrap_or_else(|| panic!("{}", world.ask(&["neigh"]).out));
    assert_eq!(learnt["link"], "wan");
    let mac = learnt["mac"].as_str().unwrap().to_owned();
    let south = world.south.ip(&["link", "show", "s0"]).unwrap();
    assert!(south.contains(&mac), "{mac} is not in {south}");
    // Set to an address that nobody has: packets are lost, and come again when it is gone.
    let set = world.ask(&["neigh", "add", SOUTH, "02:00:00:00:00:77"]).text();
    assert!(set.contains("at 02:00:00:00:00:77 on wan, permanent"), "{set}");
    assert_eq!(of(SOUTH).unwrap()["state"], "permanent");
    assert!(!world.ping(&["-c1", "-W1", SOUTH]));
    assert!(world.ask(&["neigh", "flush"]).text().contains("10.10.1.2"));
    assert_eq!(of(SOUTH).unwrap()["state"], "permanent", "it is not learnt");
    assert_eq!(world.ask(&["neigh", "del", SOUTH]).code, Some(0));
    // The host may ask for us at any time, and is learnt by that.
    assert!(of(SOUTH).is_none_or(|one| one["state"] != "permanent"));
    assert!(wait_until(WITHIN, || world.ping(&["-c1", "-W1", SOUTH])));
    assert_eq!(of(SOUTH).unwrap()["mac"], mac.as_str());
    let refused: [(&[&str], &str); 7] = [
        (&["del", "10.10.2.99"], "is no neighbour that is known"),
        (&["add", "10.99.0.1", "02:00:00:00:00:77"], "on which link"),
        (&["add", "fe80::1", "02:00:00:00:00:77"], "on which link"),
        (&["add", SOUTH, "01:00:5e:00:00:01"], "is a group's address"),
        (&["add", SOUTH, "02:00:00"], "02:00:00: "),
        (&["add", SOUTH, "00:00:00:00:00:00"], "or reserved"),
        (&["add", SOUTH, "02:00:00:00:00:00:00:77"], "has 8 octets, and the address of wan is "),
    ];
    for (arguments, told) in refused {
        let said = world.ask(&[&["neigh"], arguments].concat());
        assert_eq!(said.code, Some(1), "{arguments:?}");
        assert!(said.err.contains(told), "{arguments:?}: {}", said.err);
    }
}

fn a_router_is_advertised_and_forwards_as_described() {
    let world = Running::start("router");
    let lan = |keys: &str| {
        DESCRIPTION.replacen("mode = \"packet\"", &format!("mode = \"packet\"\n{keys}"), 1)
    };
    world.describe(&lan("advertise = { interval_s = 4 }"));
    assert_eq!(world.ask(&["reload"]).text(), "[link.lan] advertise: is new\n");
    let learnt =
        || world.north.ip(&["-6", "route", "show", "default"]).unwrap().contains("proto ra");
    assert!(wait_until(WITHIN, learnt), "the host has learnt its router");
    world.describe(&lan("forwarding = false"));
    let told = world.ask(&["reload"]).text();
    assert!(
        told.contains("advertise: is gone") && told.contains("forwarding: false, not true"),
        "{told}"
    );
    assert!(!world.ping(&["-c1", "-W1", SOUTH]));
    assert!(world.ping(&["-c1", "-W30", "10.10.1.1"]), "it is a host still");
    let why = "from lan (`forwarding = false` in [link.NAME])";
    let status = world.ask(&["status"]).text();
    assert!(status.contains(why), "{status}");
    world.describe(DESCRIPTION);
    assert_eq!(world.ask(&["reload"]).code, Some(0));
    assert!(wait_until(WITHIN, || world.ping(&["-c1", "-W1", SOUTH])));
}

fn link_is_taken_down_and_up() {
    let world = Running::start("down");
    world.ask(&["route", "add", "10.78.0.0/16", "--via", SOUTH]).text();
    let routes = || world.ask(&["route"]).text();
    let before = routes();
    assert!(before.contains("10.78.0.0/16") && before.contains("10.10.2.0/24"), "{before}");
    assert_eq!(world.ask(&["link", "down", "wan"]).text(), "wan is down\n");
    let down = routes();
    assert!(!down.contains("10.78.0.0/16") && !down.contains("10.10.2.0/24"), "{down}");
    let shown = world.ask(&["link", "wan"]).text();
    assert!(shown.starts_with("wan: down") && shown.contains("set down by command"), "{shown}");
    assert!(!world.ping(&["-c1", "-W1", SOUTH]));
    assert!(world.ping(&["-c1", "-W30", "10.10.1.1"]), "the other link runs");
    assert_eq!(world.ask(&["link", "up", "wan"]).text(), "wan is up\n");
    assert_eq!(routes(), before);
    assert!(wait_until(WITHIN, || world.ping(&["-c1", "-W1", SOUTH])));
    let none = world.ask(&["link", "down", "wann"]);
    assert_eq!(none.code, Some(1));
    assert!(none.err.contains("there is no link wann: lan, wan"), "{}", none.err);
}

fn trace_follows_one_packet() {
    let world = Running::start("trace");
    world.ask(&["attach", "count", "--at", "ether:ipv4", "--link", "lan"]).text();
    let ping = world.north.command("ping").args(["-n", "-q", "-i0.02", "-w600", SOUTH]);
    let ping = ping.stdout(Stdio::null()).spawn().unwrap();
    let arguments = ["trace", "--link", "lan", "--protocol", "icmp", "--destination", SOUTH];
    let told = world.ask(&[&arguments[..], &["--json"]].concat()).json();
    let steps = told["steps"].as_array().unwrap();
    let way = steps.iter().map(|step| {
        let of = |name: &str| step[name].as_str().unwrap().to_owned();
        [of("at"), of("side"), of("to"), of("outcome")].join(" ")
    });
    let expected = [
        "frame receive ethernet passed on",
        "ether:ipv4 receive ipv4 passed on",
        "ether:ipv4 transmit ethernet passed on",
        "frame transmit device wan sent",
    ];
    assert_eq!(way.collect::<Vec<_>>(), expected, "{told}");
    assert_eq!(steps[1]["handlers"], serde_json::json!([1]));
    let changed = steps[1]["changed"].to_string();
    assert!(changed.contains("time to live 64 → 63"), "{changed}");
    assert!(told["took_ns"].as_u64().unwrap() > 0, "{told}");
    let text = world.ask(&arguments).text();
    assert!(
        text.contains("14 octets of header added") && text.contains("handlers on the edge: 1"),
        "{text}"
    );
    drop(ping);
    // A packet whose hops are spent is answered, one of nobody's is dropped with its reason.
    let file = world.folder.join("frames.pcapng");
    let file = file.to_str().unwrap();
    let capture = ["capture", "--link", "lan", "--side", "receive", "--destination", SOUTH];
    let one = || {
        let capture =
            world.command(&[&capture[..], &["--count=1", "--output", file]].concat()).spawn();
        let mut capture = capture.unwrap();
        let captured = || {
            let _lost = world.ping(&["-c1", "-W1", "-t1", SOUTH]);
            capture.try_wait().unwrap().is_some()
        };
        assert!(wait_until(WITHIN, captured));
        // One of those before may still have been on its way.
        read(&fs::read(file).unwrap(), &["ip.ttl"]) == ["1"]
    };
    assert!(wait_until(WITHIN, one));
    let told = world.ask(&["trace", "--link", "lan", "--from", file]).text();
    assert!(told.contains("error:ipv4:HopLimit receive") && told.contains("icmpv4"), "{told}");
    assert!(told.contains("    an ICMP error is sent about it\n"), "{told}");
    let about = "    ICMP time exceeded in transit (type 11, code 0) about ICMP echo request 10.10.1.2 → 10.10.2.2\n";
    assert!(told.contains(about), "{told}");
    // The same in a row of `status`.
    let status = world.ask(&["status"]).text();
    let counted =
        |line: &str| line.starts_with("icmp of ipv4: ") && line.contains("time-exceeded ");
    assert!(status.lines().any(counted), "{status}");
    let id = world.ask(&["attach", "drop", "--at", "ether:ipv4", "--destination", SOUTH]).text();
    let told = world.ask(&["trace", "--link", "lan", "--from", file, "--json"]).json();
    let taken = format!("taken by handler {}", id.trim());
    assert_eq!(told["steps"][1]["outcome"], taken, "{told}");
    let none = world.ask(&["trace", "--source", "192.0.2.77", "--seconds", "0.1"]);
    assert_eq!(none.code, Some(1));
    assert!(none.err.contains("has come within 0.1 s"), "{}", none.err);
    assert_eq!(world.ask(&["trace", "--from", file]).code, Some(2), "a frame comes by a link");
    let beyond = world.ask(&["trace", "--link", "lan", "--from", file, "--number", "2"]);
    assert_eq!(beyond.code, Some(78), "{}", beyond.err);
}

fn route_lists_adds_and_removes() {
    let world = Running::start("route");
    let listed = world.ask(&["route", "list"]).text();
    assert!(listed.contains("10.10.1.0/24             connected on lan, by address\n"), "{listed}");
    assert!(listed.contains("fd00:2::1/128            local, by address\n"), "{listed}");
    let added = world.ask(&["route", "add", "10.77.0.0/16", "--via", SOUTH]).text();
    assert_eq!(added, "10.77.0.0/16             via 10.10.2.2 on wan, by command\n");
    world.south.ip(&["addr", "add", "10.77.0.1/16", "dev", "lo"]).unwrap();
    assert!(world.ping(&["-c1", "-W30", "10.77.0.1"]), "packets take the new route");
    // It stays when the description is loaded anew, which has another one for the same place.
    let other = "[[route]]\nto = \"10.77.0.0/16\"\nvia = \"10.10.1.2\"\n";
    world.describe(&format!("{DESCRIPTION}{other}"));
    world.ask(&["reload"]).text();
    let of = |world: &Running| {
        let routes = world.ask(&["route", "--json"]).json();
        let routes = routes["routes"].as_array().unwrap().clone();
        routes.into_iter().find(|route| route["to"] == "10.77.0.0/16")
    };
    assert_eq!(of(&world).unwrap()["origin"], "command");
    assert_eq!(world.ask(&["route", "del", "10.77.0.0/16"]).code, Some(0));
    let back = of(&world).unwrap();
    assert_eq!(
        (back["origin"].as_str(), back["link"].as_str()),
        (Some("description"), Some("lan"))
    );
    assert_eq!(world.ask(&["route", "del", "10.77.0.0/16"]).code, Some(0));
    assert_eq!(of(&world), None);
    let refused: [(&[&str], &str); 7] = [
        (&["del", "10.77.0.0/16"], "there is no such route"),
        (&["del", "10.10.1.0/24"], "it goes when that goes"),
        (&["add", "10.77.0.1/16", "--via", SOUTH], "10.77.0.0/16 is the network"),
        (&["add", "10.77.0.0/16", "--via", "10.1.1.1"], "is on no link"),
        (&["add", "10.77.0.0/16", "--via", "fe80::1", "--link", "lan"], "another family"),
        (&["add", "10.77.0.0/16", "--link", "land"], "there is no link land: lan, wan"),
        (&["add", "default"], "needs a next hop"),
    ];
    for (arguments, told) in refused {
        let said = world.ask(&[&["route"], arguments].concat());
        assert_eq!(said.code, Some(1), "{arguments:?}");
        assert!(said.err.contains(told), "{arguments:?}: {}", said.err);
    }
}
