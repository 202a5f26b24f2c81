//! Where a parser is: its position, the regions it is in, the check that runs along.

use crate::checksum::Running;

/// A part of the message that has an end of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    /// The position of its end; `None` while it is not known, and for a stream.
    pub(crate) end: Option<u64>,
    /// How many octets a line's end takes, which stands behind the region.
    pub(crate) tail: u8,
}

/// A position within regions.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    /// Octets consumed since the message began.
    pub(crate) at: u64,
    /// From the whole message to the innermost region.
    pub(crate) regions: Vec<Region>,
    /// The check over the octets since it began.
    pub(crate) check: Option<Running>,
}

impl Cursor {
    pub(crate) fn new() -> Self {
        Self { at: 0, regions: vec![Region { end: None, tail: 0 }], check: None }
    }

    /// The end of the innermost region.
    pub(crate) fn end(&self) -> Option<u64> {
        self.regions.last().and_then(|region| region.end)
    }

    /// What of `input`, which begins here, belongs to the innermost region, and whether that is
    /// all up to the region's end.
    pub(crate) fn window<'i>(&self, input: &'i [u8]) -> (&'i [u8], bool) {
        let Some(end) = self.end() else { return (input, false) };
        let left = usize::try_from(end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        input.get(..left).map_or((input, false), |window| (window, true))
    }

    /// Consumes octets.
    pub(crate) fn advance(&mut self, octets: &[u8]) {
        if let Some(check) = &mut self.check {
            check.add(octets);
        }
        self.at = self.at.saturating_add(length(octets));
    }
}

/// How many octets.
pub(crate) fn length(octets: &[u8]) -> u64 {
    u64::try_from(octets.len()).unwrap_or(u64::MAX)
}
