//! The event log of a running gateway: links that go and come, addresses and routers that are
//! learnt or lost, reloads, what is full. Kernels, dnsmasq and namespaces make them happen.
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
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use running::{DESCRIPTION, Daemon, Running, WITHIN};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

fn main() {
    let needs = Needs::new().namespaces().program("dnsmasq");
    let tests: [(&str, fn()); 11] = [
        ("links_that_go_and_come_are_events", links_that_go_and_come_are_events),
        ("numbers_go_on_over_a_reload", numbers_go_on_over_a_reload),
        ("a_second_run_starts_nothing", a_second_run_starts_nothing),
        (
            "a_full_disk_stops_neither_gateway_nor_events",
            a_full_disk_stops_neither_gateway_nor_events,
        ),
        ("a_capture_on_a_full_disk_goes_on", a_capture_on_a_full_disk_goes_on),
        ("a_follower_ends_quietly", a_follower_ends_quietly),
        ("a_duplicate_address_is_an_event", a_duplicate_address_is_an_event),
        ("a_lease_is_an_event", a_lease_is_an_event),
        ("routers_learnt_and_lost_are_events", routers_learnt_and_lost_are_events),
        ("a_slower_mode_is_an_event", a_slower_mode_is_an_event),
        ("too_many_kernel_routes_are_an_event", too_many_kernel_routes_are_an_event),
    ];
    trials::run(&needs, tests)
}

/// The events after a number.
fn events(gateway: &Daemon, since: u64) -> Vec<Value> {
    let answer = gateway.ask(&["events", "--json", "--since", &since.to_string()]).json();
    assert_eq!(answer["missed"], 0, "{answer}");
    answer["events"].as_array().unwrap().clone()
}

/// The first event of a kind after a number, once there is one.
#[track_caller]
fn awaited(gateway: &Daemon, kind: &str, since: u64) -> Value {
    let mut found = None;
    let came = wait_until(WITHIN, || {
        found = events(gateway, since).into_iter().find(|event| event["kind"] == kind);
        found.is_some()
    });
    assert!(came, "no {kind} after {since}: {:#?}", events(gateway, 0));
    found.unwrap()
}

fn number(event: &Value) -> u64 {
    event["sequence"].as_u64().unwrap()
}

fn text(event: &Value) -> &str {
    event["text"].as_str().unwrap()
}

fn links_that_go_and_come_are_events() {
    let world = Running::start("events-links");
    let last = number(events(&world, 0).last().unwrap());
    let mut follower =
        world.command(&["events", "--follow", "--json", "--since", &last.to_string()]);
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    let mut followed = BufReader::new(follower.stdout.take().unwrap()).lines();

    world.middle.ip(&["link", "set", "dev", "g1", "down"]).unwrap();
    let down = awaited(&world, "link-down", last);
    assert!(text(&down).starts_with("link wan is down: its device g1 has gone"), "{down}");
    assert_eq!((&down["level"], &down["part"]), (&Value::from("warning"), &Value::from("links")));
    assert_eq!(down["fields"]["link"], "wan");
    world.middle.ip(&["link", "set", "dev", "g1", "up"]).unwrap();
    let up = awaited(&world, "link-up", number(&down));

    // Gone with its device, and back with another one of that name.
    world.middle.ip(&["link", "del", "dev", "g1"]).unwrap();
    let gone = awaited(&world, "link-down", number(&up));
    let cable = Veth::pair(&world.middle, "g1", &world.south, "s0").unwrap();
    cable.up().unwrap();
    let back = awaited(&world, "link-up", number(&gone));

    // A follower has the same, in the same order, none left out.
    let mut last = last;
    for line in followed.by_ref() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(number(&event), last + 1, "{event}");
        last = number(&event);
        if last == number(&back) {
            assert_eq!(event, back);
            break;
        }
    }
    follower.kill().unwrap();
    follower.wait().unwrap();

    // Standard error and the text of the verb say it in the same line.
    let line = format!(" warning link-down: {}", text(&down));
    let told = world.ask(&["events", "--level", "warning"]).text();
    assert!(told.lines().any(|told| told.ends_with(&line)), "{told}");
    assert!(!told.contains(" info "), "{told}");
    assert!(wait_until(WITHIN, || world.said().contains(&line)), "{}", world.said());
    let page = world.ask(&["status", "--metrics"]).text();
    let counter =
        "gatewright_events_total{part=\"links\",kind=\"link-down\",level=\"warning\"} 2\n";
    assert!(page.contains(counter), "{page}");
    assert!(world.ask(&["link", "down", "lan"]).code == Some(0));
    awaited(&world, "link-closed", number(&back));
}

/// Another `[log]` takes effect at once; numbers and kept events stay.
fn numbers_go_on_over_a_reload() {
    let place = Namespace::new().unwrap();
    let cable = Veth::pair(&place, "g0", &place, "g1").unwrap();
    cable.up().unwrap();
    // Without a journal here, standard error has the text.
    let gateway = Daemon::start(
        "events-reload",
        &place,
        &format!("{DESCRIPTION}[log]\nformat = \"journal\"\n"),
    );
    assert!(wait_until(WITHIN, || gateway.said().contains(" started: gatewright runs\n")));
    let before = events(&gateway, 0);
    gateway.describe(&format!("{DESCRIPTION}[log]\nformat = \"json\"\nlevel = \"warning\"\n"));
    assert_eq!(
        gateway.ask(&["reload"]).text(),
        "[log] format: json, not journal\n[log] level: warning\n"
    );
    gateway.describe(&DESCRIPTION.replace("1.1/24", "1.1/33"));
    assert_eq!(gateway.ask(&["reload"]).code, Some(78));
    gateway.describe("[link.lan]\ndevice = \"gone\"\n[link.wan]\ndevice = \"g1\"\n");
    assert_eq!(gateway.ask(&["reload"]).code, Some(1));
    let refused = awaited(&gateway, "reload-refused", number(before.last().unwrap()));
    let all = events(&gateway, 0);
    assert_eq!(all[..before.len()], before);
    let numbers: Vec<_> = all.iter().map(number).collect();
    assert_eq!(numbers, (1..=all.len() as u64).collect::<Vec<_>>());
    for kind in ["changed", "reloaded"] {
        awaited(&gateway, kind, number(before.last().unwrap()));
    }
    let line = format!("{refused}\n");
    let same = |said: &str| serde_json::from_str::<Value>(said).is_ok_and(|said| said == refused);
    assert!(wait_until(WITHIN, || gateway.said().lines().any(same)), "{line} {}", gateway.said());
    assert!(!gateway.said().contains("\"reloaded\""), "{}", gateway.said());
}

/// A gateway and a kernel host on one cable; the host has 10.20.0.1.
fn beside_a_host(name: &str, link: &str) -> (Daemon, Namespace, Namespace, Veth) {
    let (middle, host) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let cable = Veth::pair(&middle, "g0", &host, "h0").unwrap();
    cable.b.add_address("10.20.0.1/24").unwrap();
    cable.up().unwrap();
    let up = |end: &Namespace, name| {
        let told = end.ip(&["link", "show", "dev", name]);
        told.is_ok_and(|told| told.contains("state UP"))
    };
    assert!(wait_until(WITHIN, || up(&middle, "g0") && up(&host, "h0")));
    let description = format!("[link.wan]\ndevice = \"g0\"\nmode = \"packet\"\n{link}");
    (Daemon::start(name, &middle, &description), middle, host, cable)
}

/// The control socket is claimed first: a gateway that cannot have it opens no device and has not
/// started.
fn a_second_run_starts_nothing() {
    let (gateway, place, _, _cable) = beside_a_host("events-second", "");
    let before = events(&gateway, 0).len();
    let file = gateway.folder.join("gateway.toml");
    let run = |before: &str, socket: &str| {
        let script = format!("{before}exec \"$0\" run \"$1\" --socket \"$2\"");
        let command = place.command("sh").args(["-c", &script, env!("CARGO_BIN_EXE_gatewright")]);
        let second = command.arg(&file).arg(gateway.folder.join(socket)).output().unwrap();
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert_eq!(second.status.code(), Some(69), "{said}");
        said
    };
    // Before what else would fail, as too few descriptors.
    for before in ["", "ulimit -n 43; "] {
        let said = run(before, "s");
        assert!(said.contains("another gateway runs with it; `gatewright status"), "{said}");
        assert!(!said.contains("started") && !said.contains("link wan"), "{said}");
        assert!(!said.contains("RLIMIT_NOFILE"), "{said}");
    }
    // By another control socket it is another gateway, and the link is in use.
    let said = run("", "other");
    assert!(said.contains("link wan: g0 cannot be exclusive: "), "{said}");
    let advice = ") is the host there; end that one first, or take another interface";
    assert!(said.contains(advice), "{said}");
    assert_eq!(events(&gateway, 0).len(), before, "nothing has happened to the first one");
    let started = awaited(&gateway, "started", 0);
    assert_eq!(started["part"], "gateway");
}

/// Standard error on a file system of one page, as a log file on a full disk is: events go on, and
/// the first of them says so. When there is room again, they are written again.
fn a_full_disk_stops_neither_gateway_nor_events() {
    let place = Namespace::new().unwrap();
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("events-full");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("disk")).unwrap();
    let file = folder.join("gateway.toml");
    let text = "[link.t]\nmode = \"tun\"\ndevice = \"full0\"\naddresses = [\"10.9.1.1/24\"]\n";
    std::fs::write(&file, text).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    // The log is a second file that fills what the first has left: then the first is emptied.
    let script = format!(
        "mount -t tmpfs -o size=4k none {disk} && head -c 4096 /dev/zero > {disk}/ballast; \
         : 2> {disk}/log; \
         (sleep 1; while ! test -e {room}; do sleep 0.1; done; rm {disk}/ballast) & \
         exec {binary} run {file} --socket {socket} 2>> {disk}/log",
        disk = path("disk"),
        room = path("room"),
        binary = env!("CARGO_BIN_EXE_gatewright"),
        file = file.display(),
        socket = path("s"),
    );
    let shell = place.command("unshare").args(["-m", "sh", "-c", &script]);
    let process = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let gateway = Daemon { folder, process };
    let answers = || gateway.ask(&["status"]).code == Some(0);
    assert!(wait_until(WITHIN, answers), "{}", gateway.ask(&["status"]).err);
    let lost = awaited(&gateway, "log-not-written", 0);
    // ENOSPC of errno(3).
    assert!(lost["text"].as_str().unwrap().contains("No space left on device"), "{lost}");
    for mtu in [1400, 1300] {
        gateway.describe(&format!("{text}mtu = {mtu}\n"));
        gateway.ask(&["reload"]).text();
    }
    let told = events(&gateway, 0);
    let of = |kind: &str| told.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!((of("reloaded"), of("log-not-written"), of("log-written")), (2, 1, 0), "{told:#?}");
    std::fs::write(gateway.folder.join("room"), "").unwrap();
    let again = wait_until(WITHIN, || {
        gateway.describe(text);
        gateway.ask(&["reload"]).text();
        gateway.describe(&format!("{text}mtu = 1400\n"));
        gateway.ask(&["reload"]).text();
        events(&gateway, 0).iter().any(|event| event["kind"] == "log-written")
    });
    assert!(again, "{:#?}", events(&gateway, 0));
}

/// The blocks of a capture (draft-ietf-opsawg-pcapng §3.1), if it ends with a whole one.
fn whole_blocks(file: &[u8]) -> Option<usize> {
    let mut rest = file;
    let mut blocks = 0;
    while !rest.is_empty() {
        let octets: [u8; 4] = rest.get(4..8)?.try_into().unwrap();
        let (block, behind) =
            rest.split_at_checked(u32::from_le_bytes(octets).try_into().unwrap())?;
        (block[block.len() - 4..] == octets).then_some(())?;
        (rest, blocks) = (behind, blocks + 1);
    }
    Some(blocks)
}

/// What has no room is counted, the file is whole at all times, and it grows when there is room.
fn a_capture_on_a_full_disk_goes_on() {
    let place = Namespace::new().unwrap();
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("events-capture");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("disk")).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let text = "[link.t]\nmode = \"tun\"\ndevice = \"full1\"\naddresses = [\"10.9.2.1/24\"]\n";
    std::fs::write(path("gateway.toml"), text).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=16k none {disk} && head -c 8192 /dev/zero > {disk}/ballast; \
         exec {binary} run {file} --socket {socket}",
        disk = path("disk"),
        binary = env!("CARGO_BIN_EXE_gatewright"),
        file = path("gateway.toml"),
        socket = path("s"),
    );
    let shell = place.command("unshare").args(["-m", "sh", "-c", &script]);
    let process = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The disk as the gateway sees it.
    let disk = format!("/proc/{}/root{}", process.id().unwrap(), path("disk"));
    let gateway = Daemon { folder: folder.clone(), process };
    assert!(wait_until(WITHIN, || gateway.ask(&["status"]).code == Some(0)));
    let run = |program: &str, arguments: &[&str]| {
        let output = place.command(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run("ip", &["address", "add", "10.9.2.2/24", "dev", "full1"]);
    run("ip", &["link", "set", "full1", "up"]);
    let file = path("disk/c.pcapng");
    gateway.ask(&["attach", "capture", "--at", "frame", "--file", &file]).text();
    let again = gateway.ask(&["attach", "capture", "--at", "ether:ipv4", "--file", &file]);
    assert!(again.code != Some(0) && again.err.contains("another capture"), "{}", again.err);
    // More than the disk has room for, and more than waits for room.
    run("ping", &["-q", "-i", "0.002", "-c", "1200", "-s", "1400", "10.9.2.1"]);
    let lost = awaited(&gateway, "capture-not-written", 0);
    assert!(lost["text"].as_str().unwrap().contains("No space left on device"), "{lost}");
    let missed = || gateway.ask(&["status", "--json"]).json()["attached"][0]["missed"].as_u64();
    assert!(wait_until(WITHIN, || missed() > Some(0)), "{:?}", missed());
    let written = || std::fs::read(format!("{disk}/c.pcapng")).unwrap();
    let before = written();
    std::fs::remove_file(format!("{disk}/ballast")).unwrap();
    assert!(wait_until(WITHIN, || written().len() > before.len() + 4096), "{}", written().len());
    // It may be looked at in the middle of a write.
    assert!(wait_until(WITHIN, || whole_blocks(&written()).is_some()));
    assert!(whole_blocks(&before) < whole_blocks(&written()));
    assert_eq!(gateway.ask(&["detach", "1"]).code, Some(0));
    assert!(whole_blocks(&written()).is_some());
}

/// A signal ends it as it ends any process, without a word: SIGTERM, as an interrupt is ignored by
/// whatever a shell starts in the background.
fn a_follower_ends_quietly() {
    use std::os::unix::process::ExitStatusExt;
    let (gateway, _place, _host, _cable) = beside_a_host("events-follower", "");
    let mut follower = gateway.command(&["events", "--follow"]);
    let mut follower = follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    // Open until the end, or the next event would find nobody who reads it.
    let mut said = BufReader::new(follower.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert!(!line.is_empty());
    kill(Pid::from_raw(follower.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let output = follower.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(15), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

fn a_duplicate_address_is_an_event() {
    let addresses = "addresses = [\"10.20.0.1/24\"]\n";
    let (gateway, _middle, host, _cable) = beside_a_host("events-duplicate", addresses);
    let duplicate = awaited(&gateway, "address-duplicate", 0);
    let mac = host.ip(&["link", "show", "dev", "h0"]).unwrap();
    let mac = mac.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert_eq!(duplicate["fields"]["by"], mac);
    let expected = format!("10.20.0.1 is not used on link wan: the station {mac} has it, too");
    assert!(text(&duplicate).starts_with(&expected), "{duplicate}");
}

fn a_lease_is_an_event() {
    let (gateway, _middle, host, _cable) = beside_a_host("events-lease", "dhcp = true\n");
    let range = "--dhcp-range=10.20.0.50,10.20.0.50,255.255.255.0,120";
    let options = ["-k", "--port=0", "--interface=h0", "--bind-interfaces", "--no-ping", range];
    let files = ["--conf-file=/dev/null", "--leasefile-ro", "--pid-file=", "--user=root"];
    let _server = host.command("dnsmasq").args(options).args(files).spawn().unwrap();
    let lease = awaited(&gateway, "lease-learnt", 0);
    assert_eq!(text(&lease), "link wan has 10.20.0.50/24 by DHCP for 120 s");
}

fn routers_learnt_and_lost_are_events() {
    let (gateway, _middle, host, _cable) = beside_a_host("events-router", "autoconfigure = true\n");
    let router = "[link.lan]\ndevice = \"h0\"\nmode = \"packet\"\nadvertise = {}\n\
        addresses = [\"2001:db8:7::1/64\"]\n";
    let router = Daemon::start("events-advertises", &host, router);
    let learnt = awaited(&gateway, "router-learnt", 0);
    assert_eq!(learnt["fields"]["lifetime_s"], "1800", "three intervals of 600 s");
    let prefix = awaited(&gateway, "prefix-learnt", 0);
    assert_eq!(prefix["fields"]["prefix"], "2001:db8:7::/64");
    let ready = awaited(&gateway, "address-ready", number(&prefix));
    assert!(ready["fields"]["address"].as_str().unwrap().starts_with("2001:db8:7:"), "{ready}");
    // RFC 4861 §6.2.5: a router that ceases says so.
    router.process.terminate().unwrap();
    let lost = awaited(&gateway, "router-lost", number(&learnt));
    assert_eq!(lost["fields"]["address"], learnt["fields"]["address"]);
}

/// A bridge's driver has no AF_XDP.
fn a_slower_mode_is_an_event() {
    let place = Namespace::new().unwrap();
    place.ip(&["link", "add", "b0", "type", "bridge"]).unwrap();
    place.ip(&["link", "set", "dev", "b0", "up"]).unwrap();
    let gateway = Daemon::start("events-mode", &place, "[link.lan]\ndevice = \"b0\"\n");
    let fallback = awaited(&gateway, "mode-fallback", 0);
    assert!(
        text(&fallback).contains("by a packet socket, the slower way: not AF_XDP: "),
        "{fallback}"
    );
    assert_eq!(fallback["fields"]["mode"], "packet socket");
}

fn too_many_kernel_routes_are_an_event() {
    let place = Namespace::new().unwrap();
    let cable = Veth::pair(&place, "g0", &place, "g1").unwrap();
    cable.up().unwrap();
    place.ip(&["address", "add", "10.20.0.1/24", "dev", "g0"]).unwrap();
    let shared = "[gateway]\nroutes_max = 32\n[link.lan]\ndevice = \"g0\"\nmode = \"packet\"\n\
        exclusive = false\n";
    let gateway = Daemon::start("events-withdrawn", &place, shared);
    for network in 0..64 {
        let to = format!("10.30.{network}.0/24");
        place.ip(&["route", "add", &to, "via", "10.20.0.9"]).unwrap();
    }
    let withdrawn = awaited(&gateway, "forwarding-withdrawn", 0);
    assert!(text(&withdrawn).starts_with("the kernel forwards everything"), "{withdrawn}");
}
