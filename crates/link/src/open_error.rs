//! Why a link cannot be opened, with the exit code of a program that ends for it.

use crate::exclusive::NotSilenced;
use crate::xdp;
use std::{cmp::Reverse, fs, io};

/// Why a link cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The interface does not exist.
    #[error("there is no interface {name}{}", in_words(.others))]
    NoDevice {
        /// Its name.
        name: String,
        /// The interfaces that exist, those with the most similar names first.
        others: Vec<String>,
    },
    /// The process lacks a permission.
    #[error("no permission to {action} on {name}, which needs {capability}")]
    Permission {
        /// The interface.
        name: String,
        /// The attempted action.
        action: &'static str,
        /// The capability that permits it.
        capability: &'static str,
    },
    /// The interface's frames do not begin with an Ethernet header.
    #[error("{name} is not an Ethernet interface")]
    NotEthernet {
        /// The interface.
        name: String,
    },
    /// The slab's packets are too small for the interface's frames.
    #[error(
        "{name} has frames of {needed} octets (MTU {mtu}), but a packet of the slab holds {found}"
    )]
    Chunk {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: usize,
        /// Maximum octets of its frames.
        needed: usize,
        /// Maximum octets of a packet.
        found: usize,
    },
    /// The requested mode is impossible on this link.
    #[error("{name}: {reason}")]
    Unsupported {
        /// The interface.
        name: String,
        /// Why, in words for the operator.
        reason: String,
    },
    /// The link was to be exclusive, but the kernel's stack would answer or forward received
    /// frames.
    #[error("{name} cannot be exclusive: the kernel would answer there, as {reason}; {how}")]
    Audible {
        /// The interface.
        name: String,
        /// Why the kernel is not silent by itself.
        reason: String,
        /// Why it cannot be cut off.
        how: String,
        /// Whether only a permission is missing.
        is_permission: bool,
    },
    /// The link was to be exclusive, but another process has it.
    #[error(
        "{name} cannot be exclusive: {by} is the host there; end that one first, or take another \
         interface"
    )]
    Claimed {
        /// The interface.
        name: String,
        /// The other process, in words.
        by: String,
    },
    /// A capture file cannot be opened.
    #[error("cannot {action} {file}: {source}")]
    File {
        /// Its path.
        file: String,
        /// The attempted action.
        action: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is no capture that the link can read.
    #[error("{file}: {reason}")]
    Capture {
        /// Its path.
        file: String,
        /// Why, in words for the operator.
        reason: String,
    },
    /// The kernel refused.
    #[error("cannot {action} on {name}: {source}")]
    System {
        /// The interface.
        name: String,
        /// The attempted action.
        action: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// The exit code of a program that ends for this: 77 for a missing permission, 78 for a file
    /// that is no capture, 69 for a missing or unfit device (`sysexits.h`).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Permission { .. } | Self::Audible { is_permission: true, .. } => 77,
            Self::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 77,
            Self::Capture { .. } => 78,
            _ => 69,
        }
    }

    pub(crate) fn of_xdp(name: &str, driver: &str, failed: xdp::Failed) -> Self {
        if failed.is_mtu(driver) {
            let reason = failed.explain(driver);
            return Self::Unsupported { name: name.to_owned(), reason };
        }
        Self::system(name, failed.action, "CAP_BPF and CAP_NET_ADMIN", failed.source)
    }

    pub(crate) fn audible(name: &str, NotSilenced { source, reason }: &NotSilenced) -> Self {
        let is_permission = source.kind() == io::ErrorKind::PermissionDenied;
        let how = if is_permission {
            "CAP_NET_ADMIN is needed to prevent that (and CAP_BPF without nftables)".to_owned()
        } else {
            format!("it cannot be cut off (Linux 5.12 with nftables or 6.6 can): {source}")
        };
        Self::Audible { name: name.to_owned(), reason: reason.clone(), how, is_permission }
    }

    pub(crate) fn system(
        name: &str,
        action: &'static str,
        capability: &'static str,
        source: io::Error,
    ) -> Self {
        let name = name.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission { name, action, capability },
            Some(libc::ENODEV | libc::ENXIO) => {
                let others = others(&name);
                Self::NoDevice { name, others }
            }
            _ => Self::System { name, action, source },
        }
    }
}

/// Maximum interfaces that an error names.
const OTHERS_MAX: usize = 8;

/// The interfaces of this network namespace, those whose names begin as `name` does first.
fn others(name: &str) -> Vec<String> {
    // The list is only a help: without it the error says the same.
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let names = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    let mut names: Vec<String> = names.filter(|name| name != "lo").collect();
    let alike = |other: &str| name.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    names.sort_by_key(|other| (Reverse(alike(other)), other.clone()));
    names
}

fn in_words(others: &[String]) -> String {
    let some = others.get(..OTHERS_MAX).unwrap_or(others).join(", ");
    match others.len() {
        0 => String::new(),
        count if count > OTHERS_MAX => {
            format!("; there are {some} and {} more", count - OTHERS_MAX)
        }
        _ => format!("; there are: {some}"),
    }
}
