//! Options as most protocols have them: a kind, a length, and data.

use core::fmt;

/// Why a list of options cannot be read further; its iterator has ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum OptionError {
    /// The list ends inside an option: malformed by the peer.
    Truncated {
        /// The option.
        kind: u16,
        /// Octets that it counts.
        needed: usize,
        /// Octets that are left.
        found: usize,
    },
    /// The option's length is impossible for its kind: malformed by the peer.
    Length {
        /// The option.
        kind: u16,
        /// Octets that it counts.
        length: usize,
    },
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { kind, needed, found } => {
                write!(f, "option {kind} needs {needed} octets, {found} are left")
            }
            Self::Length { kind, length } => {
                write!(f, "option {kind} cannot be {length} octets long")
            }
        }
    }
}

impl core::error::Error for OptionError {}

/// Reads an option of kind, length and data, where the length counts all three (IPv4, TCP): kind,
/// data and what follows.
pub(crate) fn split_counting_all(octets: &[u8]) -> Result<Option<Split<'_>>, OptionError> {
    let Some((&kind, rest)) = octets.split_first() else { return Ok(None) };
    let truncated =
        |needed| OptionError::Truncated { kind: u16::from(kind), needed, found: octets.len() };
    let (&length, rest) = rest.split_first().ok_or(truncated(HEAD))?;
    let length = usize::from(length);
    let data =
        length.checked_sub(HEAD).ok_or(OptionError::Length { kind: u16::from(kind), length })?;
    let (data, rest) = rest.split_at_checked(data).ok_or(truncated(length))?;
    Ok(Some((kind, data, rest)))
}

/// Kind, data, and what follows the option.
type Split<'p> = (u8, &'p [u8], &'p [u8]);

/// Octets of kind and length.
const HEAD: usize = 2;
