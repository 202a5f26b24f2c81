//! Observed retrievals: what many observers cost whoever writes.

use crate::bench::Bench;
use gatewright_onem2m::{Input, Operation, Request, ResourceType, Response, Token};

/// A container that so many observe; each has its first answer.
fn observed(observers: u64) -> Bench {
    let mut bench = Bench::with_container();
    for number in 0..observers {
        let token = Token(10_000 + number);
        let request = Request::new(Operation::Retrieve, "cse-in/a/c", "Ca", format!("o{number}"));
        bench.cse.handle(bench.now, Input::Observe { token, request });
        assert_eq!(bench.run().len(), 1);
    }
    bench
}

/// Writes a reading; returns the answers of the same steps, that to the writer first.
fn write(bench: &mut Bench, name: &str) -> Vec<(Token, Response)> {
    let request = bench.request(Operation::Create, "Ca", "cse-in/a/c");
    let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"1"}}}}"#);
    let answers = bench.ask_all(request.creating(ResourceType::ContentInstance, content));
    let mine = answers.iter().find(|(token, _)| *token == Token(bench.asked));
    assert_eq!(mine.unwrap().1.status.number(), 2001);
    answers
}

/// What observers are told in steps of their own.
fn told(bench: &mut Bench) -> Vec<(Token, Response)> {
    let mut told = Vec::new();
    for _ in 0..100 {
        bench.cse.handle(bench.now, Input::Tick);
        told.extend(bench.run());
    }
    told
}

/// A write answers itself and a few of them; the others have their turn afterwards, each once.
#[test]
fn a_write_does_not_wait_for_observers() {
    let mut bench = observed(512);
    let written = write(&mut bench, "one");
    assert!((1..=20).contains(&written.len()), "{}", written.len());
    let later = told(&mut bench);
    let answers = written.iter().chain(&later).map(|(token, _)| token.0);
    let mut tokens: Vec<u64> = answers.filter(|token| *token >= 10_000).collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(10_000..10_512));
}

/// One that has not taken its last answer costs nothing; when it has, it is told the newest.
#[test]
fn an_observer_that_takes_no_answer_gets_no_further_one() {
    let mut bench = observed(1);
    assert_eq!(write(&mut bench, "one").len(), 2);
    for name in ["two", "three", "four"] {
        assert_eq!(write(&mut bench, name).len(), 1, "{name}");
        assert!(told(&mut bench).is_empty());
    }
    assert_eq!(bench.cse.counters().observed, 1);
    bench.cse.handle(bench.now, Input::ObserveNext(Token(10_000)));
    let newest = bench.run();
    let [(Token(10_000), response)] = newest.as_slice() else { panic!("{newest:?}") };
    assert!(response.content.as_ref().unwrap().contains(r#""cni":4"#), "{response:?}");
    // Without a change there is nothing to tell, however often it asks.
    for _ in 0..3 {
        bench.cse.handle(bench.now, Input::ObserveNext(Token(10_000)));
        assert!(bench.run().is_empty() && told(&mut bench).is_empty());
    }
    assert_eq!(write(&mut bench, "five").len(), 2);
}

/// Beyond the bound of one resource a retrieval is answered once; another resource has its own.
#[test]
fn a_resource_has_so_many_observers() {
    let mut bench = observed(513);
    assert!(bench.cse.is_observed(Token(10_511)) && !bench.cse.is_observed(Token(10_512)));
    assert_eq!(bench.cse.counters().observers_full, 1);
    let request = Request::new(Operation::Retrieve, "cse-in/a", "Ca", "other");
    bench.cse.handle(bench.now, Input::Observe { token: Token(20_000), request });
    assert!(bench.cse.is_observed(Token(20_000)));
    // The place of one that goes is free.
    bench.cse.handle(bench.now, Input::Unobserve(Token(10_000)));
    let request = Request::new(Operation::Retrieve, "cse-in/a/c", "Ca", "next");
    bench.cse.handle(bench.now, Input::Observe { token: Token(20_001), request });
    assert!(bench.cse.is_observed(Token(20_001)));
}
