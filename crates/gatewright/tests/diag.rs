//! `gatewright diag` and `doctor`: secrets and health values that are there are not in the archive.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Daemon, WITHIN, folder, gatewright};
use gatewright_testbed::free_port;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

/// In every secret and health value of these tests, and nowhere else.
const SEED: &str = "seed";
/// The identity of the simulated device begins with this (`gatewright device simulate`).
const DEVICE: &str = "0247000100000001";

/// A request to the service entity as its administrator; the answer.
fn ask(port: u16, kind: &str, to: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    write!(
        stream,
        "POST {to} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-M2M-Origin: CSeedAdmin\r\n\
         X-M2M-RI: {to}\r\nX-M2M-RVI: 4\r\nContent-Type: application/json;ty={kind}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// All texts of an archive, with the names of its files.
fn unpacked(archive: &Path) -> (Vec<String>, String) {
    let tar = |arguments: &[&str]| {
        let output = Command::new("tar").args(arguments).arg(archive).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    (tar(&["-tzf"]).lines().map(str::to_owned).collect(), tar(&["-xzOf"]))
}

#[test]
fn secrets_and_health_values_are_not_in_the_archive() {
    // Paths are in the archive, and this one names a device.
    let folder = folder(&format!("diag-{DEVICE}"));
    let [http, devices, broker] = [free_port(), free_port(), free_port()];
    let text = format!(
        "# seed-comment\n[gateway]\nname = \"ward\"\n\
         [cse]\nbase = \"cse-gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:{http}\"\nstore = \"ward.db\"\n\
         admin = \"CSeedAdmin\"\nmqtt = \"mqtt://seed-user:seed-password@127.0.0.1:{broker}\"\n\
         [devices]\nlisten = \"127.0.0.1:{devices}\"\noperators = [\"CSeedNurse\"]\n\
         [[devices.map]]\ncontainer = \"rate\"\npartition = 2\ncode = 18458\nlabels = [\"seed-patient\"]\n"
    );
    let daemon = Daemon::start(folder.clone(), &text);
    // A device reports, and an application stores a reading.
    let to = format!("127.0.0.1:{devices}");
    let simulate =
        ["device", "simulate", "--kind", "oximeter", "--count", "3", "--rate", "10", "--to", &to];
    let said = gatewright(&simulate);
    assert_eq!(said.code, 0, "{}", said.err);
    let ae = r#"{"m2m:ae":{"rn":"seed-person","api":"Nseed","rr":false,"srv":["4"]}}"#;
    let created = ask(http, "2", "/cse-gw", ae);
    assert!(created.contains("201 Created"), "{created}");
    let container = r#"{"m2m:cnt":{"rn":"pressure"}}"#;
    assert!(ask(http, "3", "/cse-gw/seed-person", container).contains("201 Created"));
    let reading = r#"{"m2m:cin":{"con":"seed-value 187/99"}}"#;
    assert!(ask(http, "4", "/cse-gw/seed-person/pressure", reading).contains("201 Created"));
    // A refused description whose error quotes a value that never ran.
    let refused = folder.join("refused.toml");
    let text = "[tcp_proxy.one]\nlisten = \"seed-identity\"\n\
                forward = { address = \"127.0.0.1\", port = 9 }\n";
    fs::write(&refused, text).unwrap();
    assert_eq!(daemon.ask(&["reload", refused.to_str().unwrap()]).code, 78);
    let events = daemon.ask(&["events"]).out;
    assert!(events.contains("refused.toml:2:") && !events.contains("seed-identity"), "{events}");

    let archive = folder.join("diag.tar.gz");
    let said = daemon.ask(&["diag", "--json", "-o", archive.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let mode = fs::metadata(&archive).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode, said.json()["devices"].as_u64().unwrap() > 0), (0o600, true), "{}", said.out);
    let (names, all) = unpacked(&archive);
    let expected =
        ["README.txt", "version.json", "description.toml", "findings.json", "status.json"];
    let further = ["events.json", "metrics.txt", "doctor.json", "system.txt"];
    let whole = |name: &&str| format!("gatewright-diag/{name}");
    assert!(
        names.iter().eq(expected.iter().chain(&further).map(whole).collect::<Vec<_>>().iter()),
        "{names:?}"
    );
    for (number, line) in all.lines().enumerate() {
        assert!(!line.to_lowercase().contains(SEED), "{number}: {line}");
        assert!(!line.contains(DEVICE) && !line.contains("187/99"), "{number}: {line}");
    }
    for kept in [
        "base = \"cse-gw\"",
        "REMOVED@127.0.0.1",
        "device-1",
        "gatewright_uptime_seconds",
        "reload-refused",
        "MemTotal",
    ] {
        assert!(all.contains(kept), "{kept}");
    }
    // What is no device is as it was: the version, and the numbers of metrics.
    let version = daemon.ask(&["status", "--json"]).json()["planes"]["version"].clone();
    let version = version.as_str().unwrap();
    assert!(all.matches(version).count() > 1, "{version} is in version.json and status.json");
    for line in all.lines().filter(|line| line.starts_with("gatewright_")) {
        let value = line.rsplit(' ').next().unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    // One that is there is not replaced.
    assert_eq!(daemon.ask(&["diag", "-o", archive.to_str().unwrap()]).code, 1);
}

#[test]
fn without_a_gateway_the_archive_says_why_answers_are_missing() {
    let folder = folder("diag-alone");
    let (file, archive) = (folder.join("g.toml"), folder.join("d.tar.gz"));
    fs::write(&file, "[log]\nlevl = \"info\"\n").unwrap();
    let socket = folder.join("none");
    let socket = socket.to_str().unwrap();
    let arguments =
        ["diag", file.to_str().unwrap(), "--socket", socket, "-o", archive.to_str().unwrap()];
    let said = gatewright(&arguments);
    assert_eq!(said.code, 0, "{}", said.err);
    let (_, all) = unpacked(&archive);
    assert!(all.contains("no gateway answers at") && all.contains("GW0101"), "{all}");

    // All that `doctor` finds, what a description needs included.
    let archive = folder.join("web.tar.gz");
    let text = "[cse]\nbase = \"a\"\nid = \"/a\"\nhttp = \"127.0.0.1:1\"\n\
                [web]\ntokens = \"tokens.json\"\n";
    fs::write(&file, text).unwrap();
    let (file, archive_name) = (file.to_str().unwrap(), archive.to_str().unwrap());
    let said = gatewright(&["diag", file, "--socket", socket, "-o", archive_name]);
    assert_eq!(said.code, 0, "{}", said.err);
    let (_, all) = unpacked(&archive);
    assert!(all.contains("\"web\"") && all.contains("web token add"), "{all}");
}

#[test]
fn doctor_says_what_a_description_lacks() {
    let folder = folder("doctor");
    let said = gatewright(&["doctor", "--json"]);
    let checks = said.json()["checks"].as_array().unwrap().clone();
    assert_eq!((said.code, said.json()["ok"].as_bool()), (0, Some(true)), "nothing is needed");
    for subject in ["rights", "kernel", "devices", "clock", "disk", "limits", "processors"] {
        assert!(checks.iter().any(|check| check["subject"] == subject), "{subject}");
    }
    let lo = |check: &&serde_json::Value| check["subject"] == "devices" && check["name"] == "lo";
    assert!(checks.iter().any(|check| lo(&check)), "the loopback interface is a device");

    let file = folder.join("gateway.toml");
    fs::write(&file, "[link.lan]\ndevice = \"nosuch0\"\naddresses = [\"192.0.2.1/24\"]\n").unwrap();
    let said = gatewright(&["doctor", file.to_str().unwrap()]);
    assert_eq!(said.code, 1, "{}", said.out);
    assert!(said.out.contains("MISSING  devices    nosuch0"), "{}", said.out);
    assert!(said.out.contains("do: `ip link` lists the interfaces"), "{}", said.out);

    fs::write(&file, "[link.lan]\ndevise = \"x\"\n").unwrap();
    assert_eq!(gatewright(&["doctor", file.to_str().unwrap()]).code, 78);
}

#[test]
fn doctor_looks_at_the_tokens_of_the_web_interface() {
    let folder = folder("doctor-tokens");
    let (file, tokens) = (folder.join("gateway.toml"), folder.join("tokens"));
    fs::write(&file, "[cse]\nbase = \"gw\"\nid = \"/gw\"\n[web]\ntokens = \"tokens\"\n").unwrap();
    let file = file.to_str().unwrap();
    let line = |code: i32| {
        let said = gatewright(&["doctor", file]);
        assert_eq!(said.code, code, "{}", said.out);
        let mut lines = said.out.lines().skip_while(|line| !line.contains("web        tokens"));
        let both = [lines.next(), lines.next()].map(Option::unwrap_or_default);
        (both[0].split_once(' ').unwrap().0.to_owned(), both.join("\n"))
    };
    // The first token makes the file.
    let (state, text) = line(0);
    assert!(state == "limited" && text.contains("do: nobody is admitted"), "{text}");
    let add = ["web", "token", "add", file, "--name", "ops", "--role", "operator"];
    assert_eq!(gatewright(&add).code, 0);
    let (state, text) = line(0);
    assert!(state == "good" && text.contains("1 in ") && !text.contains("nobody"), "{text}");
    fs::write(&tokens, "root:x:0:0\n").unwrap();
    let (state, text) = line(1);
    assert!(state == "MISSING" && text.contains("line 1 is no token"), "{text}");
}
