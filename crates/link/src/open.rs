//! From a description of a link to the link, and to the reason for its mode.

use crate::exclusive::KernelSilenced;
use crate::interface::Interface;
use crate::packet_socket::{Options, PacketSocket};
use crate::{Exclusive, Framing, Link, LinkInfo, Mode};
use gatewright_packet::{LinkIndex, Pool};
use std::io;
use std::rc::Rc;

/// Slots of a packet socket's receive ring, unless configured: 2 MiB of the smallest.
const RING_SLOTS: usize = 1024;

/// Octets of an Ethernet header with two tags.
const HEADER_LEN_MAX: usize = 22;

/// How frames are to be exchanged with an interface.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Backend {
    /// The fastest that works; the link says which one that is, and why.
    #[default]
    Auto,
    /// A packet socket.
    PacketSocket,
}

/// An interface of the kernel that is to be opened as a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LinkConfig {
    /// Its index in the gateway, stamped on what it receives.
    pub index: LinkIndex,
    /// The name of the interface.
    pub interface: String,
    /// How frames are to be exchanged with it.
    pub backend: Backend,
    /// The link is ours alone: the kernel's stack sees nothing of what arrives. Opening fails where
    /// that cannot be had.
    pub exclusive: bool,
    /// Frames for other hosts are received, too.
    pub promiscuous: bool,
    /// Frames that the kernel keeps for us until we take them.
    pub ring_slots: usize,
}

impl LinkConfig {
    /// The interface `name` as link `index`: automatic, exclusive, and not promiscuous.
    pub fn new(index: LinkIndex, name: &str) -> Self {
        Self {
            index,
            interface: name.to_owned(),
            backend: Backend::Auto,
            exclusive: true,
            promiscuous: false,
            ring_slots: RING_SLOTS,
        }
    }
}

/// Why a link cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The interface is not there.
    #[error("there is no interface {name}")]
    NoDevice {
        /// Its name.
        name: String,
    },
    /// The process may not do what is needed.
    #[error("no permission to {action} on {name}: {capability} is needed")]
    Permission {
        /// The interface.
        name: String,
        /// What was tried.
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
        /// Octets of its frames at the most.
        needed: usize,
        /// Octets of a packet at the most.
        found: usize,
    },
    /// The kernel refused.
    #[error("cannot {action} on {name}: {source}")]
    System {
        /// The interface.
        name: String,
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// The exit code of a program that ends for this: 77 for a missing permission, 69 for a missing
    /// or unfit device (`sysexits.h`).
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Permission { .. } => 77,
            _ => 69,
        }
    }

    fn system(
        name: &str,
        action: &'static str,
        capability: &'static str,
        source: io::Error,
    ) -> Self {
        let name = name.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission { name, action, capability },
            Some(libc::ENODEV | libc::ENXIO) => Self::NoDevice { name },
            _ => Self::System { name, action, source },
        }
    }
}

/// Opens an interface as a link whose packets are those of `pool`.
///
/// # Errors
///
/// [`OpenError`] names what is missing. A link opens whole or not at all: an exclusive one that
/// could not keep the kernel away is not opened.
pub fn open(config: &LinkConfig, pool: &Rc<Pool>) -> Result<Box<dyn Link>, OpenError> {
    let name = config.interface.as_str();
    let ask = |source| OpenError::system(name, "ask", "CAP_NET_ADMIN", source);
    let interface = Interface::find(name).map_err(ask)?;
    let mtu = interface.mtu().map_err(ask)?;
    let Some(mac) = interface.mac().map_err(ask)? else {
        return Err(OpenError::NotEthernet { name: name.to_owned() });
    };
    let (needed, found) = (mtu + HEADER_LEN_MAX, pool.packet_len_max());
    if needed > found {
        return Err(OpenError::Chunk { name: name.to_owned(), mtu, needed, found });
    }
    let info = LinkInfo {
        name: name.to_owned(),
        mode: Mode::PacketSocket,
        why: "as configured".to_owned(),
        framing: Framing::Ethernet,
        mac: Some(mac),
        mtu,
        partial_checksums: true,
        exclusive: Exclusive::Shared,
        driver: interface.driver(),
        kernel_index: interface.index,
    };
    open_packet_socket(config, info, interface, pool)
}

fn open_packet_socket(
    config: &LinkConfig,
    info: LinkInfo,
    interface: Interface,
    pool: &Rc<Pool>,
) -> Result<Box<dyn Link>, OpenError> {
    let name = config.interface.as_str();
    let (silenced, exclusive) = if config.exclusive {
        let silenced = KernelSilenced::new(interface.index).map_err(|source| {
            OpenError::system(name, "keep the kernel's stack away", "CAP_BPF", source)
        })?;
        (Some(silenced), Exclusive::Dropped)
    } else {
        (None, Exclusive::Shared)
    };
    let options =
        Options { index: config.index, promiscuous: config.promiscuous, slots: config.ring_slots };
    let info = LinkInfo { mode: Mode::PacketSocket, exclusive, ..info };
    let link = PacketSocket::open(info, interface, &options, silenced, Rc::clone(pool));
    let link = link
        .map_err(|source| OpenError::system(name, "open a packet socket", "CAP_NET_RAW", source))?;
    Ok(Box::new(link))
}
