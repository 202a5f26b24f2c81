//! A running gateway.

use crate::{
    control::{Control, Post, Prepared},
    kernel::{Follower, Kernel},
    reopen::Reopen,
    setup::Setup,
    sojourn::Sojourn,
    start::{self, Started},
    status::{LayerStatus, LinkStatus, Status},
    worker::{Command, Pace, TraceOrder, Waker},
};
use gatewright_link::{LinkInfo, OpenError};
use gatewright_packet::{LinkIndex, PoolError};
use gatewright_stack::{
    Attachment, AttachmentId, Counter, Event, Handler, HostError, Sockets, Trace, Wake,
    WiringError, builtin::Match,
};
use std::{
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Why a gateway cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// A link cannot be opened.
    #[error("link {name}: {source}")]
    Link {
        /// The link's name.
        name: String,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// The slab cannot be had.
    #[error(transparent)]
    Slab(#[from] PoolError),
    /// Addresses or routes do not fit.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The layers cannot be joined.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// The system gave no thread or descriptor.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A link could not be opened as another device.
    #[error("link {name}: {reason}")]
    Reopen {
        /// The link's name.
        name: String,
        /// Why, and what has become of it.
        reason: String,
    },
    /// The kernel does not let its links be shared.
    #[error("cannot {action}: {source}")]
    Kernel {
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// Some links are shared with the kernel and others are not: its addresses would be ours on some.
    #[error("link {shared} is shared with the kernel and link {other} is not: all are, or none")]
    Mixed {
        /// A link that is shared.
        shared: String,
        /// One that is not.
        other: String,
    },
    /// The worker has ended.
    #[error("the worker has ended")]
    Ended,
}

/// A link that has become another device.
#[derive(Debug)]
pub(crate) struct Reopened {
    pub(crate) info: LinkInfo,
    /// For how long no frame was taken.
    pub(crate) pause: Duration,
}

/// How long opening a link may take: a busy queue is asked for again for a second.
const REOPENED_WITHIN: Duration = Duration::from_secs(10);

impl GatewayError {
    /// The exit code of a program that ends for this (`sysexits.h`): 77 for a missing permission,
    /// 69 for a missing device or resource.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Link { source, .. } => source.exit_code(),
            Self::Kernel { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 77,
            Self::Mixed { .. } => 78,
            _ => 69,
        }
    }
}

/// How long the worker may take to answer: it answers between two batches, so this is a worker
/// that has ended or hangs in a handler.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A running gateway: links, layers and handlers on a worker of their own.
///
/// Dropping it stops the worker and closes the links.
pub struct Gateway {
    control: Arc<Mutex<Control>>,
    commands: Sender<Command>,
    waker: Arc<Waker>,
    sojourn: Arc<Sojourn>,
    sockets: Sockets,
    started: Instant,
    worker: Option<JoinHandle<()>>,
    events: Option<JoinHandle<()>>,
    /// Follows the kernel, where links are shared with it.
    follower: Option<Follower>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("host", &self.control().host).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Opens every link before the first packet is forwarded: a gateway runs whole or not at all.
    ///
    /// # Errors
    ///
    /// [`GatewayError`] names the link, table or resource that failed.
    pub fn open(setup: &Setup) -> Result<Self, GatewayError> {
        let Started { control, commands, events, waker, sojourn, sockets, worker, news } =
            start::start(setup)?;
        let control = Arc::new(Mutex::new(control));
        let listening = Arc::clone(&control);
        let listener = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || listen(&listening, &events))
            .map_err(|source| GatewayError::System { action: "start a thread", source })?;
        let wake: Arc<dyn Wake> = Arc::<Waker>::clone(&waker);
        let follow = |news| Follower::start(news, Arc::clone(&control), wake);
        let follower = news.map(follow).transpose()?;
        Ok(Self {
            control,
            commands,
            waker,
            sojourn,
            sockets,
            started: Instant::now(),
            worker: Some(worker),
            events: Some(listener),
            follower,
        })
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn command(&self, command: Command) -> Result<(), GatewayError> {
        self.commands.send(command).map_err(|_| GatewayError::Ended)?;
        Wake::wake(self.waker.as_ref());
        Ok(())
    }

    /// The sockets of this gateway's own stack.
    pub const fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Attaches a handler, without losing a packet; it may be detached by the id.
    ///
    /// # Errors
    ///
    /// [`GatewayError::Wiring`] if nothing passes where it was to stand.
    pub fn attach(
        &self,
        attachment: Attachment,
        handler: Box<dyn Handler>,
    ) -> Result<AttachmentId, GatewayError> {
        let mut control = self.control();
        let (id, swap) = control.attach(attachment, handler)?;
        self.exchange(swap)?;
        Ok(id)
    }

    /// Detaches a handler, without losing a packet, and gives it back with what it has counted;
    /// `None` if there is none of this id.
    ///
    /// # Errors
    ///
    /// [`GatewayError::Ended`] if the worker has ended.
    pub fn detach(&self, id: AttachmentId) -> Result<Option<Box<dyn Handler>>, GatewayError> {
        let mut control = self.control();
        let Some(swap) = control.detach(id)? else { return Ok(None) };
        let back = self.exchange(swap)?;
        Ok(back.handlers.into_iter().find(|(gone, ..)| *gone == id).map(|(_, handler, _)| handler))
    }

    /// Compiles a wiring in which just `posts` stand, in their order.
    pub(crate) fn prepare(&self, posts: Vec<Post>) -> Result<Prepared, GatewayError> {
        self.control().prepare(posts)
    }

    /// Exchanges the wiring for one that was prepared, without losing a packet.
    pub(crate) fn commit(&self, prepared: Prepared) -> Result<(), GatewayError> {
        let mut control = self.control();
        let swap = control.commit(prepared);
        self.exchange(swap).map(drop)
    }

    /// Changes the control side's part, and wakes the worker to look at it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Control) -> R) -> R {
        let changed = change(&mut self.control());
        Wake::wake(self.waker.as_ref());
        changed
    }

    /// Waits as `pace` says from now on.
    ///
    /// # Errors
    ///
    /// [`GatewayError::Ended`] if the worker has ended.
    pub fn set_pace(&self, pace: Pace) -> Result<(), GatewayError> {
        self.command(Command::Pace(pace))
    }

    /// Closes a link and opens it as another device; how long its frames were not taken.
    pub(crate) fn reopen(&self, name: &str, order: Reopen) -> Result<Reopened, GatewayError> {
        let started = Instant::now();
        let link = order.device.index().index();
        let (answer, opened) = channel();
        self.command(Command::Reopen(order, answer))?;
        let opened = opened.recv_timeout(REOPENED_WITHIN).map_err(|_| GatewayError::Ended)?;
        let info = opened.map_err(|error| GatewayError::Reopen {
            name: name.to_owned(),
            reason: error.to_string(),
        })?;
        if let Some((_, known)) = self.control().links.get_mut(link) {
            known.clone_from(&info);
        }
        Ok(Reopened { info, pause: started.elapsed() })
    }

    /// Follows one packet; the channel is hung up if another is followed.
    ///
    /// # Errors
    ///
    /// [`GatewayError::Ended`] if the worker has ended.
    pub(crate) fn trace(
        &self,
        link: Option<LinkIndex>,
        which: Match,
        frame: Option<Vec<u8>>,
    ) -> Result<Receiver<Trace>, GatewayError> {
        let (back, traced) = channel();
        let epoch = Instant::now();
        let trace = Trace::new(link, which, move || epoch.elapsed());
        let frame = link.zip(frame);
        self.command(Command::Trace(TraceOrder { trace, frame, back }))?;
        Ok(traced)
    }

    /// Ends the trace that runs.
    ///
    /// # Errors
    ///
    /// [`GatewayError::Ended`] if the worker has ended.
    pub(crate) fn end_trace(&self) -> Result<(), GatewayError> {
        self.command(Command::EndTrace)
    }

    fn exchange(
        &self,
        swap: gatewright_stack::Swap,
    ) -> Result<gatewright_stack::Swap, GatewayError> {
        let (answer, old) = channel();
        self.command(Command::Swap(swap, answer))?;
        old.recv_timeout(ANSWER_WITHIN).map_err(|_| GatewayError::Ended)
    }

    /// What the gateway is and has counted.
    ///
    /// # Errors
    ///
    /// [`GatewayError::Ended`] if the worker has ended.
    pub fn status(&self) -> Result<Status, GatewayError> {
        let (answer, links) = channel();
        self.command(Command::Links(answer))?;
        let counted = links.recv_timeout(ANSWER_WITHIN).map_err(|_| GatewayError::Ended)?;
        let control = self.control();
        let links = (control.links.iter().zip(counted))
            .map(|((name, info), (counters, state))| {
                let interface =
                    (control.host.interfaces().iter()).find(|found| found.name == *name);
                LinkStatus::new(name, info, counters, state, interface)
            })
            .collect();
        let layers = (control.plan.layers().zip(&control.drops))
            .map(|((_, name, link), drops)| LayerStatus::new(name, link, drops))
            .collect();
        Ok(Status {
            uptime: self.started.elapsed(),
            links,
            layers,
            ways: control.ways(),
            unclaimed: control
                .graph_drops
                .iter()
                .map(|(reason, count)| (reason.to_owned(), count))
                .collect(),
            handlers: control.handlers(),
            kernel: control.kernel.as_ref().map(Kernel::status),
            sojourn_p50: self.sojourn.quantile(0.5),
            sojourn_p99: self.sojourn.quantile(0.99),
            sojourn_packets: self.sojourn.packets(),
        })
    }

    /// How long packets stay in this gateway.
    pub fn sojourn(&self) -> &Sojourn {
        &self.sojourn
    }

    /// Changes the host: its addresses and routes.
    pub fn change_host<R>(&self, change: impl FnOnce(&mut gatewright_stack::Host) -> R) -> R {
        let changed = change(&mut self.control().host);
        Wake::wake(self.waker.as_ref());
        changed
    }

    /// Whether the worker runs.
    pub fn is_running(&self) -> bool {
        self.worker.as_ref().is_some_and(|worker| !worker.is_finished())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.follower.take());
        self.waker.stop();
        for thread in [self.worker.take(), self.events.take()].into_iter().flatten() {
            // A worker that panicked has said so on its own thread.
            let _panicked = thread.join();
        }
    }
}

/// Acts upon what the network taught, until the worker has ended.
fn listen(control: &Mutex<Control>, events: &Receiver<Event>) {
    loop {
        let event = events.recv_timeout(Duration::from_millis(500));
        let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(event) => control.learn(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        control.expire(Instant::now());
    }
}

/// A handler's id with where it stands and its count of packets taken.
pub(crate) type Attached = (AttachmentId, Attachment, Counter);
