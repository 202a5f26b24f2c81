//! Labelled frames as the thread sends and receives them: what the programs do not carry.
//!
//! An IP packet follows its label at once. Another frame is carried whole as an Ethernet pseudowire
//! with a control word (RFC 4448 §4.6), whose first four bits are 0. A message of the path itself
//! follows the Generic Associated Channel Label (RFC 5586), and begins with the bits 1.

use gatewright_mesh::PathClass;
use gatewright_wire::mpls::{Label, LabelStack};

/// Octets of an Ethernet header.
pub(crate) const HEADER_LEN: usize = 14;
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
/// EtherType of labelled packets (RFC 3032 §5).
pub(crate) const MPLS: u16 = 0x8847;

/// The TTL of a pushed entry.
const TTL: u8 = gatewright_tables::LABEL_TTL;
/// The control word of a pseudowire without sequence numbers (RFC 4448 §4.6).
const CONTROL_WORD: [u8; 4] = [0; 4];
/// An associated channel header of version 0 (RFC 5586 §2.1) with the first experimental channel
/// type (§10).
const CHANNEL: [u8; 4] = [0x10, 0, 0x7f, 0xf8];

/// A link-layer address.
pub(crate) type Mac = [u8; 6];

/// The content of a labelled frame after its label stack.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FramePayload<'f> {
    /// An IP packet.
    Ip,
    /// An Ethernet frame.
    Ethernet(&'f [u8]),
    /// A message in the associated channel, after its header.
    Channel(&'f [u8]),
    /// Anything else.
    Unknown,
}

/// A labelled frame that no program has forwarded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LabelledFrame<'f> {
    /// The neighbour that sent it.
    pub from: [u8; 6],
    /// The top label.
    pub label: Label,
    /// Its TTL.
    pub ttl: u8,
    /// The content.
    pub payload: FramePayload<'f>,
}

impl<'f> LabelledFrame<'f> {
    /// Parses a frame; `None` if it ends before its label stack does.
    pub fn parse(frame: &'f [u8]) -> Option<Self> {
        if ether_type(frame) != Some(MPLS) {
            return None;
        }
        let from = source(frame)?;
        let mut stack = LabelStack::new(frame.get(HEADER_LEN..)?);
        let top = stack.next()?.ok()?;
        let (label, ttl) = (top.label(), top.time_to_live());
        let mut is_channel = false;
        for entry in stack.by_ref() {
            is_channel = entry.ok()?.label() == Label::GENERIC_ASSOCIATED_CHANNEL;
        }
        let rest = stack.payload();
        let first = rest.first().map(|octet| octet >> 4);
        let payload = match (is_channel, first) {
            (true, Some(1)) if rest.starts_with(&CHANNEL) => {
                FramePayload::Channel(rest.get(CHANNEL.len()..)?)
            }
            (false, Some(0)) => FramePayload::Ethernet(rest.get(CONTROL_WORD.len()..)?),
            (false, Some(4 | 6)) => FramePayload::Ip,
            _ => FramePayload::Unknown,
        };
        Some(Self { from, label, ttl, payload })
    }
}

/// Destination of an Ethernet frame.
pub(crate) fn destination(frame: &[u8]) -> Option<Mac> {
    frame.first_chunk().copied()
}

/// Source of an Ethernet frame.
pub(crate) fn source(frame: &[u8]) -> Option<Mac> {
    frame.get(6..)?.first_chunk().copied()
}

/// EtherType of an Ethernet frame.
pub(crate) fn ether_type(frame: &[u8]) -> Option<u16> {
    frame.get(12..)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// Whether frames to an address are for several stations.
pub(crate) const fn is_group([first, ..]: Mac) -> bool {
    first & 1 != 0
}

/// The class of a frame: that of its IP precedence, as the programs choose it.
pub(crate) fn class(frame: &[u8]) -> PathClass {
    let head = frame.get(HEADER_LEN..).and_then(|head| head.first_chunk()).copied();
    let [first, second] = head.unwrap_or_default();
    let precedence = match ether_type(frame) {
        Some(IPV4) => second >> 5,
        Some(IPV6) => (first & 0xf) >> 1,
        _ => 0,
    };
    PathClass::of(gatewright_tables::label_class(precedence))
}

/// Header of a frame.
pub(crate) fn header(to: Mac, from: Mac, ether_type: u16) -> Vec<u8> {
    let mut frame = Vec::with_capacity(128);
    frame.extend(to);
    frame.extend(from);
    frame.extend(ether_type.to_be_bytes());
    frame
}

fn entry(label: Label, class: PathClass, is_bottom: bool, ttl: u8) -> [u8; 4] {
    let bottom = u32::from(is_bottom) << 8;
    (label.0 << 12 | u32::from(class.number()) << 9 | bottom | u32::from(ttl)).to_be_bytes()
}

/// A labelled frame that carries a whole Ethernet frame.
pub(crate) fn pseudowire(
    (to, from): (Mac, Mac),
    label: Label,
    class: PathClass,
    carried: &[u8],
) -> Vec<u8> {
    let mut frame = header(to, from, MPLS);
    frame.extend(entry(label, class, true, TTL));
    frame.extend(CONTROL_WORD);
    frame.extend(carried);
    frame
}

/// A labelled frame with a message in the associated channel.
pub(crate) fn channel((to, from): (Mac, Mac), label: Label, ttl: u8, message: &[u8]) -> Vec<u8> {
    let mut frame = header(to, from, MPLS);
    frame.extend(entry(label, PathClass::CONTROL, false, ttl));
    frame.extend(entry(Label::GENERIC_ASSOCIATED_CHANNEL, PathClass::CONTROL, true, 1));
    frame.extend(CHANNEL);
    frame.extend(message);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Mac = [2, 0, 0, 0, 0, 1];
    const FROM: Mac = [2, 0, 0, 0, 0, 2];

    /// RFC 3032 §2.1 and RFC 4448 §4.6, by hand.
    #[test]
    fn a_pseudowire_is_laid_out_as_its_rfcs_say() {
        let frame = pseudowire((TO, FROM), Label(0x12345), PathClass::BULK, b"carried");
        let head = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0x47, 0x12, 0x34, 0x55, 64];
        assert_eq!(frame[..18], head);
        assert_eq!(frame[18..22], [0; 4]);
        let read = LabelledFrame::parse(&frame).unwrap();
        assert_eq!((read.from, read.label.0, read.ttl), (FROM, 0x12345, 64));
        assert_eq!(read.payload, FramePayload::Ethernet(b"carried"));
    }

    /// RFC 5586 §2.1 and §4.2: the path's label, label 13 at the bottom of the stack, the header.
    #[test]
    fn a_message_of_the_path_is_in_the_associated_channel() {
        let frame = channel((TO, FROM), Label(100), 7, b"echo");
        assert_eq!(frame[14..22], [0, 6, 0x40, 7, 0, 0, 0xd1, 1]);
        assert_eq!(frame[22..26], [0x10, 0, 0x7f, 0xf8]);
        let read = LabelledFrame::parse(&frame).unwrap();
        assert_eq!(read.payload, FramePayload::Channel(b"echo"));
        let probe = channel((TO, FROM), Label(100), TTL, &[]);
        assert_eq!(LabelledFrame::parse(&probe).unwrap().payload, FramePayload::Channel(&[]));
    }

    #[test]
    fn short_and_other_frames_are_told_apart() {
        let frame = channel((TO, FROM), Label(100), 7, b"");
        for len in 0..frame.len() {
            let read = LabelledFrame::parse(&frame[..len]);
            assert!(
                len < 22 && read.is_none()
                    || read.is_some_and(|read| { read.payload == FramePayload::Unknown }),
                "{len}"
            );
        }
        let mut ip = frame.clone();
        ip[16] |= 1;
        ip[18] = 0x45;
        assert_eq!(LabelledFrame::parse(&ip).unwrap().payload, FramePayload::Ip);
        ip[12] = 0;
        assert_eq!(LabelledFrame::parse(&ip), None);
    }

    /// RFC 2474 §4.2.2: the class selector in the first three bits of the traffic class.
    #[test]
    fn the_class_is_that_of_the_precedence() {
        let mut frame = header(TO, FROM, IPV4);
        frame.extend([0x45, 0xc0]);
        assert_eq!(class(&frame), PathClass::CONTROL);
        let mut frame = header(TO, FROM, IPV6);
        frame.extend([0x6a, 0]);
        assert_eq!(class(&frame), PathClass::BOUNDED_DELAY);
        assert_eq!(class(&header(TO, FROM, 0x0806)), PathClass::BULK);
    }
}
