//! Walks over the tree go on in slices: nobody waits for one longer than a slice, and each finds what
//! was there all the time.

use crate::bench::{Bench, START, config, found, json};
use core::time::Duration;
use gatewright_onem2m::{Input, Now, Operation, Output, Request, ResourceType, Response, Token};

/// A bench with a container of so many instances, and slices of so many steps.
fn bench(instances: usize, slice: u64) -> Bench {
    let mut config = config();
    config.limits.slice_steps = slice;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    for number in 0..instances {
        let label = if number % 10 == 0 { r#","lbl":["ten"]"# } else { "" };
        let content = format!(r#"{{"m2m:cin":{{"rn":"i{number}","con":"{number}"{label}}}}}"#);
        let made = bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &content);
        assert_eq!(made.status.number(), 2001);
    }
    bench
}

fn walk(to: &str, id: &str, pairs: &[(&str, &str)]) -> Request {
    let mut request = Request::new(Operation::Retrieve, to, "Ca", id);
    for (name, value) in pairs {
        request.set(name, value).unwrap();
    }
    request
}

fn ask(bench: &mut Bench, token: u64, request: Request) -> Vec<(Token, Response)> {
    bench.cse.handle(bench.now, Input::Request { token: Token(token), request });
    bench.run()
}

/// Ticks as often as the machine wants; the answers, and how many ticks.
fn tick(bench: &mut Bench) -> (Vec<(Token, Response)>, usize) {
    let (mut answers, mut ticks) = (Vec::new(), 0);
    while bench.cse.poll_timeout().is_some_and(|due| due <= bench.now) {
        bench.cse.handle(bench.now, Input::Tick);
        answers.extend(bench.run());
        ticks += 1;
        assert!(ticks < 100_000, "it does not end");
    }
    (answers, ticks)
}

#[test]
fn slices_give_what_one_walk_gives() {
    for pairs in [
        &[("fu", "1")][..],
        &[("fu", "1"), ("lbl", "ten")],
        &[("fu", "1"), ("atr", "rn,i1*"), ("lim", "7"), ("ofst", "3")],
        &[("rcn", "4")],
        &[("rcn", "8"), ("ty", "4")],
        &[("rcn", "5"), ("lim", "5")],
    ] {
        let mut whole = bench(120, u64::MAX);
        let expected = ask(&mut whole, 1_000, walk("cse-in/a", "w", pairs)).pop().unwrap().1;
        for slice in [1, 40, 1_000] {
            let mut sliced = bench(120, slice);
            let mut answers = ask(&mut sliced, 1_000, walk("cse-in/a", "w", pairs));
            let (later, ticks) = tick(&mut sliced);
            answers.extend(later);
            assert!(slice > 1 || ticks > 1 || pairs[0].1 == "8", "{pairs:?}");
            let [(Token(1_000), answer)] = answers.as_slice() else { panic!("{answers:?}") };
            assert_eq!(answer.content, expected.content, "{pairs:?} in slices of {slice}");
            assert_eq!(answer.cut_at(), expected.cut_at());
        }
    }
}

/// Between two slices others are answered, and what they make or delete confuses no walk: what was
/// there all the time is found once.
#[test]
fn others_are_served_meanwhile() {
    let mut bench = bench(200, 1_000);
    assert!(ask(&mut bench, 1_000, walk("cse-in", "w", &[("fu", "1"), ("ty", "4")])).is_empty());
    let mut answers = Vec::new();
    for number in 0..200_u64 {
        bench.cse.handle(bench.now, Input::Tick);
        answers.extend(bench.run());
        if number % 2 == 0 {
            let content = format!(r#"{{"m2m:cin":{{"rn":"n{number}","con":"x"}}}}"#);
            let id = format!("n{number}");
            let request = Request::new(Operation::Create, "cse-in/a/c", "Ca", id);
            let made =
                ask(&mut bench, number, request.creating(ResourceType::ContentInstance, content));
            assert_eq!(made[0].1.status.number(), 2001, "at once");
            let gone = format!("cse-in/a/c/i{number}");
            let deleted = ask(&mut bench, number, Request::new(Operation::Delete, gone, "Ca", "d"));
            assert_eq!(deleted[0].1.status.number(), 2002);
        }
    }
    let [(Token(1_000), answer)] = answers.as_slice() else { panic!("{}", answers.len()) };
    let list = json(answer)["m2m:uril"].clone();
    let found: Vec<&str> = list.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    for number in (1..200).step_by(2) {
        let name = format!("cse-in/a/c/i{number}");
        assert_eq!(found.iter().filter(|it| **it == name).count(), 1, "{name}");
    }
}

#[test]
fn walks_are_bounded_and_their_originators_share() {
    let mut config = config();
    config.limits.slice_steps = 1;
    config.limits.searches = 8;
    config.limits.filter_steps = 3_000;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    for name in 0..20 {
        let content = format!(r#"{{"m2m:cnt":{{"rn":"c{name}"}}}}"#);
        bench.create("Ca", "cse-in/a", ResourceType::Container, &content);
    }
    for token in 1_000..1_002 {
        assert!(ask(&mut bench, token, walk("cse-in/a", "w", &[("fu", "1")])).is_empty());
    }
    let refused = ask(&mut bench, 1_002, walk("cse-in/a", "w", &[("fu", "1")]));
    assert_eq!(refused[0].1.status.number(), 5207);
    assert_eq!(bench.cse.counters().searches_full, 1);
    assert_eq!(tick(&mut bench).0.len(), 2);
    // One that costs more than a request may is refused, however it is cut.
    for name in 20..80 {
        let content = format!(r#"{{"m2m:cnt":{{"rn":"c{name}"}}}}"#);
        bench.create("Ca", "cse-in/a", ResourceType::Container, &content);
    }
    assert!(ask(&mut bench, 1_003, walk("cse-in/a", "w", &[("fu", "1")])).is_empty());
    let (answers, _) = tick(&mut bench);
    assert_eq!(answers[0].1.status.number(), 5207);
    // Its target goes meanwhile.
    assert!(ask(&mut bench, 1_004, walk("cse-in/a/c1", "w", &[("rcn", "4")])).is_empty());
    ask(&mut bench, 1_005, Request::new(Operation::Delete, "cse-in/a/c1", "Ca", "d"));
    assert_eq!(tick(&mut bench).0[0].1.status.number(), 4004);
}

#[test]
fn answers_of_members_come_in_slices_too() {
    let mut bench = bench(60, 500);
    let group = r#"{"m2m:grp":{"rn":"g","mnm":5,"mid":["cse-in/a/c","cse-in/a"]}}"#;
    assert_eq!(bench.create("Ca", "cse-in/a", ResourceType::Group, group).status.number(), 2001);
    assert!(ask(&mut bench, 1_000, walk("cse-in/a/g/fopt", "w", &[("rcn", "4")])).is_empty());
    let (answers, _) = tick(&mut bench);
    let answer = json(&answers[0].1);
    assert_eq!(answer["m2m:agr"]["m2m:rsp"].as_array().unwrap().len(), 2);
    assert_eq!(
        answer["m2m:agr"]["m2m:rsp"][0]["pc"]["m2m:cnt"]["m2m:cin"].as_array().unwrap().len(),
        60
    );
}

#[test]
fn octets_of_an_answer_are_bounded_and_the_cut_is_told() {
    let mut config = config();
    config.limits.answer_octets = 2_000;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    for number in 0..10 {
        let content = format!(r#"{{"m2m:cin":{{"rn":"i{number}","con":"{}"}}}}"#, "x".repeat(300));
        bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &content);
    }
    let (mut all, mut from) = (Vec::new(), 1);
    loop {
        let offset = from.to_string();
        let page = walk("cse-in/a/c", &offset, &[("rcn", "4"), ("ofst", &offset)]);
        let answer = bench.ask(page);
        let list = json(&answer)["m2m:cnt"]["m2m:cin"].as_array().cloned().unwrap_or_default();
        assert!(list.len() <= 4, "{}", list.len());
        all.extend(list.iter().map(|it| it["rn"].as_str().unwrap().to_owned()));
        let Some(cut_at) = answer.cut_at() else { break };
        from = cut_at + 1;
    }
    assert_eq!(all, (0..10).map(|number| format!("i{number}")).collect::<Vec<_>>());
    // A group's members say no more together.
    let group = r#"{"m2m:grp":{"rn":"g","mnm":9,"mid":["cse-in/a/c/i1","cse-in/a/c/i2","cse-in/a/c/i3","cse-in/a/c/i4","cse-in/a/c/i5"]}}"#;
    assert_eq!(bench.create("Ca", "cse-in/a", ResourceType::Group, group).status.number(), 2001);
    let answer = json(&bench.get("Ca", "cse-in/a/g/fopt"));
    let codes: Vec<_> = answer["m2m:agr"]["m2m:rsp"].as_array().unwrap().iter().collect();
    assert_eq!(codes.iter().filter(|it| it["rsc"] == 2000).count(), 4);
    assert_eq!(codes.iter().filter(|it| it["rsc"] == 5207).count(), 1);
}

/// On a full disk what is due to expire is tried less and less often, and all else goes on.
#[test]
fn an_expiry_that_cannot_be_stored_waits() {
    let mut bench = bench(1, u64::MAX);
    let content = r#"{"m2m:cnt":{"rn":"e","et":"20231114T221330"}}"#;
    bench.create("Ca", "cse-in/a", ResourceType::Container, content);
    bench.now += Duration::from_secs(11);
    let mut failures = 0;
    for _ in 0..600 {
        bench.cse.handle(bench.now, Input::Tick);
        while let Some(output) = bench.cse.poll_output() {
            if let Output::Store(batch) = output {
                failures += 1;
                bench.cse.handle(bench.now, Input::Failed(batch.number));
            }
        }
        bench.now += Duration::from_millis(100);
    }
    assert!((3..=8).contains(&failures), "{failures} in a minute");
    // What makes room is stored meanwhile, and the next expiry with it, when its time has come.
    let deleted = bench.ask(Request::new(Operation::Delete, "cse-in/a/c", "Ca", "d"));
    assert_eq!(deleted.status.number(), 2002);
    bench.now += Duration::from_mins(2);
    bench.cse.handle(bench.now, Input::Tick);
    bench.run();
    assert_eq!(bench.get("Ca", "cse-in/a/e").status.number(), 4004);
}

/// Resources with a label are looked up; other criteria beside it, levels, pages and the order are as
/// in a walk, which `fo=2` (or) takes here.
#[test]
fn labels_are_looked_up_in_the_order_of_a_walk() {
    let mut bench = bench(0, u64::MAX);
    let mut labelled = 0;
    for outer in 0..5 {
        let label =
            |number: usize| if number.is_multiple_of(3) { r#","lbl":["x","y"]"# } else { "" };
        let content = format!(r#"{{"m2m:cnt":{{"rn":"o{outer}"{}}}}}"#, label(outer));
        bench.create("Ca", "cse-in/a/c", ResourceType::Container, &content);
        for inner in 0..6 {
            let (resource_type, tag) = if inner % 2 == 0 {
                (ResourceType::ContentInstance, "cin")
            } else {
                (ResourceType::Container, "cnt")
            };
            let content = format!(r#"{{"m2m:{tag}":{{"rn":"i{inner}"{}}}}}"#, label(inner + outer));
            let made = bench.create("Ca", &format!("cse-in/a/c/o{outer}"), resource_type, &content);
            assert_eq!(made.status.number(), 2001);
            labelled += usize::from((inner + outer) % 3 == 0);
        }
        labelled += usize::from(outer % 3 == 0);
    }
    // A label that is taken away, one that is given, and a resource that goes.
    bench.update("Ca", "cse-in/a/c/o0", r#"{"m2m:cnt":{"lbl":null}}"#);
    bench.update("Ca", "cse-in/a/c/o1", r#"{"m2m:cnt":{"lbl":["x"]}}"#);
    bench.delete("Ca", "cse-in/a/c/o3/i0");
    let mut reopened = Bench::with(bench.cse.config().clone());
    reopened.cse = bench.reopened();
    let whole = found(&bench.get("Ca", "cse-in?fu=1&lbl=x"));
    assert_eq!(whole.len(), labelled - 1);
    for bench in [&mut bench, &mut reopened] {
        for more in ["", "&lbl=none", "&lvl=2", "&lvl=1", "&lim=3", "&lim=3&ofst=3", "&ofst=90"] {
            for target in ["cse-in", "cse-in/a/c", "cse-in/a/c/o1", "cse-in/a/c/o1/i2"] {
                let looked_up = bench.get("Ca", &format!("{target}?fu=1&lbl=x{more}"));
                let walked = bench.get("Ca", &format!("{target}?fu=1&lbl=x&fo=2{more}"));
                assert_eq!(looked_up.content, walked.content, "{target} {more}");
                assert_eq!(looked_up.cut_at(), walked.cut_at(), "{target} {more}");
            }
        }
        let instances = found(&bench.get("Ca", "cse-in?fu=1&lbl=x&ty=4"));
        let of_type = |path: &&String| path.ends_with(['0', '2', '4']) && path.contains("/i");
        let expected: Vec<_> = whole.iter().filter(of_type).cloned().collect();
        assert_eq!(instances, expected);
    }
}

/// A lookup visits what has the label, and a walk no instance of another type or time.
#[test]
fn walks_visit_no_instance_that_cannot_match() {
    const INSTANCES: usize = 2_000;
    let mut bench = bench(INSTANCES, u64::MAX);
    // Enough for a hundred resources, not for all.
    let mut config = bench.cse.config().clone();
    config.limits.filter_steps = 20_000;
    bench.cse.reconfigure(bench.now, config);
    bench.now += Duration::from_secs(1);
    bench.reading("last", "x");
    assert_eq!(bench.get("Ca", "cse-in/a?fu=1").status.number(), 5207);
    for (query, count) in [
        ("fu=1&ty=3", 1),
        ("fu=1&ty=4&cra=20231114T221321", 1),
        ("fu=1&ty=4&ms=20231114T221321", 1),
        ("fu=1&crb=20231114T221320", 0),
        ("fu=1&us=20231114T221320", 0),
        ("fu=1&lbl=none", 0),
    ] {
        let found = found(&bench.get("Ca", &format!("cse-in/a?{query}")));
        assert_eq!(found.len(), count, "{query}");
    }
}

/// Times of creation narrow a walk only as long as instances are in their order: a wall clock that
/// is set back ends that, and nothing is missed.
#[test]
fn instances_are_found_by_time_though_the_clock_goes_back() {
    let mut bench = bench(0, u64::MAX);
    let mut elapsed = START;
    let mut times = Vec::new();
    for (number, wall) in [10, 20, 20, 40, 30, 50, 15].into_iter().enumerate() {
        elapsed += Duration::from_secs(1);
        let now = Now { wall: START + Duration::from_secs(wall), elapsed };
        let content = format!(r#"{{"m2m:cin":{{"rn":"i{number}","con":"x"}}}}"#);
        let request = Request::new(Operation::Create, "cse-in/a/c", "Ca", number.to_string())
            .creating(ResourceType::ContentInstance, content);
        let input = Input::Request { token: Token(2_000), request };
        bench.cse.handle(now, input);
        bench.run();
        times.push((format!("cse-in/a/c/i{number}"), wall));
        for (name, limit) in [("cra", 20), ("crb", 20), ("ms", 30), ("us", 40), ("cra", 60)] {
            let time = 221_320 + limit;
            let time = if limit >= 40 { time + 40 } else { time };
            let query = format!("cse-in/a/c?fu=1&ty=4&{name}=20231114T{time}");
            let holds = |wall: u64| (wall >= limit) == matches!(name, "cra" | "ms");
            let held = times.iter().filter(|(_, wall)| holds(*wall));
            let expected: Vec<_> = held.map(|(name, _)| name.clone()).collect();
            assert_eq!(found(&bench.get("Ca", &query)), expected, "{query}");
        }
    }
}

/// One originator's many walks leave another's one half of the slices.
#[test]
fn slices_are_shared_by_originators() {
    let mut bench = bench(300, 1_000);
    bench.register("Cb", "b");
    bench.create("Cb", "cse-in/b", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    for number in 0..300 {
        let content = format!(r#"{{"m2m:cin":{{"rn":"i{number}","con":"x"}}}}"#);
        bench.create("Cb", "cse-in/b/c", ResourceType::ContentInstance, &content);
    }
    let other = || Request { from: "Cb".to_owned(), ..walk("cse-in/b", "w", &[("fu", "1")]) };
    assert!(ask(&mut bench, 1_000, other()).is_empty());
    let (_, alone) = tick(&mut bench);
    for token in 1_001..1_013 {
        let id = token.to_string();
        assert!(ask(&mut bench, token, walk("cse-in/a", &id, &[("fu", "1")])).is_empty());
    }
    assert!(ask(&mut bench, 2_000, other()).is_empty());
    let mut slices = 0;
    let answered =
        |answers: Vec<(Token, Response)>| answers.iter().any(|(token, _)| *token == Token(2_000));
    loop {
        slices += 1;
        bench.cse.handle(bench.now, Input::Tick);
        if answered(bench.run()) {
            break;
        }
    }
    assert!(slices <= 2 * alone + 1, "{slices} slices, {alone} alone");
}

/// A walk keeps the address that it was asked from, whoever is served between its slices.
#[test]
fn a_walk_keeps_its_originators_address() {
    let mut bench = bench(30, 1);
    let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["Cb"],"acop":34,
        "acco":[{"acip":{"ipv4":["10.0.0.1"]}}]}]},"pvs":{"acr":[{"acor":["Ca"],"acop":63}]}}}"#;
    let made = bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, policy);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    let updated = bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"acpi":["cse-in/a/p"]}}"#);
    assert_eq!(updated.status.number(), 2004);
    let from = |address: &str, id: &str| Request {
        from: "Cb".to_owned(),
        source: Some(address.parse().unwrap()),
        ..walk("cse-in/a/c", id, &[("fu", "1")])
    };
    assert!(ask(&mut bench, 1_000, from("10.0.0.1", "w")).is_empty());
    let mut answers = Vec::new();
    for token in 1..200 {
        bench.cse.handle(bench.now, Input::Tick);
        answers.extend(bench.run());
        let denied = ask(&mut bench, token, from("10.0.0.2", &token.to_string()));
        assert_eq!(denied[0].1.status.number(), 4103);
    }
    let [(Token(1_000), answer)] = answers.as_slice() else { panic!("{}", answers.len()) };
    assert_eq!(found(answer).len(), 30);
}

/// A request to the members of a group is made to a few of them at a time if its content is large, so
/// that another one is served between; the answer has them all.
#[test]
fn a_large_content_for_many_goes_in_slices() {
    let mut config = config();
    config.limits.slice_steps = 10_000;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    for name in &names {
        let content = format!(r#"{{"m2m:cnt":{{"rn":"{name}"}}}}"#);
        bench.create("Ca", "cse-in/a", ResourceType::Container, &content);
    }
    let members: Vec<String> = names.iter().map(|name| format!("\"cse-in/a/{name}\"")).collect();
    let group = format!(r#"{{"m2m:grp":{{"rn":"g","mnm":50,"mid":[{}]}}}}"#, members.join(","));
    bench.create("Ca", "cse-in/a", ResourceType::Group, &group);
    let fan = |id: &str, octets: usize| {
        let content = format!(r#"{{"m2m:cin":{{"con":"{}"}}}}"#, "x".repeat(octets));
        Request::new(Operation::Create, "cse-in/a/g/fopt", "Ca", id)
            .creating(ResourceType::ContentInstance, content)
    };
    let before = bench.cse.resources();
    // A small one is done within the step in which it comes.
    let answers = ask(&mut bench, 500, fan("small", 100));
    assert_eq!(answers.len(), 0, "20 members of 1,100 steps are two slices and a rest");
    let (answers, ticks) = tick(&mut bench);
    assert_eq!((answers.len(), ticks), (1, 2));
    assert_eq!(bench.cse.resources(), before + 20);

    assert_eq!(ask(&mut bench, 501, fan("large", 100_000)).len(), 0);
    assert_eq!(bench.cse.resources(), before + 21, "one of them in each step");
    assert_eq!(bench.get("Ca", "cse-in/a/c19/la").status.number(), 2000, "the small one");
    let (answers, ticks) = tick(&mut bench);
    assert_eq!(ticks, 19);
    let [(token, response)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(*token, Token(501));
    let aggregated = json(response);
    let parts = aggregated["m2m:agr"]["m2m:rsp"].as_array().unwrap();
    assert_eq!(parts.len(), 20);
    assert!(parts.iter().all(|part| part["rsc"] == 2001), "{parts:?}");
    assert_eq!(bench.cse.resources(), before + 40);
}
