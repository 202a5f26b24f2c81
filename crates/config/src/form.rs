//! Checks whether a string has the form that its key requires: a name, an address, a position.

use crate::codes;
use crate::position::MessagePosition;
use crate::shape::{self, Findings};
pub(crate) use crate::tables::Form;
use crate::tables::Key;
use crate::values::{self, Prefix};
use gatewright_diagnostic::{Code, Diagnostic, REMOVED, nearest};
use gatewright_stack::builtin::PortRange;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// Maximum octets of a name in the description.
const NAME_LEN_MAX: usize = 32;
/// Maximum octets of a pattern of AE-IDs.
const AE_IDS_LEN_MAX: usize = 255;
/// Maximum octets of a resource's address.
pub(crate) const PLACE_LEN_MAX: usize = 255;
/// Maximum octets of an interface's name (`IFNAMSIZ` of Linux, without its zero).
const INTERFACE_LEN_MAX: usize = 15;

/// Reports errors in `text`, the value of `key`.
pub(crate) fn check(key: &Key, form: Form, text: &str, at: Range<usize>, findings: &mut Findings) {
    if is_right(form, text) {
        return;
    }
    let is_url = matches!(form, Form::Url | Form::Broker);
    let shown = if is_url { without_user(text) } else { Cow::Borrowed(text) };
    let message = format!("\"{shown}\" is not {}", wanted(form));
    let mut finding = Diagnostic::error(code(form), findings.span(at.clone()), message);
    if shown != text {
        // Between the quotes.
        finding = finding.hide(findings.span(at.start + 1..at.end.saturating_sub(1)));
    }
    let finding = finding.help(shape::usage(key));
    findings.add(explain(form, text, at, findings, finding));
}

/// What should be a URL, without user and password. It may lack the scheme, and a password may have any
/// characters.
fn without_user(text: &str) -> Cow<'_, str> {
    let (scheme, rest) = text.find("://").map_or(("", text), |at| text.split_at(at + 3));
    match rest.rsplit_once('@') {
        Some((_, place)) => format!("{scheme}{REMOVED}@{place}").into(),
        None => text.into(),
    }
}

/// Adds an explanation for this case.
fn explain(
    form: Form,
    text: &str,
    at: Range<usize>,
    findings: &Findings,
    finding: Diagnostic,
) -> Diagnostic {
    match form {
        Form::Network | Form::Destination => match Prefix::parse(text) {
            Some(prefix) => {
                let network = prefix.network();
                let (host, name) = (prefix.address(), network.address());
                let message = format!("{prefix} has a host part");
                Diagnostic { code: &codes::HOST_PART, message, help: None, ..finding }
                    .label(format!("the network of {host} is {name}"))
                    .fix(findings.span(at), format!("\"{network}\""), "write the whole network")
            }
            None => length_of_network(text, finding),
        },
        Form::AddressOfNetwork => missing_length(text, finding),
        Form::Url | Form::Broker => behind_host(form, text, at, findings, finding),
        Form::File(_) | Form::FileSetting(_) => misnamed_credential(form, text, finding),
        Form::Address if Prefix::parse(text).is_some() => {
            let address = text.split('/').next().unwrap_or_default();
            let edit = format!("\"{address}\"");
            finding.label("no prefix length here").fix(findings.span(at), edit, "leave it out")
        }
        Form::Position if MessagePosition::is_meant(text) => {
            finding.label("a position of messages is gateway:NAME/HANDLER")
        }
        Form::Position => {
            let names = values::position_names();
            let meant = nearest(text, names.iter().map(String::as_str));
            or_meant(meant, at, findings, finding, |finding| finding)
        }
        Form::Protocol => {
            let names: Vec<_> = values::protocol_names().collect();
            let listed = format!("it is a number from 0 to 255, or one of {}", names.join(", "));
            or_meant(nearest(text, names), at, findings, finding, |finding| finding.help(listed))
        }
        Form::DeviceKind => {
            let names = values::DEVICE_KINDS;
            let listed = format!("it is one of {}", names.join(", "));
            or_meant(nearest(text, names), at, findings, finding, |finding| finding.help(listed))
        }
        Form::Socket | Form::Listen if text.parse::<IpAddr>().is_ok() => {
            finding.label("the port is missing")
        }
        Form::Socket | Form::Listen => match wrong_part(text) {
            Some(why) => finding.label(why),
            None => finding,
        },
        _ => finding,
    }
}

/// The finding with the word that is likely `meant` as its fix, or as `without` makes it.
fn or_meant(
    meant: Option<&str>,
    at: Range<usize>,
    findings: &Findings,
    finding: Diagnostic,
    without: impl FnOnce(Diagnostic) -> Diagnostic,
) -> Diagnostic {
    match meant {
        Some(meant) => finding.label(format!("did you mean `{meant}`?")).fix(
            findings.span(at),
            format!("\"{meant}\""),
            "write it so",
        ),
        None => without(finding),
    }
}

/// What is wrong with `HOST:PORT` as an address with a port, if one of both is as it is to be.
fn wrong_part(text: &str) -> Option<&'static str> {
    let (host, port) = text.rsplit_once(':')?;
    let is_number = !port.is_empty() && port.chars().all(|it| it.is_ascii_digit());
    if format!("{host}:1").parse::<SocketAddr>().is_ok() {
        return match port.parse::<u16>() {
            Ok(0) => Some("port 0 is none"),
            Ok(_) => None,
            Err(_) if is_number => Some("a port is at most 65535"),
            Err(_) => Some("the port is no number"),
        };
    }
    let is_name = host.contains(|it: char| it.is_ascii_alphabetic())
        && host.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '_'));
    (is_number && is_name).then_some(match host {
        "localhost" => "a name is not taken here: the address of localhost is 127.0.0.1",
        _ => "a name is not taken here: write the address",
    })
}

/// What is wrong with a URL that would be one without what follows its host.
fn behind_host(
    form: Form,
    text: &str,
    at: Range<usize>,
    findings: &Findings,
    finding: Diagnostic,
) -> Diagnostic {
    let behind = |c: char| matches!(c, '/' | '?' | '#');
    let scheme = text.find("://").map_or(0, |at| at + 3);
    let end = text.get(scheme..).and_then(|rest| rest.find(behind)).map(|at| scheme + at);
    let Some((host, path)) = end.and_then(|end| text.split_at_checked(end)) else {
        return finding;
    };
    if !is_right(form, host) {
        return finding;
    }
    if path.contains('@') {
        let why = "in user and password `/` is written %2F, `?` %3F, `#` %23 and `@` %40";
        return finding.label(why);
    }
    let message = format!("\"{}\" has a path", without_user(text));
    let finding = Diagnostic { message, help: None, ..finding };
    let finding = finding.label(match form {
        Form::Broker => "a host and a port only: other keys say which topics",
        _ => "a host and a port only: `id` and `base` say which CSE it is",
    });
    // A fix is shown as it is.
    if host.contains('@') {
        return finding;
    }
    finding.fix(findings.span(at), format!("\"{host}\""), "leave it out")
}

/// What is wrong with the name of a credential, if the text is one.
fn misnamed_credential(form: Form, text: &str, finding: Diagnostic) -> Diagnostic {
    let setting = values::field(text).filter(|_| matches!(form, Form::FileSetting(_)));
    let file = setting.map_or_else(|| text.to_owned(), |(_, file)| file);
    if values::is_file(&file) {
        return finding;
    }
    let message = format!("\"{file}\" is not a credential: its name is not that of a file");
    Diagnostic { code: &codes::NOT_A_CREDENTIAL, message, ..finding }
        .label("a name without `/`, and neither `.` nor `..`")
        .help("the service manager puts credentials in one folder; a file elsewhere is named by its path")
}

fn missing_length(text: &str, finding: Diagnostic) -> Diagnostic {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => finding.label("the prefix length is missing, such as /24"),
        Ok(IpAddr::V6(_)) => finding.label("the prefix length is missing, such as /64"),
        Err(_) => finding,
    }
}

/// As [`missing_length`] of a network: an address that no usual length makes one is a host.
fn length_of_network(text: &str, finding: Diagnostic) -> Diagnostic {
    let is_network = |length: u8| is_right(Form::Network, &format!("{text}/{length}"));
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) if !is_network(24) => {
            finding.label("the prefix length is missing: /32 for this host alone")
        }
        Ok(IpAddr::V6(_)) if !is_network(64) => {
            finding.label("the prefix length is missing: /128 for this host alone")
        }
        _ => missing_length(text, finding),
    }
}

/// Whether the text has the form.
pub(crate) fn is_right(form: Form, text: &str) -> bool {
    let network = || Prefix::parse(text).is_some_and(|prefix| prefix.network() == prefix);
    match form {
        Form::Any(_) => !text.is_empty() && !text.contains('\0'),
        Form::File(example) => is_right(Form::Any(example), text) && values::is_file(text),
        Form::Name => is_name(text),
        Form::Interface => is_interface(text),
        Form::Address => text.parse::<IpAddr>().is_ok(),
        Form::AddressOfNetwork => Prefix::parse(text).is_some(),
        Form::Network => network(),
        Form::Destination => text == "default" || network(),
        Form::DpdkPort => values::is_dpdk_port(text),
        Form::Mac => values::mac(text).is_some(),
        Form::Position => {
            values::position(text).is_some() || MessagePosition::parse(text).is_some()
        }
        Form::Socket => socket(text),
        Form::Listen => match text.strip_prefix("unix:") {
            Some(path) => !path.is_empty() && !path.contains('\0'),
            None => socket(text),
        },
        Form::Protocol => values::protocol(text).is_some(),
        Form::Program => text.strip_suffix(".gate").is_some_and(|stem| !stem.is_empty()),
        Form::CseId => text.strip_prefix('/').is_some_and(is_name),
        Form::AeIds => is_ae_ids(text),
        Form::AeIdsOfCse => two(text).is_some_and(|(cse, ids)| is_name(cse) && is_ae_ids(ids)),
        Form::CseBeyond => {
            two(text).is_some_and(|(cse, other)| is_name(cse) && is_name(other) && cse != other)
        }
        Form::Place => is_place(text),
        Form::Url => {
            let of_cse = ["http://", "https://", "coap://", "ws://", "wss://"];
            is_url(text, &of_cse) || is_right(Form::Broker, text)
        }
        Form::Broker => is_url(text, &["mqtt://", "mqtts://"]),
        Form::SystemId => values::system_id(text).is_some(),
        Form::DeviceKind => values::DEVICE_KINDS.contains(&text),
        Form::Role => values::is_role(text),
        Form::RoleAddress => values::role_address(text).is_some(),
        Form::Field | Form::Setting(_) => values::field(text).is_some(),
        Form::FileSetting(_) => values::field(text).is_some_and(|(_, file)| values::is_file(&file)),
        Form::Ports => text.parse::<PortRange>().is_ok(),
    }
}

fn socket(text: &str) -> bool {
    text.parse::<SocketAddr>().is_ok_and(|address| address.port() != 0)
}

/// Whether the text is a scheme and an authority without a path: a path would name a resource.
fn is_url(text: &str, schemes: &[&str]) -> bool {
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
    let ends = |c: char| c == '/' || c == '?' || c == '#' || c.is_whitespace() || c.is_control();
    rest.is_some_and(|authority| !authority.is_empty() && !authority.contains(ends))
}

fn is_name(text: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=NAME_LEN_MAX).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(rest)
}

/// Whether the text is a pattern of AE-IDs (TS-0001 §7.2), parts of which may be any characters.
fn is_ae_ids(text: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || "-._~*".contains(c);
    text.len() <= AE_IDS_LEN_MAX && text.starts_with(['C', 'S']) && text.chars().all(rest)
}

/// Splits `/ONE/OTHER`.
fn two(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('/')?.split_once('/')
}

/// Whether the text is the SP-relative address of a CSEBase, or of a resource below one (TS-0001
/// §9.3.1).
fn is_place(text: &str) -> bool {
    let segment = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
    let below = |rest: &str| rest.split('/').all(|it| !it.is_empty() && it.chars().all(segment));
    text.len() <= PLACE_LEN_MAX && two(text).is_some_and(|(cse, rest)| is_name(cse) && below(rest))
}

/// Whether Linux accepts the name (`dev_valid_name`).
fn is_interface(text: &str) -> bool {
    (1..=INTERFACE_LEN_MAX).contains(&text.len())
        && !matches!(text, "." | "..")
        && !text.contains(|c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace())
}

const fn code(form: Form) -> &'static Code {
    match form {
        Form::Any(_)
        | Form::File(_)
        | Form::Name
        | Form::Interface
        | Form::AeIds
        | Form::AeIdsOfCse
        | Form::Role => &codes::BAD_NAME,
        Form::Address => &codes::NOT_AN_ADDRESS,
        Form::AddressOfNetwork | Form::Network | Form::Destination => &codes::NOT_A_PREFIX,
        Form::DpdkPort => &codes::NOT_A_DPDK_PORT,
        Form::Mac => &codes::NOT_A_MAC,
        Form::Position => &codes::NOT_A_POSITION,
        Form::Socket | Form::Listen => &codes::NOT_A_LISTENER,
        Form::Protocol | Form::DeviceKind => &codes::NOT_A_CHOICE,
        Form::Program => &codes::NOT_A_PROGRAM,
        Form::CseId | Form::CseBeyond | Form::Place => &codes::BAD_CSE_ID,
        Form::Url | Form::Broker => &codes::NOT_A_URL,
        Form::SystemId => &codes::NOT_A_SYSTEM_ID,
        Form::RoleAddress => &codes::NOT_A_ROLE_ADDRESS,
        Form::Setting(_) | Form::FileSetting(_) => &codes::NOT_A_SETTING,
        Form::Field => &codes::NOT_A_FIELD,
        Form::Ports => &codes::NOT_PORTS,
    }
}

/// The form in words, to follow "is".
pub(crate) const fn wanted(form: Form) -> &'static str {
    match form {
        Form::Any(_) | Form::File(_) => "a text that is possible here",
        Form::Name => "a name: 1 to 32 letters, digits, `-` and `_`",
        Form::Interface => "a name of an interface: 1 to 15 octets without `/`, `:` and blanks",
        Form::Address => "an IP address",
        Form::AddressOfNetwork => "an address with a prefix length",
        Form::Network => "a network",
        Form::Destination => "a network or \"default\"",
        Form::DpdkPort => {
            "a device of DPDK: `net_DRIVER` and a number, or a PCI address, and arguments"
        }
        Form::Mac => "a hardware address of a host",
        Form::Position => "a position of the graph",
        Form::Socket => "an address with a port",
        Form::Listen => "an address with a port or a Unix socket",
        Form::Protocol => "an IP protocol",
        Form::Program => "a gateway program: its name ends in .gate",
        Form::CseId => "a CSE identifier: `/` and a name",
        Form::AeIds => "an AE-ID: `C` or `S` and a name, `*` for any characters",
        Form::AeIdsOfCse => "a CSE identifier and an AE-ID, `*` in it for any characters",
        Form::CseBeyond => "two CSE identifiers, one behind the other",
        Form::Place => "an address: a CSE identifier, the name of its base, and what is below",
        Form::Url => {
            "a URL: http, https, coap, ws, wss, mqtt or mqtts, `://` and a host, with a port if need be"
        }
        Form::Broker => "a broker's URL: mqtt:// or mqtts:// and a host, with a port if need be",
        Form::SystemId => "a system-id: 16 hexadecimal digits",
        Form::DeviceKind => "a kind of devices: oximeter, scale, … or `device` for all others",
        Form::Field => "a field with its value: its name, `=`, the value",
        Form::Ports => "a port, or two with `-` between them, the lower one first",
        Form::Setting(_) | Form::FileSetting(_) => {
            "a parameter: its name, `=`, and its value or where that is"
        }
        Form::Role => "a name of a role: letters, digits and `_`",
        Form::RoleAddress => "a role's address: its name, `=`, a host and a port",
    }
}

/// An example of the form.
pub(crate) const fn example(form: Form) -> &'static str {
    match form {
        Form::Any(example)
        | Form::File(example)
        | Form::Setting(example)
        | Form::FileSetting(example) => example,
        Form::Name => "lan",
        Form::Interface => "eth0",
        Form::Address => "192.0.2.1",
        Form::AddressOfNetwork => "192.0.2.1/24",
        Form::Network | Form::Destination => "198.51.100.0/24",
        Form::DpdkPort => "net_af_packet0,iface=eth0",
        Form::Mac => "02:00:00:00:00:01",
        Form::Position => "ether:ipv4",
        Form::Socket | Form::Listen => "127.0.0.1:9464",
        Form::Protocol => "udp",
        Form::Program => "bridge.gate",
        Form::CseId => "/gateway-cse",
        Form::AeIds => "Cphd-*",
        Form::AeIdsOfCse => "/gateway-cse/Cphd-*",
        Form::CseBeyond => "/gateway-cse/ward-cse",
        Form::Place => "/central-cse/central/ward",
        Form::Url => "http://192.0.2.1:8080",
        Form::Broker => "mqtt://192.0.2.1:1883",
        Form::SystemId => "0022090000000001",
        Form::DeviceKind => "oximeter",
        Form::Field => "method=DELETE",
        Form::Ports => "1024-65535",
        Form::Role => "web",
        Form::RoleAddress => "web=192.0.2.1:8080",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_an_address_and_its_port() {
        let cases = [
            ("127.0.0.1:380800", Some("a port is at most 65535")),
            ("[::1]:70000", Some("a port is at most 65535")),
            ("127.0.0.1:0", Some("port 0 is none")),
            ("127.0.0.1:http", Some("the port is no number")),
            (
                "localhost:36024",
                Some("a name is not taken here: the address of localhost is 127.0.0.1"),
            ),
            ("ward.example.com:80", Some("a name is not taken here: write the address")),
            ("127.0.0.1", None),
            ("300.1.1.1:80", None),
            ("unix:", None),
        ];
        for (text, expected) in cases {
            assert_eq!(wrong_part(text), expected, "{text}");
        }
    }

    #[test]
    fn every_example_has_its_form() {
        for form in [
            Form::Any("x"),
            Form::File("/etc/x"),
            Form::Name,
            Form::Interface,
            Form::Address,
            Form::AddressOfNetwork,
            Form::Network,
            Form::Destination,
            Form::DpdkPort,
            Form::Mac,
            Form::Position,
            Form::Socket,
            Form::Listen,
            Form::Protocol,
            Form::Program,
            Form::CseId,
            Form::AeIds,
            Form::AeIdsOfCse,
            Form::CseBeyond,
            Form::Place,
            Form::Url,
            Form::Broker,
            Form::SystemId,
            Form::DeviceKind,
            Form::Role,
            Form::RoleAddress,
            Form::Setting("host=192.0.2.1"),
            Form::FileSetting("password=/etc/x"),
            Form::Field,
            Form::Ports,
        ] {
            assert!(is_right(form, example(form)), "{form:?}");
            assert!(!is_right(form, ""), "{form:?}");
        }
    }
}
