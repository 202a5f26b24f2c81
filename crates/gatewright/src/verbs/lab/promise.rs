//! `gatewright lab promise`.

use crate::{
    exit::{Exit, Failure},
    face::Face,
};
use anyhow::Result;
use gatewright_lab::{FlowKind, FlowPromise};
use std::fmt::Write;

/// Tells how many flows of a kind this node carries under a bound, by the models of a run.
///
/// `gatewright lab promise lab-default.json --rate 50 --octets 400 --within-ms 5` answers for each
/// relay of that run. The prediction is of the node's delay alone; links come on top.
#[derive(Debug, clap::Args)]
pub(super) struct Promise {
    /// The results (JSON) of a run on this node.
    #[arg(value_name = "RESULTS", default_value = "lab-default.json")]
    results: String,
    /// Packets a second of one flow.
    #[arg(long, value_name = "PACKETS")]
    rate: f64,
    /// Octets of payload of a packet.
    #[arg(long)]
    octets: f64,
    /// Delay in the node that a packet may have.
    #[arg(long, value_name = "MILLISECONDS")]
    within_ms: f64,
    /// Share of the packets that must keep it.
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    quantile: f64,
}

impl Promise {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let run = super::result(&self.results)?;
        let Self { rate, octets, within_ms, quantile, .. } = self;
        let is_good = rate > 0.0 && octets >= 0.0 && within_ms > 0.0 && quantile < 1.0;
        if !is_good || !(0.0..1.0).contains(&quantile) || !rate.is_finite() {
            let message = "a rate and a bound above 0 and a share below 1 are needed";
            return Err(Failure::new(Exit::Usage, message).into());
        }
        let flow = FlowKind { rate, octets, bound_us: within_ms * 1000.0, quantile };
        let promises: Vec<FlowPromise> =
            run.models.iter().filter_map(|model| gatewright_lab::promise(model, &flow)).collect();
        if promises.is_empty() {
            let message = format!("{}: no relay has a model: too few conditions", self.results);
            return Err(Failure::new(Exit::Negative, message).into());
        }
        face.answer(&promises, || text(&promises, &flow))?;
        Ok(Exit::Success)
    }
}

fn text(promises: &[FlowPromise], flow: &FlowKind) -> String {
    let mut text = format!(
        "flows of {} packets of {} octets a second, {} % of them within {} ms in the node\n",
        flow.rate,
        flow.octets,
        flow.quantile * 100.0,
        flow.bound_us / 1000.0
    );
    for it in promises {
        let millis = |us: Option<f64>| {
            us.map_or_else(|| "overloaded".to_owned(), |us| format!("{:.3} ms", us / 1000.0))
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:20} {:>7} flows; load {:.0} %, delay {}, with one more {}; the model errs by {:.0} %",
            it.relay.name(),
            it.flows,
            it.load * 100.0,
            if it.flows == 0 { "–".to_owned() } else { millis(it.delay_us) },
            millis(it.next_us),
            it.error_pct
        );
    }
    text
}
