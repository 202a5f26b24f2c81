//! The package where systemd runs: a clean Debian is booted by `systemd-nspawn`, and [`SCRIPT`] runs in it
//! as a service.

use super::installed::remove;
use crate::{build::target, summary::Summary};
use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

/// What runs there.
const SCRIPT: &str = include_str!("booted.sh");

/// The service that runs it, and ends the machine.
const UNIT: &str = "[Service]
Type=oneshot
ExecStart=/bin/sh /booted.sh
StandardOutput=file:/said
StandardError=inherit
ExecStopPost=/usr/bin/systemctl --no-block poweroff
";

/// Maximum duration of all of it, in seconds: a debug build on a busy machine takes two minutes.
const SECONDS_MAX: &str = "900";

/// Boots a copy of `base` with both packages; whether each step passed, or could not be tried here.
pub(super) fn boots(
    base: &Path,
    [first, second]: [&Path; 2],
    summary: &mut Summary,
) -> io::Result<bool> {
    let copy = target().join("deb/booted");
    remove(&copy)?;
    super::run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(base).arg(&copy))?;
    fs::copy(first, copy.join("first.deb"))?;
    fs::copy(second, copy.join("second.deb"))?;
    fs::write(copy.join("booted.sh"), SCRIPT)?;
    // Empty: the machine's first boot makes one.
    fs::write(copy.join("etc/machine-id"), "")?;
    let units = copy.join("etc/systemd/system");
    fs::create_dir_all(units.join("multi-user.target.wants"))?;
    fs::write(units.join("booted.service"), UNIT)?;
    symlink("../booted.service", units.join("multi-user.target.wants/booted.service"))?;

    let mut machine = Command::new("timeout");
    machine.args(["--kill-after=10", SECONDS_MAX, "systemd-nspawn", "--quiet", "--boot"]);
    machine.args(["--register=no", "--keep-unit", "--link-journal=no", "--console=read-only"]);
    machine.args(["--private-network", "--capability=all", "--directory"]);
    let ran = machine.arg(&copy).stdin(Stdio::null()).output()?;
    let said = match fs::read_to_string(copy.join("said")) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let told = [ran.stderr, ran.stdout].concat();
            let told = String::from_utf8_lossy(&told);
            let last = told.lines().next_back().unwrap_or("nothing").trim();
            let needs = format!("needs a machine on which systemd-nspawn boots; it said: {last}");
            summary.skip("deb::booted", &needs);
            remove(&copy)?;
            return Ok(true);
        }
        said => said?,
    };
    for line in said.lines() {
        println!("{line}");
        summary.note(line);
    }
    let passed = said.lines().next_back() == Some("exit 0");
    if !said.lines().any(|line| line.starts_with("exit ")) {
        println!("== deb-check: the booted machine did not come to the end");
    }
    remove(&copy)?;
    Ok(passed)
}
