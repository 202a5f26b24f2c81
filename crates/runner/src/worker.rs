//! One loop: polls its network for readiness and passes them to the machines.

use crate::generation::{Capturing, Generation, Resources};
use crate::mailbox::{LoopMessage, Mailbox};
use crate::peers::LostPeers;
use crate::plan::Planned;
use crate::report::{Handled, RunReport, Tally};
use crate::resolver::Resolver;
use crate::source::{EventSource, GENERATIONS_MAX, source};
use gatewright_edge::{Network, Poller, READY_MAX, Readiness};
use gatewright_translate::machine::Conversation;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Maximum octets of one read or datagram: a whole datagram of 65,507 octets.
const SCRATCH: usize = 64 << 10;
/// Messages from other threads that may wait for a loop.
const MAILBOX_MAX: usize = 256;

/// One loop.
#[derive(Debug)]
pub(crate) struct Worker<P: Poller> {
    poller: P,
    mailbox: Mailbox<P>,
    messages: Receiver<LoopMessage<P>>,
    resolver: Resolver<P>,
    /// Lost servers of the program, as all loops see them.
    peers: LostPeers,
    generations: [Option<Generation<P>>; GENERATIONS_MAX],
    /// Index of the generation that takes requests.
    current: usize,
    serial: u64,
    stopping: bool,
    tally: Tally,
    /// All loops of the program, and the index of this one.
    loops: (Vec<Mailbox<P>>, usize),
    /// Captures with their sinks.
    sinks: Vec<Capturing>,
    /// Receiver of the conversation that is recorded.
    recording: Option<SyncSender<Conversation>>,
    /// Counters of programs that have ended.
    past: RunReport,
}

impl<P: Poller> Worker<P> {
    /// A loop without a program.
    pub(crate) fn new(
        resolver: Resolver<P>,
        network: &impl Network<Poller = P>,
        peers: LostPeers,
    ) -> io::Result<Self> {
        let poller = network.poller()?;
        let waker = poller.waker();
        let (sender, messages) = sync_channel(MAILBOX_MAX);
        Ok(Self {
            poller,
            mailbox: Mailbox { messages: sender, waker },
            messages,
            resolver,
            peers,
            generations: Default::default(),
            current: 0,
            serial: 0,
            stopping: false,
            tally: Tally::default(),
            loops: (Vec::new(), 0),
            sinks: Vec::new(),
            recording: None,
            past: RunReport::default(),
        })
    }

    pub(crate) fn mailbox(&self) -> Mailbox<P> {
        self.mailbox.clone()
    }

    /// Sets the loops of the program, in the same order for all: sessions are assigned by it.
    pub(crate) fn meet(&mut self, all: Vec<Mailbox<P>>, own: usize) {
        self.loops = (all, own);
    }

    /// Replaces the program; earlier ones may end within `within`. If the system lacks the
    /// resources, the previous one continues.
    pub(crate) fn replace(&mut self, planned: Planned<P>, within: Duration) -> io::Result<()> {
        let now = self.poller.now();
        let index = self.vacate();
        let mut before = self.generations.get_mut(self.current).and_then(Option::take);
        self.serial += 1;
        let poller = &mut self.poller;
        let next = Generation::new(planned, self.serial, index, before.as_mut(), poller);
        if let (Some(before), Ok(_)) = (&mut before, &next) {
            let mut scratch = [];
            self.with(&mut scratch, now, |_, resources| before.drain(resources, now + within));
            self.tally.programs_replaced += 1;
        }
        if let Some(place) = self.generations.get_mut(self.current) {
            *place = before;
        }
        if let Some(place) = self.generations.get_mut(index) {
            *place = Some(next?);
        }
        self.current = index;
        Ok(())
    }

    /// A free index; if there is none, the oldest draining program is cut off.
    fn vacate(&mut self) -> usize {
        if let Some(free) = self.generations.iter().position(Option::is_none) {
            return free;
        }
        let current = self.current;
        let draining = self.generations.iter().flatten().filter(|it| it.index != current);
        let oldest = draining.min_by_key(|it| it.serial).map_or(0, |it| it.index);
        self.tally.drains_cut += 1;
        self.end(oldest);
        oldest
    }

    fn end(&mut self, index: usize) {
        if let Some(over) = self.generations.get_mut(index).and_then(Option::take) {
            tell(&over, &mut self.past);
        }
    }

    /// Calls `action` with the resources of generations.
    fn with(
        &mut self,
        scratch: &mut [u8],
        now: Duration,
        mut action: impl FnMut(&mut [Option<Generation<P>>], &mut Resources<'_, P>),
    ) {
        let mut resources = Resources {
            poller: &mut self.poller,
            resolver: &self.resolver,
            peers: &self.peers,
            mailbox: &self.mailbox,
            loops: (&self.loops.0, self.loops.1),
            scratch,
            tally: &mut self.tally,
            sinks: &self.sinks,
            recording: self.recording.as_ref(),
            now,
        };
        action(&mut self.generations, &mut resources);
    }

    /// Runs until it is stopped and nothing is left; returns its last report.
    pub(crate) fn run(mut self) -> RunReport {
        let mut ready = Vec::with_capacity(READY_MAX);
        let mut scratch = vec![0; SCRATCH];
        loop {
            let now = self.poller.now();
            self.with(&mut scratch, now, |generations, resources| {
                generations.iter_mut().flatten().for_each(|it| it.run(resources));
            });
            self.bury(now);
            if self.stopping && self.generations.iter().all(Option::is_none) {
                return self.report();
            }
            let wakes = self.generations.iter().flatten().filter_map(|it| it.wakes_at(now)).min();
            let pause = wakes.map(|at| at.saturating_sub(now));
            // A signal's interruption brings no event, and the next turn asks again.
            let woken = self.poller.wait(&mut ready, pause).unwrap_or_default();
            self.tally.wakeups += 1;
            self.take(&ready, woken, &mut scratch);
        }
    }

    fn take(&mut self, ready: &[Readiness], woken: bool, scratch: &mut [u8]) {
        let now = self.poller.now();
        self.with(scratch, now, |generations, resources| {
            generations.iter_mut().flatten().for_each(|it| it.watch_peers(resources));
            for &one in ready {
                report(generations, resources, one);
            }
        });
        if woken {
            for _message in 0..MAILBOX_MAX {
                let Ok(message) = self.messages.try_recv() else { return };
                self.read_mail(message, now);
            }
            // Messages without end are read on after everything else.
            self.mailbox.waker.wake();
        }
    }

    fn read_mail(&mut self, message: LoopMessage<P>, now: Duration) {
        match message {
            LoopMessage::Replace { planned, within, done } => {
                let replaced = self.replace(*planned, within);
                // Who asked may have stopped waiting.
                let _told = done.try_send(replaced);
            }
            LoopMessage::Stop { within } => {
                self.stopping = true;
                let mut before = self.generations.get_mut(self.current).and_then(Option::take);
                let until = now + within;
                if let Some(before) = &mut before {
                    before.close_listeners();
                    self.with(&mut [], now, |_, resources| before.drain(resources, until));
                }
                for draining in self.generations.iter_mut().flatten() {
                    draining.until = draining.until.map(|it| it.min(until));
                }
                if let Some(place) = self.generations.get_mut(self.current) {
                    *place = before;
                }
            }
            LoopMessage::Attach { post, sink, done } => {
                for generation in self.generations.iter_mut().flatten() {
                    // One that is drained may be of a program without such a handler.
                    let _other = generation.machine.attach(&post);
                }
                self.sinks.extend(sink.map(|sink| Capturing { post: *post, sink }));
                // Whoever asked may have gone.
                let _told = done.try_send(());
            }
            LoopMessage::Detach { id, done } => {
                self.generations.iter_mut().flatten().for_each(|it| it.machine.detach(id));
                self.sinks.retain(|it| it.post.id != id);
                let _told = done.try_send(());
            }
            LoopMessage::Record { handler, to, done } => {
                let current = self.generations.get_mut(self.current).and_then(Option::as_mut);
                let begun = current.is_some_and(|it| it.machine.record(&handler).is_ok());
                self.recording = Some(to).filter(|_| begun);
                // Whoever asked may have gone.
                let _told = done.try_send(());
            }
            LoopMessage::StopRecording => self.stop_recording(),
            LoopMessage::RunReport(reply) => {
                // Whoever asked may have gone.
                let _told = reply.try_send(self.report());
            }
            LoopMessage::Datagram { serial, role, from, octets } => {
                // Loops take a program over in the same order, if not at the same moment.
                let heir = self.generations.iter_mut().flatten().find(|it| it.serial == serial);
                match heir {
                    Some(heir) => heir.machine.datagram(now, role, from, &octets),
                    None => self.tally.handovers_lost += 1,
                }
            }
            LoopMessage::Resolved { serial, query, address } => {
                let asker = self.generations.iter_mut().flatten().find(|it| it.serial == serial);
                if let Some(asker) = asker {
                    asker.machine.resolved(now, query, address);
                }
            }
        }
    }

    /// Ends a recording, and sends what was recorded to its receiver, if that still exists.
    fn stop_recording(&mut self) {
        let generations = self.generations.iter_mut().flatten();
        let unfinished = generations.filter_map(|it| it.machine.stop_recording()).last();
        if let (Some(to), Some(unfinished)) = (self.recording.take(), unfinished) {
            let _gone = to.try_send(unfinished);
        }
    }

    /// Frees programs that have ended, and ends those past their time limit.
    fn bury(&mut self, now: Duration) {
        for index in 0..GENERATIONS_MAX {
            let Some(Some(generation)) = self.generations.get(index) else { continue };
            let late = generation.until.is_some_and(|until| until <= now);
            if late && !generation.is_over() {
                self.tally.drains_cut += 1;
            }
            if late || generation.is_over() {
                self.end(index);
            }
        }
    }

    fn report(&self) -> RunReport {
        let mut report = self.past.clone();
        report.loops = 1;
        for generation in self.generations.iter().flatten() {
            tell(generation, &mut report);
            report.connections += generation.open();
            if generation.until.is_some() {
                report.draining += generation.open();
            } else {
                let keyed = generation.machine.keyed_sessions();
                report.keyed_sessions += u64::try_from(keyed).unwrap_or(u64::MAX);
            }
        }
        self.tally.tell(&mut report);
        report
    }
}

/// Passes a report to the socket's owner.
fn report<P: Poller>(
    generations: &mut [Option<Generation<P>>],
    resources: &mut Resources<'_, P>,
    ready: Readiness,
) {
    let (source, index) = source(ready.token);
    // Reports of one that is over may be in the same batch.
    let Some(Some(generation)) = generations.get_mut(index) else { return };
    match source {
        EventSource::Connection(slot) => generation.stream_ready(resources, slot, ready),
        EventSource::Listener(listener) => generation.listener_ready(listener),
        EventSource::Datagrams(socket) => generation.datagrams_ready(socket),
    }
}

fn tell<P: Poller>(generation: &Generation<P>, report: &mut RunReport) {
    for (name, number) in generation.machine.counters() {
        report.count(name, number);
    }
    for (name, counters) in generation.machine.handlers() {
        report.handlers.entry(name.to_owned()).or_default().add(&Handled::of(counters));
    }
}
