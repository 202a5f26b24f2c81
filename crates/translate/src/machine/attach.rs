//! Attached posts: they see the messages of handlers.
//!
//! Where nothing is attached, none of this runs. A message is watched only if a post was attached
//! when it began.

use super::post::{Acts, Captured, Direction, Plain, Post, PostError, Posted, is_within};
use super::slab::{ConnId, IncomingId};
use super::state::{Incoming, Requester, Watched};
use super::{Count, Machine, Output};
use crate::view::{Held, View};
use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use gatewright_lang::ir::{Answer, HandlerId, MessageId, RoleId, SlotId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Octets of a message that are kept until its handler is known.
const HEAD_MAX: usize = 64 << 10;

/// All attached posts.
#[derive(Debug)]
pub(crate) struct Posts {
    /// Posts that see requests, by handler.
    requests: Vec<Vec<Posted>>,
    /// Posts that see answers, by handler.
    answers: Vec<Vec<Posted>>,
    /// Whether any post captures requests, so that their heads are kept.
    captures: bool,
    /// Fields that posts examine, by message.
    fields: Vec<(MessageId, SlotId)>,
}

/// Owner of a message.
#[derive(Clone, Copy, Debug)]
struct Whose {
    handler: HandlerId,
    way: Direction,
    role: RoleId,
    conn: Option<ConnId>,
    peer: Option<SocketAddr>,
}

impl Posts {
    fn new(handlers: usize) -> Self {
        let none = || (0..handlers).map(|_| Vec::new()).collect();
        Self { requests: none(), answers: none(), captures: false, fields: Vec::new() }
    }

    fn all(&self) -> impl Iterator<Item = &Posted> {
        self.requests.iter().chain(&self.answers).flatten()
    }

    /// Recomputes which parts of messages are needed before their handler is known.
    fn look(&mut self) {
        let of_requests = self.requests.iter().flatten();
        self.captures = of_requests.clone().any(|post| matches!(post.acts, Acts::Capture));
        let fields = of_requests.filter_map(|post| match &post.acts {
            Acts::Drop { message, fields, .. } => Some((*message, fields)),
            _ => None,
        });
        let fields =
            fields.flat_map(|(message, of)| of.iter().map(move |(slot, _)| (message, *slot)));
        self.fields = fields.collect();
    }

    fn at(&self, handler: HandlerId, way: Direction) -> &[Posted] {
        let of = match way {
            Direction::Receive => &self.requests,
            Direction::Transmit => &self.answers,
        };
        of.get(handler.index()).map(Vec::as_slice).unwrap_or_default()
    }

    /// The slots of a message that posts examine.
    pub(crate) fn fields(&self, message: MessageId) -> impl Iterator<Item = SlotId> {
        self.fields.iter().filter(move |(of, _)| *of == message).map(|(_, slot)| *slot)
    }

    /// Shows octets of a message that were read.
    pub(crate) fn read(
        &self,
        watched: &mut Watched,
        octets: &[u8],
        (role, conn, peer): (RoleId, ConnId, Option<SocketAddr>),
        outputs: &mut VecDeque<Output>,
    ) {
        if octets.is_empty() {
            return;
        }
        if let Some(handler) = watched.handler {
            let whose = Whose { handler, way: Direction::Receive, role, conn: Some(conn), peer };
            let first = !core::mem::replace(&mut watched.shown, true);
            return self.passes(whose, u64::from(first), octets, outputs);
        }
        watched.octets += octets.len();
        if self.captures {
            let room = HEAD_MAX.saturating_sub(watched.head.len());
            watched.head.extend_from_slice(octets.get(..room).unwrap_or(octets));
        }
    }

    /// Shows octets of a message to the posts that count and capture.
    fn passes(&self, whose: Whose, messages: u64, octets: &[u8], outputs: &mut VecDeque<Output>) {
        for post in self.at(whose.handler, whose.way) {
            post.passes(whose, messages, octets, octets.len(), outputs);
        }
    }
}

impl Posted {
    /// Handles `octets` of a message, the last of `length`.
    fn passes(
        &self,
        whose: Whose,
        messages: u64,
        octets: &[u8],
        length: usize,
        outputs: &mut VecDeque<Output>,
    ) {
        match self.acts {
            Acts::Count => self.counted.saw(messages, length),
            Acts::Capture => {
                self.counted.saw(messages, length);
                let Whose { way, role, conn, peer, .. } = whose;
                let missing = u64::try_from(length.saturating_sub(octets.len()));
                outputs.push_back(Output::Captured(Box::new(Captured {
                    post: self.id,
                    role,
                    conn,
                    peer,
                    way,
                    first: messages > 0,
                    octets: octets.to_vec(),
                    missing: missing.unwrap_or_default(),
                })));
            }
            Acts::Drop { .. } | Acts::RateLimit(_) => {}
        }
    }

    /// The reason for which it refuses a request.
    fn refuses(
        &self,
        now: core::time::Duration,
        peer: Option<SocketAddr>,
        view: &View,
    ) -> Option<Count> {
        let refused = match &self.acts {
            Acts::Count | Acts::Capture => None,
            Acts::RateLimit(pace) => (!pace.take(now)).then_some(Count::RateLimited),
            Acts::Drop { source, fields, .. } => {
                let within = |network| peer.is_some_and(|peer| is_within(peer.ip(), network));
                let has = |(slot, value): &(SlotId, Plain)| match (view.held(*slot), value) {
                    (Some(Held::Int(held)), Plain::Int(value)) => held == *value,
                    (Some(Held::Octets(held)), Plain::Octets(value)) => held == value,
                    _ => false,
                };
                let matches = source.is_none_or(within) && fields.iter().all(has);
                matches.then_some(Count::Dropped)
            }
        };
        if refused.is_some() {
            self.counted.refused.fetch_add(1, Ordering::Relaxed);
        }
        refused
    }
}

impl Machine {
    /// Attaches a post to handlers, after those already there.
    ///
    /// # Errors
    ///
    /// [`PostError`]; then nothing is attached.
    pub fn attach(&mut self, post: &Post) -> Result<(), PostError> {
        let places = post.places(&self.program)?;
        let posts = self.posts.get_or_insert_with(|| Box::new(Posts::new(self.handlers.len())));
        let of = match post.way {
            Direction::Receive => &mut posts.requests,
            Direction::Transmit => &mut posts.answers,
        };
        for (handler, posted) in places {
            of.get_mut(handler.index()).into_iter().for_each(|there| there.push(posted.clone()));
        }
        posts.look();
        Ok(())
    }

    /// Detaches the post with this id.
    pub fn detach(&mut self, id: u32) {
        let Some(posts) = &mut self.posts else { return };
        for there in posts.requests.iter_mut().chain(&mut posts.answers) {
            there.retain(|post| post.id != id);
        }
        posts.look();
        if posts.all().next().is_none() {
            self.posts = None;
        }
    }

    /// State for watching a message that begins, perhaps one that a handler waits for; `None` where
    /// nothing is attached.
    pub(crate) fn watch(&self, handler: Option<HandlerId>) -> Option<Box<Watched>> {
        self.posts.as_ref().map(|_| Box::new(Watched { handler, ..Watched::default() }))
    }

    /// State for watching a datagram, as by [`watch`](Self::watch).
    pub(crate) fn watch_datagram(&self, octets: &[u8]) -> Option<Box<Watched>> {
        let posts = self.posts.as_ref()?;
        let head = if posts.captures { octets.to_vec() } else { Vec::new() };
        Some(Box::new(Watched { octets: octets.len(), head, ..Watched::default() }))
    }

    /// Shows a request to the posts at its handler; returns whether one refuses it. A refused
    /// request is answered like one above the role's limit. If the protocol has no such answer, it
    /// is answered like one whose handler failed; without that either, the connection ends.
    pub(crate) fn is_refused(&mut self, handler: HandlerId, id: IncomingId, role: RoleId) -> bool {
        let Some(posts) = self.posts.take() else { return false };
        let refused = self.show(&posts, handler, id, role);
        self.posts = Some(posts);
        let Some(why) = refused else { return false };
        self.count(why);
        let program = Arc::clone(&self.program);
        let about = program.role(role);
        let answers = about.into_iter().flat_map(|role| [&role.full, &role.failed]);
        match answers.into_iter().find(|answer| answer.message.is_some()) {
            Some(answer) => self.answer_request(id, role, answer),
            None => self.answer_request(id, role, &Answer { message: None, close: true }),
        }
        true
    }

    fn show(
        &mut self,
        posts: &Posts,
        handler: HandlerId,
        id: IncomingId,
        role: RoleId,
    ) -> Option<Count> {
        let requester = self.incomings.get(id)?.requester;
        let (conn, peer) = self.whereabouts(requester);
        let whose = Whose { handler, way: Direction::Receive, role, conn, peer };
        let Incoming { parser, watched, .. } = self.incomings.get_mut(id)?;
        let watched = watched.get_or_insert_default();
        for post in posts.at(handler, Direction::Receive) {
            post.passes(whose, 1, &watched.head, watched.octets, &mut self.outputs);
            let refused = post.refuses(self.now, peer, parser.view());
            if refused.is_some() {
                // What follows of it is nobody's.
                self.incomings.get_mut(id)?.watched = None;
                return refused;
            }
        }
        watched.handler = Some(handler);
        watched.shown = true;
        watched.head = Vec::new();
        None
    }

    fn whereabouts(&self, requester: Option<Requester>) -> (Option<ConnId>, Option<SocketAddr>) {
        match requester {
            Some(Requester::Conn(conn)) => {
                (Some(conn), self.conns.get(conn).and_then(|of| of.peer))
            }
            Some(Requester::Peer(_, peer)) => (None, Some(peer)),
            None => (None, None),
        }
    }

    /// The handler that answers a request, if its answers are watched.
    pub(crate) fn watcher(&self, id: IncomingId) -> Option<HandlerId> {
        self.incomings.get(id)?.watched.as_ref()?.handler
    }

    /// Shows octets of an answer that are sent.
    pub(crate) fn leaves(
        &mut self,
        handler: HandlerId,
        role: RoleId,
        to: Requester,
        messages: u64,
        octets: &[u8],
    ) {
        let (conn, peer) = self.whereabouts(Some(to));
        if let Some(posts) = &self.posts {
            let whose = Whose { handler, way: Direction::Transmit, role, conn, peer };
            posts.passes(whose, messages, octets, &mut self.outputs);
        }
    }
}
