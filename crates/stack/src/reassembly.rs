//! Reassembly of fragments, for both families (RFC 791 §3.2, RFC 8200 §4.5, RFC 5722).
//!
//! Fragments wait in their own chunks, uncopied, until the last one arrives; then they are joined
//! in one chunk of the datagram slab. Everything has a limit. When a limit is reached, a source
//! that holds a quarter gives up its oldest packet, so that a flood harms its own sender first. If
//! there is no such source, the oldest packet of all goes.

use crate::{Out, Reason, Reassembling, ReassemblyState, Trace};
use gatewright_packet::{LinkIndex, Packet};
use gatewright_wire::{
    IpProtocol,
    ipv4::{Ipv4, Ipv4Mut},
    ipv6::{FRAGMENT_UNIT, Fragment, Ipv6, Ipv6Mut},
};
use std::{net::IpAddr, time::Duration};

/// Maximum packets that wait for fragments.
pub(crate) const REASSEMBLIES_MAX: usize = 256;

/// Maximum packets of one source that wait for fragments.
pub(crate) const REASSEMBLIES_OF_SOURCE_MAX: usize = 64;

/// Maximum fragments of one packet: 65,535 octets that were cut for an MTU of 1500 and again for
/// one of 296 are 266.
pub(crate) const FRAGMENTS_MAX: usize = 512;

/// Maximum waiting fragments in all, each holding a chunk of the slab.
pub(crate) const FRAGMENTS_HELD_MAX: usize = 1024;

/// The divisor of the slab's chunks that gives the maximum for waiting fragments.
const SLAB_SHARE: usize = 8;

/// The divisor of the total from which a source counts as a flood when everything is taken.
const A_FLOOD: usize = 4;

/// Fragments for which a packet's list has room from the start: 9,000 octets over 1,500.
const PIECES_START: usize = 8;

/// How long a packet waits for its fragments (RFC 8200 §4.5: 60 seconds).
pub(crate) const REASSEMBLY_FOR: Duration = Duration::from_mins(1);

/// Maximum of the length field of an IP packet.
const LENGTH_MAX: usize = 65_535;

/// Fragments that overlap: the whole packet is dropped (RFC 5722 §4).
const OVERLAP: Reason = Reason("fragment-overlap");
/// A fragment that is there already.
const REPEATED: Reason = Reason("fragment-repeated");
/// A fragment reaches past 65,535 octets, or past the packet's end as another fragment has it.
const BEYOND_END: Reason = Reason("fragment-beyond-end");
/// A fragment of an impossible size.
const BAD_FRAGMENT: Reason = Reason("bad-fragment");
/// The packet has more fragments than are kept.
const TOO_MANY: Reason = Reason("too-many-fragments");
/// Congestion was marked on one fragment, and another is of a sender that does not know the mark
/// (RFC 3168 §5.3).
const CONGESTION: Reason = Reason("fragment-congestion");
/// A packet was given up for lack of room.
const EVICTED: Reason = Reason("reassembly-evicted");
/// A packet was given up at its timeout.
const TIMEOUT: Reason = Reason("reassembly-timeout");
/// No chunk was free for the whole packet.
const NO_DATAGRAM: Reason = Reason("no-datagram");

/// The key that identifies the fragments of one packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
    /// IPv4 only: the same identification may be used for another protocol.
    protocol: IpProtocol,
    /// The link of a link-local source: another host may have the same address on another link (RFC
    /// 4007 §6). Fragments of all others may come by any link.
    link: LinkIndex,
}

/// One fragment, with the position of its octets in the packet's payload.
#[derive(Debug)]
struct ReceivedFragment {
    start: usize,
    end: usize,
    /// Octets of headers before the piece's payload.
    headers: usize,
    /// IPv6 only: the octet that names the fragment header.
    next_header_at: usize,
    /// Its explicit congestion notification bits (RFC 3168 §5).
    ecn: u8,
    packet: Packet,
}

#[derive(Debug)]
struct PartialDatagram {
    key: Key,
    until: Duration,
    /// Sorted by `start`, without overlap.
    pieces: Vec<ReceivedFragment>,
    /// Octets of all pieces.
    filled: usize,
    /// Octets of the whole payload, once the last fragment is there.
    total: Option<usize>,
    /// The contradiction in its fragments: later ones are dropped too (RFC 5722 §4: "including
    /// those not yet received").
    refused: Option<Reason>,
}

/// The waiting packets of one source.
#[derive(Clone, Copy, Debug)]
struct SourceShare {
    source: IpAddr,
    slots: usize,
    fragments: usize,
}

/// The result of adding a fragment.
#[derive(Debug)]
pub(crate) enum Whole {
    /// It was the last missing one: the packet, without a fragment header.
    Packet(Packet),
    /// It waits, or was dropped and counted.
    NotYet,
    /// It is malformed: the packet, and the octet at fault.
    Problem(Packet, u32),
}

/// The result of adding a fragment, before reassembly.
enum Outcome {
    Complete(PartialDatagram),
    NotYet,
    Problem(Packet, Fault),
}

/// The error in a single fragment.
#[derive(Clone, Copy)]
enum Fault {
    /// Its length.
    Length,
    /// The octet after its last.
    End,
}

/// Packets that wait for fragments.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Oldest first.
    slots: Vec<PartialDatagram>,
    /// Their sources, in order of arrival.
    shares: Vec<SourceShare>,
    held: usize,
    /// The lists of finished packets, for reuse.
    spare: Vec<Vec<ReceivedFragment>>,
}

impl Reassembly {
    /// Takes an IPv4 fragment, header in front.
    pub(crate) fn ipv4(&mut self, packet: Packet, now: Duration, out: &mut Out<'_>) -> Whole {
        let Ok((ip, _)) = Ipv4::split(packet.octets()) else { return Whole::NotYet };
        let headers = usize::from(ip.ihl()) * 4;
        let is_link_local = ip.source_address().is_link_local();
        let key = Key {
            source: ip.source_address().into(),
            destination: ip.destination_address().into(),
            identification: ip.identification().into(),
            protocol: ip.protocol(),
            link: if is_link_local { packet.meta().ingress } else { LinkIndex::NONE },
        };
        let (start, more, ecn) = (ip.fragment_start(), ip.more_fragments(), ip.ecn());
        let piece = ReceivedFragment::new(start, headers, ecn, packet);
        let slot = match self.insert(key, more, piece, headers, now, out) {
            Outcome::Complete(slot) => slot,
            Outcome::NotYet => return Whole::NotYet,
            Outcome::Problem(packet, fault) => {
                let reason = match fault {
                    Fault::Length => BAD_FRAGMENT,
                    Fault::End => BEYOND_END,
                };
                out.drop(reason, packet);
                return Whole::NotYet;
            }
        };
        let headers = slot.pieces.first().map_or(headers, |first| first.headers);
        let whole = slot.finish(headers, headers, out);
        self.recycle(slot.pieces);
        let Some((mut whole, length, ecn)) = whole else { return Whole::NotYet };
        if let Some(header) = whole.octets_mut().first_chunk_mut() {
            let mut ip = Ipv4Mut::of(header);
            let type_of_service = ip.view().type_of_service() & !ECN_BITS | ecn;
            ip.set_type_of_service(type_of_service);
            ip.set_total_length(length);
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

    /// Takes an IPv6 fragment, IPv6 header in front and fragment header at `offset`;
    /// `next_header_at` is the position of the octet that names the fragment header.
    pub(crate) fn ipv6(
        &mut self,
        packet: Packet,
        offset: usize,
        next_header_at: usize,
        now: Duration,
        out: &mut Out<'_>,
    ) -> Whole {
        /// Position of the payload length in the IPv6 header.
        const LENGTH_AT: usize = 4;
        /// Position of the fragment offset in the fragment header.
        const OFFSET_AT: usize = 2;
        let octets = packet.octets();
        let (Ok((ip, _)), Ok((fragment, _))) =
            (Ipv6::split(octets), Fragment::split(octets.get(offset..).unwrap_or_default()))
        else {
            return Whole::NotYet;
        };
        let is_link_local = ip.source_address().is_unicast_link_local();
        let key = Key {
            source: ip.source_address().into(),
            destination: ip.destination_address().into(),
            identification: fragment.identification(),
            protocol: IpProtocol::FRAGMENT,
            link: if is_link_local { packet.meta().ingress } else { LinkIndex::NONE },
        };
        let (start, more, ecn) = (fragment.fragment_start(), fragment.more_fragments(), ip.ecn());
        let piece = ReceivedFragment::new(start, offset + Fragment::LEN, ecn, packet);
        let piece = ReceivedFragment { next_header_at, ..piece };
        let extension = offset.saturating_sub(Ipv6::LEN);
        let slot = match self.insert(key, more, piece, extension, now, out) {
            Outcome::Complete(slot) => slot,
            Outcome::NotYet => return Whole::NotYet,
            Outcome::Problem(packet, fault) => {
                let at = match fault {
                    Fault::Length => LENGTH_AT,
                    Fault::End => offset + OFFSET_AT,
                };
                return Whole::Problem(packet, u32::try_from(at).unwrap_or(u32::MAX));
            }
        };
        // RFC 8200 §4.5: the headers are those of the first fragment, and so is the next header.
        let first = slot.pieces.first();
        let offset = first.map_or(offset, |first| first.headers - Fragment::LEN);
        let next_header_at = first.map_or(next_header_at, |first| first.next_header_at);
        let next_header = first.and_then(|first| first.packet.octets().get(offset)).copied();
        let whole = slot.finish(offset, offset.saturating_sub(Ipv6::LEN), out);
        self.recycle(slot.pieces);
        let Some((mut whole, length, ecn)) = whole else { return Whole::NotYet };
        if let Some(header) = whole.octets_mut().first_chunk_mut() {
            let mut ip = Ipv6Mut::of(header);
            let traffic_class = ip.view().traffic_class() & !ECN_BITS | ecn;
            ip.set_traffic_class(traffic_class);
            ip.set_payload_length(length);
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

    /// Gives up one packet at its timeout; its first fragment, if it came, is to be answered by a
    /// *time exceeded* (RFC 792, RFC 8200 §4.5). Call it until it returns nothing.
    pub(crate) fn expire(&mut self, out: &mut Out<'_>) -> Option<Packet> {
        while self.slots.first().is_some_and(|slot| slot.until <= out.now()) {
            let mut slot = self.take(0)?;
            out.count(TIMEOUT);
            slot.trace(ReassemblyState::GivenUp(TIMEOUT), out);
            let first = slot.pieces.drain(..).next().filter(|first| first.start == 0);
            self.recycle(slot.pieces);
            if let Some(first) = first {
                return Some(first.packet);
            }
        }
        None
    }

    /// Adds a fragment to its packet, whose length field counts `headers` octets beside the
    /// payload.
    fn insert(
        &mut self,
        key: Key,
        more: bool,
        piece: ReceivedFragment,
        headers: usize,
        now: Duration,
        out: &mut Out<'_>,
    ) -> Outcome {
        let len = piece.end.saturating_sub(piece.start);
        // RFC 8200 §4.5: all but the last are multiples of 8 octets, and the length of the whole has
        // to fit its field.
        if len == 0 || (more && !len.is_multiple_of(FRAGMENT_UNIT)) {
            return Outcome::Problem(piece.packet, Fault::Length);
        }
        if piece.end + headers > LENGTH_MAX {
            return Outcome::Problem(piece.packet, Fault::End);
        }
        let index = match self.slots.iter().position(|slot| slot.key == key) {
            Some(index) => index,
            None => self.open(key, now, out),
        };
        let Some(slot) = self.slots.get_mut(index) else { return Outcome::NotYet };
        match slot.put(piece, more) {
            Ok(()) => self.add_held(index),
            Err(reason) => {
                out.count(reason);
                match reason {
                    REPEATED => {}
                    // The sender has done nothing wrong: another packet may have this identification.
                    TOO_MANY => {
                        if let Some(slot) = self.take(index) {
                            slot.trace(ReassemblyState::GivenUp(TOO_MANY), out);
                            self.recycle(slot.pieces);
                        }
                    }
                    _ => self.refuse(index, reason, out),
                }
                return Outcome::NotYet;
            }
        }
        if self.slots.get(index).is_some_and(PartialDatagram::is_complete) {
            return self.take(index).map_or(Outcome::NotYet, Outcome::Complete);
        }
        if let Some(slot) = self.slots.get(index) {
            slot.trace(ReassemblyState::Waiting, out);
        }
        // However large the slab is, most of it stays for frames that come and go.
        let held_max = FRAGMENTS_HELD_MAX.min(out.frames().capacity() / SLAB_SHARE);
        while self.held > held_max && !self.slots.is_empty() {
            self.evict_from_most(|share| share.fragments, held_max, out);
        }
        Outcome::NotYet
    }

    /// Makes room for one more packet of a source: at the cost of its own oldest if it has its
    /// share already, else by [`Self::evict_from_most`].
    fn open(&mut self, key: Key, now: Duration, out: &mut Out<'_>) -> usize {
        let share = self.shares.iter().find(|share| share.source == key.source);
        if share.is_some_and(|share| share.slots >= REASSEMBLIES_OF_SOURCE_MAX) {
            let oldest = self.slots.iter().position(|slot| slot.key.source == key.source);
            self.evict(oldest.unwrap_or(0), out);
        } else if self.slots.len() >= REASSEMBLIES_MAX {
            self.evict_from_most(|share| share.slots, REASSEMBLIES_MAX, out);
        }
        let pieces = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(PIECES_START));
        let until = now + REASSEMBLY_FOR;
        self.slots.push(PartialDatagram {
            key,
            until,
            pieces,
            filled: 0,
            total: None,
            refused: None,
        });
        match self.shares.iter_mut().find(|share| share.source == key.source) {
            Some(share) => share.slots += 1,
            None => self.shares.push(SourceShare { source: key.source, slots: 1, fragments: 0 }),
        }
        self.slots.len() - 1
    }

    /// Gives up the oldest packet of the source with the most by `size`, if that is [`A_FLOOD`] of
    /// `max`, else the oldest of all: many sources with little each are not a flood.
    fn evict_from_most(
        &mut self,
        size: impl Fn(&SourceShare) -> usize,
        max: usize,
        out: &mut Out<'_>,
    ) {
        let flood = self.shares.iter().filter(|share| size(share) >= max / A_FLOOD);
        let source = flood.max_by_key(|share| size(share)).map(|share| share.source);
        let oldest = self.slots.iter().position(|slot| Some(slot.key.source) == source);
        self.evict(oldest.unwrap_or(0), out);
    }

    fn evict(&mut self, index: usize, out: &mut Out<'_>) {
        if let Some(slot) = self.take(index) {
            out.count(EVICTED);
            slot.trace(ReassemblyState::GivenUp(EVICTED), out);
            self.recycle(slot.pieces);
        }
    }

    /// Drops all fragments of a packet, and refuses later ones.
    fn refuse(&mut self, index: usize, reason: Reason, out: &mut Out<'_>) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.trace(ReassemblyState::GivenUp(reason), out);
        let (source, fragments) = (slot.key.source, slot.pieces.len());
        slot.pieces.clear();
        slot.refused = Some(reason);
        self.held -= fragments;
        if let Some(share) = self.shares.iter_mut().find(|share| share.source == source) {
            share.fragments -= fragments;
        }
    }

    /// Counts one more fragment of the packet at `index`.
    fn add_held(&mut self, index: usize) {
        self.held += 1;
        let Some(source) = self.slots.get(index).map(|slot| slot.key.source) else { return };
        if let Some(share) = self.shares.iter_mut().find(|share| share.source == source) {
            share.fragments += 1;
        }
    }

    /// Takes a packet out.
    fn take(&mut self, index: usize) -> Option<PartialDatagram> {
        self.slots.get(index)?;
        let slot = self.slots.remove(index);
        self.held -= slot.pieces.len();
        let share = self.shares.iter().position(|share| share.source == slot.key.source)?;
        if let Some(own) = self.shares.get_mut(share) {
            own.slots -= 1;
            own.fragments -= slot.pieces.len();
            if own.slots == 0 {
                self.shares.remove(share);
            }
        }
        Some(slot)
    }

    /// Keeps the list's memory for the next packet.
    fn recycle(&mut self, mut pieces: Vec<ReceivedFragment>) {
        pieces.clear();
        if self.spare.len() < REASSEMBLIES_MAX {
            self.spare.push(pieces);
        }
    }
}

impl ReceivedFragment {
    fn new(start: usize, headers: usize, ecn: u8, packet: Packet) -> Self {
        let end = start + packet.len().saturating_sub(headers);
        Self { start, end, headers, next_header_at: 0, ecn, packet }
    }
}

impl PartialDatagram {
    /// Puts a piece in its place; refuses one that contradicts the others.
    fn put(&mut self, piece: ReceivedFragment, more: bool) -> Result<(), Reason> {
        if let Some(reason) = self.refused {
            return Err(reason);
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
        self.filled += piece.end - piece.start;
        self.pieces.insert(index, piece);
        Ok(())
    }

    /// Whether nothing is missing: pieces that neither overlap nor reach past the end fill the whole
    /// if they have as many octets.
    fn is_complete(&self) -> bool {
        self.total == Some(self.filled)
    }

    /// As [`Self::join`]; a packet that cannot be joined is counted by its reason.
    fn finish(
        &self,
        headers: usize,
        counted: usize,
        out: &mut Out<'_>,
    ) -> Option<(Packet, u16, u8)> {
        match self.join(headers, counted, out) {
            Ok((mut whole, length, ecn)) => {
                self.trace(ReassemblyState::Complete, out);
                if out.trace.is_some() && self.is_traced() {
                    Trace::continue_with(&mut whole);
                }
                Some((whole, length, ecn))
            }
            Err(reason) => {
                out.count(reason);
                self.trace(ReassemblyState::GivenUp(reason), out);
                None
            }
        }
    }

    /// Joins the packet from the first `headers` octets of the first piece and every piece's
    /// payload. Also returns its length field, which counts `counted` octets of headers, and its
    /// explicit congestion notification bits.
    fn join(
        &self,
        headers: usize,
        counted: usize,
        out: &Out<'_>,
    ) -> Result<(Packet, u16, u8), Reason> {
        let first = self.pieces.first().ok_or(BAD_FRAGMENT)?;
        let ecn = self.ecn().ok_or(CONGESTION)?;
        // The first fragment may have more headers than the others, by which they were taken.
        let length = u16::try_from(self.filled + counted).map_err(|_| BEYOND_END)?;
        let mut whole = out.datagrams().packet().ok_or(NO_DATAGRAM)?;
        let mut append = |octets: Option<&[u8]>| {
            whole.append(octets.ok_or(BAD_FRAGMENT)?).map_err(|_| BEYOND_END)
        };
        append(first.packet.octets().get(..headers))?;
        for piece in &self.pieces {
            append(piece.packet.octets().get(piece.headers..))?;
        }
        *whole.meta_mut() = *first.packet.meta();
        whole.set_received_ns(first.packet.received_ns());
        Ok((whole, length, ecn))
    }

    /// Whether a trace follows one of its fragments.
    fn is_traced(&self) -> bool {
        self.pieces.iter().any(|piece| Trace::is_traced(&piece.packet))
    }

    /// Tells its state to the trace that follows one of its fragments.
    fn trace(&self, state: ReassemblyState, out: &mut Out<'_>) {
        let Some(trace) = &mut out.trace else { return };
        if self.is_traced() {
            let (fragments, octets) = (self.pieces.len(), self.filled);
            trace.reassembling(Reassembling { state, fragments, octets, total: self.total });
        }
    }

    /// RFC 3168 §5.3: "if any fragment of an IP packet to be reassembled has the CE codepoint set",
    /// the whole has it; but "this MUST NOT occur if any of the other fragments … carries the
    /// Not-ECT codepoint": then the packet is dropped.
    fn ecn(&self) -> Option<u8> {
        let any = |codepoint| self.pieces.iter().any(|piece| piece.ecn == codepoint);
        match (any(CONGESTION_EXPERIENCED), any(NOT_ECN_CAPABLE)) {
            (true, true) => None,
            (true, false) => Some(CONGESTION_EXPERIENCED),
            _ => self.pieces.first().map(|first| first.ecn),
        }
    }
}

/// The explicit congestion notification bits of both families' octet (RFC 3168 §5).
const ECN_BITS: u8 = 0b11;
/// A router was congested (CE).
const CONGESTION_EXPERIENCED: u8 = 0b11;
/// The sender does not support congestion notification (Not-ECT).
const NOT_ECN_CAPABLE: u8 = 0b00;
