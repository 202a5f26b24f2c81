//! Rules of a filter: their parsing and their checks.

use crate::codes;
use crate::shape::Findings;
use crate::values::{self, Prefix};
use crate::view::View;
use gatewright_diagnostic::{Diagnostic, Span};
use gatewright_stack::At;
use gatewright_stack::builtin::{Among, Rule, Selector, Subnet, Verdict, has_ports};
use gatewright_wire::{EtherType, IpProtocol};

/// The rules of a table, in the order of the text.
pub(crate) fn rules(table: View<'_>) -> Option<Vec<Rule>> {
    table.tables("rules").into_iter().map(rule).collect()
}

/// A verdict by its name.
pub(crate) fn verdict(table: View<'_>, key: &str) -> Option<Verdict> {
    match table.text(key)?.value {
        "accept" => Some(Verdict::Accept),
        "drop" => Some(Verdict::Drop),
        _ => None,
    }
}

fn rule(table: View<'_>) -> Option<Rule> {
    let subnet = |text: &str| {
        let prefix = Prefix::parse(text)?;
        Some(Subnet { address: prefix.address(), bits: prefix.length() })
    };
    let protocol = |text: &str| values::protocol(text).map(IpProtocol);
    let ports = |text: &str| text.parse().ok();
    let which = Selector {
        source: among(table, ["source", "not_source"], subnet)?,
        destination: among(table, ["destination", "not_destination"], subnet)?,
        protocol: among(table, ["protocol", "not_protocol"], protocol)?,
        source_port: among(table, ["source_port", "not_source_port"], ports)?,
        destination_port: among(table, ["destination_port", "not_destination_port"], ports)?,
    };
    Some(Rule { which, verdict: verdict(table, "verdict")? })
}

/// The values of a key, or of its negation; `None` if one of them cannot be read.
fn among<T>(
    table: View<'_>,
    [of, none_of]: [&str; 2],
    read: impl Fn(&str) -> Option<T>,
) -> Option<Among<T>> {
    let values =
        |key| -> Option<Vec<T>> { table.texts(key).iter().map(|text| read(text.value)).collect() };
    match (table.key(of), table.key(none_of)) {
        (Some(_), _) => values(of).map(Among::In),
        (None, Some(_)) => values(none_of).map(Among::NotIn),
        (None, None) => Some(Among::Any),
    }
}

/// The keys of a rule that have a negation, with that negation.
const NEGATED: [[&str; 2]; 5] = [
    ["source", "not_source"],
    ["destination", "not_destination"],
    ["protocol", "not_protocol"],
    ["source_port", "not_source_port"],
    ["destination_port", "not_destination_port"],
];

/// Reports rules whose keys contradict each other, and rules without effect.
pub(crate) fn check(table: View<'_>, findings: &mut Findings) {
    check_effect(table, findings);
    for rule in table.tables("rules") {
        check_ports(rule, findings);
        for [of, none_of] in NEGATED {
            if let (Some(first), Some(second)) = (rule.key(of), rule.key(none_of)) {
                let message = format!("a rule with `{of}` and `{none_of}`");
                let finding = Diagnostic::error(&codes::KEY_WITHOUT_USE, second, message);
                let finding = finding.also(first, "the other");
                findings.add(finding.help("make two rules of it: the first that fits decides"));
            }
            for key in [of, none_of] {
                // What is no list is reported by its type.
                let list = rule.value(key).and_then(|(value, _)| value.as_array());
                let is_empty = list.is_some_and(|list| list.iter().next().is_none());
                if let Some(span) = rule.key(key).filter(|_| is_empty) {
                    let message = format!("`{key}` names nothing");
                    let finding = Diagnostic::error(&codes::KEY_WITHOUT_USE, span, message);
                    findings.add(finding.help("leave it out, and the rule is about all"));
                }
            }
        }
    }
}

/// Keys about ports, which hold only for packets that have some.
const PORT_KEYS: [&str; 4] =
    ["source_port", "not_source_port", "destination_port", "not_destination_port"];

/// Reports a rule about ports of protocols that have none: no packet matches it.
fn check_ports(rule: View<'_>, findings: &mut Findings) {
    let Some(port) = PORT_KEYS.into_iter().find_map(|key| rule.key(key)) else { return };
    let Some(span) = rule.key("protocol") else { return };
    let protocols = rule.texts("protocol");
    let has_none = |text: &str| values::protocol(text).is_some_and(|it| !has_ports(IpProtocol(it)));
    if protocols.is_empty() || !protocols.iter().all(|protocol| has_none(protocol.value)) {
        return;
    }
    let message = "no packet matches this rule, as its protocols have no ports";
    let finding = Diagnostic::warning(&codes::RULE_WITHOUT_EFFECT, port, message);
    let finding = finding.also(span, "the protocols");
    findings.add(finding.help("ports are of tcp, udp, udplite and sctp: leave one of both out"));
}

/// Reports a filter without rules, and rules that no packet gets to.
fn check_effect(table: View<'_>, findings: &mut Findings) {
    let Some(handler) = table.text("handler").filter(|handler| handler.value == "filter") else {
        return;
    };
    let rules = table.tables("rules");
    let is_list = table.value("rules").is_none_or(|(value, _)| value.as_array().is_some());
    if is_list && rules.is_empty() && table.key("default").is_none() {
        let message = "a filter without rules lets every packet pass";
        let finding = Diagnostic::warning(&codes::RULE_WITHOUT_EFFECT, handler.span, message);
        findings.add(finding.help("rules = [{ verdict = \"drop\", protocol = [\"tcp\"] }]"));
    }
    let is_for_all = |rule: &View<'_>| rule.keys().all(|key| key == "verdict");
    let mut after = rules.iter().skip_while(|rule| !is_for_all(rule));
    let (Some(first), Some(behind)) = (after.next(), after.next()) else { return };
    let message = "no packet gets to this rule";
    let finding = Diagnostic::warning(&codes::RULE_WITHOUT_EFFECT, behind.header, message);
    let finding = finding.also(first.header, "this one decides about all packets");
    findings.add(finding.help("move the rule for all to the end, or write it as `default`"));
}

/// Reports networks of the address family that never passes at the position.
pub(crate) fn check_family(at: At, table: View<'_>, findings: &mut Findings) {
    let is_ipv4 = match at {
        At::EtherType(EtherType::IPV4) => true,
        At::EtherType(EtherType::IPV6) => false,
        _ => return,
    };
    let ours = if is_ipv4 { "IPv4" } else { "IPv6" };
    let rules = table.tables("rules");
    for of in rules.into_iter().chain(table.table("match")) {
        for key in ["source", "not_source", "destination", "not_destination"] {
            let one = of.text(key);
            for text in of.texts(key).into_iter().chain(one) {
                let is_other = Prefix::parse(text.value)
                    .is_some_and(|prefix| prefix.address().is_ipv4() != is_ipv4);
                if is_other {
                    findings.add(other_family(text.span, text.value, ours));
                }
            }
        }
    }
}

fn other_family(span: Span, network: &str, ours: &str) -> Diagnostic {
    let message = format!("`{network}` is never met where only {ours} passes");
    Diagnostic::error(&codes::OTHER_FAMILY, span, message)
}

/// Reports a position at which no layer of this version parses packets.
pub(crate) fn check_position(at: At, span: Span, findings: &mut Findings) {
    let other = match at {
        At::TcpPort(_) => "at `ip:tcp` segments of all ports pass",
        At::Label(_) => "at `ether:mpls` frames of all labels pass",
        At::Dispatch(_) => "there is no 6LoWPAN yet",
        _ => return,
    };
    let message = format!("nothing passes at `{at}` in this version");
    findings.add(Diagnostic::error(&codes::NOTHING_PASSES, span, message).help(other));
}

/// Reports a `drop` without conditions.
pub(crate) fn check_drop(table: View<'_>, findings: &mut Findings) {
    let Some(handler) = table.text("handler").filter(|handler| handler.value == "drop") else {
        return;
    };
    // A match that is no table is told elsewhere.
    let is_empty = table.table("match").map(|of| of.keys().next().is_none());
    if is_empty.unwrap_or(table.key("match").is_none()) {
        let message = "this `drop` takes every packet";
        let finding = Diagnostic::warning(&codes::DROPS_ALL, handler.span, message);
        findings.add(finding.help("match = { source = \"192.0.2.0/24\" }"));
    }
}
