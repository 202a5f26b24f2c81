//! The relay's program as z2z ran its gateways: a thread for each session, which sleeps in the
//! kernel until its own session goes on.
//!
//! The meaning is the same, for the machine is; only who drives it differs. Sessions share nothing,
//! and so no connection to the next server either.

use super::world::{SINK, text};
use crate::programs::compiled;
use gatewright_translate::Layouts;
use gatewright_translate::machine::{ConnId, Machine, MachineConfig, Output};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// What asks this program to be the relay, followed by its port.
pub(crate) const WORD: &str = "relay-by-threads";

/// Octets read at once, as many as the machine has room for.
const READ_AT_ONCE: usize = 8 << 10;

/// Relays from `port` to the sink until it is killed.
pub(crate) fn relay(port: &str) -> Result<(), String> {
    let layouts = Arc::new(Layouts::of(&Arc::new(compiled("smtp_relay.gate")?)));
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).map_err(text)?;
    for stream in listener.incoming() {
        let (stream, layouts) = (stream.map_err(text)?, Arc::clone(&layouts));
        std::thread::spawn(move || {
            BlockingRelay::new(stream, &layouts).and_then(BlockingRelay::run)
        });
    }
    Ok(())
}

struct BlockingRelay {
    machine: Machine,
    streams: BTreeMap<ConnId, TcpStream>,
    ended: Vec<ConnId>,
    start: Instant,
}

impl BlockingRelay {
    fn new(stream: TcpStream, layouts: &Arc<Layouts>) -> Result<Self, String> {
        let start = Instant::now();
        let addresses = vec![("next".to_owned(), format!("127.0.0.1:{SINK}"))];
        let config = MachineConfig { addresses, ..MachineConfig::default() };
        let mut machine = Machine::laid_out(start.elapsed(), layouts, &config).map_err(text)?;
        stream.set_nodelay(true).map_err(text)?;
        let peer = stream.peer_addr().map_err(text)?;
        let inside = machine.endpoints().iter().find(|endpoint| endpoint.name == "inside");
        let inside = inside.ok_or("the program has no role `inside`")?.role;
        let id = machine.accepted(start.elapsed(), inside, peer);
        Ok(Self { machine, streams: BTreeMap::from([(id, stream)]), ended: Vec::new(), start })
    }

    fn run(mut self) -> Result<(), String> {
        self.obey()?;
        let server = self.streams.keys().next().copied();
        // A connection kept for later serves nobody else here, so it ends with its session.
        while server.is_some_and(|server| self.streams.contains_key(&server)) {
            for id in self.ready()? {
                self.read(id);
            }
            if self.machine.poll_timeout().is_some_and(|at| at <= self.start.elapsed()) {
                self.machine.handle_timeout(self.start.elapsed());
            }
            self.obey()?;
        }
        Ok(())
    }

    /// Sleeps until one of its connections has something, or a timer is due.
    fn ready(&self) -> Result<Vec<ConnId>, String> {
        let wanted = |id: &&ConnId| !self.ended.contains(id) && self.machine.room(**id) > 0;
        let ids: Vec<ConnId> = self.streams.keys().filter(wanted).copied().collect();
        let streams = ids.iter().filter_map(|id| self.streams.get(id));
        let mut asked: Vec<PollFd<'_>> =
            streams.map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN)).collect();
        let pause = self.machine.poll_timeout().map(|at| at.saturating_sub(self.start.elapsed()));
        let pause = pause.and_then(|pause| PollTimeout::try_from(pause).ok());
        poll(&mut asked, pause.unwrap_or(PollTimeout::NONE)).map_err(text)?;
        let told = |asked: &PollFd<'_>| asked.any().unwrap_or(false);
        Ok(ids.into_iter().zip(&asked).filter(|(_, asked)| told(asked)).map(|(id, _)| id).collect())
    }

    fn read(&mut self, id: ConnId) {
        let mut octets = [0; READ_AT_ONCE];
        let room = self.machine.room(id).min(READ_AT_ONCE);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let now = self.start.elapsed();
        match stream.read(octets.get_mut(..room).unwrap_or_default()) {
            Ok(0) => {
                self.ended.push(id);
                self.machine.ended(now, id);
            }
            Ok(length) => {
                self.machine.received(now, id, octets.get(..length).unwrap_or_default());
            }
            Err(_) => {
                self.streams.remove(&id);
                self.machine.broken(now, id);
            }
        }
    }

    fn obey(&mut self) -> Result<(), String> {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Connect { conn, to, .. } => {
                    let stream = TcpStream::connect(to).map_err(text)?;
                    stream.set_nodelay(true).map_err(text)?;
                    self.streams.insert(conn, stream);
                    self.machine.connected(self.start.elapsed(), conn);
                }
                Output::Write { conn } => self.write(conn),
                Output::Shutdown { conn } => {
                    if let Some(stream) = self.streams.get(&conn) {
                        stream.shutdown(Shutdown::Write).map_err(text)?;
                    }
                }
                Output::Close { conn, .. } => drop(self.streams.remove(&conn)),
                // What it may read is asked for in each turn; a relay of streams has no datagrams,
                // and its addresses are no names.
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&mut self, id: ConnId) {
        let octets = self.machine.unsent(id);
        let length = octets.len();
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.write_all(octets).is_ok() {
            self.machine.sent(self.start.elapsed(), id, length);
        } else {
            self.streams.remove(&id);
            self.machine.broken(self.start.elapsed(), id);
        }
    }
}
