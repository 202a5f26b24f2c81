//! Metrics of balances: flows, loads, refusals.

use super::{Family, Page};
use crate::balance::BalanceStatus;

const FLOWS: Family = ("gatewright_balance_flows", "flows", "Flows that a relay of a balance has.");
const LOAD: Family = (
    "gatewright_balance_load",
    "",
    "Share of the time in which its flows keep a relay of a balance busy, by its delay model.",
);
const ADMITTED: Family =
    ("gatewright_balance_admitted_flows", "flows", "Flows that a balance admitted.");
const REFUSED: Family =
    ("gatewright_balance_refused_flows", "flows", "Flows that a balance refused, by reason.");
const LEFT_OUT: Family = (
    "gatewright_balance_left_out",
    "",
    "Whether a relay of a balance is left out, as it does not answer.",
);
const UNREACHABLE: Family = (
    "gatewright_balance_unreachable",
    "",
    "Failures to reach a relay of a balance: connections that it did not accept, ICMP errors about \
     datagrams to it, its silences, or no link-layer address.",
);
const FACTOR: Family = (
    "gatewright_balance_service_factor",
    "",
    "By how much a live relay's service takes longer than described, by the times to its answers.",
);
const ANSWERS: Family =
    ("gatewright_balance_answers", "answers", "Answers of a live relay whose times were measured.");
const DRIFTS: Family = (
    "gatewright_balance_drifts",
    "",
    "Whether the described and the measured service of a live relay differ by more than half.",
);

/// The families of all balances; nothing without one.
pub(super) fn write(page: &mut Page, balances: &[BalanceStatus]) {
    for balance in balances {
        let name = ("balance", balance.name.as_str());
        for relay in &balance.relays {
            let address = relay.address.to_string();
            let labels = [name, ("relay", address.as_str())];
            page.gauge(FLOWS, &labels, relay.flows);
            page.gauge(LOAD, &labels, format!("{:e}", relay.load));
            if let Some(reachability) = &relay.reachability {
                page.gauge(LEFT_OUT, &labels, u8::from(reachability.left_out));
                page.count(UNREACHABLE, &labels, reachability.unreachable);
            }
            if let Some(live) = &relay.live {
                page.gauge(FACTOR, &labels, format!("{:e}", live.factor));
                page.count(ANSWERS, &labels, live.answers);
                page.gauge(DRIFTS, &labels, u8::from(live.drifts));
            }
        }
        page.count(ADMITTED, &[name], balance.admitted);
        for (reason, count) in &balance.refused {
            page.count(REFUSED, &[name, ("reason", reason)], *count);
        }
    }
}
