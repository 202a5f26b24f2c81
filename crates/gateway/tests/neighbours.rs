//! The static neighbours of a description, over segments in memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_config::{Config, parse};
use gatewright_diagnostic::SourceId;
use gatewright_gateway::{Assembly, Gateway};
use std::fmt::Write;

fn described(neighbours: &[(&str, &str)]) -> Config {
    let mut text = "[link.lan]\nmode = \"segment\"\nsegment = \"one\"\n\
                    addresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n"
        .to_owned();
    for (address, mac) in neighbours {
        let link = if address.starts_with("fe80:") { "link = \"lan\"\n" } else { "" };
        write!(text, "[[neighbour]]\naddress = \"{address}\"\nmac = \"{mac}\"\n{link}").unwrap();
    }
    let parsed = parse(SourceId::default(), &text);
    parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
}

/// The permanent neighbours, as `gatewright neigh` lists them.
fn permanent(gateway: &Gateway) -> Vec<(String, String)> {
    let known = gateway.planes().neighbours().unwrap().into_iter();
    let known = known.filter(|one| one.state == "permanent" && one.link == "lan");
    known.map(|one| (one.address.to_string(), one.mac.unwrap())).collect()
}

const ONE: (&str, &str) = ("192.0.2.9", "02:00:00:00:00:09");
const MOVED: (&str, &str) = ("192.0.2.9", "02:00:00:00:00:0a");
const SIX: (&str, &str) = ("2001:db8::9", "02:00:00:00:00:09");
const LOCAL: (&str, &str) = ("fe80::9", "02:00:00:00:00:09");
const BY_COMMAND: (&str, &str) = ("192.0.2.8", "02:00:00:00:00:08");

/// They are there from the start, in both families, and a reload follows the description; one that a
/// command has set stays.
#[test]
fn static_neighbours_follow_the_description() {
    let owned = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(address, mac)| ((*address).to_owned(), (*mac).to_owned())).collect()
    };
    let gateway = Gateway::open(&described(&[ONE, SIX]), 7, Assembly::default()).unwrap();
    assert_eq!(permanent(&gateway), owned(&[ONE, SIX]));
    gateway.planes().add_neighbour(BY_COMMAND.0.parse().unwrap(), BY_COMMAND.1, None).unwrap();
    let changes = gateway.reload(&described(&[MOVED, SIX, LOCAL])).unwrap();
    let told: Vec<String> = changes.iter().map(|it| format!("{}: {}", it.what, it.how)).collect();
    let expected = [
        "neighbour 192.0.2.9 at 02:00:00:00:00:09 on lan: removed",
        "neighbour 192.0.2.9 at 02:00:00:00:00:0a on lan: added",
        "neighbour fe80::9 at 02:00:00:00:00:09 on lan: added",
    ];
    assert_eq!(told, expected);
    assert_eq!(permanent(&gateway), owned(&[BY_COMMAND, MOVED, SIX, LOCAL]));
    gateway.reload(&described(&[])).unwrap();
    assert_eq!(permanent(&gateway), owned(&[BY_COMMAND]));
    gateway.stop().unwrap();
}
