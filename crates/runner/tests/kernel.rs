//! The kernel's network keeps the contract of `gatewright-edge`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_edge::conformance;
use gatewright_runner::KernelNetwork;
use gatewright_testbed::free_port;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

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
        let mut peer = UdpSocket::bind(address).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
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
