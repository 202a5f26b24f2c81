//! Options of received headers (RFC 791 §3.1): source routes are refused, recorded routes written.

use super::{Refusal, SOURCE_ROUTE, header};
use crate::IcmpError;
use gatewright_wire::ipv4::{Ipv4, Ipv4Option};
use std::net::Ipv4Addr;

/// Octets of one address.
const ADDRESS_LEN: usize = 4;

/// What a router has to do with the options.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// Where a recorded route begins, from the beginning of the header.
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
    let bad = Refusal::Error(IcmpError::BadHeader, u32::try_from(at + 2).unwrap_or(0));
    let Some([_, len, pointer, ..]) = octets.get(at..) else { return Err(bad) };
    let (len, place) = (usize::from(*len), usize::from(*pointer));
    if place > len {
        return Ok(()); // The list is full.
    }
    // The pointer counts from 1, and the first address stands behind three octets.
    if place < ADDRESS_LEN || place - 1 + ADDRESS_LEN > len {
        return Err(bad);
    }
    let Some([_, _, pointer, ..]) = octets.get_mut(at..) else { return Err(bad) };
    *pointer = pointer.saturating_add(4);
    let start = at + place - 1;
    let Some(field) = octets.get_mut(start..start + ADDRESS_LEN) else { return Err(bad) };
    field.copy_from_slice(&address.octets());
    header::finish(octets, header_len);
    Ok(())
}
