//! What a gateway without links answers to requests about links, and what it warns of with one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail loudly")]

use gatewright_config::{Config, HandlerSpec, parse};
use gatewright_diagnostic::SourceId;
use gatewright_gateway::{
    Assembly, Gateway,
    api::{ControlRequest, answer},
};

fn handler(name: &str, at: &str) -> ControlRequest {
    let spec = HandlerSpec { handler: name.to_owned(), at: at.to_owned(), ..Default::default() };
    ControlRequest::Attach(Box::new(spec))
}

/// Whoever is refused is not sent to links that there are not, nor to an option of the command.
#[test]
fn a_gateway_without_links_says_so() {
    let gateway = Gateway::open(&Config::default(), 7, Assembly::default()).unwrap();
    let (to, via) = ("203.0.113.0/24".to_owned(), "10.1.0.2".parse().ok());
    let (address, mac) = ("10.1.0.2".parse().unwrap(), "02:00:00:00:00:77".to_owned());
    for request in [
        ControlRequest::AddRoute { to: to.clone(), via, link: None },
        ControlRequest::RemoveRoute { to },
        ControlRequest::AddNeighbour { address, mac, link: None },
        ControlRequest::RemoveNeighbour { address, link: None },
        handler("count", "ether:arp"),
        handler("drop", "ether:ipv4"),
    ] {
        let asked = format!("{request:?}");
        let refused = answer(request, &gateway).unwrap_err().error;
        assert!(refused.contains("the gateway has no links"), "{asked}: {refused}");
        assert!(!refused.contains("--") && !refused.contains("kernel"), "{asked}: {refused}");
    }
}

/// `attach` warns of what `check` warns of.
#[test]
fn an_attached_handler_that_takes_every_packet_is_warned_of() {
    let text = "[link.a]\nmode = \"segment\"\nsegment = \"radio\"\n";
    let config = parse(SourceId::default(), text).config.unwrap();
    let gateway = Gateway::open(&config, 7, Assembly::default()).unwrap();
    for (name, warned) in [("drop", "GW0177"), ("filter", "GW0146"), ("count", "")] {
        let attached = answer(handler(name, "ether:ipv4"), &gateway).unwrap();
        let warnings = attached["warnings"].as_array().unwrap();
        let first = warnings.first().map_or("", |it| it.as_str().unwrap());
        assert!(first.starts_with(warned) && first.is_empty() == warned.is_empty(), "{first}");
    }
}
