//! Segments of one stream that leave together are one super-frame again.
//!
//! A super-frame is cut on arrival ([`crate::super_frame`]), so that each layer sees packets of at
//! most an MTU: routes, filters, hop limits and *too big* are judged by segments. Those that still
//! follow one another when they leave, and differ in nothing but what segmentation changes, are
//! given to the kernel as one frame with a virtio header. A kernel's path costs by frames, not by
//! octets. Only segments whose checksum is partial are merged: their sender left segmentation to us,
//! and nothing that a wire could have damaged is hidden.

use crate::Framing;
use crate::super_frame::VIRTIO_LEN;
use gatewright_packet::{BATCH_MAX, Checksum as State, Packet};
use gatewright_wire::{
    Checksum, IpProtocol, checksum,
    ethernet::Ethernet,
    ipv4::{Ipv4, Ipv4Mut},
    ipv6::{Ipv6, Ipv6Mut},
};
use std::iter;

/// Octets of a TCP header, without options and with the most of them (RFC 9293 §3.1).
const TCP_LEN: usize = 20;
const TCP_LEN_MAX: usize = 60;

/// Octets of the longest head: virtio, Ethernet, IPv6, TCP.
const HEAD_LEN_MAX: usize = VIRTIO_LEN + Ethernet::LEN + Ipv6::LEN + TCP_LEN_MAX;

/// Octets of the largest IP packet.
const PACKET_LEN_MAX: usize = 65_535;

// Flags of TCP (RFC 9293 §3.1).
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

/// A frame as it is given to the kernel: a head, and the rest of one or more packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutgoingFrame {
    head: [u8; HEAD_LEN_MAX],
    head_len: usize,
    /// Packets that it carries.
    pub(crate) packets: usize,
    /// Octets of each packet that the head replaces.
    replaced: usize,
}

impl OutgoingFrame {
    /// A packet as it is.
    pub(crate) const SINGLE: Self =
        Self { head: [0; HEAD_LEN_MAX], head_len: VIRTIO_LEN, packets: 1, replaced: 0 };

    /// The largest super-frame that the first of `packets` begin; none if the first two do not
    /// belong together.
    fn merged(packets: &[Packet], framing: Framing) -> Option<Self> {
        let first = TcpSegment::of(packets.first()?, framing)?;
        let (mut last, mut count, mut payload) = (first, 1, first.payload_len());
        for packet in packets.get(1..)? {
            let Some(next) = TcpSegment::of(packet, framing) else { break };
            let len = first.data - first.network + payload + next.payload_len();
            if len > PACKET_LEN_MAX || !first.continues(&last, &next, count) {
                break;
            }
            payload += next.payload_len();
            (last, count) = (next, count + 1);
        }
        if count == 1 { None } else { first.merge(&last, usize::from(count), payload) }
    }

    /// Its octets in pieces, where `packets` begin with its own.
    pub(crate) fn parts<'a>(&'a self, packets: &'a [Packet]) -> impl Iterator<Item = &'a [u8]> {
        let head = self.head.get(..self.head_len).unwrap_or_default();
        let rest = |packet: &'a Packet| packet.octets().get(self.replaced..).unwrap_or_default();
        iter::once(head).chain(packets.iter().take(self.packets).map(rest))
    }
}

/// How the packets of a batch leave by a device.
pub(crate) struct Outgoing {
    framing: Framing,
    frames: Vec<OutgoingFrame>,
    /// Super-frames that the kernel refused since it took one.
    refused: u8,
}

/// Number of super-frames refused in a row after which none is tried again: the device takes none,
/// and past the queueing discipline the kernel does not cut them for it.
const REFUSED_MAX: u8 = 16;

impl Outgoing {
    pub(crate) fn new(framing: Framing) -> Self {
        Self { framing, frames: Vec::with_capacity(BATCH_MAX), refused: 0 }
    }

    /// Decides how packets leave: merged where they can be, unless the device takes none.
    pub(crate) fn plan(&mut self, packets: &[Packet]) {
        self.frames.clear();
        let mut rest = packets;
        while !rest.is_empty() {
            let merges = self.refused < REFUSED_MAX;
            let merged = if merges { OutgoingFrame::merged(rest, self.framing) } else { None };
            let frame = merged.unwrap_or(OutgoingFrame::SINGLE);
            rest = rest.get(frame.packets..).unwrap_or_default();
            self.frames.push(frame);
        }
    }

    /// The frames, in order.
    pub(crate) fn frames(&self) -> &[OutgoingFrame] {
        &self.frames
    }

    /// Notes that the kernel took a frame.
    pub(crate) fn taken(&mut self, frame: usize) {
        if self.frames.get(frame).is_some_and(|frame| frame.packets > 1) {
            self.refused = 0;
        }
    }

    /// Replaces a super-frame that the kernel refused by its segments: they may be taken.
    pub(crate) fn split(&mut self, frame: usize) {
        let Some(count) = self.frames.get(frame).map(|frame| frame.packets) else { return };
        self.refused = self.refused.saturating_add(1);
        let singles = iter::repeat_n(OutgoingFrame::SINGLE, count);
        drop(self.frames.splice(frame..=frame, singles));
    }

    /// Gives up the frames from this one on.
    pub(crate) fn truncate(&mut self, frame: usize) {
        self.frames.truncate(frame);
    }
}

/// A TCP segment with payload, in a frame without a tag.
#[derive(Clone, Copy)]
struct TcpSegment<'frame> {
    frame: &'frame [u8],
    /// Where its IP header begins, its TCP header, and its payload.
    network: usize,
    transport: usize,
    data: usize,
}

impl<'frame> TcpSegment<'frame> {
    /// The segment of a packet, if it may be part of a super-frame: without IP options, extension
    /// headers or padding, not a fragment, its checksum partial.
    fn of(packet: &'frame Packet, framing: Framing) -> Option<Self> {
        let frame = packet.octets();
        if packet.meta().checksum != State::Partial {
            return None;
        }
        let (ethernet, network) = frame.split_at_checked(framing.header_len())?;
        let version = match (framing, ethernet) {
            (Framing::Ethernet, [.., 0x08, 0x00]) => 4,
            (Framing::Ethernet, [.., 0x86, 0xdd]) => 6,
            (Framing::Ethernet, _) => return None,
            (Framing::Ip, _) => network.first()? >> 4,
        };
        let (is_plain, len, network_len) = match version {
            4 => {
                let (ip, _) = Ipv4::split(network).ok()?;
                let is_plain = ip.header_len() == Ipv4::LEN
                    && !ip.is_fragment()
                    && ip.protocol() == IpProtocol::TCP;
                (is_plain, usize::from(ip.total_length()), Ipv4::LEN)
            }
            6 => {
                let (ip, _) = Ipv6::split(network).ok()?;
                let is_plain = ip.next_header() == IpProtocol::TCP;
                (is_plain, Ipv6::LEN + usize::from(ip.payload_length()), Ipv6::LEN)
            }
            _ => return None,
        };
        let transport = ethernet.len() + network_len;
        let words = frame.get(transport + 12)? >> 4;
        let data = transport + usize::from(words) * 4;
        let this = Self { frame, network: ethernet.len(), transport, data };
        let is_data = this.flags() & !(FIN | PSH | ECE | CWR) == ACK;
        let is_whole = network.len() == len && this.data < frame.len();
        let has_header = this.data >= transport + TCP_LEN;
        (is_plain && is_data && is_whole && has_header).then_some(this)
    }

    fn is_v4(&self) -> bool {
        self.transport == self.network + Ipv4::LEN
    }

    fn payload_len(&self) -> usize {
        self.frame.len() - self.data
    }

    fn flags(&self) -> u8 {
        self.frame.get(self.transport + 13).copied().unwrap_or_default()
    }

    fn sequence(&self) -> u32 {
        let octets = self.frame.get(self.transport + 4..).and_then(|rest| rest.first_chunk());
        octets.copied().map_or(0, u32::from_be_bytes)
    }

    fn identification(&self) -> u16 {
        let octets = self.frame.get(self.network + 4..).and_then(|rest| rest.first_chunk());
        octets.copied().map_or(0, u16::from_be_bytes)
    }

    /// Whether `next` continues this super-frame, of which it is the first of `count` segments and
    /// `last` the last. Segmentation of the whole would make `next` as it is.
    fn continues(&self, last: &Self, next: &Self, count: u16) -> bool {
        let len = u32::try_from(last.payload_len()).unwrap_or_default();
        // A shorter segment is the last one, as is one that is pushed or the stream's last.
        (self.transport, self.data) == (next.transport, next.data)
            && last.payload_len() == self.payload_len()
            && next.payload_len() <= self.payload_len()
            && last.flags() & (FIN | PSH) == 0
            && next.flags() & !(FIN | PSH) == self.flags() & !CWR
            && next.sequence() == last.sequence().wrapping_add(len)
            && (!self.is_v4() || next.identification() == self.identification().wrapping_add(count))
            && self.is_alike(next)
    }

    /// Whether all that segmentation copies is the same.
    fn is_alike(&self, other: &Self) -> bool {
        let (n, t) = (self.network, self.transport);
        // All but the IP lengths, IPv4's identification and checksum, and TCP's sequence number,
        // flags and checksum.
        let ip = if self.is_v4() {
            [0..n + 2, n + 6..n + 10, n + 12..t]
        } else {
            [0..n + 4, n + 6..t, t..t]
        };
        let tcp = [t..t + 4, t + 8..t + 13, t + 14..t + 16, t + 18..self.data];
        let same =
            |range: std::ops::Range<usize>| self.frame.get(range.clone()) == other.frame.get(range);
        ip.into_iter().chain(tcp).all(same)
    }

    /// The super-frame of which this is the first segment, with its virtio header (virtio 1.2
    /// §5.1.6).
    fn merge(&self, last: &Self, packets: usize, payload: usize) -> Option<OutgoingFrame> {
        const NEEDS_CHECKSUM: u8 = 1;
        const TCP_V4: u8 = 1;
        const TCP_V6: u8 = 4;
        const CONGESTION: u8 = 0x80;
        const CHECKSUM_AT: u16 = 16;
        let mut merged = OutgoingFrame {
            head_len: VIRTIO_LEN + self.data,
            packets,
            replaced: self.data,
            ..OutgoingFrame::SINGLE
        };
        let (virtio, head) = merged.head.split_first_chunk_mut::<VIRTIO_LEN>()?;
        let head = head.get_mut(..self.data)?;
        head.copy_from_slice(self.frame.get(..self.data)?);
        let length = u16::try_from(self.data - self.transport + payload).ok()?;
        let sum = adjust_network(head.get_mut(self.network..)?, self.is_v4(), length)?;
        let transport = head.get_mut(self.transport..)?;
        *transport.get_mut(13)? |= last.flags() & (FIN | PSH);
        transport.get_mut(16..18)?.copy_from_slice(&sum.to_be_bytes());

        let mut kind = if self.is_v4() { TCP_V4 } else { TCP_V6 };
        if self.flags() & CWR != 0 {
            kind |= CONGESTION;
        }
        let words = [self.data, self.payload_len(), self.transport].map(u16::try_from);
        let [Ok(headers), Ok(size), Ok(start)] = words else { return None };
        let words = [headers, size, start, CHECKSUM_AT].map(u16::to_ne_bytes);
        let octets = [NEEDS_CHECKSUM, kind].into_iter().chain(words.into_iter().flatten());
        for (to, from) in virtio.iter_mut().zip(octets) {
            *to = from;
        }
        Some(merged)
    }
}

/// Sets the length of an IP header to that of `length` octets of TCP; returns the sum of the
/// pseudo-header.
fn adjust_network(octets: &mut [u8], is_v4: bool, length: u16) -> Option<u16> {
    if !is_v4 {
        let mut header = Ipv6Mut::of(octets.first_chunk_mut()?);
        header.set_payload_length(length);
        return Some(header.view().pseudo_header(IpProtocol::TCP, length.into()).sum());
    }
    let header = octets.first_chunk_mut()?;
    let mut ip = Ipv4Mut::of(header);
    ip.set_total_length(length.checked_add(u16::try_from(Ipv4::LEN).ok()?)?);
    ip.set_header_checksum(0);
    let pseudo: Checksum = ip.view().pseudo_header(length);
    let sum = checksum::of(header);
    Ipv4Mut::of(header).set_header_checksum(sum);
    Some(pseudo.sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::super_frame::{SuperFrame, Virtio};
    use gatewright_packet::{CHUNK_SIZE, Pool};
    use gatewright_wire::partial;
    use proptest::prelude::*;

    const IPV4: [u8; 20] =
        [0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];

    /// A super-frame as a kernel gives it, with its virtio header.
    fn super_frame(is_v4: bool, flags: u8, payload: &[u8], size: u16) -> (Vec<u8>, [u8; 10]) {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let length = u16::try_from(32 + payload.len()).unwrap();
        if is_v4 {
            frame.extend([0x08, 0x00]);
            frame.extend(IPV4);
            frame[16..18].copy_from_slice(&(length + 20).to_be_bytes());
            let sum = checksum::of(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 6, 64]);
            frame.extend([0x20; 32]);
            frame[18..20].copy_from_slice(&length.to_be_bytes());
        }
        let transport = frame.len();
        frame.extend([0x10, 0x00, 0x20, 0x00, 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 1]);
        // Timestamps after two fillers.
        frame.extend([0x80, flags, 0x01, 0x00, 0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 8]);
        frame.extend(payload);
        let (field, sum) = partial::pseudo_header(&frame, Framing::Ethernet).unwrap();
        frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        let kind = if is_v4 { 1 } else { 4 } | if flags & CWR != 0 { 0x80 } else { 0 };
        let (headers, start) = (u16::try_from(transport + 32).unwrap(), transport);
        let words = [headers, size, u16::try_from(start).unwrap(), 16].map(u16::to_ne_bytes);
        let octets = [[1, kind]].into_iter().chain(words).flatten().collect::<Vec<_>>();
        (frame, octets.try_into().unwrap())
    }

    /// The same on a link without a link layer.
    fn without_ethernet((frame, virtio): (Vec<u8>, [u8; 10])) -> (Vec<u8>, [u8; 10]) {
        let [flags, kind, h_1, h_2, s_1, s_2, t_1, t_2, o_1, o_2] = virtio;
        let less = |word| (u16::from_ne_bytes(word) - 14).to_ne_bytes();
        let ([h_1, h_2], [t_1, t_2]) = (less([h_1, h_2]), less([t_1, t_2]));
        (frame[14..].to_vec(), [flags, kind, h_1, h_2, s_1, s_2, t_1, t_2, o_1, o_2])
    }

    fn segments(pool: &Pool, frame: &[u8], virtio: [u8; 10]) -> Vec<Packet> {
        segments_on(Framing::Ethernet, pool, frame, virtio)
    }

    fn segments_on(framing: Framing, pool: &Pool, frame: &[u8], virtio: [u8; 10]) -> Vec<Packet> {
        let mut cut = SuperFrame::new(framing);
        assert!(cut.begin(&[frame], Virtio::parse(virtio, 0)));
        let mut packets = Vec::new();
        while cut.is_left() {
            let mut packet = pool.packet().unwrap();
            assert!(cut.next(&mut packet));
            packet.meta_mut().checksum = State::Partial;
            packets.push(packet);
        }
        packets
    }

    fn sent(packets: &[Packet]) -> Vec<Vec<u8>> {
        sent_on(Framing::Ethernet, packets)
    }

    fn sent_on(framing: Framing, packets: &[Packet]) -> Vec<Vec<u8>> {
        let (mut outgoing, mut at) = (Outgoing::new(framing), 0);
        outgoing.plan(packets);
        let octets = outgoing.frames().iter().map(|frame| {
            let octets = frame.parts(&packets[at..]).collect::<Vec<_>>().concat();
            at += frame.packets;
            octets
        });
        octets.collect()
    }

    proptest! {
        /// What was cut leaves as it came, octet for octet, virtio header included.
        #[test]
        fn what_was_cut_is_merged_to_what_it_was(
            is_v4: bool,
            is_tun: bool,
            flags in prop::sample::select(vec![ACK, ACK | PSH, ACK | FIN | PSH, ACK | CWR, ACK | ECE]),
            len in 1_usize..30_000,
            size in 500_u16..1449,
        ) {
            let payload: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
            prop_assume!(len > usize::from(size));
            let pool = Pool::new(64, CHUNK_SIZE).unwrap();
            let made = super_frame(is_v4, flags, &payload, size);
            let (framing, (frame, virtio)) = if is_tun {
                (Framing::Ip, without_ethernet(made))
            } else {
                (Framing::Ethernet, made)
            };
            let packets = segments_on(framing, &pool, &frame, virtio);
            prop_assert_eq!(sent_on(framing, &packets), [[&virtio[..], &frame].concat()]);
        }
    }

    /// Each difference that segmentation would not make keeps segments apart.
    #[test]
    fn what_does_not_belong_together_stays_apart() {
        type Change = fn(&mut Packet);
        let at = |packet: &mut Packet, at: usize| packet.octets_mut()[at] ^= 1;
        let changes: [(&str, Change); 14] = [
            ("another station", |packet| packet.octets_mut()[0] ^= 2),
            ("another class of service", |packet| packet.octets_mut()[15] ^= 4),
            ("an identification out of turn", |packet| packet.octets_mut()[19] ^= 1),
            ("it may be fragmented", |packet| packet.octets_mut()[20] ^= 0x40),
            ("fewer hops", |packet| packet.octets_mut()[22] ^= 1),
            ("another destination", |packet| packet.octets_mut()[33] ^= 1),
            ("another port", |packet| packet.octets_mut()[35] ^= 1),
            ("a gap", |packet| packet.octets_mut()[41] ^= 1),
            ("another acknowledgement", |packet| packet.octets_mut()[45] ^= 1),
            ("it is urgent", |packet| packet.octets_mut()[47] |= 0x20),
            ("another window", |packet| packet.octets_mut()[48] ^= 1),
            ("another time", |packet| packet.octets_mut()[61] ^= 1),
            ("its checksum is complete", |packet| packet.meta_mut().checksum = State::Complete),
            ("padding", |packet| packet.append(&[0]).unwrap()),
        ];
        for (name, change) in changes {
            let pool = Pool::new(8, CHUNK_SIZE).unwrap();
            let (frame, virtio) = super_frame(true, ACK, &[7; 3000], 1000);
            let mut packets = segments(&pool, &frame, virtio);
            assert_eq!(sent(&packets).len(), 1);
            change(&mut packets[1]);
            let lengths: Vec<_> = sent(&packets).iter().map(Vec::len).collect();
            assert!(lengths.len() >= 2, "{name}: {lengths:?}");
            assert_eq!(lengths[0], VIRTIO_LEN + 66 + 1000, "{name}");
        }
        let pool = Pool::new(8, CHUNK_SIZE).unwrap();
        let (frame, virtio) = super_frame(true, ACK, &[7; 3000], 1000);
        let mut packets = segments(&pool, &frame, virtio);
        at(&mut packets[0], 12);
        assert_eq!(sent(&packets)[0].len(), VIRTIO_LEN + 66 + 1000, "of no kind that is known");
        // One that was pushed, or a short one, ends a super-frame.
        let mut packets = segments(&pool, &frame, virtio);
        packets[1].octets_mut()[47] |= PSH;
        let lengths: Vec<_> = sent(&packets).iter().map(Vec::len).collect();
        assert_eq!(lengths, [VIRTIO_LEN + 66 + 2000, VIRTIO_LEN + 66 + 1000]);
    }

    /// A device that refuses super-frames gets segments, first of those that it refused, then of all;
    /// one that takes some is tried again.
    #[test]
    fn refused_super_frames_leave_as_segments() {
        let pool = Pool::new(8, CHUNK_SIZE).unwrap();
        let (frame, virtio) = super_frame(true, ACK, &[7; 3000], 1000);
        let packets = segments(&pool, &frame, virtio);
        let mut outgoing = Outgoing::new(Framing::Ethernet);
        let counts = |outgoing: &Outgoing| {
            outgoing.frames().iter().map(|frame| frame.packets).collect::<Vec<_>>()
        };
        let refuse = |outgoing: &mut Outgoing| {
            outgoing.plan(&packets);
            assert_eq!(counts(outgoing), [3]);
            outgoing.split(0);
            assert_eq!(counts(outgoing), [1, 1, 1]);
        };
        (1..REFUSED_MAX).for_each(|_| refuse(&mut outgoing));
        outgoing.plan(&packets);
        outgoing.taken(0);
        (0..REFUSED_MAX).for_each(|_| refuse(&mut outgoing));
        outgoing.plan(&packets);
        assert_eq!(counts(&outgoing), [1, 1, 1]);
    }

    /// No super-frame is larger than an IP packet can be.
    #[test]
    fn a_super_frame_ends_at_the_largest_packet() {
        let pool = Pool::new(128, CHUNK_SIZE).unwrap();
        let (first, virtio) = super_frame(true, ACK, &vec![1; 60_000], 1000);
        let (mut next, _) = super_frame(true, ACK, &vec![2; 10_000], 1000);
        next[18..20].copy_from_slice(&(0xfffe_u16.wrapping_add(60)).to_be_bytes());
        next[38..42].copy_from_slice(&0xffff_ff00_u32.wrapping_add(60_000).to_be_bytes());
        let mut packets = segments(&pool, &first, virtio);
        packets.extend(segments(&pool, &next, virtio));
        let lengths: Vec<_> = sent(&packets).iter().map(Vec::len).collect();
        assert_eq!(lengths, [VIRTIO_LEN + 66 + 65_000, VIRTIO_LEN + 66 + 5000]);
    }
}
