//! Metrics of balances: flows, loads, refusals.

use super::{Family, head, sample, written};
use crate::balance::BalanceStatus;

const FLOWS: Family = ("gatewright_balance_flows", "flows", "Flows that a relay of a balance has.");
const LOAD: Family = (
    "gatewright_balance_load",
    "",
    "Share of the time in which these flows keep the relay busy, by its delay model.",
);
const ADMITTED: Family =
    ("gatewright_balance_admitted_flows", "flows", "Flows that a balance admitted.");
const REFUSED: Family =
    ("gatewright_balance_refused_flows", "flows", "Flows that a balance refused, by reason.");

/// The families of all balances; nothing without one.
pub(super) fn text(out: &mut String, balances: &[BalanceStatus]) {
    if balances.is_empty() {
        return;
    }
    for (family, is_flows) in [(FLOWS, true), (LOAD, false)] {
        head(out, family, "gauge");
        for balance in balances {
            for relay in &balance.relays {
                let address = relay.address.to_string();
                let labels = written(&[("balance", &balance.name), ("relay", &address)]);
                let value =
                    if is_flows { relay.flows.to_string() } else { format!("{:e}", relay.load) };
                sample(out, family.0, "", &labels, value);
            }
        }
    }
    head(out, ADMITTED, "counter");
    for balance in balances {
        let labels = written(&[("balance", &balance.name)]);
        sample(out, ADMITTED.0, "_total", &labels, balance.admitted);
    }
    head(out, REFUSED, "counter");
    for balance in balances {
        for (reason, count) in &balance.refused {
            let labels = written(&[("balance", &balance.name), ("reason", reason)]);
            sample(out, REFUSED.0, "_total", &labels, count);
        }
    }
}
