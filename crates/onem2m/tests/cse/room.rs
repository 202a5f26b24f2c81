//! Room: what one peer makes under any number of names counts together, and the rest stays for other
//! peers and for what the process makes itself.

use crate::bench::{Bench, config};
use gatewright_onem2m::{
    CseConfig, Input, Operation, OutboxMessage, Request, ResourceType, Response, Token,
};
use std::net::IpAddr;
use std::sync::Arc;

const STRANGER: &str = "192.0.2.7";

impl Bench {
    /// A creation from this address.
    fn create_at(
        &mut self,
        address: &str,
        (from, to): (&str, &str),
        kind: ResourceType,
        content: &str,
    ) -> u16 {
        let mut request = self.request(Operation::Create, from, to).creating(kind, content);
        request.source = address.parse::<IpAddr>().ok();
        self.ask(request).status.number()
    }

    /// A creation by the process itself.
    fn create_own(&mut self, (from, to): (&str, &str), kind: ResourceType, content: &str) -> u16 {
        let request = self.request(Operation::Create, from, to).creating(kind, content);
        self.asked += 1;
        let (token, request) = (Token(self.asked), request.into());
        let answers = self.tell(Input::Own { token, request });
        answers.first().map(|(_, answer)| answer.status.number()).unwrap()
    }

    /// What a device's association and its first reading create; the reading with its message for the
    /// CSE above.
    fn associate(&mut self, device: &str) -> Vec<u16> {
        let from = format!("C{device}");
        let ae = format!(r#"{{"m2m:ae":{{"rn":"{device}","api":"Nx","rr":false,"srv":["4"]}}}}"#);
        let mut statuses = vec![
            self.create_own((&from, "cse-in"), ResourceType::ApplicationEntity, &ae),
            self.create_own(
                (&from, &format!("cse-in/{device}")),
                ResourceType::Container,
                r#"{"m2m:cnt":{"rn":"c"}}"#,
            ),
        ];
        for number in 0..3 {
            let to = format!("cse-in/{device}/c");
            let request = Request::new(Operation::Create, to, &*from, format!("{device}{number}"))
                .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{"con":"97"}}"#);
            let request = Arc::new(request);
            self.asked += 1;
            let message = OutboxMessage {
                queue: format!("devices {device}").into(),
                target: "http://above".into(),
                request: Arc::clone(&request),
                keep: None,
                batch: None,
            };
            let (token, message) = (Token(self.asked), Box::new(message));
            let answers = self.tell(Input::AskAndPost { token, request, message });
            statuses.extend(answers.iter().map(|(_, answer)| answer.status.number()));
        }
        statuses
    }
}

fn ae(name: &str) -> String {
    format!(r#"{{"m2m:ae":{{"rn":"{name}","api":"Nx","rr":false,"srv":["4"]}}}}"#)
}

/// Registers eight AEs from one address and fills each until nothing more is taken: containers with
/// large labels, then readings. Returns the numbers of AEs and containers that were created.
fn fill(bench: &mut Bench, address: &str, prefix: &str) -> (usize, usize) {
    let large = format!(r#"{{"m2m:cnt":{{"lbl":["{}"]}}}}"#, "l".repeat(9_000));
    let (mut entities, mut containers) = (0, 0);
    for number in 0..8 {
        let (from, name) = (format!("C{prefix}{number}"), format!("{prefix}{number}"));
        let kind = ResourceType::ApplicationEntity;
        if bench.create_at(address, (&from, "cse-in"), kind, &ae(&name)) != 2001 {
            continue;
        }
        entities += 1;
        let to = format!("cse-in/{name}");
        let kind = ResourceType::Container;
        let named = r#"{"m2m:cnt":{"rn":"c"}}"#;
        let has_one = bench.create_at(address, (&from, &to), kind, named) == 2001;
        while bench.create_at(address, (&from, &to), kind, &large) == 2001 {
            containers += 1;
            assert!(containers < 1_000, "there is no bound");
        }
        for _ in 0..if has_one { 30 } else { 0 } {
            let reading = r#"{"m2m:cin":{"con":"x"}}"#;
            let to = format!("{to}/c");
            bench.create_at(address, (&from, &to), ResourceType::ContentInstance, reading);
        }
    }
    (entities, containers)
}

fn bounded(by_octets: bool) -> CseConfig {
    let mut config = config();
    let limits = &mut config.limits;
    if by_octets {
        (limits.stored_octets, limits.branch_stored_octets) = (1_200_000, 300_000);
        (limits.peer_stored_octets, limits.reserved_stored_octets) = (600_000, 300_000);
    } else {
        (limits.resources, limits.branch_resources) = (400, 100);
        (limits.peer_resources, limits.reserved_resources) = (200, 100);
    }
    config
}

/// Eight AEs of one address fill half of the room, whether resources or octets of the store bound it;
/// those of more addresses leave a quarter to the devices, over a restart too.
#[test]
fn eight_aes_of_one_address_leave_room_to_others_and_to_devices() {
    for by_octets in [false, true] {
        let mut bench = Bench::with(bounded(by_octets));
        assert!(fill(&mut bench, STRANGER, "x").1 > 0);
        assert!(bench.cse.counters().peer_full > 0);
        let full = (bench.cse.resources(), bench.cse.stored_octets_left());
        for restarts in [false, true] {
            if restarts {
                bench.restart();
            }
            assert_eq!(fill(&mut bench, STRANGER, "y").1, 0, "under more names: no more");
            let now = (bench.cse.resources(), bench.cse.stored_octets_left());
            assert!(now.0 <= full.0 + 8, "{now:?} after {full:?}");
        }
        // Another address has room, and a third as much of what is left; devices have theirs.
        assert!(fill(&mut bench, "192.0.2.8", "z").1 > 0, "{by_octets}");
        fill(&mut bench, "2001:db8:1::1", "v");
        fill(&mut bench, "2001:db8:2::1", "w");
        for device in ["d1", "d2", "d3", "d4"] {
            assert_eq!(bench.associate(device), [2001; 5], "{by_octets}: {device}");
        }
        bench.restart();
        assert_eq!(bench.associate("d5"), [2001; 5]);
        // What is deleted is room again.
        let gone = bench.get("CAdmin", "cse-in?fu=1&ty=2");
        let names = crate::bench::found(&gone);
        for name in names.iter().filter(|name| name.contains("/x")) {
            assert_eq!(bench.delete("CAdmin", name).status.number(), 2002, "{name}");
        }
        bench.asked += 1_000;
        assert!(fill(&mut bench, STRANGER, "u").1 > 0);
    }
}

/// The addresses of one /64 are one peer, and so are all originators without an address, as at a
/// broker; who poses as a device makes nothing below its AE at the device's cost.
#[test]
fn a_peer_is_what_cannot_be_chosen_freely() {
    let mut bench = Bench::with(bounded(false));
    assert_eq!(bench.associate("d1"), [2001; 5]);
    fill(&mut bench, "2001:db8::1", "x");
    assert_eq!(fill(&mut bench, "2001:db8::2", "y").1, 0);
    let mut bench = Bench::with(bounded(false));
    assert_eq!(bench.associate("d1"), [2001; 5]);
    fill(&mut bench, "", "x");
    let kind = ResourceType::Container;
    let below: Vec<u16> = (0..200)
        .map(|_| bench.create_at(STRANGER, ("Cd1", "cse-in/d1"), kind, r#"{"m2m:cnt":{}}"#))
        .collect();
    assert!(below.ends_with(&[5000]), "{below:?}");
    fill(&mut bench, "192.0.2.9", "z");
    assert_eq!(bench.associate("d2"), [2001; 5]);
}

/// A CSE that is known by its certificate registers as many AEs as the peers' part has room for.
#[test]
fn a_cse_with_a_certificate_has_no_such_bound() {
    let mut config = bounded(false);
    config.admitted_cses = vec!["/id-mn".to_owned()];
    config.sponsored_entities = vec!["C*".to_owned()];
    let mut bench = Bench::with(config);
    let register = |bench: &mut Bench, number: u32| -> Response {
        let request = bench.request(Operation::Create, &format!("Cw{number}"), "cse-in");
        let mut request =
            request.creating(ResourceType::ApplicationEntity, ae(&format!("w{number}")));
        request.source = STRANGER.parse().ok();
        request.sponsor = Some("/id-mn".into());
        bench.ask(request)
    };
    let made = (0..400).take_while(|&number| register(&mut bench, number).status.is_success());
    // All but the reserve and the CSEBase, of which that is a part.
    assert_eq!(made.count(), 300);
    assert_eq!(bench.cse.counters().peer_full, 0);
    assert_eq!(bench.associate("d1"), [2001; 5]);
}
