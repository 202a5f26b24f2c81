//! How many flows of a kind a node carries under a bound, by its fitted model.

use crate::plan::AROUND_PAYLOAD;
use crate::result::{ConditionResult, LabRun, RelayModel};
use gatewright_config::{NodeShape, RelayKind};
use gatewright_delay::{FlowKind, LinearFit, NodeLoad, NodeModel, SetupTime};
use serde::Serialize;

/// What a node can promise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FlowPromise {
    /// The relay.
    pub relay: RelayKind,
    /// Flows that it carries together.
    pub flows: u32,
    /// Whether it carries more by the model, which is not believed so far beyond what was measured.
    pub or_more: bool,
    /// Its load with these, from 0 to 1.
    pub load: f64,
    /// Their predicted delay at the quantile, in microseconds; none without a flow.
    pub delay_us: Option<f64>,
    /// The predicted delay with one flow more; none if the node could not keep up.
    pub next_us: Option<f64>,
    /// The model's error over left-out conditions, in percent.
    pub error_pct: f64,
    /// Conditions that the model is of.
    pub conditions: usize,
    /// Those of them whose repetitions varied too much.
    pub unsteady: usize,
    /// The most packets a second that were measured, if the flows together have more.
    pub beyond_rate: Option<u32>,
    /// The least and the most octets that were measured, if the flow's are fewer or more.
    pub beyond_octets: Option<[u16; 2]>,
    /// The measurement that the bound excludes and that keeps the flows below its packets a second.
    pub limited_by: Option<MeasuredDelay>,
    /// Packets of the flow a second that the links of the run carry, if the flows together have more.
    pub beyond_link: Option<f64>,
    /// How many times the relay did its own work; what the kernel did for it was done once.
    pub slowdown: u32,
    /// The model as keys of a description.
    pub model: BalanceKeys,
}

/// A measured delay that is longer than a bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredDelay {
    /// Octets of payload.
    pub octets: u16,
    /// Packets a second.
    pub rate: u32,
    /// Share of the probes whose delay was this or shorter.
    pub quantile: f64,
    /// Their delay in the node, in microseconds.
    pub delay_us: f64,
}

/// Why nothing can be promised from a model.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableModel {
    /// None was fitted.
    #[error("too few conditions for a model")]
    Unfitted,
    /// A packet of no octets takes no time, or less.
    #[error("a packet of no octets takes {fixed_us:.1} µs by the model")]
    FixedTime {
        /// a of the service time a + c·b, in microseconds.
        fixed_us: f64,
    },
    /// A packet of the flow takes no time, or less.
    #[error("a packet of {octets} octets takes {service_us:.1} µs by the model")]
    ServiceTime {
        /// Octets of the flow's packets.
        octets: f64,
        /// Their service time, in microseconds.
        service_us: f64,
    },
    /// A packet takes less after a pause.
    #[error("a packet takes {longest_us:.1} µs longer after a long pause by the model")]
    SetupTime {
        /// D of the set-up time, in microseconds.
        longest_us: f64,
    },
    /// It does not predict what was measured.
    #[error("the model errs by {error_pct:.0} %, and {most:.0} % are allowed", most = ERROR_PCT_MAX)]
    Error {
        /// Its mean error over left-out conditions, in percent.
        error_pct: f64,
    },
    /// Fewer packets, or smaller ones, took longer than the bound.
    #[error(
        "at {} octets and {}/s {} % were measured within {:.3} ms",
        .0.octets, .0.rate, .0.quantile * 100.0, .0.delay_us / 1000.0
    )]
    Measured(MeasuredDelay),
    /// The relay had a quota, in which it stands still at times of which its model does not know.
    #[error("relays had a quota of {quota_pct} % of a processor, of which no model knows")]
    Quota {
        /// The quota, in percent of a processor.
        quota_pct: u8,
    },
    /// Too many probes were lost at packets a second that the promise has, or fewer.
    #[error("{loss_pct:.1} % were lost at {rate}/s, and {allowed_pct:.1} % are allowed")]
    Losses {
        /// Lost probes of the worst condition, in percent.
        loss_pct: f64,
        /// Its packets a second.
        rate: u32,
        /// The most that the flow allows, in percent.
        allowed_pct: f64,
    },
}

/// Mean error over left-out conditions above which a model says nothing, in percent.
const ERROR_PCT_MAX: f64 = 50.0;
/// Losses above which nothing is promised, in percent, also if fewer packets must keep the bound.
const LOSS_PCT_MAX: f64 = 5.0;

/// The delay model of a relay, as the keys of `[[balance.NAME.relay]]` have it.
///
/// A description knows no set-up time, so all of it is in `fixed_ns`: at no load is a delay by these
/// keys below that by the model.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct BalanceKeys {
    /// a of the service time a + c·b with the longest set-up time, in nanoseconds.
    pub fixed_ns: u64,
    /// c, in picoseconds for each octet.
    pub octet_ps: u64,
    /// Squared coefficient of variation of service times, in percent.
    pub variation_pct: u64,
    /// The 95th percentile of the delay when idle relative to its mean, in percent.
    pub spread_pct: u64,
}

impl From<&NodeModel> for BalanceKeys {
    fn from(model: &NodeModel) -> Self {
        let fixed = model.service.intercept + model.setup.map_or(0.0, |setup| setup.longest);
        Self {
            fixed_ns: whole(fixed * 1e9, 1.0),
            octet_ps: whole(model.service.slope * 1e12, 0.0),
            variation_pct: whole(model.variation * 100.0, 0.0),
            spread_pct: whole(model.spread * 100.0, 100.0),
        }
    }
}

/// A number, at least `least`, as a whole one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is a positive number below 2^53 then"
)]
fn whole(number: f64, least: f64) -> u64 {
    const MOST: f64 = 1e12;
    number.max(least).min(MOST).round() as u64
}

/// Flows that are tried at the most.
const FLOWS_MAX: u32 = 1 << 20;
/// How many times the most packets a second that were measured are promised at the most.
const BEYOND_MAX: f64 = 10.0;
/// The shortest service time that is believed, in seconds: a nanosecond.
const SERVICE_MIN: f64 = 1e-9;

/// The largest number of flows whose predicted delay keeps the bound, by the `model` of a relay in
/// `run`.
///
/// The quantile is that of the measured delays around their mean, plus the wait of a queue whose
/// tail is exponential. Many flows together arrive as a Poisson process. A measurement goes before the
/// model: where fewer or smaller packets took longer than the bound, no more are promised. Nor are more
/// than ten times the packets that were measured.
///
/// # Errors
///
/// The [`UnusableModel`] tells why the model cannot carry a promise. Losses count at the load of the
/// experiment's centre, as the model is of these conditions; the worst condition decides.
pub fn promise(
    run: &LabRun,
    model: &RelayModel,
    flow: &FlowKind,
) -> Result<FlowPromise, UnusableModel> {
    let queue = model.queue.ok_or(UnusableModel::Unfitted)?;
    let NodeShape { slowdown, quota_pct, .. } = run.experiment.node;
    if quota_pct < 100 {
        return Err(UnusableModel::Quota { quota_pct });
    }
    let node = model.node_model()?;
    let fitted = queue.service.at(flow.octets);
    if !is_above_zero(fitted) {
        let (octets, service_us) = (flow.octets, fitted * 1e6);
        return Err(UnusableModel::ServiceTime { octets, service_us });
    }
    let delay = |flows: u32| {
        let load = NodeLoad::default().with(&node, flow, f64::from(flows));
        node.quantile(flow.octets, &load, flow.quantile).map(|delay| delay * 1e6)
    };
    let measured = Measured::of(run, model.relay);
    let highest = BEYOND_MAX * f64::from(measured.rate_max().ok_or(UnusableModel::Unfitted)?);
    let excluded = measured.longer_than_bound(flow);
    let keeps = |flows: u32| {
        let is_excluded = |it: MeasuredDelay| f64::from(flows) * flow.rate >= f64::from(it.rate);
        f64::from(flows) * flow.rate <= highest
            && delay(flows).is_some_and(|it| it <= flow.bound_us)
            && !excluded.is_some_and(is_excluded)
    };
    let flows = most(keeps);
    let rate = f64::from(flows) * flow.rate;
    measured.check_losses(rate, flow.quantile)?;
    let is_below_bound = delay(flows + 1).is_some_and(|it| it <= flow.bound_us);
    let is_too_far = flows == FLOWS_MAX || f64::from(flows + 1) * flow.rate > highest;
    let limited_by = excluded.filter(|_| is_below_bound && !is_too_far);
    if let Some(it) = limited_by.filter(|_| flows == 0) {
        return Err(UnusableModel::Measured(it));
    }
    Ok(FlowPromise {
        relay: model.relay,
        flows,
        or_more: is_below_bound && is_too_far,
        load: rate * node.service_time(flow.octets),
        delay_us: (flows > 0).then(|| delay(flows)).flatten(),
        next_us: delay(flows + 1),
        error_pct: queue.error_pct,
        conditions: measured.used().count(),
        unsteady: measured.used().filter(|it| !it.steady).count(),
        beyond_rate: measured.beyond_rate(rate),
        beyond_octets: measured.beyond_octets(flow.octets),
        limited_by,
        beyond_link: link_rate(run, flow.octets).filter(|it| rate > *it),
        slowdown,
        model: (&node).into(),
    })
}

/// Packets of so many octets of payload that the links of the run carry in a second, if they have a
/// capacity.
fn link_rate(run: &LabRun, octets: f64) -> Option<f64> {
    let mbps = run.experiment.link.map(|it| it.capacity_mbps).filter(|it| *it > 0.0)?;
    Some(mbps * 1e6 / (8.0 * (octets + f64::from(AROUND_PAYLOAD))))
}

/// The most flows that keep the bound, among those that are tried.
fn most(keeps: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, 1);
    while high <= FLOWS_MAX && keeps(high) {
        (low, high) = (high, (high * 2).min(FLOWS_MAX + 1));
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if keeps(middle) { low = middle } else { high = middle }
    }
    low
}

/// The conditions of a relay at the centre's load.
struct Measured<'a>(Vec<&'a ConditionResult>);

impl<'a> Measured<'a> {
    fn of(run: &'a LabRun, relay: RelayKind) -> Self {
        let centre = run.experiment.centre;
        let is_of = |it: &&ConditionResult| it.relay == relay && it.condition().is_like(&centre);
        Self(run.conditions.iter().filter(is_of).collect())
    }

    /// Those that the model is of.
    fn used(&self) -> impl Iterator<Item = &ConditionResult> {
        self.0.iter().copied().filter(|it| it.received > 0 && it.node_base.is_some())
    }

    /// Fails if a condition of so many packets a second, or fewer, lost more than the flows allow.
    fn check_losses(&self, rate: f64, quantile: f64) -> Result<(), UnusableModel> {
        let allowed_pct = ((1.0 - quantile) * 100.0).min(LOSS_PCT_MAX);
        let at_or_below = self.0.iter().filter(|it| f64::from(it.rate) <= rate);
        let losses = at_or_below.map(|it| (it.loss_pct(), it.rate));
        match losses.max_by(|(one, _), (other, _)| one.total_cmp(other)) {
            Some((loss_pct, rate)) if loss_pct > allowed_pct => {
                Err(UnusableModel::Losses { loss_pct, rate, allowed_pct })
            }
            _ => Ok(()),
        }
    }

    /// Of the conditions with as many octets as the flow, or fewer, whose measured delay is longer than
    /// its bound: the one with the fewest packets a second.
    fn longer_than_bound(&self, flow: &FlowKind) -> Option<MeasuredDelay> {
        let longer = |it: &ConditionResult| {
            let node = it.node.filter(|_| f64::from(it.octets) <= flow.octets)?;
            let known = [(0.99, node.p99), (0.95, node.p95), (0.5, node.p50)];
            let (quantile, delay_us) = known.into_iter().find(|it| it.0 <= flow.quantile)?;
            let (octets, rate) = (it.octets, it.rate);
            (delay_us > flow.bound_us).then_some(MeasuredDelay { octets, rate, quantile, delay_us })
        };
        self.used().filter_map(longer).min_by_key(|it| it.rate)
    }

    /// The most packets a second that were measured, if `rate` is above them.
    fn beyond_rate(&self, rate: f64) -> Option<u32> {
        self.rate_max().filter(|most| rate > f64::from(*most))
    }

    /// The most packets a second that were measured.
    fn rate_max(&self) -> Option<u32> {
        self.used().map(|it| it.rate).max()
    }

    /// The sizes that were measured, if `octets` are not between them.
    fn beyond_octets(&self, octets: f64) -> Option<[u16; 2]> {
        let sizes = || self.used().map(|it| it.octets);
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        let is_between = (f64::from(least)..=f64::from(most)).contains(&octets);
        (!is_between).then_some([least, most])
    }
}

impl RelayModel {
    /// The relay's model for predictions under flows.
    ///
    /// A service time that falls with the size is noise, and would promise most of the largest
    /// packets: a packet takes a then, whatever its size.
    ///
    /// # Errors
    ///
    /// The [`UnusableModel`] tells what in it makes no sense, whatever the flows.
    pub fn node_model(&self) -> Result<NodeModel, UnusableModel> {
        let queue = self.queue.ok_or(UnusableModel::Unfitted)?;
        let fixed = queue.service.intercept;
        if !is_above_zero(fixed) {
            return Err(UnusableModel::FixedTime { fixed_us: fixed * 1e6 });
        }
        let is_setup_wrong = |setup: &SetupTime| {
            !setup.longest.is_finite() || setup.longest < 0.0 || !is_above_zero(setup.time_constant)
        };
        if let Some(setup) = queue.setup.filter(is_setup_wrong) {
            return Err(UnusableModel::SetupTime { longest_us: setup.longest * 1e6 });
        }
        if !(0.0..=ERROR_PCT_MAX).contains(&queue.error_pct) {
            return Err(UnusableModel::Error { error_pct: queue.error_pct });
        }
        Ok(NodeModel {
            queue: queue.chosen,
            service: LinearFit { slope: queue.service.slope.max(0.0), ..queue.service },
            setup: queue.setup,
            variation: self.service_variation.max(0.0),
            spread: self.p95_over_mean.unwrap_or(1.0).max(1.0),
        })
    }
}

fn is_above_zero(number: f64) -> bool {
    number >= SERVICE_MIN && number.is_finite()
}
