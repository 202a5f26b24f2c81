//! How many flows of a kind a node carries under a bound, by its fitted model.

use crate::result::RelayModel;
use gatewright_config::RelayKind;
use gatewright_delay::{FlowKind, NodeLoad, NodeModel};
use serde::Serialize;

/// What a node can promise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FlowPromise {
    /// The relay.
    pub relay: RelayKind,
    /// Flows that it carries together.
    pub flows: u32,
    /// Its load with these, from 0 to 1.
    pub load: f64,
    /// Their predicted delay at the quantile, in microseconds; none without a flow.
    pub delay_us: Option<f64>,
    /// The predicted delay with one flow more; none if the node could not keep up.
    pub next_us: Option<f64>,
    /// The model's error over left-out conditions, in percent.
    pub error_pct: f64,
    /// The model as keys of a description.
    pub model: BalanceKeys,
}

/// The delay model of a relay, as the keys of `[[balance.NAME.relay]]` have it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct BalanceKeys {
    /// a of the service time a + c·b, in nanoseconds.
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
        Self {
            fixed_ns: whole(model.service.intercept * 1e9, 1.0),
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

/// The largest number of flows whose predicted delay keeps the bound; `None` if the relay has no
/// queue model.
///
/// The quantile is that of the measured delays around their mean, plus the wait of a queue whose
/// tail is exponential. Many flows together arrive as a Poisson process.
pub fn promise(model: &RelayModel, flow: &FlowKind) -> Option<FlowPromise> {
    let (queue, node) = (model.queue?, model.node_model()?);
    let delay = |flows: u32| {
        let load = NodeLoad::default().with(&node, flow, f64::from(flows));
        node.quantile(flow.octets, &load, flow.quantile).map(|delay| delay * 1e6)
    };
    let keeps = |flows: u32| delay(flows).is_some_and(|it| it <= flow.bound_us);
    let (mut low, mut high) = (0, 1);
    while high < FLOWS_MAX && keeps(high) {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if keeps(middle) { low = middle } else { high = middle }
    }
    Some(FlowPromise {
        relay: model.relay,
        flows: low,
        load: f64::from(low) * flow.rate * node.service_time(flow.octets),
        delay_us: (low > 0).then(|| delay(low)).flatten(),
        next_us: delay(low + 1),
        error_pct: queue.error_pct,
        model: (&node).into(),
    })
}

impl RelayModel {
    /// The relay's model for predictions under flows; `None` without a queue model.
    pub fn node_model(&self) -> Option<NodeModel> {
        let queue = self.queue?;
        Some(NodeModel {
            queue: queue.chosen,
            service: queue.service,
            setup: queue.setup,
            variation: self.service_variation,
            spread: self.p95_over_mean.unwrap_or(1.0).max(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{LinearFit, ModelChoice, QueueModel};

    fn model(variation: f64) -> RelayModel {
        // A service time of 1 ms, whatever the size.
        let service = LinearFit { intercept: 0.001, slope: 0.0, r_squared: 1.0, count: 4 };
        let queue = ModelChoice {
            chosen: QueueModel::FirstInFirstOut,
            service,
            setup: None,
            error_pct: 1.0,
            loser_error_pct: 2.0,
            conditions: 4,
        };
        RelayModel {
            relay: RelayKind::TranslateUdp,
            service: None,
            intervals: None,
            robust: None,
            queue: Some(queue),
            service_variation: variation,
            p99_error_pct: None,
            p95_over_mean: Some(1.0),
        }
    }

    #[test]
    fn the_promise_of_m_m_1_is_that_of_its_formula() {
        // M/M/1: P(W > t) = ρ exp(−(µ − λ) t). At µ = 1000/s and 10/s a flow, the wait of 5 % at
        // most is ln(ρ / 0.05) / (µ − λ); with the service time of 1 ms the bound of 6 ms leaves
        // 5 ms: ρ = 0.54 gives 5.17 ms, ρ = 0.53 gives 5.02, ρ = 0.52 gives 4.88.
        let flow = FlowKind { rate: 10.0, octets: 100.0, bound_us: 6000.0, quantile: 0.95 };
        let promise = promise(&model(1.0), &flow).unwrap();
        assert_eq!(promise.flows, 52, "{promise:?}");
        assert!(promise.delay_us.unwrap() <= 6000.0 && promise.next_us.unwrap() > 6000.0);
        assert!((promise.load - 0.52).abs() < 1e-9);
        // A millisecond, whatever the size, with exponential times.
        let model =
            BalanceKeys { fixed_ns: 1_000_000, octet_ps: 0, variation_pct: 100, spread_pct: 100 };
        assert_eq!(promise.model, model);
    }

    #[test]
    fn a_bound_below_the_service_time_carries_no_flow() {
        let flow = FlowKind { rate: 10.0, octets: 100.0, bound_us: 900.0, quantile: 0.95 };
        let promise = promise(&model(1.0), &flow).unwrap();
        assert_eq!((promise.flows, promise.delay_us), (0, None));
    }

    #[test]
    fn no_bound_lets_a_node_be_overloaded() {
        let flow = FlowKind { rate: 10.0, octets: 100.0, bound_us: 1e12, quantile: 0.95 };
        let promise = promise(&model(1.0), &flow).unwrap();
        assert_eq!((promise.flows, promise.next_us), (99, None), "100 flows are a load of 1");
    }
}
