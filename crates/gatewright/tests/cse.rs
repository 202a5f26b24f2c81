//! `gatewright cse` against a running CSE, over HTTP and over CoAP, in JSON and in CBOR.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Said, folder, gatewright};
use gatewright_bindings::cse;
use gatewright_onem2m::CseType;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn cse(arguments: &[&str]) -> Said {
    gatewright(&[&["cse"], arguments].concat())
}

/// A CSE with a database, and its URLs.
struct Running {
    runtime: tokio::runtime::Runtime,
    cse: Option<cse::RunningCse>,
    store: PathBuf,
    urls: Vec<String>,
}

impl Running {
    fn start(name: &str) -> Self {
        let store = folder(name).join("cse.db");
        let mut machine = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
        machine.admin = Some("CAdmin".to_owned());
        let mut config = cse::CseServerConfig::new(machine);
        config.listen = vec!["127.0.0.1:0".parse().unwrap()];
        config.listen_coap = vec!["127.0.0.1:0".parse().unwrap()];
        config.store = Some(store.clone());
        config.cse.audit = gatewright_onem2m::audit::Audit::Strict;
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let cse = runtime.block_on(cse::start(config)).unwrap();
        let http = cse.addresses().into_iter().map(|address| format!("http://{address}"));
        let coap = cse.coap_addresses().map(|address| format!("coap://{address}"));
        let urls = http.chain(coap).collect();
        Self { runtime, cse: Some(cse), store, urls }
    }

    fn stop(&mut self) {
        if let Some(cse) = self.cse.take() {
            self.runtime.block_on(cse.stop());
        }
    }
}

const PICTURE: &str = "\
cse-mn (cb)
└── app (ae)
    └── c (cnt), 3 instances
        └── inner (cnt)
";

#[test]
fn what_is_created_is_got_and_drawn() {
    let mut running = Running::start("cse-verbs");
    let store = running.store.to_str().unwrap().to_owned();
    let head = || cse(&["audit", "--verify", &store, "--json"]).json()["head"].clone();
    let mut heads = Vec::new();
    for (number, url) in running.urls.clone().iter().enumerate() {
        let mode: &[&str] = if number == 0 { &["--cbor"] } else { &[] };
        let ask = |arguments: &[&str]| {
            let whom = ["--url", url, "--as", "CAdmin"];
            cse(&[arguments, &whom, mode].concat())
        };
        if number == 0 {
            let app = ["create", "-", "ae", "api=Napp", "rn=app", "rr:=false", "srv:=[\"3\"]"];
            // The AE's own name stands before the `--as` of the others.
            let made = cse(&[&app[..], &["--url", url, "--as", "Capp"]].concat());
            assert_eq!(made.code, 0, "{}", made.err);
            for (parent, attributes) in [("cse-mn/app", "rn=c"), ("cse-mn/app/c", "rn=inner")] {
                let made = ask(&["create", parent, "cnt", attributes]);
                assert_eq!(made.code, 0, "{}", made.err);
            }
            for value in ["96.50", "96.4", "1e3"] {
                let made = ask(&["create", "cse-mn/app/c", "4", &format!("con={value}"), "--json"]);
                assert_eq!(made.json()["content"]["m2m:cin"]["con"], value, "{}", made.err);
                assert_eq!(made.json()["status"], 2001);
            }
        }
        let got = ask(&["get", "cse-mn/app/c/la"]);
        assert_eq!(got.code, 0, "{}", got.err);
        assert!(got.out.contains("\"con\": \"1e3\""), "{}", got.out);
        let found = ask(&["get", "cse-mn?fu=1&ty=4", "--json"]).json();
        assert_eq!(found["content"]["m2m:uril"].as_array().unwrap().len(), 3);
        let tree = ask(&["tree"]);
        assert_eq!((tree.out.as_str(), tree.code), (PICTURE, 0), "{}", tree.err);
        let tree = ask(&["tree", "cse-mn/app", "--instances", "--json"]).json();
        assert_eq!(tree["root"]["children"][0]["instances"], 3);
        assert_eq!(tree["root"]["children"][0]["children"].as_array().unwrap().len(), 4);
        assert_eq!((&tree["resources"], &tree["cut"]), (&5.into(), &false.into()));
        let shallow = ask(&["tree", "--depth", "1"]);
        assert_eq!(shallow.out, "cse-mn (cb)\n└── app (ae)\n");
        let shallow = ask(&["tree", "cse-mn/app", "--depth", "1", "--json"]).json();
        let [app, container] = [&shallow["root"], &shallow["root"]["children"][0]];
        assert_eq!(
            (&app["instances"], &container["instances"]),
            (&0.into(), &serde_json::Value::Null)
        );
        let gone = ask(&["get", "cse-mn/none"]);
        assert_eq!(gone.code, 1);
        assert!(gone.err.contains("4004 NotFound"), "{}", gone.err);
        let denied = cse(&["get", "cse-mn/app", "--url", url, "--as", "CNobody"]);
        assert!(denied.code == 1 && denied.err.contains("4103"), "{}", denied.err);
        heads.push(head());
    }
    running.stop();
    let away = cse(&["get", "-", "--url", &running.urls[0], "--as", "CAdmin"]);
    assert_eq!(away.code, 69, "{}", away.err);
    audit_of_two(&store, &heads);
}

#[test]
fn what_is_updated_and_deleted_is_printed_as_it_became() {
    let mut running = Running::start("cse-update");
    for url in running.urls.clone() {
        let ask =
            |arguments: &[&str]| cse(&[arguments, &["--url", &url, "--as", "CAdmin"]].concat());
        let made = ask(&["create", "-", "cnt", "rn=c", "lbl:=[\"a\"]"]);
        assert_eq!(made.code, 0, "{}", made.err);
        let changed = ask(&["update", "cse-mn/c", "cnt", "mni:=2", "lbl:=null", "--json"]).json();
        assert_eq!(
            (&changed["status"], &changed["content"]["m2m:cnt"]["mni"]),
            (&2004.into(), &2.into())
        );
        let got = ask(&["get", "cse-mn/c", "--json"]).json();
        let container = &got["content"]["m2m:cnt"];
        assert_eq!((&container["mni"], container.get("lbl")), (&2.into(), None));
        // What cannot be changed is refused with the status of the CSE.
        let refused = ask(&["update", "cse-mn/c", "cnt", "rn=d"]);
        assert!(refused.code == 1 && refused.err.contains("4000"), "{}", refused.err);
        assert_eq!(ask(&["update", "cse-mn/c", "cnt"]).code, 2);
        let gone = ask(&["delete", "cse-mn/c", "--json"]).json();
        assert_eq!(gone["status"], 2002);
        let again = ask(&["delete", "cse-mn/c"]);
        assert!(again.code == 1 && again.err.contains("4004"), "{}", again.err);
    }
    running.stop();
}

/// The log at `store` of what was asked by each URL, and the heads that it had after each.
fn audit_of_two(store: &str, heads: &[serde_json::Value]) {
    let intact = cse(&["audit", "--verify", store, "--json"]);
    assert_eq!((intact.code, &intact.json()["intact"]), (0, &true.into()), "{}", intact.err);
    assert!(intact.json()["entries"].as_u64() > Some(10));
    let told = intact.json();
    let [allowed, denied, failed] = ["allowed", "denied", "failed"].map(|it| &told[it]);
    assert_eq!((denied, failed), (&2.into(), &2.into()), "a stranger and a wrong address, twice");
    assert_eq!(allowed.as_u64().map(|it| it + 4), intact.json()["entries"].as_u64());
    let shown = cse(&["audit", "--verify", store, "--last", "1"]);
    let line = r#"Retrieve "cse-mn/app" by "CNobody", at "127.0.0.1": 4103"#;
    assert!(shown.out.contains(&format!("{line}\n")), "{}", shown.out);
    // Without a proof it shows the last ones, newest last.
    let listed = cse(&["audit", store]);
    assert!(listed.code == 0 && listed.out.trim_end().ends_with(line), "{}", listed.out);
    let two = cse(&["audit", store, "--last", "2", "--json"]).json();
    let entry = &two["last"][1]["entry"];
    assert_eq!((&entry["op"], &entry["end"]), (&"Retrieve".into(), &4103.into()));
    assert_eq!((two["last"].as_array().map(Vec::len), two.get("intact")), (Some(2), None));
    assert_eq!(heads.last(), Some(&intact.json()["head"]));
    assert_ne!(heads.first(), heads.last(), "the log goes on");
    for head in heads.iter().map(|head| head.as_str().unwrap()) {
        let known = cse(&["audit", "--verify", "--head", head, store]);
        assert_eq!(known.code, 0, "it is still in the chain: {}", known.out);
    }
    let other = cse(&["audit", "--verify", "--head", &"0".repeat(64), store]);
    assert!(other.code == 1 && other.out.starts_with("CHANGED"), "{}", other.out);
    let gone = cse(&["audit", "--verify", "/nonexistent/cse.db"]);
    assert_eq!(gone.code, 78, "{}", gone.err);
}

#[test]
fn a_subscriber_hears_of_what_changes() {
    let mut running = Running::start("cse-subscribe");
    let url = running.urls[0].clone();
    let ask = |arguments: &[&str]| cse(&[arguments, &["--url", &url, "--as", "CAdmin"]].concat());
    assert_eq!(ask(&["create", "-", "cnt", "rn=c"]).code, 0);
    let mut subscriber = Command::new(env!("CARGO_BIN_EXE_gatewright"))
        .args(["cse", "subscribe", "cse-mn/c", "--count", "2", "--events", "3", "--seconds", "60"])
        .args(["--name", "s", "--url", &url, "--as", "CAdmin"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It says so once it is subscribed.
    let mut words = BufReader::new(subscriber.stderr.take().unwrap());
    let mut first = String::new();
    words.read_line(&mut first).unwrap();
    assert!(first.contains("notifies"), "{first}");
    for value in ["con=1", "con=2"] {
        assert_eq!(ask(&["create", "cse-mn/c", "cin", value]).code, 0);
    }
    let output = subscriber.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let out = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(lines.iter().all(|line| line.starts_with("child created: ")), "{out}");
    assert!(out.contains("\"con\":\"1\"") && out.contains("\"con\":\"2\""), "{out}");
    assert_eq!(ask(&["get", "cse-mn/c/s"]).code, 1, "the subscription is deleted");
    let left = ask(&["subscribe", "cse-mn/c", "--name", "t", "--target", "http://127.0.0.1:1"]);
    // Nobody is there to agree (5204), so it is refused.
    assert!(left.code == 1 && left.err.contains("5204"), "{}", left.err);
    for (target, advice) in [
        ("http://127.0.0.1:1", "answer the first notification (`vrq`) with 2000"),
        ("mqtt://127.0.0.1:1/x", "a plain subscriber of MQTT does not"),
        ("ftp://127.0.0.1:1", "targets are http://"),
    ] {
        let left = ask(&["subscribe", "cse-mn/c", "--name", "t", "--target", target]);
        assert!(left.code == 1 && left.err.contains(advice), "{target}: {}", left.err);
    }
    let wrong = ask(&["get", "cse-mn?fu=1&cra=tomorrow"]);
    assert!(wrong.code != 0 && wrong.err.contains("as 20261128T120000"), "{}", wrong.err);
    running.stop();
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for arguments in [
        &["get", "-"][..],
        &["get", "-", "--as", "C", "--url", "ftp://x"],
        &["create", "-", "nothing", "--as", "C"],
        &["create", "-", "cin", "con", "--as", "C"],
        &["create", "-", "fcnt", "a=b", "--as", "C"],
        &["audit"],
        &["audit", "x.db", "--head", "00"],
        &["audit", "x.db", "--last", "100001"],
    ] {
        assert_eq!(cse(arguments).code, 2, "{arguments:?}");
    }
}
