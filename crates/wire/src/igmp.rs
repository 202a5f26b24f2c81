//! Group management for IPv4 multicast (RFC 1112, RFC 2236, RFC 3376; diagrams unverified text).

use crate::{Truncated, header, mld::RecordType, numbers::numbers};
use core::time::Duration;

numbers! {
    /// The type of a message (RFC 3376 §4).
    IgmpType(u8) {
        MEMBERSHIP_QUERY = 0x11, "membership query";
        MEMBERSHIP_REPORT_V1 = 0x12, "membership report v1";
        MEMBERSHIP_REPORT_V2 = 0x16, "membership report v2";
        LEAVE_GROUP = 0x17, "leave group";
        MEMBERSHIP_REPORT_V3 = 0x22, "membership report v3";
    }
}

header! {
    /// A message of version 1 (RFC 1112, appendix I): the type is the lower half of an octet.
    IgmpV1 = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |Version| Type  |    Unused     |           Checksum            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                         Group Address                         |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where version = 1, type as kind, checksum: checksum, group_address: Ipv4Addr
}

header! {
    /// A message of version 2 (RFC 2236 §2); the response time in tenths of a second. A query with time
    /// zero is of version 1.
    Igmp = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |      Type     | Max Resp Time |           Checksum            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                         Group Address                         |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: IgmpType, checksum: checksum, group_address: Ipv4Addr
}

header! {
    /// A query of version 3 (RFC 3376 §4.1); its codes are decoded by [`code_value`].
    QueryV3 = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |  Type = 0x11  | Max Resp Code |           Checksum            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                         Group Address                         |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    | Resv  |S| QRV |     QQIC      |     Number of Sources (N)     |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                       Source Address [1]                      |
    +-                                                             -+
    |                       Source Address [2]                      |
    +-                              .                              -+
    .                               .                               .
    .                               .                               .
    +-                                                             -+
    |                       Source Address [N]                      |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind, checksum: checksum, group_address: Ipv4Addr, s as suppress,
        number_of_sources_n as number_of_sources,
        source_address as sources: [number_of_sources * 4]
}

header! {
    /// A report of version 3 (RFC 3376 §4.2).
    ReportV3 = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |  Type = 0x22  |    Reserved   |           Checksum            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |           Reserved            |  Number of Group Records (M)  |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    ~                         Group Records                         ~
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind, checksum: checksum,
        number_of_group_records_m as number_of_records, group_records as records: rest
}

header! {
    /// One record of a report (RFC 3376 §4.2); auxiliary data is counted in words of 32 bits.
    Record = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |  Record Type  |  Aux Data Len |     Number of Sources (N)     |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                       Multicast Address                       |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                       Source Address [1]                      |
    +-                                                             -+
    |                       Source Address [2]                      |
    +-                              .                              -+
    .                               .                               .
    .                               .                               .
    +-                                                             -+
    |                       Source Address [N]                      |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    ~                        Auxiliary Data                         ~
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where record_type: RecordType, multicast_address: Ipv4Addr,
        number_of_sources_n as number_of_sources,
        source_address as sources: [number_of_sources * 4], auxiliary_data: [aux_data_len * 4]
}

/// The value of a code of version 3 (RFC 3376 §4.1.1): above 127 a floating-point number.
pub const fn code_value(code: u8) -> u16 {
    if code < 0x80 {
        code as u16
    } else {
        ((code & 0x0f) as u16 | 0x10) << ((code >> 4 & 0b111) + 3)
    }
}

/// The longest delay that a response code of version 3 allows: tenths of a second.
pub const fn response_time(code: u8) -> Duration {
    Duration::from_millis(code_value(code) as u64 * 100)
}

/// The records of a report, in order; ends at the end or after the first that is cut short.
#[derive(Clone, Debug)]
pub struct Records<'p> {
    left: u16,
    rest: &'p [u8],
}

/// A record with its sources, one address each.
pub type RecordAndSources<'p> = (Record<'p>, &'p [[u8; 4]]);

impl<'p> Records<'p> {
    /// Parses the `count` records of [`ReportV3`] from the octets after its fixed part.
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
