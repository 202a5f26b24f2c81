use std::io;

/// Why a test network could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// The system refused; mostly a missing privilege.
    #[error("cannot {action}: {source}")]
    System {
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A program could not be started; mostly it is not installed.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("{command} failed: {message}")]
    Failed {
        /// The program with its arguments.
        command: String,
        /// Its output on standard error, or else its exit status.
        message: String,
    },
    /// A file of the namespace's `/proc` could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file of the kernel was not in the known format.
    #[error("{path} has no {entry}")]
    NoEntry {
        /// The file.
        path: &'static str,
        /// The missing entry.
        entry: String,
    },
}

impl TestbedError {
    /// Wraps the system's error for `action`.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(nix::errno::Errno) -> Self {
        move |errno| Self::System { action, source: errno.into() }
    }

    /// Wraps an error of the file at `path`.
    pub(crate) fn file(path: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }
}
