//! Segmentation of frames larger than the MTU, as the sender's device would have done it.
//!
//! A kernel that sends over a virtual link leaves the segmentation of TCP streams (and of UDP
//! bursts) to the device, too. A receiving kernel merges segments before packet sockets see them.
//! Either way up to 64 KiB arrive at once, with a virtio header that says how to segment them
//! (virtio 1.2 §5.1.6).

use crate::{Framing, LinkCounters};
use gatewright_packet::{Checksum, Packet, Pool};
use gatewright_wire::{checksum, partial};

/// Octets of the header before each frame of a packet socket or TAP device.
pub(crate) const VIRTIO_LEN: usize = 10;

/// Maximum octets of a super-frame: the largest IP datagram after an Ethernet header with two tags.
pub(crate) const SUPER_FRAME_MAX: usize = 65_535 + 22;

/// The metadata of a frame beside its octets (virtio 1.2 §5.1.6, in the host's byte order).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Virtio {
    /// Where the checksum begins and where its field is, if it is partial.
    pub(crate) checksum: Option<(usize, usize)>,
    /// How to segment the frame, if needed.
    pub(crate) cut: Option<Cut>,
}

/// The kind of segmentation, and the octets of payload of each segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cut {
    protocol: Protocol,
    payload: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Protocol {
    Tcp,
    Udp,
    Other,
}

impl Virtio {
    /// Parses the header; `shift` octets (a VLAN tag) are inserted before the position to which it
    /// points.
    pub(crate) fn parse(header: [u8; VIRTIO_LEN], shift: usize) -> Self {
        const NEEDS_CHECKSUM: u8 = 1;
        // The high bit only tells that congestion notification is in use.
        const KIND: u8 = 0x7f;
        let [flags, kind, _, _, size_1, size_2, start_1, start_2, offset_1, offset_2] = header;
        let start = usize::from(u16::from_ne_bytes([start_1, start_2])) + shift;
        let offset = usize::from(u16::from_ne_bytes([offset_1, offset_2]));
        let payload = usize::from(u16::from_ne_bytes([size_1, size_2]));
        let protocol = match kind & KIND {
            0 => None,
            1 | 4 => Some(Protocol::Tcp),
            5 => Some(Protocol::Udp),
            _ => Some(Protocol::Other),
        };
        Self {
            checksum: (flags & NEEDS_CHECKSUM != 0).then_some((start, start + offset)),
            cut: protocol.map(|protocol| Cut { protocol, payload }),
        }
    }
}

/// Marks a partial checksum that layers understand (the packet's own TCP, UDP or SCTP). Any other
/// is completed now: the kernel gives its position, also inside a tunnel.
pub(crate) fn note_checksum(
    packet: &mut Packet,
    framing: Framing,
    (start, field): (usize, usize),
    counters: &mut LinkCounters,
) {
    if partial::field(packet.octets(), framing) == Some(field) {
        packet.meta_mut().checksum = Checksum::Partial;
    } else if partial::complete_at(packet.octets_mut(), start, field) {
        counters.completed += 1;
    } else {
        counters.receive_malformed += 1;
    }
}

/// A device's answer to a request for a frame.
pub(crate) enum Next {
    /// A packet.
    Packet(Packet),
    /// A frame that was dropped with a count, or is to be segmented first.
    NoPacket,
    /// Nothing more.
    Nothing,
}

/// A super-frame that is being segmented.
#[derive(Debug)]
pub(crate) struct SuperFrame {
    /// The frame, and behind it memory for the longest one.
    memory: Vec<u8>,
    /// Octets of the frame.
    len: usize,
    framing: Framing,
    /// Octets of the headers that every segment repeats.
    headers: usize,
    network: usize,
    transport: usize,
    protocol: Protocol,
    /// Octets of payload of each segment.
    payload: usize,
    /// The payload's next octet; the frame's end when nothing is left.
    at: usize,
    /// Segments made so far.
    cut: u16,
}

impl SuperFrame {
    /// None yet, on a link of this framing.
    pub(crate) fn new(framing: Framing) -> Self {
        Self {
            memory: vec![0; SUPER_FRAME_MAX],
            len: 0,
            framing,
            headers: 0,
            network: 0,
            transport: 0,
            protocol: Protocol::Other,
            payload: 0,
            at: 0,
            cut: 0,
        }
    }

    /// Begins with a frame given in pieces; returns whether it can be segmented as `virtio` says.
    pub(crate) fn begin(&mut self, pieces: &[&[u8]], virtio: Virtio) -> bool {
        let mut len = 0;
        for piece in pieces {
            let place = self.memory.get_mut(len..).and_then(|rest| rest.get_mut(..piece.len()));
            let Some(place) = place else {
                self.set(0);
                return false;
            };
            place.copy_from_slice(piece);
            len += piece.len();
        }
        self.set(len);
        self.locate(virtio)
    }

    /// Memory for all octets of a frame but the first `front`, to be read from a device. Nothing may
    /// be left of an earlier frame.
    pub(crate) fn tail(&mut self, front: usize) -> &mut [u8] {
        debug_assert!(!self.is_left(), "the memory holds an earlier frame");
        self.memory.get_mut(front..).unwrap_or_default()
    }

    /// As [`Self::begin`], with a frame of `len` octets, of which those behind `front` were read
    /// into [`Self::tail`].
    pub(crate) fn begin_with_tail(&mut self, front: &[u8], len: usize, virtio: Virtio) -> bool {
        let place = self.memory.get_mut(..front.len()).filter(|_| len <= SUPER_FRAME_MAX);
        let Some(place) = place else {
            self.set(0);
            return false;
        };
        place.copy_from_slice(front);
        self.set(len);
        self.locate(virtio)
    }

    /// Takes `len` octets of the memory as a frame of which no segment is left.
    fn set(&mut self, len: usize) {
        (self.len, self.at) = (len, len);
    }

    fn frame(&self) -> &[u8] {
        self.memory.get(..self.len).unwrap_or_default()
    }

    /// Finds the headers that each segment repeats.
    fn locate(&mut self, virtio: Virtio) -> bool {
        let frame = self.frame();
        let (Some(cut), Some((transport, _))) = (virtio.cut, virtio.checksum) else { return false };
        let Some(packet) = self.framing.ip_packet(frame) else { return false };
        let network = frame.len() - packet.len();
        let header_len = match cut.protocol {
            Protocol::Tcp => frame.get(transport + 12).map(|word| usize::from(word >> 4) * 4),
            Protocol::Udp => Some(8),
            Protocol::Other => None,
        };
        let headers = header_len.map(|len| transport + len);
        // A UDP header is behind at least 20 octets of IP: what follows never underflows.
        let Some(headers) = headers.filter(|&headers| headers < self.len && network < transport)
        else {
            return false;
        };
        if cut.payload == 0 {
            return false;
        }
        (self.headers, self.network, self.transport) = (headers, network, transport);
        (self.protocol, self.payload) = (cut.protocol, cut.payload);
        (self.at, self.cut) = (headers, 0);
        true
    }

    /// Whether a segment is left.
    pub(crate) fn is_left(&self) -> bool {
        self.at < self.len
    }

    /// Octets of the next segment.
    pub(crate) fn next_len(&self) -> usize {
        self.headers + self.payload.min(self.len - self.at)
    }

    /// Discards the remaining segments.
    pub(crate) fn discard(&mut self) {
        self.at = self.len;
    }

    /// The next segment as a packet of `pool`; `None` if it was dropped with a count, and all
    /// further ones with it.
    pub(crate) fn next_packet(
        &mut self,
        pool: &Pool,
        counters: &mut LinkCounters,
    ) -> Option<Packet> {
        if self.next_len() > pool.packet_len_max() {
            counters.receive_oversized += 1;
            self.discard();
            return None;
        }
        let Some(mut packet) = pool.packet() else {
            counters.receive_no_packet += 1;
            self.discard();
            return None;
        };
        if !self.next(&mut packet) {
            counters.receive_malformed += 1;
            self.discard();
            return None;
        }
        packet.meta_mut().checksum = Checksum::Partial;
        Some(packet)
    }

    /// Writes the next segment into the empty `packet`, with a partial checksum; returns whether
    /// that worked.
    pub(crate) fn next(&mut self, packet: &mut Packet) -> bool {
        let end = self.len.min(self.at + self.payload);
        let is_last = end == self.len;
        let (Some(headers), Some(payload)) =
            (self.frame().get(..self.headers), self.frame().get(self.at..end))
        else {
            return false;
        };
        if packet.append(headers).is_err() || packet.append(payload).is_err() {
            return false;
        }
        let sequence = u32::try_from(self.at - self.headers).unwrap_or_default();
        let octets = packet.octets_mut();
        let written = self.adjust_network(octets)
            && self.adjust_transport(octets, sequence, is_last)
            && write_partial(octets, self.framing);
        self.at = end;
        self.cut = self.cut.wrapping_add(1);
        written
    }

    /// Sets the length of the IP header, and for IPv4 its identification and checksum.
    fn adjust_network(&self, octets: &mut [u8]) -> bool {
        let Some(packet) = octets.get_mut(self.network..) else { return false };
        let Ok(len) = u16::try_from(packet.len()) else { return false };
        let header_len = self.transport - self.network;
        match packet.first().map(|first| first >> 4) {
            Some(4) => {
                let Some(header) = packet.get_mut(..header_len) else { return false };
                let Some([_, _, l_1, l_2, id_1, id_2, _, _, _, _, sum_1, sum_2, ..]) =
                    header.first_chunk_mut::<20>()
                else {
                    return false;
                };
                [*l_1, *l_2] = len.to_be_bytes();
                let identification = u16::from_be_bytes([*id_1, *id_2]).wrapping_add(self.cut);
                [*id_1, *id_2] = identification.to_be_bytes();
                (*sum_1, *sum_2) = (0, 0);
                let checksum = checksum::of(header);
                put(header, 10, checksum.to_be_bytes())
            }
            Some(6) => len.checked_sub(40).is_some_and(|len| put(packet, 4, len.to_be_bytes())),
            _ => false,
        }
    }

    fn adjust_transport(&self, octets: &mut [u8], sequence: u32, is_last: bool) -> bool {
        const FIN_AND_PUSH: u8 = 0x09;
        const CONGESTION_WINDOW_REDUCED: u8 = 0x80;
        let Some(segment) = octets.get_mut(self.transport..) else { return false };
        if self.protocol == Protocol::Udp {
            let len = u16::try_from(segment.len());
            return len.is_ok_and(|len| put(segment, 4, len.to_be_bytes()));
        }
        let Some([_, _, _, _, s_1, s_2, s_3, s_4, _, _, _, _, _, flags, ..]) =
            segment.first_chunk_mut::<20>()
        else {
            return false;
        };
        let first = u32::from_be_bytes([*s_1, *s_2, *s_3, *s_4]);
        [*s_1, *s_2, *s_3, *s_4] = first.wrapping_add(sequence).to_be_bytes();
        if !is_last {
            *flags &= !FIN_AND_PUSH;
        }
        // RFC 3168 §6.1.2: told once, by the first.
        if self.cut > 0 {
            *flags &= !CONGESTION_WINDOW_REDUCED;
        }
        true
    }
}

/// Writes the partial checksum of a segment.
fn write_partial(octets: &mut [u8], framing: Framing) -> bool {
    let located = partial::pseudo_header(octets, framing);
    located.is_some_and(|(field, sum)| put(octets, field, sum.to_be_bytes()))
}

fn put(octets: &mut [u8], at: usize, value: [u8; 2]) -> bool {
    let place = octets.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
    place.map(|place| *place = value).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_packet::{CHUNK_SIZE, Pool};
    use proptest::prelude::*;

    fn tcp_frame(ip: &[u8], payload: &[u8]) -> (Vec<u8>, usize) {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        frame.extend(if ip[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        frame.extend(ip);
        let transport = frame.len();
        // Ports, sequence number 0xffff_ff00, acknowledgement, 5 words, CWR ACK PSH FIN.
        frame.extend([0x10, 0x00, 0x20, 0x00, 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 1]);
        frame.extend([0x50, 0x99, 0x01, 0x00, 0, 0, 0, 0]);
        frame.extend(payload);
        (frame, transport)
    }

    fn virtio(kind: u8, payload: u16, transport: usize) -> [u8; VIRTIO_LEN] {
        let start = u16::try_from(transport).unwrap().to_ne_bytes();
        let (size, offset) = (payload.to_ne_bytes(), 16_u16.to_ne_bytes());
        let [s_1, s_2, t_1, t_2, o_1, o_2] =
            [size[0], size[1], start[0], start[1], offset[0], offset[1]];
        [1, kind, 0, 0, s_1, s_2, t_1, t_2, o_1, o_2]
    }

    const IPV4: [u8; 20] =
        [0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];

    fn ipv6() -> Vec<u8> {
        let mut header = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
        header.extend([0x20; 32]);
        header
    }

    fn segments(frame: &[u8], virtio: Virtio) -> Vec<Vec<u8>> {
        let pool = Pool::new(2, CHUNK_SIZE).unwrap();
        let mut super_frame = SuperFrame::new(Framing::Ethernet);
        assert!(super_frame.begin(&[frame], virtio));
        let mut segments = Vec::new();
        while super_frame.is_left() {
            let mut packet = pool.packet().unwrap();
            assert!(super_frame.next(&mut packet));
            segments.push(packet.octets().to_vec());
        }
        segments
    }

    /// RFC 9293 §3.4: sequence numbers wrap; RFC 3168 §6.1.2: CWR is on the first only; FIN and
    /// PSH are on the last only.
    #[test]
    fn a_stream_is_cut_into_segments_that_continue_each_other() {
        for (kind, ip) in [(1, IPV4.to_vec()), (4, ipv6())] {
            let payload: Vec<u8> = (0..1000_u16).flat_map(u16::to_be_bytes).collect();
            let (frame, transport) = tcp_frame(&ip, &payload);
            let segments = segments(&frame, Virtio::parse(virtio(kind, 600, transport), 0));
            let (data, at) = (transport + 20, transport + 4);
            let payloads: Vec<u8> = segments.iter().flat_map(|s| s[data..].to_vec()).collect();
            assert_eq!(payloads, payload);
            let sequences: Vec<_> = segments.iter().map(|s| s[at..at + 4].to_vec()).collect();
            let expected = [0xffff_ff00_u32, 0x158, 0x3b0, 0x608].map(|n| n.to_be_bytes().to_vec());
            assert_eq!(sequences, expected);
            let flags: Vec<_> = segments.iter().map(|s| s[transport + 13]).collect();
            assert_eq!(flags, [0x90, 0x10, 0x10, 0x19]);
            for (segment, number) in segments.iter().zip(0_u16..) {
                assert!(partial::is_partial(segment, Framing::Ethernet));
                if kind == 1 {
                    assert_eq!(checksum::of(&segment[14..34]), 0);
                    assert_eq!(segment[18..20], 0xffff_u16.wrapping_add(number).to_be_bytes());
                }
            }
        }
    }

    /// A tag is put back into the frame before what the virtio header points to.
    #[test]
    fn a_tagged_frame_is_cut_into_tagged_segments() {
        let (frame, transport) = tcp_frame(&IPV4, &[7; 1000]);
        let header = virtio(1, 600, transport);
        let untagged = segments(&frame, Virtio::parse(header, 0));
        let tag = [0x81, 0x00, 0x60, 42];
        let tagged = [&frame[..12], &tag, &frame[12..]].concat();
        let tagged = segments(&tagged, Virtio::parse(header, tag.len()));
        let expected: Vec<_> =
            untagged.iter().map(|s| [&s[..12], &tag, &s[12..]].concat()).collect();
        assert_eq!(tagged, expected);
    }

    /// What was read to the packet's chunk and behind it is the frame.
    #[test]
    fn a_frame_read_in_two_parts_is_cut_like_one() {
        let payload: Vec<u8> = (0..3000_u16).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (frame, transport) = tcp_frame(&IPV4, &payload);
        let virtio = Virtio::parse(virtio(1, 600, transport), 0);
        let expected = segments(&frame, virtio);
        let pool = Pool::new(2, CHUNK_SIZE).unwrap();
        for front in [0, 60, 1500, frame.len()] {
            let mut super_frame = SuperFrame::new(Framing::Ethernet);
            super_frame.tail(front)[..frame.len() - front].copy_from_slice(&frame[front..]);
            assert!(super_frame.begin_with_tail(&frame[..front], frame.len(), virtio));
            let mut cut = Vec::new();
            while super_frame.is_left() {
                let mut packet = pool.packet().unwrap();
                assert!(super_frame.next(&mut packet));
                cut.push(packet.octets().to_vec());
            }
            assert_eq!(cut, expected, "{front}");
        }
        let mut super_frame = SuperFrame::new(Framing::Ethernet);
        assert!(!super_frame.begin_with_tail(&frame, SUPER_FRAME_MAX + 1, virtio));
        assert!(!super_frame.is_left());
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let (frame, transport) = tcp_frame(&IPV4, &[0; 1000]);
        let mut super_frame = SuperFrame::new(Framing::Ethernet);
        let mut begin = |virtio| {
            let begun = super_frame.begin(&[&frame], Virtio::parse(virtio, 0));
            assert_eq!(begun, super_frame.is_left());
            begun
        };
        assert!(begin(virtio(1, 500, transport)));
        assert!(!begin(virtio(1, 0, transport)), "segments of nothing");
        assert!(!begin(virtio(3, 500, transport)), "fragments of UDP are of the past");
        assert!(!begin(virtio(1, 500, 5000)), "a transport behind the end");
        assert!(!begin(virtio(1, 500, 10)), "a transport before the network");
        let mut without_checksum = virtio(1, 500, transport);
        without_checksum[0] = 0;
        assert!(!begin(without_checksum));
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(
            frame in prop::collection::vec(any::<u8>(), 0..300),
            header: [u8; VIRTIO_LEN],
            ethernet: bool,
        ) {
            let mut frame = frame;
            if ethernet && frame.len() > 15 {
                frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
            }
            let pool = Pool::new(1, CHUNK_SIZE).unwrap();
            let mut super_frame = SuperFrame::new(Framing::Ethernet);
            super_frame.begin(&[&frame], Virtio::parse(header, 0));
            while super_frame.is_left() {
                super_frame.next(&mut pool.packet().unwrap());
            }
        }
    }
}
