//! Fragmentation (RFC 791 §2.3, §3.2).

use super::header;
use crate::{Out, arp::NO_FRAME};
use gatewright_packet::{Checksum, Packet};
use gatewright_wire::{
    ipv4::{FRAGMENT_UNIT, HEADER_LEN_MAX, Ipv4, Ipv4Mut, Ipv4Option},
    partial::{self, Framing},
};

/// Sends `packet` in fragments of at most `mtu` octets.
pub(super) fn send(
    mut packet: Packet,
    mtu: usize,
    push: impl Fn(Packet, &mut Out<'_>),
    out: &mut Out<'_>,
) {
    if packet.meta().checksum == Checksum::Partial {
        // It covers the whole datagram, which nobody sees after this.
        partial::complete(packet.octets_mut(), Framing::Ip);
        packet.meta_mut().checksum = Checksum::Complete;
    }
    let Some(cut) = Cut::of(packet.octets(), mtu) else {
        out.drop(super::MISUSE, packet);
        return;
    };
    let mut header = cut.first_header;
    let mut done = 0;
    while done < cut.payload.len() {
        let room = (mtu - header.as_slice().len()) / FRAGMENT_UNIT * FRAGMENT_UNIT;
        let end = (done + room).min(cut.payload.len());
        let piece = cut.payload.get(done..end).unwrap_or_default();
        let Some(fragment) = cut.fragment(header, done, piece, &packet, out) else {
            // Without this one the rest is of no use.
            out.count(NO_FRAME);
            return;
        };
        push(fragment, out);
        done = end;
        header = cut.later_header;
    }
}

/// A datagram to be fragmented.
struct Cut<'p> {
    first_header: HeaderOctets,
    later_header: HeaderOctets,
    payload: &'p [u8],
    /// Offset of the payload in a larger datagram, in octets.
    start: usize,
    /// Whether fragments follow the last of these.
    more: bool,
}

impl<'p> Cut<'p> {
    fn of(octets: &'p [u8], mtu: usize) -> Option<Self> {
        let (view, _) = Ipv4::split(octets).ok()?;
        let (header, payload) = octets.split_at_checked(view.header_len())?;
        if mtu < header.len() + FRAGMENT_UNIT {
            return None;
        }
        let first_header = HeaderOctets::of(header)?;
        let later_header = first_header.for_later_fragments()?;
        let start = usize::from(view.fragment_offset()) * FRAGMENT_UNIT;
        Some(Self { first_header, later_header, payload, start, more: view.more_fragments() })
    }

    fn fragment(
        &self,
        header: HeaderOctets,
        done: usize,
        piece: &[u8],
        whole: &Packet,
        out: &Out<'_>,
    ) -> Option<Packet> {
        let header = header.as_slice();
        let last = done + piece.len() == self.payload.len();
        let mut fragment = out.frames().packet()?;
        fragment.append(header).ok()?;
        fragment.append(piece).ok()?;
        *fragment.meta_mut() = *whole.meta();
        fragment.set_received_ns(whole.received_ns());
        let total_length = u16::try_from(fragment.len()).ok()?;
        let offset = u16::try_from((self.start + done) / FRAGMENT_UNIT).ok()?;
        let octets = fragment.octets_mut();
        let mut view = Ipv4Mut::of(octets.first_chunk_mut()?);
        view.set_total_length(total_length);
        view.set_fragment_offset(offset);
        view.set_flags(if last && !self.more { 0 } else { Ipv4::MORE_FRAGMENTS });
        header::finish(octets, header.len());
        Some(fragment)
    }
}

/// A header with its options, by value.
#[derive(Clone, Copy)]
struct HeaderOctets {
    octets: [u8; HEADER_LEN_MAX],
    len: usize,
}

impl HeaderOctets {
    fn of(header: &[u8]) -> Option<Self> {
        let mut octets = [0; HEADER_LEN_MAX];
        octets.get_mut(..header.len())?.copy_from_slice(header);
        Some(Self { octets, len: header.len() })
    }

    fn as_slice(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }

    /// With only those options that go into every fragment (RFC 791 §3.1).
    fn for_later_fragments(&self) -> Option<Self> {
        let mut later = Self::of(self.octets.get(..Ipv4::LEN)?)?;
        let mut rest = self.as_slice().get(Ipv4::LEN..)?;
        while let [kind, tail @ ..] = rest {
            let len = match (*kind, tail) {
                (Ipv4Option::END, _) => break,
                (Ipv4Option::NO_OPERATION, _) => 1,
                (_, [len, ..]) if *len >= 2 => usize::from(*len),
                _ => return None,
            };
            let (option, after) = rest.split_at_checked(len)?;
            if Ipv4Option::is_copied(*kind) {
                later.octets.get_mut(later.len..later.len + len)?.copy_from_slice(option);
                later.len += len;
            }
            rest = after;
        }
        // The rest of the last word is zero, which is the end of the list.
        later.len = later.len.next_multiple_of(4);
        let ihl = u8::try_from(later.len / 4).ok()?;
        Ipv4Mut::of(later.octets.first_chunk_mut()?).set_ihl(ihl);
        Some(later)
    }
}
