//! A listener with the thread that serves its connections.

use crate::{
    access::{Arrival, ArrivalKind, Certified, certified},
    admission::{AdmittedStream, Reserve, WebAdmission},
    counters::count,
    places::CONNECTIONS_MAX,
    site::{Site, TRACES_MAX},
    turns::TURNS_MAX,
};
use gatewright_bindings::{
    accept::{Admission, Peers},
    http::{Patience, serve_http1},
    tasks::spawn,
    tls::OpenAcceptor,
};
use gatewright_config::Listen;
use gatewright_gateway::socket_path::{self, SocketPath};
use gatewright_planes::inherited_sockets;
use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdTcpListener},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener as StdUnixListener,
    },
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, mpsc as std_mpsc},
    thread::Builder,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    runtime::{self, Runtime},
    sync::{mpsc, watch},
};

/// Those of one address, where other machines may connect.
const OF_ONE_MAX: usize = CONNECTIONS_MAX / 4;

/// Threads that wait: for the gateway by turns, for packets of traces and taps, for the disk. They end
/// when nothing is asked for ten seconds.
const WAITING_THREADS_MAX: usize = TURNS_MAX + TRACES_MAX + 2;

/// How long answers that were begun may take after the end.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// Pause after `accept` fails (for example, out of descriptors), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The name of a socket that a service manager passes for the web interface
/// (`FileDescriptorName=`, systemd.socket(5)).
const SOCKET_NAME: &str = "web";

/// A bound listener that is not served yet.
#[derive(Debug)]
pub(crate) enum BoundWeb {
    Tcp(StdTcpListener, SocketAddr),
    /// The path is removed at its end, unless a service manager made it.
    Unix(StdUnixListener, PathBuf, Option<SocketPath>),
}

impl BoundWeb {
    /// Binds where `listen` says, or takes the socket that the service manager has opened there under
    /// the name [`SOCKET_NAME`].
    pub(crate) fn bind(listen: &Listen) -> io::Result<Self> {
        let passed = inherited_sockets().iter().filter(|socket| socket.name == SOCKET_NAME);
        for socket in passed {
            if let Some(bound) = Self::of(socket.descriptor()?, listen)? {
                return Ok(bound);
            }
        }
        match listen {
            Listen::Tcp(address) => {
                let listener = StdTcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                Ok(Self::Tcp(listener, address))
            }
            Listen::Unix(path) => {
                let (listener, place) = socket_path::bind(Path::new(path))?;
                Ok(Self::Unix(listener, place.path().to_owned(), Some(place)))
            }
        }
    }

    /// A listening socket, if it is where `listen` says.
    fn of(socket: OwnedFd, listen: &Listen) -> io::Result<Option<Self>> {
        match listen {
            Listen::Tcp(wanted) => {
                let listener = StdTcpListener::from(socket);
                // One of another family has no such address.
                let Ok(address) = listener.local_addr() else { return Ok(None) };
                listener.set_nonblocking(true)?;
                Ok((address == *wanted).then_some(Self::Tcp(listener, address)))
            }
            Listen::Unix(path) => {
                let listener = StdUnixListener::from(socket);
                let Ok(address) = listener.local_addr() else { return Ok(None) };
                let path = Path::new(path);
                listener.set_nonblocking(true)?;
                let is_it = address.as_pathname() == Some(path);
                Ok(is_it.then(|| Self::Unix(listener, path.to_owned(), None)))
            }
        }
    }

    /// Where clients reach it.
    fn url(&self, scheme: &str) -> String {
        match self {
            Self::Tcp(_, address) => format!("{scheme}://{address}"),
            Self::Unix(_, path, _) => format!("unix:{}", path.display()),
        }
    }
}

/// A served listener; dropping it ends it, and its connections once their answers are sent.
#[derive(Debug)]
pub(crate) struct WebServer {
    url: String,
    stop: watch::Sender<bool>,
    /// Closed when the thread has ended.
    ended: std_mpsc::Receiver<()>,
}

impl WebServer {
    /// Serves `bound` on a thread of its own.
    ///
    /// # Errors
    ///
    /// If the system gives no thread or no descriptor.
    pub(crate) fn start(bound: BoundWeb, site: Arc<Site>, tls: WebKeys) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(WAITING_THREADS_MAX)
            .thread_name("web-ask")
            .build()?;
        let url = bound.url(if tls.acceptor().is_some() { "https" } else { "http" });
        let (stop, stopped) = watch::channel(false);
        let (alive, ended) = std_mpsc::channel();
        let listener = WebListener::new(bound, &runtime)?;
        let reserve = Reserve::new(&listener)?;
        Builder::new().name("web".to_owned()).spawn(move || {
            runtime.block_on(listener.run((site, tls), reserve, stopped));
            // One that still waits for the gateway is not waited for.
            runtime.shutdown_background();
            drop(alive);
        })?;
        Ok(Self { url, stop, ended })
    }

    /// Where clients reach it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Ends it; waits at most `patience`, as its own threads may be those that end it.
    pub(crate) fn stop(&self, patience: Duration) {
        self.stop.send_replace(true);
        // Nothing is ever sent: it is closed, or it is late.
        let _ended = self.ended.recv_timeout(patience);
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// A listener of the runtime.
enum WebListener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Removed last.
        _place: Option<SocketPath>,
    },
}

/// A connection that was accepted.
enum WebStream {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl AsFd for WebListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

impl WebListener {
    fn new(bound: BoundWeb, runtime: &Runtime) -> io::Result<Self> {
        let _entered = runtime.enter();
        Ok(match bound {
            BoundWeb::Tcp(listener, _) => Self::Tcp(TcpListener::from_std(listener)?),
            BoundWeb::Unix(listener, _, place) => {
                Self::Unix { listener: UnixListener::from_std(listener)?, _place: place }
            }
        })
    }

    async fn accept(&self) -> io::Result<WebStream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Events are small and go out at once.
                stream.set_nodelay(true)?;
                Ok(WebStream::Tcp(stream, peer))
            }
            Self::Unix { listener, .. } => Ok(WebStream::Unix(listener.accept().await?.0)),
        }
    }

    /// Accepts a connection that waits already; an error if there is none.
    async fn accept_waiting(&self) -> io::Result<WebStream> {
        tokio::time::timeout(ACCEPT_PAUSE, self.accept()).await?
    }

    /// Serves connections until `stop` is set, and then at most [`FINISH_WITHIN`].
    async fn run(
        self,
        (site, tls): (Arc<Site>, WebKeys),
        reserve: Arc<Reserve>,
        mut stop: watch::Receiver<bool>,
    ) {
        let kind = self.kind();
        let of_one = if kind == ArrivalKind::Network { OF_ONE_MAX } else { usize::MAX };
        let admission = Admission::new(CONNECTIONS_MAX, &Arc::new(Peers::new(of_one)));
        let admission = WebAdmission::new(admission, Arc::clone(&site));
        let (served, mut all_ended) = mpsc::channel::<Infallible>(1);
        loop {
            reserve.fill();
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                _ = stop.changed() => break,
            };
            let (accepted, given_up) = match accepted {
                Err(error) if reserve.give_up_for(&error) => {
                    (self.accept_waiting().await, Some(&reserve))
                }
                accepted => (accepted, None),
            };
            let serving =
                Serving { site: Arc::clone(&site), stop: stop.clone(), _served: served.clone() };
            match accepted {
                Ok(WebStream::Tcp(stream, peer)) => {
                    let acceptor = tls.acceptor();
                    let how = (given_up, acceptor.is_some());
                    let Some(admitted) = admission.admit(stream, peer.ip(), how).await else {
                        continue;
                    };
                    let probe = admitted.standing.probe();
                    let arrival = Arrival { probe, ..Arrival::new(kind, Some(peer.ip())) };
                    match acceptor {
                        None => drop(spawn(serving.serve(admitted, arrival))),
                        Some(acceptor) => drop(spawn(serving.meet(acceptor, admitted, arrival))),
                    }
                }
                Ok(WebStream::Unix(stream)) => {
                    let owner = IpAddr::V4(Ipv4Addr::LOCALHOST);
                    if let Some(admitted) = admission.admit(stream, owner, (given_up, false)).await
                    {
                        let probe = admitted.standing.probe();
                        let arrival = Arrival { probe, ..Arrival::new(kind, None) };
                        spawn(serving.serve(admitted, arrival));
                    }
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
        drop((self, reserve, served));
        let _late = tokio::time::timeout(FINISH_WITHIN, all_ended.recv()).await;
    }

    fn kind(&self) -> ArrivalKind {
        match self {
            Self::Unix { .. } => ArrivalKind::Unix,
            Self::Tcp(listener) => {
                let is_loopback = listener.local_addr().is_ok_and(|at| at.ip().is_loopback());
                if is_loopback { ArrivalKind::Loopback } else { ArrivalKind::Network }
            }
        }
    }
}

/// What a connection is served with.
struct Serving {
    site: Arc<Site>,
    stop: watch::Receiver<bool>,
    /// Closed when no connection is left.
    _served: mpsc::Sender<Infallible>,
}

impl Serving {
    /// Serves a connection after its handshake.
    async fn meet(
        self,
        acceptor: OpenAcceptor,
        AdmittedStream { stream, standing }: AdmittedStream<TcpStream>,
        arrival: Arrival,
    ) {
        let accepted = tokio::select! {
            accepted = acceptor.accept(stream) => accepted,
            () = standing.ended() => return,
        };
        let Some((stream, shown)) = accepted else {
            count(&self.site.counters.handshakes_failed);
            return;
        };
        let certified = shown.map(|shown| Certified {
            role: certified(&shown.names),
            fingerprint: shown.fingerprint,
        });
        let arrival = Arrival { is_secure: true, certified, ..arrival };
        self.serve(AdmittedStream { stream, standing }, arrival).await;
    }

    /// Serves a connection.
    async fn serve<S>(self, admitted: AdmittedStream<S>, arrival: Arrival)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { site, stop, _served } = self;
        let AdmittedStream { stream, standing } = admitted;
        let limits = (Patience::default(), Arc::clone(&site.counters.endings));
        let stopped = stop.clone();
        let its = Arc::clone(&standing.place);
        let answer = move |request| {
            its.asks();
            let its = Arc::clone(&its);
            let answer = Arc::clone(&site).answer(request, (arrival, its, stopped.clone()));
            async move { Ok::<_, Infallible>(answer.await) }
        };
        tokio::select! {
            () = serve_http1(stream, limits, answer, stop) => {}
            () = standing.ended() => {}
        }
    }
}

/// The certificate of a listener, which a reload may exchange; `None` without TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebKeys(Arc<RwLock<Option<OpenAcceptor>>>);

impl WebKeys {
    /// Uses this acceptor for handshakes from now on.
    pub(crate) fn set(&self, acceptor: Option<OpenAcceptor>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
    }

    fn acceptor(&self) -> Option<OpenAcceptor> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
