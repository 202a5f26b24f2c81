//! The UDP gateway: a socket application that relays between two links, with the counter of a
//! handler below it to tell how many datagrams wait.
//!
//! A relay that reads until nothing is left would block on the last read. The number of waiting
//! datagrams comes from below the socket, so this one reads exactly those, merges them, and sends:
//! no datagram waits for another that may never come.

use gatewright_stack::{CutShort, Form, Merger, Sockets, UdpSocket, split};
use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// What a UDP gateway does to the datagrams on their way to the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Series {
    /// Each is sent on as it is.
    Plain,
    /// Those that wait are joined to at most so many octets.
    Merge(Form, usize),
    /// Those that were merged in the prefixed form are parted.
    Split,
}

/// A UDP gateway to be started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UdpGatewaySetup {
    /// Where clients send to: an address of this gateway.
    pub listen: SocketAddr,
    /// Where their datagrams go.
    pub server: SocketAddr,
    /// What happens to them on the way.
    pub series: Series,
}

/// Clients whose answers are carried back at the most; each holds a socket towards the server.
const CLIENTS_MAX: usize = 256;

/// A client that is silent for this long gives its place to another (RFC 4787 §4.3: "A NAT UDP
/// mapping timer MUST NOT expire in less than two minutes").
const CLIENT_FOR: Duration = Duration::from_mins(2);

/// How often a waiting thread looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Octets of the largest datagram.
const DATAGRAM_MAX: usize = 65_535;

/// What a UDP gateway has counted.
#[derive(Debug, Default)]
pub struct UdpGatewayCounters {
    /// Datagrams read from clients.
    pub received: AtomicU64,
    /// Datagrams sent to the server.
    pub sent: AtomicU64,
    /// Datagrams carried back.
    pub returned: AtomicU64,
    /// Datagrams that could not be parted.
    pub cut_short: AtomicU64,
    /// Datagrams that could not be sent.
    pub not_sent: AtomicU64,
    /// Datagrams of clients beyond the most.
    pub too_many_clients: AtomicU64,
}

/// A running UDP gateway; dropping it ends it.
#[derive(Debug)]
pub struct UdpGateway {
    counters: Arc<UdpGatewayCounters>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// One client with the socket that speaks for it to the server.
struct Client {
    socket: Arc<UdpSocket>,
    merger: Option<Merger>,
    seen: Instant,
}

impl UdpGateway {
    /// Starts relaying with sockets of the gateway's own stack.
    ///
    /// # Errors
    ///
    /// If the port is taken, or the system gives no thread.
    pub fn start(sockets: &Sockets, setup: UdpGatewaySetup) -> io::Result<Self> {
        let listener = Arc::new(sockets.bind(setup.listen)?);
        listener.set_read_timeout(Some(LOOK_EVERY));
        let counters = Arc::new(UdpGatewayCounters::default());
        let stop = Arc::new(AtomicBool::new(false));
        let relay = Relay {
            listener,
            sockets: sockets.clone(),
            setup,
            counters: Arc::clone(&counters),
            stop: Arc::clone(&stop),
            clients: HashMap::new(),
        };
        let name = format!("udp {}", setup.listen.port());
        let thread = std::thread::Builder::new().name(name).spawn(move || relay.run())?;
        Ok(Self { counters, stop, threads: vec![thread] })
    }

    /// What it has counted.
    pub fn counters(&self) -> &UdpGatewayCounters {
        &self.counters
    }
}

impl Drop for UdpGateway {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so itself.
            let _panicked = thread.join();
        }
    }
}

struct Relay {
    listener: Arc<UdpSocket>,
    sockets: Sockets,
    setup: UdpGatewaySetup,
    counters: Arc<UdpGatewayCounters>,
    stop: Arc<AtomicBool>,
    clients: HashMap<SocketAddr, Client>,
}

impl Relay {
    fn run(mut self) {
        let mut buffer = vec![0; DATAGRAM_MAX];
        while !self.stop.load(Ordering::Acquire) {
            let Ok((len, from)) = self.listener.recv_from(&mut buffer) else {
                self.forget_silent();
                continue;
            };
            self.relay(buffer.get(..len).unwrap_or_default(), from);
            // Exactly those that wait: the count is from below, so none of these reads blocks.
            for _ in 0..self.listener.waiting() {
                let Ok((len, from)) = self.listener.recv_from(&mut buffer) else { break };
                self.relay(buffer.get(..len).unwrap_or_default(), from);
            }
            self.flush();
        }
    }

    /// One datagram of a client.
    fn relay(&mut self, datagram: &[u8], from: SocketAddr) {
        count(&self.counters.received);
        let server = self.setup.server;
        let series = self.setup.series;
        let counters = Arc::clone(&self.counters);
        let Some(client) = self.client(from) else { return count(&counters.too_many_clients) };
        client.seen = Instant::now();
        let send = |octets: &[u8]| match client.socket.send_to(octets, server) {
            Ok(_) => count(&counters.sent),
            Err(_) => count(&counters.not_sent),
        };
        match (&mut client.merger, series) {
            (Some(merger), _) => merger.push(datagram, send),
            (None, Series::Split) => {
                for part in split(datagram) {
                    match part {
                        Ok(part) => send(part),
                        Err(CutShort { .. }) => count(&counters.cut_short),
                    }
                }
            }
            (None, _) => send(datagram),
        }
    }

    /// Sends what was merged of the datagrams that waited.
    fn flush(&mut self) {
        let (server, counters) = (self.setup.server, &self.counters);
        for client in self.clients.values_mut() {
            let Some(merger) = &mut client.merger else { continue };
            merger.flush(|octets| match client.socket.send_to(octets, server) {
                Ok(_) => count(&counters.sent),
                Err(_) => count(&counters.not_sent),
            });
        }
    }

    /// The client at `from`, with a socket and a thread that carries answers back.
    fn client(&mut self, from: SocketAddr) -> Option<&mut Client> {
        if !self.clients.contains_key(&from) {
            if self.clients.len() >= CLIENTS_MAX {
                return None;
            }
            let any = match self.setup.server {
                SocketAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
                SocketAddr::V6(_) => SocketAddr::from(([0_u16; 8], 0)),
            };
            let socket = Arc::new(self.sockets.bind(any).ok()?);
            socket.set_read_timeout(Some(LOOK_EVERY));
            let merger = match self.setup.series {
                Series::Merge(form, limit) => Some(Merger::new(form, limit)),
                Series::Plain | Series::Split => None,
            };
            let back = Back {
                socket: Arc::clone(&socket),
                listener: Arc::clone(&self.listener),
                client: from,
                counters: Arc::clone(&self.counters),
                stop: Arc::clone(&self.stop),
            };
            std::thread::Builder::new()
                .name(format!("udp back {}", from.port()))
                .spawn(move || back.run())
                .ok()?;
            self.clients.insert(from, Client { socket, merger, seen: Instant::now() });
        }
        self.clients.get_mut(&from)
    }

    /// Gives up clients that have been silent for long; their threads end with their sockets.
    fn forget_silent(&mut self) {
        self.clients.retain(|_, client| client.seen.elapsed() < CLIENT_FOR);
    }
}

/// Carries the server's answers back to one client.
struct Back {
    socket: Arc<UdpSocket>,
    listener: Arc<UdpSocket>,
    client: SocketAddr,
    counters: Arc<UdpGatewayCounters>,
    stop: Arc<AtomicBool>,
}

impl Back {
    fn run(self) {
        let mut buffer = vec![0; DATAGRAM_MAX];
        // The relay holds the socket as long as the client lives.
        while !self.stop.load(Ordering::Acquire) && Arc::strong_count(&self.socket) > 1 {
            let Ok((len, _)) = self.socket.recv_from(&mut buffer) else { continue };
            match self.listener.send_to(buffer.get(..len).unwrap_or_default(), self.client) {
                Ok(_) => count(&self.counters.returned),
                Err(_) => count(&self.counters.not_sent),
            }
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
