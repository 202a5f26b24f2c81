//! The same scenario in namespaces and in the simulator, in `classic`: the nodes send the same messages.
//!
//! I'M ALIVE are not compared, as their number depends on the time only, nor what the kernels' hosts send to all
//! of their own. What a message says of costs, delays, labels and numbers is not compared either.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

mod nodes;

use gatewright_link::{FrameSelection, FrameSocket};
use gatewright_mesh::message::{ETHER_TYPE, Message, RecordedHop};
use gatewright_mesh::simulate::MeshWorld;
use gatewright_mesh::{MeshSettings, NodeId, PathClass, Profile};
use gatewright_sim::Topology;
use gatewright_testbed::Needs;
use libtest_mimic::{Arguments, Failed};
use nodes::{Mesh, missing, trial};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

/// The time of each step. All of them are over before the first search for better paths, after 10 s.
const STEP: Duration = Duration::from_secs(2);

/// Runs in namespaces until no timer of a search has expired as the machine was busy.
const RUNS_MAX: usize = 10;

/// The payload of the packet for all.
const TO_ALL: &[u8] = b"to all";

const ETHERNET_LEN: usize = 14;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = missing(Needs::new());
    let trial = |name, test| trial(name, missing.as_deref(), test);
    let trials = vec![
        trial("a_line_of_four_sends_what_the_simulator_sends", a_line_of_four),
        trial("figure_6_sends_what_the_simulator_sends", figure_6),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A search in each direction, and a packet for all, each along one way only.
fn a_line_of_four() -> Result<(), Failed> {
    let scenario = Scenario { topology: Topology::line(4), races: false };
    let sent = scenario.compare()?;
    let [first, last] = [(0, 1), (3, 2)].map(|(from, to)| (from, to, "0 to 3".to_owned()));
    assert_eq!(sent[&first], ["ROUTE REQUEST by []"], "{sent:#?}");
    assert_eq!(sent[&last], ["ROUTE REPLY over [1, 2], 2 to go"], "{sent:#?}");
    Ok(())
}

/// Replies along three paths in each direction.
fn figure_6() -> Result<(), Failed> {
    let sent = Scenario { topology: Topology::three_paths(), races: true }.compare()?;
    let replies = |(from, ..): &&(usize, usize, String)| *from == 6;
    assert_eq!(sent.keys().filter(replies).filter(|key| key.2 == "0 to 6").count(), 3, "{sent:#?}");
    Ok(())
}

/// Messages by sender, receiver, and the search that they belong to, in their order. Messages of different
/// searches may overtake each other, as may those on different links.
type SentMessages = BTreeMap<(usize, usize, String), Vec<String>>;

/// What happens: a packet for all, and a ping from the first node to the last one.
struct Scenario {
    topology: Topology,
    /// Whether ways of the packet for all meet.
    races: bool,
}

impl Scenario {
    /// Plays it in both, and compares: what was sent.
    fn compare(&self) -> Result<SentMessages, Failed> {
        let (expected, searches) = self.simulated();
        for run in 0..RUNS_MAX {
            let (sent, searched) = self.in_namespaces()?;
            if searched != searches {
                eprintln!("run {run}: {searched} searches, {searches} in the simulator");
                continue;
            }
            assert_eq!(sent, expected);
            return Ok(sent);
        }
        Err("in no run the nodes search as often as in the simulator".into())
    }

    fn last(&self) -> usize {
        self.topology.nodes - 1
    }

    /// What the simulator's nodes send, and how many requests begin there.
    fn simulated(&self) -> (SentMessages, u64) {
        let same: fn(&mut MeshSettings) = |_| {};
        let mut world = MeshWorld::new(self.topology.clone(), Profile::Classic, 1, same);
        world.run_for(3 * STEP);
        world.record_messages();
        world.broadcast(0);
        world.run_for(STEP);
        world.ping(0, self.last(), PathClass::BULK);
        world.run_for(STEP);
        assert!(world.pings().iter().all(|ping| ping.rtt.is_some()), "{:?}", world.pings());
        assert!(world.violations().is_empty(), "{:?}", world.violations());
        let numbers = (0..world.nodes()).map(|number| (world.id(number), number)).collect();
        let all = world.messages().iter().map(|sent| ((sent.from, sent.to), &sent.octets[..]));
        (self.described(&numbers, all), world.sum(|counters| counters.searches))
    }

    /// What nodes in namespaces send, as it arrives at the other ends of their links, and the same number.
    fn in_namespaces(&self) -> Result<(SentMessages, u64), Failed> {
        let links = self.topology.links.iter();
        let cables: Vec<(usize, usize)> = links.map(|link| link.ends.into()).collect();
        let mesh = Mesh::new(self.topology.nodes, &cables, Profile::Classic)?;
        // ARP would search the other direction first.
        for (of, other) in [(0, self.last()), (self.last(), 0)] {
            let (host, address) = (format!("10.99.0.{}", other + 1), mesh.state(other)?.node);
            let known = ["neighbour", "replace", &host, "lladdr", &address, "dev", "mesh0"];
            mesh.nodes[of].ip(&known)?;
        }
        let ends = cables.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
        let listen = |(from, to): (usize, usize)| -> Result<_, Failed> {
            let index = mesh.end(to, from).index()?;
            let open = || FrameSocket::open(index, FrameSelection::EtherType(ETHER_TYPE), false);
            Ok(((from, to), mesh.nodes[to].run(open)??))
        };
        let ends = ends.map(listen).collect::<Result<Vec<_>, _>>()?;
        sleep(STEP);
        let socket = mesh.nodes[0].run(|| UdpSocket::bind("10.99.0.1:0"))??;
        socket.set_broadcast(true)?;
        socket.send_to(TO_ALL, "10.99.0.255:7001")?;
        sleep(STEP);
        let host = format!("10.99.0.{}", self.topology.nodes);
        assert!(mesh.ping(0, &["-c1"], &host)?, "no answer");
        sleep(STEP);
        let mut frames = Vec::new();
        for (way, socket) in &ends {
            let mut buffer = [0; 2_000];
            while let Some(frame) = socket.receive(&mut buffer)? {
                frames.push((*way, frame[ETHERNET_LEN..].to_vec()));
            }
        }
        let mut numbers = BTreeMap::new();
        let mut searches = 0;
        for number in 0..self.topology.nodes {
            let state = mesh.state(number)?;
            let id = u64::from_str_radix(&state.node.replace(':', ""), 16)?;
            numbers.insert(NodeId(id), number);
            let counter = state.counters.iter().find(|(name, _)| *name == "searches");
            searches += counter.map_or(0, |&(_, count)| count);
        }
        let all = frames.iter().map(|(way, octets)| (*way, &octets[..]));
        Ok((self.described(&numbers, all), searches))
    }

    /// Messages as they are compared.
    fn described<'a>(
        &self,
        numbers: &BTreeMap<NodeId, usize>,
        sent: impl Iterator<Item = ((usize, usize), &'a [u8])>,
    ) -> SentMessages {
        let mut all = SentMessages::new();
        for ((from, to), octets) in sent {
            let (sender, message) = Message::decode(octets, Profile::Classic).unwrap();
            assert_eq!(numbers[&sender.node], from, "{message:?}");
            let Some((search, text)) = described(numbers, &message) else { continue };
            // Where ways of a packet for all meet, either of two nodes may be the first to send it.
            let races = self.races && matches!(message, Message::Broadcast(_));
            let way = if races { (from.min(to), from.max(to)) } else { (from, to) };
            let list = all.entry((way.0, way.1, search)).or_default();
            if !(races && list.contains(&text)) {
                list.push(text);
            }
        }
        all
    }
}

/// The search that a message belongs to, and what it says; `None` for one that is not compared.
fn described(numbers: &BTreeMap<NodeId, usize>, message: &Message<'_>) -> Option<(String, String)> {
    let number = |node: &NodeId| numbers[node];
    let search = |origin, target| format!("{} to {}", number(origin), number(target));
    match message {
        Message::Alive(_) => None,
        Message::Broadcast(broadcast) => {
            let is_own = broadcast.payload.windows(TO_ALL.len()).any(|octets| octets == TO_ALL);
            let text = format!("BROADCAST of {}", number(&broadcast.origin));
            is_own.then_some((String::new(), text))
        }
        Message::Request(request) => {
            let hops: Vec<_> =
                request.record.iter().map(|RecordedHop { node, .. }| number(node)).collect();
            let text = format!("ROUTE REQUEST by {hops:?}");
            Some((search(&request.origin, &request.target), text))
        }
        Message::Reply(reply) => {
            let relays: Vec<_> = reply.record.iter().map(number).collect();
            let text = format!("ROUTE REPLY over {relays:?}, {} to go", reply.position);
            Some((search(&reply.path.origin, &reply.path.target), text))
        }
        Message::PathEnd { path, reason, .. } => {
            Some((search(&path.origin, &path.target), format!("PATH ERROR: {reason}")))
        }
        Message::LabelUnknown(_) => Some((String::new(), "LABEL UNKNOWN".to_owned())),
        other => Some((String::new(), format!("{other:?}"))),
    }
}
