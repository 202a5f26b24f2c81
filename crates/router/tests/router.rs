//! The program without language, devices, service entity and web: it runs a description of a router, and
//! refuses by name what it lacks.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_testbed::wait_until;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

const BINARY: &str = env!("CARGO_BIN_EXE_gatewright-router");

/// Generous: nothing here takes as long unless it never comes.
const LIMIT: Duration = Duration::from_mins(1);

/// `EX_CONFIG` of `sysexits.h`.
const CONFIGURATION: i32 = 78;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn router(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

/// Two links over segments in memory, which need no right, and a route.
const ROUTER: &str = "\
[link.lan]
segment = \"lan\"
mode = \"segment\"
addresses = [\"192.0.2.1/24\"]
[link.wan]
segment = \"wan\"
mode = \"segment\"
addresses = [\"198.51.100.1/24\"]
[[route]]
to = \"0.0.0.0/0\"
via = \"198.51.100.2\"
";

#[test]
fn a_router_runs_and_answers() {
    let folder = folder("router");
    let (file, socket) = (folder.join("gateway.toml"), folder.join("gateway.sock"));
    fs::write(&file, ROUTER).unwrap();
    let (file, socket) = (file.to_str().unwrap(), socket.to_str().unwrap());
    let checked = router(&["check", file]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let run = ["run", "--socket", socket, "--log", "none", file];
    let mut running = Command::new(BINARY).args(run).spawn().unwrap();
    let status = || router(&["status", "--socket", socket, "--json"]);
    let answers = wait_until(LIMIT, || status().status.success());
    let said = status().stdout;
    // A reload that asks for what the program lacks changes nothing.
    fs::write(file, format!("{ROUTER}{CSE}")).unwrap();
    let reloaded = router(&["reload", "--socket", socket, file]);
    fs::write(file, ROUTER).unwrap();
    let again = router(&["reload", "--socket", socket, file]);
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(answers, "{}", String::from_utf8_lossy(&said));
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("\"lan\"") && said.contains("\"wan\""), "{said}");
    let refused = String::from_utf8_lossy(&reloaded.stderr).into_owned();
    assert_eq!(reloaded.status.code(), Some(CONFIGURATION), "{refused}");
    assert!(refused.contains("[cse]: this program was assembled without it"), "{refused}");
    assert!(again.status.success(), "{again:?}");
}

const CSE: &str = "[cse]\nbase = \"gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:7\"\n";

#[test]
fn what_it_lacks_is_refused_by_name() {
    let folder = folder("router-lacks");
    fs::write(folder.join("a.gate"), "").unwrap();
    let tables = [
        ("[cse]", CSE),
        ("[web]", "[web]\nlisten = \"127.0.0.1:7\"\n"),
        ("[[program]]", "[[program]]\nfile = \"a.gate\"\n"),
    ];
    for (table, text) in tables {
        let file = folder.join("gateway.toml");
        fs::write(&file, format!("{ROUTER}{text}")).unwrap();
        let file = file.to_str().unwrap();
        for verb in ["check", "run"] {
            let refused = router(&[verb, file]);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert_eq!(refused.status.code(), Some(CONFIGURATION), "{verb} {table}: {said}");
            let words = format!("{table}: this program was assembled without it");
            assert!(said.contains(&words) && said.contains("gateway.toml:"), "{verb}: {said}");
        }
    }
}

#[test]
fn its_help_has_its_own_name() {
    let help = router(&["--help"]);
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success() && text.contains("gatewright-router"), "{text}");
    assert!(!text.contains("\n  cse ") && !text.contains("\n  gw "), "{text}");
    let version = String::from_utf8(router(&["version"]).stdout).unwrap();
    assert!(version.starts_with("gatewright-router "), "{version}");
}
