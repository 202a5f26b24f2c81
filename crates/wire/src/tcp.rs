//! The transmission control protocol (RFC 9293; options RFC 7323, RFC 2018).

use crate::{OptionError, Truncated, Writer, header, option::split_counting_all};

header! {
    /// The segment's header (RFC 9293 §3.1).
    Tcp = r"
      0                   1                   2                   3
      0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
     |          Source Port          |       Destination Port        |
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
     |                        Sequence Number                        |
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
     |                    Acknowledgment Number                      |
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
     |  Data |       |C|E|U|A|P|R|S|F|                               |
     | Offset| Rsrvd |W|C|R|C|S|S|Y|I|            Window             |
     |       |       |R|E|G|K|H|T|N|N|                               |
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
     |           Checksum            |         Urgent Pointer        |
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
     |                           [Options]                           |
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
     |                                                               :
     :                             Data                              :
     :                                                               |
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where checksum: checksum, options: [data_offset * 4 - 20]
}

/// Octets of the longest header, options included.
pub const HEADER_LEN_MAX: usize = 60;

impl Tcp<'_> {
    /// Octets of header and options.
    pub const fn header_len(self) -> usize {
        self.data_offset() as usize * 4
    }
}

/// One option (RFC 9293 §3.2 and the RFCs named at each).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TcpOption<'p> {
    /// Does nothing; fills up to a boundary.
    NoOperation,
    /// Octets of data that the sender takes in one segment; in SYN only.
    MaximumSegmentSize(u16),
    /// How often the window is doubled (RFC 7323 §2.2); in SYN only.
    WindowScale(u8),
    /// Selective acknowledgments are understood (RFC 2018 §2); in SYN only.
    SackPermitted,
    /// Blocks that have arrived: first sequence number and the one behind the last (RFC 2018 §3).
    Sack(&'p [[u8; 8]]),
    /// The sender's clock, and the last value received from the other side (RFC 7323 §3.2).
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The clock value that is answered.
        echo_reply: u32,
    },
    /// Any other option.
    Other {
        /// Its kind.
        kind: u8,
        /// The octets after the length.
        data: &'p [u8],
    },
}

impl TcpOption<'_> {
    /// Kind of the end of the list.
    pub const END: u8 = 0;
    /// Kind of [`NoOperation`](Self::NoOperation).
    pub const NO_OPERATION: u8 = 1;
    /// Kind of [`MaximumSegmentSize`](Self::MaximumSegmentSize).
    pub const MAXIMUM_SEGMENT_SIZE: u8 = 2;
    /// Kind of [`WindowScale`](Self::WindowScale).
    pub const WINDOW_SCALE: u8 = 3;
    /// Kind of [`SackPermitted`](Self::SackPermitted).
    pub const SACK_PERMITTED: u8 = 4;
    /// Kind of [`Sack`](Self::Sack).
    pub const SACK: u8 = 5;
    /// Kind of [`Timestamps`](Self::Timestamps).
    pub const TIMESTAMPS: u8 = 8;

    /// Appends the option.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if `writer` is full, or the option has more than 255 octets.
    pub fn emit(self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::NoOperation => writer.put_octet(Self::NO_OPERATION),
            Self::MaximumSegmentSize(size) => {
                put(Self::MAXIMUM_SEGMENT_SIZE, &size.to_be_bytes(), writer)
            }
            Self::WindowScale(shift) => put(Self::WINDOW_SCALE, &[shift], writer),
            Self::SackPermitted => put(Self::SACK_PERMITTED, &[], writer),
            Self::Sack(blocks) => put(Self::SACK, blocks.as_flattened(), writer),
            Self::Timestamps { value, echo_reply } => {
                let ([a, b, c, d], [e, f, g, h]) = (value.to_be_bytes(), echo_reply.to_be_bytes());
                put(Self::TIMESTAMPS, &[a, b, c, d, e, f, g, h], writer)
            }
            Self::Other { kind, data } => put(kind, data, writer),
        }
    }
}

fn put(kind: u8, data: &[u8], writer: &mut Writer<'_>) -> Result<(), Truncated> {
    let (needed, found) = (data.len() + 2, writer.free());
    let length = u8::try_from(needed).map_err(|_| Truncated { needed, found: 0xff })?;
    if needed > found {
        return Err(Truncated { needed, found });
    }
    writer.put(&[kind, length])?;
    writer.put(data)
}

/// The options of a header, in order; ends at the end of the list or after the first error.
#[derive(Clone, Debug)]
pub struct TcpOptions<'p> {
    rest: &'p [u8],
}

impl<'p> TcpOptions<'p> {
    /// Reads `options`, as [`Tcp::options`] gives them.
    pub const fn new(options: &'p [u8]) -> Self {
        Self { rest: options }
    }

    fn read(&mut self) -> Result<Option<TcpOption<'p>>, OptionError> {
        match self.rest {
            [] | [TcpOption::END, ..] => return Ok(None),
            [TcpOption::NO_OPERATION, rest @ ..] => {
                self.rest = rest;
                return Ok(Some(TcpOption::NoOperation));
            }
            _ => {}
        }
        let Some((kind, data, rest)) = split_counting_all(self.rest)? else { return Ok(None) };
        self.rest = rest;
        let bad = OptionError::Length { kind: u16::from(kind), length: data.len() + 2 };
        Ok(Some(match (kind, data) {
            (TcpOption::MAXIMUM_SEGMENT_SIZE, &[high, low]) => {
                TcpOption::MaximumSegmentSize(u16::from_be_bytes([high, low]))
            }
            (TcpOption::WINDOW_SCALE, &[shift]) => TcpOption::WindowScale(shift),
            (TcpOption::SACK_PERMITTED, []) => TcpOption::SackPermitted,
            (TcpOption::SACK, blocks) => {
                let (blocks, []) = blocks.as_chunks() else { return Err(bad) };
                TcpOption::Sack(blocks)
            }
            (TcpOption::TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => TcpOption::Timestamps {
                value: u32::from_be_bytes([a, b, c, d]),
                echo_reply: u32::from_be_bytes([e, f, g, h]),
            },
            (
                TcpOption::MAXIMUM_SEGMENT_SIZE
                | TcpOption::WINDOW_SCALE
                | TcpOption::SACK_PERMITTED
                | TcpOption::TIMESTAMPS,
                _,
            ) => return Err(bad),
            _ => TcpOption::Other { kind, data },
        }))
    }
}

impl<'p> Iterator for TcpOptions<'p> {
    type Item = Result<TcpOption<'p>, OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().transpose();
        if !matches!(read, Some(Ok(_))) {
            self.rest = &[];
        }
        read
    }
}
