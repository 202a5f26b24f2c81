use std::io;

/// Why a network could not be made as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// The system refused; mostly a missing privilege.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A program could not be started; mostly it is not installed.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("{command} failed: {message}")]
    Failed {
        /// The program with its arguments.
        command: String,
        /// What it wrote to its standard error, or its exit status if it wrote nothing.
        message: String,
    },
    /// A file of the namespace's `/proc` could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A file of the kernel was not in the form this crate knows.
    #[error("{path} has no {entry}")]
    NoEntry {
        /// The file.
        path: &'static str,
        /// What was looked for.
        entry: String,
    },
}

impl TestbedError {
    /// Wraps what the system answered to `action`.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(nix::errno::Errno) -> Self {
        move |errno| Self::System { action, source: errno.into() }
    }

    /// Wraps what happened to the file at `path`.
    pub(crate) fn file(path: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }
}
