//! Releases of the specification that peers support (TS-0004 §6.4).

use crate::status::{Refusal, Status};

/// A release of the specification (releaseVersionIndicator). What is served is release 4; a
/// peer that speaks an earlier or the following one is answered in its own, because what both
/// know is written alike in all of them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Release {
    /// Release 2a.
    R2a,
    /// Release 3.
    R3,
    /// Release 4.
    #[default]
    R4,
    /// Release 5.
    R5,
}

impl Release {
    /// The supported releases, as a CSE announces them in srv.
    pub const SUPPORTED: [&'static str; 4] = ["2a", "3", "4", "5"];

    /// The indicator on the wire.
    pub const fn text(self) -> &'static str {
        match self {
            Self::R2a => "2a",
            Self::R3 => "3",
            Self::R4 => "4",
            Self::R5 => "5",
        }
    }

    /// The release of an indicator.
    ///
    /// # Errors
    ///
    /// 4001 if it is not one of [`Self::SUPPORTED`].
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        match text {
            "2a" => Ok(Self::R2a),
            "3" => Ok(Self::R3),
            "4" => Ok(Self::R4),
            "5" => Ok(Self::R5),
            _ => Err(Refusal::new(
                Status::ReleaseVersionNotSupported,
                format!("releases 2a to 5 are spoken here, not {text}"),
            )),
        }
    }
}
