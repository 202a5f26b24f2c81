//! Runs one program on several loops.

use crate::captured::PieceSink;
use crate::error::RunnerError;
use crate::kernel::KernelNetwork;
use crate::mailbox::{LoopMessage, Mailbox};
use crate::peers::{LostPeer, LostPeers, PeerSink};
use crate::plan::{self, Planned, RoleAddress, RoleSite, RoleSocket, SocketOrigin};
use crate::recording::{RecordError, Recording};
use crate::report::RunReport;
use crate::resolver::Resolver;
use crate::worker::Worker;
use gatewright_descriptors::Claim;
use gatewright_edge::{Network, Poller};
use gatewright_lang::ir::Program;
use gatewright_translate::machine::{Direction, Does, Machine, MachineConfig, Post, PostError};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum number of loops: more cores than one gateway needs.
const LOOPS_MAX: usize = 64;
/// Timeout for a loop's report: generous, as a machine may be busy.
const REPORT_WITHIN: Duration = Duration::from_secs(10);

/// Options of a runner.
#[derive(Clone, Debug)]
pub struct RunnerOptions {
    /// Number of loops, at most 64; 0 means one for each core that this process may use. A program
    /// whose handlers share sessions by a value, or that has no server, is run by one.
    pub loops: usize,
    /// Addresses `host:port` of roles by name; they replace the program's.
    pub addresses: Vec<(String, String)>,
    /// First value for fresh numbers; unguessable in production.
    pub seed: u64,
    /// How long sessions of a replaced program may continue.
    pub drain_within: Duration,
    /// Receives changes of the servers that the program calls: lost and back.
    pub peers: Option<PeerSink>,
}

impl Default for RunnerOptions {
    /// One loop per core, the program's addresses, and ten minutes for sessions to end, which is
    /// how long a mail may take (RFC 5321 §4.5.3.2.6).
    fn default() -> Self {
        let drain_within = Duration::from_mins(10);
        Self { loops: 0, addresses: Vec::new(), seed: 0, drain_within, peers: None }
    }
}

/// The address at which a role can be reached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listening {
    /// The role.
    pub role: String,
    /// Its address, with the port that the kernel chose if the program said 0.
    pub address: SocketAddr,
}

/// A program that runs over a network. Dropping it cuts the program off.
#[derive(Debug)]
pub struct Runner<N: Network = KernelNetwork> {
    loops: Vec<LoopThread<N::Poller>>,
    options: RunnerOptions,
    network: N,
    sites: Vec<RoleSite>,
    descriptors: Option<Claim>,
    note: Option<String>,
    program: Arc<Program>,
    peers: LostPeers,
    /// Posts attached to handlers of the program.
    posts: Mutex<Vec<Post>>,
    /// Whether a conversation is recorded.
    is_recording: Arc<AtomicBool>,
}

#[derive(Debug)]
struct LoopThread<P: Poller> {
    mailbox: Mailbox<P>,
    thread: JoinHandle<RunReport>,
}

impl Runner {
    /// Starts a program over the kernel's network, as [`Self::start_over`].
    ///
    /// # Errors
    ///
    /// [`RunnerError`]; then nothing runs.
    pub fn start(program: &Arc<Program>, options: RunnerOptions) -> Result<Self, RunnerError> {
        Self::start_over(KernelNetwork::new(), program, options)
    }
}

impl<N: Network> Runner<N> {
    /// Starts a program over a network; every address is bound before the first request is taken.
    ///
    /// # Errors
    ///
    /// [`RunnerError`]; then nothing runs.
    pub fn start_over(
        network: N,
        program: &Arc<Program>,
        options: RunnerOptions,
    ) -> Result<Self, RunnerError> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let count = if options.loops == 0 { cores } else { options.loops }.min(LOOPS_MAX);
        let count = if program.is_of_one_loop() { 1 } else { count };
        let LoopPlan { planned, sites } = plan(&network, program, &options, count, &[])?;
        let resolver = Resolver::start(&network)?;
        let peers = LostPeers::new(options.peers.clone());
        let mut workers = Vec::new();
        for planned in planned {
            let mut worker = Worker::new(resolver.clone(), &network, peers.clone())?;
            worker.replace(planned, options.drain_within)?;
            workers.push(worker);
        }
        let all: Vec<_> = workers.iter().map(Worker::mailbox).collect();
        for (own, worker) in workers.iter_mut().enumerate() {
            worker.meet(all.clone(), own);
        }
        let (descriptors, note) = claim(&sites, program, count);
        let (program, posts) = (Arc::clone(program), Mutex::default());
        let loops = Vec::new();
        let is_recording = Arc::default();
        let mut this = Self {
            loops,
            options,
            network,
            sites,
            descriptors,
            note,
            program,
            peers,
            posts,
            is_recording,
        };
        for (number, worker) in workers.into_iter().enumerate() {
            let mailbox = worker.mailbox();
            let name = format!("gw-loop-{number}");
            let thread = thread::Builder::new().name(name).spawn(move || worker.run())?;
            this.loops.push(LoopThread { mailbox, thread });
        }
        Ok(this)
    }

    /// Addresses of its servers.
    pub fn listening(&self) -> Vec<Listening> {
        listening(&self.sites)
    }

    /// Number of loops that run.
    pub fn loops(&self) -> usize {
        self.loops.len()
    }

    /// A note for the operator if the system's limits are below the program's.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Replaces the program, between two wake-ups of each loop.
    ///
    /// New connections and requests then go to the new program. Listeners at the same address are
    /// handed over with their pending connections, so none is refused. Sessions of the old program
    /// continue in it until they end, at most for [`RunnerOptions::drain_within`].
    ///
    /// # Errors
    ///
    /// [`RunnerError`]; then the old program continues unchanged.
    pub fn replace(&mut self, program: &Arc<Program>) -> Result<(), RunnerError> {
        let addresses = self.options.addresses.clone();
        self.replace_at(program, addresses)
    }

    /// Replaces the program like [`Self::replace`], with other [`RunnerOptions::addresses`].
    ///
    /// # Errors
    ///
    /// [`RunnerError`]; then the old program continues unchanged, except for [`RunnerError::Deaf`].
    pub fn replace_at(
        &mut self,
        program: &Arc<Program>,
        addresses: Vec<(String, String)>,
    ) -> Result<(), RunnerError> {
        self.replace_over(self.network.clone(), program, addresses)
    }

    /// The network that the program runs over.
    pub const fn network(&self) -> &N {
        &self.network
    }

    /// Replaces the program like [`Self::replace_at`], over a network made from
    /// [`Self::network`]: they have the same time.
    ///
    /// # Errors
    ///
    /// [`RunnerError`]; then the old program continues unchanged, except for [`RunnerError::Deaf`].
    pub fn replace_over(
        &mut self,
        network: N,
        program: &Arc<Program>,
        addresses: Vec<(String, String)>,
    ) -> Result<(), RunnerError> {
        let count = self.loops.len();
        if count > 1 && program.is_of_one_loop() {
            return Err(RunnerError::OneLoop { program: program.name.clone(), loops: count });
        }
        let options = RunnerOptions { addresses, ..self.options.clone() };
        let LoopPlan { mut planned, sites } =
            plan(&network, program, &options, count, &self.sites)?;
        let posts = self.posts.get_mut().unwrap_or_else(PoisonError::into_inner);
        for post in posts {
            for planned in &mut planned {
                // A post whose handlers are gone sees nothing until they come back.
                let _gone = planned.machine.attach(post);
            }
        }
        let mut told = Vec::new();
        for (one, planned) in self.loops.iter().zip(planned) {
            let within = self.options.drain_within;
            let (done, wait) = sync_channel(1);
            if !one.mailbox.send(LoopMessage::Replace { planned: Box::new(planned), within, done })
            {
                return Err(RunnerError::Ended);
            }
            told.push(wait);
        }
        // A loop that is that busy does it when it comes to it.
        let failed = told.iter().find_map(|wait| wait.recv_timeout(REPORT_WITHIN).ok()?.err());
        // Before the new claim, or the same connections would count twice.
        self.descriptors = None;
        (self.descriptors, self.note) = claim(&sites, program, count);
        self.peers.clear();
        self.sites = sites;
        self.network = network;
        self.program = Arc::clone(program);
        self.options = options;
        failed.map_or(Ok(()), |failed| Err(RunnerError::Deaf(failed)))
    }

    /// The program that takes requests.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Servers that it calls and cannot reach.
    pub fn lost_peers(&self) -> Vec<LostPeer> {
        self.peers.lost()
    }

    /// Attaches a post to handlers of the program, in every loop. It sees messages that begin from
    /// now on. Captured pieces go to `sink`. It stays attached when another program takes over.
    ///
    /// # Errors
    ///
    /// [`PostError`]; then nothing is attached.
    pub fn attach(&self, post: Post, sink: Option<&PieceSink>) -> Result<(), PostError> {
        post.check(&self.program)?;
        self.everywhere(|done| LoopMessage::Attach {
            post: Box::new(post.clone()),
            sink: sink.cloned(),
            done,
        });
        self.posts.lock().unwrap_or_else(PoisonError::into_inner).push(post);
        Ok(())
    }

    /// Detaches the post with this id; its sink receives nothing more.
    pub fn detach(&self, id: u32) {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner).retain(|post| post.id != id);
        self.everywhere(|done| LoopMessage::Detach { id, done });
    }

    /// Records the next conversation that reaches a handler of this name (as in
    /// [`Post::handler`]), in whichever loop.
    ///
    /// # Errors
    ///
    /// [`RecordError`]; then nothing is recorded.
    pub fn record(&self, handler: &str) -> Result<Recording, RecordError> {
        let post = Post {
            id: 0,
            handler: handler.to_owned(),
            way: Direction::Receive,
            does: Does::Capture,
            counted: Arc::default(),
        };
        post.check(&self.program)?;
        if self.is_recording.swap(true, Ordering::AcqRel) {
            return Err(RecordError::Busy);
        }
        let (to, received) = sync_channel(1);
        let mailboxes: Vec<_> = self.loops.iter().map(|one| one.mailbox.clone()).collect();
        let stop = Box::new(move || {
            for mailbox in &mailboxes {
                mailbox.send(LoopMessage::StopRecording);
            }
        });
        // Before the loops are told, so that it is undone whatever comes.
        let recording = Recording { received, stop, busy: Arc::clone(&self.is_recording) };
        self.everywhere(|done| {
            let (handler, to) = (handler.to_owned(), to.clone());
            LoopMessage::Record { handler, to, done }
        });
        Ok(recording)
    }

    /// Sends every loop a message, and waits until they have handled it.
    fn everywhere(&self, message: impl Fn(SyncSender<()>) -> LoopMessage<N::Poller>) {
        let told = self.loops.iter().filter_map(|one| {
            let (done, wait) = sync_channel(1);
            one.mailbox.send(message(done)).then_some(wait)
        });
        let told: Vec<_> = told.collect();
        let end = Instant::now() + REPORT_WITHIN;
        for wait in told {
            // A loop that is that busy does it when it comes to it.
            let _late = wait.recv_timeout(end.saturating_duration_since(Instant::now()));
        }
    }

    /// Sums over all loops at this moment.
    pub fn report(&self) -> RunReport {
        let asked = self.loops.iter().filter_map(|one| {
            let (reply, answer) = sync_channel(1);
            one.mailbox.send(LoopMessage::RunReport(reply)).then_some(answer)
        });
        let answers: Vec<_> = asked.collect();
        let end = Instant::now() + REPORT_WITHIN;
        let mut report = RunReport::default();
        for answer in answers {
            if let Ok(of) = answer.recv_timeout(end.saturating_duration_since(Instant::now())) {
                report.add(of);
            }
        }
        report
    }

    /// Accepts no more requests, waits `within` for sessions to end, closes the others, and returns
    /// the last report.
    pub fn stop(mut self, within: Duration) -> RunReport {
        let loops = std::mem::take(&mut self.loops);
        for one in &loops {
            one.mailbox.send(LoopMessage::Stop { within });
        }
        let mut report = RunReport::default();
        for one in loops {
            if let Ok(of) = one.thread.join() {
                report.add(of);
            }
        }
        report
    }
}

impl<N: Network> Drop for Runner<N> {
    fn drop(&mut self) {
        for one in &self.loops {
            one.mailbox.send(LoopMessage::Stop { within: Duration::ZERO });
        }
    }
}

/// Addresses of the servers among `sites`.
pub(crate) fn listening(sites: &[RoleSite]) -> Vec<Listening> {
    let address = |place: &RoleAddress| match place {
        RoleAddress::Listen(address)
        | RoleAddress::Serve(address)
        | RoleAddress::Group(address) => Some(*address),
        RoleAddress::Ask(_) => None,
    };
    let listening = sites.iter().filter_map(|site| {
        Some(Listening { role: site.endpoint.name.clone(), address: address(&site.place)? })
    });
    listening.collect()
}

/// A machine with sockets for each loop, and the sites of their roles.
pub(crate) struct LoopPlan<P: Poller> {
    pub(crate) planned: Vec<Planned<P>>,
    pub(crate) sites: Vec<RoleSite>,
}

/// Makes machines and sockets for each loop, with their sites; sockets of `before` exist already.
pub(crate) fn plan<N: Network>(
    network: &N,
    program: &Arc<Program>,
    options: &RunnerOptions,
    count: usize,
    before: &[RoleSite],
) -> Result<LoopPlan<N::Poller>, RunnerError> {
    let mut sites: Option<Vec<RoleSite>> = None;
    let mut planned = Vec::new();
    for number in 0..count {
        let nth = u64::try_from(number).unwrap_or_default();
        let seed = options.seed.wrapping_add(nth);
        let config = MachineConfig { addresses: options.addresses.clone(), seed };
        let machine = Machine::new(network.now(), program, &config)?;
        let mut here = sites.take().map_or_else(|| plan::sites(network, &machine), Ok)?;
        let mut sockets = Vec::new();
        for site in &mut here {
            let had = had(site, before).filter(|had| !matches!(had, RoleAddress::Ask(_)));
            let origin = if let Some(had) = had {
                site.place = had;
                SocketOrigin::Inherited
            } else {
                plan::socket_of(network, site, number == 0)?
            };
            sockets.push(RoleSocket {
                role: site.endpoint.role,
                place: site.place.clone(),
                origin,
            });
        }
        sites = Some(here);
        planned.push(Planned { machine, sockets });
    }
    Ok(LoopPlan { planned, sites: sites.unwrap_or_default() })
}

/// The place that the previous program had for the same address. A port that the kernel chose for
/// it is kept for the role of the same name.
fn had(site: &RoleSite, before: &[RoleSite]) -> Option<RoleAddress> {
    let RoleSite { endpoint, place, domain } = site;
    let same = |before: &&RoleSite| {
        let known = &before.endpoint;
        let named = known.name == endpoint.name && known.address == endpoint.address;
        before.domain == *domain && (before.place == *place || named)
    };
    before.iter().find(same).map(|before| before.place.clone())
}

/// Claims a descriptor for each connection that the program may have. It returns a sentence for the
/// operator if they cannot be had.
fn claim(sites: &[RoleSite], program: &Program, loops: usize) -> (Option<Claim>, Option<String>) {
    if !sites.iter().any(|site| matches!(site.place, RoleAddress::Listen(_))) {
        return (None, None);
    }
    let most = |role: &gatewright_lang::ir::Role| u64::from(role.connections_max);
    let connections: u64 = program.roles.iter().map(most).sum();
    let connections = connections.saturating_mul(u64::try_from(loops).unwrap_or(u64::MAX));
    let claim = Claim::new(connections);
    let note = claim.shortage().map(|shortage| {
        format!(
            "the program's limits allow {connections} connections: with all else in this process \
             {shortage}: connections above that wait to be accepted"
        )
    });
    (Some(claim), note)
}
