//! Answers that nobody has read: their octets are reserved for their peers before they are rendered,
//! as long as a copy of them is there.

use crate::bench::{Bench, config, json};
use gatewright_onem2m::{Operation, Request, ResourceType, Response, Status};
use std::net::IpAddr;

/// Octets of one instance's content.
const CONTENT: usize = 30_000;
/// Of one answer with all instances, about: more than is small.
const LARGE: usize = 4 * CONTENT;

/// A bench where one peer may have not quite three large answers unread, and all not quite five.
fn bench() -> Bench {
    let mut config = config();
    config.limits.unread_octets_per_peer = 4 * LARGE;
    config.limits.unread_octets = 6 * LARGE;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    for name in ["i", "j", "k", "l"] {
        let con = "x".repeat(CONTENT);
        let instance = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"{con}"}}}}"#);
        bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &instance);
    }
    let group = r#"{"m2m:grp":{"rn":"g","mnm":2,"mid":["cse-in/a/c","cse-in/a/c/i"]}}"#;
    let made = bench.create("Ca", "cse-in/a", ResourceType::Group, group);
    assert_eq!(made.status, Status::Created, "{made:?}");
    drop(made);
    assert_eq!(bench.cse.unread_octets().0, 0, "what was read is given back");
    bench
}

fn from(bench: &mut Bench, operation: Operation, to: &str, address: &str) -> Request {
    let source: IpAddr = address.parse().unwrap();
    let mut request = bench.request(operation, "Ca", to);
    request.source = Some(source);
    request
}

fn large(bench: &mut Bench, to: &str, address: &str) -> Response {
    let mut request = from(bench, Operation::Retrieve, to, address);
    request.result_content = Some(4);
    bench.ask(request)
}

fn is_full(response: &Response) -> bool {
    let is_full = response.status == Status::InternalServerError;
    assert_eq!(response.retry_after.is_some(), is_full, "{:?}", response.status);
    assert_eq!(response.is_unavailable, is_full);
    is_full
}

#[test]
fn a_peer_has_its_share_and_small_answers_theirs() {
    let mut bench = bench();
    let mut unread = Vec::new();
    // In every form of the address, and as members of a group.
    let forms = ["cse-in/a/c", "/id-in/cse-in/a/c", "cse-in/a/g/fopt"];
    for (address, targets) in
        [("192.0.2.1", [forms[0], forms[1]]), ("192.0.2.2", [forms[2], forms[0]])]
    {
        for to in targets {
            let answer = large(&mut bench, to, address);
            assert!(!is_full(&answer), "{:?}", json(&answer));
            unread.push(answer);
        }
        assert!(forms[..2].iter().all(|to| is_full(&large(&mut bench, to, address))));
        let small = from(&mut bench, Operation::Retrieve, "cse-in/a/c/la", address);
        assert!(!is_full(&bench.ask(small)));
    }
    assert_eq!(bench.cse.counters().answers_of_one_full, 4);
    // A fan-out whose members have no room says so of each.
    let members = json(&large(&mut bench, forms[2], "192.0.2.1"));
    let members = members["m2m:agr"]["m2m:rsp"].as_array().unwrap();
    let statuses: Vec<_> = members.iter().map(|it| it["rsc"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [5000, 2000]);
    assert!(is_full(&large(&mut bench, forms[0], "192.0.2.3")));
    assert_eq!(bench.cse.counters().answers_full, 1);
    let (now, peak) = bench.cse.unread_octets();
    assert!(now >= 4 * LARGE && peak <= 6 * LARGE, "{now} {peak}");
    // A copy counts as long as it is there, and no longer.
    let copy = unread[0].clone();
    unread.clear();
    let held = bench.cse.unread_octets().0;
    assert_eq!(held, copy.content.as_ref().unwrap().len());
    drop(copy);
    assert_eq!(bench.cse.unread_octets().0, 0);
    assert!(!is_full(&large(&mut bench, forms[0], "192.0.2.3")));
}

/// What is done is done: who has no room for the answer is told that, and no more.
#[test]
fn a_change_is_answered_without_content_where_that_has_no_room() {
    let mut bench = bench();
    let mut unread = Vec::new();
    let instance = format!(r#"{{"m2m:cin":{{"con":"{}"}}}}"#, "x".repeat(CONTENT));
    let mut create = || {
        let request = from(&mut bench, Operation::Create, "cse-in/a/c", "192.0.2.1");
        bench.ask(request.creating(ResourceType::ContentInstance, &*instance))
    };
    loop {
        let made = create();
        assert_eq!(made.status, Status::Created);
        if made.content.is_none() {
            break;
        }
        unread.push(made);
    }
    assert!(unread.len() >= 2);
    assert!(bench.cse.counters().answers_of_one_full > 0);
    unread.clear();
    assert_eq!(bench.cse.unread_octets().0, 0);
}
