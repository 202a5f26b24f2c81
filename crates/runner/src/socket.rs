//! Makes sockets for roles.

use gatewright_edge::GROUP_HOPS;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

/// Pending connections that the kernel keeps until they are accepted; it takes the lesser of this
/// and `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;

/// Fails if another process has the address already.
///
/// Sockets that share an address (`SO_REUSEPORT`) would share it with another process of the same
/// user as well: a gateway started twice would get every other connection.
pub(crate) fn alone(address: SocketAddr, kind: Type) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    // Connections of a listener that has ended are no listener.
    socket.set_reuse_address(kind == Type::STREAM)?;
    socket.bind(&address.into())
}

/// A listener without Nagle delay, beside those of other loops.
pub(crate) fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // What is accepted inherits it.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A server's datagram socket.
pub(crate) fn server(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// A client's datagram socket for peers of this address family, at a port that the kernel chooses.
pub(crate) fn client(peer: SocketAddr) -> io::Result<UdpSocket> {
    let (any, domain) = match peer {
        SocketAddr::V4(_) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), Domain::IPV4),
        SocketAddr::V6(_) => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), Domain::IPV6),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::new(any, 0).into())?;
    hops(&socket, peer)?;
    Ok(socket.into())
}

/// A server's datagram socket that receives a group on every capable interface. It also receives
/// datagrams to this machine's own addresses at the same port.
pub(crate) fn member(group: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    // Other programs of this machine may hear the group, too.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    let any = match group {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => {
            socket.set_only_v6(true)?;
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        }
    };
    // Otherwise groups that others have joined would be heard as well.
    if group.is_ipv4() {
        socket.set_multicast_all_v4(false)?;
    } else {
        socket.set_multicast_all_v6(false)?;
    }
    socket.bind(&SocketAddr::new(any, group.port()).into())?;
    join(&socket, group.ip())?;
    hops(&socket, group)?;
    Ok(socket.into())
}

fn hops(socket: &Socket, peer: SocketAddr) -> io::Result<()> {
    match peer {
        SocketAddr::V4(_) => socket.set_multicast_ttl_v4(GROUP_HOPS.into()),
        SocketAddr::V6(_) => socket.set_multicast_hops_v6(GROUP_HOPS.into()),
    }
}

/// Joins the group on each interface that is up and supports groups; at least one must succeed.
fn join(socket: &Socket, group: IpAddr) -> io::Result<()> {
    let mut last = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    for interface in getifaddrs()? {
        let wanted = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_MULTICAST;
        let loopback = interface.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        let able = interface.flags.contains(wanted)
            || (loopback && interface.flags.contains(InterfaceFlags::IFF_UP));
        let Some(address) = interface.address.filter(|_| able) else { continue };
        let joined = match group {
            IpAddr::V4(group) => {
                let Some(local) = address.as_sockaddr_in() else { continue };
                socket.join_multicast_v4(&group, &local.ip())
            }
            IpAddr::V6(group) => {
                if address.as_sockaddr_in6().is_none() {
                    continue;
                }
                let index = nix::net::if_::if_nametoindex(interface.interface_name.as_str())?;
                socket.join_multicast_v6(&group, index)
            }
        };
        match joined {
            // A second address of an interface that has joined already.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Ok(()) => last = Ok(()),
            Err(error) => last = last.or(Err(error)),
        }
    }
    last
}
