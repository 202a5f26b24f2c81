//! Who asks again is recognised, whatever others ask meanwhile.

use crate::bench::{Bench, config};
use core::net::IpAddr;
use core::time::Duration;
use gatewright_onem2m::{Input, Operation, Output, Request, ResourceType, Status, Token};
use proptest::prelude::*;
use std::collections::VecDeque;

/// An update that changes nothing of note.
fn update(from: &str, to: &str, id: impl core::fmt::Display) -> Request {
    Request::new(Operation::Update, to, from, id.to_string())
        .with_content(r#"{"m2m:ae":{"lbl":["x"]}}"#)
}

fn with_window(limit: usize) -> Bench {
    let mut config = config();
    config.limits.repeats = limit;
    let mut bench = Bench::with(config);
    for (from, name) in [("Ca", "a"), ("Cb", "b"), ("Cc", "c")] {
        bench.register(from, name);
    }
    // Those were requests, too.
    bench.pass(Duration::from_mins(5));
    bench
}

/// Whether a request was taken for a repetition.
fn is_known(bench: &mut Bench, request: Request) -> bool {
    let before = bench.cse.counters().repeated;
    let answer = bench.ask(request);
    assert!(answer.status.is_success(), "{answer:?}");
    bench.cse.counters().repeated > before
}

#[test]
fn a_flood_shortens_nobody_elses_window() {
    let mut bench = with_window(64);
    assert!(!is_known(&mut bench, update("Ca", "cse-in/a", "mine")));
    for number in 0..1_000 {
        assert!(!is_known(&mut bench, update("Cb", "cse-in/b", number)));
    }
    assert!(is_known(&mut bench, update("Ca", "cse-in/a", "mine")));
    assert!(is_known(&mut bench, update("Cb", "cse-in/b", 999)));
    assert!(is_known(&mut bench, update("Cb", "cse-in/b", 1_000 - 63)), "all of the rest");
    assert!(!is_known(&mut bench, update("Cb", "cse-in/b", 0)));
    // The second takes its share from who has more.
    for number in 0..32 {
        assert!(!is_known(&mut bench, update("Ca", "cse-in/a", number)));
    }
    for number in 1..32 {
        assert!(is_known(&mut bench, update("Ca", "cse-in/a", number)), "{number}");
    }
    bench.pass(Duration::from_secs(299));
    assert!(is_known(&mut bench, update("Ca", "cse-in/a", 31)));
    bench.pass(Duration::from_secs(1));
    assert!(!is_known(&mut bench, update("Ca", "cse-in/a", 31)), "five minutes after its answer");
}

/// Whoever has an address, or a network of them, can name originators as it likes.
#[test]
fn an_address_has_one_share_whatever_names_come_from_it() {
    let mut bench = with_window(64);
    let from = |address: String, request: Request| {
        let source: Option<IpAddr> = Some(address.parse().unwrap());
        Request { source, ..request }
    };
    let mine = || from("192.0.2.1".to_owned(), update("CAdmin", "cse-in/a", "mine"));
    assert!(!is_known(&mut bench, mine()));
    for number in 0..500 {
        let (name, path) = [("Cb", "cse-in/b"), ("Cc", "cse-in/c")][number % 2];
        let flood = update(name, path, number);
        is_known(&mut bench, from(format!("2001:db8::{number:x}"), flood));
    }
    assert!(is_known(&mut bench, mine()));
}

/// What waits for somebody else is answered to everybody who asked, however much came meanwhile.
#[test]
fn what_is_not_answered_is_not_forgotten() {
    let mut bench = with_window(16);
    let poa = r#"{"m2m:ae":{"poa":["http://a:1/in"],"rr":true}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a", poa).status.number(), 2004);
    let slow = |id: &str| {
        let mut request = Request::new(Operation::Notify, "cse-in/a", "CAdmin", id)
            .with_content(r#"{"m2m:sgn":{}}"#);
        request.set("rqet", "3600000").unwrap();
        request
    };
    let first = bench.ask_later(slow("slow"));
    for number in 0..200 {
        assert!(!is_known(&mut bench, update("CAdmin", "cse-in/b", number)));
    }
    let second = bench.ask_later(slow("slow"));
    bench.pass(Duration::from_mins(10));
    assert!(!is_known(&mut bench, update("CAdmin", "cse-in/b", "after")));
    let third = bench.ask_later(slow("slow"));
    let calls = bench.calls();
    assert_eq!(calls.len(), 1, "it is asked once");
    let answers = bench.reply(&calls[0], Status::Ok);
    let mut tokens: Vec<_> = answers.iter().map(|(token, _)| *token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [first, second, third]);
    // The answer is remembered from when it was given.
    bench.pass(Duration::from_secs(299));
    assert!(is_known(&mut bench, slow("slow")));
    assert!(bench.calls().is_empty());
}

const PEERS: [(&str, &str); 3] = [("Ca", "cse-in/a"), ("Cb", "cse-in/b"), ("Cc", "cse-in/c")];

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Each peer's latest are known, as many as an equal share, for five minutes and no longer;
    /// and nothing is known of which there is no room.
    #[test]
    fn each_has_its_share(
        limit in 1_usize..20,
        steps in prop::collection::vec((0_usize..3, 1_u32..30, 0_u64..90), 1..30),
    ) {
        let mut bench = with_window(limit);
        // Of each peer the number of its requests, and the times of the latest.
        let mut asked: [VecDeque<(u64, Duration)>; 3] = Default::default();
        let mut next = 0_u64;
        for (who, count, pause) in steps {
            let (from, to) = PEERS[who];
            for _ in 0..count {
                prop_assert!(!is_known(&mut bench, update(from, to, next)));
                asked[who].push_front((next, bench.now));
                next += 1;
            }
            bench.pass(Duration::from_secs(pause));
            for ((from, to), asked) in PEERS.into_iter().zip(&asked) {
                let now = bench.now;
                let young = asked.iter().filter(|(_, at)| *at + Duration::from_mins(5) > now);
                for (id, _) in young.take(limit / PEERS.len()) {
                    prop_assert!(is_known(&mut bench, update(from, to, id)), "{from} {id}");
                }
            }
            // Time and room do end.
            let (from, to) = PEERS[who];
            if let Some((id, at)) = asked[who].pop_back() {
                let old = at + Duration::from_mins(5) <= bench.now;
                let far = asked[who].len() >= limit;
                let known = is_known(&mut bench, update(from, to, id));
                prop_assert!(!(known && (old || far)), "{from} {id} is still known");
                if known { asked[who].push_back((id, at)) } else { asked[who].push_front((id, bench.now)) }
            }
        }
    }
}

/// The memory of requests is stored with what they made: a repetition after kill -9 is one, too.
#[test]
fn a_repetition_is_known_after_a_restart() {
    let mut bench = Bench::with_container();
    let make = |id: &str| {
        Request::new(Operation::Create, "cse-in/a/c", "Ca", id)
            .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{"con":"1"}}"#)
    };
    let delete = || Request::new(Operation::Delete, "cse-in/a/d", "Ca", "gone");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"d"}}"#);
    let first = bench.ask(make("once"));
    assert_eq!(first.status.number(), 2001);
    assert_eq!(bench.ask(delete()).status.number(), 2002);
    // A younger one: the first may be in the store only then.
    assert_eq!(bench.ask(make("younger")).status.number(), 2001);
    bench.restart();
    let again = bench.ask(make("once"));
    assert_eq!(again, first, "word for word");
    assert_eq!(bench.ask(delete()).status.number(), 2002);
    assert_eq!(bench.cse.counters().repeated, 2);
    assert_ne!(bench.ask(make("twice")).content, first.content);
    // What could not be stored was not done, and is not remembered.
    bench.cse.handle(bench.now, Input::Request { token: Token(900), request: make("lost") });
    while let Some(output) = bench.cse.poll_output() {
        if let Output::Store(batch) = output {
            bench.cse.handle(bench.now, Input::Failed(batch.number));
        }
    }
    bench.restart();
    assert_eq!(bench.ask(make("lost")).status.number(), 2001);
    assert_eq!(bench.cse.counters().repeated, 0);
    // After five minutes it is another request.
    bench.restart();
    bench.now += Duration::from_secs(301);
    assert_ne!(bench.ask(make("once")).content, first.content);
}
