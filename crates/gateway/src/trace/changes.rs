//! Changes to a packet at one place of the graph.

use gatewright_stack::{At, TraceStep};
use gatewright_wire::EtherType;
use std::fmt::Write;

/// Differences between a packet at one place and at the next.
pub(super) fn changes(before: &TraceStep, after: &TraceStep) -> Vec<String> {
    let (old, new) = (&before.octets[..], &after.octets[..]);
    let shift = match (ip_at(before), ip_at(after)) {
        (Some(old), Some(new)) => Some((old, new)),
        // Without an IP header in both, the packet's end is what stays.
        _ if old.ends_with(new) => Some((old.len() - new.len(), 0)),
        _ if new.ends_with(old) => Some((0, new.len() - old.len())),
        _ => None,
    };
    let mut changed = Vec::new();
    let Some((from, to)) = shift else {
        changed.push("replaced by another packet".to_owned());
        return changed;
    };
    if from > to {
        changed.push(format!("{} octets of header removed", from - to));
    }
    if to > from {
        changed.push(format!("{} octets of header added", to - from));
    }
    let (old, new) = (old.get(from..).unwrap_or_default(), new.get(to..).unwrap_or_default());
    if old.len() > new.len() {
        changed.push(format!("{} octets removed at the end", old.len() - new.len()));
    }
    if new.len() > old.len() {
        changed.push(format!("{} octets added at the end", new.len() - old.len()));
    }
    if ip_at(before).is_some() && ip_at(after).is_some() {
        fields(old, new, &mut changed);
    } else {
        rest(old, new, 0, "octets", &mut changed);
    }
    if before.ingress != after.ingress {
        changed.push("moved to another link".to_owned());
    }
    changed
}

/// Octets before the IP header, if the packet has one there.
pub(super) fn ip_at(step: &TraceStep) -> Option<usize> {
    match step.at {
        At::Frame => {
            let packet = step.framing?.ip_packet(&step.octets)?;
            step.octets.len().checked_sub(packet.len())
        }
        At::EtherType(ether) | At::Local(ether) | At::Unresolved(ether) | At::Error(ether, _) => {
            let ip = matches!(ether, EtherType::IPV4 | EtherType::IPV6);
            ip.then_some(0)
        }
        _ => None,
    }
}

/// A field of a header: its name, and its octets.
type Field = (&'static str, usize, usize);

/// The fields of IPv4 (RFC 791 §3.1; its second octet by RFC 2474 §3 and RFC 3168 §5).
const IPV4: [Field; 9] = [
    ("DSCP and ECN", 1, 2),
    ("total length", 2, 4),
    ("identification", 4, 6),
    ("flags and fragment offset", 6, 8),
    ("time to live", 8, 9),
    ("protocol", 9, 10),
    ("header checksum", 10, 12),
    ("source", 12, 16),
    ("destination", 16, 20),
];

/// The fields of IPv6 (RFC 8200 §3).
const IPV6: [Field; 6] = [
    ("traffic class and flow label", 0, 4),
    ("payload length", 4, 6),
    ("next header", 6, 7),
    ("hop limit", 7, 8),
    ("source", 8, 24),
    ("destination", 24, 40),
];

/// Differences between two IP packets, by field.
fn fields(old: &[u8], new: &[u8], changed: &mut Vec<String>) {
    let fields: &[Field] = match (old.first().map(|first| first >> 4), new.first()) {
        (Some(4), Some(_)) => &IPV4,
        (Some(6), Some(_)) => &IPV6,
        _ => &[],
    };
    for &(name, from, to) in fields {
        let of = |packet: &[u8]| packet.get(from..to).map(<[u8]>::to_vec);
        if let (Some(old), Some(new)) = (of(old), of(new))
            && old != new
        {
            changed.push(format!("{name} {} → {}", value(name, &old), value(name, &new)));
        }
    }
    let header = fields.last().map_or(0, |&(_, _, end)| end);
    rest(old, new, header, "octets behind the header", changed);
}

fn value(name: &str, octets: &[u8]) -> String {
    match (name, octets) {
        ("source" | "destination", octets) => match (octets.try_into(), octets.try_into()) {
            (Ok(v4), _) => std::net::Ipv4Addr::from_octets(v4).to_string(),
            (_, Ok(v6)) => std::net::Ipv6Addr::from_octets(v6).to_string(),
            _ => String::new(),
        },
        ("time to live" | "hop limit" | "total length" | "payload length" | "protocol", octets) => {
            octets.iter().fold(0_u32, |value, octet| value << 8 | u32::from(*octet)).to_string()
        }
        (_, octets) => octets.iter().fold("0x".to_owned(), |mut text, octet| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{octet:02x}");
            text
        }),
    }
}

/// The number of octets from `from` on that differ.
fn rest(old: &[u8], new: &[u8], from: usize, what: &str, changed: &mut Vec<String>) {
    let pairs = old.iter().zip(new).skip(from);
    let count = pairs.filter(|(old, new)| old != new).count();
    if count > 0 {
        changed.push(format!("{count} {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_packet::LinkIndex;
    use gatewright_stack::{Side, TraceOutcome};
    use gatewright_wire::Framing;
    use std::time::Duration;

    fn step(at: At, octets: &[u8]) -> TraceStep {
        TraceStep {
            at,
            side: Side::Receive,
            layer: None,
            ingress: LinkIndex(0),
            egress: LinkIndex::NONE,
            octets: octets.to_vec(),
            framing: (at == At::Frame).then_some(Framing::Ethernet),
            handlers: Vec::new(),
            took: Duration::ZERO,
            outcome: TraceOutcome::Passed,
            reassembly: None,
        }
    }

    const IP: &[u8] =
        &[0x45, 0, 0, 21, 0, 1, 0, 0, 64, 17, 0xb0, 0x01, 192, 0, 2, 7, 198, 51, 100, 53, 0xaa];

    #[test]
    fn a_header_taken_and_padding_cut() {
        let frame = [&[2; 12], &[8, 0][..], IP, &[0; 5]].concat();
        let told = changes(&step(At::Frame, &frame), &step(At::EtherType(EtherType::IPV4), IP));
        assert_eq!(told, ["14 octets of header removed", "5 octets removed at the end"]);
    }

    #[test]
    fn fields_are_told_by_name() {
        let mut next = IP.to_vec();
        next[8] = 63;
        next[10] = 0xb1;
        next[16..20].copy_from_slice(&[10, 0, 0, 1]);
        next[20] = 0xab;
        let at = At::EtherType(EtherType::IPV4);
        let told = changes(&step(at, IP), &step(at, &next));
        let expected = [
            "time to live 64 → 63",
            "header checksum 0xb001 → 0xb101",
            "destination 198.51.100.53 → 10.0.0.1",
            "1 octets behind the header",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_no_ip_is_compared_from_its_end() {
        let arp = At::EtherType(EtherType::ARP);
        let frame = [&[2; 12], &[8, 6, 1, 2, 3][..]].concat();
        let told = changes(&step(At::Frame, &frame), &step(arp, &[1, 2, 3]));
        assert_eq!(told, ["14 octets of header removed"]);
        let told = changes(&step(arp, &[1, 2, 3]), &step(At::Frame, &frame));
        assert_eq!(told, ["14 octets of header added"]);
        assert_eq!(changes(&step(arp, &[1]), &step(arp, &[2])), ["replaced by another packet"]);
    }
}
