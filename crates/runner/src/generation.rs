//! One program in a loop: its machine and the sockets that it uses.

use crate::accept::{Accepted, RoleListener};
use crate::captured::{Piece, PieceSink};
use crate::mailbox::{LoopMessage, Mailbox};
use crate::peers::LostPeers;
use crate::plan::{Planned, RoleAddress, RoleSocket, SocketOrigin};
use crate::report::Tally;
use crate::resolver::{Question, Resolver};
use crate::source::{EventSource, token};
use gatewright_edge::{Datagrams, Poller, Readiness, Stream};
use gatewright_lang::ir::RoleId;
use gatewright_translate::machine::{Captured, ConnId, Conversation, Machine, Output, Post};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// Connections accepted from one listener before others have their turn.
const ACCEPTS_AT_ONCE: usize = 64;
/// Datagrams read from one socket before others have their turn.
const DATAGRAMS_AT_ONCE: usize = 64;
/// Octets read from one connection before others have their turn.
const OCTETS_A_TURN: usize = 16 << 10;
/// Octets read per wake-up from connections that had their turn. Then the loop polls again,
/// so that new events come first.
const OCTETS_LEFT_OVER: u64 = 64 << 10;
/// Reads of one connection before the resulting output is written.
const READS_AT_ONCE: usize = 2;

/// Resources that a generation uses and the loop owns.
pub(crate) struct Resources<'t, P: Poller> {
    pub(crate) poller: &'t mut P,
    pub(crate) resolver: &'t Resolver<P>,
    pub(crate) peers: &'t LostPeers,
    pub(crate) mailbox: &'t Mailbox<P>,
    /// All loops of the program, and the index of this one.
    pub(crate) loops: (&'t [Mailbox<P>], usize),
    pub(crate) scratch: &'t mut [u8],
    pub(crate) tally: &'t mut Tally,
    /// Sinks of the captures.
    pub(crate) sinks: &'t [Capturing],
    /// Receiver of the conversation that is recorded.
    pub(crate) recording: Option<&'t SyncSender<Conversation>>,
    pub(crate) now: Duration,
}

/// A capture with its sink.
#[derive(Clone, Debug)]
pub(crate) struct Capturing {
    pub(crate) post: Post,
    pub(crate) sink: PieceSink,
}

#[derive(Debug)]
pub(crate) struct Generation<P: Poller> {
    pub(crate) machine: Machine,
    /// Serial number among all generations of this loop.
    pub(crate) serial: u64,
    /// Its index in the loop and in the loop's tokens.
    pub(crate) index: usize,
    /// When the rest of it is cut off; `None` while it is the current one.
    pub(crate) until: Option<Duration>,
    listeners: Vec<RoleListener<P>>,
    sockets: Vec<RoleDatagrams<P>>,
    connections: Vec<Option<Connection<P::Stream>>>,
    open: u64,
    /// Connections that may have octets to read, each once.
    to_read: Vec<ConnId>,
    /// Connections that had their turn and may have more to read, each once. They are disjoint from
    /// `to_read`.
    left_over: VecDeque<ConnId>,
    /// Serial number of this wake-up.
    wakeup: u64,
    /// Connections that have octets to write, each once.
    to_write: Vec<ConnId>,
    /// Memory for the next list of connections to read or to write: a loop allocates none.
    spare: Vec<ConnId>,
    /// Connections whose last octets the network may hold back because more was announced.
    held_back: Vec<ConnId>,
}

/// Sockets that the next program may take over.
struct Handover<P: Poller> {
    listeners: Vec<RoleListener<P>>,
    sockets: Vec<(RoleAddress, Arc<P::Datagrams>)>,
}

/// A TCP connection, kept small: pending octets are in the machine.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about a socket")]
#[derive(Debug)]
struct Connection<S> {
    id: ConnId,
    stream: S,
    connecting: bool,
    /// There may be octets to read.
    readable: bool,
    /// There may be room to write.
    writable: bool,
    /// The peer has announced its end; octets sent before it may be unread.
    ending: bool,
    /// The connection has ended, and the machine knows it.
    ended: bool,
    /// Octets read in its last turn, and the wake-up in which that turn began.
    turn: (usize, u64),
    reading: bool,
    writing: bool,
    /// The network may hold back the octets written last.
    holding: bool,
}

/// A datagram socket of one role.
#[derive(Debug)]
struct RoleDatagrams<P: Poller> {
    role: RoleId,
    place: RoleAddress,
    socket: Arc<P::Datagrams>,
    readable: bool,
    /// Whether this program receives on it; replaced programs only answer from the shared socket.
    ours: bool,
}

impl<P: Poller> RoleDatagrams<P> {
    /// A socket whose readiness may already have been signalled.
    const fn new(role: RoleId, place: RoleAddress, socket: Arc<P::Datagrams>) -> Self {
        Self { role, place, socket, readable: true, ours: true }
    }
}

impl<P: Poller> Generation<P> {
    /// Takes over the sockets of `planned`, and from `before` those that both share.
    pub(crate) fn new(
        planned: Planned<P>,
        serial: u64,
        index: usize,
        before: Option<&mut Self>,
        poller: &mut P,
    ) -> std::io::Result<Self> {
        let mut this = Self {
            machine: planned.machine,
            serial,
            index,
            until: None,
            listeners: Vec::new(),
            sockets: Vec::new(),
            connections: Vec::new(),
            open: 0,
            to_read: Vec::new(),
            left_over: VecDeque::new(),
            wakeup: 0,
            to_write: Vec::new(),
            spare: Vec::new(),
            held_back: Vec::new(),
        };
        // What is new comes first: if the system refuses it, the one before has given up nothing.
        let inherits =
            |socket_of: &RoleSocket<P>| matches!(socket_of.origin, SocketOrigin::Inherited);
        let (inherited, new): (Vec<_>, Vec<_>) = planned.sockets.into_iter().partition(inherits);
        for RoleSocket { role, place, origin } in new {
            match (origin, &place) {
                (SocketOrigin::Listener(mut socket), RoleAddress::Listen(address)) => {
                    let source = token(EventSource::Listener(this.listeners.len()), index);
                    poller.watch_listener(&mut socket, source)?;
                    this.listeners.push(RoleListener::new(role, *address, socket));
                }
                (SocketOrigin::Datagrams(socket), _) => {
                    let source = token(EventSource::Datagrams(this.sockets.len()), index);
                    poller.watch_datagrams(&socket, source)?;
                    this.sockets.push(RoleDatagrams::new(role, place, Arc::new(socket)));
                }
                (
                    SocketOrigin::Listener(_) | SocketOrigin::Inherited | SocketOrigin::OtherLoop,
                    _,
                ) => {}
            }
        }
        if let Some(before) = before {
            this.inherit(before, inherited, poller)?;
        }
        Ok(this)
    }

    /// Takes listeners and sockets over from the previous program.
    fn inherit(
        &mut self,
        before: &mut Self,
        inherited: Vec<RoleSocket<P>>,
        poller: &mut P,
    ) -> std::io::Result<()> {
        let Handover { mut listeners, mut sockets } = before.hand_over();
        for RoleSocket { role, place, .. } in inherited {
            if let RoleAddress::Listen(address) = place {
                let at = listeners.iter().position(|listener| listener.address == address);
                let Some(at) = at else { continue };
                let RoleListener { mut socket, .. } = listeners.swap_remove(at);
                let source = token(EventSource::Listener(self.listeners.len()), self.index);
                poller.watch_listener(&mut socket, source)?;
                self.listeners.push(RoleListener::new(role, address, socket));
            } else {
                let at = sockets.iter().position(|(known, _)| *known == place);
                let Some(at) = at else { continue };
                let (_, socket) = sockets.swap_remove(at);
                let source = token(EventSource::Datagrams(self.sockets.len()), self.index);
                poller.watch_datagrams(&socket, source)?;
                self.sockets.push(RoleDatagrams::new(role, place, socket));
            }
        }
        Ok(())
    }

    /// Gives up its listeners, and shares the sockets of its datagram servers. It receives no
    /// further requests.
    fn hand_over(&mut self) -> Handover<P> {
        let listeners = std::mem::take(&mut self.listeners);
        let mut shared = Vec::new();
        for datagrams in &mut self.sockets {
            if !matches!(datagrams.place, RoleAddress::Ask(_)) {
                datagrams.ours = false;
                datagrams.readable = false;
                shared.push((datagrams.place.clone(), Arc::clone(&datagrams.socket)));
            }
        }
        Handover { listeners, sockets: shared }
    }

    /// Stops listening; running sessions may end until `until`.
    pub(crate) fn drain(&mut self, resources: &mut Resources<'_, P>, until: Duration) {
        self.until = Some(until);
        for datagrams in self.sockets.iter().filter(|datagrams| !datagrams.ours) {
            // One that the next program has taken is registered by now under its own token.
            if Arc::strong_count(&datagrams.socket) == 1 {
                resources.poller.forget_datagrams(&datagrams.socket);
            }
        }
        self.machine.drain(resources.now);
    }

    /// Closes its listeners, and receives no more datagrams as a server.
    pub(crate) fn close_listeners(&mut self) {
        drop(self.hand_over());
    }

    /// Whether it has ended completely.
    pub(crate) fn is_over(&self) -> bool {
        self.until.is_some() && self.open == 0 && self.machine.is_idle()
    }

    pub(crate) const fn open(&self) -> u64 {
        self.open
    }

    /// When it is due without an event.
    pub(crate) fn wakes_at(&self, now: Duration) -> Option<Duration> {
        let work = !self.to_read.is_empty()
            || !self.left_over.is_empty()
            || !self.to_write.is_empty()
            || self.listeners.iter().any(|listener| listener.is_due(now))
            || self.sockets.iter().any(|datagrams| datagrams.ours && datagrams.readable);
        let listeners = self.listeners.iter().filter_map(RoleListener::opens_at);
        let timers = self.machine.poll_timeout().into_iter().chain(self.until).chain(listeners);
        timers.chain(work.then_some(now)).min()
    }

    /// Handles a report of a listener.
    pub(crate) fn listener_ready(&mut self, listener: usize) {
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.set_ready();
        }
    }

    /// Handles a report of a datagram socket.
    pub(crate) fn datagrams_ready(&mut self, socket: usize) {
        if let Some(datagrams) = self.sockets.get_mut(socket) {
            datagrams.readable = true;
        }
    }

    /// Handles a report of a connection.
    pub(crate) fn stream_ready(
        &mut self,
        resources: &mut Resources<'_, P>,
        slot: usize,
        ready: Readiness,
    ) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        let id = connection.id;
        if connection.connecting {
            // A failure is told by the same report.
            match connection.stream.take_error() {
                Ok(()) if ready.writable && connection.stream.is_connected() => {
                    connection.connecting = false;
                    connection.writable = true;
                    connection.readable = ready.readable;
                    self.machine.connected(resources.now, id);
                }
                Ok(()) => return,
                Err(error) => {
                    self.remove(slot);
                    self.machine.connect_failed(resources.now, id);
                    self.report_peers(resources, Some(&error));
                    return;
                }
            }
        } else if ready.failed
            && let Err(error) = connection.stream.take_error()
        {
            self.remove(slot);
            self.machine.broken(resources.now, id);
            self.report_peers(resources, Some(&error));
            return;
        }
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        connection.ending |= ready.ended;
        if ready.readable || ready.ended {
            connection.readable = true;
            self.want_read(id);
        }
        if ready.writable {
            self.may_write(id);
        }
    }

    fn connection(&mut self, id: ConnId) -> Option<&mut Connection<P::Stream>> {
        let connection = self.connections.get_mut(id.slot())?.as_mut()?;
        (connection.id == id).then_some(connection)
    }

    fn want_read(&mut self, id: ConnId) {
        if let Some(connection) = self.connection(id)
            && connection.readable
            && !std::mem::replace(&mut connection.reading, true)
        {
            self.to_read.push(id);
        }
    }

    fn want_write(&mut self, id: ConnId) {
        if let Some(connection) = self.connection(id)
            && !std::mem::replace(&mut connection.writing, true)
        {
            self.to_write.push(id);
        }
    }

    fn may_write(&mut self, id: ConnId) {
        if let Some(connection) = self.connection(id) {
            connection.writable = true;
        }
        if !self.machine.unsent(id).is_empty() {
            self.want_write(id);
        }
    }

    fn remove(&mut self, slot: usize) -> Option<P::Stream> {
        let connection = self.connections.get_mut(slot)?.take()?;
        self.open -= 1;
        // It is watched until it is dropped.
        Some(connection.stream)
    }

    fn insert(&mut self, id: ConnId, stream: P::Stream, connecting: bool) {
        let slot = id.slot();
        if self.connections.len() <= slot {
            self.connections.resize_with(slot + 1, || None);
        }
        let connection = Connection {
            id,
            stream,
            connecting,
            readable: false,
            writable: !connecting,
            ending: false,
            ended: false,
            turn: (0, 0),
            reading: false,
            writing: false,
            holding: false,
        };
        if let Some(place) = self.connections.get_mut(slot) {
            *place = Some(connection);
            self.open += 1;
        }
    }

    /// Handles new reports, and then a part of the work left from before. A peer that sends
    /// without end is served only while no other has new events.
    pub(crate) fn run(&mut self, resources: &mut Resources<'_, P>) {
        self.wakeup = self.wakeup.wrapping_add(1);
        self.accept(resources);
        self.receive(resources);
        self.serve(resources);
        let most = resources.tally.octets_in.saturating_add(OCTETS_LEFT_OVER);
        while resources.tally.octets_in < most
            && let Some(id) = self.left_over.pop_front()
        {
            self.begin_turn(id);
            self.serve(resources);
        }
        // A connection that has many requests of what was read goes on with some of them here.
        if self.machine.poll_timeout().is_some_and(|at| at <= resources.now) {
            self.machine.handle_timeout(resources.now);
            self.serve(resources);
        }
        for id in std::mem::take(&mut self.held_back) {
            self.flush(id);
        }
        self.report_peers(resources, None);
        self.watch_peers(resources);
    }

    /// Has its machine report servers that answer while any server is lost.
    pub(crate) fn watch_peers(&mut self, resources: &Resources<'_, P>) {
        self.machine.report_reached(resources.peers.is_any_lost());
    }

    /// Passes on what the machine reports of servers, with the system's error if there is one. A
    /// program that was replaced says nothing: its servers may be others.
    fn report_peers(&mut self, resources: &mut Resources<'_, P>, error: Option<&std::io::Error>) {
        while let Some(report) = self.machine.poll_peer() {
            let program = self.machine.program();
            let Some(role) = program.role(report.role).filter(|_| self.until.is_none()) else {
                continue;
            };
            let names = (program.name.as_str(), role.name.as_str());
            if !resources.peers.take(names, &report, (resources.now, error)) {
                resources.tally.peers_unlisted += 1;
            }
        }
    }

    /// Reads and writes until nothing is left, or until each connection has had its turn.
    fn serve(&mut self, resources: &mut Resources<'_, P>) {
        self.apply_outputs(resources);
        while !self.to_read.is_empty() || !self.to_write.is_empty() {
            for _read in 0..READS_AT_ONCE {
                let spare = std::mem::take(&mut self.spare);
                let mut reading = std::mem::replace(&mut self.to_read, spare);
                for id in reading.drain(..) {
                    self.read(resources, id);
                }
                self.spare = reading;
            }
            self.apply_outputs(resources);
            // Everything that was read has been given to the machine: one write for all.
            let spare = std::mem::take(&mut self.spare);
            let mut writing = std::mem::replace(&mut self.to_write, spare);
            for id in writing.drain(..) {
                self.write(resources, id);
            }
            self.spare = writing;
            self.apply_outputs(resources);
            self.count_times(resources);
        }
        self.count_times(resources);
    }

    /// Counts the times of handlers that have ended, now that what they sent was written. The clock
    /// is read only if there are any.
    fn count_times(&mut self, resources: &mut Resources<'_, P>) {
        if self.machine.has_ended_handlers() {
            resources.now = resources.poller.now();
            self.machine.sent_until(resources.now);
        }
    }

    /// Lets a connection continue after a completed turn.
    fn begin_turn(&mut self, id: ConnId) {
        let wakeup = self.wakeup;
        if let Some(connection) = self.connection(id) {
            connection.turn = (0, wakeup);
            connection.reading = false;
        }
        self.want_read(id);
    }

    fn accept(&mut self, resources: &mut Resources<'_, P>) {
        let mut listeners = std::mem::take(&mut self.listeners);
        for listener in listeners.iter_mut().filter(|listener| listener.is_due(resources.now)) {
            for _accepted in 0..ACCEPTS_AT_ONCE {
                let (mut stream, peer) = match listener.accept(resources.now) {
                    Accepted::Connection(stream, peer) => (stream, peer),
                    Accepted::NonePending => break,
                    Accepted::NoResources => {
                        resources.tally.accepts_refused += 1;
                        break;
                    }
                };
                let id = self.machine.accepted(resources.now, listener.role, peer);
                let source = token(EventSource::Connection(id.slot()), self.index);
                if resources.poller.watch_stream(&mut stream, source).is_ok() {
                    self.insert(id, stream, false);
                } else {
                    resources.tally.accepts_refused += 1;
                    self.machine.broken(resources.now, id);
                }
            }
        }
        self.listeners = listeners;
    }

    fn receive(&mut self, resources: &mut Resources<'_, P>) {
        for datagrams in self.sockets.iter_mut().filter(|it| it.ours && it.readable) {
            for _datagram in 0..DATAGRAMS_AT_ONCE {
                match datagrams.socket.receive(resources.scratch) {
                    Ok((length, from)) => {
                        resources.tally.datagrams_in += 1;
                        let octets = resources.scratch.get(..length).unwrap_or_default();
                        let role = datagrams.role;
                        let Some(owner) = owner(&mut self.machine, resources.loops, role, octets)
                        else {
                            self.machine.datagram(resources.now, role, from, octets);
                            continue;
                        };
                        let (serial, octets) = (self.serial, octets.to_vec());
                        if owner.try_send(LoopMessage::Datagram { serial, role, from, octets }) {
                            resources.tally.handovers += 1;
                        } else {
                            resources.tally.handovers_lost += 1;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        datagrams.readable = false;
                        break;
                    }
                    // An earlier datagram's trouble, told by ICMP.
                    Err(_) => {}
                }
            }
        }
    }

    fn read(&mut self, resources: &mut Resources<'_, P>, id: ConnId) {
        let connection = self.connections.get_mut(id.slot()).and_then(Option::as_mut);
        let Some(connection) = connection.filter(|connection| connection.id == id) else { return };
        connection.reading = false;
        if connection.ended || connection.connecting {
            return;
        }
        if connection.turn.1 != self.wakeup {
            connection.turn = (0, self.wakeup);
        }
        if connection.turn.0 >= OCTETS_A_TURN {
            connection.reading = true;
            self.left_over.push_back(id);
            return;
        }
        let window = self.machine.window(id);
        let room = window.len();
        if room == 0 {
            return;
        }
        resources.tally.reads += 1;
        match connection.stream.read(window) {
            Ok(0) => {
                connection.ended = true;
                connection.readable = false;
                self.machine.ended(resources.now, id);
            }
            Ok(length) => {
                // A read that was not filled has emptied the socket; news will be told. An end that
                // was told already will not be told again.
                connection.readable = length == room || connection.ending;
                connection.turn.0 += length;
                resources.tally.octets_in += u64::try_from(length).unwrap_or_default();
                self.machine.filled(resources.now, id, length);
                self.want_read(id);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                connection.readable = false;
                self.machine.filled(resources.now, id, 0);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => self.want_read(id),
            Err(error) => {
                self.remove(id.slot());
                self.machine.broken(resources.now, id);
                self.report_peers(resources, Some(&error));
            }
        }
    }

    fn write(&mut self, resources: &mut Resources<'_, P>, id: ConnId) {
        let octets = self.machine.unsent(id);
        let connection = self.connections.get_mut(id.slot()).and_then(Option::as_mut);
        let Some(connection) = connection.filter(|connection| connection.id == id) else { return };
        connection.writing = false;
        if octets.is_empty() || !connection.writable || connection.connecting {
            return;
        }
        resources.tally.writes += 1;
        // Pieces of a body that come one after the other go out together.
        connection.holding = self.machine.has_more(id);
        if connection.holding {
            self.held_back.push(id);
        }
        match connection.stream.write(octets, connection.holding) {
            Ok(length) => {
                // One that was not taken whole has filled the socket; room will be told.
                connection.writable = length == octets.len();
                resources.tally.octets_out += u64::try_from(length).unwrap_or_default();
                self.machine.sent(resources.now, id, length);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => connection.writable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => self.want_write(id),
            Err(error) => {
                self.remove(id.slot());
                self.machine.broken(resources.now, id);
                self.report_peers(resources, Some(&error));
            }
        }
    }

    /// Flushes octets that the network holds back when the announced rest did not follow.
    fn flush(&mut self, id: ConnId) {
        if let Some(connection) = self.connection(id)
            && std::mem::replace(&mut connection.holding, false)
        {
            connection.stream.flush();
        }
    }

    /// Carries out the machine's outputs.
    pub(crate) fn apply_outputs(&mut self, resources: &mut Resources<'_, P>) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Connect { conn, to, .. } => self.connect(resources, conn, to),
                Output::Write { conn } => self.want_write(conn),
                Output::Read { conn } => self.want_read(conn),
                Output::Shutdown { conn } => {
                    if let Some(connection) = self.connection(conn) {
                        // A connection that is broken is told of by an event.
                        let _told = connection.stream.shutdown(Shutdown::Write);
                    }
                }
                Output::Close { conn, reset } => self.close(conn, reset),
                Output::Datagram { role, to, octets } => self.send(resources, role, to, &octets),
                Output::Resolve { query, host, port } => {
                    resources.tally.names_asked += 1;
                    let from = resources.mailbox.clone();
                    let question = Question { host, port, serial: self.serial, query, from };
                    if !resources.resolver.ask(question) {
                        resources.tally.names_refused += 1;
                        self.machine.resolved(resources.now, query, None);
                    }
                }
                Output::Captured(captured) => self.captured(resources, *captured),
                Output::Recorded(conversation) => {
                    // Another loop may have been first, or nobody waits any more.
                    let _other = resources.recording.map(|to| to.try_send(*conversation));
                }
                // Whatever else a machine may say one day, it goes on without.
                _ => {}
            }
        }
    }

    fn captured(&mut self, resources: &Resources<'_, P>, captured: Captured) {
        let Some(of) = resources.sinks.iter().find(|it| it.post.id == captured.post) else {
            return;
        };
        let local = if let Some(conn) = captured.conn {
            let open = self.connection(conn).and_then(|it| it.stream.local_address().ok());
            let listener = || self.listeners.iter().find(|listener| listener.role == captured.role);
            open.or_else(|| listener().map(|listener| listener.address))
        } else {
            let socket = self.sockets.iter().find(|it| it.role == captured.role);
            socket.and_then(|it| it.socket.local_address().ok())
        };
        if !of.sink.take(Piece::of(captured, local)) {
            of.post.counted.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn connect(&mut self, resources: &mut Resources<'_, P>, id: ConnId, to: SocketAddr) {
        let stream =
            resources.poller.connect(to, token(EventSource::Connection(id.slot()), self.index));
        match stream {
            Ok(stream) => self.insert(id, stream, true),
            Err(error) => {
                self.machine.connect_failed(resources.now, id);
                self.report_peers(resources, Some(&error));
            }
        }
    }

    fn close(&mut self, id: ConnId, reset: bool) {
        if self.connection(id).is_none() {
            return;
        }
        let Some(stream) = self.remove(id.slot()) else { return };
        if reset {
            // Without it the peer would take a cut body for a whole one.
            stream.abort();
        }
    }

    fn send(&self, resources: &mut Resources<'_, P>, role: RoleId, to: SocketAddr, octets: &[u8]) {
        let socket = self.sockets.iter().find(|datagrams| datagrams.role == role);
        let sent = socket.is_some_and(|datagrams| datagrams.socket.send(octets, to).is_ok());
        if sent {
            resources.tally.datagrams_out += 1;
        } else {
            resources.tally.datagrams_unsent += 1;
        }
    }
}

/// The other loop that owns the session of a datagram; `None` if this loop owns it.
fn owner<'c, P: Poller>(
    machine: &mut Machine,
    (loops, own): (&'c [Mailbox<P>], usize),
    role: RoleId,
    octets: &[u8],
) -> Option<&'c Mailbox<P>> {
    let count = u64::try_from(loops.len()).ok().filter(|count| *count > 1)?;
    let place = usize::try_from(machine.session_of_datagram(role, octets)? % count).ok()?;
    loops.get(place).filter(|_| place != own)
}
