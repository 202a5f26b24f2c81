//! Failover of the mesh, or of routing daemons that are not ours: the Lilith paper's Figure 6 in
//! namespaces, whose cables are cut while datagrams pass.
//!
//! ```text
//!      ┌─ 1 ── 2 ─┐
//!  S ──┼─ 3 ── 4 ─┼── T
//!      └─ 5 ── 6 ─┘
//! ```

mod flow;
mod peers;

pub use flow::{EchoFlow, EchoedDatagram};
pub use peers::PeerRouting;

use gatewright_lsr::{MeshPathState, MeshRouter, MeshSetup};
use gatewright_mesh::{MeshRouting, MeshTrust, Profile};
use gatewright_part::EventSink;
use gatewright_testbed::{Namespace, TestInterface, TestbedError, Veth, wait_until};
use gatewright_xdp::SilentInterface;
use peers::PeerDaemons;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// The cables: S is 0, T is 7.
const CABLES: [(usize, usize); 9] =
    [(0, 1), (1, 2), (2, 7), (0, 3), (3, 4), (4, 7), (0, 5), (5, 6), (6, 7)];
const NODES: usize = 8;
const NAMES: [&str; NODES] = ["S", "1", "2", "3", "4", "5", "6", "T"];
/// Index of the first interface of a cable.
const FIRST_INDEX: u32 = 100;
/// The two ends.
const SOURCE: usize = 0;
const TARGET: usize = 7;
/// The path that costs daemons least.
const PEERS_PATH: [usize; 4] = [SOURCE, 1, 2, TARGET];
/// How long a cable stays cut: with nodes of the mesh, and with daemons, which take longer.
const CUT: Duration = Duration::from_secs(1);
const CUT_OF_PEERS: Duration = Duration::from_secs(6);
/// How long neighbours and backups may take to be found.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long daemons may take to find routes, and for how long these must stay as they are. They need not be
/// the cheapest: babeld keeps to a route while a cheaper one is not feasible.
const PATIENCE_OF_PEERS: Duration = Duration::from_secs(100);
const STEADY: Duration = Duration::from_secs(3);

/// Why the experiment cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FailoverError {
    /// A namespace or an interface.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// A socket or program.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A node.
    #[error("{0}")]
    Node(String),
}

impl From<String> for FailoverError {
    fn from(why: String) -> Self {
        Self::Node(why)
    }
}

/// How and where a cable of the present path is cut.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CableCut {
    /// S's own link loses its carrier.
    NearDown,
    /// The link between the relays loses its carrier.
    FarDown,
    /// S's own link carries nothing any more, and keeps its carrier.
    NearSilent,
    /// The link between the relays carries nothing any more.
    FarSilent,
}

impl CableCut {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::NearDown, Self::FarDown, Self::NearSilent, Self::FarSilent];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NearDown => "near link down",
            Self::FarDown => "far link down",
            Self::NearSilent => "near link silent",
            Self::FarSilent => "far link silent",
        }
    }

    const fn is_near(self) -> bool {
        matches!(self, Self::NearDown | Self::NearSilent)
    }

    const fn is_silent(self) -> bool {
        matches!(self, Self::NearSilent | Self::FarSilent)
    }
}

/// A cut and what it did to a flow.
#[derive(Clone, Debug, Serialize)]
pub struct CutOutcome {
    /// How and where.
    pub cut: CableCut,
    /// The cable by its ends.
    pub cable: String,
    /// When, since the start of the flow, in milliseconds.
    pub at_ms: u64,
    /// When it was healed.
    pub healed_ms: u64,
    /// From the first datagram without an answer to the first with one, in milliseconds.
    pub outage_ms: f64,
    /// The path before.
    pub before: String,
    /// The path afterwards.
    pub after: String,
}

/// The network with its nodes.
#[derive(Debug)]
pub struct FailoverBed {
    nodes: Vec<Namespace>,
    cables: Vec<((usize, usize), Veth)>,
    routers: Vec<MeshRouter>,
    names: BTreeMap<String, usize>,
    peers: Option<PeerDaemons>,
}

impl FailoverBed {
    /// Builds the network, and waits until all neighbours hear each other.
    ///
    /// # Errors
    ///
    /// [`FailoverError`]: without root, or where BPF is not to be had.
    pub fn new() -> Result<Self, FailoverError> {
        let mut this = Self::cabled()?;
        this.start()?;
        let heard = |router: &MeshRouter| {
            // The last of the links is the mesh interface's peer.
            let all = |state: gatewright_lsr::MeshState| {
                state.neighbours.iter().filter(|near| near.up).count() + 1 == state.links.len()
            };
            router.state().is_ok_and(all)
        };
        this.wait("all neighbours", |this| this.routers.iter().all(heard))?;
        Ok(this)
    }

    /// The same network whose nodes forward IP by routes of daemons that are not ours. The path by 1 and 2
    /// costs less than the others.
    ///
    /// # Errors
    ///
    /// [`FailoverError`]: without root, or without the daemons.
    pub fn of_peers(routing: PeerRouting) -> Result<Self, FailoverError> {
        let mut this = Self::cabled()?;
        this.peers = Some(PeerDaemons::start(routing, &this.nodes, &this.cables)?);
        this.settle()?;
        Ok(this)
    }

    /// The nodes with their cables.
    fn cabled() -> Result<Self, FailoverError> {
        let nodes = (0..NODES).map(|_| Namespace::new()).collect::<Result<Vec<_>, _>>()?;
        let mut cables = Vec::new();
        for (index, (a, b)) in (FIRST_INDEX..).step_by(2).zip(CABLES) {
            let (Some(left), Some(right)) = (nodes.get(a), nodes.get(b)) else { continue };
            // The nodes are machines of their own: no other cable's event delays one's.
            let indices = [index, index + 1];
            let cable = Veth::with_indices(left, &towards(b), right, &towards(a), indices)?;
            cable.a.disable_ipv6()?;
            cable.b.disable_ipv6()?;
            cable.up()?;
            cables.push(((a, b), cable));
        }
        let (routers, names) = (Vec::new(), BTreeMap::new());
        Ok(Self { nodes, cables, routers, names, peers: None })
    }

    fn start(&mut self) -> Result<(), FailoverError> {
        for (number, node) in self.nodes.iter().enumerate() {
            let ends = CABLES.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]);
            let links = ends.filter(|(own, _)| *own == number).map(|(_, other)| towards(other));
            let setup = MeshSetup {
                interface: "mesh0".to_owned(),
                links: links.collect(),
                ports: Vec::new(),
                tunnels: Vec::new(),
                profile: Profile::Default,
                routing: MeshRouting::OnDemand,
                trust: MeshTrust::Open,
            };
            let seed = u64::try_from(number).unwrap_or(0) + 1;
            let router = node.run(|| MeshRouter::start(&setup, seed, EventSink::default()))?;
            let router = router.map_err(|error| error.to_string())?;
            self.names.insert(router.state()?.node, number);
            self.routers.push(router);
            let address = format!("{}/24", address(number));
            node.ip(&["address", "add", &address, "dev", "mesh0"])?;
        }
        Ok(())
    }

    fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<(), FailoverError> {
        let patience = if self.peers.is_some() { PATIENCE_OF_PEERS } else { PATIENCE };
        if wait_until(patience, || holds(self)) {
            return Ok(());
        }
        Err(format!("{what}: not there after {} s", patience.as_secs()).into())
    }

    /// Starts a flow of datagrams of `len` octets of bounded delay from S to T, which T returns.
    ///
    /// # Errors
    ///
    /// [`FailoverError`] if the system gives no socket or thread.
    pub fn flow(&self, port: u16, len: usize, every: Duration) -> Result<EchoFlow, FailoverError> {
        let node = |number: usize| self.nodes.get(number).ok_or("no such node".to_owned());
        let ends = [address(SOURCE), format!("{}:{port}", address(TARGET))];
        Ok(EchoFlow::start((node(SOURCE)?, node(TARGET)?), &ends, len, every)?)
    }

    /// Waits until both ends have a path and a backup.
    ///
    /// # Errors
    ///
    /// [`FailoverError::Node`] if they do not find one in time.
    pub fn settle(&self) -> Result<(), FailoverError> {
        if self.peers.is_some() {
            return self.wait("steady routes at both ends", |this| {
                let both = || [this.routed(SOURCE, TARGET), this.routed(TARGET, SOURCE)];
                let found = both();
                std::thread::sleep(STEADY);
                let ends = found.each_ref().map(|nodes| nodes.last().copied());
                ends == [Some(TARGET), Some(SOURCE)] && both() == found
            });
        }
        self.wait("a path and its backup at both ends", |this| {
            let both = [(SOURCE, TARGET), (TARGET, SOURCE)];
            both.iter().all(|&(own, other)| {
                let paths = this.paths(own, other);
                paths.iter().any(|path| path.carries && path.role == "primary")
                    && paths.iter().any(|path| path.role == "backup")
            })
        })
    }

    fn paths(&self, own: usize, other: usize) -> Vec<MeshPathState> {
        let state = self.routers.get(own).and_then(|router| router.state().ok());
        let to = state.into_iter().flat_map(|state| state.destinations);
        let is_other = |node: &str| self.names.get(node) == Some(&other);
        to.filter(|to| is_other(&to.node)).flat_map(|to| to.paths).collect()
    }

    /// The nodes by whose kernels' routes a packet goes; those so far, if one has none.
    fn routed(&self, from: usize, to: usize) -> Vec<usize> {
        let mut nodes = vec![from];
        while let Some(node) = nodes.last().and_then(|&last| self.nodes.get(last)) {
            let found = node.ip(&["-o", "route", "get", &address(to)]).unwrap_or_default();
            let mut words = found.split_whitespace().skip_while(|word| *word != "dev");
            let next = words.nth(1).and_then(|name| name.strip_prefix("to")?.parse().ok());
            match next {
                Some(next) if nodes.len() < NODES => nodes.push(next),
                _ => break,
            }
        }
        nodes
    }

    /// The nodes of the path that carries traffic of bounded delay, which keeps to one, from S to T.
    fn carrying(&self) -> Vec<usize> {
        if self.peers.is_some() {
            return self.routed(SOURCE, TARGET);
        }
        let paths = self.paths(SOURCE, TARGET);
        let bounded = |path: &&MeshPathState| path.carries && path.classes.contains(&1);
        let relays = paths.iter().find(bounded).map(|path| path.relays.as_slice());
        let relays = relays.unwrap_or_default().iter().filter_map(|node| self.names.get(node));
        [SOURCE].into_iter().chain(relays.copied()).chain([TARGET]).collect()
    }

    /// The end of a cable at its first node, and the one at its second.
    fn ends(&self, a: usize, b: usize) -> Option<(&TestInterface, &TestInterface)> {
        let has = |(ends, _): &&((usize, usize), Veth)| *ends == (a, b) || *ends == (b, a);
        let ((first, _), cable) = self.cables.iter().find(has)?;
        Some(if *first == a { (&cable.a, &cable.b) } else { (&cable.b, &cable.a) })
    }

    /// Cuts a cable of the present path for a second, heals it, and waits until there is a backup
    /// again.
    ///
    /// # Errors
    ///
    /// [`FailoverError`] if it does not heal.
    pub fn cut(&self, cut: CableCut, flow: &EchoFlow) -> Result<CutOutcome, FailoverError> {
        self.settle()?;
        let path = self.carrying();
        let at = usize::from(!cut.is_near());
        let (Some(&a), Some(&b)) = (path.get(at), path.get(at + 1)) else {
            return Err("no path carries packets".to_owned().into());
        };
        let (near, far) = self.ends(a, b).ok_or_else(|| "no such cable".to_owned())?;
        let indices = (near.index()?, far.index()?);
        let began = flow.now();
        let silent = if cut.is_silent() {
            let near = near.namespace().run(|| SilentInterface::new(indices.0))??;
            Some((near, far.namespace().run(|| SilentInterface::new(indices.1))??))
        } else {
            far.down()?;
            None
        };
        std::thread::sleep(if self.peers.is_some() { CUT_OF_PEERS } else { CUT });
        let (healed, after) = (flow.now(), self.carrying());
        match silent {
            Some(ends) => drop(ends),
            None => far.up()?,
        }
        let outage = flow.outage(began, healed);
        if self.peers.is_some() {
            self.settle()?;
            return Ok(outcome(cut, (a, b), (began, healed, outage), (&path, &after)));
        }
        self.wait("the healed neighbours", |this| {
            let hears = |own: usize, other: usize| {
                let state = this.routers.get(own).and_then(|router| router.state().ok());
                state.is_some_and(|state| {
                    state.neighbours.iter().any(|near| near.up && near.link == towards(other))
                })
            };
            hears(a, b) && hears(b, a)
        })?;
        Ok(outcome(cut, (a, b), (began, healed, outage), (&path, &after)))
    }

    /// The path that carries packets from S to T, drawn.
    pub fn path(&self) -> String {
        drawn(&self.carrying())
    }
}

fn outcome(
    cut: CableCut,
    (a, b): (usize, usize),
    (began, healed, outage): (Duration, Duration, Duration),
    (before, after): (&[usize], &[usize]),
) -> CutOutcome {
    CutOutcome {
        cut,
        cable: format!("{}–{}", name(a), name(b)),
        at_ms: millis(began),
        healed_ms: millis(healed),
        outage_ms: outage.as_secs_f64() * 1e3,
        before: drawn(before),
        after: drawn(after),
    }
}

/// The address of a node.
fn address(node: usize) -> String {
    format!("10.99.0.{}", node + 1)
}

/// The interface of a node towards another one.
fn towards(other: usize) -> String {
    format!("to{other}")
}

fn name(node: usize) -> &'static str {
    NAMES.get(node).copied().unwrap_or("?")
}

fn drawn(path: &[usize]) -> String {
    path.iter().map(|&node| name(node)).collect::<Vec<_>>().join(" ─▶ ")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
