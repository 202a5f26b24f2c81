//! What of a running gateway listens: its control socket and its metrics page, which a reload may
//! move.

use crate::{exit::Exit, exit::Failure, face::Face, socket};
use gatewright_config::{Config, Control, Listen};
use gatewright_gateway::{Configured, ServeControl, api::Server, metrics::MetricsServer};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak, mpsc::Sender},
};

/// What listened before a reload. To be dropped by whoever holds no lock that its clients wait for.
#[derive(Debug)]
pub(crate) struct Retired(Option<Server>, Option<MetricsServer>);

/// What listens now.
pub(crate) struct Rim {
    face: Face,
    /// The socket that the command line names, whatever the description says.
    named: Option<PathBuf>,
    default: PathBuf,
    gateway: Weak<Mutex<Configured>>,
    path: PathBuf,
    server: Option<Server>,
    control: Control,
    metrics: Option<MetricsServer>,
}

impl Rim {
    /// Listens as `config` says, but at the socket `named` if there is one.
    pub(crate) fn serve(
        face: Face,
        named: Option<PathBuf>,
        config: &Config,
        gateway: &Arc<Mutex<Configured>>,
    ) -> Result<Self, Failure> {
        let default = socket::default_path(&config.name);
        let control = config.control.clone();
        let path = place(named.as_ref(), &control, &default);
        let unavailable = |words| Failure::new(Exit::Unavailable, words);
        let server = listen(gateway, &path).map_err(unavailable)?;
        face.note(&format!("control socket: {}", path.display()));
        let metrics = serve_metrics(face, &control, gateway).map_err(unavailable)?;
        let (gateway, server) = (Arc::downgrade(gateway), Some(server));
        Ok(Self { face, named, default, gateway, path, server, control, metrics })
    }

    /// What a reload asks; what listened before goes to `retire`.
    pub(crate) fn on_reload<T: From<Retired> + Send + 'static>(
        mut self,
        retire: Sender<T>,
    ) -> ServeControl {
        Box::new(move |control| {
            let retired = self.change(control)?;
            // Without anybody to take it the process ends.
            let _ended = retire.send(retired.into());
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
        let metrics = if same { None } else { serve_metrics(self.face, control, &gateway)? };
        let mut retired = Retired(None, None);
        if moves {
            self.face.note(&format!("control socket: {}", path.display()));
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
    face: Face,
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
    face.note(&format!("metrics: {place}"));
    Ok(Some(server))
}
