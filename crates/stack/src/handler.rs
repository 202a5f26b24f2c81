//! Handlers: user code attached to the graph.

use crate::{At, LostNeighbours, Route, Side, View, wiring::framing_of};
use gatewright_packet::{BATCH_MAX, Batch, LinkAddress, LinkIndex, Packet, Pool};
use gatewright_wire::Framing;
use std::{fmt, net::IpAddr, time::Duration};

/// A user's code at a position of the graph.
///
/// It sees every batch that passes there. Packets that it removes are gone, and counted as taken by
/// it; packets that it adds travel on with the others.
pub trait Handler: Send {
    /// Handles the packets that pass.
    fn handle(&mut self, batch: &mut Batch, context: &mut Context<'_>);

    /// A copy for another worker, with shared limits and reports; `None` if there can only be one.
    /// Called when a handler is attached, before it handles anything.
    fn another(&self) -> Option<Box<dyn Handler>> {
        None
    }
}

/// The context of a handler, beside its batch.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) now: Duration,
    pub(crate) frames: &'a Pool,
    pub(crate) sent: &'a mut Vec<(LinkIndex, Packet)>,
    pub(crate) framing: Option<Framing>,
    pub(crate) framings: &'a [(LinkIndex, Framing)],
    /// The host of the graph; none in a test of a handler alone.
    pub(crate) host: Option<&'a View>,
    /// The neighbours lost by the layers; none in a test of a handler alone.
    pub(crate) lost: Option<&'a LostNeighbours>,
}

/// Maximum frames that handlers may send past the graph during one batch.
const SENT_MAX: usize = 2 * BATCH_MAX;

impl Context<'_> {
    /// The time, since the gateway's epoch.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The slab for frames.
    pub fn frames(&self) -> &Pool {
        self.frames
    }

    /// The first header of the packets, if they are whole frames: at the position `frame`. Above it
    /// they begin behind the link layer's header.
    pub fn framing(&self) -> Option<Framing> {
        self.framing
    }

    /// The first header of a link's frames.
    pub fn framing_of(&self, link: LinkIndex) -> Framing {
        framing_of(self.framings, link)
    }

    /// The link-layer address of a link.
    pub fn link_address(&self, link: LinkIndex) -> LinkAddress {
        let interface = self.host.and_then(|host| host.interface(link));
        interface.map_or(LinkAddress::NONE, |interface| interface.link_address)
    }

    /// Whether packets for `destination` are forwarded to another host, if the frame was for us; in a
    /// test of a handler alone none are. Those of one link are not.
    pub fn is_forwarded(&self, destination: IpAddr) -> bool {
        self.host.is_some_and(|host| match destination {
            IpAddr::V4(ip) => !ip.is_link_local() && host.route4(ip) != Route::Local,
            IpAddr::V6(ip) => !ip.is_unicast_link_local() && host.route6(ip) != Route::Local,
        })
    }

    /// The neighbours that did not tell their link-layer addresses.
    pub fn lost_neighbours(&self) -> Option<&LostNeighbours> {
        self.lost
    }

    /// Sends a whole frame by `link`, past the graph.
    ///
    /// # Errors
    ///
    /// Returns the frame if too many were sent with this batch already.
    pub fn send(&mut self, link: LinkIndex, frame: Packet) -> Result<(), Packet> {
        if self.sent.len() >= SENT_MAX {
            return Err(frame);
        }
        self.sent.push((link, frame));
        Ok(())
    }
}

impl<F: FnMut(&mut Batch) + Send> Handler for F {
    fn handle(&mut self, batch: &mut Batch, _: &mut Context<'_>) {
        self(batch);
    }
}

/// A handler that only looks: `tap(|batch| packets += batch.len())`.
pub fn tap(look: impl FnMut(&Batch) + Send + 'static) -> Box<dyn Handler> {
    Box::new(Look(look))
}

struct Look<F>(F);

impl<F: FnMut(&Batch) + Send> Handler for Look<F> {
    fn handle(&mut self, batch: &mut Batch, _: &mut Context<'_>) {
        self.0(batch);
    }
}

/// The place of a handler relative to the layer at the position.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Place {
    /// Sees packets before the layer and may change them.
    Before,
    /// Sees packets in place of the layer, which sees none of them.
    Instead,
    /// Sees packets that the layer passes on.
    After,
    /// Sees packets before the layer, after the other handlers there; meant for handlers that only
    /// look.
    Tap,
}

/// The id of an attachment until it is detached.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AttachmentId(pub u32);

/// The position and place of a handler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attachment {
    /// The position.
    pub at: At,
    /// The direction of the packets.
    pub side: Side,
    /// Before, instead of, after, or beside the layer.
    pub place: Place,
    /// Only packets of this link (received by it, or to be sent by it); all links if `None`.
    pub link: Option<LinkIndex>,
}

impl Attachment {
    /// An attachment on all links, for packets that travel up.
    pub const fn new(at: At, place: Place) -> Self {
        Self { at, side: Side::Receive, place, link: None }
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Before => "before",
            Place::Instead => "instead",
            Place::After => "after",
            Place::Tap => "tap",
        };
        write!(f, "{place} {} {}", self.at, self.side)?;
        self.link.map_or(Ok(()), |link| write!(f, " on link {link}"))
    }
}
