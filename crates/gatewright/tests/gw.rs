//! `gatewright gw` as a user meets it: programs are checked, tested, laid out, shown and run.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::Said;
use gatewright_testbed::wait_until;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn gw(arguments: &[&str]) -> Said {
    with_input(arguments, "")
}

fn with_input(arguments: &[&str], input: &str) -> Said {
    common::with_input(&[&["gw"], arguments].concat(), input)
}

fn json(said: &Said) -> Value {
    said.json()
}

fn folder(name: &str) -> PathBuf {
    common::folder(&format!("gw-{name}"))
}

/// The path of an example gateway.
fn example(name: &str) -> String {
    common::examples().join(name).to_str().unwrap().to_owned()
}

/// In the one layout, and not.
const NEAT: &str = "gateway nothing { }\n";
const UNTIDY: &str = "gateway   nothing {}\n";
const BROKEN: &str = "gateway { nothing\n";

#[test]
fn check_tells_what_a_session_takes() {
    let path = example("coap_to_modbus.gate");
    let said = gw(&["check", &path]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let answer = json(&gw(&["check", "--json", &path]));
    let file = &answer["files"][0];
    assert_eq!((answer["ok"].as_bool(), file["ok"].as_bool()), (Some(true), Some(true)));
    let program = &file["program"];
    assert_eq!(program["name"], "coap_to_modbus");
    let octets = program["session_octets"].as_u64().unwrap();
    let bounds = program["bounds"].as_array().unwrap();
    let sum: u64 = bounds.iter().map(|bound| bound["octets"].as_u64().unwrap()).sum();
    // Its largest part is what waits on the connection to the device.
    assert!(octets == sum && octets > 8192 && bounds.len() >= 3, "{program}");
    for part in
        [format!("takes at most {octets} octets"), "8192  to be read from `device`".to_owned()]
    {
        assert!(said.out.contains(&part), "{part} is not in {}", said.out);
    }
}

#[test]
fn check_says_yes_with_0_and_no_with_78() {
    let module = gw(&["check", &example("coap.gate")]);
    assert_eq!((module.code, module.err.as_str()), (0, ""));
    assert!(module.out.contains("no gateway of its own"), "{}", module.out);
    let bad = with_input(&["check", "-"], BROKEN);
    assert_eq!((bad.code, bad.out.as_str()), (78, ""));
    assert!(bad.err.contains("error[GW0") && bad.err.contains("--> -:1:"), "{}", bad.err);
    let bad = with_input(&["check", "--json", "-"], BROKEN);
    let file = &json(&bad)["files"][0];
    assert_eq!((bad.code, bad.err.as_str()), (78, ""));
    assert!(file["program"].is_null() && file["findings"][0]["place"]["line"] == 1, "{file}");
    let gone = with_input(&["check", "-"], "use \"gone.gate\"\ngateway nothing {}\n");
    assert!(gone.code == 78 && gone.err.contains("`gone.gate` cannot be read"), "{}", gone.err);
    assert_eq!(gw(&["check", "no-such-file.gate"]).code, 78);
    assert_eq!((gw(&[]).code, gw(&["check"]).code), (2, 2));
}

/// Imports stand beside the text that names them.
#[test]
fn check_points_into_what_is_imported() {
    let folder = folder("imports");
    fs::write(folder.join("main.gate"), "use \"part.gate\"\ngateway nothing {}\n").unwrap();
    fs::write(folder.join("part.gate"), "message {\n").unwrap();
    let said = gw(&["check", folder.join("main.gate").to_str().unwrap()]);
    assert_eq!(said.code, 78);
    assert!(said.err.contains("part.gate:1:"), "{}", said.err);
}

#[test]
fn fmt_check_says_no_with_1_and_rewrites_nothing() {
    let folder = folder("fmt-check");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let texts = [("neat", NEAT), ("untidy", UNTIDY), ("broken", BROKEN)];
    for (name, text) in texts {
        fs::write(path(name), text).unwrap();
    }
    let neat = gw(&["fmt", "--check", &path("neat")]);
    assert_eq!((neat.code, neat.out.as_str(), neat.err.as_str()), (0, "", ""));
    let untidy = gw(&["fmt", "--check", &path("neat"), &path("untidy")]);
    assert_eq!((untidy.code, untidy.out), (1, path("untidy") + "\n"));
    let broken = gw(&["fmt", "--check", &path("untidy"), &path("broken")]);
    assert!(broken.code == 78 && broken.err.contains("broken:1:"), "{}", broken.err);
    for (name, text) in texts {
        assert_eq!(fs::read_to_string(path(name)).unwrap(), text, "{name}");
    }
    let answer = json(&gw(&["fmt", "--check", "--json", &path("untidy")]));
    assert_eq!((answer["ok"].as_bool(), answer["check"].as_bool()), (Some(false), Some(true)));
    assert_eq!(answer["files"][0]["changed"], true);
    let input = with_input(&["fmt", "--check", "-"], UNTIDY);
    assert_eq!((input.code, input.out.as_str()), (1, "-\n"));
}

#[test]
fn fmt_rewrites_what_is_named_and_follows_the_grammar() {
    let folder = folder("fmt");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let main = format!("use   \"part.gate\"\n{UNTIDY}");
    for (name, text) in [("main.gate", main.as_str()), ("part.gate", " \n"), ("broken", BROKEN)] {
        fs::write(path(name), text).unwrap();
    }
    let said = gw(&["fmt", &path("broken"), &path("main.gate")]);
    assert_eq!((said.code, said.out), (78, path("main.gate") + "\n"));
    assert!(said.err.contains("broken:1:"), "{}", said.err);
    let neat = format!("use \"part.gate\"\n{NEAT}");
    for (name, text) in [("main.gate", neat.as_str()), ("part.gate", " \n"), ("broken", BROKEN)] {
        assert_eq!(fs::read_to_string(path(name)).unwrap(), text, "{name}");
    }
    let again = gw(&["fmt", &path("main.gate")]);
    assert_eq!((again.code, again.out.as_str()), (0, ""));
}

#[test]
fn fmt_writes_standard_input_to_standard_output() {
    let said = with_input(&["fmt", "-"], UNTIDY);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, NEAT, ""));
    let answer = json(&with_input(&["fmt", "--json", "-"], UNTIDY));
    assert_eq!(answer["files"][0]["text"], NEAT);
    let broken = with_input(&["fmt", "-"], BROKEN);
    assert_eq!((broken.code, broken.out.as_str()), (78, ""));
    assert_eq!(gw(&["fmt", "-", "x.gate"]).code, 2);
}

#[test]
fn graph_and_listing_show_a_compiled_program() {
    let path = example("smtp_relay.gate");
    for (part, beginning) in [("graph", "digraph gateway {"), ("listing", "message ")] {
        let said = gw(&[part, &path]);
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        assert!(said.out.starts_with(beginning), "{part}: {}", said.out);
        let answer = json(&gw(&[part, "--json", &path]));
        assert_eq!(answer["text"].as_str(), Some(said.out.as_str()));
        assert_eq!(answer["findings"], Value::Array(Vec::new()));
        let broken = with_input(&[part, "-"], BROKEN);
        assert!(broken.code == 78 && broken.out.is_empty(), "{}", broken.out);
        assert!(broken.err.contains("--> -:1:"), "{}", broken.err);
        let broken = with_input(&[part, "--json", "-"], BROKEN);
        assert!(broken.code == 78 && json(&broken)["text"].is_null(), "{}", broken.out);
        let module = gw(&[part, &example("smtp.gate")]);
        assert!(
            module.code == 78 && module.err.contains("no gateway of its own"),
            "{}",
            module.err
        );
    }
}

/// A program is written as C or Java into a folder of its own, and into no folder of others.
#[test]
fn build_writes_a_folder_of_its_own() {
    let folder = std::env::temp_dir().join(format!("gatewright-build-{}", std::process::id()));
    let path = folder.to_string_lossy().into_owned();
    let (relay, coap) = (example("smtp_relay.gate"), example("coap_to_modbus.gate"));
    for program in [&relay, &coap, &relay] {
        let answer = json(&gw(&["build", "--json", "-o", &path, program]));
        let files = answer["files"].as_array().unwrap();
        for name in ["messages.h", "messages.c", "gateway.c", "Makefile", "main.c"] {
            assert!(files.contains(&Value::from(name)), "{name}");
            assert!(folder.join(name).is_file(), "{name}");
        }
    }
    let makefile = folder.join("Makefile");
    fs::write(&makefile, "all:\n").unwrap();
    let refused = gw(&["build", "-o", &path, &relay]);
    assert!(refused.code == 1 && refused.err.contains("another folder"), "{}", refused.err);
    assert_eq!(fs::read_to_string(makefile).unwrap(), "all:\n");
    let java = folder.join("java");
    let answer = gw(&["build", "--target", "java", "-o", &java.to_string_lossy(), &relay]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    for name in ["Makefile", "smtp_relay/Gateway.java", "gatewright/runtime/Main.java"] {
        assert!(java.join(name).is_file(), "{name}");
    }
    // The files of two languages in one folder would be one gateway that nobody builds.
    for (target, other) in [("c", "java"), ("java", "c")] {
        let mixed = folder.join(format!("of-{target}")).to_string_lossy().into_owned();
        assert_eq!(gw(&["build", "--target", target, "-o", &mixed, &relay]).code, 0);
        let refused = gw(&["build", "--target", other, "-o", &mixed, &relay]);
        assert!(refused.code == 1 && refused.err.contains("two languages"), "{}", refused.err);
        assert_eq!(gw(&["build", "--target", target, "-o", &mixed, &relay]).code, 0);
    }
    fs::remove_dir_all(folder).unwrap();
    let broken = with_input(&["build", "-"], BROKEN);
    assert!(broken.code == 78 && broken.err.contains("--> -:1:"), "{}", broken.err);
}

/// The parts have help and a page each, as verbs have.
#[test]
fn the_manual_has_a_page_for_each_part() {
    let shapes = [
        ("build", "build: {file, folder"),
        ("check", "check: {ok, files"),
        ("fmt", "fmt: {ok, check"),
        ("graph", "graph, listing: {file"),
        ("listing", "graph, listing: {file"),
    ];
    for (part, shape) in shapes {
        let help = gw(&[part, "--help"]);
        let page = Command::new(env!("CARGO_BIN_EXE_gatewright"))
            .args(["man", &format!("gw-{part}")])
            .output()
            .unwrap();
        let page = String::from_utf8(page.stdout).unwrap();
        for text in [&help.out, &page] {
            assert!(text.contains("Exit codes:") && text.contains(shape), "{part}");
        }
    }
}

#[test]
fn tests_of_an_example_pass_at_every_split() {
    let path = example("coap_to_modbus.gate");
    let said = gw(&["test", "--every-split", "--json", &path]);
    let answer = json(&said);
    assert_eq!((said.code, answer["ok"].as_bool()), (0, Some(true)), "{answer}");
    let file = &answer["files"][0];
    // A datagram is never cut, what the device sends over TCP is cut at every octet.
    assert!(file["splits"].as_u64().unwrap() > 30, "{file}");
    assert_eq!(file["handlers_untried"].as_array().map(Vec::len), Some(0), "{file}");
}

#[test]
fn a_test_that_fails_shows_what_was_expected_and_what_was_there() {
    let folder = folder("test");
    for name in ["coap.gate", "modbus.gate", "coap_to_modbus.gate"] {
        let text = fs::read_to_string(example(name)).unwrap();
        fs::write(folder.join(name), text.replace("c0 ff 32 35 38\"", "c0 ff 32 35 39\"")).unwrap();
    }
    let said = gw(&["test", folder.join("coap_to_modbus.gate").to_str().unwrap()]);
    assert_eq!(said.code, 1, "{}", said.err);
    for wanted in ["GW0295", "a register is read", "ff 32 35 39", "ff 32 35 38", "from octet 8 on"]
    {
        assert!(said.err.contains(wanted), "{wanted} is not in {}", said.err);
    }
    assert!(said.out.contains("FAILS  a register is read"), "{}", said.out);
}

#[test]
fn a_program_that_does_not_compile_is_not_tested() {
    let said = with_input(&["test", "-"], BROKEN);
    assert_eq!(said.code, 78, "{}", said.err);
    assert!(said.out.contains("does not compile; no test was run"), "{}", said.out);
}

/// Findings show excerpts: who checks a stranger's program must not print other files by it.
#[test]
fn only_programs_are_imported() {
    let folder = folder("import");
    fs::write(folder.join("secret"), "s3cret\n").unwrap();
    std::os::unix::fs::symlink(folder.join("secret"), folder.join("secret.gate")).unwrap();
    for name in ["secret", "secret.gate", "/etc/passwd"] {
        let program = folder.join("program.gate");
        fs::write(&program, format!("use \"{name}\"\ngateway nothing {{ }}\n")).unwrap();
        let said = gw(&["check", program.to_str().unwrap()]);
        assert_eq!(said.code, 78, "{name}");
        assert!(said.err.contains("does not end in `.gate`"), "{name}: {}", said.err);
        assert!(!said.err.contains("s3cret") && !said.err.contains("root:"), "{}", said.err);
    }
}

/// A relay greets, is interrupted, lets its session end, and tells what it did.
#[test]
fn run_serves_until_it_is_interrupted() {
    let (mut child, port) = run(&example("smtp_relay.gate"), &[]);
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    let mut say = |command: &str| {
        (&stream).write_all(command.as_bytes()).unwrap();
        let mut reply = String::new();
        replies.read_line(&mut reply).unwrap();
        reply
    };
    assert_eq!(say(""), "220 gatewright\r\n");
    assert_eq!(say("HELO me\r\n"), "250 gatewright\r\n");
    interrupt(&child);
    assert_eq!(say("NOOP\r\n"), "250 2.0.0 ok\r\n");
    assert_eq!(say("QUIT\r\n"), "221 2.0.0 bye\r\n");
    drop((replies, stream));
    let mut told = String::new();
    child.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(told.contains("`smtp_relay` has ended"), "{told}");
    assert!(told.contains(" 1  inside.hello begun, 0 failed, half within "), "{told}");
    assert!(told.contains(" 1  accepted\n"), "{told}");
}

/// Of two programs one has the parameter: it gets it, and the other runs as well.
#[test]
fn a_parameter_is_given_to_the_programs_that_have_it() {
    let folder = folder("set");
    let text = fs::read_to_string(example("smtp_relay.gate")).unwrap();
    fs::copy(example("smtp.gate"), folder.join("smtp.gate")).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (with, without) = (path("with.gate"), path("without.gate"));
    let greets = text.replace("(250, \"gatewright\")", "(250, building)");
    let (head, tail) = greets.split_once("gateway ").unwrap();
    let (name, tail) = tail.split_once("{\n").unwrap();
    let parameter = "parameter building: fragment, at most 20 octets";
    fs::write(&with, format!("{head}gateway {name}{{\n    {parameter}\n{tail}")).unwrap();
    fs::write(&without, text).unwrap();
    let (mut child, port) = run(&with, &[&without, "--set", "building=Ost"]);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"HELO me\r\nQUIT\r\n").unwrap();
    let told: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
    assert!(told.contains(&"250 Ost".to_owned()), "{told:?}");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let said = gw(&["run", &with, &without, "--set", "building=Ost", "--set", "hall=1"]);
    assert_eq!(said.code, 78);
    let why = "none of the programs has a parameter `hall`";
    assert!(said.err.contains(why), "{}", said.err);
}

#[test]
fn run_with_watch_takes_a_changed_program_and_leaves_a_broken_one() {
    let folder = folder("watch");
    let path = |name: &str| folder.join(name);
    let text = fs::read_to_string(example("smtp_relay.gate")).unwrap();
    fs::copy(example("smtp.gate"), path("smtp.gate")).unwrap();
    fs::write(path("relay.gate"), &text).unwrap();
    let (mut child, port) = run(path("relay.gate").to_str().unwrap(), &["--watch"]);
    let hello = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"HELO me\r\n").unwrap();
        BufReader::new(stream).lines().nth(1).unwrap().unwrap()
    };
    assert_eq!(hello(), "250 gatewright");
    fs::write(path("relay.gate"), text.replace("reply(250, \"gatewright\")", "reply(")).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(hello(), "250 gatewright");
    fs::write(path("relay.gate"), text.replace("(250, \"gatewright\")", "(250, \"new\")")).unwrap();
    assert!(wait_until(Duration::from_secs(30), || hello() == "250 new"));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A description with nothing but a program needs no privilege, and tells of it like of all else.
#[test]
fn a_description_runs_its_program() {
    let folder = folder("program");
    let (file, socket) = (folder.join("gateway.toml"), folder.join("s"));
    let path = example("smtp_relay.gate");
    let describe = |role: &str| {
        let at = format!("at = [\"{role}=127.0.0.1:0\"]");
        fs::write(&file, format!("[[program]]\nfile = {path:?}\n{at}\n")).unwrap();
    };
    let gatewright = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_gatewright")).args(arguments).output().unwrap()
    };
    describe("outside");
    let said = gatewright(&["check", file.to_str().unwrap()]);
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(told.contains("GW0168") && told.contains("has no role `outside`"), "{told}");
    assert!(told.contains("3 | at = [\"outside=127.0.0.1:0\"]"), "at its place: {told}");
    fs::write(&file, format!("[[program]]\nfile = {path:?}\nset = [\"nobody=1\"]\n")).unwrap();
    let said = gatewright(&["check", file.to_str().unwrap()]);
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(told.contains("GW0174") && told.contains("3 | set = [\"nobody=1\"]"), "{told}");
    fs::write(&file, format!("[[program]]\nfile = {path:?}\nstack = [\"inside\"]\n")).unwrap();
    let said = gatewright(&["check", file.to_str().unwrap()]);
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(told.contains("GW0178") && told.contains("a role of TCP"), "{told}");
    assert!(told.contains("3 | stack = [\"inside\"]"), "{told}");
    describe("inside");
    let mut run = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    run.args(["run".as_ref(), file.as_os_str(), "--socket".as_ref(), socket.as_os_str()]);
    let (mut child, port) = serve(run);
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut greeting = String::new();
    BufReader::new(stream).read_line(&mut greeting).unwrap();
    assert_eq!(greeting, "220 gatewright\r\n");
    let status = || gatewright(&["status", "--socket", socket.to_str().unwrap()]);
    assert!(wait_until(Duration::from_secs(30), || status().status.success()));
    let told = String::from_utf8(status().stdout).unwrap();
    assert!(told.contains("program smtp_relay inside at 127.0.0.1:"), "{told}");
    assert!(told.contains("accepted 1"), "{told}");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Runs a relay at a port of the kernel's choice; the port is told on standard error, whose rest
/// is read and thrown away.
fn run(file: &str, more: &[&str]) -> (Child, u16) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    command.args(["gw", "run", file, "--loops", "1", "--at", "inside=127.0.0.1:0"]).args(more);
    serve(command)
}

fn serve(mut command: Command) -> (Child, u16) {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    let port = line.trim().rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
    (child, port.unwrap_or_else(|| panic!("{line}")))
}

fn interrupt(child: &Child) {
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn a_trace_leads_from_octets_by_fields_and_statements_to_octets() {
    let said = gw(&["trace", &example("coap_to_modbus.gate"), "--test", "register is read"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let mut rest = said.out.as_str();
    for wanted in [
        "arrived   things x\"40 01",
        "read      coap.packet type: 0, code: 1, id: 4660",
        "case       when type is CONFIRMABLE and code is GET",
        "started   things.get",
        "sent      device x\"00 01 00 00 00 06 01 03 00 28 00 01\"",
        "registers: [258]",
        "sent      things x\"60 45 12 34",
    ] {
        let at = rest.find(wanted).unwrap_or_else(|| panic!("{wanted} is not in {}", said.out));
        rest = &rest[at..];
    }
    assert_eq!(gw(&["trace", &example("coap_to_modbus.gate"), "--test", "no such"]).code, 1);
}

/// A segment of a client's connection, one way or the other.
#[derive(Clone, Copy)]
struct Segment {
    second: u32,
    port: u16,
    is_client: bool,
    flags: u8,
    sequence: u32,
    octets: &'static [u8],
}

fn segment(
    second: u32,
    port: u16,
    is_client: bool,
    flags: u8,
    sequence: u32,
    octets: &'static [u8],
) -> Segment {
    Segment { second, port, is_client, flags, sequence, octets }
}

/// A classic capture file of raw IPv4 (link type 228).
fn capture(packets: &[Segment]) -> Vec<u8> {
    let word = |value: u32| value.to_be_bytes();
    let mut file =
        [word(0xa1b2_c3d4), word(0x0002_0004), word(0), word(0), word(65_535), word(228)];
    let mut file = file.as_flattened_mut().to_vec();
    for Segment { second, port, is_client, flags, sequence, octets } in packets {
        let length = u16::try_from(40 + octets.len()).unwrap();
        let ([client, server], mut ports) = ([[192, 0, 2, 1], [192, 0, 2, 9]], [*port, 9300]);
        let mut ends = [client, server];
        if !is_client {
            ends.reverse();
            ports.reverse();
        }
        let mut packet = vec![0x45, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        packet.extend(ends.as_flattened());
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        packet.extend(sequence.to_be_bytes());
        packet.extend([0, 0, 0, 0, 0x50, *flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(*octets);
        let length = u32::from(length);
        file.extend([word(*second), word(0), word(length), word(length)].as_flattened());
        file.extend(packet);
    }
    file
}

#[test]
fn a_recorded_conversation_is_a_test_and_is_traced() {
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    const FIN: u8 = 0x11;
    let folder = folder("recorded");
    let program = common::examples().join("../../crates/translate/tests/programs/too_long.gate");
    let (program, file) = (program.to_str().unwrap(), folder.join("asked.pcap"));
    let near = u32::MAX - 4;
    // Segments out of order, over the end of the numbers, one of them twice; another client between.
    let packets = [
        segment(10, 4000, true, SYN, near, b""),
        segment(10, 4000, false, SYN | ACK, 7, b""),
        segment(10, 4000, true, ACK, near.wrapping_add(1 + 9), b"Name: abcd\r\n\r\n\x01\x06sixsix"),
        segment(10, 4001, true, ACK, 1, b"BYE\r\n\r\n\x01\x00"),
        segment(10, 4000, true, ACK, near.wrapping_add(1), b"ASK {a}\r\n"),
        segment(10, 4000, true, ACK, near.wrapping_add(1), b"ASK {a}\r\n"),
        segment(10, 4000, false, ACK, 8, b"200 sixsix\r\n"),
        segment(13, 4000, true, FIN, near.wrapping_add(1 + 31), b""),
        segment(13, 4000, false, FIN, 20, b""),
    ];
    fs::write(&file, capture(&packets)).unwrap();
    let (file, saved) = (file.to_str().unwrap(), folder.join("asked.gate"));
    let said = gw(&["trace", program, "--pcapng", file, "--save", saved.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(
        said.out.contains("started   user.ask") && said.out.contains("200 sixsix"),
        "{}",
        said.out
    );
    let text = fs::read_to_string(&saved).unwrap();
    let import = format!("use \"{program}\"");
    let begin = format!("test \"recorded in {file}\" {{");
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        import.as_str(),
        "",
        &begin,
        r#"    user sends "ASK \{a\}\r\nName: abcd\r\n\r\n\x01\x06sixsix""#,
        r#"    user sees "200 sixsix\r\n""#,
        "    pass 3 seconds",
        "    user closes",
        "}",
    ];
    assert_eq!(lines, expected);
    assert_eq!(gw(&["test", program, "--pcapng", file]).code, 0);
    assert_eq!(gw(&["test", saved.to_str().unwrap()]).code, 0);
    // Another answer than the recorded one fails, at its place in the test.
    let other = packets.map(|packet| match packet {
        Segment { is_client: false, octets: [_, ..], .. } => {
            Segment { octets: b"200 others\r\n", ..packet }
        }
        same => same,
    });
    fs::write(file, capture(&other)).unwrap();
    let said = gw(&["test", program, "--pcapng", file]);
    assert!(said.code == 1 && said.err.contains("200 others"), "{}", said.err);
    fs::write(file, capture(&packets[3..4])).unwrap();
    let example = example("smtp_relay.gate");
    let said = gw(&["test", &example, "--pcapng", file]);
    assert!(
        said.code == 1 && said.err.contains("no message at the port of a role"),
        "{}",
        said.err
    );
}

/// A text is read up to its limit: what has no end is answered, too.
#[test]
fn a_text_without_end_is_too_long() {
    let folder = folder("endless");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let importing = file("importing.gate", "use \"sparse.gate\"\ngateway g { }\n");
    let naming = file("naming.toml", "[[program]]\nfile = \"sparse.gate\"\n");
    // A character of two octets stands across every even limit.
    let long = file("long.gate", &["#", &"ä".repeat(1 << 20)].concat());
    let sparse = folder.join("sparse.gate").to_str().unwrap().to_owned();
    fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    let checks: [&[&str]; 7] = [
        &["gw", "check", "/dev/zero"],
        &["gw", "check", &importing],
        &["gw", "check", &long],
        &["gw", "check", &sparse],
        &["gw", "fmt", &sparse],
        &["check", "/dev/zero"],
        &["check", &naming],
    ];
    for check in checks {
        let said = common::with_input(check, "");
        assert_eq!(said.code, 78, "{check:?}: {}", said.err);
        let text = [said.out.as_str(), &said.err].concat();
        assert!(text.contains("more than 1048576 octets"), "{check:?}: {text}");
    }
    // Whoever copies the folder would copy its terabyte.
    fs::remove_file(&sparse).unwrap();
}
