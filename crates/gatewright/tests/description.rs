//! Descriptions of several files, the last good description, and the level of written events.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Said, WITHIN, folder, gatewright};
use gatewright_testbed::{free_port, wait_until};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A relay of TCP that listens at a free port.
fn proxy(name: &str) -> String {
    let listen = free_port();
    format!(
        "[tcp_proxy.{name}]\nlisten = \"127.0.0.1:{listen}\"\n\
         forward = {{ address = \"127.0.0.1\", port = 9 }}\n"
    )
}

/// A folder with `gateway.toml` and further files.
fn describe(name: &str, main: &str, further: &[(&str, &str)]) -> PathBuf {
    let folder = folder(&format!("description-{name}"));
    fs::write(folder.join("gateway.toml"), main).unwrap();
    fs::create_dir(folder.join("conf.d")).unwrap();
    for (name, text) in further {
        fs::write(folder.join("conf.d").join(name), text).unwrap();
    }
    folder
}

fn check(folder: &Path) -> Value {
    gatewright(&["check", "--json", folder.to_str().unwrap()]).json()
}

/// The place of the only finding: file, line and message.
fn finding(folder: &Path) -> (String, u64, String) {
    let told = check(folder);
    let findings = told["files"][0]["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let place = &findings[0]["place"];
    let file = place["file"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    (file, place["line"].as_u64().unwrap(), findings[0]["message"].as_str().unwrap().to_owned())
}

#[test]
fn files_of_a_folder_are_one_description() {
    let two = format!("# two\n{}", proxy("two"));
    let further = [
        ("20-two.toml", two.as_str()),
        ("10-name.toml", "\n[gateway]\nname = \"parted\""),
        (".hidden.toml", "not TOML"),
        ("old.toml~", "not TOML"),
    ];
    let folder = describe("whole", &proxy("one"), &further);
    let told = check(&folder);
    assert_eq!(
        (told["ok"].as_bool(), &told["files"][0]["gateway"]["name"]),
        (Some(true), &Value::from("parted"))
    );
    assert_eq!(told["files"][0]["gateway"]["tcp_proxies"], 2);
}

#[test]
fn a_finding_names_the_file_and_its_line() {
    let key = "# one\n# two\n[gateway]\nnom = \"x\"\n";
    let folder = describe("key", &proxy("one"), &[("10.toml", "[log]\n"), ("20.toml", key)]);
    let (file, line, message) = finding(&folder);
    assert_eq!((file.as_str(), line), ("20.toml", 4), "{message}");
    // The excerpt is that of the file, too.
    let said = gatewright(&["check", folder.to_str().unwrap()]);
    assert!(
        said.err.contains("conf.d/20.toml:4:1") && said.err.contains("4 | nom"),
        "{}",
        said.err
    );
    assert_eq!(said.code, 78);

    // A table that an earlier file has.
    let folder = describe(
        "twice",
        &proxy("one"),
        &[("10.toml", "[log]\nlevel = \"info\"\n"), ("20.toml", "\n[log]\n")],
    );
    let (file, line, message) = finding(&folder);
    assert_eq!((file.as_str(), line), ("20.toml", 2), "{message}");

    // A key without a table would belong to that of the file before, which nobody means.
    let stray = "# a\nlinger_s = 3\nlisden = \"127.0.0.1:1\"\n[log]\n";
    let folder = describe("stray", &proxy("one"), &[("10.toml", stray)]);
    let (file, line, message) = finding(&folder);
    assert_eq!((file.as_str(), line), ("10.toml", 2), "{message}");
    assert!(message.contains("begin with a table"), "{message}");
}

#[test]
fn a_folder_without_a_description_is_refused_by_name() {
    let folder = folder("description-none");
    let said = gatewright(&["check", folder.to_str().unwrap()]);
    assert_eq!(said.code, 78, "{}", said.err);
    assert!(said.err.contains("gateway.toml"), "{}", said.err);
}

/// A gateway that runs a folder, with a last good description beside it.
struct Service {
    folder: PathBuf,
    child: Child,
}

impl Service {
    fn start(folder: &Path) -> Self {
        let said = fs::File::create(folder.join("said")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        command.current_dir("/").arg("run").arg(folder).arg("--socket").arg(folder.join("socket"));
        command.arg("--last-good").arg(folder.join("last-good.toml"));
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap();
        Self { folder: folder.to_owned(), child }
    }

    fn runs(folder: &Path) -> Self {
        let service = Self::start(folder);
        assert!(wait_until(WITHIN, || service.ask(&["status"]).code == 0), "{}", service.said());
        // Its socket answers before its description is kept, after which it is ready.
        let is_kept = || folder.join("last-good.toml").exists();
        assert!(wait_until(WITHIN, is_kept), "{}", service.said());
        service
    }

    fn ask(&self, arguments: &[&str]) -> Said {
        let socket = self.folder.join("socket");
        gatewright(&[arguments, &["--socket", socket.to_str().unwrap()]].concat())
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("said")).unwrap()
    }

    fn events(&self, kind: &str) -> Vec<Value> {
        let told = self.ask(&["events", "--json"]).json();
        let all = told["events"].as_array().unwrap().clone();
        all.into_iter().filter(|event| event["kind"] == kind).collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

#[test]
fn the_last_good_description_runs_in_place_of_a_refused_one() {
    let folder =
        describe("last-good", &proxy("one"), &[("10.toml", "[gateway]\nname = \"good\"\n")]);
    let service = Service::runs(&folder);
    assert_eq!(service.ask(&["status", "--json"]).json().get("fallback"), None);
    assert!(service.events("last-good").is_empty());
    // A reload is kept, too: here of two proxies.
    let second = &proxy("two");
    fs::write(folder.join("conf.d/20.toml"), second).unwrap();
    assert_eq!(service.ask(&["reload"]).code, 0);
    drop(service);

    fs::write(folder.join("conf.d/20.toml"), second.replace("listen", "lisden")).unwrap();
    let service = Service::runs(&folder);
    let status = service.ask(&["status"]).out;
    let first = status.lines().next().unwrap();
    assert!(first.starts_with("THE LAST GOOD DESCRIPTION RUNS"), "{first}");
    assert!(first.contains("conf.d/20.toml:2:1"), "{first}");
    let port = second.split("127.0.0.1:").nth(1).unwrap().split('"').next().unwrap();
    assert!(status.contains(port), "the proxy of the last reload is there: {status}");
    let events = service.events("last-good");
    assert_eq!((events.len(), &events[0]["level"]), (1, &Value::from("error")));
    let metrics = service.ask(&["status", "--metrics"]).out;
    assert!(metrics.contains("\ngatewright_description_fallback 1\n"), "{metrics}");

    // The history marks it, and a return to it leaves the alarm: the file is refused still.
    let history = || service.ask(&["config", "history", "--json"]).json()["kept"].clone();
    let marked = |kept: &Value| {
        let kept = kept.as_array().unwrap();
        kept.iter().map(|it| it["in_force"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(marked(&history()), [false, true]);
    let why = || service.ask(&["status", "--json"]).json().get("fallback").cloned();
    let before = why();
    for number in ["2", "1"] {
        let back = service.ask(&["config", "rollback", number]);
        assert_eq!((back.code, why()), (0, before.clone()), "{}", back.err);
    }
    assert_eq!(marked(&history()), [false, false, true]);
    // So does a reload of another file.
    let other = folder.join("other.toml");
    fs::write(&other, format!("[gateway]\nname = \"good\"\n{}", proxy("one"))).unwrap();
    assert_eq!(service.ask(&["reload", other.to_str().unwrap()]).code, 0);
    assert_eq!(why(), before);
    let metrics = service.ask(&["status", "--metrics"]).out;
    assert!(metrics.contains("\ngatewright_description_fallback 1\n"), "{metrics}");

    // Corrected, its own description runs.
    fs::write(folder.join("conf.d/20.toml"), second).unwrap();
    assert_eq!(service.ask(&["reload"]).code, 0);
    assert_eq!(service.ask(&["status", "--json"]).json().get("fallback"), None);
}

#[test]
fn the_last_good_description_runs_in_place_of_one_that_does_not_start() {
    let folder = describe("not-started", &proxy("one"), &[]);
    drop(Service::runs(&folder));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let port = taken.rsplit(':').next().unwrap();
    let text = format!("[tcp_proxy.one]\nlisten = \"127.0.0.1:{port}\"\n");
    let text = format!("{text}forward = {{ address = \"127.0.0.1\", port = 9 }}\n");
    fs::write(folder.join("gateway.toml"), text).unwrap();
    let service = Service::runs(&folder);
    let status = service.ask(&["status", "--json"]).json();
    let why = status["fallback"].as_str().unwrap();
    assert!(why.contains("tcp_proxy.one: Address already in use"), "{why}");
    drop(listener);
}

/// A list without entries is told in words; its JSON is a list.
#[test]
fn a_gateway_without_links_says_that_it_has_none() {
    let folder = describe("no-links", &proxy("one"), &[]);
    let service = Service::runs(&folder);
    for (verb, key) in [("route", "routes"), ("neigh", "neighbours"), ("link", "links")] {
        let said = service.ask(&[verb]);
        let told = (said.code, said.out.as_str(), said.err.trim_end());
        assert_eq!(told, (0, "", format!("no {key}").as_str()), "{verb}");
        assert_eq!(service.ask(&[verb, "--json"]).json()[key], serde_json::json!([]), "{verb}");
    }
    let said = service.ask(&["link", "lan"]);
    assert!(said.code == 1 && said.err.contains("the gateway has none"), "{}", said.err);
}

/// Who may see events and status is not told what stands in a description that never ran.
#[test]
fn no_value_of_a_refused_description_is_in_status_and_events() {
    let folder = describe("secret", &proxy("one"), &[]);
    drop(Service::runs(&folder));
    let text = "[cse]\nbase = \"gw\"\nid = \"/gw\"\n\
                mqtt = \"mqtt:/userSECRET07:pwSECRET08@broker\"\n";
    fs::write(folder.join("conf.d/10.toml"), text).unwrap();
    let service = Service::runs(&folder);
    assert_eq!(service.ask(&["reload"]).code, 78, "its error is an event, too");
    let status = service.ask(&["status"]).out;
    let line = status.lines().next().unwrap();
    assert!(line.contains("10.toml:4:8: GW"), "{line}");
    let events = service.ask(&["events"]).out;
    assert!(events.contains("last-good") && events.contains("reload-refused"), "{events}");
    let all = [status, events, service.ask(&["status", "--json"]).out].concat();
    assert!(!all.contains("SECRET"), "{all}");
}

#[test]
fn a_gateway_returns_to_a_description_that_it_had() {
    let folder = describe("history", &proxy("one"), &[]);
    let service = Service::runs(&folder);
    let history = || service.ask(&["config", "history", "--json"]).json()["kept"].clone();
    fs::write(folder.join("conf.d/20.toml"), "[log]\nlevel = \"warning\"\n").unwrap();
    assert_eq!(service.ask(&["reload"]).code, 0);
    let kept = history();
    let told: Vec<_> = kept.as_array().unwrap().iter().collect();
    assert_eq!(told.len(), 2, "{kept}");
    assert_eq!((&told[0]["cause"], &told[0]["in_force"]), (&"start".into(), &false.into()));
    assert_eq!((&told[1]["cause"], &told[1]["in_force"]), (&"reload".into(), &true.into()));
    let differs = service.ask(&["config", "diff", "1"]);
    assert!(differs.code == 0 && differs.out.starts_with("[log] level: "), "{}", differs.out);
    assert!(!service.ask(&["config", "show", "1"]).out.contains("warning"));
    let back = service.ask(&["config", "rollback", "1"]);
    assert_eq!((back.code, back.out), (0, differs.out), "{}", back.err);
    assert!(back.err.contains("a reload takes it again"), "{}", back.err);
    assert_eq!(service.ask(&["config", "diff", "1"]).out, "what runs is as it says\n");
    assert_eq!(service.events("rolled-back").len(), 1);
    assert_eq!(history()[2]["cause"], "roll-back");
    let missing = service.ask(&["config", "rollback", "9"]);
    assert!(missing.code == 1 && missing.err.contains("config history"), "{}", missing.err);
    // One that needs a restart is refused, and nothing is changed.
    fs::write(folder.join("conf.d/20.toml"), "[gateway]\nname = \"other\"\n").unwrap();
    assert_eq!(service.ask(&["reload"]).code, 1);
    assert_eq!(history().as_array().unwrap().len(), 3);
}

#[test]
fn without_a_last_good_file_no_descriptions_are_kept() {
    let folder = describe("no-history", &proxy("one"), &[]);
    let socket = folder.join("socket");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    command.arg("run").arg(&folder).arg("--socket").arg(&socket).stdin(Stdio::null());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let service = Service { folder, child };
    assert!(wait_until(WITHIN, || service.ask(&["status"]).code == 0));
    let said = service.ask(&["config", "history"]);
    assert!(said.code == 1 && said.err.contains("--last-good FILE"), "{}", said.err);
}

#[test]
fn without_a_last_good_description_a_refused_one_ends_with_78() {
    let folder = describe("none-good", "[gateway]\nname = 7\n", &[]);
    let mut service = Service::start(&folder);
    assert_eq!(service.child.wait().unwrap().code(), Some(78), "{}", service.said());
}

#[test]
fn the_copy_is_not_the_description_itself() {
    let folder = describe("own-copy", &proxy("one"), &[("10.toml", "[gateway]\n")]);
    let folder = folder.to_str().unwrap();
    for copy in [
        "gateway.toml",
        "conf.d/10.toml",
        "conf.d/new.toml",
        "../description-own-copy/gateway.toml",
    ] {
        let copy = format!("{folder}/{copy}");
        let before = fs::read_to_string(&copy).ok();
        let ran = gatewright(&["run", folder, "--last-good", &copy, "--stop-after", "1"]);
        assert_eq!((ran.code, fs::read_to_string(&copy).ok()), (2, before), "{copy}: {}", ran.err);
    }
}

#[test]
fn the_level_of_written_events_changes_while_it_runs() {
    let folder = describe("level", &proxy("one"), &[]);
    let service = Service::runs(&folder);
    assert_eq!(service.ask(&["log", "loud"]).code, 2);
    let said = service.ask(&["log", "error"]);
    assert_eq!((said.code, said.out.as_str()), (0, "events are written from error on\n"));
    let (main, other) = (folder.join("gateway.toml"), proxy("other"));
    fs::write(&main, "[gateway]\nnom = 1\n").unwrap();
    // A refused reload is a warning: it is in the log, and is not written.
    assert_eq!(service.ask(&["reload"]).code, 78);
    assert_eq!(service.events("reload-refused").len(), 1);
    assert_eq!(service.ask(&["log", "warning"]).code, 0);
    assert_eq!(service.ask(&["reload"]).code, 78);
    let written = || service.said().matches("reload-refused").count();
    assert!(wait_until(WITHIN, || written() == 1), "{}", service.said());
    // The description's own level is in force again after a reload.
    fs::write(&main, other).unwrap();
    assert_eq!(service.ask(&["reload"]).code, 0);
    assert!(wait_until(WITHIN, || service.said().contains("reloaded")), "{}", service.said());
    assert_eq!(written(), 1);
}
