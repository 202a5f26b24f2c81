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

use common::{LIMIT, program, python_with, script};
use gatewright_runner::{Options, Runner};
use gatewright_testbed::{Namespace, Needs, Process, wait_until};
use libtest_mimic::{Arguments, Trial};
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;

/// The address of everybody.
const HERE: &str = "192.0.2.1";
const PAGES: u16 = 8200;

fn main() {
    let needs = Needs::new().namespaces().program("minidlnad").program("python3");
    let python = if needs.missing().is_none() { python_with("pyslp==0.1.7") } else { None };
    let missing = python.is_none();
    let run = move || {
        a_media_server_is_found(python.unwrap_or_default().to_str().unwrap());
        Ok(())
    };
    let trial = Trial::test("a_media_server_is_found", run).with_ignored_flag(missing);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

fn a_media_server_is_found(python: &str) {
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
    let _server = media_server(&net);
    let options = Options { loops: 1, ..Options::default() };
    let gateway = program("slp_upnp.gate");
    let gateway = net.run(|| Runner::start(&gateway, options)).unwrap().unwrap();
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
    let handled = &gateway.report().handlers["agents.find"];
    assert!(handled.started >= 2 && handled.failed == 0, "{handled:?}");
}

/// minidlna with nothing to show.
fn media_server(net: &Namespace) -> Process {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("minidlna");
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
