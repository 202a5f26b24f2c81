//! Reading a received header once, and completing one of ours.

use super::{MISUSE, NO_SOURCE, TIME_TO_LIVE};
use crate::Reason;
use gatewright_wire::{
    Checksum, IpProtocol, checksum,
    ipv4::{Ipv4, Ipv4Mut},
};
use std::net::Ipv4Addr;

/// Fewer octets than the header says or has.
const TRUNCATED: Reason = Reason("truncated");

/// The version is not 4.
const BAD_VERSION: Reason = Reason("bad-version");

/// The header's length covers not even its fixed part, or more than the datagram.
const BAD_LENGTH: Reason = Reason("bad-length");

/// The header's checksum is wrong.
const BAD_CHECKSUM: Reason = Reason("bad-checksum");

/// The fields of a valid header.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "the RFC's word")]
pub(super) struct Header {
    pub(super) header_len: usize,
    pub(super) total_length: usize,
    pub(super) source: Ipv4Addr,
    pub(super) destination: Ipv4Addr,
    pub(super) protocol: IpProtocol,
    pub(super) time_to_live: u8,
    pub(super) dont_fragment: bool,
    pub(super) is_fragment: bool,
}

impl Header {
    /// Reads the header in front of `octets` and checks it (RFC 1812 §5.2.2).
    pub(super) fn check(octets: &[u8]) -> Result<Self, Reason> {
        let (view, rest) = Ipv4::split(octets).map_err(|_| TRUNCATED)?;
        let this = Self::of(view);
        if view.version() != Ipv4::VERSION {
            return Err(BAD_VERSION);
        }
        if this.header_len < Ipv4::LEN || this.total_length < this.header_len {
            return Err(BAD_LENGTH);
        }
        if octets.len() < this.total_length {
            return Err(TRUNCATED);
        }
        let mut checksum = Checksum::new();
        checksum.add(view.as_octets());
        if this.has_options() {
            checksum.add(rest.get(..this.header_len - Ipv4::LEN).unwrap_or_default());
        }
        if checksum.is_valid() { Ok(this) } else { Err(BAD_CHECKSUM) }
    }

    fn of(view: Ipv4<'_>) -> Self {
        Self {
            header_len: view.header_len(),
            total_length: usize::from(view.total_length()),
            source: view.source_address(),
            destination: view.destination_address(),
            protocol: view.protocol(),
            time_to_live: view.time_to_live(),
            dont_fragment: view.dont_fragment(),
            is_fragment: view.is_fragment(),
        }
    }

    pub(super) fn has_options(&self) -> bool {
        self.header_len > Ipv4::LEN
    }
}

/// Header length and destination of a packet from above, if it begins with an IPv4 header.
pub(super) fn destination(octets: &[u8]) -> Option<(usize, Ipv4Addr)> {
    let (view, _) = Ipv4::split(octets).ok()?;
    let header_len = view.header_len();
    let sane = view.version() == Ipv4::VERSION
        && (Ipv4::LEN..=octets.len()).contains(&header_len)
        && u16::try_from(octets.len()).is_ok();
    sane.then(|| (header_len, view.destination_address()))
}

/// Fills in what the layer above left open: lengths, source, identification, checksum.
pub(super) fn complete(
    octets: &mut [u8],
    header_len: usize,
    source: impl FnOnce() -> Option<Ipv4Addr>,
    identification: u16,
) -> Result<Header, Reason> {
    let total_length = u16::try_from(octets.len()).map_err(|_| MISUSE)?;
    let fixed = octets.first_chunk_mut().ok_or(MISUSE)?;
    let mut header = Ipv4Mut::of(fixed);
    if header.view().source_address().is_unspecified() {
        // A host that asks everyone for an address has none on that link yet (RFC 2131 §4.1).
        let nobody = header.view().destination_address().is_broadcast();
        header.set_source_address(if nobody {
            Ipv4Addr::UNSPECIFIED
        } else {
            source().ok_or(NO_SOURCE)?
        });
    }
    if header.view().time_to_live() == 0 {
        header.set_time_to_live(TIME_TO_LIVE);
    }
    header.set_total_length(total_length);
    header.set_identification(identification);
    Ok(finish(octets, header_len))
}

/// Computes the checksum of a header whose other fields are final, and reads it.
pub(super) fn finish(octets: &mut [u8], header_len: usize) -> Header {
    if let Some(fixed) = octets.first_chunk_mut() {
        Ipv4Mut::of(fixed).set_header_checksum(0);
    }
    let sum = checksum::of(octets.get(..header_len).unwrap_or_default());
    let mut spare = [0; Ipv4::LEN];
    let fixed = octets.first_chunk_mut().unwrap_or(&mut spare);
    let mut header = Ipv4Mut::of(fixed);
    header.set_header_checksum(sum);
    Header::of(header.view())
}
