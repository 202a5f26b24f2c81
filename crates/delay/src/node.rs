//! Delays of a node under the flows that it carries.

use crate::linear::LinearFit;
use crate::queue::{QueueModel, SetupTime};
use serde::{Deserialize, Serialize};

/// A kind of flow, and the bound that its packets need.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FlowKind {
    /// Packets a second of one flow.
    pub rate: f64,
    /// Octets of payload of a packet.
    pub octets: f64,
    /// Delay that a packet may have, in microseconds.
    pub bound_us: f64,
    /// Share of the packets that must keep the bound, such as 0.95.
    pub quantile: f64,
}

/// The fitted model of a node in one mode of relaying.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeModel {
    /// How packets wait.
    pub queue: QueueModel,
    /// Service time by size.
    pub service: LinearFit,
    /// What it takes longer after pauses.
    pub setup: Option<SetupTime>,
    /// Squared coefficient of variation of service times.
    pub variation: f64,
    /// The flow's quantile of the delay of an idle node over its mean, at least 1.
    pub spread: f64,
}

/// Sums over the flows that a node carries; many flows together arrive as a Poisson process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeLoad {
    /// Packets a second.
    pub rate: f64,
    /// ρ: the share of the time in which the node is busy.
    pub utilisation: f64,
    /// λE\[S²\].
    pub second_moment: f64,
}

impl NodeLoad {
    /// The load with `flows` more flows of this kind; negative numbers take flows away.
    #[must_use]
    pub fn with(self, model: &NodeModel, kind: &FlowKind, flows: f64) -> Self {
        let (rate, service) = (kind.rate * flows, model.service_time(kind.octets));
        Self {
            rate: (self.rate + rate).max(0.0),
            utilisation: (self.utilisation + rate * service).max(0.0),
            second_moment: (self.second_moment
                + rate * service * service * (1.0 + model.variation))
                .max(0.0),
        }
    }
}

impl NodeModel {
    /// The mean service time of a packet of so many octets.
    pub fn service_time(&self, octets: f64) -> f64 {
        self.service.at(octets).max(0.0)
    }

    /// The mean wait of a packet before its service, first in, first out (Pollaczek and
    /// Khinchine); `None` if the node cannot keep up.
    fn wait(load: &NodeLoad) -> Option<f64> {
        let rest = 1.0 - load.utilisation;
        (rest > 0.0).then(|| load.second_moment / (2.0 * rest))
    }

    /// The mean time that a packet takes longer as the node had a pause, at its load of Poisson
    /// arrivals.
    fn setup_time(&self, load: &NodeLoad) -> f64 {
        self.setup.map_or(0.0, |setup| setup.mean(load.rate, 1.0))
    }

    /// The mean delay of a packet of so many octets; `None` if the node cannot keep up.
    pub fn mean(&self, octets: f64, load: &NodeLoad) -> Option<f64> {
        let (service, wait) = (self.service_time(octets), Self::wait(load)?);
        let served = match self.queue {
            QueueModel::FirstInFirstOut => service + wait,
            QueueModel::ProcessorSharing => service / (1.0 - load.utilisation),
        };
        Some(served + self.setup_time(load))
    }

    /// The delay that this share of the packets does not exceed; `None` if the node cannot keep up.
    ///
    /// It is that of an idle node, plus a wait that is zero with probability 1 − ρ and else
    /// exponential with mean W/ρ.
    pub fn quantile(&self, octets: f64, load: &NodeLoad, quantile: f64) -> Option<f64> {
        let unqueued = self.service_time(octets) + self.setup_time(load);
        let wait = match self.queue {
            QueueModel::FirstInFirstOut => Self::wait(load)?,
            QueueModel::ProcessorSharing => self.mean(octets, load)? - unqueued,
        };
        let late = load.utilisation / (1.0 - quantile).max(f64::EPSILON);
        let is_late = late > 1.0 && load.utilisation > 0.0;
        let waited = if is_late { wait / load.utilisation * late.ln() } else { 0.0 };
        let spread = self.spread.max(1.0);
        let alone = unqueued * spread + waited;
        Some(match self.queue {
            QueueModel::FirstInFirstOut => alone,
            QueueModel::ProcessorSharing => (self.mean(octets, load)? * spread).max(alone),
        })
    }
}
