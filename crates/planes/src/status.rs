//! The status of a gateway: plain values, the shape of `--json`.

use crate::drivers::{DriverCount, NextHopStatus};
use crate::kernel::KernelStatus;
use gatewright_data::{HandlerNow, LinkNow, WORKER_ITEMS};
use gatewright_link::{DriverForwarding, Exclusive, LinkCounters, LinkInfo, LinkState};
use gatewright_packet::LinkIndex;
use gatewright_part::Sojourn;
use gatewright_stack::{
    AddressState, AttachmentId, Binding, EdgeTarget, IcmpCounts, Interface, TimeSum,
};
use gatewright_tables::{Counted, CounterOwner, CounterSums, CounterTable};
use serde::Serialize;
use std::time::Duration;

/// A gateway at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Where its planes run.
    pub planes: PlanesStatus,
    /// How long it has run.
    pub uptime: Duration,
    /// Its links.
    pub links: Vec<LinkStatus>,
    /// Its layers with their drops, by reason.
    pub layers: Vec<LayerStatus>,
    /// Its edges with their packet counts.
    pub ways: Vec<WayStatus>,
    /// Drops outside the layers, by reason.
    pub unclaimed: Vec<(String, u64)>,
    /// The host's own ICMP messages, by IP version and type.
    pub icmp: Vec<IcmpStatus>,
    /// Its attached handlers: id, position, and packets taken.
    #[serde(serialize_with = "handlers")]
    pub handlers: Vec<HandlerNow>,
    /// The times in handlers, if they are asked for; those that a packet has passed meanwhile.
    #[serde(skip)]
    pub handler_times: Vec<(AttachmentId, MeasuredTime)>,
    /// The state followed from the kernel, where links are shared with it.
    pub kernel: Option<KernelStatus>,
    /// Sojourn times of packets in the graph; a gateway adds those of its relays and programs.
    pub sojourn: Vec<Sojourn>,
    /// The counts of each worker; empty if there is only one, which handles everything.
    pub workers: Vec<WorkerStatus>,
    /// The next hops by which drivers have forwarded packets, and those of groups by which the graph
    /// has.
    pub next_hops: Vec<NextHopStatus>,
    /// Runs of the graph that were measured, if the times of layers are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_runs: Option<u64>,
}

/// The time that measured packets took at one place since somebody began to ask for it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct MeasuredTime {
    /// Packets.
    pub packets: u64,
    /// Nanoseconds for all of them.
    pub ns: u64,
}

impl From<TimeSum> for MeasuredTime {
    fn from(TimeSum { packets, ns }: TimeSum) -> Self {
        Self { packets, ns }
    }
}

/// The processes of the planes at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PlanesStatus {
    /// Where the data plane runs: `threads` or `process`.
    pub mode: &'static str,
    /// The control plane's process.
    pub control: u32,
    /// The data plane's process, if it has one of its own.
    pub data: Option<u32>,
    /// Whether the data plane runs.
    pub running: bool,
    /// Whether it was given up: no other is started until an order.
    pub given_up: bool,
    /// Whether the data plane ran before, under another control plane.
    pub adopted: bool,
    /// The version of what both processes say to each other, and of their tables.
    pub version: String,
}

/// A worker at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct WorkerStatus {
    /// Its number; the first is 0.
    pub worker: usize,
    /// Packets that its links received.
    pub received: u64,
    /// Packets taken from other workers.
    pub taken: u64,
    /// Packets given to other workers.
    pub given: u64,
}

impl WorkerStatus {
    pub(crate) fn new(worker: usize, table: &CounterTable) -> Self {
        let is_its = |counted: &Counted| {
            counted.name.owner == CounterOwner::Worker && usize::from(counted.name.worker) == worker
        };
        let own: Vec<_> = table.iter().filter(is_its).collect();
        let count = |item: &str| {
            let found = own.iter().find(|counted| counted.name.item.as_str() == item);
            found.map_or(0, |counted| counted.value)
        };
        let [received, taken, given] = WORKER_ITEMS.map(count);
        Self { worker, received, taken, given }
    }
}

fn handlers<S: serde::Serializer>(
    handlers: &[HandlerNow],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct HandlerRow {
        id: u32,
        at: String,
        taken: u64,
    }
    let plain = |now: &HandlerNow| HandlerRow {
        id: now.id.0,
        at: now.attachment.to_string(),
        taken: now.taken,
    };
    serializer.collect_seq(handlers.iter().map(plain))
}

/// A link at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct LinkStatus {
    /// Its number, as in layers and edges.
    pub link: u16,
    /// Its name in the gateway.
    pub name: String,
    /// The interface or file behind it.
    pub device: String,
    /// How frames are exchanged.
    pub mode: String,
    /// Why this mode was chosen.
    pub why: String,
    /// Received packets that the kernel's own stack also processes.
    pub kernel: String,
    /// Whether it is up.
    pub up: bool,
    /// Whether a command has set it down, which [`why`](Self::why) says, too.
    #[serde(skip)]
    pub set_down: bool,
    /// Its state in a word: `up`, `down`, `gone` (the device has disappeared) or `ended` (the
    /// capture file was replayed).
    pub state: String,
    /// Maximum octets of a packet.
    pub mtu: usize,
    /// Its link-layer address, if it has one.
    pub mac: Option<String>,
    /// Its addresses with their prefix lengths and states.
    pub addresses: Vec<String>,
    /// Its receive queues, each with the worker that has it.
    pub queues: Vec<QueueStatus>,
    /// Its counters by name, those of all queues together.
    pub counters: Vec<(&'static str, u64)>,
    /// Where packets that it receives and that are only forwarded are forwarded, and why: in its
    /// driver, or by the graph.
    pub forwarding: String,
    /// Whether its driver forwards.
    pub forwards_in_driver: bool,
    /// Why other links' drivers forward nothing by it; empty if they do, or none forwards.
    pub not_redirected: &'static str,
    /// Packets in its driver, by outcome; the link counts only those that went up.
    pub in_driver: Vec<DriverCount>,
}

/// A receive queue at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct QueueStatus {
    /// Its number: that of the device's queue, or that of the socket among those that share
    /// received frames.
    pub queue: u32,
    /// The worker that receives from it.
    pub worker: usize,
}

/// State and counters of a link, of its driver too.
type LinkCounted = (LinkNow, Vec<(&'static str, u64)>, (Vec<DriverCount>, &'static str));

impl LinkStatus {
    pub(crate) fn new(
        (link, name): (u16, &str),
        info: &LinkInfo,
        (LinkNow { state, queues }, counters, (in_driver, not_redirected)): LinkCounted,
        workers: usize,
        interface: Option<&Interface>,
    ) -> Self {
        let addresses = interface.map_or(&[][..], |interface| &interface.addresses);
        let address = |address: &gatewright_stack::Address| {
            let state = match address.state {
                AddressState::Preferred => "",
                AddressState::Tentative => " tentative",
                AddressState::Deprecated => " deprecated",
                AddressState::Duplicate => " duplicate",
            };
            format!("{}/{}{state}", address.ip, address.prefix_len)
        };
        // Those in force; the device may have others.
        let link_address = interface.map_or(info.link_address, |own| own.link_address);
        let octets = |mtu| usize::try_from(mtu).unwrap_or(usize::MAX);
        // Down by command, whatever its device does.
        let is_closed = interface.is_some_and(|interface| !interface.up);
        let state = if is_closed && state == LinkState::Up { LinkState::Down } else { state };
        Self {
            link,
            name: name.to_owned(),
            device: info.name.clone(),
            mode: info.mode.to_string(),
            why: format!("{}{}", info.why, queues_in_words(&queues, workers)),
            kernel: info.exclusive.to_string(),
            up: state == LinkState::Up,
            set_down: false,
            state: state.to_string(),
            mtu: interface.map_or(info.mtu, |own| info.mtu.min(octets(own.mtu))),
            mac: (!link_address.is_none()).then(|| link_address.to_string()),
            addresses: addresses.iter().map(address).collect(),
            queues: (queues.into_iter())
                .map(|(queue, worker)| QueueStatus { queue, worker })
                .collect(),
            counters,
            forwarding: info.driver_forwarding.to_string(),
            forwards_in_driver: info.driver_forwarding == DriverForwarding::Active,
            not_redirected,
            in_driver,
        }
    }
}

impl LinkStatus {
    /// As it is, or as a command has set it down.
    pub(crate) fn or_set_down(self, set_down: bool) -> Self {
        if !set_down {
            return self;
        }
        let why = format!("{}; set down by command", self.why);
        Self { why, set_down, ..self }
    }

    /// As of a shared VLAN for which the kernel has no interface.
    fn without_interface(self) -> Self {
        let lacks = format!("the kernel has no VLAN interface with this tag on {}", self.device);
        let (why, state) = (format!("{}; {lacks}", self.why), LinkState::Down.to_string());
        Self { up: false, state, why, ..self }
    }

    /// As it is, or without its interface if it is among those.
    pub(crate) fn or_without_interface(self, without: &[LinkIndex]) -> Self {
        if without.contains(&LinkIndex(self.link)) { self.without_interface() } else { self }
    }
}

/// The assignment of queues to workers, in words for the operator; empty where there is no choice.
fn queues_in_words(queues: &[(u32, usize)], workers: usize) -> String {
    if queues.len() <= 1 && (workers <= 1 || queues.is_empty()) {
        return String::new();
    }
    let queue = |(queue, worker): &(u32, usize)| format!("{queue} by worker {worker}");
    let all: Vec<_> = queues.iter().map(queue).collect();
    let (many, spread) = match queues {
        [_] => ("queue", ", which hands flows on"),
        _ => ("queues", ""),
    };
    format!("; {many} {}{spread}", all.join(", "))
}

/// The state of a link while no data plane runs and none will: frames pass only where the kernel is
/// the host, or the driver forwards.
pub(crate) fn given_up_link(now: LinkNow, info: &LinkInfo) -> LinkNow {
    let passes = matches!(info.exclusive, Exclusive::Shared | Exclusive::Divided)
        || info.driver_forwarding == DriverForwarding::Active;
    if passes { now } else { LinkNow { state: LinkState::Down, ..now } }
}

/// A link's counters by name.
pub fn named_counters(counters: LinkCounters) -> Vec<(&'static str, u64)> {
    counters.named().to_vec()
}

/// A link's counters by name, those of all workers together.
pub(crate) fn link_counters(sums: &CounterSums, link: u16) -> Vec<(&'static str, u64)> {
    let sum = |item| sums.get(CounterOwner::Link(link), item).unwrap_or(0);
    LinkCounters::default().named().map(|(item, _)| (item, sum(item))).to_vec()
}

/// A layer at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct LayerStatus {
    /// Its name.
    pub layer: &'static str,
    /// Its link, if it belongs to one link.
    pub link: Option<u16>,
    /// Its drops, by reason.
    pub drops: Vec<(String, u64)>,
    /// The time in it, if that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredTime>,
}

impl LayerStatus {
    pub(crate) fn new(
        layer: &'static str,
        link: Option<LinkIndex>,
        drops: Vec<(String, u64)>,
    ) -> Self {
        Self { layer, link: link.map(|link| link.0), drops, measured: None }
    }
}

/// The host's ICMP messages of one type at one moment: a row of `icmpMsgStatsTable` (RFC 4293 §5).
/// *Fragmentation needed* has a row apart from the other codes of *destination unreachable*.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct IcmpStatus {
    /// The IP version, 4 or 6.
    pub ip_version: u8,
    /// The number of the type; none for all types without a row of their own.
    #[serde(rename = "type")]
    pub kind: Option<u8>,
    /// The name, in words joined by hyphens.
    pub message: &'static str,
    /// Messages received (`icmpMsgStatsInPkts`), without those of a wrong checksum.
    pub received: u64,
    /// Messages sent (`icmpMsgStatsOutPkts`).
    pub sent: u64,
    /// Messages that the rate limit held back.
    pub rate_limited: u64,
}

impl IcmpStatus {
    pub(crate) fn all(sums: &CounterSums) -> Vec<Self> {
        let row = |counts: IcmpCounts| Self {
            ip_version: counts.ip_version,
            kind: counts.kind,
            message: counts.message,
            received: counts.received,
            sent: counts.sent,
            rate_limited: counts.rate_limited,
        };
        IcmpCounts::of(sums).into_iter().map(row).collect()
    }
}

/// An edge of the graph at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct WayStatus {
    /// The position.
    pub at: String,
    /// The direction of packets.
    pub side: String,
    /// The link, if the edge is of one link.
    pub link: Option<u16>,
    /// The layer that it leaves, by its place among the layers; none for frames of a device.
    pub from: Option<usize>,
    /// The receiving layer by its place among the layers; none for a device, or for an edge without
    /// a receiver.
    pub to: Option<usize>,
    /// The receiving layer's name.
    pub layer: Option<&'static str>,
    /// Whether the receiver is a device.
    pub to_device: bool,
    /// Packets that passed it.
    pub packets: u64,
    /// The time of packets behind it, in its layer or in handing frames to its device, if that is
    /// asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredTime>,
}

impl WayStatus {
    pub(crate) fn new(
        way: &Binding,
        (from, to): (Option<usize>, Option<usize>),
        layer: Option<&'static str>,
        packets: u64,
    ) -> Self {
        Self {
            from,
            to,
            at: way.at.to_string(),
            side: way.side.to_string(),
            link: way.link.map(|link| link.0),
            layer,
            to_device: matches!(way.to, EdgeTarget::Device(_)),
            packets,
            measured: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_who_has_which_queue() {
        assert_eq!(queues_in_words(&[(0, 0)], 1), "");
        assert_eq!(queues_in_words(&[], 4), "");
        assert_eq!(queues_in_words(&[(0, 0), (1, 0)], 1), "; queues 0 by worker 0, 1 by worker 0");
        assert_eq!(queues_in_words(&[(0, 1)], 2), "; queue 0 by worker 1, which hands flows on");
        assert_eq!(queues_in_words(&[(0, 1), (1, 0)], 2), "; queues 0 by worker 1, 1 by worker 0");
    }
}
