//! `gatewright link` against a running gateway on two TAP interfaces in a namespace of their own.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod trials;

use gatewright_testbed::{Namespace, Needs, wait_until};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{fs, path::PathBuf};

const DESCRIPTION: &str = "\
[link.lan]
mode = \"tap\"
device = \"gw-lan\"
addresses = [\"192.0.2.1/24\"]

[link.wan]
mode = \"tap\"
device = \"gw-wan\"
addresses = [\"198.51.100.1/24\"]
";

/// How long a gateway has to answer.
const START_WITHIN: Duration = Duration::from_secs(30);

fn main() {
    let name = "link_tells_the_links_of_a_running_gateway";
    trials::run(&Needs::new().namespaces(), [(name, link_tells_the_links_of_a_running_gateway)])
}

fn link_tells_the_links_of_a_running_gateway() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("link");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let (file, socket) = (folder.join("gateway.toml"), folder.join("s"));
    fs::write(&file, DESCRIPTION).unwrap();
    let gatewright = || Command::new(env!("CARGO_BIN_EXE_gatewright"));
    let link = |arguments: &[&str]| -> Output {
        gatewright().arg("link").args(arguments).arg("--socket").arg(&socket).output().unwrap()
    };
    assert_eq!(link(&[]).status.code(), Some(69), "no gateway runs yet");
    let namespace = Namespace::new().unwrap();
    let gateway = namespace
        .command(env!("CARGO_BIN_EXE_gatewright"))
        .args(["run".as_ref(), file.as_os_str(), "--socket".as_ref(), socket.as_os_str()])
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.join("said")).unwrap())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(folder.join("said")).unwrap();
    assert!(wait_until(START_WITHIN, || link(&[]).status.success()), "{}", said());
    let (all, one, json, none) =
        (link(&[]), link(&["wan"]), link(&["lan", "--json"]), link(&["lann"]));
    drop(gateway);
    let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
    let all = text(&all.stdout);
    assert!(all.contains("lan: ") && all.contains("192.0.2.1/24"), "{all}");
    assert!(all.contains("wan: ") && all.contains("198.51.100.1/24"), "{all}");
    let one = text(&one.stdout);
    assert!(one.starts_with("wan: ") && !one.contains("192.0.2.1"), "{one}");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let links = json["links"].as_array().unwrap();
    assert_eq!((links.len(), links[0]["name"].as_str()), (1, Some("lan")));
    assert_eq!(none.status.code(), Some(1));
    let told = text(&none.stderr);
    assert!(told.contains("there is no link lann: lan, wan"), "{told}");
}
