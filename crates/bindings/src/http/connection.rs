//! Server side of an HTTP connection, with time limits for a peer that sends or accepts nothing.

use crate::tasks::TaskExecutor;
use core::convert::Infallible;
use core::pin::Pin;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::task::{Context, Poll, ready};
use core::time::Duration;
use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::rt::{self, Timer};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::Sleep;

/// Octets of a connection that are read in advance: a whole head, or a piece of a body.
const READ_MAX: usize = 64 * 1024;
/// HTTP/2 flow-control window of a connection, in octets (RFC 9113 §6.9).
const WINDOW: u32 = 64 * 1024;
/// HTTP/2 streams of a connection at a time.
const STREAMS_MAX: u32 = 100;
/// Connection preface of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Octets of a request's head over HTTP/1.1 alone, and of an answer that waits to be written.
const HEAD_MAX: usize = 16 * 1024;
/// Header fields of such a request.
const FIELDS_MAX: usize = 64;
/// Octets that a peer with unwritten answers accepts in [`Patience::take`] at least.
const TAKEN_MIN: u64 = 1_024;

/// Time limits for a silent peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Patience {
    /// Until the protocol version is known, and with HTTP/1 again until the head of each request
    /// has arrived.
    pub head: Duration,
    /// Until a silent HTTP/2 peer is sent a PING (RFC 9113 §6.7).
    pub quiet: Duration,
    /// Until it has answered the PING.
    pub echo: Duration,
    /// Until it has accepted some of the queued octets; [`TAKEN_MIN`] while an answer is unwritten,
    /// as a peer of HTTP/2 may accept frames of the connection and nothing of its streams. A slow
    /// reader stays connected: its queue is bounded, and nothing more of it is read meanwhile.
    pub take: Duration,
}

/// Connections that the server ended, by cause.
#[derive(Debug, Default)]
pub struct Endings {
    /// The peer was silent.
    pub silent: AtomicU64,
    /// The peer did not accept the response.
    pub stuck: AtomicU64,
}

impl Default for Patience {
    fn default() -> Self {
        let [head, quiet, echo, take] = [10, 60, 20, 20].map(Duration::from_secs);
        Self { head, quiet, echo, take }
    }
}

/// Serves a connection until its peer ends it or exceeds a time limit, or until `stop` is set and
/// pending requests are answered.
pub(crate) async fn serve<S, F, R>(
    stream: S,
    (patience, endings): (Patience, Arc<Endings>),
    answer: F,
    stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> R + Send + 'static,
    R: Future<Output = Result<Response<Bytes>, Infallible>> + Send + 'static,
{
    let taking = Arc::new(Taking::default());
    let stream = Awaited::new(stream, patience, (Arc::clone(&endings), Arc::clone(&taking)));
    serve_by_hyper((stream, taking), (patience, endings), answer, stop).await;
}

/// Serves a connection that may have been served before, as [`serve`] does.
pub(super) async fn serve_by_hyper<S, F, R>(
    (stream, taking): (Awaited<S>, Arc<Taking>),
    (patience, endings): (Patience, Arc<Endings>),
    answer: F,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> R + Send + 'static,
    R: Future<Output = Result<Response<Bytes>, Infallible>> + Send + 'static,
{
    let mut builder = auto::Builder::new(TaskExecutor);
    builder
        .http1()
        .timer(ConnectionTimer::default())
        .header_read_timeout(patience.head)
        .keep_alive(true)
        .max_buf_size(READ_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(patience.quiet)
        .keep_alive_timeout(patience.echo)
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .max_concurrent_streams(STREAMS_MAX);
    let answers = Arc::clone(&taking);
    let answer = service_fn(move |request: Request<Incoming>| {
        // Over HTTP/1, what a peer does not accept stops the connection.
        let taking = (request.version() == Version::HTTP_2).then(|| Arc::clone(&answers));
        let answer = answer(request);
        async move { answer.await.map(|answer| answer.map(|body| unwritten(body, taking))) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), answer);
    let stuck = taking.stuck(patience.take);
    tokio::pin!(connection, stuck);
    tokio::select! {
        // A peer that breaks the protocol has been answered as far as that is possible.
        ended = connection.as_mut() => {
            let error = ended.as_ref().err().and_then(|it| it.downcast_ref::<hyper::Error>());
            if error.is_some_and(hyper::Error::is_timeout) {
                endings.silent.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        () = stuck.as_mut() => {
            endings.stuck.fetch_add(1, Ordering::Relaxed);
            return;
        }
        _ = stop.changed() => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = stuck => {
            endings.stuck.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Serves a connection of HTTP/1.1, whose answers may have bodies without an end, as [`serve`] does one
/// of any version: until its peer ends it or exceeds a time limit, or until `stop` is set and pending
/// requests are answered.
pub async fn serve_http1<S, F, R, B>(
    stream: S,
    (patience, endings): (Patience, Arc<Endings>),
    answer: F,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> R + Send + 'static,
    R: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    // Only answers of HTTP/2 are counted there.
    let taking = Arc::default();
    let stream = Awaited::new(stream, patience, (Arc::clone(&endings), taking));
    let mut builder = http1::Builder::new();
    builder
        .timer(ConnectionTimer::default())
        .header_read_timeout(patience.head)
        .keep_alive(true)
        .max_headers(FIELDS_MAX)
        .max_buf_size(HEAD_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => {
            if ended.is_err_and(|error| error.is_timeout()) {
                endings.silent.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        _ = stop.changed() => connection.as_mut().graceful_shutdown(),
    }
    // A peer that breaks the protocol has been answered as far as that is possible.
    let _ended = connection.await;
}

/// Answers of a connection that are not written, and the octets that its peer has accepted.
#[derive(Debug, Default)]
pub(super) struct Taking {
    unwritten: AtomicUsize,
    octets: AtomicU64,
    /// An answer is there.
    begun: Notify,
}

impl Taking {
    fn count(&self, sent: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(octets)) = sent {
            let octets = u64::try_from(*octets).unwrap_or(u64::MAX);
            self.octets.fetch_add(octets, Ordering::Relaxed);
        }
    }

    /// Ends when the peer accepts too little of its answers.
    async fn stuck(&self, within: Duration) {
        loop {
            self.begun.notified().await;
            while self.unwritten.load(Ordering::Relaxed) > 0 {
                let before = self.octets.load(Ordering::Relaxed);
                tokio::time::sleep(within).await;
                let taken = self.octets.load(Ordering::Relaxed).wrapping_sub(before);
                // Written in the meantime, or begun anew: each has its time.
                let is_unwritten = self.unwritten.load(Ordering::Relaxed) > 0;
                if is_unwritten && taken < TAKEN_MIN {
                    return;
                }
            }
        }
    }
}

/// A body that counts as unwritten until it is written or dropped.
fn unwritten(octets: Bytes, taking: Option<Arc<Taking>>) -> Full<Bytes> {
    let Some(taking) = taking.filter(|_| !octets.is_empty()) else { return Full::new(octets) };
    taking.unwritten.fetch_add(1, Ordering::Relaxed);
    taking.begun.notify_one();
    Full::new(Bytes::from_owner(UnwrittenBody { octets, taking }))
}

/// The octets of such a body.
struct UnwrittenBody {
    octets: Bytes,
    taking: Arc<Taking>,
}

impl AsRef<[u8]> for UnwrittenBody {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

impl Drop for UnwrittenBody {
    fn drop(&mut self) {
        self.taking.unwritten.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Timer of one HTTP/1 connection, on which each request begins and ends a time limit.
///
/// A timer of the runtime is kept from one limit to the next: it wakes the connection at the end of
/// the earlier one and is set anew only then, once in the time of a limit instead of twice a request.
#[derive(Clone, Debug, Default)]
struct ConnectionTimer(Arc<Mutex<Option<Pin<Box<Sleep>>>>>);

impl ConnectionTimer {
    /// Exchanges the timer that is kept. A poisoned lock is safe here: there is one or none.
    fn exchange(&self, timer: Option<Pin<Box<Sleep>>>) -> Option<Pin<Box<Sleep>>> {
        core::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), timer)
    }
}

impl Timer for ConnectionTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        let deadline = tokio::time::Instant::from_std(deadline);
        let timer = self.exchange(None).filter(|timer| timer.deadline() <= deadline);
        let timer = timer.unwrap_or_else(|| Box::pin(tokio::time::sleep_until(deadline)));
        Box::pin(TimeLimit { timer: Some(timer), deadline, kept: self.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// A time limit of a connection, by a timer that may end before.
#[derive(Debug)]
struct TimeLimit {
    /// There until it is dropped.
    timer: Option<Pin<Box<Sleep>>>,
    deadline: tokio::time::Instant,
    kept: ConnectionTimer,
}

impl Future for TimeLimit {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        let Some(timer) = &mut self.timer else { return Poll::Ready(()) };
        loop {
            ready!(timer.as_mut().poll(context));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

impl rt::Sleep for TimeLimit {}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        let timer = self.timer.take();
        self.kept.exchange(timer);
    }
}

/// A stream with time limits for the HTTP version and for accepting what is sent: hyper has no
/// timer for either.
#[derive(Debug)]
pub(super) struct Awaited<S> {
    stream: S,
    /// Octets that were read before, to be read once more.
    before: Bytes,
    /// Rest of the HTTP/2 preface, while it may be one.
    rest: &'static [u8],
    /// Deadline for the version; `None` once it is known.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Time limit for accepting octets.
    take: Duration,
    /// End of that time limit; `None` while the peer accepts octets.
    stuck_at: Option<Pin<Box<Sleep>>>,
    endings: Arc<Endings>,
    taking: Arc<Taking>,
}

impl<S> Awaited<S> {
    pub(super) fn new(
        stream: S,
        patience: Patience,
        (endings, taking): (Arc<Endings>, Arc<Taking>),
    ) -> Self {
        let Patience { head, take, .. } = patience;
        let deadline = Some(Box::pin(tokio::time::sleep(head)));
        let before = Bytes::new();
        Self { stream, before, rest: PREFACE, deadline, take, stuck_at: None, endings, taking }
    }

    /// Whether octets have come.
    pub(super) const fn has_heard(&self) -> bool {
        self.deadline.is_none() || self.rest.len() < PREFACE.len()
    }

    /// The stream behind octets that were read from it, which are read once more.
    pub(super) fn behind(self, before: Vec<u8>) -> Self {
        Self { before: before.into(), ..self }
    }

    /// Fails a write that has waited too long for the peer.
    fn hurry<T>(
        &mut self,
        context: &mut Context<'_>,
        sent: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.stuck_at = None;
            return sent;
        }
        let take = self.take;
        let stuck_at = self.stuck_at.get_or_insert_with(|| Box::pin(tokio::time::sleep(take)));
        ready!(stuck_at.as_mut().poll(context));
        self.stuck_at = None;
        self.endings.stuck.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn hear(&mut self, octets: &[u8]) {
        match self.rest.strip_prefix(octets) {
            Some(rest) if rest.len() < self.rest.len() && !rest.is_empty() => self.rest = rest,
            // The whole preface, something else, or the end.
            _ => self.deadline = None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Awaited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.before.is_empty() {
            let count = self.before.len().min(buffer.remaining());
            buffer.put_slice(&self.before.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(deadline) = &mut self.deadline {
            if read.is_pending() {
                ready!(deadline.as_mut().poll(context));
                self.endings.silent.fetch_add(1, Ordering::Relaxed);
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.hear(buffer.filled().get(before..).unwrap_or_default());
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Awaited<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(context, octets);
        self.taking.count(&sent);
        self.hurry(context, sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.taking.count(&sent);
        self.hurry(context, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.stream).poll_flush(context);
        self.hurry(context, sent)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.stream).poll_shutdown(context);
        self.hurry(context, sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_hours(1);
    /// How long anything may take to come about.
    const DEADLINE: Duration = Duration::from_mins(2);
    /// A frame of HTTP/2 without content: settings that are the defaults (RFC 9113 §6.5).
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    /// The type of a frame that asks whether the peer is there.
    const PING: u8 = 6;

    /// The octets that the server says to a peer that says this and no more, until it closes.
    async fn told(said: &[u8], patience: Patience) -> Vec<u8> {
        let (mut peer, ours) = duplex(1 << 16);
        peer.write_all(said).await.unwrap();
        let (_stay, stop) = watch::channel(false);
        let answer = |_| async { Ok(Response::new(Bytes::new())) };
        let endings = Arc::default();
        tokio::spawn(async move { serve(ours, (patience, endings), answer, stop).await });
        let mut told = Vec::new();
        let read = tokio::time::timeout(DEADLINE, peer.read_to_end(&mut told)).await;
        read.expect("closed in time").unwrap();
        told
    }

    #[tokio::test]
    async fn a_peer_that_says_nothing_or_no_whole_head_is_let_go() {
        let patience = Patience { head: SHORT, quiet: LONG, echo: LONG, take: LONG };
        let request = "GET / HTTP/1.1\r\nHost: x\r\n";
        let again = format!("{request}\r\n{request}");
        for said in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n", "G", request, &again] {
            let told = told(said.as_bytes(), patience).await;
            assert_eq!(!told.is_empty(), said == again, "{said}");
        }
    }

    #[tokio::test]
    async fn a_peer_of_http_2_that_does_not_answer_is_let_go() {
        let patience = Patience { head: LONG, quiet: SHORT, echo: SHORT, take: LONG };
        let told = told(&[PREFACE.as_slice(), &SETTINGS].concat(), patience).await;
        // RFC 9113 §4.1: the length of three octets, the type, five more, the content.
        let (mut rest, mut kinds) = (told.as_slice(), Vec::new());
        while let Some((&[a, b, c, kind, ..], more)) = rest.split_first_chunk::<9>() {
            kinds.push(kind);
            let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap();
            rest = more.get(length..).unwrap_or_default();
        }
        assert!(kinds.contains(&PING), "{kinds:?}");
    }

    /// Also after it was told to stop, when it waits for nobody but such a peer.
    #[tokio::test]
    async fn a_peer_that_asks_and_takes_nothing_is_let_go() {
        for stops in [false, true] {
            let (mut peer, ours) = duplex(256);
            let patience = Patience { head: LONG, quiet: LONG, echo: LONG, take: SHORT };
            let (stop, stopped) = watch::channel(false);
            let answer = |_| async { Ok(Response::new(Bytes::from(vec![b'x'; 1 << 20]))) };
            let endings = Arc::<Endings>::default();
            let serving = serve(ours, (patience, Arc::clone(&endings)), answer, stopped);
            let serving = tokio::spawn(serving);
            peer.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            // The answer has begun.
            peer.read_exact(&mut [0; 1]).await.unwrap();
            let _ = stop.send(stops);
            tokio::time::timeout(DEADLINE, serving).await.expect("let go in time").unwrap();
            assert_eq!(endings.stuck.load(Ordering::Relaxed), 1);
            assert_eq!(endings.silent.load(Ordering::Relaxed), 0);
        }
    }

    /// Its windows are closed (RFC 9113 §6.9): it accepts frames of the connection, and no answer.
    #[tokio::test]
    async fn a_peer_of_http_2_that_asks_and_opens_no_window_is_let_go() {
        // INITIAL_WINDOW_SIZE is 0 (§6.5.2), then GET http://x/ on stream 1 in fields of HPACK's
        // static table (RFC 7541 appendix A), the authority as a literal.
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
        let headers = [0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x41, 1, b'x'];
        let patience = Patience { head: LONG, quiet: LONG, echo: LONG, take: SHORT };
        for stops in [false, true] {
            let (mut peer, ours) = duplex(1 << 16);
            peer.write_all(&[PREFACE.as_slice(), &settings, &headers].concat()).await.unwrap();
            let (stop, stopped) = watch::channel(false);
            let answer = |_| async { Ok(Response::new(Bytes::from(vec![b'x'; 100]))) };
            let endings = Arc::<Endings>::default();
            let serving = serve(ours, (patience, Arc::clone(&endings)), answer, stopped);
            let serving = tokio::spawn(serving);
            // The answer has begun: its HEADERS are there (RFC 9113 §6.2).
            loop {
                let mut head = [0; 9];
                peer.read_exact(&mut head).await.unwrap();
                let [a, b, c, kind, ..] = head;
                let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap();
                peer.read_exact(&mut vec![0; length]).await.unwrap();
                if kind == 1 {
                    break;
                }
            }
            let _ = stop.send(stops);
            tokio::time::timeout(DEADLINE, serving).await.expect("let go in time").unwrap();
            assert_eq!(endings.stuck.load(Ordering::Relaxed), 1);
        }
    }

    /// A limit that begins when another one has ended is a whole one, and wakes who waits for it.
    #[tokio::test]
    async fn a_timer_that_is_kept_ends_no_limit_early() {
        let timer = ConnectionTimer::default();
        drop(timer.sleep(SHORT));
        for _ in 0..3 {
            let began = Instant::now();
            tokio::time::timeout(DEADLINE, timer.sleep(5 * SHORT)).await.expect("it ends");
            assert!(began.elapsed() >= 5 * SHORT, "{:?}", began.elapsed());
        }
    }

    async fn read(stream: &mut Awaited<DuplexStream>) -> io::Result<usize> {
        stream.read(&mut [0; 64]).await
    }

    /// Only until the version is known: what comes then has limits of its own.
    #[tokio::test]
    async fn who_has_said_its_version_is_not_hurried() {
        for (said, is_known) in
            [(&b"GET"[..], true), (b"PUT", true), (PREFACE, true), (b"PRI * HTTP/", false)]
        {
            let (mut peer, ours) = duplex(64);
            peer.write_all(said).await.unwrap();
            let patience = Patience { head: Duration::ZERO, ..Patience::default() };
            let mut stream = Awaited::new(ours, patience, Default::default());
            assert_eq!(read(&mut stream).await.unwrap(), said.len());
            if is_known {
                let mut octets = [0; 1];
                let mut buffer = ReadBuf::new(&mut octets);
                let waits = poll_fn(|context| {
                    Poll::Ready(Pin::new(&mut stream).poll_read(context, &mut buffer).is_pending())
                });
                assert!(waits.await && stream.deadline.is_none());
            } else {
                let late = tokio::time::timeout(DEADLINE, read(&mut stream)).await.unwrap();
                assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
            }
        }
    }
}
