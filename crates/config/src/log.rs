//! `[log]`: where a running gateway writes its events, and which.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Destination, format and lowest severity of written events.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Log {
    /// How they are written; the journal if standard error leads there, else text, unless given.
    pub format: Option<LogFormat>,
    /// The least severe ones that are written; [`LogLevel::Info`] unless given.
    pub level: Option<LogLevel>,
}

/// Format of written events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// A line of text each, on standard error.
    Text,
    /// A line of JSON each, on standard error.
    Json,
    /// To the system's journal, with their fields.
    Journal,
    /// Not at all; the control socket has them.
    None,
}

/// The severity of an event, the most severe first.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something has ended or is lost.
    Error,
    /// Something works less than described, or a person should look at it.
    Warning,
    /// A change of state.
    #[default]
    Info,
    /// Details for whoever looks for a fault.
    Debug,
}

/// The names of the formats, in descriptions and on the command line.
pub(crate) const FORMATS: &[&str] = &["text", "json", "journal", "none"];

/// The names of the levels, in descriptions and on the command line.
pub(crate) const LEVELS: &[&str] = &["error", "warning", "info", "debug"];

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "text" => Self::Text,
            "json" => Self::Json,
            "journal" => Self::Journal,
            "none" => Self::None,
            _ => return Err(format!("{text} is none of {}", FORMATS.join(", "))),
        })
    }
}

impl LogLevel {
    /// All levels, the most severe first.
    pub const ALL: [Self; 4] = [Self::Error, Self::Warning, Self::Info, Self::Debug];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// Its severity in syslog's numbers (RFC 5424 §6.2.1), which the journal takes over.
    pub const fn severity(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| format!("{text} is none of {}", LEVELS.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5424 §6.2.1, table 2: 3 error, 4 warning, 6 informational, 7 debug.
    #[test]
    fn levels_are_those_of_syslog() {
        assert_eq!(LogLevel::ALL.map(LogLevel::severity), [3, 4, 6, 7]);
        assert!(LogLevel::ALL.iter().zip(LEVELS).all(|(level, name)| name.parse() == Ok(*level)));
        assert!(FORMATS.iter().all(|name| name.parse::<LogFormat>().is_ok()));
        assert!("loud".parse::<LogLevel>().is_err() && LogLevel::Error < LogLevel::Debug);
    }
}
