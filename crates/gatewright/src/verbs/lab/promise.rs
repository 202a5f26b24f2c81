//! `gatewright lab promise`.

use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_config::RelayKind;
use gatewright_lab::{BalanceKeys, FlowKind, FlowPromise, RelayModel, UnusableModel};
use serde::Serialize;
use std::{fmt::Write, ops::RangeInclusive};

/// Tells how many flows of a kind this node carries under a bound, by the models of a run.
///
/// `gatewright lab promise lab-default.json --rate 50 --octets 400 --within-ms 5` answers for each
/// relay of that run. The prediction is of the node's delay alone; links come on top. Nothing is
/// promised from a model without a service time, or that errs by more than 50 %, nor where more
/// packets were lost than the flows allow, or where a quota or a measured delay excludes it; the cause is
/// told. Ends with 1 if no relay can promise a flow.
#[derive(Debug, clap::Args)]
pub(super) struct Promise {
    /// The results (JSON) of a run on this node.
    #[arg(value_name = "RESULTS", default_value = "lab-default.json")]
    results: String,
    /// Packets a second of one flow.
    #[arg(long, value_name = "PACKETS", value_parser = rate, allow_negative_numbers = true)]
    rate: f64,
    /// Octets of payload of a packet.
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=OCTETS_MAX))]
    octets: u16,
    /// Delay in the node that a packet may have.
    #[arg(long, value_name = "MILLISECONDS", value_parser = within_ms, allow_negative_numbers = true)]
    within_ms: f64,
    /// Share of the packets that must keep it.
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, value_parser = quantile)]
    quantile: f64,
    /// Print the models too, as lines of a description: for `[[balance.NAME.relay]]`.
    #[arg(long)]
    model: bool,
}

impl Promise {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let run = super::result(&self.results, face)?;
        let Self { rate, octets, within_ms, quantile, .. } = self;
        let (octets, bound_us) = (f64::from(octets), within_ms * 1000.0);
        let flow = FlowKind { rate, octets, bound_us, quantile };
        if run.models.is_empty() {
            let message = format!("{}: no relay has a model", self.results);
            return Err(Failure::new(Exit::Negative, message).into());
        }
        let answer = |model: &RelayModel| match gatewright_lab::promise(&run, model, &flow) {
            Ok(promise) => RelayAnswer::Promise(promise),
            Err(cause) => RelayAnswer::nothing(model.relay, cause),
        };
        let answers: Vec<RelayAnswer> = run.models.iter().map(answer).collect();
        face.answer(&answers, || text(&answers, &flow, self.model))?;
        let has_any =
            answers.iter().any(|it| matches!(it, RelayAnswer::Promise(it) if it.flows > 0));
        Ok(if has_any { Exit::Success } else { Exit::Negative })
    }
}

/// The answer for one relay.
#[derive(Serialize)]
#[serde(untagged)]
enum RelayAnswer {
    Promise(FlowPromise),
    Nothing { relay: RelayKind, flows: Option<u32>, model: Option<BalanceKeys>, cause: String },
}

impl RelayAnswer {
    fn nothing(relay: RelayKind, cause: UnusableModel) -> Self {
        Self::Nothing { relay, flows: None, model: None, cause: cause.to_string() }
    }
}

/// Packets a second of a flow: from one in a day to more than a link of 10 Gbit/s carries.
const RATES: RangeInclusive<f64> = 1e-5..=2e7;
/// Payload of the largest UDP datagram over IPv4 (RFC 768, RFC 791 §3.1).
const OCTETS_MAX: i64 = 65_507;
/// Milliseconds: from a nanosecond to an hour.
const BOUNDS_MS: RangeInclusive<f64> = 1e-6..=3.6e6;
/// Shares of packets: a model says nothing about the fastest or the slowest of a million.
const SHARES: RangeInclusive<f64> = 0.01..=0.999_999;

fn rate(text: &str) -> Result<f64, String> {
    within(text, RATES, "packets a second")
}

fn within_ms(text: &str) -> Result<f64, String> {
    within(text, BOUNDS_MS, "milliseconds")
}

fn quantile(text: &str) -> Result<f64, String> {
    within(text, SHARES, "a share of the packets, such as 0.95 for 95 %")
}

/// A number of `range`, of which no NaN is one.
fn within(text: &str, range: RangeInclusive<f64>, what: &str) -> Result<f64, String> {
    let (least, most) = (range.start(), range.end());
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("from {least} to {most} {what}"))
}

fn text(answers: &[RelayAnswer], flow: &FlowKind, has_models: bool) -> String {
    let mut text = format!(
        "flows of {} packets of {} octets a second, {} % of them within {} ms in the node\n",
        flow.rate,
        flow.octets,
        flow.quantile * 100.0,
        flow.bound_us / 1000.0
    );
    for it in answers {
        // Writing to a string cannot fail.
        let _ = match it {
            RelayAnswer::Promise(it) => push_promise(&mut text, it, flow, has_models),
            RelayAnswer::Nothing { relay, cause, .. } if has_models => {
                writeln!(text, "{:20} no promise: {cause}\n    # none: {cause}", relay.name())
            }
            RelayAnswer::Nothing { relay, cause, .. } => {
                writeln!(text, "{:20} no promise: {cause}", relay.name())
            }
        };
    }
    text
}

fn push_promise(
    text: &mut String,
    it: &FlowPromise,
    flow: &FlowKind,
    has_models: bool,
) -> std::fmt::Result {
    let millis = |us: Option<f64>| {
        us.map_or_else(|| "overloaded".to_owned(), |us| format!("{:.3} ms", us / 1000.0))
    };
    write!(
        text,
        "{:20} {:>7} flows{}; load {:.0} %, delay {}, with one more {}; the model errs by {:.0} %",
        it.relay.name(),
        it.flows,
        if it.or_more { " or more" } else { "" },
        it.load * 100.0,
        if it.flows == 0 { "–".to_owned() } else { millis(it.delay_us) },
        millis(it.next_us),
        it.error_pct
    )?;
    if let Some(most) = it.beyond_rate {
        let times = f64::from(it.flows) * flow.rate / f64::from(most.max(1));
        write!(text, "; {times:.1} times the most that was measured, {most}/s")?;
    }
    if let Some([least, most]) = it.beyond_octets {
        write!(text, "; beyond the measured {least} to {most} octets")?;
    }
    if let Some(measured) = it.limited_by {
        let share = measured.quantile * 100.0;
        let (rate, ms) = (measured.rate, measured.delay_us / 1000.0);
        write!(
            text,
            "; with more, as at {rate}/s {share} % were measured within {ms:.3} ms, too late"
        )?;
    }
    if let Some(carried) = it.beyond_link {
        write!(text, "; the links of this run carry {carried:.0}/s")?;
    }
    if it.slowdown > 1 {
        let times = it.slowdown;
        write!(text, "; the relay's own work was done {times} times, the kernel's once")?;
    }
    if it.unsteady > 0 {
        write!(text, "; {} of {} conditions unsteady", it.unsteady, it.conditions)?;
    }
    text.push('\n');
    if has_models {
        let BalanceKeys { fixed_ns, octet_ps, variation_pct, spread_pct } = it.model;
        writeln!(
            text,
            "    fixed_ns = {fixed_ns}\n    octet_ps = {octet_ps}\n    variation_pct = \
             {variation_pct}\n    spread_pct = {spread_pct}"
        )?;
    }
    Ok(())
}
