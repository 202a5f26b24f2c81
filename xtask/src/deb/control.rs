//! What a package says of itself: `control`, `conffiles`, `md5sums`, and Debian's changelog.

use super::{CONFFILES, output, write};
use crate::root;
use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
    process::Command,
};

/// Who maintains the package (`maintainer` of deb-control(5)).
const MAINTAINER: &str = "Gatewright developers <gatewright@gatewright.invalid>";

/// What describes the package: a line, and the text below it.
const DESCRIPTION: &str = "builds, runs and measures IoT gateways
 Gatewright turns a small machine into an IoT gateway: frames, packets and
 messages come in on one side and leave on the other, forwarded, relayed or
 translated, at any layer. One file describes the gateway.
 .
 It has an IP stack in user space whose layers take handlers, a language for
 gateways between protocols, a oneM2M service entity for health devices of
 IEEE 11073, a label-switched mesh, and a laboratory that measures delays.";

/// The revision of the package, its program, and when it was made.
#[derive(Clone, Debug)]
pub(super) struct Control {
    version: String,
    architecture: String,
    depends: String,
    /// Time of the last commit, in seconds since 1970.
    epoch: u64,
    /// The same as RFC 5322 has it.
    date: String,
}

impl Control {
    /// The package of `program` as it is built here.
    pub(super) fn of(program: &Path, revision: u32) -> io::Result<Self> {
        let text = |command: &mut Command| -> io::Result<String> {
            Ok(String::from_utf8_lossy(&output(command)?).trim().to_owned())
        };
        let epoch = epoch()?;
        let is_wrong = |_| io::Error::new(ErrorKind::InvalidData, "the time of the last commit");
        let date = text(Command::new("date").args(["-u", "-R", "-d", &format!("@{epoch}")]))?;
        Ok(Self {
            version: format!("{}-{revision}", env!("CARGO_PKG_VERSION")),
            architecture: text(Command::new("dpkg").arg("--print-architecture"))?,
            depends: depends(&fs::read(program)?),
            epoch: epoch.parse().map_err(is_wrong)?,
            date,
        })
    }

    /// The name of the package's file.
    pub(super) fn file_name(&self) -> String {
        format!("gatewright_{}_{}.deb", self.version, self.architecture)
    }

    /// The time of its files, in seconds since 1970.
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Debian's changelog.
    pub(super) fn changelog(&self) -> String {
        let Self { version, date, .. } = self;
        format!(
            "gatewright ({version}) unstable; urgency=medium\n\n  * Made from the sources of this \
             version; changelog.gz says what is new.\n\n -- {MAINTAINER}  {date}\n"
        )
    }

    /// Writes the files about the tree into `metadata`.
    pub(super) fn write(&self, tree: &Path, metadata: &Path) -> io::Result<()> {
        let mut files = Vec::new();
        list(tree, tree, &mut files)?;
        files.sort();
        let conffiles = CONFFILES.map(|file| format!("/{file}\n")).concat();
        write(&metadata.join("conffiles"), conffiles.as_bytes())?;
        let octets = files.iter().map(|(_, len)| len.div_ceil(1024)).sum::<u64>();
        write(&metadata.join("control"), self.text(octets).as_bytes())?;
        let hashed =
            files.iter().map(|(name, _)| name).filter(|name| !CONFFILES.contains(&name.as_str()));
        let sums = output(Command::new("md5sum").current_dir(tree).args(hashed))?;
        write(&metadata.join("md5sums"), &sums)
    }

    fn text(&self, installed_kib: u64) -> String {
        let Self { version, architecture, depends, .. } = self;
        format!(
            "Package: gatewright\nVersion: {version}\nSection: net\nPriority: optional\n\
             Architecture: {architecture}\nMaintainer: {MAINTAINER}\n\
             Installed-Size: {installed_kib}\nDepends: {depends}\n\
             Recommends: curl, iproute2, iputils-ping\nSuggests: traceroute, wireshark\n\
             Description: {DESCRIPTION}\n"
        )
    }
}

/// The time of the last commit, in seconds since 1970; `SOURCE_DATE_EPOCH` if it is set
/// (reproducible-builds.org).
pub(crate) fn epoch() -> io::Result<String> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    let log = output(Command::new("git").current_dir(root()).args(["log", "-1", "--format=%ct"]))?;
    Ok(String::from_utf8_lossy(&log).trim().to_owned())
}

/// Packages that a program needs: the C library, of the highest version whose symbols it names, and
/// what makes its user at the installation.
fn depends(program: &[u8]) -> String {
    const SYMBOLS: &[u8] = b"GLIBC_2.";
    // Relative relocations are packed, which loaders know from this version on.
    const PACKED: (&[u8], u32) = (b"GLIBC_ABI_DT_RELR", 36);
    let named = program.windows(SYMBOLS.len() + 3).filter_map(|window| {
        let digits = window.strip_prefix(SYMBOLS)?;
        let len = digits.iter().take_while(|octet| octet.is_ascii_digit()).count();
        std::str::from_utf8(digits.get(..len)?).ok()?.parse::<u32>().ok()
    });
    let is_packed = program.windows(PACKED.0.len()).any(|window| window == PACKED.0);
    let minor = named.chain(is_packed.then_some(PACKED.1)).max().unwrap_or_default();
    format!(
        "libc6 (>= 2.{minor}), libgcc-s1 (>= 4.2), passwd, \
         systemd | systemd-standalone-sysusers | systemd-sysusers"
    )
}

/// Files below `folder`, relative to `tree`, with their sizes.
fn list(tree: &Path, folder: &Path, files: &mut Vec<(String, u64)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            list(tree, &path, files)?;
        } else if let Ok(name) = path.strip_prefix(tree) {
            files.push((name.display().to_string(), entry.metadata()?.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_of_symbols_is_needed() {
        let program = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0";
        assert!(depends(program).starts_with("libc6 (>= 2.34), "), "{}", depends(program));
        let packed = b"\0GLIBC_2.34\0GLIBC_ABI_DT_RELR\0GLIBC_2.2.5\0";
        assert!(depends(packed).starts_with("libc6 (>= 2.36), "));
    }
}
