//! The result of an experiment, as it is written to JSON.

use crate::analysis::{
    ConfidenceInterval, DelayJitter, DelaySummary, EmpiricalCdf, FitIntervals, LinearFit,
    ModelChoice, Periodicity, TailFit, share_interval,
};
use crate::covariates::Covariates;
use gatewright_config::{Centre, Experiment, RelayKind};
use serde::{Deserialize, Serialize};

/// The result of an experiment. Delays are in microseconds unless a name says otherwise.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LabRun {
    /// Version of this form: [`Self::FORM`].
    pub form: u32,
    /// Why the run is not whole, and how far it is; none if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<String>,
    /// The experiment as it was run.
    pub experiment: Experiment,
    /// Processors, kernel and load before the run.
    pub machine: String,
    /// Version of the program.
    pub version: String,
    /// Whether optimised code ran: delays of other code are no result.
    pub optimised: bool,
    /// Seconds since 1970 at the start.
    pub started: u64,
    /// Seconds that the run took.
    pub seconds: f64,
    /// Whether hosts were network namespaces; else all was on loopback.
    pub namespaces: bool,
    /// Processors of the ends and of the relay.
    pub processors: (usize, usize),
    /// What may have changed the delays and is no condition; none in results of earlier versions.
    #[serde(default)]
    pub covariates: Option<Covariates>,
    /// What was left out, each with the reason.
    pub left_out: Vec<LeftOut>,
    /// Disturbances of the run: clocks that jumped, probes without stamps, unsteady conditions.
    pub warnings: Vec<String>,
    /// Cost of observing.
    pub observer: Option<ObserverCost>,
    /// Every condition of every relay.
    pub conditions: Vec<ConditionResult>,
    /// A model for each relay.
    pub models: Vec<RelayModel>,
}

/// Something that was not measured.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LeftOut {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// Cost of the stamps at a node.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct ObserverCost {
    /// Time of one program for a probe, in nanoseconds; each node has two.
    pub program_ns: f64,
    /// Median end-to-end delay of address translation with stamps.
    pub with_us: f64,
    /// The same without.
    pub without_us: f64,
    /// Pairs of repetitions, on and off in turn.
    pub pairs: usize,
    /// By how much the medians of a pair differ on average, with the interval of 95 %; none in results of
    /// earlier versions.
    #[serde(default)]
    pub difference_us: Option<(f64, ConfidenceInterval)>,
}

/// A relay under one condition.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ConditionResult {
    /// The relay.
    pub relay: RelayKind,
    /// Octets of payload.
    pub octets: u16,
    /// Packets a second.
    pub rate: u32,
    /// Share of the relay's processor that another process took, in percent.
    pub load_pct: u8,
    /// Packets sent at once.
    #[serde(default = "one")]
    pub batch: u16,
    /// Whether the processors were kept from sleeping.
    #[serde(default)]
    pub awake: bool,
    /// Frequency of the processors in MHz; 0 is what the system chose.
    #[serde(default)]
    pub frequency_mhz: u32,
    /// Probes sent.
    pub sent: usize,
    /// Probes that arrived.
    pub received: usize,
    /// Probes that arrived more than once.
    pub repeated: usize,
    /// Probes that arrived without all stamps; they are in no delay of the node.
    pub unstamped: usize,
    /// Median node delay of each repetition.
    pub medians: Vec<f64>,
    /// Coefficient of variation of these, in percent.
    pub cv_pct: Option<f64>,
    /// Whether that is within the experiment's bound.
    pub steady: bool,
    /// Time that the host took from this machine, in percent.
    pub steal_pct: f64,
    /// Delay inside of the node.
    pub node: Option<DelaySummary>,
    /// Its median's interval of 95 %.
    pub node_median: Option<ConfidenceInterval>,
    /// Interval of 95 % of node delay over link delay, by their medians; none in results of earlier
    /// versions.
    #[serde(default)]
    pub node_link_interval: Option<ConfidenceInterval>,
    /// Mean of the node delay without spikes, and their squared coefficient of variation.
    pub node_base: Option<(f64, f64)>,
    /// From the node's ingress to the end of the relay's receive call.
    pub in_queue: Option<DelaySummary>,
    /// From there to the relay's send call.
    pub processing: Option<DelaySummary>,
    /// From there to the node's egress.
    pub out_queue: Option<DelaySummary>,
    /// On both links together.
    pub link: Option<DelaySummary>,
    /// From the sender's call to the receiver's socket.
    pub end_to_end: Option<DelaySummary>,
    /// From the schedule to the sender's call.
    pub lateness: Option<DelaySummary>,
    /// Jitter of the end-to-end delay.
    pub jitter: Option<DelayJitter>,
    /// Spikes of the node delay (Hampel, 3 σ).
    pub spikes: usize,
    /// Their period in seconds, if they have one.
    pub period: Option<Periodicity>,
    /// Distribution of the node delay.
    pub cdf: Option<EmpiricalCdf>,
    /// Tail of the node delay.
    pub tail: Option<TailFit>,
    /// Payload that arrived between the first probe and the last of a repetition, in megabits a second.
    #[serde(default)]
    pub throughput_mbps: Option<f64>,
    /// Of every so many probes one with its stamps: the second in which the schedule wanted it sent,
    /// and, in microseconds after that, the sender's call, the node's ingress, the end of the relay's
    /// receive call, its send call, the node's egress, and the receiver's socket. At most 64.
    #[serde(default)]
    pub stamps: Vec<[Option<f64>; 7]>,
    /// Second, node delay and whether it is a spike, of the probes in order; at most 500 spikes and as
    /// many others. Only at the centre.
    pub series: Vec<(f64, f64, bool)>,
}

/// Of results of earlier versions.
const fn one() -> u16 {
    1
}

impl ConditionResult {
    /// The condition.
    pub const fn condition(&self) -> Centre {
        let Self { octets, rate, load_pct, batch, awake, frequency_mhz, .. } = *self;
        Centre { octets, rate, load_pct, batch, awake, frequency_mhz }
    }

    /// Lost probes, in percent.
    pub fn loss_pct(&self) -> f64 {
        let real = crate::analysis::real;
        100.0 * real(self.sent.saturating_sub(self.received)) / real(self.sent.max(1))
    }

    /// Interval of 95 % of the share of lost probes, in percent (Wilson); none if none was sent.
    pub fn loss_interval_pct(&self) -> Option<ConfidenceInterval> {
        let lost = self.sent.saturating_sub(self.received);
        share_interval(lost, self.sent).map(|it| it.scaled(100.0))
    }

    /// Node delay over link delay by their medians: the paper's NLR.
    pub fn node_link_ratio(&self) -> Option<f64> {
        let (node, link) = (self.node?, self.link?);
        (link.p50 > 0.0).then(|| node.p50 / link.p50)
    }
}

/// The model of a relay on this node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RelayModel {
    /// The relay.
    pub relay: RelayKind,
    /// S(b) in microseconds, by least squares over the repetitions' medians at the centre's rate.
    pub service: Option<LinearFit>,
    /// Its intervals of 95 %.
    pub intervals: Option<FitIntervals>,
    /// The same by Theil and Sen.
    pub robust: Option<LinearFit>,
    /// The queue model that predicts left-out conditions better; its service times are in seconds.
    pub queue: Option<ModelChoice>,
    /// Its error at each condition, left out of the fit.
    #[serde(default)]
    pub held_out: Vec<HeldOutError>,
    /// Squared coefficient of variation of service times.
    pub service_variation: f64,
    /// Error of the 0.99 quantile of a tail fitted to every other repetition against that of the rest,
    /// in percent; none with too few probes.
    pub p99_error_pct: Option<f64>,
    /// Quantile 0.95 over the mean of the node delay at the centre.
    pub p95_over_mean: Option<f64>,
}

/// How far a model is from a condition that was left out of its fit.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct HeldOutError {
    /// Octets of payload.
    pub octets: f64,
    /// Packets a second.
    pub rate: f64,
    /// The predicted mean is off the measured one by so many percent.
    pub error_pct: f64,
}

impl LabRun {
    /// The version of the form that this program writes and reads.
    pub const FORM: u32 = 1;

    /// The relays in the order of their first condition.
    pub fn relays(&self) -> Vec<RelayKind> {
        let mut relays: Vec<RelayKind> = self.conditions.iter().map(|it| it.relay).collect();
        relays.sort_unstable();
        relays.dedup();
        relays
    }

    /// Whether a relay has a delay under any condition.
    pub fn has_delays(&self) -> bool {
        self.conditions.iter().any(|it| it.node.is_some() || it.end_to_end.is_some())
    }

    /// A relay's condition.
    pub fn condition(&self, relay: RelayKind, condition: Centre) -> Option<&ConditionResult> {
        self.conditions.iter().find(|it| it.relay == relay && it.condition() == condition)
    }

    /// A relay's condition at the centre.
    pub fn centre(&self, relay: RelayKind) -> Option<&ConditionResult> {
        self.condition(relay, self.experiment.centre)
    }

    /// A relay's model.
    pub fn model(&self, relay: RelayKind) -> Option<&RelayModel> {
        self.models.iter().find(|model| model.relay == relay)
    }
}
