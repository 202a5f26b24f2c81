//! Server side of an HTTP/1.1 connection whose requests arrive whole, each in one read.
//!
//! Such a request is answered without hyper: to read it takes a look, and to answer it one write.
//! The first octets that are anything else, HTTP/2 among them, go to hyper with the rest of their
//! connection. Both have the same time limits.

use super::connection::{Awaited, Endings, Patience, Taking, serve_by_hyper};
use super::whole::{read_whole, write_response_message};
use core::convert::Infallible;
use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, ready};
use gatewright_onem2m::{Refusal, Request, Response};
use hyper::body::{Bytes, Incoming};
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

/// Octets that a read makes room for, as hyper does: most requests are a tenth of it.
const READ_OCTETS: usize = 8 * 1024;

/// A request that has arrived whole, or why it is refused and its identifier.
pub(super) type WholeAsked = Result<Request, (Refusal, String)>;

/// Why requests are no longer answered directly.
enum DirectEnd {
    /// The connection is closed, or is to be.
    Closed,
    /// These octets are no whole request.
    Other(Vec<u8>),
}

/// What came of waiting for a request.
enum HeadWait {
    Octets,
    /// The peer has closed the connection, or the server stops.
    End,
    /// Nothing has come in time.
    Late,
}

/// Serves a connection as [`super::connection::serve`] does: whole requests by `answer_whole`, and
/// all others by hyper and `answer`. A body of more than `octets_max` is one of the others.
pub(super) async fn serve<S, W, V, F, R>(
    stream: S,
    (patience, endings): (Patience, Arc<Endings>),
    (octets_max, answer_whole): (usize, W),
    answer: F,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    W: Fn(WholeAsked) -> V + Send,
    V: Future<Output = Response> + Send,
    F: Fn(hyper::Request<Incoming>) -> R + Send + 'static,
    R: Future<Output = Result<hyper::Response<Bytes>, Infallible>> + Send + 'static,
{
    let taking = Arc::new(Taking::default());
    let stream = Awaited::new(stream, patience, (Arc::clone(&endings), Arc::clone(&taking)));
    let mut connection = DirectConnection::new(stream, patience, octets_max);
    let stopping = AtomicBool::new(false);
    let ended = {
        let mut running = pin!(connection.run(&answer_whole, &endings, &stopping));
        tokio::select! {
            // In this order: mostly a request has come.
            biased;
            ended = running.as_mut() => ended,
            _ = stop.changed() => {
                stopping.store(true, Ordering::Relaxed);
                running.await
            }
        }
    };
    let DirectEnd::Other(octets) = ended else { return };
    if stopping.into_inner() {
        // It is seen again there.
        stop.mark_changed();
    }
    let stream = connection.stream.behind(octets);
    serve_by_hyper((stream, taking), (patience, endings), answer, stop).await;
}

/// A connection with whole requests.
struct DirectConnection<S> {
    stream: Awaited<S>,
    patience: Patience,
    octets_max: usize,
    /// Octets that have arrived and are not answered.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Ends at the deadline of a head or before; kept from one to the next, so that it is set anew
    /// once in the time of a limit and not with each request.
    timer: Option<Pin<Box<Sleep>>>,
    /// Seconds since 1970, and their date.
    date: (u64, String),
}

impl<S: AsyncRead + AsyncWrite + Unpin> DirectConnection<S> {
    fn new(stream: Awaited<S>, patience: Patience, octets_max: usize) -> Self {
        let (input, output) = (Vec::new(), Vec::new());
        let date = (0, String::new());
        Self { stream, patience, octets_max, input, output, timer: None, date }
    }

    /// Answers requests until one is not whole, or the connection ends.
    async fn run<W, V>(&mut self, answer: &W, endings: &Endings, stopping: &AtomicBool) -> DirectEnd
    where
        W: Fn(WholeAsked) -> V,
        V: Future<Output = Response>,
    {
        loop {
            if self.input.is_empty() {
                match self.arrival(stopping).await {
                    HeadWait::Octets => {}
                    HeadWait::End => return DirectEnd::Closed,
                    HeadWait::Late => {
                        endings.silent.fetch_add(1, Ordering::Relaxed);
                        return DirectEnd::Closed;
                    }
                }
            }
            let Some(whole) = read_whole(&self.input, self.octets_max) else {
                return DirectEnd::Other(core::mem::take(&mut self.input));
            };
            let serialisation = whole.serialisation;
            let asked = whole.request.map_err(|refusal| (refusal, whole.id.to_owned()));
            self.input.clear();
            let Some(response) = self.answered(answer(asked)).await else {
                return DirectEnd::Closed;
            };
            let is_last = stopping.load(Ordering::Relaxed);
            self.set_date();
            let more = (self.date.1.as_str(), is_last);
            write_response_message(&response, serialisation, more, &mut self.output);
            if self.stream.write_all(&self.output).await.is_err() {
                return DirectEnd::Closed;
            }
            // Its octets are reserved until they are written.
            drop(response);
            self.output.clear();
            self.output.shrink_to(READ_OCTETS);
            if is_last {
                // The peer may have closed it already.
                let _ = self.stream.shutdown().await;
                return DirectEnd::Closed;
            }
        }
    }

    /// Waits for octets, at most for the time of a head; the first of a connection have a limit in
    /// [`Awaited`].
    async fn arrival(&mut self, stopping: &AtomicBool) -> HeadWait {
        let is_first = !self.stream.has_heard();
        let deadline = Instant::now() + self.patience.head;
        poll_fn(|context| {
            match self.poll_input(context) {
                Poll::Ready(Ok(1..)) => return Poll::Ready(HeadWait::Octets),
                Poll::Ready(_) => return Poll::Ready(HeadWait::End),
                Poll::Pending => {}
            }
            if stopping.load(Ordering::Relaxed) {
                return Poll::Ready(HeadWait::End);
            }
            if is_first {
                return Poll::Pending;
            }
            let timer =
                self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            loop {
                ready!(timer.as_mut().poll(context));
                if timer.deadline() >= deadline {
                    return Poll::Ready(HeadWait::Late);
                }
                timer.as_mut().reset(deadline);
            }
        })
        .await
    }

    /// Waits for an answer; `None` if the peer closes the connection before. Octets that come
    /// meanwhile are kept.
    async fn answered(&mut self, answer: impl Future<Output = Response>) -> Option<Response> {
        let mut answer = pin!(answer);
        poll_fn(|context| {
            if let Poll::Ready(response) = answer.as_mut().poll(context) {
                return Poll::Ready(Some(response));
            }
            if self.input.is_empty()
                && let Poll::Ready(Ok(0) | Err(_)) = self.poll_input(context)
            {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
    }

    fn poll_input(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.capacity() < READ_OCTETS {
            self.input.reserve_exact(READ_OCTETS);
        }
        pin!(self.stream.read_buf(&mut self.input)).poll(context)
    }

    fn set_date(&mut self) {
        let now = SystemTime::now();
        let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if second != self.date.0 || self.date.1.is_empty() {
            self.date = (second, httpdate::fmt_http_date(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use gatewright_onem2m::{Release, Status};
    use tokio::io::duplex;
    use tokio::task::JoinHandle;

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_hours(1);
    /// How long anything may take to come about.
    const DEADLINE: Duration = Duration::from_mins(2);

    fn get(id: u32) -> String {
        let first = "GET /cse-in HTTP/1.1\r\nHost: x\r\nX-M2M-RVI: 4\r\nX-M2M-Origin: Ca\r\n";
        format!("{first}X-M2M-RI: {id}\r\n\r\n")
    }

    /// Begins to serve a connection. Requests that are whole have the status 2000, with HTTP's
    /// status 200; all others HTTP's status 202. The request 9 is answered after the signal.
    fn begin(
        (patience, endings): (Patience, Arc<Endings>),
        signal: watch::Receiver<bool>,
        stop: watch::Receiver<bool>,
    ) -> (tokio::io::DuplexStream, JoinHandle<()>) {
        let (peer, ours) = duplex(1 << 16);
        let whole = move |asked: WholeAsked| {
            let mut signal = signal.clone();
            async move {
                let id = asked.map_or_else(|(_, id)| id, |request| request.id);
                if id == "9" {
                    let _ = signal.wait_for(|it| *it).await;
                }
                Response::new(Status::Ok, &*id, Release::default())
            }
        };
        let other = |_| async {
            let mut response = hyper::Response::new(Bytes::new());
            *response.status_mut() = hyper::StatusCode::ACCEPTED;
            Ok(response)
        };
        let serving = serve(ours, (patience, endings), (64, whole), other, stop);
        (peer, tokio::spawn(serving))
    }

    fn statuses(said: &str) -> Vec<&str> {
        said.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect()
    }

    const PATIENT: Patience = Patience { head: LONG, quiet: LONG, echo: LONG, take: LONG };

    /// The octets that come until the connection is closed.
    async fn rest(peer: &mut tokio::io::DuplexStream) -> String {
        let mut said = String::new();
        let read = tokio::time::timeout(DEADLINE, peer.read_to_string(&mut said)).await;
        read.expect("closed in time").unwrap();
        said
    }

    async fn until(peer: &mut tokio::io::DuplexStream, answers: usize) -> String {
        let mut said = Vec::new();
        let reading = async {
            while said.windows(4).filter(|it| it == b"\r\n\r\n").count() < answers {
                assert_ne!(peer.read_buf(&mut said).await.unwrap(), 0, "{said:?}");
            }
        };
        tokio::time::timeout(DEADLINE, reading).await.expect("answered in time");
        String::from_utf8(said).unwrap()
    }

    #[tokio::test]
    async fn whole_requests_are_answered_until_one_is_not() {
        let (_go, signal) = watch::channel(true);
        let (_stay, stop) = watch::channel(false);
        let (mut peer, serving) = begin((PATIENT, Arc::default()), signal, stop);
        for id in 0..3 {
            peer.write_all(get(id).as_bytes()).await.unwrap();
            let said = until(&mut peer, 1).await;
            assert!(said.contains(&format!("x-m2m-ri: {id}\r\n")), "{said}");
            assert_eq!(statuses(&said), ["200"]);
        }
        // Two at once, then one in two pieces: the rest of the connection is hyper's.
        peer.write_all([get(4), get(5)].concat().as_bytes()).await.unwrap();
        assert_eq!(statuses(&until(&mut peer, 2).await), ["202", "202"]);
        peer.write_all(get(6).as_bytes()).await.unwrap();
        assert_eq!(statuses(&until(&mut peer, 1).await), ["202"]);
        drop(peer);
        tokio::time::timeout(DEADLINE, serving).await.expect("ended in time").unwrap();
    }

    /// What comes while a request waits is answered after it, in order.
    #[tokio::test]
    async fn a_request_that_comes_early_is_answered_after_the_one_before() {
        let (go, signal) = watch::channel(false);
        let (_stay, stop) = watch::channel(false);
        let (mut peer, _serving) = begin((PATIENT, Arc::default()), signal, stop);
        peer.write_all(get(9).as_bytes()).await.unwrap();
        tokio::time::sleep(SHORT).await;
        peer.write_all(get(1).as_bytes()).await.unwrap();
        tokio::time::sleep(SHORT).await;
        go.send(true).unwrap();
        let said = until(&mut peer, 2).await;
        let (first, second) = (said.find("x-m2m-ri: 9\r\n"), said.find("x-m2m-ri: 1\r\n"));
        assert!(first.is_some() && first < second, "{said}");
    }

    #[tokio::test]
    async fn a_peer_that_falls_silent_or_goes_ends_its_connection() {
        let (_go, signal) = watch::channel(false);
        let (_stay, stop) = watch::channel(false);
        let hurried = Patience { head: SHORT, ..PATIENT };
        for said in [Vec::new(), vec![get(1)], vec![get(1), get(2)]] {
            let endings = Arc::<Endings>::default();
            let at = (hurried, Arc::clone(&endings));
            let (mut peer, serving) = begin(at, signal.clone(), stop.clone());
            for request in &said {
                peer.write_all(request.as_bytes()).await.unwrap();
                until(&mut peer, 1).await;
            }
            assert_eq!(rest(&mut peer).await, "");
            tokio::time::timeout(DEADLINE, serving).await.expect("ended in time").unwrap();
            assert_eq!(endings.silent.load(Ordering::Relaxed), 1);
        }
        // Nobody waits for the answer any more.
        let (mut peer, serving) = begin((PATIENT, Arc::default()), signal, stop);
        peer.write_all(get(9).as_bytes()).await.unwrap();
        drop(peer);
        tokio::time::timeout(DEADLINE, serving).await.expect("ended in time").unwrap();
    }

    #[tokio::test]
    async fn a_server_that_stops_answers_what_was_asked() {
        let (go, signal) = watch::channel(false);
        let (stay, stop) = watch::channel(false);
        let (mut idle, _) = begin((PATIENT, Arc::default()), signal.clone(), stop.clone());
        idle.write_all(get(1).as_bytes()).await.unwrap();
        until(&mut idle, 1).await;
        let (mut asks, _) = begin((PATIENT, Arc::default()), signal, stop);
        asks.write_all(get(9).as_bytes()).await.unwrap();
        tokio::time::sleep(SHORT).await;
        stay.send(true).unwrap();
        assert_eq!(rest(&mut idle).await, "");
        go.send(true).unwrap();
        let said = rest(&mut asks).await;
        assert!(said.contains("x-m2m-ri: 9\r\n") && said.contains("connection: close"), "{said}");
    }
}
