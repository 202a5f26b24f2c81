//! A file system for a kernel to begin with: a cpio archive of the form `newc`
//! (`Documentation/driver-api/early-userspace/buffer-format.rst` of Linux).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::Command;

/// What a mode says besides the rights (`stat(2)`).
const FOLDER: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive that is being written.
pub(super) struct Archive {
    out: BufWriter<File>,
    len: usize,
    inode: u32,
    there: BTreeSet<String>,
}

impl Archive {
    /// Begins one, with Debian's merged folders: `/bin` is `/usr/bin`, and so on.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let out = BufWriter::new(File::create(path)?);
        let mut archive = Self { out, len: 0, inode: 1, there: BTreeSet::new() };
        for name in ["bin", "sbin", "lib", "lib64"] {
            archive.folder(&format!("usr/{name}"))?;
            archive.link(name, &format!("usr/{name}"))?;
        }
        Ok(archive)
    }

    /// A folder, with those above it.
    pub(super) fn folder(&mut self, name: &str) -> io::Result<()> {
        let name = merged(name);
        if name.is_empty() || self.there.contains(&name) {
            return Ok(());
        }
        self.above(&name)?;
        self.entry(&name, FOLDER | 0o755, &[])
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, name: &str, to: &str) -> io::Result<()> {
        self.above(name)?;
        self.entry(name, LINK | 0o777, to.as_bytes())
    }

    /// A file with this text.
    pub(super) fn text(&mut self, name: &str, text: &str, rights: u32) -> io::Result<()> {
        self.octets(name, text.as_bytes(), rights)
    }

    /// A file with these octets.
    pub(super) fn octets(&mut self, name: &str, octets: &[u8], rights: u32) -> io::Result<()> {
        self.above(name)?;
        self.entry(name, REGULAR | rights, octets)
    }

    /// A copy of `from`.
    pub(super) fn file(&mut self, name: &str, from: &Path, rights: u32) -> io::Result<()> {
        let name = merged(name);
        if self.there.contains(&name) {
            return Ok(());
        }
        self.above(&name)?;
        self.entry(&name, REGULAR | rights, &std::fs::read(from)?)
    }

    /// A program at its own path, with the libraries that it is linked with.
    pub(super) fn program(&mut self, path: &Path) -> io::Result<()> {
        self.file(&path.display().to_string(), path, 0o755)?;
        self.libraries(path)
    }

    /// As [`Self::program`], without what only a debugger reads; `scratch` is a folder for that.
    pub(super) fn stripped(&mut self, path: &Path, scratch: &Path) -> io::Result<()> {
        let bare = scratch.join("stripped");
        let strip = Command::new("strip").arg("-o").arg(&bare).arg(path).status();
        let is_bare = strip.is_ok_and(|status| status.success());
        self.file(&path.display().to_string(), if is_bare { &bare } else { path }, 0o755)?;
        self.libraries(path)
    }

    fn libraries(&mut self, program: &Path) -> io::Result<()> {
        // A program without any makes it fail.
        let told = Command::new("ldd").arg(program).output()?.stdout;
        let told = String::from_utf8_lossy(&told).into_owned();
        for library in told.split_whitespace().filter(|word| word.starts_with('/')) {
            if Path::new(library).is_file() {
                self.file(library, Path::new(library), 0o755)?;
            }
        }
        Ok(())
    }

    /// Writes the end.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush()
    }

    fn above(&mut self, name: &str) -> io::Result<()> {
        match name.trim_end_matches('/').rsplit_once('/') {
            Some((above, _)) => self.folder(above),
            None => Ok(()),
        }
    }

    fn entry(&mut self, name: &str, mode: u32, octets: &[u8]) -> io::Result<()> {
        let too_large = |_| io::Error::other(format!("{name} is too large for an archive"));
        let size = u32::try_from(octets.len()).map_err(too_large)?;
        let name_len = u32::try_from(name.len() + 1).map_err(too_large)?;
        // Inode, mode, owner, group, links, time, size, two devices, name's length, sum.
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_len, 0];
        self.inode += 1;
        self.put(b"070701")?;
        for field in fields {
            self.put(format!("{field:08x}").as_bytes())?;
        }
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad()?;
        self.put(octets)?;
        self.pad()?;
        self.there.insert(name.to_owned());
        Ok(())
    }

    fn put(&mut self, octets: &[u8]) -> io::Result<()> {
        self.len += octets.len();
        self.out.write_all(octets)
    }

    /// Headers and contents begin at multiples of four octets.
    fn pad(&mut self) -> io::Result<()> {
        while !self.len.is_multiple_of(4) {
            self.put(&[0])?;
        }
        Ok(())
    }
}

/// A path as the archive has it: without the first `/`, and in the merged folders.
fn merged(path: &str) -> String {
    let path = path.trim_matches('/');
    let first = path.split('/').next().unwrap_or_default();
    let is_merged = ["bin", "sbin", "lib", "lib64"].contains(&first) && path.contains('/');
    if is_merged { format!("usr/{path}") } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read back by another hand: `cpio` of busybox.
    #[test]
    fn an_archive_is_read_by_busybox() {
        let folder =
            std::env::temp_dir().join(format!("gatewright-archive-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a");
        let mut archive = Archive::create(&path).unwrap();
        archive.text("etc/deep/file", "text", 0o644).unwrap();
        archive.file("/lib/x/self", &path, 0o755).unwrap();
        archive.finish().unwrap();
        let list = Command::new("busybox").args(["cpio", "-t", "-F"]).arg(&path).output();
        std::fs::remove_dir_all(&folder).unwrap();
        let list = list.expect("busybox, which `cargo xtask setup` installs");
        let names = String::from_utf8_lossy(&list.stdout).into_owned();
        for name in ["usr/lib64", "etc/deep", "etc/deep/file", "usr/lib/x/self"] {
            assert!(names.lines().any(|line| line == name), "{name}: {names}");
        }
    }
}
