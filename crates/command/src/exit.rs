//! Exit codes, the same for every verb.

use std::fmt::{self, Write};
use std::io::{self, ErrorKind};

/// The result of a verb. Numbers above 63 are those of `sysexits.h`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// Done, or the answer is yes.
    Success,
    /// The answer is no.
    Negative,
    /// The command line is wrong.
    Usage,
    /// No gateway runs there, another has the control socket, or a device or a resource of the
    /// system is missing, as room on a disk.
    Unavailable,
    /// A gateway has too many clients, or another process has the database or an address.
    Busy,
    /// A permission is missing.
    Permission,
    /// A description or another input is wrong.
    Configuration,
}

impl Exit {
    /// All exit codes, with the texts for `--help`.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Success, "done, or the answer is yes"),
        (Self::Negative, "the answer is no, or it did not work"),
        (Self::Usage, "the command line is wrong"),
        (
            Self::Unavailable,
            "no gateway runs there; of `run`: another has the control socket; or the system lacks a \
             device or a resource, as room on a disk",
        ),
        (
            Self::Busy,
            "the gateway is busy, or another process has the database or an address: try again later",
        ),
        (Self::Permission, "a right is missing"),
        (Self::Configuration, "a description or another input is wrong or cannot be read"),
    ];

    /// The result for a library's exit code.
    pub const fn of(code: u8) -> Self {
        match code {
            75 => Self::Busy,
            77 => Self::Permission,
            78 => Self::Configuration,
            _ => Self::Unavailable,
        }
    }

    /// The number for the shell.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Negative => 1,
            Self::Usage => 2,
            Self::Unavailable => 69,
            Self::Busy => 75,
            Self::Permission => 77,
            Self::Configuration => 78,
        }
    }
}

/// The table of exit codes at the end of each help.
pub fn table() -> String {
    let mut text = String::from("Exit codes:");
    for (exit, meaning) in Exit::ALL {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {:<3} {meaning}", exit.code());
    }
    text
}

/// Why a verb ended early, with its exit code; `anyhow` carries it to `main`.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The error, with the name of its object.
    pub message: String,
}

impl Failure {
    /// A failure that the user can act on.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// A file that cannot be read or written.
    pub fn file(path: &str, error: &io::Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::PermissionDenied => Exit::Permission,
            _ if lacks_resource(error) => Exit::Unavailable,
            _ => Exit::Configuration,
        };
        Self::new(exit, format!("{path}: {error}"))
    }
}

/// Whether a disk is full, a quota or a limit on sizes reached, or a device fails: the input is not at
/// fault.
pub fn lacks_resource(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::FileTooLarge
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::OutOfMemory
    ) || error.raw_os_error() == Some(EIO)
}

/// The error of a device that cannot be read or written, for which the standard library has no name.
const EIO: i32 = 5;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    #[test]
    fn missing_rights_files_and_room_are_told_apart() {
        let kinds = [
            (Error::from(ErrorKind::PermissionDenied), 77),
            (Error::from(ErrorKind::NotFound), 78),
            (Error::from(ErrorKind::StorageFull), 69),
            (Error::from(ErrorKind::FileTooLarge), 69),
            (Error::from_raw_os_error(EIO), 69),
        ];
        for (error, code) in kinds {
            let failure = Failure::file("gateway.toml", &error);
            assert_eq!(failure.exit.code(), code);
            assert!(failure.to_string().starts_with("gateway.toml: "), "{failure}");
        }
    }
}
