//! The kernel's network keeps the contract of `gatewright-edge`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_edge::conformance::{self, Peer};
use gatewright_runner::KernelNetwork;
use gatewright_testbed::free_port;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

struct KernelPeer(UdpSocket);

impl KernelPeer {
    fn at(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(socket)
    }
}

impl Peer for KernelPeer {
    fn send(&mut self, octets: &[u8], to: SocketAddr) -> io::Result<()> {
        self.0.send_to(octets, to).map(drop)
    }

    fn receive(&mut self) -> io::Result<(Vec<u8>, SocketAddr)> {
        let mut octets = [0; 2_048];
        let (length, from) = self.0.recv_from(&mut octets)?;
        Ok((octets[..length].to_vec(), from))
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

fn loopbacks() -> [SocketAddr; 2] {
    [(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()]
}

#[test]
fn a_loop_waits_and_is_woken() {
    conformance::waiting(&KernelNetwork::new()).unwrap();
}

#[test]
fn datagrams_conform_in_both_families() {
    for address in loopbacks() {
        let mut peer = KernelPeer::at(address);
        conformance::datagrams(&KernelNetwork::new(), address, &mut peer).unwrap();
    }
}

#[test]
fn streams_conform_in_both_families() {
    for address in loopbacks() {
        conformance::streams(&KernelNetwork::new(), address).unwrap();
    }
}

#[test]
fn a_refused_connection_is_reported() {
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    conformance::refusal(&KernelNetwork::new(), nobody).unwrap();
}
