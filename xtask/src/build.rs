//! Builds a program for a package: the same sources give the same octets, wherever and whenever.
//!
//! Paths of this machine are replaced in what the compilers write: the repository's, the one of
//! cargo's packages, and the one of the build. Such programs have a folder of their own below
//! `target`, so that they and what is built without these options do not displace each other.

use crate::{root, step::CommandStep};
use std::{
    env, io,
    path::{Path, PathBuf},
    process::Command,
};

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
    /// If it does not compile.
    pub(crate) fn run(self) -> io::Result<PathBuf> {
        let Self { package, profile, is_static } = self;
        let folder = target().join(if is_static { "static" } else { "package" });
        let host = host()?;
        let shown = folder.display().to_string();
        let cargo = ["build", "--locked", "--package", package, "--profile", profile];
        let place = ["--target-dir", shown.as_str(), "--target", host.as_str()];
        let mut flags = remapped("--remap-path-prefix=", &folder);
        if is_static {
            // Of glibc: its allocator serves several threads at once, musl's one at a time.
            flags.push("-Ctarget-feature=+crt-static".to_owned());
        }
        let step = CommandStep::cargo("build", &[&cargo[..], &place[..]].concat())
            .environment("CARGO_ENCODED_RUSTFLAGS", &flags.join("\u{1f}"))
            .environment("CFLAGS", &remapped("-ffile-prefix-map=", &folder).join(" "))
            // Nothing of a build with other paths is taken over.
            .environment("CARGO_INCREMENTAL", "0");
        if !step.run() {
            return Err(io::Error::other(format!("{package} was not built")));
        }
        let profile = if profile == "dev" { "debug" } else { profile };
        Ok(folder.join(host).join(profile).join(package))
    }
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
