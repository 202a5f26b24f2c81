//! Failover of the mesh: the Lilith paper's Figure 6 in namespaces, whose cables are cut while
//! datagrams pass.
//!
//! ```text
//!      ┌─ 1 ── 2 ─┐
//!  S ──┼─ 3 ── 4 ─┼── T
//!      └─ 5 ── 6 ─┘
//! ```

mod flow;

pub use flow::{EchoFlow, EchoedDatagram};

use gatewright_lsr::{MeshPathState, MeshRouter, MeshSetup};
use gatewright_mesh::{MeshRouting, MeshTrust, Profile};
use gatewright_part::EventSink;
use gatewright_testbed::{Namespace, TestInterface, TestbedError, Veth, wait_until};
use gatewright_xdp::SilentInterface;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// The cables: S is 0, T is 7.
const CABLES: [(usize, usize); 9] =
    [(0, 1), (1, 2), (2, 7), (0, 3), (3, 4), (4, 7), (0, 5), (5, 6), (6, 7)];
const NODES: usize = 8;
const NAMES: [&str; NODES] = ["S", "1", "2", "3", "4", "5", "6", "T"];
/// The two ends, and T's address.
const SOURCE: usize = 0;
const TARGET: usize = 7;
const TARGET_ADDRESS: &str = "10.99.0.8";
/// How long a cable stays cut.
const CUT: Duration = Duration::from_secs(1);
/// How long neighbours and backups may take to be found.
const PATIENCE: Duration = Duration::from_secs(30);

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
}

impl FailoverBed {
    /// Builds the network, and waits until all neighbours hear each other.
    ///
    /// # Errors
    ///
    /// [`FailoverError`]: without root, or where BPF is not to be had.
    pub fn new() -> Result<Self, FailoverError> {
        let nodes = (0..NODES).map(|_| Namespace::new()).collect::<Result<Vec<_>, _>>()?;
        let mut cables = Vec::new();
        for (a, b) in CABLES {
            let (Some(left), Some(right)) = (nodes.get(a), nodes.get(b)) else { continue };
            let cable = Veth::with_queues(left, &towards(b), right, &towards(a), 1)?;
            cable.a.disable_ipv6()?;
            cable.b.disable_ipv6()?;
            cable.up()?;
            cables.push(((a, b), cable));
        }
        let mut this = Self { nodes, cables, routers: Vec::new(), names: BTreeMap::new() };
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
            let address = format!("10.99.0.{}/24", number + 1);
            node.ip(&["address", "add", &address, "dev", "mesh0"])?;
        }
        Ok(())
    }

    fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<(), FailoverError> {
        if wait_until(PATIENCE, || holds(self)) {
            return Ok(());
        }
        Err(format!("{what}: not there after {} s", PATIENCE.as_secs()).into())
    }

    /// Starts a flow of datagrams of `len` octets from S to T, which T returns.
    ///
    /// # Errors
    ///
    /// [`FailoverError`] if the system gives no socket or thread.
    pub fn flow(&self, port: u16, len: usize, every: Duration) -> Result<EchoFlow, FailoverError> {
        let node = |number: usize| self.nodes.get(number).ok_or("no such node".to_owned());
        let target = format!("{TARGET_ADDRESS}:{port}");
        Ok(EchoFlow::start((node(SOURCE)?, node(TARGET)?), &target, len, every)?)
    }

    /// Waits until both ends have a path and a backup.
    ///
    /// # Errors
    ///
    /// [`FailoverError::Node`] if they do not find one in time.
    pub fn settle(&self) -> Result<(), FailoverError> {
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

    /// The nodes of the path that carries bulk traffic from S to T.
    fn carrying(&self) -> Vec<usize> {
        let paths = self.paths(SOURCE, TARGET);
        let bulk = |path: &&MeshPathState| path.carries && path.classes.contains(&2);
        let relays = paths.iter().find(bulk).map(|path| path.relays.as_slice());
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
        std::thread::sleep(CUT);
        let (healed, after) = (flow.now(), self.carrying());
        match silent {
            Some(ends) => drop(ends),
            None => far.up()?,
        }
        let outage = flow.outage(began, healed);
        self.wait("the healed neighbours", |this| {
            let hears = |own: usize, other: usize| {
                let state = this.routers.get(own).and_then(|router| router.state().ok());
                state.is_some_and(|state| {
                    state.neighbours.iter().any(|near| near.up && near.link == towards(other))
                })
            };
            hears(a, b) && hears(b, a)
        })?;
        Ok(CutOutcome {
            cut,
            cable: format!("{}–{}", name(a), name(b)),
            at_ms: millis(began),
            healed_ms: millis(healed),
            outage_ms: outage.as_secs_f64() * 1e3,
            before: drawn(&path),
            after: drawn(&after),
        })
    }

    /// The path that carries packets from S to T, drawn.
    pub fn path(&self) -> String {
        drawn(&self.carrying())
    }
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
