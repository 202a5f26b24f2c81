//! Rules between the values of a description.
//!
//! Each rule checks the values that could be read; the others were reported before.

pub(crate) mod attachments;
mod balance;
mod links;
mod neighbours;
mod routes;
mod services;
mod shared;
pub(crate) mod virtual_links;

use crate::codes;
use crate::model::{Config, Located};
use crate::shape::Findings;
use crate::tables::Key;
use crate::values::mapped;
use crate::view::View;
use gatewright_diagnostic::{Code, Diagnostic, Span, nearest};
use std::net::IpAddr;

/// Reports every broken rule, and derives values from others: the link of a route or of a
/// neighbour.
pub(crate) fn check(config: &mut Config, root: View<'_>, findings: &mut Findings) {
    check_former_names(root, findings);
    let names: Vec<String> = root.named("link").into_iter().map(|(name, _)| name.value).collect();
    links::check(config, root, findings);
    routes::check(config, root, &names, findings);
    shared::check(config, findings);
    neighbours::check(config, &names, findings);
    attachments::check(config, root, &names, findings);
    services::check(config, root, &names, findings);
    balance::check(config, root, findings);
}

/// Tells keys by their former names.
fn check_former_names(root: View<'_>, findings: &mut Findings) {
    let key = |table, key| root.table(table).and_then(|table| table.key(key));
    let Some(former) = key("gateway", "workers") else { return };
    if let Some(now) = key("planes", "data_cores") {
        let message = "`workers` and `data_cores` say the same twice".to_owned();
        twice(&codes::OLD_NAME, (now, former), message, findings);
    } else {
        let message = "`[gateway] workers` is now `[planes] data_cores`".to_owned();
        findings.add(Diagnostic::warning(&codes::OLD_NAME, former, message));
    }
}

/// Checks that the link's name is one of `names`.
fn check_link(name: &Located<String>, names: &[String], findings: &mut Findings) {
    // A spare link of a running gateway has no name.
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|of| !of.is_empty()).collect();
    if names.contains(&name.value.as_str()) {
        return;
    }
    let message = format!("there is no link `{}`", name.value);
    let finding = Diagnostic::error(&codes::UNKNOWN_LINK, name.span, message);
    findings.add(match nearest(name, names.iter().copied()) {
        Some(meant) => {
            let finding = finding.label(format!("did you mean `{meant}`?"));
            finding.fix(name.span, format!("\"{meant}\""), "write it so")
        }
        None if names.is_empty() => finding,
        None => finding.help(format!("there are: {}", names.join(", "))),
    });
}

/// A finding about an address that no host can have.
fn unusable(address: IpAddr, span: Span, message: String) -> Diagnostic {
    let finding = Diagnostic::error(&codes::UNUSABLE_ADDRESS, span, message);
    match mapped(address) {
        Some(meant) => finding.help(format!("it stands for {meant}, which is written as it is")),
        None => finding,
    }
}

/// A finding about two values that must differ.
fn twice(
    code: &'static Code,
    (first, second): (Span, Span),
    message: String,
    findings: &mut Findings,
) {
    // The rules look at one kind of items after another: the order in the text is what is meant.
    let is_turned = first.source == second.source && second.start < first.start;
    let (first, second) = if is_turned { (second, first) } else { (first, second) };
    let finding = Diagnostic::error(code, second, message).label("the second");
    findings.add(finding.also(first, "the first"));
}

/// Reports the keys of `table` that another kind than `kind` has, by the key table `keys`.
fn check_kind(table: View<'_>, keys: &[Key], (kind, whose): (&str, &str), findings: &mut Findings) {
    let others = keys.iter().filter(|key| !key.kinds.is_empty() && !key.kinds.contains(&kind));
    for key in others {
        let Some(span) = table.key(key.name) else { continue };
        let help =
            format!("it is a key of {}; leave `{}` out here", owners(whose, key.kinds), key.name);
        findings.add(without_use(key.name, whose, span).help(help));
    }
}

/// The handlers or links that have a key, as `whose` is one.
fn owners(whose: &str, kinds: &[&str]) -> String {
    if whose.starts_with("handler ") {
        return format!("handler {}", kinds.join(" or "));
    }
    let modes: Vec<&str> = (kinds.iter().filter(|kind| **kind != "vlan"))
        .map(|kind| if *kind == "interface" { "auto, xdp, xdp-generic, packet" } else { kind })
        .collect();
    let has_vlan = kinds.len() > modes.len();
    match (modes.join(", "), has_vlan) {
        (modes, true) if modes.is_empty() => "a VLAN".to_owned(),
        (modes, true) => format!("modes {modes}, and of VLANs"),
        (modes, false) if modes.contains(',') => format!("modes {modes}"),
        (mode, false) => format!("mode {mode}"),
    }
}

/// Reports a key that `whose` has no use for.
pub(crate) fn check_unused(table: View<'_>, key: &str, whose: &str, findings: &mut Findings) {
    if let Some(span) = table.key(key) {
        findings.add(without_use(key, whose, span).help("leave it out"));
    }
}

fn without_use(key: &str, whose: &str, span: Span) -> Diagnostic {
    let message = format!("`{key}` does nothing with {whose}");
    Diagnostic::error(&codes::KEY_WITHOUT_USE, span, message)
}

/// Reports a missing key that `whose` needs.
fn check_needed(
    table: View<'_>,
    (key, example): (&str, &str),
    whose: &str,
    findings: &mut Findings,
) {
    if table.key(key).is_none() {
        let message = format!("{whose} needs `{key}`");
        let finding = Diagnostic::error(&codes::MISSING_KEY, table.header, message);
        findings.add(finding.help(format!("{key} = {example}")));
    }
}
