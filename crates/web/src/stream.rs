//! The stream of status and events that all viewers share.
//!
//! One thread samples the gateway once a second and reads its event log, as long as somebody looks.
//! What it finds is written once, as frames of Server-Sent Events (WHATWG HTML §9.2) in a bounded
//! ring. Each viewer reads the ring at its own pace; one that the ring has overtaken is closed.

mod patch;
mod ring;
mod sampler;

pub use patch::merge_patch;

use crate::{
    counters::count,
    session::{Caller, ShownBy},
    tokens::AccessRole,
};
use futures_util::{Stream, stream::unfold};
use gatewright_gateway::{Gateway, events::LogEntry};
use hyper::body::Bytes;
use ring::{FrameRing, NextFrame};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::watch;

/// Maximum viewers at a time.
pub(crate) const VIEWERS_MAX: usize = 256;

/// Maximum streams of one known caller.
const OF_CALLER_MAX: usize = VIEWERS_MAX / 4;

/// Maximum streams of all known callers of the role viewer: the rest is for higher roles.
const OF_VIEWERS_MAX: usize = VIEWERS_MAX / 4 * 3;

/// Maximum octets of a client's Last-Event-ID that are looked at.
const EVENT_ID_MAX: usize = 40;

/// Events that a new viewer is shown.
const RECENT_MAX: usize = 100;

/// The number of the frame with the identifier `id`, in a ring of one frame; for the fuzzer.
pub(crate) fn position(id: &str) -> Option<u64> {
    let mut ring = FrameRing::new(0xa1);
    ring.push("delta", "{}");
    ring.position_of(id)
}

/// What the stream counts.
#[derive(Debug, Default)]
pub(crate) struct StreamCounters {
    /// Streams that were begun.
    pub(crate) streams: AtomicU64,
    /// Streams refused as too many look, of all or of one caller.
    pub(crate) streams_refused: AtomicU64,
    /// Streams that went on where an earlier one had ended.
    pub(crate) streams_resumed: AtomicU64,
    /// Streams closed as the viewer read too slowly.
    pub(crate) streams_overtaken: AtomicU64,
    /// Samples of the gateway's status.
    pub(crate) samples: AtomicU64,
    /// Events that the log had dropped before they were read.
    pub(crate) events_missed: AtomicU64,
}

/// A known caller that looks.
#[derive(Clone, Debug, Eq, PartialEq)]
struct StreamOwner {
    name: String,
    role: AccessRole,
}

/// Why a stream does not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamRefusal {
    /// The system gives no thread for the sampler.
    #[error("no sampler: {0}")]
    Sampler(#[from] io::Error),
    /// Too many look.
    #[error("{0} streams {1}: close some, or come again later")]
    TooMany(usize, &'static str),
}

/// The stream.
#[derive(Debug)]
pub(crate) struct StatusStream {
    state: Mutex<StreamState>,
    /// The number of the last frame; it changes with each.
    latest: watch::Sender<u64>,
    pub(crate) counters: StreamCounters,
}

#[derive(Debug)]
struct StreamState {
    ring: FrameRing,
    /// The last sample.
    status: Option<Value>,
    /// The last events, the oldest first.
    recent: VecDeque<Arc<LogEntry>>,
    /// The snapshot as of the frame of this number.
    snapshot: Option<(u64, Bytes)>,
    /// Whose streams are open; without a name those of callers that have shown nothing.
    viewers: Vec<Option<StreamOwner>>,
    /// When the last viewer left.
    left_at: Instant,
    /// Whether the sampler's thread runs.
    is_sampled: bool,
    /// Whether the gateway has ended.
    has_ended: bool,
}

impl Default for StatusStream {
    fn default() -> Self {
        let state = StreamState {
            ring: FrameRing::new(now_ms()),
            status: None,
            recent: VecDeque::new(),
            snapshot: None,
            viewers: Vec::new(),
            left_at: Instant::now(),
            is_sampled: false,
            has_ended: false,
        };
        let (latest, _) = watch::channel(0);
        Self { state: Mutex::new(state), latest, counters: StreamCounters::default() }
    }
}

/// The data of a snapshot.
#[derive(Serialize)]
struct Snapshot<'a> {
    status: &'a Value,
    events: Vec<&'a LogEntry>,
    now_ms: u64,
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl StreamCounters {
    /// Each counter with its name in status and metrics.
    pub(crate) fn read(&self) -> Vec<(&'static str, u64)> {
        [
            ("streams", &self.streams),
            ("streams_refused", &self.streams_refused),
            ("streams_resumed", &self.streams_resumed),
            ("streams_overtaken", &self.streams_overtaken),
            ("samples", &self.samples),
            ("events_missed", &self.events_missed),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
        .into()
    }
}

impl StatusStream {
    /// A poisoned lock is safe here: each field is set whole.
    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Current viewers.
    pub(crate) fn viewers(&self) -> usize {
        self.lock().viewers.len()
    }

    /// Begins a viewer, after the frame that it had last, if that is still known.
    ///
    /// # Errors
    ///
    /// [`StreamRefusal`] if there are too many, or the system gives no thread.
    pub(crate) fn view(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        caller: &Caller,
        last_event_id: Option<&str>,
    ) -> Result<Viewer, StreamRefusal> {
        let owner = (caller.shown != ShownBy::Nothing).then(|| StreamOwner {
            name: caller.name.clone(),
            role: caller.role.unwrap_or(AccessRole::Viewer),
        });
        let mut state = self.lock();
        state.check_share(owner.as_ref()).inspect_err(|_| count(&self.counters.streams_refused))?;
        if !state.is_sampled {
            state.begin();
            let gateway: Weak<Gateway> = Arc::downgrade(gateway);
            sampler::start(Arc::downgrade(self), gateway)?;
            state.is_sampled = true;
        }
        state.viewers.push(owner.clone());
        let known = last_event_id.filter(|id| id.len() <= EVENT_ID_MAX);
        let position = known.and_then(|id| state.ring.position_of(id));
        drop(state);
        count(&self.counters.streams);
        if position.is_some() {
            count(&self.counters.streams_resumed);
        }
        Ok(Viewer { stream: Arc::clone(self), owner, position, latest: self.latest.subscribe() })
    }

    /// Publishes a frame of this type.
    fn publish(&self, state: &mut StreamState, kind: &str, data: &str) {
        let number = state.ring.push(kind, data);
        self.latest.send_replace(number);
    }
}

impl StreamState {
    /// Checks that one more stream leaves others their share.
    fn check_share(&self, owner: Option<&StreamOwner>) -> Result<(), StreamRefusal> {
        if self.viewers.len() >= VIEWERS_MAX {
            return Err(StreamRefusal::TooMany(VIEWERS_MAX, "are open"));
        }
        let Some(owner) = owner else { return Ok(()) };
        let known = || self.viewers.iter().flatten();
        if known().filter(|other| other.name == owner.name).count() >= OF_CALLER_MAX {
            return Err(StreamRefusal::TooMany(OF_CALLER_MAX, "of this caller are open"));
        }
        let is_viewer = |other: &&StreamOwner| other.role == AccessRole::Viewer;
        if is_viewer(&owner) && known().filter(is_viewer).count() >= OF_VIEWERS_MAX {
            return Err(StreamRefusal::TooMany(OF_VIEWERS_MAX, "of viewers are open"));
        }
        Ok(())
    }

    /// Forgets what an earlier sampler found: nothing was seen in between.
    fn begin(&mut self) {
        self.ring.clear();
        self.status = None;
        self.recent.clear();
        self.snapshot = None;
    }

    /// The snapshot as of the last frame, with its number; `None` before the first sample.
    fn snapshot(&mut self) -> Option<(u64, Bytes)> {
        let number = self.ring.last();
        if let Some((of, snapshot)) = &self.snapshot
            && *of == number
        {
            return Some((number, snapshot.clone()));
        }
        let status = self.status.as_ref()?;
        let events = self.recent.iter().map(|entry| &**entry).collect();
        let data = serde_json::to_string(&Snapshot { status, events, now_ms: now_ms() }).ok()?;
        let snapshot = self.ring.frame(number, "snapshot", &data);
        self.snapshot = Some((number, snapshot.clone()));
        Some((number, snapshot))
    }
}

/// A reader of the stream.
#[derive(Debug)]
pub(crate) struct Viewer {
    stream: Arc<StatusStream>,
    owner: Option<StreamOwner>,
    /// The number of the last frame that it has; `None` before its snapshot.
    position: Option<u64>,
    latest: watch::Receiver<u64>,
}

impl Viewer {
    /// The frames for it, until the gateway ends, `stop` is set, it is too slow, or it is no longer
    /// admitted.
    pub(crate) fn frames(
        self,
        stop: watch::Receiver<bool>,
        is_admitted: impl Fn() -> bool + Send + 'static,
    ) -> impl Stream<Item = Bytes> + Send + 'static {
        unfold((self, stop, is_admitted), |(mut viewer, mut stop, is_admitted)| async move {
            let frame = tokio::select! {
                frame = viewer.next() => frame,
                _ = stop.changed() => None,
            };
            let frame = frame.filter(|_| is_admitted())?;
            Some((frame, (viewer, stop, is_admitted)))
        })
    }

    /// The next frame.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Before the look: a frame that comes after it is not missed.
            self.latest.mark_unchanged();
            if let Poll::Ready(found) = self.look() {
                return found;
            }
            self.latest.changed().await.ok()?;
        }
    }

    /// The frame that is there, or `None` if no further one comes.
    fn look(&mut self) -> Poll<Option<Bytes>> {
        let mut state = self.stream.lock();
        let Some(position) = self.position else {
            let found = state.snapshot();
            return match found {
                _ if state.has_ended => Poll::Ready(None),
                None => Poll::Pending,
                Some((number, snapshot)) => {
                    self.position = Some(number);
                    Poll::Ready(Some(snapshot))
                }
            };
        };
        match state.ring.after(position) {
            NextFrame::Frame(number, frame) => {
                self.position = Some(number);
                Poll::Ready(Some(frame))
            }
            NextFrame::Overtaken => {
                count(&self.stream.counters.streams_overtaken);
                Poll::Ready(None)
            }
            NextFrame::NotYet if state.has_ended => Poll::Ready(None),
            NextFrame::NotYet => Poll::Pending,
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut state = self.stream.lock();
        if let Some(its) = state.viewers.iter().position(|owner| *owner == self.owner) {
            state.viewers.swap_remove(its);
        }
        state.left_at = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn viewer(stream: &Arc<StatusStream>) -> Viewer {
        stream.lock().viewers.push(None);
        let latest = stream.latest.subscribe();
        Viewer { stream: Arc::clone(stream), owner: None, position: None, latest }
    }

    /// A viewer that takes nothing while the ring goes round is closed; one that reads is not.
    #[test]
    fn a_viewer_that_is_overtaken_is_closed_and_counted() {
        let stream = Arc::new(StatusStream::default());
        let (mut slow, mut quick) = (viewer(&stream), viewer(&stream));
        assert_eq!(quick.look(), Poll::Pending, "nothing is sampled yet");
        stream.lock().status = Some(Value::Null);
        assert!(matches!(slow.look(), Poll::Ready(Some(_))) && quick.look().is_ready());
        for _ in 0..1000 {
            stream.publish(&mut stream.lock(), "delta", "{}");
            assert!(matches!(quick.look(), Poll::Ready(Some(_))));
        }
        assert_eq!(quick.look(), Poll::Pending);
        assert_eq!(slow.look(), Poll::Ready(None));
        assert_eq!(stream.counters.streams_overtaken.load(Ordering::Relaxed), 1);
        stream.lock().has_ended = true;
        assert_eq!(quick.look(), Poll::Ready(None));
        drop((slow, quick));
        assert_eq!(stream.viewers(), 0);
    }

    /// Snapshots of the same moment are one text, however many ask.
    #[test]
    fn a_snapshot_is_written_once_for_all() {
        let stream = Arc::new(StatusStream::default());
        stream.lock().status = Some(serde_json::json!({ "a": 1 }));
        let [first, second] = [0, 1].map(|_| stream.lock().snapshot().unwrap());
        assert_eq!(first.1.as_ptr(), second.1.as_ptr());
        stream.publish(&mut stream.lock(), "delta", "{}");
        assert_ne!(stream.lock().snapshot().unwrap().0, first.0);
    }

    /// One caller has its share of streams, viewers leave a reserve, and one that ends makes room.
    #[test]
    fn callers_and_viewers_have_a_share_of_streams() {
        let owner = |name: &str, role| Some(StreamOwner { name: name.to_owned(), role });
        let (viewer, operator) = (AccessRole::Viewer, AccessRole::Operator);
        let stream = Arc::new(StatusStream::default());
        let begins = |owner: Option<StreamOwner>| {
            let mut state = stream.lock();
            state.check_share(owner.as_ref()).map_err(|error| error.to_string())?;
            state.viewers.push(owner);
            Ok::<_, String>(())
        };
        for name in ["a", "b", "c"] {
            for _ in 0..OF_CALLER_MAX {
                begins(owner(name, viewer)).unwrap();
            }
            assert!(begins(owner(name, viewer)).unwrap_err().contains("of this caller"));
        }
        assert!(begins(owner("d", viewer)).unwrap_err().contains("of viewers"));
        for _ in 0..OF_CALLER_MAX {
            begins(owner("ops", operator)).unwrap();
        }
        assert!(begins(None).unwrap_err().starts_with("256 streams are open"));
        let latest = stream.latest.subscribe();
        let ended = owner("a", viewer);
        drop(Viewer { stream: Arc::clone(&stream), owner: ended, position: None, latest });
        begins(owner("d", viewer)).unwrap();
    }
}
