//! Control packets of MQTT 3.1.1, as far as a client needs them (OASIS MQTT 3.1.1 §3).

use super::session::MqttWill;

/// Octets of the remaining length, at most (§2.2.3).
const LENGTH_OCTETS_MAX: usize = 4;
/// The highest remaining length (§2.2.3).
pub(super) const LENGTH_MAX: usize = 268_435_455;

/// The type of PUBLISH (§3.3).
const PUBLISH: u8 = 3;

/// Error of malformed packets: the broker's fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The remaining length goes on after its fourth octet.
    #[error("remaining length longer than four octets")]
    Length,
    /// A packet longer than what is taken.
    #[error("packet of {length} octets, more than {most}")]
    TooLarge {
        /// Its content.
        length: usize,
        /// The granted topics.
        most: usize,
    },
    /// A packet that ends before its fields do, or with fields that cannot be.
    #[error("malformed packet of type {0}")]
    Malformed(u8),
    /// A packet that only a broker receives, or that is reserved.
    #[error("unexpected packet of type {0}")]
    Unexpected(u8),
}

/// A packet from a broker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Packet {
    /// The connection is accepted (0) or refused.
    ConnectAck(u8),
    /// Something was published; the identifier wants an acknowledgement.
    Publish { topic: String, payload: Vec<u8>, id: Option<u16> },
    /// A publication longer than what is taken; the identifier wants an acknowledgement.
    Oversized { id: Option<u16> },
    /// Our publication has arrived.
    PublishAck(u16),
    /// What we subscribed to, in its order; 0x80 is a refusal.
    SubscribeAck(Vec<u8>),
    /// An answer to a ping.
    Pong,
}

/// Takes one packet off the front of `octets`: how long it is, and what. `None` if not all of it
/// is there; of a publication longer than `most`, if its identifier is not there.
pub(super) fn read(octets: &[u8], most: usize) -> Result<Option<(usize, Packet)>, PacketError> {
    let Some((&first, rest)) = octets.split_first() else {
        return Ok(None);
    };
    let mut length = 0_usize;
    let mut head = 1;
    for (at, &octet) in rest.iter().enumerate() {
        if at == LENGTH_OCTETS_MAX {
            return Err(PacketError::Length);
        }
        length |= usize::from(octet & 0x7f) << (7 * at);
        head += 1;
        if octet & 0x80 == 0 {
            if length > most {
                let body = octets.get(head..).unwrap_or_default();
                let head = head + length;
                return oversized(first, body, PacketError::TooLarge { length, most })
                    .map(|packet| packet.map(|packet| (head, packet)));
            }
            let Some(body) = octets.get(head..head + length) else {
                return Ok(None);
            };
            return parse(first, body).map(|packet| Some((head + length, packet)));
        }
    }
    if rest.len() >= LENGTH_OCTETS_MAX { Err(PacketError::Length) } else { Ok(None) }
}

/// Reads the beginning of a packet that is too long. A publication is passed over: a broker sends it
/// anew on each connection until it is acknowledged (§4.4). Anything else is an error.
fn oversized(
    first: u8,
    beginning: &[u8],
    error: PacketError,
) -> Result<Option<Packet>, PacketError> {
    if first >> 4 != PUBLISH {
        return Err(error);
    }
    match first >> 1 & 0x03 {
        0 => Ok(Some(Packet::Oversized { id: None })),
        1 => Ok(after_topic(beginning).map(|id| Packet::Oversized { id: Some(id) })),
        _ => Err(PacketError::Malformed(PUBLISH)),
    }
}

/// The packet identifier behind a publication's topic, if it is there (§3.3.2).
fn after_topic(body: &[u8]) -> Option<u16> {
    let (length, rest) = body.split_first_chunk::<2>()?;
    let id = rest.get(usize::from(u16::from_be_bytes(*length))..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*id))
}

fn parse(first: u8, body: &[u8]) -> Result<Packet, PacketError> {
    let kind = first >> 4;
    let malformed = PacketError::Malformed(kind);
    match kind {
        2 => match body {
            [_, code] => Ok(Packet::ConnectAck(*code)),
            _ => Err(malformed),
        },
        3 => {
            let (topic, rest) = take_text(body).ok_or(malformed)?;
            let (id, payload) = match first >> 1 & 0x03 {
                0 => (None, rest),
                1 => {
                    let (id, payload) = rest.split_first_chunk::<2>().ok_or(malformed)?;
                    (Some(u16::from_be_bytes(*id)), payload)
                }
                // 2 was not asked for, 3 is reserved.
                _ => return Err(malformed),
            };
            Ok(Packet::Publish { topic: topic.to_owned(), payload: payload.to_vec(), id })
        }
        4 => match body {
            [high, low] => Ok(Packet::PublishAck(u16::from_be_bytes([*high, *low]))),
            _ => Err(malformed),
        },
        9 => match body {
            [_, _, codes @ ..] => Ok(Packet::SubscribeAck(codes.to_vec())),
            _ => Err(malformed),
        },
        13 if body.is_empty() => Ok(Packet::Pong),
        13 => Err(malformed),
        _ => Err(PacketError::Unexpected(kind)),
    }
}

fn take_text(octets: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = octets.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((core::str::from_utf8(text).ok()?, rest))
}

/// Puts a packet together; `None` if it is longer than any can be.
fn packet(first: u8, body: &[u8]) -> Option<Vec<u8>> {
    let mut octets = vec![first];
    let mut length = body.len();
    if length > LENGTH_MAX {
        return None;
    }
    loop {
        let low = u8::try_from(length & 0x7f).ok()?;
        length >>= 7;
        octets.push(if length > 0 { low | 0x80 } else { low });
        if length == 0 {
            break;
        }
    }
    octets.extend_from_slice(body);
    Some(octets)
}

fn put_text(text: &str, into: &mut Vec<u8>) -> Option<()> {
    into.extend_from_slice(&u16::try_from(text.len()).ok()?.to_be_bytes());
    into.extend_from_slice(text.as_bytes());
    Some(())
}

/// CONNECT (§3.1).
pub(super) fn connect(
    (client, clean, keep_alive): (&str, bool, u16),
    will: Option<&MqttWill>,
    credentials: Option<&(String, String)>,
) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    put_text("MQTT", &mut body)?;
    // Will flag, quality of service 1, retain (§3.1.2.5 to §3.1.2.7).
    let of_will = if will.is_some() { 0x2c } else { 0 };
    let flags = u8::from(clean) << 1 | of_will | if credentials.is_some() { 0xc0 } else { 0 };
    // Protocol level 4 is 3.1.1.
    body.extend_from_slice(&[4, flags]);
    body.extend_from_slice(&keep_alive.to_be_bytes());
    put_text(client, &mut body)?;
    if let Some(MqttWill { topic, payload }) = will {
        put_text(topic, &mut body)?;
        body.extend_from_slice(&u16::try_from(payload.len()).ok()?.to_be_bytes());
        body.extend_from_slice(payload);
    }
    if let Some((user, password)) = credentials {
        put_text(user, &mut body)?;
        put_text(password, &mut body)?;
    }
    packet(0x10, &body)
}

/// PUBLISH at quality of service 1 (§3.3).
pub(super) fn publish(id: u16, topic: &str, payload: &[u8], retain: bool) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    put_text(topic, &mut body)?;
    body.extend_from_slice(&id.to_be_bytes());
    body.extend_from_slice(payload);
    packet(0x32 | u8::from(retain), &body)
}

/// Whether the octets of an [`Output::Send`](super::Output::Send) are a publication.
pub fn is_publication(octets: &[u8]) -> bool {
    octets.first().is_some_and(|first| first >> 4 == PUBLISH)
}

/// PUBACK (§3.4).
pub(super) fn publish_ack(id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    vec![0x40, 2, high, low]
}

/// SUBSCRIBE at quality of service 1 (§3.8).
pub(super) fn subscribe(id: u16, filters: &[String]) -> Option<Vec<u8>> {
    let mut body = id.to_be_bytes().to_vec();
    for filter in filters {
        put_text(filter, &mut body)?;
        body.push(1);
    }
    packet(0x82, &body)
}

/// PINGREQ (§3.12).
pub(super) const PING: [u8; 2] = [0xc0, 0];
/// DISCONNECT (§3.14).
pub(super) const DISCONNECT: [u8; 2] = [0xe0, 0];
