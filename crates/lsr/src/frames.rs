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

/// Whether a group address is for the next bridge only (IEEE 802.1Q §8.6.3): a bridge does not pass it on.
pub(crate) const fn is_of_bridges(address: Mac) -> bool {
    matches!(address, [0x01, 0x80, 0xc2, 0, 0, last] if last < 0x10)
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

/// A labelled frame to the next hop: with another label on top, and a TTL that is one less (RFC 3032
/// §2.4.2).
pub(crate) fn swapped((to, from): (Mac, Mac), label: Label, received: &[u8]) -> Vec<u8> {
    let mut frame = header(to, from, MPLS);
    frame.extend(received.get(HEADER_LEN..).unwrap_or_default());
    if let Some(top) = frame.get_mut(HEADER_LEN..).and_then(|stack| stack.first_chunk_mut::<4>()) {
        let word = u32::from_be_bytes(*top);
        let (class_and_bottom, ttl) = (word & 0xf00, (word & 0xff).saturating_sub(1));
        *top = (label.0 << 12 | class_and_bottom | ttl).to_be_bytes();
    }
    frame
}

/// The Ethernet frame of a labelled frame that carries an IP packet; `None` if it has more labels
/// than one.
pub(crate) fn popped((to, from): (Mac, Mac), received: &[u8]) -> Option<Vec<u8>> {
    let (&[_, _, last, _], packet) = received.get(HEADER_LEN..)?.split_first_chunk()?;
    if last & 1 == 0 {
        return None;
    }
    let is_ipv6 = packet.first().is_some_and(|first| first >> 4 == 6);
    let mut frame = header(to, from, if is_ipv6 { IPV6 } else { IPV4 });
    frame.extend(packet);
    Some(frame)
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

    /// RFC 3032 §2.1, by hand: label 0x54321 for 0x12345; class, bottom of the stack and packet stay.
    #[test]
    fn a_frame_goes_on_with_another_label_or_without() {
        let mut frame = header([9; 6], [8; 6], MPLS);
        frame.extend([0x12, 0x34, 0x55, 64, 0x45, 1, 2]);
        let on = swapped((TO, FROM), Label(0x54321), &frame);
        assert_eq!(on[..14], header(TO, FROM, MPLS));
        assert_eq!(on[14..], [0x54, 0x32, 0x15, 63, 0x45, 1, 2]);
        let end = popped((TO, FROM), &frame).unwrap();
        assert_eq!(end[..14], header(TO, FROM, IPV4));
        assert_eq!(end[14..], [0x45, 1, 2]);
        frame[18] = 0x60;
        assert_eq!(popped((TO, FROM), &frame).unwrap()[12..15], [0x86, 0xdd, 0x60]);
        frame[16] &= 0xfe;
        assert_eq!(popped((TO, FROM), &frame), None);
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
