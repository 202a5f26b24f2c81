//! A gateway that is killed under traffic leaves nothing behind, and one that is started again goes
//! on where it was.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_testbed::{Namespace, Needs, Process, Veth, wait_until};
use libtest_mimic::{Arguments, Trial};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// How long a gateway has to start, and a packet to arrive.
const WITHIN: Duration = Duration::from_secs(30);

const SOUTH: &str = "10.10.2.2";

/// An address that the kernel in the middle is given when the gateway has gone.
const KERNELS: &str = "10.10.1.7";

fn main() {
    let missing = Needs::new().namespaces().program("ping").missing().is_some();
    let trials = ["packet", "auto"].map(|mode| {
        let run = move || {
            a_killed_gateway_is_started_again(mode);
            Ok(())
        };
        Trial::test(format!("{mode}::a_killed_gateway_is_started_again"), run)
            .with_ignored_flag(missing)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

fn description(mode: &str) -> String {
    format!(
        "[link.lan]\ndevice = \"g0\"\nmode = \"{mode}\"\naddresses = [\"10.10.1.1/24\"]\n\
         [link.wan]\ndevice = \"g1\"\nmode = \"{mode}\"\naddresses = [\"10.10.2.1/24\"]\n"
    )
}

/// The gateway of the description in `folder`, once it answers.
fn start(middle: &Namespace, folder: &Path) -> Process {
    let gatewright = env!("CARGO_BIN_EXE_gatewright");
    let (file, socket) = (folder.join("gateway.toml"), folder.join("s"));
    let run = middle.command(gatewright).arg("run").arg(file).arg("--socket").arg(&socket);
    let told = fs::File::create(folder.join("said")).unwrap();
    let gateway = run.stdout(Stdio::null()).stderr(told).spawn().unwrap();
    let answers = || {
        let status = Command::new(gatewright).args(["status", "--socket"]).arg(&socket).output();
        status.unwrap().status.success()
    };
    assert!(wait_until(WITHIN, answers), "it answers: {}", said(folder));
    gateway
}

/// What it said on its standard error.
fn said(folder: &Path) -> String {
    fs::read_to_string(folder.join("said")).unwrap()
}

fn a_killed_gateway_is_started_again(mode: &str) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("killed-{mode}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("gateway.toml"), description(mode)).unwrap();
    let [north, middle, south] = [(); 3].map(|()| Namespace::new().unwrap());
    let lan = Veth::pair(&north, "n0", &middle, "g0").unwrap();
    let wan = Veth::pair(&middle, "g1", &south, "s0").unwrap();
    lan.a.add_address("10.10.1.2/24").unwrap();
    wan.b.add_address("10.10.2.2/24").unwrap();
    lan.up().unwrap();
    wan.up().unwrap();
    north.add_route("default", "10.10.1.1").unwrap();
    south.add_route("default", "10.10.2.1").unwrap();
    let pings = |to: &str| {
        let ping = north.command("ping").args(["-n", "-q", "-c1", "-W1", to]).output();
        ping.unwrap().status.success()
    };
    let traffic = north.command("ping").args(["-n", "-q", "-i", "0.005", SOUTH]);
    let traffic = traffic.stdout(Stdio::null()).spawn().unwrap();
    for round in ["first", "second", "third"] {
        let gateway = start(&middle, &folder);
        assert!(wait_until(WITHIN, || pings(SOUTH)), "{round}: packets pass: {}", said(&folder));
        assert!(!pings(KERNELS), "{round}: the kernel is not heard");
        gateway.kill();
        // Its programs have gone with it: the kernel has the links again.
        let links = || middle.ip(&["-d", "link", "show"]).unwrap();
        assert!(wait_until(WITHIN, || !links().contains("prog/xdp")), "{round}: {}", links());
        lan.b.add_address(&format!("{KERNELS}/24")).unwrap();
        assert!(wait_until(WITHIN, || pings(KERNELS)), "{round}: the kernel answers");
        assert!(!pings(SOUTH), "{round}: nobody forwards");
        middle.ip(&["address", "del", &format!("{KERNELS}/24"), "dev", "g0"]).unwrap();
    }
    drop(traffic);
}
