//! What the kernel offers to links, tried without opening one, for an operator who asks.

use crate::bpf::{DROP_ALL, ProgramType, load};
use crate::interface::Interface;
use crate::socket;
use std::io;

/// The result of each attempt; an error is the system's own.
#[derive(Debug)]
pub struct LinkFacilities {
    /// To open a packet socket.
    pub packet_socket: io::Result<()>,
    /// To open an AF_XDP socket.
    pub xdp_socket: io::Result<()>,
    /// To load an XDP program.
    pub xdp_program: io::Result<()>,
}

impl LinkFacilities {
    /// Tries all; nothing is attached to an interface, and nothing stays.
    pub fn probe() -> Self {
        let opens = |family| socket::open(family, libc::SOCK_RAW, 0).map(drop);
        Self {
            packet_socket: opens(libc::AF_PACKET),
            xdp_socket: opens(libc::AF_XDP),
            xdp_program: load(ProgramType::Xdp, "gw_probe", &DROP_ALL, 0).map(drop),
        }
    }
}

/// The driver of an interface and what it has beside [`InterfaceProperties`](crate::InterfaceProperties).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InterfaceDriver {
    /// Name of its driver, empty if it reports none.
    pub name: String,
    /// Receive queues in use.
    pub receive_queues: u32,
}

impl InterfaceDriver {
    /// The driver of the interface `name`.
    ///
    /// # Errors
    ///
    /// The system's error: `ENODEV` if there is no such interface.
    pub fn of(name: &str) -> io::Result<Self> {
        let interface = Interface::find(name)?;
        Ok(Self { name: interface.driver(), receive_queues: interface.receive_queues() })
    }
}
