//! Paths of control sockets, and requests to the gateway behind one.

use crate::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_gateway::{
    CaptureRequest, CaptureStream,
    api::{ControlRequest, Refused, ask, follow},
};
use serde_json::Value;
use std::{
    env, fs,
    io::{self, BufRead},
    path::{Path, PathBuf},
};

/// The folder of this user's control sockets.
fn folder() -> PathBuf {
    match env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path).join("gatewright"),
        None => PathBuf::from("/run/gatewright"),
    }
}

/// The default control socket of the gateway `name`.
pub fn default_path(name: &str) -> PathBuf {
    folder().join(format!("{name}.sock"))
}

/// Selects a running gateway.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Path of the control socket; the only one in the default folder if not given.
    // Global, for it to mean the same before and behind the part of a verb.
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
}

impl Which {
    /// Sends a request to that gateway.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that says which gateway does not answer, or what it said.
    pub fn ask(&self, request: &ControlRequest) -> Result<Value, Failure> {
        let path = self.path()?;
        ask(&path, request).map_err(|error| refusal(&path, &error))
    }

    /// As [`Self::ask`], but `None` if no gateway is named and not exactly one runs and answers, or if the
    /// gateway has nothing to answer with.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`], of a gateway that is named.
    pub fn ask_if_there(&self, request: &ControlRequest) -> Result<Option<Value>, Failure> {
        match self.ask(request) {
            Ok(answer) => Ok(Some(answer)),
            Err(failure) if self.socket.is_none() || failure.exit == Exit::Negative => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Sends a description to that gateway; refused keys are returned apart from other errors.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub fn ask_to_take(&self, request: &ControlRequest) -> Result<Value, (Failure, Refused)> {
        let path = self.path().map_err(|failure| (failure, Refused::default()))?;
        ask(&path, request).map_err(|error| {
            let refused = error.get_ref().and_then(|it| it.downcast_ref::<Refused>());
            (refusal(&path, &error), refused.cloned().unwrap_or_default())
        })
    }

    /// Sends a request to that gateway, and prints each entry of the list `key` of its answer in a
    /// line.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`], or if nobody reads the answer.
    pub fn tell_list(
        &self,
        face: Face,
        request: &ControlRequest,
        key: &str,
        line: fn(&Value) -> String,
    ) -> anyhow::Result<Exit> {
        let answer = self.ask(request)?;
        let entries = answer.get(key).and_then(Value::as_array).into_iter().flatten();
        face.answer(&answer, || entries.map(line).collect())?;
        Ok(Exit::Success)
    }

    /// Starts a live capture at that gateway.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub fn capture(&self, request: CaptureRequest) -> Result<CaptureStream, Failure> {
        let path = self.path()?;
        CaptureStream::open(&path, request).map_err(|error| refusal(&path, &error))
    }

    /// Follows that gateway's events as `request` selects them; each is a line of JSON.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub fn follow(&self, request: &ControlRequest) -> Result<impl BufRead + use<>, Failure> {
        let path = self.path()?;
        follow(&path, request).map_err(|error| refusal(&path, &error))
    }

    fn path(&self) -> Result<PathBuf, Failure> {
        self.socket.clone().map_or_else(only_one, Ok)
    }
}

fn refusal(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    let (exit, text) = match error.kind() {
        io::ErrorKind::InvalidData => (Exit::Negative, error.to_string()),
        io::ErrorKind::PermissionDenied => (Exit::Permission, format!("{path}: {error}")),
        io::ErrorKind::ResourceBusy => (Exit::Busy, format!("{path}: {error}: try again later")),
        io::ErrorKind::TimedOut => {
            (Exit::Busy, format!("the gateway at {path} is busy: no answer within 30 s"))
        }
        io::ErrorKind::UnexpectedEof => {
            (Exit::Unavailable, format!("the gateway at {path} ended before it answered"))
        }
        _ => (Exit::Unavailable, format!("no gateway answers at {path}: {error}")),
    };
    Failure::new(exit, text)
}

/// The only control socket in the default folder.
fn only_one() -> Result<PathBuf, Failure> {
    let folder = folder();
    let found = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        found.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    found.sort();
    match &found[..] {
        [only] => Ok(only.clone()),
        [] => {
            let text = format!("no gateway runs: {} has no control socket", folder.display());
            Err(Failure::new(Exit::Unavailable, text))
        }
        several => {
            let names: Vec<_> = several.iter().map(|path| path.display().to_string()).collect();
            let text = format!("several gateways run, say --socket PATH: {}", names.join(", "));
            Err(Failure::new(Exit::Usage, text))
        }
    }
}
