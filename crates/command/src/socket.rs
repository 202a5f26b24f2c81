//! Paths of control sockets, and requests to the gateway behind one.

use crate::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_gateway::{
    CaptureRequest, CaptureStream,
    api::{ControlRequest, Refused, ask, follow},
    socket_path::{end_upgrade, listener_at},
};
use serde_json::Value;
use std::{
    env, fs,
    io::{self, BufRead},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The folder of this user's control sockets.
fn folder() -> PathBuf {
    let set = |name| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let uid = fs::metadata("/proc/self").ok().map(|process| process.uid());
    let owner = |path: &Path| fs::metadata(path).ok().map(|folder| folder.uid());
    folder_of(set("XDG_RUNTIME_DIR"), set("HOME"), uid, owner)
}

/// The same of this environment. A user whom no login gave a folder (`su`, a container) has one in the
/// home folder, where nobody else can put a socket; root and the service have the system's.
fn folder_of(
    runtime: Option<PathBuf>,
    home: Option<PathBuf>,
    uid: Option<u32>,
    owner: impl Fn(&Path) -> Option<u32>,
) -> PathBuf {
    if let Some(runtime) = runtime {
        return runtime.join("gatewright");
    }
    let system = PathBuf::from("/run/gatewright");
    match (uid, home) {
        (Some(uid), Some(home)) if uid != 0 && owner(&system) != Some(uid) => {
            let logged_in = PathBuf::from(format!("/run/user/{uid}"));
            if owner(&logged_in) == Some(uid) {
                logged_in.join("gatewright")
            } else {
                home.join(".local/state/gatewright")
            }
        }
        _ => system,
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
        let entries = answer.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if entries.is_empty() {
            face.note(&format!("no {key}"));
        }
        face.answer(&answer, || entries.iter().map(line).collect())?;
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

    /// The process of that gateway, if it is seen from here.
    pub fn process(&self) -> Option<u32> {
        listener_at(&self.path().ok()?)
    }

    /// Says that the gateway that was being upgraded has ended, so that it is not taken for busy.
    pub fn end_upgrade(&self) {
        if let Ok(path) = self.path() {
            end_upgrade(&path);
        }
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
            let text = format!(
                "no gateway runs: {} has no control socket; if its description names another, say \
                 --socket PATH",
                folder.display()
            );
            Err(Failure::new(Exit::Unavailable, text))
        }
        several => {
            let names: Vec<_> = several.iter().map(|path| path.display().to_string()).collect();
            let text = format!("several gateways run, say --socket PATH: {}", names.join(", "));
            Err(Failure::new(Exit::Usage, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_folder_of_a_login_has_one() {
        let of = |runtime: Option<&str>, home: Option<&str>, uid, owned: &'static str| {
            let owner = move |path: &Path| Some(if path == Path::new(owned) { 7 } else { 0 });
            let folder = folder_of(runtime.map(Into::into), home.map(Into::into), uid, owner);
            folder.to_string_lossy().into_owned()
        };
        let home = Some("/h/me");
        assert_eq!(of(Some("/run/user/7"), home, Some(7), ""), "/run/user/7/gatewright");
        assert_eq!(of(None, home, Some(7), "/run/user/7"), "/run/user/7/gatewright");
        assert_eq!(of(None, home, Some(7), ""), "/h/me/.local/state/gatewright");
        // The service's user, root, and who has no home.
        assert_eq!(of(None, home, Some(7), "/run/gatewright"), "/run/gatewright");
        assert_eq!(of(None, home, Some(0), ""), "/run/gatewright");
        assert_eq!(of(None, None, Some(7), ""), "/run/gatewright");
        assert_eq!(of(None, home, None, ""), "/run/gatewright");
    }
}
