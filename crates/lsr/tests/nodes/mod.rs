//! Nodes of the mesh in network namespaces, as several tests need them.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail loudly, and uses its part"
)]

use gatewright_lsr::{MeshRouter, MeshSetup, MeshState};
use gatewright_mesh::{MeshRouting, MeshTrust, Profile};
use gatewright_part::EventSink;
use gatewright_testbed::{Namespace, Needs, TestInterface, Veth, wait_until};
use gatewright_xdp::LabelSwitching;
use libtest_mimic::{Failed, Trial};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Nodes of several tests share the machine's processors, and lose each other while it is busy.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// What this machine lacks for nodes and what else a test needs.
pub(crate) fn missing(needs: Needs) -> Option<String> {
    let bpf = LabelSwitching::new().err().map(|error| format!("BPF: {error}"));
    let needs = needs.namespaces().program("ping").program("ip").linux(6, 6);
    bpf.or_else(|| needs.missing().map(|it| it.to_string()))
}

/// A test, or its name with what this machine lacks for it.
pub(crate) fn trial(name: &str, missing: Option<&str>, test: fn() -> Result<(), Failed>) -> Trial {
    match missing {
        None => Trial::test(name, test),
        Some(missing) => {
            let name = format!("{name} (needs {missing})");
            Trial::test(name, || Ok(())).with_ignored_flag(true)
        }
    }
}

/// Nodes with their mesh interfaces: node `i` is 10.99.0.I and fd99::I with I = `i + 1`.
pub(crate) struct Mesh {
    pub(crate) nodes: Vec<Namespace>,
    cables: Vec<Veth>,
    pub(crate) routers: Vec<MeshRouter>,
}

/// The interface of a node towards another one.
pub(crate) fn towards(other: usize) -> String {
    format!("to{other}")
}

impl Mesh {
    pub(crate) fn new(
        count: usize,
        cables: &[(usize, usize)],
        profile: Profile,
    ) -> Result<Self, Failed> {
        Self::trusting(count, cables, profile, &MeshTrust::Open)
    }

    pub(crate) fn trusting(
        count: usize,
        cables: &[(usize, usize)],
        profile: Profile,
        trust: &MeshTrust,
    ) -> Result<Self, Failed> {
        Self::with(count, cables, profile, |_| trust.clone())
    }

    pub(crate) fn with(
        count: usize,
        cables: &[(usize, usize)],
        profile: Profile,
        trust: impl Fn(usize) -> MeshTrust,
    ) -> Result<Self, Failed> {
        Self::changed(count, cables, |number, setup| {
            (setup.profile, setup.trust) = (profile, trust(number));
        })
    }

    /// Nodes whose setups `change` adapts.
    pub(crate) fn changed(
        count: usize,
        cables: &[(usize, usize)],
        change: impl Fn(usize, &mut MeshSetup),
    ) -> Result<Self, Failed> {
        let nodes = (0..count).map(|_| Namespace::new()).collect::<Result<Vec<_>, _>>()?;
        let mut made = Vec::new();
        for &(a, b) in cables {
            let (left, right) = (&nodes[a], &nodes[b]);
            let cable = Veth::with_queues(left, &towards(b), right, &towards(a), 1)?;
            cable.a.disable_ipv6()?;
            cable.b.disable_ipv6()?;
            cable.up()?;
            made.push(cable);
        }
        let mut routers = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            let ends = cables.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
            let links = ends.filter(|(own, _)| *own == number).map(|(_, other)| towards(other));
            let mut setup = MeshSetup {
                interface: "mesh0".into(),
                links: links.collect(),
                ports: Vec::new(),
                tunnels: Vec::new(),
                profile: Profile::Default,
                routing: MeshRouting::OnDemand,
                trust: MeshTrust::Open,
            };
            change(number, &mut setup);
            let seed = 1 + u64::try_from(number)?;
            let start = || MeshRouter::start(&setup, seed, EventSink::default());
            routers.push(node.run(start)??);
            let host = number + 1;
            node.ip(&["address", "add", &format!("10.99.0.{host}/24"), "dev", "mesh0"])?;
            node.ip(&["address", "add", &format!("fd99::{host}/64"), "dev", "mesh0", "nodad"])?;
        }
        let this = Self { nodes, cables: made, routers };
        let heard = |state: MeshState| state.neighbours.len() + 1 == state.links.len();
        let all = || this.routers.iter().all(|router| router.state().is_ok_and(heard));
        assert!(wait_until(LIMIT, all), "neighbours are not heard");
        Ok(this)
    }

    pub(crate) fn line(count: usize, profile: Profile) -> Result<Self, Failed> {
        let cables: Vec<_> = (1..count).map(|right| (right - 1, right)).collect();
        Self::new(count, &cables, profile)
    }

    pub(crate) fn ping(&self, from: usize, arguments: &[&str], to: &str) -> Result<bool, Failed> {
        let ping = self.nodes[from].command("ping").args(["-n", "-q", "-i0.01", "-W2"]);
        Ok(ping.args(arguments).arg(to).output()?.status.success())
    }

    pub(crate) fn state(&self, node: usize) -> Result<MeshState, Failed> {
        Ok(self.routers[node].state()?)
    }

    /// The end of the cable between two nodes at the first.
    pub(crate) fn end(&self, own: usize, other: usize) -> &TestInterface {
        let name = towards(other);
        let mut ends = self.cables.iter().flat_map(|cable| [&cable.a, &cable.b]);
        let is_own = |end: &&TestInterface| {
            end.name() == name && end.namespace().path() == self.nodes[own].path()
        };
        ends.find(is_own).unwrap()
    }
}

/// Sends 8 MiB by one TCP stream; all arrive.
pub(crate) fn stream(from: &Namespace, to: &Namespace, at: &str) -> Result<(), Failed> {
    const LEN: usize = 8 << 20;
    let at: SocketAddr = at.parse()?;
    let listener = to.run(|| TcpListener::bind(at))??;
    let received = std::thread::spawn(move || -> std::io::Result<usize> {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(LIMIT))?;
        let (mut buffer, mut sum) = (vec![0; 1 << 16], 0);
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(sum),
                more => sum += more,
            }
        }
    });
    let mut stream = from.run(|| TcpStream::connect_timeout(&at, LIMIT))??;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(&vec![0x5a; LEN])?;
    drop(stream);
    assert_eq!(received.join().unwrap()?, LEN);
    Ok(())
}
