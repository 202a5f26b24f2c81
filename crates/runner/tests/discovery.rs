//! SLP to UPnP between peers that are not ours: pyslp (PyPI) asks, minidlna (Debian) is the device.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    unreachable_pub,
    reason = "a test may fail loudly, and uses its part of what the tests share"
)]

mod common;

use common::back_end::BackEnd;
use common::{LIMIT, python_with, script};
use gatewright_testbed::{Namespace, Needs, Process, wait_until};
use libtest_mimic::Arguments;
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;

/// The address of everybody.
const HERE: &str = "192.0.2.1";
const PAGES: u16 = 8200;
/// The package of a user agent.
const PYSLP: &str = "pyslp==0.1.7";

fn main() {
    let needs = Needs::new().namespaces().program("minidlnad").program("python3");
    let python = if needs.missing().is_none() { python_with(PYSLP) } else { None };
    let needs = Needs::new().namespaces();
    let trials = BackEnd::trials("a_media_server_is_found", &needs, a_media_server_is_found);
    let trials = trials.map(|trial| {
        let missing = python.is_none() || trial.has_ignored_flag();
        trial.with_ignored_flag(missing)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

fn a_media_server_is_found(back_end: BackEnd) {
    let python = python_with(PYSLP).unwrap();
    let python = python.to_str().unwrap();
    let net = Namespace::new().unwrap();
    // Groups need an interface, and a way out over it.
    for arguments in [
        "link add lan0 type veth peer name lan1",
        "address add 192.0.2.1/24 dev lan0",
        "link set lan0 up",
        "link set lan1 up",
        "route add default dev lan0",
    ] {
        net.ip(&arguments.split(' ').collect::<Vec<_>>()).unwrap();
    }
    let _server = media_server(&net, back_end);
    let gateway = back_end.run(&net, "slp_upnp.gate", 1, &[]);
    let find = |kind: &str| {
        let arguments = [script("find_services.py"), HERE.to_owned(), kind.to_owned()];
        let said = net.command(python).args(arguments).stderr(Stdio::null()).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    // pyslp waits for a second; the server may be a moment late with its answer.
    let mut found = String::new();
    assert!(wait_until(LIMIT, || {
        found = find("service:MediaServer");
        !found.is_empty()
    }));
    assert_eq!(found, format!("service:MediaServer:http://{HERE}:{PAGES}/\n"));
    assert_eq!(find("service:Printer"), "");
    let Some(runner) = gateway.runner() else { return };
    let handled = &runner.report().handlers["agents.find"];
    assert!(handled.started >= 2 && handled.failed == 0, "{handled:?}");
}

/// minidlna with nothing to show.
fn media_server(net: &Namespace, back_end: BackEnd) -> Process {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("minidlna-{back_end:?}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("media")).unwrap();
    let file = folder.join("minidlna.conf");
    let at = folder.display();
    let text = format!(
        "network_interface=lan0\nport={PAGES}\nmedia_dir={at}/media\ndb_dir={at}\nlog_dir={at}\n\
         inotify=no\nminissdpdsocket={at}/none\n"
    );
    fs::write(&file, text).unwrap();
    let server = net.command("minidlnad").args(["-S", "-f"]).arg(&file);
    let server = server.args(["-P".as_ref(), folder.join("pid").as_os_str()]);
    let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let listens = || net.run(|| TcpStream::connect((HERE, PAGES)).is_ok()).unwrap();
    assert!(wait_until(LIMIT, listens));
    server
}
