//! Multicast listener discovery for IPv6 (RFC 2710, RFC 3810; their diagrams are unverified text).

use crate::{Truncated, header, icmpv6::Icmpv6Type};
use core::time::Duration;

header! {
    /// Query, report and done of version 1 (RFC 2710 §3); the delay in milliseconds.
    Mld = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Maximum Response Delay    |          Reserved             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    *                                                               *
    |                                                               |
    *                       Multicast Address                       *
    |                                                               |
    *                                                               *
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv6Type, checksum: checksum, multicast_address: Ipv6Addr
}

header! {
    /// Query of version 2 (RFC 3810 §5.1); the response code is decoded by [`response_delay`].
    QueryV2 = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |    Maximum Response Code      |           Reserved            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    *                                                               *
    |                                                               |
    *                       Multicast Address                       *
    |                                                               |
    *                                                               *
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    | Resv  |S| QRV |     QQIC      |     Number of Sources (N)     |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    *                                                               *
    |                                                               |
    *                       Source Address [1]                      *
    |                                                               |
    *                                                               *
    |                                                               |
    +-                                                             -+
    .                               .                               .
    .                               .                               .
    +-                                                             -+
    |                                                               |
    *                                                               *
    |                                                               |
    *                       Source Address [N]                      *
    |                                                               |
    *                                                               *
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv6Type, checksum: checksum, multicast_address: Ipv6Addr,
        s as suppress, number_of_sources_n as number_of_sources,
        source_address as sources: [number_of_sources * 16]
}

header! {
    /// Report of version 2 (RFC 3810 §5.2).
    ReportV2 = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |           Reserved            |Nr of Mcast Address Records (M)|
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    ~                   Multicast Address Records                   ~
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv6Type, checksum: checksum,
        nr_of_mcast_address_records_m as number_of_records,
        multicast_address_records as records: rest
}

header! {
    /// One record of a report (RFC 3810 §5.2); auxiliary data is counted in words of 32 bits.
    Record = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |  Record Type  |  Aux Data Len |     Number of Sources (N)     |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    *                                                               *
    |                                                               |
    *                       Multicast Address                       *
    |                                                               |
    *                                                               *
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    *                                                               *
    |                                                               |
    *                       Source Address [1]                      *
    |                                                               |
    *                                                               *
    |                                                               |
    +-                                                             -+
    .                               .                               .
    .                               .                               .
    +-                                                             -+
    |                                                               |
    *                                                               *
    |                                                               |
    *                       Source Address [N]                      *
    |                                                               |
    *                                                               *
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    ~                        Auxiliary Data                         ~
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where record_type: RecordType, multicast_address: Ipv6Addr,
        number_of_sources_n as number_of_sources,
        source_address as sources: [number_of_sources * 16],
        auxiliary_data: [aux_data_len * 4]
}

crate::numbers::numbers! {
    /// The type of a record of a report (RFC 3810 §5.2.12, RFC 3376 §4.2.12).
    RecordType(u8) {
        MODE_IS_INCLUDE = 1, "mode is include";
        MODE_IS_EXCLUDE = 2, "mode is exclude";
        CHANGE_TO_INCLUDE = 3, "change to include";
        CHANGE_TO_EXCLUDE = 4, "change to exclude";
        ALLOW_NEW_SOURCES = 5, "allow new sources";
        BLOCK_OLD_SOURCES = 6, "block old sources";
    }
}

/// The delay that a response code of version 2 means (RFC 3810 §5.1.3): milliseconds, above 32767 a
/// floating-point number.
pub const fn response_delay(code: u16) -> Duration {
    let milliseconds = if code < 0x8000 {
        code as u64
    } else {
        ((code & 0x0fff) as u64 | 0x1000) << ((code >> 12 & 0b111) + 3)
    };
    Duration::from_millis(milliseconds)
}

/// The records of a report, in order; ends at the end or after the first that is cut short.
#[derive(Clone, Debug)]
pub struct Records<'p> {
    left: u16,
    rest: &'p [u8],
}

/// A record with its sources, one address each.
pub type RecordAndSources<'p> = (Record<'p>, &'p [[u8; 16]]);

impl<'p> Records<'p> {
    /// Parses the `count` records of [`ReportV2`] from the octets after its fixed part.
    pub const fn new(count: u16, records: &'p [u8]) -> Self {
        Self { left: count, rest: records }
    }

    fn read(&mut self) -> Result<RecordAndSources<'p>, Truncated> {
        let (record, rest) = Record::split(self.rest)?;
        let (sources, rest) = record.sources(rest)?;
        let (_, rest) = record.auxiliary_data(rest)?;
        self.rest = rest;
        Ok((record, sources.as_chunks().0))
    }
}

impl<'p> Iterator for Records<'p> {
    type Item = Result<RecordAndSources<'p>, Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let read = self.read();
        if read.is_err() {
            self.left = 0;
        }
        Some(read)
    }
}
