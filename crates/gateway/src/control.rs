//! The control socket and metrics page of a running gateway, which a reload may move.

use crate::{
    Gateway,
    api::{ClaimedSocket, ControlServer},
    difference,
    error::{UNAVAILABLE, exit_code_of},
    gateway::{Say, StartError},
    metrics::MetricsServer,
};
use gatewright_config::{Config, Control, Listen};
use gatewright_part::{Change, Part, Staged, Unable};
use std::{
    fmt, fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// The listeners of control socket and metrics page; `None` if there are none.
#[derive(Clone, Default)]
pub(crate) struct ControlListeners(Arc<Mutex<Option<Listening>>>);

struct Listening {
    say: Say,
    place: SocketPlace,
    gateway: Weak<Gateway>,
    path: PathBuf,
    server: ControlServer,
    metrics: Option<MetricsServer>,
}

impl fmt::Debug for ControlListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.lock().as_ref().map(|it| it.path.clone());
        f.debug_tuple("ControlListeners").field(&path).finish()
    }
}

impl ControlListeners {
    fn lock(&self) -> MutexGuard<'_, Option<Listening>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of the control socket, if there is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.lock().as_ref().map(|now| now.path.clone())
    }

    /// Serves the socket `socket` and the metrics page as `control` says.
    pub(crate) fn serve(
        &self,
        say: Say,
        (place, socket): (SocketPlace, ClaimedSocket),
        control: &Control,
        gateway: &Arc<Gateway>,
    ) -> Result<(), ControlError> {
        let path = socket.path().to_owned();
        let server = socket.serve(Arc::clone(gateway)).map_err(|error| at_path(&path, &error))?;
        say(&format!("control socket: {}", path.display()));
        let metrics = serve_metrics(&say, control, gateway)?;
        let gateway = Arc::downgrade(gateway);
        *self.lock() = Some(Listening { say, place, gateway, path, server, metrics });
        Ok(())
    }

    /// Opens the listeners of `new` beside those of `old`.
    fn open(&self, old: &Control, new: &Control) -> Result<StagedListeners, ControlError> {
        let now = self.lock();
        let now = now.as_ref().ok_or_else(|| missing("there is no listener for it here"))?;
        let gateway = now.gateway.upgrade().ok_or_else(|| missing("the gateway ends"))?;
        let path = now.place.path(new);
        let moves = path != now.path;
        let server = if moves {
            let server = ControlServer::start(Arc::clone(&gateway), &path);
            Some((server.map_err(|error| at_path(&path, &error))?, path))
        } else {
            None
        };
        let page_moves = old.metrics != new.metrics;
        let metrics = if page_moves { serve_metrics(&now.say, new, &gateway)? } else { None };
        Ok(StagedListeners { listeners: self.clone(), server, page_moves, metrics })
    }
}

impl Part for ControlListeners {
    fn name(&self) -> &'static str {
        "control"
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        difference::by_key(old, new, "control")
    }

    fn stage(&self, old: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        if old.control == new.control {
            return Ok(Box::new(gatewright_part::Unchanged));
        }
        let staged = self.open(&old.control, &new.control);
        Ok(Box::new(staged.map_err(|why| format!("[control]: {why}"))?))
    }

    /// Ends the listeners and the service of their clients.
    fn stop(&self) {
        let ended = self.lock().take();
        drop(ended);
    }
}

/// New listeners, opened beside those that are to end.
struct StagedListeners {
    listeners: ControlListeners,
    server: Option<(ControlServer, PathBuf)>,
    /// Whether the metrics page moves or ends.
    page_moves: bool,
    metrics: Option<MetricsServer>,
}

impl Staged for StagedListeners {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        let mut guard = self.listeners.lock();
        let Some(now) = guard.as_mut() else { return Ok(Vec::new()) };
        let (mut server, mut metrics) = (None, None);
        if let Some((come, path)) = self.server {
            (now.say)(&format!("control socket: {}", path.display()));
            server = Some(std::mem::replace(&mut now.server, come));
            now.path = path;
        }
        if self.page_moves {
            metrics = std::mem::replace(&mut now.metrics, self.metrics);
        }
        drop(guard);
        // Their threads wait for no lock that is held here.
        drop((server, metrics));
        Ok(Vec::new())
    }

    fn undo(self: Box<Self>) {}
}

/// Options for the control socket's path, which override the description.
pub(crate) struct SocketPlace {
    /// The control socket from the command line, which overrides the description.
    pub(crate) named: Option<PathBuf>,
    /// The control socket if neither the command line nor the description names one.
    pub(crate) default: PathBuf,
}

impl SocketPlace {
    fn path(&self, control: &Control) -> PathBuf {
        let described = || control.socket.as_ref().map(PathBuf::from);
        self.named.clone().or_else(described).unwrap_or_else(|| self.default.clone())
    }

    /// A number that tells the gateway of this control socket from others: FNV-1a of the whole path.
    pub(crate) fn number(&self, control: &Control) -> u64 {
        let path = self.path(control);
        let path = std::path::absolute(&path).unwrap_or(path);
        path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
            (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Takes the control socket before anything else is started: two gateways do not share one.
    pub(crate) fn claim(self, control: &Control) -> Result<(Self, ClaimedSocket), ControlError> {
        let path = self.path(control);
        let socket = ClaimedSocket::claim(&path).map_err(|error| at_path(&path, &error))?;
        Ok((self, socket))
    }
}

/// Why there is no control socket or metrics page.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct ControlError {
    why: String,
    exit_code: u8,
}

impl From<ControlError> for StartError {
    fn from(ControlError { why, exit_code }: ControlError) -> Self {
        Self::Control { why, exit_code }
    }
}

fn missing(why: &str) -> ControlError {
    ControlError { why: why.to_owned(), exit_code: UNAVAILABLE }
}

/// Why there is no control socket. Another gateway that has it does not end soon.
fn at_path(path: &Path, error: &io::Error) -> ControlError {
    let exit_code = exit_code_of(error);
    let place = path.display();
    let refused = |why: String| format!("control socket {place}: {why}");
    match (error.kind(), other_user(path)) {
        (io::ErrorKind::AddrInUse, _) => {
            let why = refused(format!(
                "another gateway runs with it; `gatewright status --socket {place}` shows which, and \
                 `run --socket PATH` takes another"
            ));
            ControlError { why, exit_code: UNAVAILABLE }
        }
        (io::ErrorKind::PermissionDenied, Some(user)) => {
            let why = refused(format!(
                "user {user} has it, and a gateway may run with it; `run --socket PATH` takes another"
            ));
            ControlError { why, exit_code }
        }
        // The default folder belongs to root, or to the user of the package's service.
        (io::ErrorKind::PermissionDenied, None) => {
            let why = refused(format!(
                "{error}; `run --socket PATH`, `[control] socket` or XDG_RUNTIME_DIR chooses another \
                 place"
            ));
            ControlError { why, exit_code }
        }
        _ => ControlError { why: refused(error.to_string()), exit_code },
    }
}

/// The owner of the socket at `path`, if it is another user.
fn other_user(path: &Path) -> Option<u32> {
    let found = fs::symlink_metadata(path).ok().filter(|found| found.file_type().is_socket())?;
    Some(found.uid()).filter(|user| *user != nix::unistd::geteuid().as_raw())
}

/// The metrics page, if the description asks for one.
fn serve_metrics(
    say: &Say,
    control: &Control,
    gateway: &Arc<Gateway>,
) -> Result<Option<MetricsServer>, ControlError> {
    let Some(listen) = &control.metrics else { return Ok(None) };
    let place = match &listen.value {
        Listen::Tcp(address) => format!("http://{address}/metrics"),
        Listen::Unix(path) => format!("/metrics at unix:{path}"),
    };
    let server = MetricsServer::start(Arc::clone(gateway), &listen.value).map_err(|error| {
        let exit_code = exit_code_of(&error);
        ControlError { why: format!("metrics {place}: {error}"), exit_code }
    })?;
    say(&format!("metrics: {place}"));
    Ok(Some(server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A socket of another user, at which a connection is denied, is told with its owner.
    #[test]
    fn the_control_socket_of_another_user_is_told() {
        let path = std::env::temp_dir().join(format!("gw-control-of-{}", std::process::id()));
        let _socket = UnixListener::bind(&path).unwrap();
        let denied = || at_path(&path, &io::ErrorKind::PermissionDenied.into()).to_string();
        let own = denied();
        let given = std::os::unix::fs::chown(&path, Some(65_534), None);
        let others = denied();
        fs::remove_file(&path).unwrap();
        assert!(own.contains("XDG_RUNTIME_DIR chooses another place"), "{own}");
        // Only root gives files away.
        if given.is_ok() {
            assert!(others.contains("user 65534 has it, and a gateway may run"), "{others}");
        }
    }
}
