//! Routes of the relay `kernel`: a router of OLSR in each host, as in the paper. Paths of the relay
//! `mesh-label`: a node of the mesh in each host.

use gatewright_lsr::{MeshRouter, MeshSetup};
use gatewright_mesh::{MeshRouting, MeshTrust, Profile};
use gatewright_olsr::{OlsrRouter, OlsrSetup};
use gatewright_part::EventSink;
use gatewright_testbed::{Namespace, TestbedError, wait_until};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A tenth of the standard's intervals, so that routes are there after two seconds.
const HELLO: Duration = Duration::from_millis(200);
const TOPOLOGY: Duration = Duration::from_millis(500);

/// Time for the routes at the most.
const ROUTES_WITHIN: Duration = Duration::from_secs(20);

/// How soon a router ends.
const STEP: Duration = Duration::from_millis(50);

/// A router in a host, on a thread of its own; dropping it ends it and its routes.
#[derive(Debug)]
pub(crate) struct RouteFinder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl RouteFinder {
    /// Starts a router on these interfaces of a host.
    pub(crate) fn start(host: &Namespace, interfaces: Vec<String>, seed: u64) -> Self {
        let (host, stop) = (host.clone(), Arc::new(AtomicBool::new(false)));
        let its = Arc::clone(&stop);
        let mut setup = OlsrSetup::new(interfaces, seed);
        (setup.hello_interval, setup.topology_interval) = (HELLO, TOPOLOGY);
        let run = move || {
            let mut router = OlsrRouter::open(&setup).map_err(|error| error.to_string())?;
            while !its.load(Ordering::Relaxed) {
                router.step(STEP).map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        let thread = std::thread::spawn(move || match host.run(run) {
            Ok(result) => result,
            Err(error) => Err(error.to_string()),
        });
        Self { stop, thread: Some(thread) }
    }

    /// Why it has ended by itself, if it has.
    pub(crate) fn error(&mut self) -> Option<String> {
        let thread = self.thread.take_if(|thread| thread.is_finished())?;
        thread.join().ok()?.err()
    }
}

impl Drop for RouteFinder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Waits until a host has a route to an address from OLSR.
pub(crate) fn wait(host: &Namespace, to: Ipv4Addr) -> bool {
    let protocol = gatewright_olsr::ROUTE_PROTOCOL.to_string();
    let has = || {
        let routes = host.ip(&["route", "show", &to.to_string(), "proto", &protocol]);
        routes.is_ok_and(|routes| !routes.trim().is_empty())
    };
    wait_until(ROUTES_WITHIN, has)
}

/// The mesh interface of each host.
const MESH: &str = "mesh0";

/// The discard service (RFC 863), to which the packet goes that asks for a path.
const DISCARD: u16 = 9;

/// Nodes of the mesh, one in each host, whose kernels switch labels; dropping it ends them and removes
/// their interfaces.
#[derive(Debug)]
pub(crate) struct LabelPaths(Vec<MeshRouter>);

impl LabelPaths {
    /// The address of a host in the mesh.
    pub(crate) fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, u8::try_from(host + 1).unwrap_or(u8::MAX))
    }

    /// Starts a node in each host on its interfaces, and waits until a path carries packets from the
    /// first one to the last and back.
    pub(crate) fn start(hosts: &[Namespace], names: &[Vec<String>]) -> Result<Self, String> {
        let mut paths = Self(Vec::new());
        for (at, (host, links)) in hosts.iter().zip(names).enumerate() {
            let setup = MeshSetup {
                interface: MESH.to_owned(),
                links: links.clone(),
                ports: Vec::new(),
                tunnels: Vec::new(),
                profile: Profile::Default,
                routing: MeshRouting::OnDemand,
                trust: MeshTrust::Open,
            };
            let seed = u64::try_from(at).unwrap_or(0) + 1;
            let router = host.run(|| MeshRouter::start(&setup, seed, EventSink::default()));
            paths.0.push(router.map_err(text)?.map_err(|error| error.to_string())?);
            let address = format!("{}/24", Self::address(at));
            host.ip(&["address", "add", &address, "dev", MESH]).map_err(text)?;
        }
        let last = hosts.len().saturating_sub(1);
        for (from, to) in [(0, last), (last, 0)] {
            if !wait_until(ROUTES_WITHIN, || paths.carries(hosts, from, to)) {
                return Err(format!("the mesh found no path to {}", Self::address(to)));
            }
        }
        Ok(paths)
    }

    /// Whether a path carries packets from one host to another one; a packet asks for it.
    fn carries(&self, hosts: &[Namespace], from: usize, to: usize) -> bool {
        let (Some(host), Some(router)) = (hosts.get(from), self.0.get(from)) else { return false };
        let ask = || {
            let socket = UdpSocket::bind((Self::address(from), 0))?;
            socket.send_to(b"path", (Self::address(to), DISCARD))
        };
        // One that could not be sent asks for nothing: there is no path yet.
        let _asked = host.run(ask);
        let Some(target) = self.0.get(to).and_then(|it| it.state().ok()).map(|it| it.node) else {
            return false;
        };
        let state = router.state().ok();
        let to = state.iter().flat_map(|state| &state.destinations);
        to.filter(|to| to.node == target).flat_map(|to| &to.paths).any(|path| path.carries)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: TestbedError) -> String {
    error.to_string()
}
