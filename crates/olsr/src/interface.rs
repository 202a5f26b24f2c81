//! Interfaces of the kernel, and the sockets on them.

use gatewright_mesh::olsr::message::OLSR_PORT;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

/// An interface that a router takes part on.
#[derive(Debug)]
pub(crate) struct RouterInterface {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) address: Ipv4Addr,
    pub(crate) socket: UdpSocket,
    /// Whether it carries packets.
    pub(crate) up: bool,
}

impl RouterInterface {
    /// Opens the interface with its first IPv4 address; `Ok(None)` if it has none. The loopback
    /// interface is refused: nobody is heard there.
    pub(crate) fn open(name: &str) -> io::Result<Option<Self>> {
        let index = if_nametoindex(name)?;
        let loopback = |its: &InterfaceAddress| {
            its.interface_name == name && its.flags.contains(InterfaceFlags::IFF_LOOPBACK)
        };
        if getifaddrs()?.any(|its| loopback(&its)) {
            let words = "it is the loopback interface, where no other router can be";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        }
        let Some((address, up)) = state(name)? else { return Ok(None) };
        let socket = socket(name)?;
        Ok(Some(Self { name: name.to_owned(), index, address, socket, up }))
    }

    /// Whether it carries packets now; one that has gone does not.
    pub(crate) fn is_up(&self) -> bool {
        state(&self.name).is_ok_and(|state| state.is_some_and(|(_, up)| up))
    }

    /// Sends a packet to all neighbours.
    pub(crate) fn broadcast(&self, octets: &[u8]) -> io::Result<()> {
        let all = SocketAddrV4::new(Ipv4Addr::BROADCAST, OLSR_PORT);
        self.socket.send_to(octets, all).map(|_| ())
    }
}

/// The first IPv4 address of an interface, and whether it carries packets.
fn state(name: &str) -> io::Result<Option<(Ipv4Addr, bool)>> {
    let running = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let mut of_name = getifaddrs()?.filter(|its| its.interface_name == name);
    Ok(of_name.find_map(|its| {
        let address = its.address?.as_sockaddr_in()?.ip();
        Some((address, its.flags.contains(running)))
    }))
}

/// A socket at port 698 that sends and receives on one interface alone.
fn socket(name: &str) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_broadcast(true)?;
    socket.set_nonblocking(true)?;
    // RFC 3626 §3.4: messages go on by flooding; a packet never does.
    socket.set_ttl_v4(1)?;
    socket.bind_device(Some(name.as_bytes()))?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, OLSR_PORT).into())?;
    Ok(socket.into())
}
