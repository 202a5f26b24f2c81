//! The web interface as a part of a gateway: `[web]`.

use crate::{
    audit::WebAudit,
    places::CONNECTIONS_MAX,
    server::{BoundWeb, WebKeys, WebServer},
    session::TOKENS_UNREADABLE,
    site::Site,
    tokens::TokenFile,
};
use gatewright_bindings::tls::{OpenAcceptor, OpenTls, TlsError};
use gatewright_config::{Config, Listen, Web, WebTls, differences};
use gatewright_descriptors::Claim;
use gatewright_gateway::{Gateway, ServedPart};
use gatewright_part::{
    Change, ComponentError, LogLevel, Part, PartStatus, Staged, Unable, Unchanged, Watched, When,
};
use gatewright_store::StoreError;
use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How long a stop waits for answers that were begun.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// Values whose changes are events.
const WATCHED: &[Watched] = &[
    Watched {
        name: "tokens_limited",
        when: When::Grows,
        level: LogLevel::Warning,
        kind: "tokens-limited",
        text: "an address has shown the web interface too many wrong tokens, and is told to wait a minute",
    },
    Watched {
        name: TOKENS_UNREADABLE,
        when: When::Appears,
        level: LogLevel::Error,
        kind: "tokens-unreadable",
        text: "the web interface admits no token, as their file cannot be read",
    },
];

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
    keys: WebKeys,
    claim: Claim,
}

/// Why the web interface cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The address cannot be bound.
    #[error("[web] listen: cannot listen on {place}: {source}")]
    Listen {
        /// Where.
        place: String,
        /// The cause.
        source: io::Error,
    },
    /// The certificate's files cannot be used.
    #[error("[web] tls: {0}")]
    Tls(#[from] TlsError),
    /// The audit log cannot be opened.
    #[error("[web] audit: {0}")]
    Audit(#[source] StoreError),
    /// The file of tokens cannot be used.
    #[error("[web] tokens: {file}: {source}")]
    Tokens {
        /// The file.
        file: String,
        /// The cause.
        source: io::Error,
    },
}

impl WebError {
    /// The key of the description that cannot be applied, and why.
    pub fn refused(&self) -> (&'static str, String) {
        match self {
            Self::Listen { place, source } => {
                ("[web] listen", format!("cannot listen on {place}: {source}"))
            }
            Self::Tls(error) => ("[web] tls", error.to_string()),
            Self::Audit(error) => ("[web] audit", error.to_string()),
            Self::Tokens { file, source } => ("[web] tokens", format!("{file}: {source}")),
        }
    }

    /// The exit code of a program that ends for this (`sysexits.h`).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Listen { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => 75,
                io::ErrorKind::PermissionDenied => 77,
                _ => 69,
            },
            Self::Audit(error) => error.exit_code().unwrap_or(78),
            Self::Tls(_) | Self::Tokens { .. } => 78,
        }
    }
}

impl From<WebError> for ComponentError {
    fn from(error: WebError) -> Self {
        let (why, exit_code, refused) = (error.to_string(), error.exit_code(), error.refused());
        Self { why, exit_code, refused: Some(refused) }
    }
}

impl From<WebError> for Unable {
    fn from(error: WebError) -> Self {
        let (key, why) = error.refused();
        Self { key: Some(key.to_owned()), why }
    }
}

impl WebPart {
    /// Serves `gateway` as its description `config` says; returns where, if `[web]` is there.
    ///
    /// # Errors
    ///
    /// [`WebError`] names the place or the file.
    pub fn serve(
        &self,
        gateway: &Arc<Gateway>,
        config: &Config,
    ) -> Result<Option<String>, WebError> {
        self.0.site.serve(gateway);
        if let Some(web) = &config.web {
            check_tokens(web)?;
            self.0.site.configure(Some(web), self.audit_of(web)?);
        }
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
        // Its lock is let go of: the next process of this gateway takes it.
        self.0.site.configure(None, None);
    }

    /// The log of changes that a description names: the present one if it is at that path.
    fn audit_of(&self, web: &Web) -> Result<Option<Arc<WebAudit>>, WebError> {
        let Some(path) = web.audit.as_ref().map(Path::new) else { return Ok(None) };
        if let Some(present) = self.0.site.audit().filter(|present| present.path() == path) {
            return Ok(Some(present));
        }
        WebAudit::open(path).map(Some).map_err(WebError::Audit)
    }

    fn open(&self, web: Option<&Web>) -> Result<Option<RunningWeb>, WebError> {
        let Some(web) = web else { return Ok(None) };
        let (listen, keys) = (&web.listen.value, WebKeys::default());
        keys.set(acceptor(web)?);
        let error = |source| {
            let place = match listen {
                Listen::Tcp(address) => address.to_string(),
                Listen::Unix(path) => format!("unix:{path}"),
            };
            WebError::Listen { place, source }
        };
        let bound = BoundWeb::bind(listen).map_err(error)?;
        let site = Arc::clone(&self.0.site);
        let server = WebServer::start(bound, site, keys.clone()).map_err(error)?;
        let claim = Claim::new(u64::try_from(CONNECTIONS_MAX).unwrap_or(u64::MAX));
        Ok(Some(RunningWeb { server, keys, claim }))
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningWeb>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServedPart for WebPart {
    fn serve(
        &self,
        gateway: &Arc<Gateway>,
        config: &Config,
    ) -> Result<Option<String>, ComponentError> {
        Ok(Self::serve(self, gateway, config)?)
    }

    fn end(&self) {
        Self::end(self);
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
        if let Some(web) = &new.web {
            check_tokens(web)?;
        }
        let staged = match (&old.web, &new.web) {
            // The listener stays. Its certificate is read again, as it may be renewed.
            (Some(old), Some(new))
                if old.listen == new.listen && old.tls.is_some() == new.tls.is_some() =>
            {
                StagedListener::Kept(acceptor(new).map_err(WebError::from)?)
            }
            (None, None) => return Ok(Box::new(Unchanged)),
            (_, new) => StagedListener::Other(self.open(new.as_ref())?),
        };
        let audit = new.web.as_ref().map(|web| self.audit_of(web)).transpose()?.flatten();
        Ok(Box::new(StagedWeb { part: self.clone(), staged, web: new.web.clone(), audit }))
    }

    fn tell(&self) -> PartStatus {
        let running = self.running();
        let Some(running) = &*running else { return PartStatus::default() };
        let mut words = vec![("listens_at", running.server.url().to_owned())];
        words.extend(running.claim.shortage().map(|short| ("connections", short.to_string())));
        let site = &self.0.site;
        words.extend(site.authenticator.tokens_error().map(|why| (TOKENS_UNREADABLE, why)));
        words.extend(site.reports().map(|folder| ("reports", folder.display().to_string())));
        let gauges = vec![("viewers", u64::try_from(site.stream.viewers()).unwrap_or(u64::MAX))];
        let mut counters = site.counters.read();
        counters.extend(site.stream.counters.read());
        counters.extend(site.authenticator.counters.read());
        PartStatus { words, gauges, counters, ..PartStatus::default() }
    }

    fn watched(&self) -> &'static [Watched] {
        WATCHED
    }

    fn stop(&self) {
        self.end();
    }
}

/// The listener of a staged description.
enum StagedListener {
    /// The present one, with this certificate.
    Kept(Option<OpenAcceptor>),
    /// Another one, which is open beside the present one, or none.
    Other(Option<RunningWeb>),
}

/// A staged description.
struct StagedWeb {
    part: WebPart,
    staged: StagedListener,
    web: Option<Web>,
    audit: Option<Arc<WebAudit>>,
}

impl Staged for StagedWeb {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        self.part.0.site.configure(self.web.as_ref(), self.audit);
        let mut running = self.part.running();
        match self.staged {
            StagedListener::Kept(acceptor) => {
                if let Some(running) = &*running {
                    running.keys.set(acceptor);
                }
            }
            StagedListener::Other(opened) => {
                let before = std::mem::replace(&mut *running, opened);
                drop(running);
                // It is not waited for: the request for this reload may be among its own.
                drop(before);
            }
        }
        Ok(Vec::new())
    }

    fn undo(self: Box<Self>) {}
}

/// The certificate that a description names.
fn acceptor(web: &Web) -> Result<Option<OpenAcceptor>, TlsError> {
    web.tls.as_ref().map(|tls| open_tls(tls).acceptor()).transpose()
}

fn open_tls(WebTls { certificate, key, authorities }: &WebTls) -> OpenTls {
    let (certificate, key) = (certificate.into(), key.into());
    OpenTls { certificate, key, authorities: authorities.as_ref().map(Into::into) }
}

/// Keys of `config` whose files a start would refuse, each as `[web.tls] key`, and the cause; the files
/// are loaded as by a start, and nothing is connected.
pub fn unusable_files(config: &Config) -> Vec<(String, String)> {
    let Some(web) = &config.web else { return Vec::new() };
    let faults = web.tls.as_ref().map(|tls| open_tls(tls).faults()).unwrap_or_default();
    let tokens = check_tokens(web).err().map(|error| {
        let (key, why) = error.refused();
        (key.to_owned(), why)
    });
    let faults = faults.into_iter();
    faults
        .map(|(key, error)| (format!("[web.tls] {key}"), error.to_string()))
        .chain(tokens)
        .collect()
}

/// Checks that the file of tokens can be read. One that does not exist yet admits nobody.
fn check_tokens(web: &Web) -> Result<(), WebError> {
    let Some(file) = &web.tokens else { return Ok(()) };
    match TokenFile::new(file).read() {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(WebError::Tokens { file: file.clone(), source })
        }
        _ => Ok(()),
    }
}
