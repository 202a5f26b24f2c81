//! The sockets that a program needs: one for each role that is not a TCP client.

use crate::runner::RunnerError;
use crate::{resolver, socket};
use gatewright_lang::ir::{Cast, RoleId, Side, Transport};
use gatewright_translate::machine::{Endpoint, Machine, Target};
use socket2::Type;
use std::net::{SocketAddr, TcpListener, UdpSocket};

/// The address that a role listens on or sends from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// Accepts connections at this address.
    Listen(SocketAddr),
    /// Receives datagrams at this address.
    Serve(SocketAddr),
    /// Receives datagrams for this group.
    Group(SocketAddr),
    /// Sends datagrams from a port that the kernel chooses.
    Ask(SocketAddr),
}

/// A socket made for a place.
#[derive(Debug)]
pub(crate) enum Made {
    Listener(TcpListener),
    Datagrams(UdpSocket),
    /// The program being replaced has the socket.
    Inherited,
    /// Another loop receives the group's datagrams.
    Elsewhere,
}

/// A role of a program with its place.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) endpoint: Endpoint,
    pub(crate) place: Place,
}

/// A role's place, and its socket in one loop.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) role: RoleId,
    pub(crate) place: Place,
    pub(crate) made: Made,
}

/// A machine with its sockets, ready for a loop.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) machine: Machine,
    pub(crate) seats: Vec<Seat>,
}

/// The sites of a machine's roles.
pub(crate) fn sites(machine: &Machine) -> Result<Vec<Site>, RunnerError> {
    let wanted = |endpoint: &&Endpoint| {
        !(endpoint.side == Side::Client && endpoint.transport == Transport::Tcp)
    };
    let site = |endpoint: &Endpoint| {
        let place = match (endpoint.transport, endpoint.side, endpoint.cast) {
            (Transport::Tcp, ..) => Place::Listen(address(endpoint)?),
            (Transport::Udp, Side::Server, Cast::Multicast) => Place::Group(address(endpoint)?),
            (Transport::Udp, Side::Server, Cast::Unicast) => Place::Serve(address(endpoint)?),
            // A peer that has no address yet says nothing of its family, and may be found later.
            (Transport::Udp, Side::Client, _) => {
                Place::Ask(address(endpoint).unwrap_or(SocketAddr::from(([0; 4], 0))))
            }
        };
        Ok(Site { endpoint: endpoint.clone(), place })
    };
    machine.endpoints().iter().filter(wanted).map(site).collect()
}

/// The address of an endpoint. A name is resolved now, before anything runs. For a datagram client,
/// the result only gives the socket's address family; the machine resolves the name again.
fn address(endpoint: &Endpoint) -> Result<SocketAddr, RunnerError> {
    let found = match &endpoint.address {
        Target::Address(address) => Some(*address),
        Target::Name(name, port) => resolver::resolve(name, *port),
    };
    found.ok_or_else(|| RunnerError::NoAddress {
        role: endpoint.name.clone(),
        address: endpoint.address.to_string(),
    })
}

/// Makes a socket for a site; a port that the kernel chooses becomes part of the place.
pub(crate) fn seat(site: &mut Site, first: bool) -> Result<Made, RunnerError> {
    let Site { endpoint, place } = site;
    let kind = match place {
        Place::Listen(address) => Some((*address, Type::STREAM)),
        Place::Serve(address) => Some((*address, Type::DGRAM)),
        Place::Group(_) | Place::Ask(_) => None,
    };
    let alone = kind.filter(|_| first).map_or(Ok(()), |(at, kind)| socket::alone(at, kind));
    let made = alone.and_then(|()| match place {
        Place::Listen(address) => socket::listener(*address).and_then(|listener| {
            *address = listener.local_addr()?;
            Ok(Made::Listener(listener))
        }),
        Place::Serve(address) => socket::server(*address).and_then(|socket| {
            *address = socket.local_addr()?;
            Ok(Made::Datagrams(socket))
        }),
        Place::Group(_) if !first => Ok(Made::Elsewhere),
        Place::Group(group) => socket::member(*group).map(Made::Datagrams),
        Place::Ask(peer) => socket::client(*peer).map(Made::Datagrams),
    });
    made.map_err(|source| RunnerError::Listen {
        role: endpoint.name.clone(),
        address: endpoint.address.to_string(),
        source,
    })
}
