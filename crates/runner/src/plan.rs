//! The sockets that a program needs: one for each role that is not a TCP client.

use crate::error::RunnerError;
use gatewright_edge::{Bind, Datagrams, Domain, Listener, Network, Poller, Sharing};
use gatewright_lang::ir::{Cast, RoleId, Side, Transport};
use gatewright_translate::machine::{Endpoint, Machine, RoleTarget};
use std::net::SocketAddr;

/// The address that a role listens on or sends from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum RoleAddress {
    /// Accepts connections at this address.
    Listen(SocketAddr),
    /// Receives datagrams at this address.
    Serve(SocketAddr),
    /// Receives datagrams for this group.
    Group(SocketAddr),
    /// Sends datagrams from a port that the kernel chooses.
    Ask(SocketAddr),
}

/// The origin of a role's socket.
#[derive(Debug)]
pub(crate) enum SocketOrigin<P: Poller> {
    Listener(P::Listener),
    Datagrams(P::Datagrams),
    /// The program being replaced has the socket.
    Inherited,
    /// Another loop receives the group's datagrams.
    OtherLoop,
}

/// A role of a program with its place.
#[derive(Clone, Debug)]
pub(crate) struct RoleSite {
    pub(crate) endpoint: Endpoint,
    pub(crate) place: RoleAddress,
    /// The domain of its sockets: they are handed over within it only.
    pub(crate) domain: Domain,
}

/// A role's place, and its socket in one loop.
#[derive(Debug)]
pub(crate) struct RoleSocket<P: Poller> {
    pub(crate) role: RoleId,
    pub(crate) place: RoleAddress,
    pub(crate) origin: SocketOrigin<P>,
}

/// A machine with its sockets, ready for a loop.
#[derive(Debug)]
pub(crate) struct Planned<P: Poller> {
    pub(crate) machine: Machine,
    pub(crate) sockets: Vec<RoleSocket<P>>,
}

/// The sites of a machine's roles.
pub(crate) fn sites<N: Network>(
    network: &N,
    machine: &Machine,
) -> Result<Vec<RoleSite>, RunnerError> {
    let wanted = |endpoint: &&Endpoint| {
        !(endpoint.side == Side::Client && endpoint.transport == Transport::Tcp)
    };
    let site = |endpoint: &Endpoint| {
        let place = match (endpoint.transport, endpoint.side, endpoint.cast) {
            (Transport::Tcp, ..) => RoleAddress::Listen(address(network, endpoint)?),
            (Transport::Udp, Side::Server, Cast::Multicast) => {
                RoleAddress::Group(address(network, endpoint)?)
            }
            (Transport::Udp, Side::Server, Cast::Unicast) => {
                RoleAddress::Serve(address(network, endpoint)?)
            }
            // A peer that has no address yet says nothing of its family, and may be found later.
            (Transport::Udp, Side::Client, _) => RoleAddress::Ask(
                address(network, endpoint).unwrap_or(SocketAddr::from(([0; 4], 0))),
            ),
        };
        let domain = network.domain(&endpoint.name);
        Ok(RoleSite { endpoint: endpoint.clone(), place, domain })
    };
    machine.endpoints().iter().filter(wanted).map(site).collect()
}

/// The address of an endpoint. A name is resolved now, before anything runs. For a datagram client,
/// the result only gives the socket's address family; the machine resolves the name again.
fn address<N: Network>(network: &N, endpoint: &Endpoint) -> Result<SocketAddr, RunnerError> {
    let found = match &endpoint.address {
        RoleTarget::Address(address) => Some(*address),
        RoleTarget::Name(name, port) => network.resolve(name, *port),
    };
    found.ok_or_else(|| RunnerError::NoAddress {
        role: endpoint.name.clone(),
        address: endpoint.address.to_string(),
    })
}

/// Makes a socket for a site; a port that the network chooses becomes part of the place.
pub(crate) fn socket_of<N: Network>(
    network: &N,
    site: &mut RoleSite,
    first: bool,
) -> Result<SocketOrigin<N::Poller>, RunnerError> {
    let RoleSite { endpoint, place, .. } = site;
    let sharing = if first { Sharing::First } else { Sharing::Further };
    let datagrams = |bind| network.datagrams(&endpoint.name, bind, sharing);
    let origin = match place {
        RoleAddress::Listen(address) => {
            network.listen(&endpoint.name, *address, sharing).and_then(|listener| {
                *address = listener.local_address()?;
                Ok(SocketOrigin::Listener(listener))
            })
        }
        RoleAddress::Serve(address) => datagrams(Bind::Server(*address)).and_then(|socket| {
            *address = socket.local_address()?;
            Ok(SocketOrigin::Datagrams(socket))
        }),
        RoleAddress::Group(_) if !first => Ok(SocketOrigin::OtherLoop),
        RoleAddress::Group(group) => datagrams(Bind::Group(*group)).map(SocketOrigin::Datagrams),
        RoleAddress::Ask(peer) => datagrams(Bind::Client(*peer)).map(SocketOrigin::Datagrams),
    };
    origin.map_err(|source| RunnerError::Listen {
        role: endpoint.name.clone(),
        address: endpoint.address.to_string(),
        source,
    })
}
