//! The face of the data plane: requests and answers, as plain values.
//!
//! A [`Port`] is a data plane as the control plane sees it. [`Workers`](crate::Workers) runs it on
//! threads, [`DataProcess`](crate::DataProcess) in another process,
//! [`Simulator`](crate::Simulator) in virtual time on the caller's thread. No value here holds a
//! pointer, a channel or a closure. A handler travels as its name and parameters
//! ([`HandlerValue`]), and is built by the data plane. Only handlers of embedders' own code need
//! another way in, which threads alone have ([`Port::keep`]).

use crate::{
    CaptureNumber, CaptureReaders, DataError, FlowBalance, Forget, HandlerNow, LinkNow,
    NeighbourUpdate, Pace, Reopen,
};
use gatewright_link::LinkInfo;
use gatewright_packet::LinkIndex;
use gatewright_stack::{
    Attachment, AttachmentId, GraphTimes, Handler, TraceStep, VirtualLink,
    builtin::{HostPart, Match, Rule, Subnet, Verdict},
};
use std::{net::IpAddr, sync::Arc, time::Duration};

/// The number of a request, which its answer bears.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestNumber(pub u64);

/// A request to the data plane, executed between two batches.
#[derive(Clone, Debug)]
pub enum PortRequest {
    /// Build the handlers of a new wiring, in their order; nothing changes yet.
    /// [`PortAnswer::Staged`].
    Stage(Vec<HandlerOrder>),
    /// Exchange the wiring for a staged one, without losing a packet. [`PortAnswer::Done`].
    Commit(StageNumber),
    /// Drop a staged wiring. [`PortAnswer::Done`].
    Discard(StageNumber),
    /// Take the kernel's neighbour updates. [`PortAnswer::Done`], at once.
    Neighbours(Vec<NeighbourUpdate>),
    /// Ask neighbours whether they are still there: drivers have forwarded packets to them, and they
    /// are not fresh. [`PortAnswer::Done`], at once.
    NeighboursUsed(Vec<(LinkIndex, IpAddr)>),
    /// Forget neighbours, take newly set ones, and write down the known ones. [`PortAnswer::Done`].
    LookAtNeighbours(Option<Forget>),
    /// Report the counters of links, and whether they are up. [`PortAnswer::Links`].
    Links,
    /// Change how the workers wait. [`PortAnswer::Done`], at once.
    Pace(Pace),
    /// Open a device for a later [`Self::Reopen`], while the last one still moves frames; find out
    /// if one that can only be opened afterwards can be opened, as far as that is known.
    /// [`PortAnswer::Done`].
    Prepare(Box<Reopen>),
    /// Close the devices that were prepared and not used. [`PortAnswer::Done`], at once.
    DropPrepared,
    /// Close a link and open it on another device. [`PortAnswer::Reopened`].
    Reopen(Box<Reopen>),
    /// Take a link down, or up again. [`PortAnswer::Done`], at once.
    SetLink {
        /// The link.
        link: LinkIndex,
        /// Whether it receives and sends.
        up: bool,
    },
    /// Receive frames, which wait ([`DataSetup::waits`](crate::DataSetup::waits)): handlers and
    /// sockets are there. [`PortAnswer::Done`], at once.
    Receive,
    /// The same, and begin what waits for the whole gateway to be ready: replays of capture files.
    /// [`PortAnswer::Done`], at once.
    Begin,
    /// Trace one packet. [`PortAnswer::Traced`] when it has gone its way, or the trace is ended.
    Trace(TraceOrder),
    /// End this trace, or all that run. [`PortAnswer::Done`], at once.
    EndTrace(Option<TraceNumber>),
    /// Have the packets that were captured until now given to their readers. [`PortAnswer::Done`].
    FlushCaptures,
    /// Measure the times of layers for so long, and report those so far. [`PortAnswer::Measured`].
    Measure(Duration),
}

impl PortRequest {
    /// Whether its answer says nothing ([`PortAnswer::Done`], at once), so that none is sent.
    pub(crate) const fn is_silent(&self) -> bool {
        matches!(
            self,
            Self::Discard(_)
                | Self::DropPrepared
                | Self::Neighbours(_)
                | Self::NeighboursUsed(_)
                | Self::EndTrace(_)
        )
    }
}

/// An answer of the data plane.
#[derive(Clone, Debug)]
pub enum PortAnswer {
    /// The request is executed, or will be before any later one.
    Done,
    /// A wiring is staged.
    Staged(StageNumber),
    /// Each link's counters over all workers, whether it is up, and the worker of each queue.
    Links(Vec<LinkNow>),
    /// A link is open on another device, which has these properties.
    Reopened(Box<LinkInfo>),
    /// The steps of a traced packet; empty if none came.
    Traced(Vec<TraceStep>),
    /// The times of layers, those of all workers together, since their measurement began.
    Measured(GraphTimes),
}

/// A wiring that is ready to be exchanged.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StageNumber(pub u64);

/// A handler and its place in the order of a new wiring.
#[derive(Clone, Debug, PartialEq)]
pub enum HandlerOrder {
    /// A handler that is attached already.
    Kept(AttachmentId),
    /// A new handler, under a new id.
    New(AttachmentId, Attachment, HandlerValue),
}

/// A handler as its name and parameters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HandlerValue {
    /// Counts packets and octets.
    Count,
    /// Drops packets that match.
    Drop {
        /// Which packets.
        which: Match,
    },
    /// Drops packets by rules in order, and by a default.
    Filter {
        /// The rules.
        rules: Vec<Rule>,
        /// The verdict on packets that no rule matches.
        default: Verdict,
    },
    /// Passes a number of packets a second.
    RateLimit {
        /// Packets a second.
        rate: u32,
        /// Packets at once.
        burst: u32,
    },
    /// The same by a bucket that drivers have, too, for the packets that they forward.
    RateLimitWithDrivers {
        /// Packets a second.
        rate: u32,
        /// Packets at once.
        burst: u32,
        /// The bucket's number.
        bucket: u16,
    },
    /// Gives packets the next hop of their flow.
    NextHops {
        /// The destinations of the route, whose next hop is the first of them.
        to: Subnet,
        /// The next hops.
        balance: FlowBalance,
    },
    /// Sends a copy of each packet by a link.
    Mirror {
        /// The link.
        to: LinkIndex,
    },
    /// Sends copies of packets to the reader of a capture.
    Capture {
        /// Which packets.
        which: Match,
        /// The capture.
        to: CaptureNumber,
    },
    /// Carries packets between a link and the kernel's interface beside it.
    Host {
        /// Which packets.
        part: HostPart,
        /// The link that they leave by.
        to: LinkIndex,
    },
    /// A handler of the embedder's own code, kept by [`Port::keep`].
    Kept(KeptHandler),
}

/// The number of a handler that is no plain value.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeptHandler(pub u64);

/// The number of a trace, by which it alone is ended: whoever orders traces gives each its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceNumber(pub u64);

/// An order to trace one packet.
#[derive(Clone, Debug)]
pub struct TraceOrder {
    /// The trace.
    pub number: TraceNumber,
    /// The link of the packet; any if `None`.
    pub link: Option<LinkIndex>,
    /// Which packet.
    pub which: Match,
    /// A frame for the link to receive now, instead of the next frame that arrives.
    pub frame: Option<Vec<u8>>,
    /// The link, if it is virtual: the frame comes with its tag, by the link below.
    pub own: Option<VirtualLink>,
}

/// Maximum time for an answer. Workers answer between two batches, so one that takes longer has
/// ended or hangs in a handler.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A data plane, as the control plane sees it.
pub trait Port {
    /// Takes a request; requests are executed in their order.
    ///
    /// # Errors
    ///
    /// [`DataError`] if it is refused at once, or a worker has ended.
    fn submit(&self, request: PortRequest) -> Result<RequestNumber, DataError>;

    /// The answer to a request, awaited for `patience` at the most.
    ///
    /// # Errors
    ///
    /// [`DataError::Late`] if it has not come: ask again. Any other error is the answer.
    fn answer(&self, number: RequestNumber, patience: Duration) -> Result<PortAnswer, DataError>;

    /// The handlers in order.
    fn handlers(&self) -> Vec<HandlerNow>;

    /// Keeps a handler of the caller's own code, to be attached as the returned value. Only threads
    /// can do this: the handler is no plain value.
    ///
    /// # Errors
    ///
    /// [`DataError::OwnCode`] if the workers are in another process.
    fn keep(&self, _: Box<dyn Handler>) -> Result<HandlerValue, DataError> {
        Err(DataError::OwnCode)
    }

    /// A kept handler back, if it is not attached or the last commit has detached it.
    fn take_kept(&self, _: KeptHandler) -> Option<Box<dyn Handler>> {
        None
    }

    /// The readers of captured packets.
    fn capture_readers(&self) -> Arc<CaptureReaders>;

    /// Takes a request and awaits its answer.
    ///
    /// # Errors
    ///
    /// As [`Self::ask_within`].
    fn ask(&self, request: PortRequest) -> Result<PortAnswer, DataError> {
        self.ask_within(request, ANSWER_WITHIN)
    }

    /// Takes a request and awaits its answer for `patience` at the most.
    ///
    /// # Errors
    ///
    /// As [`Self::submit`] and [`Self::answer`].
    fn ask_within(
        &self,
        request: PortRequest,
        patience: Duration,
    ) -> Result<PortAnswer, DataError> {
        let number = self.submit(request)?;
        self.answer(number, patience)
    }
}

impl<P: Port + ?Sized> Port for Arc<P> {
    fn submit(&self, request: PortRequest) -> Result<RequestNumber, DataError> {
        (**self).submit(request)
    }

    fn answer(&self, number: RequestNumber, patience: Duration) -> Result<PortAnswer, DataError> {
        (**self).answer(number, patience)
    }

    fn handlers(&self) -> Vec<HandlerNow> {
        (**self).handlers()
    }

    fn keep(&self, handler: Box<dyn Handler>) -> Result<HandlerValue, DataError> {
        (**self).keep(handler)
    }

    fn take_kept(&self, number: KeptHandler) -> Option<Box<dyn Handler>> {
        (**self).take_kept(number)
    }

    fn capture_readers(&self) -> Arc<CaptureReaders> {
        (**self).capture_readers()
    }

    fn ask_within(
        &self,
        request: PortRequest,
        patience: Duration,
    ) -> Result<PortAnswer, DataError> {
        (**self).ask_within(request, patience)
    }
}
