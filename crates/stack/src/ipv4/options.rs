//! Options of received headers (RFC 791 §3.1): source routes are refused, recorded routes written.

use super::{Refusal, SOURCE_ROUTE, header};
use crate::IcmpError;
use gatewright_wire::ipv4::{HEADER_LEN_MAX, Ipv4, Ipv4Option};
use std::net::Ipv4Addr;

/// Octets of one address.
const ADDRESS_LEN: usize = 4;

/// The work that options require of a router.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// Position of a recorded route, from the beginning of the header.
    record_route: Option<usize>,
}

/// Reads the options of the header in front of `octets`; an error if they are malformed, or if
/// they still route the packet themselves.
pub(super) fn check(octets: &[u8], header_len: usize) -> Result<Found, Refusal> {
    let mut found = Found::default();
    let mut at = Ipv4::LEN;
    while let Some([kind, rest @ ..]) = octets.get(at..header_len) {
        let bad = |at: usize| Refusal::Error(IcmpError::BadHeader, u32::try_from(at).unwrap_or(0));
        let len = match (*kind, rest) {
            (Ipv4Option::END, _) => break,
            (Ipv4Option::NO_OPERATION, _) => 1,
            (_, [len, ..]) if (2..=rest.len() + 1).contains(&usize::from(*len)) => {
                usize::from(*len)
            }
            _ => return Err(bad(at + 1)),
        };
        let pointer = rest.get(1).copied().map(usize::from);
        match *kind {
            Ipv4Option::LOOSE_SOURCE_ROUTE | Ipv4Option::STRICT_SOURCE_ROUTE
                if pointer.is_none_or(|pointer| pointer <= len) =>
            {
                return Err(Refusal::Drop(SOURCE_ROUTE));
            }
            Ipv4Option::RECORD_ROUTE => found.record_route = Some(at),
            _ => {}
        }
        at += len;
    }
    Ok(found)
}

/// Checks the options of a packet to be forwarded, and records our `address` where one is asked
/// for (RFC 1812 §5.3.13.4).
pub(super) fn forward(
    octets: &mut [u8],
    header_len: usize,
    address: Option<Ipv4Addr>,
) -> Result<(), Refusal> {
    let found = check(octets, header_len)?;
    let (Some(at), Some(address)) = (found.record_route, address) else { return Ok(()) };
    let Some(option) = octets.get_mut(at..header_len) else { return Ok(()) };
    if record(option, address).is_none() {
        return Err(Refusal::Error(IcmpError::BadHeader, u32::try_from(at + 2).unwrap_or(0)));
    }
    header::finish(octets, header_len);
    Ok(())
}

/// Writes `address` to the next free place of a recorded route, if there is one; none if the pointer
/// is wrong.
fn record(option: &mut [u8], address: Ipv4Addr) -> Option<()> {
    let &mut [_, len, ref mut pointer, ..] = option else { return None };
    let (len, place) = (usize::from(len), usize::from(*pointer));
    if place > len {
        return Some(()); // The list is full.
    }
    // The pointer counts from 1, and the first address stands behind three octets.
    if place < ADDRESS_LEN || place - 1 + ADDRESS_LEN > len {
        return None;
    }
    *pointer = pointer.saturating_add(4);
    let field = option.get_mut(place - 1..place - 1 + ADDRESS_LEN)?;
    field.copy_from_slice(&address.octets());
    Some(())
}

/// The options of a header, by value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnedOptions {
    octets: [u8; HEADER_LEN_MAX - Ipv4::LEN],
    len: usize,
}

impl OwnedOptions {
    const NONE: Self = Self { octets: [Ipv4Option::END; HEADER_LEN_MAX - Ipv4::LEN], len: 0 };

    /// Their octets, whole words.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }
}

/// The options of the answer that our `address` gives to the request whose header is in front of
/// `octets`: the route that is recorded, ours included (RFC 1122 §3.2.2.6: "this option … SHOULD be
/// updated to include the current host and included in the IP header of the Echo Reply message,
/// without 'truncation'").
pub(crate) fn of_answer(octets: &[u8], header_len: usize, address: Ipv4Addr) -> OwnedOptions {
    recorded(octets, header_len, address).unwrap_or(OwnedOptions::NONE)
}

fn recorded(octets: &[u8], header_len: usize, address: Ipv4Addr) -> Option<OwnedOptions> {
    let at = check(octets, header_len).ok()?.record_route?;
    let len = usize::from(*octets.get(at + 1)?);
    let mut options = OwnedOptions::NONE;
    let option = options.octets.get_mut(..len)?;
    option.copy_from_slice(octets.get(at..at + len)?);
    record(option, address)?;
    options.len = len.next_multiple_of(4);
    Some(options)
}
