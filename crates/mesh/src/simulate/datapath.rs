//! The data path of a simulated node: what the outputs of its machine have installed.

use crate::edge::{Adjacency, LabelAction, LabelledHop, MeshOutput, PathClass, PathRole};
use crate::identity::NodeId;
use crate::relay_delay::RelayDelay;
use gatewright_delay::{LiveModel, ServerCount};
use gatewright_histogram::{Histogram, Sample};
use gatewright_wire::mpls::Label;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What is installed for a label.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstalledLabel {
    pub(super) action: LabelAction,
    /// The next hop while that of the action is down.
    pub(super) backup: Option<LabelledHop>,
}

impl InstalledLabel {
    /// The next hops of a label that is swapped.
    pub(super) fn hops(&self) -> impl Iterator<Item = LabelledHop> {
        let first = match self.action {
            LabelAction::Swap(hop) => Some(hop),
            LabelAction::Pop | LabelAction::Station { .. } => None,
        };
        first.into_iter().chain(self.backup)
    }
}

/// Tables and counters of one node.
#[derive(Debug, Default)]
pub(super) struct DataPath {
    pub(super) labels: BTreeMap<Label, InstalledLabel>,
    pub(super) paths: BTreeMap<(NodeId, PathClass, PathRole), LabelledHop>,
    /// Where flows are spread over both paths.
    pub(super) spread: BTreeSet<(NodeId, PathClass)>,
    down: BTreeSet<Adjacency>,
    /// Packets and octets by label since the last report.
    pub(super) received: BTreeMap<Label, (u64, u64)>,
    /// Octets by destination since the last report.
    pub(super) sent: BTreeMap<NodeId, u64>,
}

impl DataPath {
    /// Installs what an output says; `false` if it is about something else.
    pub(super) fn install(&mut self, output: &MeshOutput) -> bool {
        match *output {
            MeshOutput::InstallLabel { label, action, backup } => {
                self.labels.insert(label, InstalledLabel { action, backup });
            }
            MeshOutput::RemoveLabel { label } => {
                self.labels.remove(&label);
                self.received.remove(&label);
            }
            MeshOutput::InstallPath { destination, class, role, hop, .. } => {
                self.paths.insert((destination, class, role), hop);
            }
            MeshOutput::RemovePath { destination, class, role } => {
                self.paths.remove(&(destination, class, role));
            }
            MeshOutput::SpreadPath { destination, class, spreads: true } => {
                self.spread.insert((destination, class));
            }
            MeshOutput::SpreadPath { destination, class, spreads: false } => {
                self.spread.remove(&(destination, class));
            }
            MeshOutput::LinkState { adjacency, up } => {
                if up {
                    self.down.remove(&adjacency);
                } else {
                    self.down.insert(adjacency);
                }
            }
            _ => return false,
        }
        true
    }

    /// What is done with a label: its backup is taken while its next hop is down.
    pub(super) fn action(&self, label: Label) -> Option<LabelAction> {
        let installed = self.labels.get(&label)?;
        let mut up = installed.hops().filter(|hop| !self.down.contains(&hop.adjacency));
        Some(up.next().map_or(installed.action, LabelAction::Swap))
    }

    /// The first hop for a packet: of the primary, or of the backup while the primary's is down.
    pub(super) fn first_hop(&self, destination: NodeId, class: PathClass) -> Option<LabelledHop> {
        let hop = |role| self.paths.get(&(destination, class, role)).copied();
        let is_up = |hop: &LabelledHop| !self.down.contains(&hop.adjacency);
        hop(PathRole::Primary).filter(is_up).or(hop(PathRole::Backup).filter(is_up))
    }

    /// Whether nothing is installed.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.paths.is_empty()
    }
}

/// A relay that takes its time for each packet, one after another.
#[derive(Debug)]
pub(super) struct SlowRelay {
    base: Duration,
    octet: Duration,
    busy_until: Duration,
    times: Histogram,
    model: LiveModel,
}

impl SlowRelay {
    pub(super) fn new(base: Duration, octet: Duration) -> Self {
        let (times, model) = (Histogram::default(), LiveModel::new(ServerCount::Few(1)));
        Self { base, octet, busy_until: Duration::ZERO, times, model }
    }

    /// What it has measured since the last reading, if that is enough.
    pub(super) fn read(&mut self, now: Duration) -> Option<RelayDelay> {
        let reading = self.model.observe(now, &self.times)?;
        Some(RelayDelay::of_reading(&reading))
    }

    /// The time that a packet spends in it.
    pub(super) fn pass(&mut self, now: Duration, octets: usize) -> Duration {
        let octets = u32::try_from(octets).unwrap_or(u32::MAX);
        self.busy_until = self.busy_until.max(now) + self.base + self.octet * octets;
        let sojourn = self.busy_until.saturating_sub(now);
        self.times.add(Sample::from(sojourn).of_octets(octets.into()));
        sojourn
    }
}
