//! Packets and messages of OLSR for IPv4 (RFC 3626 §3.3, §5, §6, §9, §12), octets to values and back.

use core::time::Duration;
use std::net::Ipv4Addr;

/// UDP port of OLSR packets (RFC 3626 §3.1).
pub const OLSR_PORT: u16 = 698;

/// Octets of a packet's header.
const PACKET_HEADER: usize = 4;
/// Octets of a message's header.
const MESSAGE_HEADER: usize = 12;

const HELLO: u8 = 1;
const TC: u8 = 2;
const MID: u8 = 3;
const HNA: u8 = 4;

/// Scaling factor C of times, 1/16 s, in microseconds (RFC 3626 §18.3).
const TIME_UNIT_US: u64 = 62_500;

/// Why octets are not an OLSR packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OlsrError {
    /// The peer's packet or message ends before its header or its size.
    #[error("{found} octets where {needed} are needed")]
    Truncated {
        /// Octets that a header or a size asks for.
        needed: usize,
        /// Octets that are there.
        found: usize,
    },
    /// The peer's size or link code contradicts the standard.
    #[error("a field has a value that it cannot have")]
    Malformed,
}

/// A time as OLSR carries it: `C · (1 + a/16) · 2^b`, a and b of four bits (RFC 3626 §18.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OlsrTime(pub u8);

impl OlsrTime {
    /// The shortest time that is not below `time`; the longest there is if none is.
    pub fn at_least(time: Duration) -> Self {
        let wanted = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // The octets in the order of their values: exponent first, then mantissa.
        let ordered = (0..=u8::MAX).map(|order| Self(order.rotate_left(4)));
        ordered
            .into_iter()
            .find(|candidate| candidate.microseconds() >= wanted)
            .unwrap_or(Self(u8::MAX))
    }

    /// The time.
    pub fn duration(self) -> Duration {
        Duration::from_micros(self.microseconds())
    }

    fn microseconds(self) -> u64 {
        let (mantissa, exponent) = (self.0 >> 4, self.0 & 0x0f);
        ((TIME_UNIT_US * (16 + u64::from(mantissa))) << exponent) / 16
    }
}

/// State of a link in a HELLO (RFC 3626 §6.1.1).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum OlsrLinkType {
    /// Nothing is said of the link.
    Unspecified,
    /// The neighbour is heard.
    Asymmetric,
    /// Both directions work.
    Symmetric,
    /// The link is lost.
    Lost,
}

/// State of a neighbour in a HELLO (RFC 3626 §6.1.1).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum OlsrNeighbourType {
    /// No symmetric link leads to it.
    Not,
    /// A symmetric link leads to it.
    Symmetric,
    /// It is also a multipoint relay of the sender.
    Relay,
}

/// Link and neighbour type of a group of addresses in a HELLO.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct OlsrLinkCode {
    /// State of the link.
    pub link: OlsrLinkType,
    /// State of the neighbour.
    pub neighbour: OlsrNeighbourType,
}

impl OlsrLinkCode {
    /// The code as an octet.
    pub fn octet(self) -> u8 {
        let link = match self.link {
            OlsrLinkType::Unspecified => 0,
            OlsrLinkType::Asymmetric => 1,
            OlsrLinkType::Symmetric => 2,
            OlsrLinkType::Lost => 3,
        };
        let neighbour = match self.neighbour {
            OlsrNeighbourType::Not => 0,
            OlsrNeighbourType::Symmetric => 1,
            OlsrNeighbourType::Relay => 2,
        };
        neighbour << 2 | link
    }

    /// The code of an octet; `None` for a code that the standard tells receivers to discard: above
    /// 15, an unknown neighbour type, or a symmetric link to a node that is no neighbour.
    pub fn of(octet: u8) -> Option<Self> {
        let link = match octet & 0b11 {
            0 => OlsrLinkType::Unspecified,
            1 => OlsrLinkType::Asymmetric,
            2 => OlsrLinkType::Symmetric,
            _ => OlsrLinkType::Lost,
        };
        let neighbour = match octet >> 2 {
            0 => OlsrNeighbourType::Not,
            1 => OlsrNeighbourType::Symmetric,
            2 => OlsrNeighbourType::Relay,
            _ => return None,
        };
        let contradicts = link == OlsrLinkType::Symmetric && neighbour == OlsrNeighbourType::Not;
        (!contradicts).then_some(Self { link, neighbour })
    }
}

/// A network that a node is the gateway to.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct OlsrNetwork {
    /// Its address, with host bits cleared.
    pub address: Ipv4Addr,
    /// Bits of its prefix.
    pub len: u8,
}

impl OlsrNetwork {
    /// The network of `len` bits that has `address`; a length above 32 counts as 32.
    pub fn new(address: Ipv4Addr, len: u8) -> Self {
        let len = len.min(32);
        let address = Ipv4Addr::from(u32::from(address) & mask(len));
        Self { address, len }
    }

    /// A host.
    pub const fn host(address: Ipv4Addr) -> Self {
        Self { address, len: 32 }
    }

    fn of_mask(address: Ipv4Addr, netmask: Ipv4Addr) -> Option<Self> {
        let bits = u32::from(netmask);
        let len = u8::try_from(bits.leading_ones()).ok()?;
        (bits == mask(len)).then(|| Self::new(address, len))
    }
}

impl core::fmt::Display for OlsrNetwork {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

fn mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0)
}

/// A message's header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OlsrHead {
    /// Type of the message.
    pub kind: u8,
    /// How long its information is valid.
    pub validity: OlsrTime,
    /// Main address of the node that made it.
    pub originator: Ipv4Addr,
    /// Hops that it may still make.
    pub ttl: u8,
    /// Hops that it has made.
    pub hops: u8,
    /// Its number.
    pub sequence: u16,
}

/// A message in a packet, undecoded: one of an unknown type is forwarded, too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OlsrMessage<'p> {
    /// Its header.
    pub head: OlsrHead,
    /// Octets after the header.
    pub body: &'p [u8],
}

/// What a message says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OlsrContent {
    /// HELLO: the sender's links and neighbours (RFC 3626 §6.1).
    Hello {
        /// Time between two HELLOs of the sender.
        interval: OlsrTime,
        /// Readiness to forward for others, 0 (never) to 7 (always).
        willingness: u8,
        /// Interface addresses of neighbours.
        links: Vec<(OlsrLinkCode, Ipv4Addr)>,
    },
    /// TC: nodes that the originator announces as its neighbours (RFC 3626 §9.1).
    Topology {
        /// Advertised neighbour sequence number (ANSN).
        sequence: u16,
        /// Main addresses.
        neighbours: Vec<Ipv4Addr>,
    },
    /// MID: further interface addresses of the originator (RFC 3626 §5.1).
    Interfaces(Vec<Ipv4Addr>),
    /// HNA: networks that the originator is a gateway to (RFC 3626 §12.1).
    Networks(Vec<OlsrNetwork>),
    /// A type that this node does not know.
    Unknown,
}

/// Whether a node can have this address: it is no "martian" (RFC 1812 §5.3.7), so neither this
/// network's, nor loopback, multicast, reserved or limited broadcast.
pub(super) const fn is_host_address(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first != 127 && first < 224
}

impl OlsrContent {
    /// Whether all addresses that it names are such that nodes and networks can have.
    pub(super) fn names_hosts(&self) -> bool {
        let is_network = |it: &OlsrNetwork| it.len == 0 || is_host_address(it.address);
        match self {
            Self::Hello { links, .. } => links.iter().all(|(_, at)| is_host_address(*at)),
            Self::Topology { neighbours, .. } => neighbours.iter().all(|at| is_host_address(*at)),
            Self::Interfaces(addresses) => addresses.iter().all(|at| is_host_address(*at)),
            Self::Networks(networks) => networks.iter().all(is_network),
            Self::Unknown => true,
        }
    }

    /// Type of the message; 0 for an unknown one.
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => HELLO,
            Self::Topology { .. } => TC,
            Self::Interfaces(_) => MID,
            Self::Networks(_) => HNA,
            Self::Unknown => 0,
        }
    }

    /// Octets of the message after its header.
    pub fn encode(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        match self {
            Self::Hello { interval, willingness, links } => {
                octets.extend([0, 0, interval.0, *willingness]);
                encode_links(links, &mut octets);
            }
            Self::Topology { sequence, neighbours } => {
                octets.extend(sequence.to_be_bytes());
                octets.extend([0, 0]);
                octets.extend(neighbours.iter().flat_map(Ipv4Addr::octets));
            }
            Self::Interfaces(addresses) => {
                octets.extend(addresses.iter().flat_map(Ipv4Addr::octets));
            }
            Self::Networks(networks) => {
                for network in networks {
                    octets.extend(network.address.octets());
                    octets.extend(mask(network.len).to_be_bytes());
                }
            }
            Self::Unknown => {}
        }
        octets
    }
}

/// Groups of addresses, one for each link code.
fn encode_links(links: &[(OlsrLinkCode, Ipv4Addr)], octets: &mut Vec<u8>) {
    let mut codes: Vec<OlsrLinkCode> = links.iter().map(|(code, _)| *code).collect();
    codes.sort_unstable();
    codes.dedup();
    for code in codes {
        let group = || links.iter().filter(|(its, _)| *its == code);
        let size = u16::try_from(4 + 4 * group().count()).unwrap_or(u16::MAX);
        octets.extend([code.octet(), 0]);
        octets.extend(size.to_be_bytes());
        octets.extend(group().flat_map(|(_, address)| address.octets()));
    }
}

impl<'p> OlsrMessage<'p> {
    /// Decodes the content.
    ///
    /// # Errors
    ///
    /// [`OlsrError`] if its lists do not fill the message exactly.
    pub fn content(&self) -> Result<OlsrContent, OlsrError> {
        match self.head.kind {
            HELLO => hello(self.body),
            TC => {
                let ([high, low, _, _], rest) = split::<4>(self.body)?;
                let sequence = u16::from_be_bytes([*high, *low]);
                Ok(OlsrContent::Topology { sequence, neighbours: addresses(rest)? })
            }
            MID => Ok(OlsrContent::Interfaces(addresses(self.body)?)),
            HNA => {
                let (pairs, []) = self.body.as_chunks::<8>() else {
                    return Err(OlsrError::Malformed);
                };
                let network = |&[a, b, c, d, m, n, o, p]: &[u8; 8]| {
                    OlsrNetwork::of_mask([a, b, c, d].into(), [m, n, o, p].into())
                };
                let networks: Option<Vec<_>> = pairs.iter().map(network).collect();
                networks.map(OlsrContent::Networks).ok_or(OlsrError::Malformed)
            }
            _ => Ok(OlsrContent::Unknown),
        }
    }

    /// The message as octets.
    pub fn encode(&self) -> Vec<u8> {
        let OlsrHead { kind, validity, originator, ttl, hops, sequence } = self.head;
        let size = u16::try_from(MESSAGE_HEADER + self.body.len()).unwrap_or(u16::MAX);
        let mut octets = vec![kind, validity.0];
        octets.extend(size.to_be_bytes());
        octets.extend(originator.octets());
        octets.extend([ttl, hops]);
        octets.extend(sequence.to_be_bytes());
        octets.extend(self.body);
        octets
    }

    /// Takes a message off the front of `octets`; the rest is what follows it.
    fn split(octets: &'p [u8]) -> Result<(Self, &'p [u8]), OlsrError> {
        let (header, _) = split::<MESSAGE_HEADER>(octets)?;
        let &[kind, validity, high, low, a, b, c, d, ttl, hops, first, second] = header;
        let size = usize::from(u16::from_be_bytes([high, low]));
        let needs = OlsrError::Truncated { needed: size, found: octets.len() };
        let (message, rest) = octets.split_at_checked(size).ok_or(needs)?;
        let body = message.get(MESSAGE_HEADER..).ok_or(OlsrError::Malformed)?;
        let head = OlsrHead {
            kind,
            validity: OlsrTime(validity),
            originator: [a, b, c, d].into(),
            ttl,
            hops,
            sequence: u16::from_be_bytes([first, second]),
        };
        Ok((Self { head, body }, rest))
    }
}

/// A packet: messages of one or more nodes (RFC 3626 §3.3).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OlsrPacket<'p> {
    /// Its number on the interface that sent it.
    pub sequence: u16,
    /// Its messages.
    pub messages: Vec<OlsrMessage<'p>>,
}

impl<'p> OlsrPacket<'p> {
    /// Decodes a packet; octets after its length are padding.
    ///
    /// # Errors
    ///
    /// [`OlsrError`] if the packet or one of its messages ends too early.
    pub fn decode(octets: &'p [u8]) -> Result<Self, OlsrError> {
        let (&[high, low, first, second], _) = split::<PACKET_HEADER>(octets)?;
        let needed = usize::from(u16::from_be_bytes([high, low]));
        let truncated = OlsrError::Truncated { needed, found: octets.len() };
        let whole = octets.get(..needed).ok_or(truncated)?;
        let mut rest = whole.get(PACKET_HEADER..).ok_or(OlsrError::Malformed)?;
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let (message, after) = OlsrMessage::split(rest)?;
            messages.push(message);
            rest = after;
        }
        Ok(Self { sequence: u16::from_be_bytes([first, second]), messages })
    }

    /// A packet of encoded messages.
    pub fn encode(sequence: u16, messages: &[u8]) -> Vec<u8> {
        let length = u16::try_from(PACKET_HEADER + messages.len()).unwrap_or(u16::MAX);
        let mut octets = length.to_be_bytes().to_vec();
        octets.extend(sequence.to_be_bytes());
        octets.extend(messages);
        octets
    }
}

fn split<const N: usize>(octets: &[u8]) -> Result<(&[u8; N], &[u8]), OlsrError> {
    octets.split_first_chunk().ok_or(OlsrError::Truncated { needed: N, found: octets.len() })
}

fn addresses(octets: &[u8]) -> Result<Vec<Ipv4Addr>, OlsrError> {
    let (chunks, []) = octets.as_chunks::<4>() else { return Err(OlsrError::Malformed) };
    Ok(chunks.iter().map(|&chunk| chunk.into()).collect())
}

fn hello(body: &[u8]) -> Result<OlsrContent, OlsrError> {
    let (&[_, _, interval, willingness], mut rest) = split::<4>(body)?;
    let mut links = Vec::new();
    while !rest.is_empty() {
        let (&[code, _, high, low], _) = split::<4>(rest)?;
        let size = usize::from(u16::from_be_bytes([high, low]));
        let truncated = OlsrError::Truncated { needed: size, found: rest.len() };
        let (group, after) = rest.split_at_checked(size).ok_or(truncated)?;
        let group = addresses(group.get(4..).ok_or(OlsrError::Malformed)?)?;
        // RFC 3626 §6.1.1: "Link Code ... MUST silently discard" what contradicts itself; the rest
        // of the HELLO is used.
        if let Some(code) = OlsrLinkCode::of(code) {
            links.extend(group.into_iter().map(|address| (code, address)));
        }
        rest = after;
    }
    Ok(OlsrContent::Hello { interval: OlsrTime(interval), willingness, links })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3626 §18.3: 6 s is 0x86... the proposed values of its constants.
    #[test]
    fn times_of_section_18_3() {
        // 2 s = 1/16 · 2^5; 6 s = 1/16 · 1.5 · 2^6; 15 s = 1/16 · 1.875 · 2^7; 30 s likewise at 2^8.
        for (seconds, octet) in [(2, 0x05), (6, 0x86), (15, 0xe7), (30, 0xe8), (5, 0x46)] {
            let time = Duration::from_secs(seconds);
            assert_eq!(OlsrTime::at_least(time), OlsrTime(octet), "{seconds} s");
            assert_eq!(OlsrTime(octet).duration(), time);
        }
        assert_eq!(OlsrTime::at_least(Duration::ZERO), OlsrTime(0));
        assert_eq!(OlsrTime(0).duration(), Duration::from_micros(62_500));
        assert_eq!(OlsrTime(0xff).duration(), Duration::from_secs(3_968));
        assert_eq!(OlsrTime::at_least(Duration::MAX), OlsrTime(0xff));
        // A time between two values is rounded up, never down.
        assert!(
            OlsrTime::at_least(Duration::from_millis(6_001)).duration() > Duration::from_secs(6)
        );
    }

    #[test]
    fn link_codes_that_contradict_themselves_are_discarded() {
        // RFC 3626 §6.1.1: a symmetric link (2) to no neighbour (0); neighbour type 3; above 15.
        for octet in [0b0010, 0b1100, 0b1111, 0x10, 0xff] {
            assert_eq!(OlsrLinkCode::of(octet), None, "{octet:#x}");
        }
        for octet in [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11] {
            assert_eq!(OlsrLinkCode::of(octet).map(OlsrLinkCode::octet), Some(octet));
        }
    }

    #[test]
    fn truncated_packets_are_refused_at_every_length() {
        let content = OlsrContent::Topology { sequence: 3, neighbours: vec![[10, 0, 0, 9].into()] };
        let body = content.encode();
        let head = OlsrHead {
            kind: TC,
            validity: OlsrTime(0xe7),
            originator: [10, 0, 0, 1].into(),
            ttl: 255,
            hops: 0,
            sequence: 9,
        };
        let packet = OlsrPacket::encode(7, &OlsrMessage { head, body: &body }.encode());
        let read = OlsrPacket::decode(&packet).ok();
        let found = read.as_ref().and_then(|packet| packet.messages.first()?.content().ok());
        assert_eq!(found, Some(content));
        for len in 0..packet.len() {
            assert!(OlsrPacket::decode(packet.get(..len).unwrap_or_default()).is_err(), "{len}");
        }
    }

    #[test]
    fn netmasks_with_holes_are_malformed() {
        assert_eq!(OlsrNetwork::of_mask([10, 1, 2, 3].into(), [255, 0, 255, 0].into()), None);
        let network = OlsrNetwork::of_mask([10, 1, 2, 3].into(), [255, 255, 0, 0].into());
        assert_eq!(network, Some(OlsrNetwork { address: [10, 1, 0, 0].into(), len: 16 }));
        assert_eq!(mask(0), 0);
    }
}
