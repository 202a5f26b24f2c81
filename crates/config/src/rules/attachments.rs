//! Rules for attached handlers.

use super::{check_kind, check_link, check_needed, links, twice};
use crate::codes;
use crate::filter;
use crate::messages::{self, MessageHandler};
use crate::model::{Attach, Config, Device, Handler, Link, Located, Place, Side};
use crate::shape::Findings;
use crate::tables::{ATTACH, HANDLERS};
use crate::values;
use crate::view::View;
use gatewright_diagnostic::{Diagnostic, Span};
use gatewright_stack::At;
use gatewright_wire::EtherType;

pub(super) fn check(config: &Config, root: View<'_>, names: &[String], findings: &mut Findings) {
    let tables = root.tables("attach");
    for table in &tables {
        check_table(*table, findings);
    }
    let is_without_links = links::runs_without(root);
    for attach in &config.attachments {
        if is_without_links && attach.link.is_none() {
            let message =
                format!("nothing passes at `{}`: the gateway has no links", attach.at.value);
            let finding = Diagnostic::warning(&codes::NO_PACKETS, attach.at.span, message);
            findings.add(finding.help(
                "describe a link ([link.lan]); messages of a program pass at gateway:NAME/HANDLER",
            ));
        }
        if let Some(table) = View::of_value(&tables, "at", attach.at.span) {
            check_one(attach, table, names, findings);
            check_framing(attach, &config.links, findings);
        }
    }
    check_files(config, findings);
}

/// Reports keys that do not fit the handler, and required keys that are missing.
pub(crate) fn check_table(table: View<'_>, findings: &mut Findings) {
    if messages::is_meant(table) {
        messages::check(table, findings);
    } else {
        messages::check_packets(table, findings);
    }
    check_keys(table, findings);
}

/// Reports contradictions in a packet handler, also with the links `names`.
pub(crate) fn check_one(
    attach: &Attach,
    table: View<'_>,
    names: &[String],
    findings: &mut Findings,
) {
    if let Some(link) = &attach.link {
        check_link(link, names, findings);
    }
    if let Handler::Mirror { to } = &attach.handler {
        check_link(to, names, findings);
        check_mirror(attach, to, findings);
    }
    filter::check_position(attach.at.value, attach.at.span, findings);
    filter::check_family(attach.at.value, table, findings);
    filter::check_drop(table, findings);
    check_place(attach, table.key("place").unwrap_or(attach.at.span), findings);
}

/// Reports a position that only frames of Ethernet have, on links without it.
fn check_framing(attach: &Attach, links: &[Link], findings: &mut Findings) {
    let At::EtherType(kind) = attach.at.value else { return };
    let is_meant =
        |link: &&Link| attach.link.as_ref().is_none_or(|name| name.value == link.name.value);
    let mut meant = links.iter().filter(is_meant).peekable();
    if [EtherType::IPV4, EtherType::IPV6].contains(&kind)
        || meant.peek().is_none()
        || !meant.all(|link| matches!(link.device, Device::Tun { .. }))
    {
        return;
    }
    let message = format!("nothing passes at `{}` of a link without Ethernet", attach.at.value);
    let finding = Diagnostic::error(&codes::NOTHING_PASSES, attach.at.span, message);
    findings.add(finding.help("with mode `tun` there are `ether:ipv4` and `ether:ipv6`"));
}

fn check_keys(table: View<'_>, findings: &mut Findings) {
    let Some(handler) = table.text("handler").map(|handler| handler.value) else { return };
    if !HANDLERS.contains(&handler) {
        return;
    }
    let whose = format!("handler {handler}");
    check_kind(table, ATTACH.keys, (handler, &whose), findings);
    let needed = match handler {
        "capture" => Some(("file", "\"frames.pcapng\"")),
        "mirror" => Some(("to", "\"lan\"")),
        "rate-limit" => Some(("rate", "1000")),
        _ => None,
    };
    if let Some(needed) = needed {
        check_needed(table, needed, &whose, findings);
    }
    check_port(table, findings);
    filter::check(table, findings);
}

/// IP protocols that have ports.
const WITH_PORTS: [&str; 2] = ["udp", "tcp"];

fn check_port(attach: View<'_>, findings: &mut Findings) {
    let Some(table) = attach.table("match") else { return };
    let Some(port) = table.key("port") else { return };
    let protocol = table.text("protocol");
    let known = protocol.as_ref().and_then(|protocol| values::protocol(protocol));
    if protocol.is_none() {
        let finding =
            Diagnostic::error(&codes::PORT_WITHOUT_PROTOCOL, port, "a port of which protocol?");
        findings.add(finding.help("add `protocol = \"udp\"` or `protocol = \"tcp\"`"));
    } else if known.is_some() && !WITH_PORTS.map(values::protocol).contains(&known) {
        let finding =
            Diagnostic::error(&codes::PORT_WITHOUT_PROTOCOL, port, "this protocol has no ports");
        findings.add(match protocol {
            Some(protocol) => finding.also(protocol.span, "the protocol"),
            None => finding,
        });
    }
}

fn check_place(attach: &Attach, span: Span, findings: &mut Findings) {
    let (name, looks) = match attach.handler {
        Handler::Count => ("count", true),
        Handler::Capture { .. } => ("capture", true),
        Handler::Mirror { .. } => ("mirror", true),
        Handler::Drop { .. } => ("drop", false),
        Handler::Filter { .. } => ("filter", false),
        Handler::RateLimit { .. } => ("rate-limit", false),
        // They stand for keys of a link or a route, and stand where they must.
        Handler::Host { .. } | Handler::NextHops { .. } => return,
    };
    let place = match (looks, attach.place) {
        (true, Place::Instead) => "`instead` of a layer: every packet would be swallowed",
        (false, Place::Tap) => "as a `tap`, which only looks",
        _ => return,
    };
    let message = format!("`{name}` cannot stand {place}");
    let finding = Diagnostic::error(&codes::WRONG_PLACE, span, message);
    let other = if looks { "tap" } else { "before" };
    findings.add(finding.help(format!("leave `place` out, or write `place = \"{other}\"`")));
}

fn check_mirror(attach: &Attach, to: &Located<String>, findings: &mut Findings) {
    let onto_itself = match &attach.link {
        Some(link) => link.value == to.value,
        None => attach.side == Side::Transmit,
    };
    if onto_itself {
        let message = format!("copies of what leaves by `{}` would leave by it again", to.value);
        let finding = Diagnostic::error(&codes::MIRROR_LOOP, to.span, message);
        findings.add(match &attach.link {
            Some(link) => finding.also(link.span, "taken here"),
            None => finding.help("name the link that is mirrored: link = \"NAME\""),
        });
    }
}

fn check_files(config: &Config, findings: &mut Findings) {
    let of_packets = config.attachments.iter().filter_map(|attach| match &attach.handler {
        Handler::Capture { file } => Some(file),
        _ => None,
    });
    let of_messages =
        config.message_attachments.iter().filter_map(|attach| match &attach.handler {
            MessageHandler::Capture { file } => Some(file),
            _ => None,
        });
    let files: Vec<&Located<String>> = of_packets.chain(of_messages).collect();
    for (count, second) in files.iter().enumerate() {
        if let Some(first) = files.iter().take(count).find(|first| first.value == second.value) {
            let message = format!("two captures write `{}`", second.value);
            twice(&codes::FILE_TWICE, (first.span, second.span), message, findings);
        }
    }
}
