//! Requests answered later: non-blocking ones, and those that wait in a polling channel.

use crate::bench::{Bench, config, json};
use core::time::Duration;
use gatewright_onem2m::primitive::Deadline;
use gatewright_onem2m::{
    Input, Operation, Request, ResourceType, Response, ResponseType, Status, Token,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn create_later(bench: &mut Bench, how: ResponseType) -> Request {
    let mut request = bench
        .request(Operation::Create, "Ca", "cse-in/a/c")
        .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{"rn":"i","con":1.50}}"#);
    request.response_type = how;
    request
}

/// TS-0001 §10.2.5.3: what was asked, with all that was said beside it, and at first that it was
/// accepted.
#[test]
fn a_request_resource_says_what_was_asked() {
    let mut bench = Bench::with_container();
    let mut request = create_later(&mut bench, ResponseType::NonBlockingSynchronous);
    for (name, value) in [("vsi", "v"), ("ec", "3"), ("rcn", "2"), ("oet", "1000")] {
        request.set(name, value).unwrap();
    }
    let accepted = bench.ask(request.clone());
    let address = json(&accepted)["m2m:uri"].as_str().unwrap().to_owned();
    let kept = json(&bench.get("Ca", &address))["m2m:req"].clone();
    assert_eq!(kept["pc"], json!({"m2m:cin": {"rn": "i", "con": 1.5}}));
    assert_eq!(kept["ors"], json!({"rsc": 1001, "rqi": request.id}));
    let meta = json!({ "rvi": "4", "vsi": "v", "ec": 3, "rcn": 2, "oet": "1000", "ty": 4,
        "rt": { "rtv": 1 } });
    assert_eq!(kept["mi"], meta);
}

#[test]
fn a_result_is_kept_in_a_request_resource() {
    let mut bench = Bench::with_container();
    let request = create_later(&mut bench, ResponseType::NonBlockingSynchronous);
    let accepted = bench.ask(request);
    assert_eq!(accepted.status.number(), 1001);
    let address = json(&accepted)["m2m:uri"].as_str().unwrap().to_owned();
    let kept = json(&bench.get("Ca", &address));
    assert_eq!(kept["m2m:req"]["rs"], 1);
    assert_eq!(kept["m2m:req"]["ors"]["rsc"], 2001);
    assert_eq!(kept["m2m:req"]["ors"]["pc"]["m2m:cin"]["rn"], "i");
    assert_eq!(kept["m2m:req"]["org"], "Ca");
    assert_eq!(bench.get("Cb", &address).status.number(), 4103);
    // Asked once more, the name is taken: failed, and kept as such.
    let again = create_later(&mut bench, ResponseType::NonBlockingSynchronous);
    let accepted = bench.ask(again);
    let address = json(&accepted)["m2m:uri"].as_str().unwrap().to_owned();
    let kept = json(&bench.get("Ca", &address));
    assert_eq!((&kept["m2m:req"]["rs"], &kept["m2m:req"]["ors"]["rsc"]), (&json!(2), &json!(4105)));
    bench.pass(Duration::from_secs(601));
    assert_eq!(bench.get("Ca", &address).status.number(), 4004, "kept for a while only");
    let mut stranger = bench.request(Operation::Retrieve, "Cstranger", "cse-in");
    stranger.response_type = ResponseType::NonBlockingSynchronous;
    assert_eq!(bench.ask(stranger).status.number(), 4103, "a stranger fills nothing");
}

#[test]
fn a_result_is_notified_or_not_wanted() {
    let mut bench = Bench::with_container();
    bench.update("Ca", "cse-in/a", r#"{"m2m:ae":{"rr":true,"poa":["http://me:1"]}}"#);
    let mut request = create_later(&mut bench, ResponseType::NonBlockingAsynchronous);
    request.notify = vec!["http://me:1".to_owned()];
    assert_eq!(bench.ask(request).status.number(), 1002);
    let calls = bench.calls();
    assert_eq!(calls[0].urls, ["http://me:1"]);
    let content = calls[0].request.content.as_deref().unwrap();
    assert!(content.starts_with(r#"{"m2m:rsp":{"rsc":2001,"#), "{content}");
    assert!(content.contains("\"con\":1.50"), "{content}");
    let silent = create_later(&mut bench, ResponseType::None);
    assert_eq!(bench.ask(silent).status.number(), 1000);
    assert!(bench.calls().is_empty());
}

/// Who asks much without fetching the answers fills a quarter of the room for them and leaves the rest
/// to others; they expire, and a restart forgets none.
#[test]
fn kept_answers_are_bounded_for_one_and_for_all() {
    let mut config = config();
    config.limits.answers_kept = 8;
    let mut bench = Bench::with(config);
    let ask = |bench: &mut Bench, from: &str, kept: Option<&str>| {
        let mut request = bench.request(Operation::Retrieve, from, "cse-in/none");
        request.response_type = ResponseType::NonBlockingSynchronous;
        kept.map_or(Ok(()), |kept| request.set("rp", kept)).unwrap();
        bench.ask(request)
    };
    let status = |bench: &mut Bench, from: &str| ask(bench, from, None).status.number();
    for from in ["Ca", "Cb", "Cc", "Cd", "Ce"] {
        bench.register(from, from);
    }
    for expected in [1001, 1001, 5000] {
        assert_eq!(status(&mut bench, "Ca"), expected);
    }
    for from in ["Cb", "Cc", "Cd"] {
        assert_eq!([status(&mut bench, from), status(&mut bench, from)], [1001; 2], "{from}");
    }
    bench.restart();
    let refused = ask(&mut bench, "Ce", None);
    assert_eq!(refused.status.number(), 5000);
    assert!(refused.content.unwrap().contains("8 in all"), "with a reason");
    assert_eq!(bench.cse.counters().answers_kept_full, 1, "since the restart");
    bench.pass(Duration::from_secs(601));
    // Beyond a day nobody keeps one.
    let accepted = ask(&mut bench, "Ce", Some("31536000000"));
    let address = json(&accepted)["m2m:uri"].as_str().unwrap().to_owned();
    let expires = json(&bench.get("Ce", &address))["m2m:req"]["et"].clone();
    assert_eq!(expires, "20231115T222321,000000");
    assert_eq!(bench.delete("Ce", &address).status.number(), 2002);
    assert_eq!([status(&mut bench, "Ce"), status(&mut bench, "Ce")], [1001; 2]);
    assert_eq!([status(&mut bench, "Ca"), status(&mut bench, "Ce")], [1001, 5000]);
}

/// An answer takes the places that it needs; one without room is said to have failed.
#[test]
fn an_answer_that_is_too_large_is_not_kept() {
    let mut config = config();
    config.limits.answers_kept = 40;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    bench.reading("small", &"x".repeat(4_000));
    bench.reading("large", &"x".repeat(40_000));
    for (name, state, status) in [("small", 1, 2000), ("large", 2, 5000), ("small", 1, 2000)] {
        let mut request = bench.request(Operation::Retrieve, "Ca", &format!("cse-in/a/c/{name}"));
        request.response_type = ResponseType::NonBlockingSynchronous;
        let accepted = bench.ask(request);
        assert_eq!(accepted.status.number(), 1001);
        let address = json(&accepted)["m2m:uri"].as_str().unwrap().to_owned();
        let kept = &json(&bench.get("Ca", &address))["m2m:req"];
        assert_eq!((&kept["rs"], &kept["ors"]["rsc"]), (&json!(state), &json!(status)), "{name}");
    }
    assert_eq!(bench.cse.counters().answers_kept_full, 1);
}

/// With the name of the CSE it would reach whomever its originator may not (TS-0001 §8.1.2).
#[test]
fn a_result_goes_to_its_originator_or_whom_that_may_notify() {
    let mut bench = Bench::with_container();
    let reach = |url: &str| format!(r#"{{"m2m:ae":{{"rr":true,"poa":["{url}"]}}}}"#);
    bench.update("Ca", "cse-in/a", &reach("http://me:1"));
    bench.register("Cv", "v");
    bench.update("Cv", "cse-in/v", &reach("http://victim:1"));
    let ask = |bench: &mut Bench, target: &str| {
        let mut request = bench.request(Operation::Retrieve, "Ca", "cse-in/a/c");
        request.response_type = ResponseType::NonBlockingAsynchronous;
        request.notify = vec!["Ca".to_owned(), target.to_owned()];
        bench.ask(request).status.number()
    };
    for target in [
        "http://192.0.2.1/admin",
        "http://victim:1",
        "http://me:1/elsewhere",
        "Cv",
        "cse-in/v",
        "/id-in/Cv",
        "/id-mn/Cx",
        "//elsewhere.example/id-x/Cx",
        "cse-in",
        "nothing",
        "",
    ] {
        assert_eq!(ask(&mut bench, target), 4103, "{target}");
    }
    assert!(bench.calls().is_empty());
    for target in ["http://me:1", "Ca", "/id-in/Ca", "cse-in/a"] {
        assert_eq!(ask(&mut bench, target), 1002, "{target}");
        for call in bench.calls() {
            assert_eq!(call.urls, ["http://me:1"]);
            bench.reply(&call, Status::Ok);
        }
    }
    // Whoever lets it be told, is.
    let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["Ca"],"acop":16}]},
        "pvs":{"acr":[{"acor":["Cv"],"acop":63}]}}}"#;
    let made = bench.create("Cv", "cse-in/v", ResourceType::AccessControlPolicy, policy);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    bench.update("Cv", "cse-in/v", r#"{"m2m:ae":{"acpi":["cse-in/v/p"]}}"#);
    assert_eq!(ask(&mut bench, "Cv"), 1002);
}

/// The requests whose failure `Ca` is told of, in their order; it takes all that it is told.
fn failures_told(bench: &mut Bench) -> Vec<String> {
    let mut heard = Vec::new();
    loop {
        let calls = bench.calls();
        if calls.is_empty() {
            heard.sort_unstable();
            return heard;
        }
        for call in calls {
            assert_eq!(call.urls, ["http://a:1"]);
            let said: Value =
                serde_json::from_str(call.request.content.as_deref().unwrap()).unwrap();
            assert_eq!(said["m2m:rsp"]["rsc"], 5000);
            heard.push(said["m2m:rsp"]["rqi"].as_str().unwrap().to_owned());
            bench.reply(&call, Status::Ok);
        }
    }
}

/// What was accepted and not done when the process ended is said to have failed, instead of being
/// waited for until it expires (m2m:requestStatus).
#[test]
fn a_request_that_a_restart_ends_has_failed() {
    let mut bench = Bench::with_container();
    bench.update("Ca", "cse-in/a", r#"{"m2m:ae":{"rr":true,"poa":["http://a:1"]}}"#);
    bench.register("Cb", "b");
    bench.update("Cb", "cse-in/b", r#"{"m2m:ae":{"rr":true,"poa":["http://b:1"]}}"#);
    let all = r#"{"m2m:acp":{"rn":"all","pv":{"acr":[{"acor":["all"],"acop":16}]},
        "pvs":{"acr":[{"acor":["Cb"],"acop":63}]}}}"#;
    assert_eq!(
        bench.create("Cb", "cse-in/b", ResourceType::AccessControlPolicy, all).status.number(),
        2001
    );
    bench.update("Cb", "cse-in/b", r#"{"m2m:ae":{"acpi":["cse-in/b/all"]}}"#);
    let ask = |bench: &mut Bench, how, notify: &[&str], wait| {
        let mut request = bench.request(Operation::Notify, "Ca", "cse-in/b");
        request.content = Some(format!("{{\"number\":{}}}", bench.asked).into());
        request.response_type = how;
        request.notify = notify.iter().map(|&it| it.to_owned()).collect();
        request.executes = wait;
        let (id, accepted) = (request.id.clone(), bench.ask(request));
        (id, json(&accepted)["m2m:uri"].as_str().unwrap().to_owned())
    };
    let (asked, told) =
        (ResponseType::NonBlockingSynchronous, ResponseType::NonBlockingAsynchronous);
    let hour = Some(Deadline::After(Duration::from_hours(1)));
    let kept = ask(&mut bench, asked, &[], None);
    let originator = ask(&mut bench, told, &[], None);
    let named = ask(&mut bench, told, &["http://a:1"], None);
    let waiting = ask(&mut bench, told, &["http://a:1"], hour);
    let done = {
        let request = create_later(&mut bench, asked);
        json(&bench.ask(request))["m2m:uri"].as_str().unwrap().to_owned()
    };
    let state = |bench: &mut Bench, at: &str| json(&bench.get("Ca", at))["m2m:req"].clone();
    for (_, at) in [&kept, &originator, &named, &waiting] {
        assert_eq!(state(&mut bench, at)["rs"], 3);
    }
    assert_eq!(bench.calls().len(), 3);
    let before = state(&mut bench, &done);
    bench.cse = bench.reopened();
    bench.run();
    for (id, at) in [&kept, &originator, &named] {
        let failed = state(&mut bench, at);
        assert_eq!((&failed["rs"], &failed["ors"]["rsc"]), (&json!(2), &json!(5000)), "{failed}");
        assert_eq!(failed["ors"]["rqi"], *id);
    }
    assert_eq!(state(&mut bench, &waiting.1)["rs"], 3, "it is done when its time comes");
    assert_eq!(state(&mut bench, &done), before);
    // Who wanted to be told is, of each.
    let mut expected = [originator.0, named.0];
    expected.sort_unstable();
    assert_eq!(failures_told(&mut bench), expected);
    // Once: the next start finds nothing to be said.
    bench.pass(Duration::from_millis(100));
    bench.cse = bench.reopened();
    bench.run();
    assert!(bench.calls().is_empty());
    bench.pass(Duration::from_hours(1));
    assert_eq!(bench.calls().len(), 1);
}

/// An AE `Cp` without point of access, with a polling channel.
fn with_channel() -> Bench {
    let mut bench = Bench::with_container();
    bench.register("Cp", "p");
    let channel = r#"{"m2m:pch":{"rn":"ch"}}"#;
    let foreign = bench.create("CAdmin", "cse-in/p", ResourceType::PollingChannel, channel);
    assert_eq!(foreign.status.number(), 4103);
    let made = bench.create("Cp", "cse-in/p", ResourceType::PollingChannel, channel);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    let second = r#"{"m2m:pch":{"rn":"other"}}"#;
    let second = bench.create("Cp", "cse-in/p", ResourceType::PollingChannel, second);
    assert_eq!(second.status.number(), 4105);
    bench
}

fn answer(bench: &mut Bench, rqi: &str) -> u16 {
    let content = format!(r#"{{"m2m:rsp":{{"rsc":2000,"rqi":"{rqi}"}}}}"#);
    let request = bench.request(Operation::Notify, "Cp", "cse-in/p/ch/pcu").with_content(content);
    bench.asked += 1;
    let token = Token(bench.asked);
    bench.cse.handle(bench.now, Input::Request { token, request });
    let answers = bench.run();
    answers.iter().find(|(to, _)| *to == token).unwrap().1.status.number()
}

#[test]
fn an_entity_fetches_its_notifications() {
    let mut bench = with_channel();
    // The subscriber is Ca, so Cp is asked first: through its channel.
    let sub = r#"{"m2m:sub":{"rn":"s","nu":["Cp"],"enc":{"net":[3]}}}"#;
    let request = bench
        .request(Operation::Create, "Ca", "cse-in/a/c")
        .creating(ResourceType::Subscription, sub);
    bench.ask_later(request);
    assert!(bench.calls().is_empty(), "nothing goes out by itself");
    let fetched = json(&bench.get("Cp", "cse-in/p/ch/pcu"));
    assert_eq!(fetched["m2m:rqp"]["pc"]["m2m:sgn"]["vrq"], true);
    let rqi = fetched["m2m:rqp"]["rqi"].as_str().unwrap().to_owned();
    assert_eq!(answer(&mut bench, &rqi), 2000);
    assert_eq!(answer(&mut bench, &rqi), 4000, "answered once");
    assert_eq!(bench.get("Ca", "cse-in/a/c/s").status.number(), 2000);
    // A poller that waits gets the next one as soon as it exists.
    let poll = bench.request(Operation::Retrieve, "Cp", "cse-in/p/ch/pcu");
    let token = bench.ask_later(poll);
    bench.asked += 1;
    let reading = Request::new(Operation::Create, "cse-in/a/c", "Ca", "reading")
        .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{"rn":"one","con":9.50}}"#);
    bench.cse.handle(bench.now, Input::Request { token: Token(bench.asked), request: reading });
    let answers = bench.run();
    let polled = &answers.iter().find(|(to, _)| *to == token).unwrap().1;
    assert!(polled.content.as_deref().unwrap().contains("\"con\":9.50"), "{polled:?}");
    let polled: Value = json(polled);
    let rqi = polled["m2m:rqp"]["rqi"].as_str().unwrap().to_owned();
    assert_eq!(answer(&mut bench, &rqi), 2000);
    assert_eq!(bench.cse.messages_waiting(), 0, "delivered");
}

/// requestAggregation (rqag), as acmecse has it: all that waits comes at once, each with an answer of
/// its own; what a poller was given that is gone waits again.
#[test]
fn an_aggregating_channel_gives_all_that_waits() {
    let mut bench = with_channel();
    bench.update("Cp", "cse-in/p/ch", r#"{"m2m:pch":{"rqag":true}}"#);
    let notify = |bench: &mut Bench, number: usize| {
        let content = json!({ "number": number }).to_string();
        let request = Request::new(Operation::Notify, "cse-in/p", "CAdmin", number.to_string());
        bench.ask_later(request.with_content(content))
    };
    let tokens: Vec<Token> = (0..3).map(|number| notify(&mut bench, number)).collect();
    let polled = bench.get("Cp", "cse-in/p/ch/pcu");
    let list = json(&polled)["m2m:agrp"].as_array().unwrap().clone();
    let numbers: Vec<&Value> = list.iter().map(|request| &request["pc"]["number"]).collect();
    assert_eq!(numbers, [0, 1, 2]);
    bench.cse.handle(bench.now, Input::Unheard(Token(bench.asked)));
    bench.run();
    assert_eq!(json(&bench.get("Cp", "cse-in/p/ch/pcu")), json(&polled), "once more");
    for (token, request) in tokens.iter().zip(&list) {
        let rqi = request["rqi"].as_str().unwrap();
        let content = json!({ "m2m:rsp": { "rsc": 2000, "rqi": rqi } }).to_string();
        let request = bench.request(Operation::Notify, "Cp", "cse-in/p/ch/pcu");
        let answers = bench.ask_all(request.with_content(content));
        assert!(answers.iter().any(|(to, answer)| to == token && answer.status == Status::Ok));
    }
    // Who waits gets a list of one.
    let poll = bench.request(Operation::Retrieve, "Cp", "cse-in/p/ch/pcu");
    let token = bench.ask_later(poll);
    let request = Request::new(Operation::Notify, "cse-in/p", "CAdmin", "one more");
    let answers = bench.ask_all(request.with_content(r#"{"number":3}"#));
    let (_, polled) = answers.iter().find(|(to, _)| *to == token).unwrap();
    assert_eq!(json(polled)["m2m:agrp"].as_array().unwrap().len(), 1);
}

/// Each of two originators calls its request 1, and gets the answer to its own (TS-0004 §6.4.1: a
/// request identifier is its originator's).
#[test]
fn equal_request_identifiers_of_two_are_told_apart() {
    let mut bench = with_channel();
    let policy = r#"{"m2m:acp":{"rn":"all","pv":{"acr":[{"acor":["all"],"acop":16}]},
        "pvs":{"acr":[{"acor":["Cp"],"acop":63}]}}}"#;
    bench.create("Cp", "cse-in/p", ResourceType::AccessControlPolicy, policy);
    bench.update("Cp", "cse-in/p", r#"{"m2m:ae":{"acpi":["cse-in/p/all"]}}"#);
    let ask = |bench: &mut Bench, from: &str| {
        let content = format!(r#"{{"from":"{from}"}}"#);
        let request = Request::new(Operation::Notify, "cse-in/p", from, "1").with_content(content);
        bench.ask_later(request)
    };
    let first = ask(&mut bench, "CAdmin");
    let second = ask(&mut bench, "Ca");
    let mut fetched = Vec::new();
    for _ in 0..2 {
        let request = json(&bench.get("Cp", "cse-in/p/ch/pcu"));
        let text = |name: &str| request["m2m:rqp"][name].as_str().unwrap().to_owned();
        fetched.push((text("rqi"), text("fr"), request["m2m:rqp"]["pc"]["from"].clone()));
    }
    assert_ne!(fetched[0].0, fetched[1].0);
    // The later one is answered first, and each answer says whose it is.
    for (token, (rqi, from, said)) in [second, first].into_iter().zip(fetched.into_iter().rev()) {
        assert_eq!(from, said.as_str().unwrap());
        let content = json!({ "m2m:rsp": { "rsc": 2000, "rqi": rqi, "pc": { "to": from } } });
        let request = bench.request(Operation::Notify, "Cp", "cse-in/p/ch/pcu");
        let request = request.with_content(content.to_string());
        bench.asked += 1;
        bench.cse.handle(bench.now, Input::Request { token: Token(bench.asked), request });
        let answers = bench.run();
        let (_, answer) = answers.iter().find(|(to, _)| *to == token).unwrap();
        assert_eq!((&*answer.id, answer.status), ("1", Status::Ok), "its own identifier again");
        assert_eq!(json(answer)["to"], from);
    }
}

#[test]
fn polling_ends_when_its_time_is_up_and_is_nobody_elses() {
    let mut bench = with_channel();
    assert_eq!(bench.get("Ca", "cse-in/p/ch/pcu").status.number(), 4103);
    let mut poll = bench.request(Operation::Retrieve, "Cp", "cse-in/p/ch/pcu");
    poll.request_expires = Some(Deadline::After(Duration::from_secs(3)));
    let token = bench.ask_later(poll);
    assert!(bench.cse.poll_timeout().is_some_and(|due| due <= bench.now + Duration::from_secs(3)));
    bench.now += Duration::from_secs(3);
    bench.cse.handle(bench.now, Input::Tick);
    let answers = bench.run();
    assert_eq!((answers[0].0, answers[0].1.status), (token, Status::RequestTimeout));
    let waiting = bench.request(Operation::Retrieve, "Cp", "cse-in/p/ch/pcu");
    let token = bench.ask_later(waiting);
    let delete = Request::new(Operation::Delete, "cse-in/p/ch", "Cp", "d");
    bench.cse.handle(bench.now, Input::Request { token: Token(999), request: delete });
    let answers = bench.run();
    let released = answers.iter().find(|(to, _)| *to == token).unwrap();
    assert_eq!(released.1.status, Status::NotFound, "the channel is gone");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Each poller hears when its own time is up that there is nothing, whoever came before it.
    #[test]
    fn pollers_end_in_order_of_their_deadlines(
        polls in prop::collection::vec((prop::option::of(1_u64..9_000), 0_u64..500), 1..20),
    ) {
        let mut bench = with_channel();
        let mut expected = Vec::new();
        let mut ended = Vec::new();
        for (span, pause) in polls {
            let mut poll = bench.request(Operation::Retrieve, "Cp", "cse-in/p/ch/pcu");
            poll.request_expires = span.map(|span| Deadline::After(Duration::from_millis(span)));
            let token = bench.ask_later(poll);
            // Who does not say how long is answered within ten seconds.
            expected.push((bench.now + Duration::from_millis(span.unwrap_or(10_000)), token));
            wait(&mut bench, Duration::from_millis(pause), &mut ended);
        }
        wait(&mut bench, Duration::from_secs(11), &mut ended);
        expected.sort_unstable();
        prop_assert_eq!(ended, expected);
    }
}

/// Lets time pass from one point that is due to the next; who is told when that there is nothing.
fn wait(bench: &mut Bench, span: Duration, ended: &mut Vec<(Duration, Token)>) {
    let end = bench.now + span;
    while bench.now < end {
        bench.now = bench.cse.poll_timeout().map_or(end, |due| due.clamp(bench.now, end));
        bench.cse.handle(bench.now, Input::Tick);
        for (token, response) in bench.run() {
            assert_eq!(response.status, Status::RequestTimeout);
            ended.push((bench.now, token));
        }
    }
}

#[test]
fn a_request_goes_to_the_poller_that_would_be_the_first_to_go_without() {
    let mut bench = with_channel();
    let poll = |bench: &mut Bench, span: u64| {
        let mut poll = bench.request(Operation::Retrieve, "Cp", "cse-in/p/ch/pcu");
        poll.request_expires = Some(Deadline::After(Duration::from_secs(span)));
        bench.ask_later(poll)
    };
    let patient = poll(&mut bench, 9);
    let hasty = poll(&mut bench, 2);
    for (id, expected) in [("1", hasty), ("2", patient)] {
        let request = Request::new(Operation::Notify, "cse-in/p", "CAdmin", id)
            .with_content(r#"{"m2m:sgn":{}}"#);
        let answers = bench.ask_all(request);
        assert_eq!(answers.len(), 1);
        assert_eq!((answers[0].0, answers[0].1.status), (expected, Status::Ok));
    }
}

/// A poller that is gone takes nothing with it: what it was given is the next thing to be fetched.
#[test]
fn what_a_gone_poller_was_given_is_the_next_ones() {
    let mut bench = with_channel();
    let poll = |bench: &mut Bench| {
        let poll = bench.request(Operation::Retrieve, "Cp", "cse-in/p/ch/pcu");
        bench.ask_later(poll)
    };
    let (gone, also_gone, there) = (poll(&mut bench), poll(&mut bench), poll(&mut bench));
    let say = |bench: &mut Bench, id: &str| {
        let request = Request::new(Operation::Notify, "cse-in/p", "CAdmin", id)
            .with_content(format!(r#"{{"said":"{id}"}}"#));
        bench.ask_all(request)
    };
    let said = |answer: &Response| json(answer)["m2m:rqp"]["pc"]["said"].clone();
    let mut answers = say(&mut bench, "1");
    for token in [gone, also_gone, there] {
        assert_eq!((answers.len(), answers[0].0), (1, token));
        assert_eq!(said(&answers[0].1), "1");
        bench.cse.handle(bench.now, Input::Unheard(token));
        answers = bench.run();
    }
    assert!(answers.is_empty());
    // Nobody polls now: it stands before what comes later.
    assert!(say(&mut bench, "2").is_empty());
    let first = bench.get("Cp", "cse-in/p/ch/pcu");
    assert_eq!(said(&first), "1");
    let rqi = json(&first)["m2m:rqp"]["rqi"].as_str().unwrap().to_owned();
    assert_eq!(answer(&mut bench, &rqi), 2000);
    // What was answered, or is nobody's, comes back for nobody.
    for token in [gone, Token(bench.asked), Token(u64::MAX)] {
        bench.cse.handle(bench.now, Input::Unheard(token));
    }
    assert_eq!(said(&bench.get("Cp", "cse-in/p/ch/pcu")), "2");
    let nothing = poll(&mut bench);
    assert!(nothing > there);
}
