//! Fragments back to packets, for both families (RFC 791 §3.2, RFC 8200 §4.5, RFC 5722).
//!
//! Fragments wait in their own chunks, uncopied, until the last one is there; then they are put
//! together in one chunk of the datagram slab. Everything is bounded, and a flood from one source
//! evicts that source's own packets first.

use crate::{Out, Reason};
use gatewright_packet::Packet;
use gatewright_wire::{
    IpProtocol,
    ipv4::{Ipv4, Ipv4Mut},
    ipv6::{FRAGMENT_UNIT, Fragment, Ipv6, Ipv6Mut},
};
use std::{net::IpAddr, time::Duration};

/// Packets that wait for fragments at the most.
pub(crate) const REASSEMBLIES_MAX: usize = 256;

/// Packets of one source that wait for fragments at the most.
pub(crate) const REASSEMBLIES_OF_SOURCE_MAX: usize = 64;

/// Fragments of one packet at the most: 65,535 octets in pieces of 512 and some.
pub(crate) const FRAGMENTS_MAX: usize = 128;

/// Fragments that wait in all at the most, each holding a chunk of the slab.
pub(crate) const FRAGMENTS_HELD_MAX: usize = 1024;

/// Fragments that wait hold at most one of so many chunks of the slab.
const SLAB_SHARE: usize = 8;

/// Fragments for which a packet's list has room from the start: 9,000 octets over 1,500.
const PIECES_START: usize = 8;

/// How long a packet waits for its fragments (RFC 8200 §4.5: 60 seconds).
pub(crate) const REASSEMBLY_FOR: Duration = Duration::from_mins(1);

/// Octets of an IP packet's length field at the most.
const LENGTH_MAX: usize = 65_535;

/// Fragments that overlap: the whole packet is dropped (RFC 5722 §4).
const OVERLAP: Reason = Reason("fragment-overlap");
/// A fragment that is there already.
const REPEATED: Reason = Reason("fragment-repeated");
/// A fragment reaches past 65,535 octets, or past the packet's end as another fragment has it.
const BEYOND_END: Reason = Reason("fragment-beyond-end");
/// The packet has more fragments than are kept.
const TOO_MANY: Reason = Reason("too-many-fragments");
/// A packet was given up for room.
const EVICTED: Reason = Reason("reassembly-evicted");
/// A packet was given up for time.
const TIMEOUT: Reason = Reason("reassembly-timeout");
/// No chunk was free for the whole packet.
const NO_DATAGRAM: Reason = Reason("no-datagram");

/// What tells the fragments of one packet from those of others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
    /// IPv4 only: the same identification may be used for another protocol.
    protocol: IpProtocol,
}

/// One fragment: where its octets stand in the packet's payload.
#[derive(Debug)]
struct Piece {
    start: usize,
    end: usize,
    /// Octets of headers before the piece's payload.
    headers: usize,
    packet: Packet,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    until: Duration,
    /// Sorted by `start`, without overlap.
    pieces: Vec<Piece>,
    /// Octets of the whole payload, once the last fragment is there.
    total: Option<usize>,
    /// Its fragments contradicted each other: what still comes of it is dropped too (RFC 5722 §4:
    /// "including those not yet received").
    refused: bool,
}

/// What became of a fragment.
#[derive(Debug)]
pub(crate) enum Whole {
    /// It was the last one missing: the packet, without a fragment header.
    Packet(Packet),
    /// It waits, or was dropped and counted.
    NotYet,
    /// It is malformed: the packet, and the octet at fault.
    Problem(Packet, u32),
}

/// What became of a fragment, before the packet is put together.
enum Outcome {
    Complete(Slot),
    NotYet,
    Problem(Packet),
}

/// Packets that wait for fragments.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Oldest first.
    slots: Vec<Slot>,
    held: usize,
    /// The lists of packets that are done, to be used again.
    spare: Vec<Vec<Piece>>,
}

impl Reassembly {
    /// Takes an IPv4 fragment, header in front.
    pub(crate) fn ipv4(&mut self, packet: Packet, now: Duration, out: &mut Out<'_>) -> Whole {
        /// Where the total length stands in the header.
        const LENGTH_AT: u32 = 2;
        let Ok((ip, _)) = Ipv4::split(packet.octets()) else { return Whole::NotYet };
        let headers = usize::from(ip.ihl()) * 4;
        let key = Key {
            source: ip.source_address().into(),
            destination: ip.destination_address().into(),
            identification: ip.identification().into(),
            protocol: ip.protocol(),
        };
        let start = usize::from(ip.fragment_offset()) * FRAGMENT_UNIT;
        let more = ip.more_fragments();
        let slot = match self.insert(key, more, piece(start, headers, packet), now, out) {
            Outcome::Complete(slot) => slot,
            Outcome::NotYet => return Whole::NotYet,
            Outcome::Problem(packet) => return Whole::Problem(packet, LENGTH_AT),
        };
        let headers = slot.pieces.first().map_or(headers, |first| first.headers);
        let whole = slot.join(headers, out);
        self.recycle(slot.pieces);
        let Some(mut whole) = whole else { return Whole::NotYet };
        let total = u16::try_from(whole.len()).unwrap_or(u16::MAX);
        if let Some(header) = whole.octets_mut().first_chunk_mut() {
            let mut ip = Ipv4Mut::of(header);
            ip.set_total_length(total);
            ip.set_flags(0);
            ip.set_fragment_offset(0);
            ip.set_header_checksum(0);
        }
        let checksum = gatewright_wire::checksum::of(whole.octets().get(..headers).unwrap_or(&[]));
        if let Some(header) = whole.octets_mut().first_chunk_mut() {
            Ipv4Mut::of(header).set_header_checksum(checksum);
        }
        Whole::Packet(whole)
    }

    /// Takes an IPv6 fragment, IPv6 header in front and fragment header at `offset`; the octet that
    /// names the fragment header stands at `next_header_at`.
    pub(crate) fn ipv6(
        &mut self,
        packet: Packet,
        offset: usize,
        next_header_at: usize,
        now: Duration,
        out: &mut Out<'_>,
    ) -> Whole {
        /// Where the payload length stands in the header.
        const LENGTH_AT: u32 = 4;
        let octets = packet.octets();
        let (Ok((ip, _)), Ok((fragment, _))) =
            (Ipv6::split(octets), Fragment::split(octets.get(offset..).unwrap_or_default()))
        else {
            return Whole::NotYet;
        };
        let key = Key {
            source: ip.source_address().into(),
            destination: ip.destination_address().into(),
            identification: fragment.identification(),
            protocol: IpProtocol::FRAGMENT,
        };
        let (start, more) = (fragment.fragment_start(), fragment.more_fragments());
        let headers = offset + Fragment::LEN;
        let slot = match self.insert(key, more, piece(start, headers, packet), now, out) {
            Outcome::Complete(slot) => slot,
            Outcome::NotYet => return Whole::NotYet,
            Outcome::Problem(packet) => return Whole::Problem(packet, LENGTH_AT),
        };
        // RFC 8200 §4.5: the headers are those of the first fragment, and so is the next header.
        let first = slot.pieces.first().map(|first| first.headers - Fragment::LEN);
        let offset = first.unwrap_or(offset);
        let next_header = slot.pieces.first().and_then(|first| first.packet.octets().get(offset));
        let next_header = next_header.copied();
        let whole = slot.join(offset, out);
        self.recycle(slot.pieces);
        let Some(mut whole) = whole else { return Whole::NotYet };
        let length = u16::try_from(whole.len() - Ipv6::LEN).unwrap_or(u16::MAX);
        if let Some(header) = whole.octets_mut().first_chunk_mut() {
            Ipv6Mut::of(header).set_payload_length(length);
        }
        if let (Some(octet), Some(next_header)) =
            (whole.octets_mut().get_mut(next_header_at), next_header)
        {
            *octet = next_header;
        }
        Whole::Packet(whole)
    }

    /// When the oldest packet is given up.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.slots.first().map(|slot| slot.until)
    }

    /// Gives up one packet whose time is over; its first fragment, if it came, is to be answered by
    /// a *time exceeded* (RFC 792, RFC 8200 §4.5). To be called until it gives nothing.
    pub(crate) fn expire(&mut self, out: &mut Out<'_>) -> Option<Packet> {
        while self.slots.first().is_some_and(|slot| slot.until <= out.now()) {
            let mut slot = self.slots.remove(0);
            self.held -= slot.pieces.len();
            out.count(TIMEOUT);
            let first = slot.pieces.drain(..).next().filter(|first| first.start == 0);
            self.recycle(slot.pieces);
            if let Some(first) = first {
                return Some(first.packet);
            }
        }
        None
    }

    /// Puts a fragment to the others of its packet.
    fn insert(
        &mut self,
        key: Key,
        more: bool,
        piece: Piece,
        now: Duration,
        out: &mut Out<'_>,
    ) -> Outcome {
        let len = piece.end.saturating_sub(piece.start);
        // RFC 8200 §4.5: all but the last are multiples of 8 octets, and the whole has at most
        // 65,535.
        if len == 0 || (more && !len.is_multiple_of(FRAGMENT_UNIT)) {
            return Outcome::Problem(piece.packet);
        }
        if piece.end > LENGTH_MAX {
            out.count(BEYOND_END);
            return Outcome::Problem(piece.packet);
        }
        let index = match self.slots.iter().position(|slot| slot.key == key) {
            Some(index) => index,
            None => self.open(key, now, out),
        };
        let Some(slot) = self.slots.get_mut(index) else { return Outcome::NotYet };
        let held = slot.pieces.len();
        match slot.put(piece, more) {
            Ok(()) => {}
            Err(REPEATED) => {
                out.count(REPEATED);
                return Outcome::NotYet;
            }
            Err(reason) => {
                out.count(reason);
                self.held -= held;
                slot.pieces.clear();
                slot.refused = true;
                return Outcome::NotYet;
            }
        }
        self.held += 1;
        if slot.is_complete() {
            self.held -= slot.pieces.len();
            return Outcome::Complete(self.slots.remove(index));
        }
        // However large the slab is, most of it stays for frames that come and go.
        let held_max = FRAGMENTS_HELD_MAX.min(out.frames().capacity() / SLAB_SHARE);
        while self.held > held_max && !self.slots.is_empty() {
            self.evict(0, out);
        }
        Outcome::NotYet
    }

    /// Makes room for one more packet of a source, at the cost of that source's oldest if it has
    /// its share already, else of the oldest of all.
    fn open(&mut self, key: Key, now: Duration, out: &mut Out<'_>) -> usize {
        let of_source = |slot: &&Slot| slot.key.source == key.source;
        if self.slots.iter().filter(of_source).count() >= REASSEMBLIES_OF_SOURCE_MAX {
            let oldest = self.slots.iter().position(|slot| slot.key.source == key.source);
            self.evict(oldest.unwrap_or(0), out);
        } else if self.slots.len() >= REASSEMBLIES_MAX {
            self.evict(0, out);
        }
        let pieces = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(PIECES_START));
        let until = now + REASSEMBLY_FOR;
        self.slots.push(Slot { key, until, pieces, total: None, refused: false });
        self.slots.len() - 1
    }

    fn evict(&mut self, index: usize, out: &mut Out<'_>) {
        let slot = self.slots.remove(index);
        self.held -= slot.pieces.len();
        out.count(EVICTED);
        self.recycle(slot.pieces);
    }

    /// Keeps the list's memory for the next packet.
    fn recycle(&mut self, mut pieces: Vec<Piece>) {
        pieces.clear();
        if self.spare.len() < REASSEMBLIES_MAX {
            self.spare.push(pieces);
        }
    }
}

fn piece(start: usize, headers: usize, packet: Packet) -> Piece {
    let end = start + packet.len().saturating_sub(headers);
    Piece { start, end, headers, packet }
}

impl Slot {
    /// Puts a piece in its place; refuses one that contradicts the others.
    fn put(&mut self, piece: Piece, more: bool) -> Result<(), Reason> {
        if self.refused {
            return Err(OVERLAP);
        }
        if !more {
            let furthest = self.pieces.last().map_or(0, |last| last.end);
            if self.total.is_some_and(|total| total != piece.end) || furthest > piece.end {
                return Err(BEYOND_END);
            }
            self.total = Some(piece.end);
        } else if self.total.is_some_and(|total| piece.end > total) {
            return Err(BEYOND_END);
        }
        let index = self.pieces.partition_point(|other| other.start < piece.start);
        let before = index.checked_sub(1).and_then(|before| self.pieces.get(before));
        let behind = self.pieces.get(index);
        if behind.is_some_and(|other| other.start == piece.start && other.end == piece.end) {
            return Err(REPEATED);
        }
        if before.is_some_and(|other| other.end > piece.start)
            || behind.is_some_and(|other| other.start < piece.end)
        {
            return Err(OVERLAP);
        }
        if self.pieces.len() >= FRAGMENTS_MAX {
            return Err(TOO_MANY);
        }
        self.pieces.insert(index, piece);
        Ok(())
    }

    /// Whether the pieces reach from the first octet to the last without a gap.
    fn is_complete(&self) -> bool {
        let end =
            self.pieces.iter().try_fold(0, |end, piece| (piece.start == end).then_some(piece.end));
        self.total.is_some() && end == self.total
    }

    /// The whole packet: the first `headers` octets of the first piece, and every piece's payload.
    fn join(&self, headers: usize, out: &mut Out<'_>) -> Option<Packet> {
        let first = self.pieces.first()?;
        let Some(mut whole) = out.datagrams().packet() else {
            out.count(NO_DATAGRAM);
            return None;
        };
        let mut fits = whole.append(first.packet.octets().get(..headers)?).is_ok();
        for piece in &self.pieces {
            fits &= whole.append(piece.packet.octets().get(piece.headers..)?).is_ok();
        }
        if !fits {
            out.count(BEYOND_END);
            return None;
        }
        *whole.meta_mut() = *first.packet.meta();
        whole.set_received_ns(first.packet.received_ns());
        Some(whole)
    }
}
