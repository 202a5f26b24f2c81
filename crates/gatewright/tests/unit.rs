//! The systemd unit: systemd takes it, and the gateway tells when it is ready and when it stops.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod trials;

use gatewright_testbed::Needs;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// No machine gets systemd for this test.
const VERIFIER: &str = "systemd-analyze";
const BINARY: &str = env!("CARGO_BIN_EXE_gatewright");

fn main() {
    let needs = Needs::new().program(VERIFIER);
    let tests: [(&str, fn()); 4] = [
        ("systemd_takes_the_unit", taken),
        ("systemd_takes_the_socket", socket_taken),
        ("the_unit_is_exposed_to_little", exposed),
        ("a_service_tells_when_it_is_ready_and_when_it_stops", told),
    ];
    trials::run(&needs, tests)
}

/// The socket, with the service that it starts beside it.
fn socket_taken() {
    let folder = folder("unit-socket");
    let service = fs::read_to_string(unit()).unwrap().replace("/usr/bin/gatewright", BINARY);
    fs::write(folder.join("gatewright.service"), service).unwrap();
    let text = fs::read_to_string(unit().with_extension("socket")).unwrap();
    let copy = folder.join("gatewright.socket");
    let verify = |text: &str| {
        fs::write(&copy, text).unwrap();
        let said = Command::new(VERIFIER).arg("verify").arg(&copy).output().unwrap();
        String::from_utf8_lossy(&said.stderr).into_owned()
    };
    let said = verify(&text);
    assert!(!said.contains("gatewright."), "{said}");
    let wrong = verify(&text.replace("FileDescriptorName", "FileDescriptorNam"));
    assert!(wrong.contains("FileDescriptorNam"), "{wrong}");
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// systemd-analyze(1), verify: it prints what is wrong, and looks for the program.
fn taken() {
    let text = fs::read_to_string(unit()).unwrap();
    let folder = folder("unit-taken");
    let copy = folder.join("gatewright.service");
    let verify = |text: &str| {
        fs::write(&copy, text).unwrap();
        let said = Command::new(VERIFIER).arg("verify").arg(&copy).output().unwrap();
        (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    let here = text.replace("/usr/bin/gatewright", BINARY);
    let (ok, said) = verify(&here);
    let ours: Vec<_> = said.lines().filter(|line| line.contains("gatewright.service")).collect();
    assert!(ok && ours.is_empty(), "{said}");
    // A misspelt key is told, so the silence above says something.
    let (_, said) = verify(&here.replace("KillMode=", "KillModus="));
    assert!(said.contains("KillModus"), "{said}");
}

/// Maximum exposure of the unit, in tenths.
const EXPOSURE_MAX: &str = "25";

/// systemd-analyze(1), security: the score of a unit that is not loaded.
fn exposed() {
    let folder = folder("unit-exposed");
    let copy = folder.join("gatewright.service");
    let text = fs::read_to_string(unit()).unwrap();
    let judge = |text: &str| {
        fs::write(&copy, text).unwrap();
        let mut judge = Command::new(VERIFIER);
        judge.args(["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE_MAX]);
        let said = judge.arg(&copy).output().unwrap();
        (said.status.success(), String::from_utf8_lossy(&said.stdout).into_owned())
    };
    let (ok, said) = judge(&text);
    assert!(ok, "{said}");
    // A unit without its restrictions is not taken.
    let (ok, said) = judge(&text.replace("SystemCallFilter=", "#"));
    assert!(!ok, "{said}");
}

fn unit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/gatewright.service")
}

fn told() {
    let folder = folder("unit-told");
    let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let written = folder.join("out.pcapng");
    let link = format!("[link.out]\nmode = \"pcapng\"\nwrite = \"{}\"\n", written.display());
    fs::write(folder.join("gateway.toml"), link).unwrap();
    let mut service = Command::new(BINARY)
        .arg("run")
        .arg(folder.join("gateway.toml"))
        .arg("--socket")
        .arg(folder.join("s"))
        .env("NOTIFY_SOCKET", folder.join("notify"))
        .env("WATCHDOG_USEC", "200000")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hear = || {
        let mut octets = [0; 256];
        let len = socket.recv(&mut octets).unwrap();
        String::from_utf8_lossy(&octets[..len]).into_owned()
    };
    assert!(hear().starts_with("READY=1\n"));
    // A watchdog that waits 0.2 s is told that the gateway answers.
    assert_eq!([hear(), hear()], ["WATCHDOG=1", "WATCHDOG=1"]);
    kill(Pid::from_raw(service.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let last = std::iter::repeat_with(hear).find(|said| said != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    assert!(service.wait().unwrap().success());
}
