//! The web interface as a part of a gateway: `[web]`.

use crate::{
    server::{BoundWeb, CONNECTIONS_MAX, WebServer},
    site::Site,
};
use gatewright_config::{Config, Listen, Web, differences};
use gatewright_descriptors::Claim;
use gatewright_gateway::Gateway;
use gatewright_part::{Change, Part, PartStatus, Staged, Unable, Unchanged};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How long a stop waits for answers that were begun.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// The web interface of a gateway. A clone is the same one.
///
/// It is among the parts of a gateway from its start
/// ([`StartOptions::parts`](gatewright_gateway::StartOptions::parts),
/// [`Gateway::with_part`]), and [`serve`](Self::serve) begins it when the gateway runs. Reloads move,
/// begin and end it then.
#[derive(Clone, Debug, Default)]
pub struct WebPart(Arc<WebInterface>);

#[derive(Debug, Default)]
struct WebInterface {
    site: Arc<Site>,
    running: Mutex<Option<RunningWeb>>,
}

/// A listener and the descriptors of its connections.
#[derive(Debug)]
struct RunningWeb {
    server: WebServer,
    claim: Claim,
}

/// Why the web interface cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("[web] listen: cannot listen on {place}: {source}")]
pub struct WebError {
    /// Where.
    pub place: String,
    /// The cause.
    pub source: io::Error,
}

impl WebPart {
    /// Serves `gateway` as its description `config` says; returns where, if `[web]` is there.
    ///
    /// # Errors
    ///
    /// [`WebError`] names the place.
    pub fn serve(
        &self,
        gateway: &Arc<Gateway>,
        config: &Config,
    ) -> Result<Option<String>, WebError> {
        self.0.site.serve(gateway);
        let running = self.open(config.web.as_ref())?;
        let url = running.as_ref().map(|running| running.server.url().to_owned());
        *self.running() = running;
        Ok(url)
    }

    /// Ends it with its connections; a second call does nothing.
    pub fn end(&self) {
        let running = self.running().take();
        if let Some(running) = running {
            running.server.stop(STOP_WITHIN);
        }
    }

    fn open(&self, web: Option<&Web>) -> Result<Option<RunningWeb>, WebError> {
        let Some(web) = web else { return Ok(None) };
        let listen = &web.listen.value;
        let error = |source| {
            let place = match listen {
                Listen::Tcp(address) => address.to_string(),
                Listen::Unix(path) => format!("unix:{path}"),
            };
            WebError { place, source }
        };
        let bound = BoundWeb::bind(listen).map_err(error)?;
        let server = WebServer::start(bound, Arc::clone(&self.0.site)).map_err(error)?;
        let claim = Claim::new(u64::try_from(CONNECTIONS_MAX).unwrap_or(u64::MAX));
        Ok(Some(RunningWeb { server, claim }))
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningWeb>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part for WebPart {
    fn name(&self) -> &'static str {
        "web"
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        differences(old, new, "web").into_iter().map(Change::from).collect()
    }

    fn stage(&self, old: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        if old.web == new.web {
            return Ok(Box::new(Unchanged));
        }
        let opened = self.open(new.web.as_ref()).map_err(|WebError { place, source }| Unable {
            key: Some("[web] listen".to_owned()),
            why: format!("cannot listen on {place}: {source}"),
        })?;
        Ok(Box::new(StagedWeb { part: self.clone(), opened }))
    }

    fn tell(&self) -> PartStatus {
        let running = self.running();
        let Some(running) = &*running else { return PartStatus::default() };
        let mut words = vec![("listens_at", running.server.url().to_owned())];
        words.extend(running.claim.shortage().map(|short| ("connections", short.to_string())));
        let site = &self.0.site;
        let gauges = vec![("viewers", u64::try_from(site.stream.viewers()).unwrap_or(u64::MAX))];
        let mut counters = site.counters.read();
        counters.extend(site.stream.counters.read());
        PartStatus { words, gauges, counters, ..PartStatus::default() }
    }

    fn stop(&self) {
        self.end();
    }
}

/// A listener that is open beside the present one.
struct StagedWeb {
    part: WebPart,
    opened: Option<RunningWeb>,
}

impl Staged for StagedWeb {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        let before = std::mem::replace(&mut *self.part.running(), self.opened);
        // It is not waited for: the request for this reload may be among its own.
        drop(before);
        Ok(Vec::new())
    }

    fn undo(self: Box<Self>) {}
}
