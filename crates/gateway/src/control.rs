//! Control socket and metrics page of a running gateway, which a reload may move.

use crate::{Configured, ServeControl, api::Server, gateway::Say, metrics::MetricsServer};
use gatewright_config::{Control, Listen};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    thread,
};

/// Listeners of control socket and metrics page before a reload. They are dropped by a thread that
/// holds no lock that their clients wait for.
#[derive(Debug)]
struct Retired(Option<Server>, Option<MetricsServer>);

/// Listeners of control socket and metrics page.
pub(crate) struct ControlListeners {
    say: Say,
    /// The control socket, whatever the description says.
    named: Option<PathBuf>,
    default: PathBuf,
    gateway: Weak<Mutex<Configured>>,
    path: PathBuf,
    server: Option<Server>,
    control: Control,
    metrics: Option<MetricsServer>,
}

impl ControlListeners {
    /// Listens as `control` says, but at the socket `named` if there is one.
    pub(crate) fn serve(
        say: Say,
        named: Option<PathBuf>,
        default: PathBuf,
        control: &Control,
        gateway: &Arc<Mutex<Configured>>,
    ) -> Result<Self, String> {
        let control = control.clone();
        let path = place(named.as_ref(), &control, &default);
        let server = listen(gateway, &path)?;
        say(&format!("control socket: {}", path.display()));
        let metrics = serve_metrics(&say, &control, gateway)?;
        let (gateway, server) = (Arc::downgrade(gateway), Some(server));
        Ok(Self { say, named, default, gateway, path, server, control, metrics })
    }

    /// What a reload asks.
    pub(crate) fn on_reload(mut self) -> ServeControl {
        Box::new(move |control| {
            let retired = self.change(control)?;
            // Without a thread they are dropped here, and their clients wait for the lock no longer
            // than they listen.
            let started = thread::Builder::new().name("retire".to_owned());
            let _dropped = started.spawn(move || drop(retired));
            Ok(())
        })
    }

    fn change(&mut self, control: &Control) -> Result<Retired, String> {
        let gateway = self.gateway.upgrade().ok_or("the gateway ends")?;
        let path = place(self.named.as_ref(), control, &self.default);
        let moves = path != self.path;
        // Both listen before anything ends.
        let server = if moves { Some(listen(&gateway, &path)?) } else { None };
        let same = self.control.metrics == control.metrics;
        let metrics = if same { None } else { serve_metrics(&self.say, control, &gateway)? };
        let mut retired = Retired(None, None);
        if moves {
            (self.say)(&format!("control socket: {}", path.display()));
            retired.0 = std::mem::replace(&mut self.server, server);
            self.path = path;
        }
        if !same {
            retired.1 = std::mem::replace(&mut self.metrics, metrics);
        }
        self.control = control.clone();
        Ok(retired)
    }
}

fn place(named: Option<&PathBuf>, control: &Control, default: &Path) -> PathBuf {
    let described = || control.socket.as_ref().map(PathBuf::from);
    named.cloned().or_else(described).unwrap_or_else(|| default.to_path_buf())
}

fn listen(gateway: &Arc<Mutex<Configured>>, path: &Path) -> Result<Server, String> {
    Server::start(Arc::clone(gateway), path)
        .map_err(|error| format!("control socket {}: {error}", path.display()))
}

/// The metrics page, if the description asks for one.
fn serve_metrics(
    say: &Say,
    control: &Control,
    gateway: &Arc<Mutex<Configured>>,
) -> Result<Option<MetricsServer>, String> {
    let Some(listen) = &control.metrics else { return Ok(None) };
    let place = match &listen.value {
        Listen::Tcp(address) => format!("http://{address}/metrics"),
        Listen::Unix(path) => format!("/metrics at unix:{path}"),
    };
    let server = MetricsServer::start(Arc::clone(gateway), &listen.value)
        .map_err(|error| format!("metrics {place}: {error}"))?;
    say(&format!("metrics: {place}"));
    Ok(Some(server))
}
