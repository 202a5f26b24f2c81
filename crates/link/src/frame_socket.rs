//! A packet socket for single frames: for protocols beside the data plane.

use crate::packet_socket::{
    ETH_P_ALL, PACKET_ADD_MEMBERSHIP, PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR,
};
use crate::socket;
use gatewright_wire::partial;
use nix::errno::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Octets of the offload header before each frame of a socket with offloads (`virtio_net_hdr`).
pub const OFFLOADS_LEN: usize = 10;

/// Size of the socket's queues, in octets.
const QUEUE: i32 = 1 << 20;

/// Which received frames a [`FrameSocket`] takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FrameSelection {
    /// Those of one EtherType that no program has taken from the interface.
    EtherType(u16),
    /// All but IPv4, IPv6 and those of VLANs (IEEE 802.1Q); of IP, also what a program has taken, those of
    /// [`Self::TcpEnds`].
    NotIpOrTcpEnds,
    /// TCP segments with SYN, FIN or RST, that of IPv6 without extension headers, also those that a program
    /// has taken.
    TcpEnds,
    /// None: it only sends.
    Nothing,
}

/// A packet socket on one interface that receives and sends single Ethernet frames.
///
/// With offloads, each frame begins with [`OFFLOADS_LEN`] octets that say what its sender has left
/// to a device: a checksum, and the cutting of a super-frame.
#[derive(Debug)]
pub struct FrameSocket {
    socket: OwnedFd,
}

impl FrameSocket {
    /// Opens a socket on the interface with index `interface`. It does not block.
    ///
    /// # Errors
    ///
    /// The system's error: `EPERM` without `CAP_NET_RAW`.
    pub fn open(interface: u32, selection: FrameSelection, offloads: bool) -> io::Result<Self> {
        let opened = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        let fd = opened.as_fd();
        let set = |name, value: i32| socket::set_option(fd, libc::SOL_PACKET, name, &value);
        set(PACKET_IGNORE_OUTGOING, 1)?;
        if offloads {
            set(PACKET_VNET_HDR, 1)?;
        }
        socket::set_buffer(fd, [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF], QUEUE)?;
        socket::set_buffer(fd, [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF], QUEUE)?;
        let protocol = match selection {
            FrameSelection::EtherType(ether_type) => ether_type,
            FrameSelection::NotIpOrTcpEnds | FrameSelection::TcpEnds => {
                socket::take_tcp_ends(fd, selection == FrameSelection::NotIpOrTcpEnds)?;
                ETH_P_ALL
            }
            FrameSelection::Nothing => 0,
        };
        socket::bind_packet(fd, interface, protocol)?;
        Ok(Self { socket: opened })
    }

    /// Makes the interface receive frames to a group address, until the socket is closed.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn join(&self, interface: u32, group: [u8; 6]) -> io::Result<()> {
        const MULTICAST: u16 = 0;
        self.add_membership(interface, MULTICAST, group)
    }

    /// Makes the interface receive frames to any address, until the socket is closed.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn be_promiscuous(&self, interface: u32) -> io::Result<()> {
        const PROMISCUOUS: u16 = 1;
        self.add_membership(interface, PROMISCUOUS, [0; 6])
    }

    fn add_membership(&self, interface: u32, kind: u16, address: [u8; 6]) -> io::Result<()> {
        // struct packet_mreq: the index, type and length in 16 bits each, an address of 8 octets.
        let mut request = [0_u8; 16];
        let fields = interface.to_ne_bytes().into_iter().chain(kind.to_ne_bytes());
        let fields = fields.chain(6_u16.to_ne_bytes()).chain(address);
        for (to, from) in request.iter_mut().zip(fields) {
            *to = from;
        }
        socket::set_option(self.as_fd(), libc::SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Receives a frame, cut to the length of `buffer`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The system's error: `ENETDOWN` if the interface has gone down.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b mut [u8]>> {
        loop {
            match socket::receive(self.as_fd(), buffer) {
                Ok(len) => return Ok(buffer.get_mut(..len)),
                Err(error) => match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
                    Errno::EAGAIN => return Ok(None),
                    Errno::EINTR => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    ///
    /// The system's error: `EMSGSIZE` for a frame beyond the MTU, `ENETDOWN` if the interface is
    /// down, `ENOBUFS` if its queue is full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        socket::send(self.as_fd(), frame)
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A frame received with offloads, without its offload header and with a complete checksum; `None`
/// if it is too short or a super-frame.
pub fn without_offloads(received: &mut [u8]) -> Option<&mut [u8]> {
    const NEEDS_CHECKSUM: u8 = 1;
    let (header, frame) = received.split_first_chunk_mut::<OFFLOADS_LEN>()?;
    let [flags, cut, _, _, _, _, start_1, start_2, field_1, field_2] = *header;
    if cut != 0 {
        return None;
    }
    if flags & NEEDS_CHECKSUM != 0 {
        let start = usize::from(u16::from_ne_bytes([start_1, start_2]));
        let field = start + usize::from(u16::from_ne_bytes([field_1, field_2]));
        if !partial::complete_at(frame, start, field) {
            return None;
        }
    }
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UDP over IPv4 with a partial checksum: the pseudo-header's sum of RFC 768 by hand.
    #[test]
    fn a_checksum_left_to_a_device_is_completed() {
        let mut frame = vec![0_u8; OFFLOADS_LEN];
        frame[0] = 1;
        frame[6..8].copy_from_slice(&34_u16.to_ne_bytes());
        frame[8..10].copy_from_slice(&6_u16.to_ne_bytes());
        frame.extend([0; 34]);
        // Ports 1 and 2, length 8; 0x1234 is the sum of the pseudo-header.
        frame.extend([0, 1, 0, 2, 0, 8, 0x12, 0x34]);
        let whole = without_offloads(&mut frame).unwrap();
        assert_eq!(whole[40..42], (!(0x1234_u16 + 1 + 2 + 8)).to_be_bytes());
    }

    #[test]
    fn super_frames_and_short_ones_are_refused() {
        assert!(without_offloads(&mut [0; 9]).is_none());
        let mut cut = [0; 64];
        cut[1] = 1;
        assert!(without_offloads(&mut cut).is_none());
        let mut outside = [0; 64];
        (outside[0], outside[6], outside[7]) = (1, 0xff, 0xff);
        assert!(without_offloads(&mut outside).is_none());
    }
}
