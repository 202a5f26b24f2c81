//! Admission of connections to a listener of the web interface.
//!
//! A connection that gets one of the last descriptors of the process, or none of the places of
//! connections, is a *probe*: only `/livez` is answered on it, for a short time. So a process whose
//! descriptors or places others hold is not taken for dead and started again. When no descriptor at
//! all is left, a [`Reserve`] makes room for one connection.

use crate::{
    access::ProbeCause,
    counters::count,
    places::{ConnectionPlace, Places},
    site::Site,
};
use gatewright_bindings::accept::{Admission, ConnectionPermit};
use gatewright_descriptors::{are_exhausted, is_among_last};
use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// Maximum probes at a time. They take descriptors that control socket, files and outgoing requests
/// may need.
const PROBES_MAX: usize = 4;

/// How long a probe may take.
const PROBE_WITHIN: Duration = Duration::from_secs(2);

/// Octets of a refused connection's request that are read, so that the refusal is not lost
/// (RFC 9112 §9.6).
const REFUSED_READ_MAX: usize = 4096;

/// Why a connection is refused without reading its request.
const REFUSED: &str =
    r#"{"error":"too many connections are open: close some, or come again later"}"#;

/// Admits connections to a listener.
pub(crate) struct WebAdmission {
    admission: Admission,
    places: Arc<Places>,
    probes: Arc<Semaphore>,
    probe_places: Arc<Places>,
    site: Arc<Site>,
}

/// An admitted connection.
pub(crate) struct AdmittedStream<S> {
    pub(crate) stream: S,
    pub(crate) standing: Standing,
}

/// What an admitted connection holds until it is dropped.
pub(crate) struct Standing {
    pub(crate) place: Arc<ConnectionPlace>,
    /// Why it is a probe, and its end.
    probe: Option<(ProbeCause, Instant)>,
    _permit: Permit,
}

/// A place in one of the limits.
enum Permit {
    Connection { _permit: ConnectionPermit },
    Probe { _permit: OwnedSemaphorePermit, _reserve: Option<TakenReserve> },
}

impl Standing {
    /// Why only `/livez` is answered, if that is so.
    pub(crate) fn probe(&self) -> Option<ProbeCause> {
        self.probe.map(|(cause, _)| cause)
    }

    /// Ends when the connection has to give way, or when the time of a probe is over.
    pub(crate) async fn ended(&self) {
        match self.probe {
            None => self.place.given_up().await,
            Some((_, at)) => {
                let _late = tokio::time::timeout_at(at, self.place.given_up()).await;
            }
        }
    }
}

impl WebAdmission {
    pub(crate) fn new(admission: Admission, site: Arc<Site>) -> Self {
        let probes = Arc::new(Semaphore::new(PROBES_MAX));
        Self { admission, places: Arc::default(), probes, probe_places: Arc::default(), site }
    }

    /// Admits a connection, in the place of another if all places are taken, or refuses it: in words
    /// if it is in the clear. `reserve` was given up for it.
    pub(crate) async fn admit<S: RefusableStream>(
        &self,
        stream: S,
        peer: IpAddr,
        (reserve, is_encrypted): (Option<&Arc<Reserve>>, bool),
    ) -> Option<AdmittedStream<S>> {
        let standing = if reserve.is_some() || is_among_last(&stream) {
            self.admit_probe(ProbeCause::Descriptors, reserve).await
        } else {
            self.admit_connection(&stream, peer).await
        };
        let Some(standing) = standing else {
            count(&self.site.counters.connections_refused);
            if !is_encrypted {
                stream.refuse();
            }
            return None;
        };
        Some(AdmittedStream { stream, standing })
    }

    async fn admit_connection(&self, stream: &impl AsFd, peer: IpAddr) -> Option<Standing> {
        let mut permit = self.admission.admit(stream, peer);
        let lacks_place = permit.is_none() && self.admission.lacks_only_a_place(peer);
        if lacks_place && self.places.make_room().await {
            count(&self.site.counters.connections_displaced);
            permit = self.admission.admit(stream, peer);
        }
        let Some(permit) = permit else {
            return if lacks_place {
                self.admit_probe(ProbeCause::Connections, None).await
            } else {
                None
            };
        };
        let permit = Permit::Connection { _permit: permit };
        Some(Standing { place: Arc::new(self.places.open()), probe: None, _permit: permit })
    }

    /// Admits a probe, in the place of the oldest one if there are too many.
    async fn admit_probe(
        &self,
        cause: ProbeCause,
        reserve: Option<&Arc<Reserve>>,
    ) -> Option<Standing> {
        let permit = || Arc::clone(&self.probes).try_acquire_owned().ok();
        let mut admitted = permit();
        if admitted.is_none() && self.probe_places.make_room().await {
            admitted = permit();
        }
        let taken = reserve.map(|reserve| TakenReserve(Arc::clone(reserve)));
        let permit = Permit::Probe { _permit: admitted?, _reserve: taken };
        let probe = Some((cause, Instant::now() + PROBE_WITHIN));
        Some(Standing { place: Arc::new(self.probe_places.open()), probe, _permit: permit })
    }
}

/// A descriptor that is given up for one connection when no other is left, and taken back when that
/// has ended.
#[derive(Debug)]
pub(crate) struct Reserve {
    /// Duplicated, so that no file is opened.
    any: OwnedFd,
    spare: Mutex<Option<OwnedFd>>,
}

/// Takes the reserve back when it is dropped: after its connection.
struct TakenReserve(Arc<Reserve>);

impl Reserve {
    /// A reserve of the same kind as `any`.
    pub(crate) fn new(any: &impl AsFd) -> io::Result<Arc<Self>> {
        let any = any.as_fd().try_clone_to_owned()?;
        let reserve = Self { any, spare: Mutex::default() };
        reserve.fill();
        Ok(Arc::new(reserve))
    }

    /// Takes a descriptor if there is none in reserve.
    pub(crate) fn fill(&self) {
        let mut spare = self.lock();
        if spare.is_none() {
            // Without one it is tried again before the next connection.
            *spare = self.any.try_clone().ok();
        }
    }

    /// Gives the descriptor up, if `error` says that there is no other; returns whether it has.
    pub(crate) fn give_up_for(&self, error: &io::Error) -> bool {
        are_exhausted(error) && self.lock().take().is_some()
    }

    /// A poisoned lock is safe here: there is a descriptor or none.
    fn lock(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TakenReserve {
    fn drop(&mut self) {
        self.0.fill();
    }
}

/// A stream that can be refused without waiting.
pub(crate) trait RefusableStream:
    AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static
{
    /// Says that there are too many connections, if the peer takes that at once.
    fn refuse(self);
}

impl RefusableStream for TcpStream {
    fn refuse(self) {
        let _read = self.try_read(&mut [0; REFUSED_READ_MAX]);
        let _written = self.try_write(refusal().as_bytes());
    }
}

impl RefusableStream for UnixStream {
    fn refuse(self) {
        let _read = self.try_read(&mut [0; REFUSED_READ_MAX]);
        let _written = self.try_write(refusal().as_bytes());
    }
}

/// The answer to a connection that is refused (RFC 9110 §15.6.4).
fn refusal() -> String {
    let length = REFUSED.len();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{REFUSED}"
    )
}
