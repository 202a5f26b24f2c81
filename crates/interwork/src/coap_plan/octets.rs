//! Plans as plain octets. All numbers have two octets, the higher one first.
//!
//! ```text
//! version, serialisation (0 JSON, 1 CBOR), epoch (eight octets), time before (eight octets)
//! number of times in a report, and for each its place; length of a report
//! number of the parts that each report has, and for each:
//!   place, length and octets
//! number of requests, and for each:
//!   length and octets of the options before the request identifier
//!   length and octets of the name before the report's identity, and behind it
//!   number of pieces of the content, and for each:
//!     kind, and the length with octets or the place in the report; behind a code's place its partition
//! ```

use super::content::{ContentPiece, PIECES_MAX};
use super::{CoapPlan, OPTIONS_MAX, RequestPlan};
use crate::plan::{CodePlace, FlagCount, OBJECTS_MAX, REPORT_MAX};
use gatewright_onem2m::Serialisation;

/// Version of this form.
const VERSION: u16 = 3;

/// Kinds of pieces.
const OCTETS: u16 = 0;
const NAME: u16 = 1;
const REPORT: u16 = 2;
const RECEIVED: u16 = 3;
const SFLOAT: u16 = 4;
const FLOAT: u16 = 5;
const ABSOLUTE_TIME: u16 = 6;
const IDENTITY: u16 = 7;
const CODE: u16 = 8;
const MEANING: u16 = 9;
const BITS16: u16 = 10;
const BITS32: u16 = 11;
const PERIOD: u16 = 12;
/// Parts that each report has, at the most: before, between and behind the gaps.
const PARTS_MAX: usize = 64;

impl CoapPlan {
    /// The plan as octets.
    pub fn octets(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        put(&mut octets, VERSION.into());
        put(&mut octets, usize::from(self.serialisation == Serialisation::Cbor));
        octets.extend_from_slice(&self.epoch.to_be_bytes());
        octets.extend_from_slice(&self.last_time.to_be_bytes());
        put(&mut octets, self.times.len());
        self.times.iter().for_each(|at| put(&mut octets, *at));
        put(&mut octets, self.length);
        put(&mut octets, self.fixed.len());
        for (at, part) in &self.fixed {
            put(&mut octets, *at);
            put(&mut octets, part.len());
            octets.extend_from_slice(part);
        }
        put(&mut octets, self.requests.len());
        for RequestPlan { options, name: [before, behind], content } in &self.requests {
            for part in [options, before, behind] {
                put(&mut octets, part.len());
                octets.extend_from_slice(part);
            }
            put(&mut octets, content.len());
            for piece in content {
                put_piece(&mut octets, piece);
            }
        }
        octets
    }

    /// Reads a plan from its octets, which nobody has to be trusted with; `None` if they are none.
    pub fn of(octets: &[u8]) -> Option<Self> {
        let mut rest = PlanReader(octets);
        if rest.number()? != usize::from(VERSION) {
            return None;
        }
        let serialisation = match rest.number()? {
            0 => Serialisation::Json,
            1 => Serialisation::Cbor,
            _ => return None,
        };
        let (epoch, last_time) = (rest.long()?, rest.long()?);
        let count = rest.number().filter(|it| *it <= OBJECTS_MAX)?;
        let times = (0..count).map(|_| rest.number()).collect::<Option<_>>()?;
        let length = rest.number().filter(|it| *it <= REPORT_MAX)?;
        let parts = rest.number().filter(|it| *it <= PARTS_MAX)?;
        let mut fixed = Vec::with_capacity(parts);
        for _ in 0..parts {
            fixed.push((rest.number()?, rest.counted()?));
        }
        let count = rest.number().filter(|it| (1..=OBJECTS_MAX).contains(it))?;
        let mut requests = Vec::with_capacity(count);
        for _ in 0..count {
            requests.push(rest.request(length)?);
        }
        let plan = Self { serialisation, length, fixed, epoch, times, last_time, requests };
        (rest.0.is_empty() && plan.is_within_bounds()).then_some(plan)
    }
}

/// Appends a piece of a content.
fn put_piece(octets: &mut Vec<u8>, piece: &ContentPiece) {
    let (kind, number) = match piece {
        ContentPiece::Octets(octets) => (OCTETS, octets.len()),
        ContentPiece::Name => (NAME, 0),
        ContentPiece::Report => (REPORT, 0),
        ContentPiece::Received => (RECEIVED, 0),
        ContentPiece::Identity => (IDENTITY, 0),
        ContentPiece::Sfloat(at) => (SFLOAT, *at),
        ContentPiece::Float(at) => (FLOAT, *at),
        ContentPiece::AbsoluteTime(at) => (ABSOLUTE_TIME, *at),
        ContentPiece::Code(place) => (CODE, place.at),
        ContentPiece::Meaning(place) => (MEANING, place.at),
        ContentPiece::Bits(FlagCount::Sixteen, at) => (BITS16, *at),
        ContentPiece::Bits(FlagCount::ThirtyTwo, at) => (BITS32, *at),
        ContentPiece::Period(at) => (PERIOD, *at),
    };
    put(octets, kind.into());
    put(octets, number);
    match piece {
        ContentPiece::Octets(more) => octets.extend_from_slice(more),
        ContentPiece::Code(place) | ContentPiece::Meaning(place) => {
            put(octets, place.partition.into());
        }
        _ => {}
    }
}

/// Appends a number; one that is too large makes octets that are no plan.
fn put(octets: &mut Vec<u8>, number: usize) {
    octets.extend_from_slice(&u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes());
}

/// Takes octets from the front.
struct PlanReader<'octets>(&'octets [u8]);

impl<'octets> PlanReader<'octets> {
    fn number(&mut self) -> Option<usize> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*number).into())
    }

    fn long(&mut self) -> Option<u64> {
        self.take(size_of::<u64>())?.first_chunk().copied().map(u64::from_be_bytes)
    }

    fn take(&mut self, length: usize) -> Option<&'octets [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn counted(&mut self) -> Option<Vec<u8>> {
        let length = self.number()?;
        self.take(length).map(<[u8]>::to_vec)
    }

    /// A request for reports of so many octets.
    fn request(&mut self, report: usize) -> Option<RequestPlan> {
        let options = self.counted().filter(|it| it.len() <= OPTIONS_MAX)?;
        let name = [self.counted()?, self.counted()?];
        let count = self.number().filter(|it| *it <= PIECES_MAX)?;
        let mut content = Vec::with_capacity(count);
        for _ in 0..count {
            content.push(self.piece(report)?);
        }
        Some(RequestPlan { options, name, content })
    }

    fn piece(&mut self, report: usize) -> Option<ContentPiece> {
        let (kind, number) = (self.number()?, self.number()?);
        let place = |width: usize| (number + width <= report).then_some(number);
        Some(match u16::try_from(kind).ok()? {
            OCTETS => ContentPiece::Octets(self.take(number)?.to_vec()),
            NAME => ContentPiece::Name,
            REPORT => ContentPiece::Report,
            RECEIVED => ContentPiece::Received,
            SFLOAT => ContentPiece::Sfloat(place(2)?),
            FLOAT => ContentPiece::Float(place(4)?),
            ABSOLUTE_TIME => ContentPiece::AbsoluteTime(place(8)?),
            IDENTITY => ContentPiece::Identity,
            CODE => ContentPiece::Code(self.code(place(2)?)?),
            MEANING => ContentPiece::Meaning(self.code(place(2)?)?),
            BITS16 => ContentPiece::Bits(FlagCount::Sixteen, place(2)?),
            BITS32 => ContentPiece::Bits(FlagCount::ThirtyTwo, place(4)?),
            PERIOD => ContentPiece::Period(place(4)?),
            _ => return None,
        })
    }

    fn code(&mut self, at: usize) -> Option<CodePlace> {
        Some(CodePlace { at, partition: u16::try_from(self.number()?).ok()? })
    }
}
