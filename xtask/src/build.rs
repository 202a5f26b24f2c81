//! Builds a program for a package: the same sources give the same octets, wherever and whenever.
//!
//! Paths of this machine are replaced in what the compilers write: the repository's, the one of
//! cargo's packages, and the one of the build. Such programs have a folder of their own below
//! `target`, so that they and what is built without these options do not displace each other.
//!
//! cargo-auditable puts the names and versions of all dependencies into the program, in the section
//! `.dep-v0`, from which `cargo audit bin` and scanners of images read them.

use crate::{root, step::CommandStep};
use std::{
    env, io,
    path::{Path, PathBuf},
    process::Command,
};

/// The version of cargo-auditable, which is installed below `target`.
const AUDITABLE: &str = "0.7.7";

/// What to build, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Build<'a> {
    /// The package, which is the program's name.
    pub(crate) package: &'a str,
    /// The profile of cargo.
    pub(crate) profile: &'a str,
    /// Whether the program loads no library.
    pub(crate) is_static: bool,
}

impl Build<'_> {
    /// Builds the program; returns its file.
    ///
    /// # Errors
    ///
    /// If it does not compile, or has no list of its dependencies.
    pub(crate) fn run(self) -> io::Result<PathBuf> {
        let Self { package, profile, is_static } = self;
        let folder = target().join(if is_static { "static" } else { "package" });
        let host = host()?;
        let shown = folder.display().to_string();
        let path = with_auditable()?;
        let cargo = ["auditable", "build", "--locked", "--package", package, "--profile", profile];
        let place = ["--target-dir", shown.as_str(), "--target", host.as_str()];
        let mut flags = remapped("--remap-path-prefix=", &folder);
        if is_static {
            // Of glibc: its allocator serves several threads at once, musl's one at a time.
            flags.push("-Ctarget-feature=+crt-static".to_owned());
        }
        let step = CommandStep::cargo("build", &[&cargo[..], &place[..]].concat())
            .environment("CARGO_ENCODED_RUSTFLAGS", &flags.join("\u{1f}"))
            .environment("CFLAGS", &remapped("-ffile-prefix-map=", &folder).join(" "))
            .environment("PATH", &path)
            // Nothing of a build with other paths is taken over.
            .environment("CARGO_INCREMENTAL", "0");
        if !step.run() {
            return Err(io::Error::other(format!("{package} was not built")));
        }
        let profile = if profile == "dev" { "debug" } else { profile };
        let program = folder.join(host).join(profile).join(package);
        let sections =
            Command::new("readelf").args(["--sections", "--wide"]).arg(&program).output()?;
        if !String::from_utf8_lossy(&sections.stdout).contains(" .dep-v0 ") {
            let problem = format!("{} has no list of its dependencies", program.display());
            return Err(io::Error::other(problem));
        }
        Ok(program)
    }
}

/// Installs cargo-auditable, unless it is there; returns the search path with it.
fn with_auditable() -> io::Result<String> {
    let folder = target().join("tools").join(format!("auditable-{AUDITABLE}"));
    let programs = folder.join("bin");
    if !programs.join("cargo-auditable").exists() {
        let into = folder.display().to_string();
        let install =
            ["install", "--locked", "--quiet", "--root", into.as_str(), "--version", AUDITABLE];
        if !CommandStep::cargo("build", &[&install[..], &["cargo-auditable"]].concat()).run() {
            return Err(io::Error::other(format!("cargo-auditable {AUDITABLE} was not installed")));
        }
    }
    let before = env::var_os("PATH").unwrap_or_default();
    let all = env::join_paths([programs].into_iter().chain(env::split_paths(&before)));
    let all = all.map_err(io::Error::other)?;
    Ok(all.to_string_lossy().into_owned())
}

/// Options of a compiler that replace the paths of this machine.
fn remapped(option: &str, folder: &Path) -> Vec<String> {
    let replaced = |path: PathBuf, by: &str| format!("{option}{}={by}", path.display());
    // Of several that fit, the last one is taken.
    vec![
        replaced(cargo_home(), "/cargo"),
        replaced(root(), "/gatewright"),
        replaced(folder.to_owned(), "/build"),
    ]
}

/// Where cargo keeps the sources of packages.
fn cargo_home() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo");
    env::var_os("CARGO_HOME").map_or_else(home, PathBuf::from)
}

/// The target of this machine, as rustc names it.
fn host() -> io::Result<String> {
    let output = Command::new("rustc").arg("-vV").current_dir(root()).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| io::Error::other("rustc does not say its host"))
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
