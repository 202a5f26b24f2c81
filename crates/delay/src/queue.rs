//! Sojourn times of a node: first in, first out, or the processor shared.

use crate::linear::{LinearFit, least_squares};
use crate::mean;
use serde::{Deserialize, Serialize};

/// How a node serves packets that wait.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueModel {
    /// One after the other: M/G/1 first in, first out (Pollaczek and Khinchine).
    FirstInFirstOut,
    /// All at the same time: M/G/1 processor sharing.
    ProcessorSharing,
}

/// A condition with its measured sojourn time. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadPoint {
    /// Octets of a packet.
    pub octets: f64,
    /// Packets a second.
    pub rate: f64,
    /// Mean sojourn time.
    pub sojourn: f64,
    /// Squared coefficient of variation of service times.
    pub service_variation: f64,
    /// Squared coefficient of variation of the gaps between arrivals: 1 for Poisson, 0 for a fixed
    /// period.
    pub arrival_variation: f64,
}

/// A fitted model, and the one that it was preferred to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct ModelChoice {
    /// The model with the smaller error.
    pub chosen: QueueModel,
    /// Service time by size under it, in seconds.
    pub service: LinearFit,
    /// Its mean error in percent over conditions that were left out of the fit.
    pub error_pct: f64,
    /// The other model's error.
    pub loser_error_pct: f64,
    /// Conditions, each left out once.
    pub conditions: usize,
}

impl QueueModel {
    /// Both.
    pub const ALL: [Self; 2] = [Self::FirstInFirstOut, Self::ProcessorSharing];

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::FirstInFirstOut => Self::ProcessorSharing,
            Self::ProcessorSharing => Self::FirstInFirstOut,
        }
    }

    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FirstInFirstOut => "M/G/1 FIFO",
            Self::ProcessorSharing => "processor sharing",
        }
    }

    /// The mean sojourn time at `rate` with service times of this mean; `None` if the node cannot
    /// keep up (ρ ≥ 1).
    ///
    /// First in, first out it is E\[S\] + λE\[S²\]/(2(1−ρ)) for Poisson arrivals; for others,
    /// Kingman's approximation with the variation of their gaps.
    pub fn sojourn(self, service: f64, point: &LoadPoint) -> Option<f64> {
        let load = point.rate * service;
        if !(0.0..1.0).contains(&load) {
            return None;
        }
        Some(match self {
            Self::FirstInFirstOut => {
                let variation = f64::midpoint(point.service_variation, point.arrival_variation);
                service + load * service * variation / (1.0 - load)
            }
            Self::ProcessorSharing => service / (1.0 - load),
        })
    }

    /// The mean service time that explains the point's sojourn time.
    pub fn service(self, point: &LoadPoint) -> Option<f64> {
        const STEPS: usize = 60;
        if point.sojourn <= 0.0 || point.rate < 0.0 {
            return None;
        }
        let (mut low, mut high) = (0.0, point.sojourn);
        for _step in 0..STEPS {
            let middle = f64::midpoint(low, high);
            match self.sojourn(middle, point) {
                Some(sojourn) if sojourn < point.sojourn => low = middle,
                _ => high = middle,
            }
        }
        Some(f64::midpoint(low, high))
    }

    fn fit<'point>(self, points: impl Iterator<Item = &'point LoadPoint>) -> Option<LinearFit> {
        let services = points.filter_map(|point| Some((point.octets, self.service(point)?)));
        let services: Vec<(f64, f64)> = services.collect();
        // One size has no slope: the time is the mean.
        least_squares(&services).or_else(|| {
            let times: Vec<f64> = services.iter().map(|&(_, time)| time).collect();
            let intercept = mean(&times)?;
            Some(LinearFit { intercept, slope: 0.0, r_squared: 0.0, count: times.len() })
        })
    }

    /// The relative error of each point, predicted from all others.
    fn held_out(self, points: &[LoadPoint]) -> Vec<f64> {
        let error = |(left_out, point): (usize, &LoadPoint)| {
            let others = points.iter().enumerate().filter(|&(at, _)| at != left_out);
            let fit = self.fit(others.map(|(_, point)| point))?;
            let predicted = self.sojourn(fit.at(point.octets).max(0.0), point);
            // A node that is predicted not to keep up is wrong by all of the measured time.
            Some(predicted.map_or(1.0, |predicted| (predicted / point.sojourn - 1.0).abs()))
        };
        points.iter().enumerate().filter_map(error).collect()
    }
}

/// Chooses the model whose predictions of left-out conditions are better; `None` below three
/// conditions.
pub fn choose_model(points: &[LoadPoint]) -> Option<ModelChoice> {
    let error = |model: QueueModel| mean(&model.held_out(points)).map(|error| error * 100.0);
    let [first, second] = QueueModel::ALL;
    let (one, other) = (error(first)?, error(second)?);
    let (chosen, error_pct, loser_error_pct) =
        if one <= other { (first, one, other) } else { (second, other, one) };
    let service = chosen.fit(points.iter())?;
    let conditions = points.len();
    (conditions >= 3).then_some(ModelChoice {
        chosen,
        service,
        error_pct,
        loser_error_pct,
        conditions,
    })
}
