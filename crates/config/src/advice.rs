//! What to do about findings that bring no advice of their own.

use crate::codes;
use gatewright_diagnostic::{Code, Diagnostic};

/// Adds the usual help of its code to a finding with neither help, fix nor note.
pub(crate) fn add(finding: &mut Diagnostic) {
    if finding.help.is_none() && finding.fix.is_none() && finding.notes.is_empty() {
        finding.help = usual(finding.code).map(str::to_owned);
    }
}

/// What helps against a finding of this code, whatever its values are.
fn usual(code: &Code) -> Option<&'static str> {
    let known = USUAL.iter().find(|(known, _)| known.number == code.number);
    known.map(|(_, help)| *help)
}

/// The help of each code that has findings without one of their own.
static USUAL: &[(&Code, &str)] = &[
    (&codes::KEY_WITHOUT_USE, "leave it out"),
    (&codes::BAD_NAME, "give it another name"),
    (&codes::TOO_MANY, "leave some of them out"),
    (&codes::DEVICE_TWICE, "leave one of the two out, or name another device"),
    (&codes::ADDRESS_TWICE, "leave one of the two out, or give it another address"),
    (
        &codes::OVERLAP,
        "give one link another network, or a longer prefix: what is in both would have two ways",
    ),
    (
        &codes::UNUSABLE_ADDRESS,
        "take a host's unicast address, such as 192.0.2.1 or 2001:db8::1, not an unspecified, \
         loopback, multicast or broadcast one",
    ),
    (
        &codes::OWN_ADDRESS,
        "name the address of the next router, or leave `via` out and write `link = \"NAME\"`",
    ),
    (&codes::OTHER_FAMILY, "take addresses of one family, and describe the other one on its own"),
    (&codes::ROUTE_TWICE, "leave one of them out, or give it another `metric`"),
    (&codes::VLAN_TWICE, "leave one of the two links out, or give it another `vlan`"),
    (&codes::MIRROR_LOOP, "name another link in `to`"),
    (&codes::FILE_TWICE, "give each capture a file of its own"),
    (&codes::PORT_WITHOUT_PROTOCOL, "leave the port out, or take the protocol udp, tcp or sctp"),
    (&codes::LISTENER_TWICE, "give one of them another port, or another address"),
    (
        &codes::FORWARD_UNREACHABLE,
        "add a route: [[route]] with to = \"default\" and via = \"…\", or give a link an address in \
         that network",
    ),
    (
        &codes::SERIES,
        "leave one of the two out: `gatewright explain GW0153` says which go together",
    ),
    (&codes::FORWARD_LOOP, "name the address of another machine, or another port"),
    (&codes::PROGRAM_TWICE, "leave one of the two out"),
    (&codes::CAPTURE_TWICE, "give each link a file of its own to write"),
    (&codes::MULTICAST_ROUTE, "leave `via` out and write `link = \"NAME\"`"),
    (&codes::ROUTER_AUTOCONFIGURES, "leave out `autoconfigure` or `advertise`"),
    (&codes::OLD_NAME, "write only `data_cores` in [planes]"),
    (&codes::STATIC_NEIGHBOUR, "name the address of another host on that link"),
    (&codes::NEIGHBOUR_TWICE, "leave one of the two out"),
    (
        &codes::DEVICES_OVER_STACK,
        "name an address of a [link.NAME] without `exclusive = false`, or use `listen`, which is the \
         kernel's",
    ),
    (&codes::PROXY_TARGET, "leave one of the two out"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_one_help_at_most() {
        for (count, (code, _)) in USUAL.iter().enumerate() {
            assert!(
                USUAL.iter().take(count).all(|(other, _)| other.number != code.number),
                "{code}"
            );
        }
    }
}
