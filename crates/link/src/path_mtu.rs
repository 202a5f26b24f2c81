//! Datagrams that no learnt path MTU changes.

use crate::socket;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;

/// The MTU that every IPv6 path has (RFC 8200 §5).
const IPV6_MTU_MIN: i32 = 1_280;

/// Sends the datagrams of a socket without regard to path MTUs: what ICMP says about them is neither
/// learnt from this socket nor used, so that nobody can have its datagrams cut small by forged errors.
///
/// IPv4 datagrams go without DF: they are cut to the MTU of the interface, and by routers beyond. IPv6
/// routers cut nothing, so that fragments have the size that every path takes.
///
/// # Errors
///
/// The system's error.
pub fn disregard_path_mtu(socket: &UdpSocket) -> io::Result<()> {
    let set = |level, name, value: i32| socket::set_option(socket.as_fd(), level, name, &value);
    if socket.local_addr()?.is_ipv4() {
        return set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT);
    }
    set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_OMIT)?;
    set(libc::IPPROTO_IPV6, libc::IPV6_MTU, IPV6_MTU_MIN)
}
