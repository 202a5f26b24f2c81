//! `cargo xtask deb-check`: lintian judges the package, skopeo reads the image, and a clean Debian
//! installs, upgrades, removes and purges the package.
//!
//! The clean Debian is made by `debootstrap` once and copied for each run. Its processes have
//! namespaces of their own for mounts, processes and the network, so nothing of them is left.

use super::{DebPlan, assemble, booted::boots, output, program_of, run};
use crate::{build::target, oci, packages::Package, setup, summary::Summary};
use std::{
    fs,
    io::{self, BufRead, BufReader, ErrorKind},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// The Debian that the package is for.
const SUITE: &str = "bookworm";

/// Packages of the clean Debian beside the essential ones: those that ours depends on, and those that it
/// recommends which are used there.
const INCLUDED: &str = "systemd,passwd,curl,iproute2";

/// Programs that a clean Debian has which is complete.
const COMPLETE: [&str; 2] = ["usr/bin/curl", "usr/bin/ip"];

/// What runs there.
const SCRIPT: &str = include_str!("installed.sh");

/// What has to be installed here.
const PACKAGES: [Package<'_>; 4] = [
    Package {
        name: "skopeo",
        programs: Vec::new(),
        service: None,
        demo: false,
        reason: "reads the image for containers",
    },
    Package {
        name: "debootstrap",
        programs: Vec::new(),
        service: None,
        demo: false,
        reason: "a clean Debian to install the package in",
    },
    Package {
        name: "systemd-container",
        programs: Vec::new(),
        service: None,
        demo: false,
        reason: "boots it",
    },
    Package {
        name: "lintian",
        programs: Vec::new(),
        service: None,
        demo: false,
        reason: "Debian's judge of packages",
    },
];

/// Builds the package twice, judges and installs it; whether all that could run passed.
pub fn deb_check(plan: &DebPlan) -> bool {
    let start = Instant::now();
    let mut summary = Summary::default();
    setup::install_missing(&PACKAGES);
    let passed = match check(plan, &mut summary) {
        Ok(passed) => passed,
        Err(error) => {
            eprintln!("deb-check: {error}");
            false
        }
    };
    summary.took(start.elapsed());
    println!("== summary\n{summary}");
    passed
}

fn check(plan: &DebPlan, summary: &mut Summary) -> io::Result<bool> {
    let program = program_of(plan, false)?;
    let out = target().join("deb");
    let first = assemble(&program, plan.revision, &out)?;
    let again = assemble(&program, plan.revision, &out.join("again"))?;
    let same = fs::read(&first)? == fs::read(&again)?;
    note(summary, "the_same_program_gives_the_same_package", same);
    let second = assemble(&program, plan.revision + 1, &out)?;
    let judged = lintian(&first, summary)?;
    let image = oci::assemble(&program, &target().join("oci"))?;
    let read = skopeo(&image, summary)?;
    Ok(same & judged & read & installs(&first, &second, summary)?)
}

/// A program for images reads ours.
fn skopeo(image: &Path, summary: &mut Summary) -> io::Result<bool> {
    let image = format!("oci-archive:{}", image.display());
    match Command::new("skopeo").arg("inspect").arg(image).status() {
        Ok(status) => {
            note(summary, "skopeo_reads_the_image", status.success());
            Ok(status.success())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            summary.skip("deb::skopeo_reads_the_image", "needs the program skopeo");
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Says and notes the verdict of a step.
fn note(summary: &mut Summary, name: &str, passed: bool) {
    let line = format!("test deb::{name} ... {}", if passed { "ok" } else { "FAILED" });
    println!("{line}");
    summary.note(&line);
}

/// Lintian finds no error and no warning.
fn lintian(package: &Path, summary: &mut Summary) -> io::Result<bool> {
    let mut command = Command::new("lintian");
    command.args(["--fail-on", "error,warning", "--allow-root"]).arg(package);
    match command.status() {
        Ok(status) => {
            note(summary, "lintian_finds_nothing", status.success());
            Ok(status.success())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            summary.skip("deb::lintian_finds_nothing", "needs the program lintian");
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Runs [`SCRIPT`] in a copy of a clean Debian, and another that is booted.
fn installs(first: &Path, second: &Path, summary: &mut Summary) -> io::Result<bool> {
    let Some(base) = clean_debian()? else {
        let needs = "needs root, debootstrap and a mirror of Debian";
        summary.skip("deb, in a clean Debian", needs);
        return Ok(true);
    };
    let copy = target().join("deb/root");
    remove(&copy)?;
    run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(&base).arg(&copy))?;
    for (from, to) in [(first, "first.deb"), (second, "second.deb")] {
        fs::copy(from, copy.join(to))?;
    }
    let inside =
        format!("mount -t proc proc \"$0/proc\" && exec chroot \"$0\" sh -c {}", quoted(SCRIPT));
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--net", "sh", "-c"]);
    command.arg(format!("ip link set lo up; {inside}")).arg(&copy);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let said = child.stdout.take().map(BufReader::new);
    for line in said.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        println!("{line}");
        summary.note(&line);
    }
    let passed = child.wait()?.success();
    remove(&copy)?;
    Ok(passed & boots(&base, [first, second], summary)?)
}

/// A clean Debian, made once; `None` where none can be made.
fn clean_debian() -> io::Result<Option<PathBuf>> {
    let base = target().join("deb/debian");
    if COMPLETE.iter().all(|program| base.join(program).exists()) {
        return Ok(Some(base));
    }
    remove(&base)?;
    let part = target().join("deb/debian.part");
    remove(&part)?;
    println!("== deb-check: making a clean Debian by debootstrap");
    let included = format!("--include={INCLUDED}");
    let mut command = Command::new("debootstrap");
    let made = output(command.args(["--variant=minbase", &included, SUITE]).arg(&part));
    if let Err(error) = made {
        println!("== deb-check: {error}");
        remove(&part)?;
        return Ok(None);
    }
    fs::rename(&part, &base)?;
    Ok(Some(base))
}

pub(super) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_word() {
        let word = quoted("it's $HOME");
        let said = Command::new("sh").args(["-c", &format!("printf %s {word}")]).output().unwrap();
        assert_eq!(said.stdout, b"it's $HOME");
    }
}
