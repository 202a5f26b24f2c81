//! Which capture file a path means: one that is written has no second user, by whatever name.

use crate::error::RunError;
use gatewright_config::{Config, Device, Link};
use gatewright_link::OpenError;
use std::{ffi::OsString, fs, os::unix::fs::MetadataExt, path::Path};

/// Refuses a link that writes a file which it reads, or which another link reads or writes (GW0179
/// for files of one spelling).
pub(crate) fn check_written(link: &Link, config: &Config) -> Result<(), RunError> {
    let Device::Pcapng { read, write: Some(write), .. } = &link.device else { return Ok(()) };
    let others = config.links.iter().filter(|other| other.name.value != link.name.value);
    let files = others.flat_map(|other| match &other.device {
        Device::Pcapng { read, write, .. } => [read.as_ref(), write.as_ref()],
        _ => [None, None],
    });
    let mut files = files.flatten().chain(read).map(|file| file.value.as_str());
    let Some(written) = FileIdentity::of(&write.value) else { return Ok(()) };
    let Some(same) = files.find(|file| FileIdentity::of(file).as_ref() == Some(&written)) else {
        return Ok(());
    };
    let reason = format!("it is written, and not by one link alone: `{same}` is the same file");
    Err(RunError::of_link(link, OpenError::Capture { file: write.value.clone(), reason }))
}

/// The identity of a file.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum FileIdentity {
    /// The device and inode of a file that exists.
    Inode(u64, u64),
    /// The device and inode of the folder of a file that does not exist yet, and its name there.
    New(u64, u64, OsString),
}

impl FileIdentity {
    /// The identity of the file at `path`; `None` for what is no regular file, which several may
    /// write, and for a path without a folder.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let path = Path::new(path);
        if let Ok(file) = fs::metadata(path) {
            return file.is_file().then(|| Self::Inode(file.dev(), file.ino()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::metadata(folder.unwrap_or(Path::new("."))).ok()?;
        Some(Self::New(folder.dev(), folder.ino(), path.file_name()?.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_whatever_name() {
        let folder = std::env::temp_dir().join(format!("gw-capture-paths-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let of = |name: &str| FileIdentity::of(folder.join(name).to_str().unwrap());
        let new = of("new.pcap");
        assert!(new.is_some());
        assert_eq!(new, of("./new.pcap"));
        assert_ne!(new, of("other.pcap"));
        fs::write(folder.join("ok.pcap"), "").unwrap();
        std::os::unix::fs::symlink("ok.pcap", folder.join("l.pcap")).unwrap();
        fs::hard_link(folder.join("ok.pcap"), folder.join("h.pcap")).unwrap();
        assert_eq!(of("ok.pcap"), of("l.pcap"));
        assert_eq!(of("ok.pcap"), of("h.pcap"));
        assert_eq!(FileIdentity::of("/dev/null"), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
