//! What the system does not give is named at the start, with the exit code for it: too few file
//! descriptors (69), an address or a database in use (75).
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod common;

use common::{folder, gatewright};
use gatewright_testbed::free_port;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;

fn cse(port: u16) -> String {
    format!("[cse]\nbase = \"gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:{port}\"\nstore = \"a.db\"\n")
}

/// Runs the description in `folder` below limits set by the shell; its code and what it said.
fn run_below(folder: &Path, limits: &str) -> (Option<i32>, String) {
    let binary = env!("CARGO_BIN_EXE_gatewright");
    let script = format!(
        "{limits}; exec {binary} run gateway.toml --stop-after 1 --socket {}/socket",
        folder.display()
    );
    let output = Command::new("sh").args(["-c", &script]).current_dir(folder).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// No limit makes it panic; one that is too low is named with what is needed, and the one that it
/// asks for suffices.
#[test]
fn too_few_descriptors_are_named() {
    let folder = folder("few-descriptors");
    fs::write(folder.join("gateway.toml"), cse(free_port())).unwrap();
    let mut needed = 0;
    for limit in [3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 28, 32, 41, 42, 56] {
        let (code, said) = run_below(&folder, &format!("ulimit -n {limit}"));
        // Below 4, the dynamic linker cannot open the C library.
        let is_loaders = limit < 4 && code == Some(127);
        let is_named = said.contains("RLIMIT_NOFILE") && said.contains(&format!("is {limit}:"));
        assert!(is_loaders || (code == Some(69) && is_named), "{limit}: {code:?} {said}");
        if let Some((_, rest)) = said.split_once("needs at least ") {
            needed = rest.split(' ').next().unwrap().parse::<u64>().unwrap();
        }
    }
    let (code, said) = run_below(&folder, &format!("ulimit -n {needed}"));
    assert_eq!(code, Some(0), "{needed}: {said}");
    // The soft limit is ours to raise.
    let (code, said) = run_below(&folder, "ulimit -Sn 10");
    assert_eq!(code, Some(0), "{said}");
}

/// Trying again later can help: 75, as the help says.
#[test]
fn what_is_in_use_is_told_apart_from_what_is_missing() {
    let folder = folder("in-use");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let coap = udp.local_addr().unwrap().port();
    let free = free_port();
    let cases = [
        cse(port),
        cse(free).replace("store", &format!("coap = \"127.0.0.1:{coap}\"\nstore")),
        format!("{}[control]\nmetrics = \"127.0.0.1:{port}\"\n", cse(free)),
        format!("{}[devices]\nlisten = \"127.0.0.1:{port}\"\n", cse(free)),
        format!(
            "[tcp_proxy.a]\nlisten = \"127.0.0.1:{port}\"\n\
             forward = {{ address = \"127.0.0.1\", port = 9 }}\n"
        ),
    ];
    for text in cases {
        fs::write(folder.join("gateway.toml"), &text).unwrap();
        let (code, said) = run_below(&folder, "true");
        assert!(code == Some(75) && said.contains("in use"), "{text}: {code:?} {said}");
    }
    let options = gatewright_store::DatabaseOptions::default();
    let database = gatewright_store::Database::open(&folder.join("a.db"), &options).unwrap();
    fs::write(folder.join("gateway.toml"), cse(free)).unwrap();
    let (code, said) = run_below(&folder, "true");
    assert!(code == Some(75) && said.contains("in use"), "{code:?} {said}");
    drop(database);
    let (code, said) = run_below(&folder, "true");
    assert_eq!(code, Some(0), "{said}");
    let help = gatewright(&["run", "--help"]);
    assert!(
        help.out.contains("75  the gateway is busy, or another process has the database or an")
    );
}
