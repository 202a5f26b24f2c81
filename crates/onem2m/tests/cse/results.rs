//! What answers contain: result contents, discovery, latest and oldest, limits of containers.

use crate::bench::{Bench, found, json};
use core::time::Duration;
use gatewright_onem2m::{Input, Operation, Request, ResourceType, Status};
use serde_json::json;

#[test]
fn a_created_instance_is_what_is_retrieved() {
    let mut bench = Bench::with_container();
    let content = r#"{"m2m:cin":{"rn":"r","cnf":"application/json:0","con":{"a":[1.50,"é"]},
        "lbl":["x\"y"],"cr":null}}"#;
    let made = bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, content);
    let instance = json(&made)["m2m:cin"].clone();
    assert_eq!(instance["con"], json!({"a": [1.50, "é"]}));
    assert_eq!(instance["cs"], 17);
    assert_eq!(instance["st"], 1);
    assert_eq!(instance["cr"], "Ca");
    assert_eq!(instance["lbl"], json!(["x\"y"]));
    assert_eq!(instance["ct"], "20231114T221320,000000");
    assert_eq!(made.location.as_deref(), Some("cse-in/a/c/r"));
    assert!(made.content.as_deref().unwrap().contains("1.50"), "decimals stay as they came");
    for address in
        ["cse-in/a/c/r", "cse-in/a/c/la", "cse-in/a/c/ol", instance["ri"].as_str().unwrap()]
    {
        assert_eq!(bench.get("Ca", address).content, made.content, "{address}");
    }
}

#[test]
fn result_contents_of_a_creation() {
    let mut bench = Bench::with_container();
    for (rcn, resource_type, content) in [
        (0, ResourceType::Container, r#"{"m2m:cnt":{"rn":"n0"}}"#),
        (2, ResourceType::Container, r#"{"m2m:cnt":{"rn":"n2"}}"#),
        (2, ResourceType::ContentInstance, r#"{"m2m:cin":{"rn":"i2"}}"#),
        (3, ResourceType::Container, r#"{"m2m:cnt":{"rn":"n3"}}"#),
        (9, ResourceType::Container, r#"{"m2m:cnt":{"rn":"n9","lbl":["x"]}}"#),
        (4, ResourceType::Container, r#"{"m2m:cnt":{"rn":"n4"}}"#),
    ] {
        let mut request =
            bench.request(Operation::Create, "Ca", "cse-in/a/c").creating(resource_type, content);
        request.result_content = Some(rcn);
        let response = bench.ask(request);
        let body = json(&response);
        match rcn {
            0 => assert!(body.is_null()),
            2 => assert!(body["m2m:uri"].as_str().unwrap().starts_with("cse-in/a/c/")),
            3 => {
                assert_eq!(body["m2m:rce"]["uri"], "cse-in/a/c/n3");
                assert_eq!(body["m2m:rce"]["m2m:cnt"]["rn"], "n3");
            }
            9 => {
                assert!(body["m2m:cnt"]["ri"].is_string());
                assert!(body["m2m:cnt"]["lbl"].is_null(), "given, not modified");
            }
            _ => {
                assert_eq!(response.status.number(), 4000);
                assert_eq!(bench.get("Ca", "cse-in/a/c/n4").status.number(), 4004);
            }
        }
    }
}

#[test]
fn result_contents_of_a_retrieval() {
    let mut bench = Bench::with_container();
    bench.create("Ca", "cse-in/a/c", ResourceType::Container, r#"{"m2m:cnt":{"rn":"d"}}"#);
    bench.reading("i", "1");
    let get = |bench: &mut Bench, rcn: u8| json(&bench.get("Ca", &format!("cse-in/a?rcn={rcn}")));
    let four = get(&mut bench, 4);
    assert_eq!(four["m2m:ae"]["aei"], "Ca");
    let container = &four["m2m:ae"]["m2m:cnt"][0];
    assert_eq!(container["rn"], "c");
    assert_eq!(container["cni"], 1);
    assert_eq!(container["m2m:cnt"][0]["rn"], "d");
    assert_eq!(container["m2m:cin"][0]["con"], "1");
    let five = get(&mut bench, 5);
    assert_eq!(five["m2m:ae"]["aei"], "Ca");
    assert_eq!(five["m2m:ae"]["ch"].as_array().unwrap().len(), 3);
    let six = get(&mut bench, 6);
    let first = &six["m2m:rrl"]["rrf"][0];
    assert_eq!(first, &json!({"nm": "c", "typ": 3, "val": "cse-in/a/c"}));
    let eight = get(&mut bench, 8);
    assert!(eight["m2m:ae"]["aei"].is_null());
    assert_eq!(eight["m2m:ae"]["m2m:cnt"][0]["rn"], "c");
    let level = json(&bench.get("Ca", "cse-in/a?rcn=4&lvl=1"));
    assert!(level["m2m:ae"]["m2m:cnt"][0]["m2m:cnt"].is_null());
    let some = json(&bench.get("Ca", "cse-in/a?atrl=aei+rn"));
    assert_eq!(some, json!({"m2m:ae": {"aei": "Ca", "rn": "a"}}));
}

#[test]
fn discovery_by_each_criterion() {
    let mut bench = Bench::with_container();
    bench.create(
        "Ca",
        "cse-in/a/c",
        ResourceType::Container,
        r#"{"m2m:cnt":{"rn":"d","lbl":["blue","big"],"mni":7}}"#,
    );
    bench.now += Duration::from_secs(10);
    for (name, content, info) in [("i", "1", "text/plain:0"), ("j", "12345", "application/json:0")]
    {
        let body = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"{content}","cnf":"{info}"}}}}"#);
        bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &body);
    }
    bench.now += Duration::from_secs(10);
    let (c, d, i, j) = ("cse-in/a/c", "cse-in/a/c/d", "cse-in/a/c/i", "cse-in/a/c/j");
    let cases: &[(&str, &[&str])] = &[
        ("fu=1", &[c, d, i, j]),
        ("fu=1&rcn=11", &[c, d, i, j]),
        ("fu=1&ty=4", &[i, j]),
        ("fu=1&ty=3+4", &[c, d, i, j]),
        ("fu=1&ty=2", &[]),
        ("fu=1&lbl=blue", &[d]),
        ("fu=1&lbl=red+big", &[d]),
        ("fu=1&clbl=blue", &[c]),
        ("fu=1&crb=20231114T221325", &[c, d]),
        ("fu=1&cra=20231114T221325", &[i, j]),
        ("fu=1&ms=20231114T221325", &[c, i, j]),
        ("fu=1&us=20231114T221325", &[d]),
        ("fu=1&exb=20231114T221325", &[]),
        ("fu=1&exa=20231114T221325", &[c, d, i, j]),
        ("fu=1&sza=2", &[j]),
        ("fu=1&szb=2", &[i]),
        ("fu=1&stb=1", &[c, i, j]),
        ("fu=1&stb=2", &[c, j]),
        ("fu=1&sts=1", &[d]),
        ("fu=1&cty=text/plain", &[i]),
        ("fu=1&cty=text/plain:0", &[i]),
        ("fu=1&chty=4", &[c]),
        ("fu=1&pty=2", &[c]),
        ("fu=1&mni=7", &[d]),
        ("fu=1&rn=*", &[c, d, i, j]),
        ("fu=1&atr=con,1*", &[i, j]),
        ("fu=1&catr=con,12345", &[c]),
        ("fu=1&patr=rn,a", &[c]),
        ("fu=1&ty=4&lbl=blue&fo=2", &[d, i, j]),
        ("fu=1&ty=3&lbl=blue&fo=3", &[c]),
        ("fu=1&lvl=1", &[c]),
        ("fu=1&ofst=2", &[d, i, j]),
        ("fu=1&lim=2", &[c, d]),
    ];
    for (query, expected) in cases {
        let response = bench.get("Ca", &format!("cse-in/a?{query}"));
        assert_eq!(found(&response), *expected, "{query}");
        assert_eq!(response.cut_at(), query.contains("lim").then_some(2), "{query}");
    }
    // TS-0004 §7.3.3.17.17: what is at no path below is no match.
    let relative =
        |bench: &mut Bench, query: &str| found(&bench.get("Ca", &format!("cse-in/a?fu=1&{query}")));
    assert!(relative(&mut bench, "lbl=blue&arp=la").is_empty());
    assert_eq!(relative(&mut bench, "ty=3&arp=la"), ["cse-in/a/c/la"]);
    assert_eq!(relative(&mut bench, "ty=3&arp=d"), ["cse-in/a/c/d"]);
    let by_id = found(&bench.get("Ca", "cse-in/a?fu=1&lbl=blue&drt=2"));
    assert_eq!(bench.get("Ca", &by_id[0]).content, bench.get("Ca", d).content);
}

/// TS-0004 §7.3.3.17: a bound from below belongs to what it bounds, one from above does not; both
/// of one attribute are one condition, also where one condition is enough; several values of one
/// attribute are alternatives.
#[test]
fn bounds_and_alternatives() {
    let mut bench = Bench::with_container();
    let made = bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"d"}}"#);
    let made = json(&made)["m2m:cnt"].clone();
    let time = |name: &str| made[name].as_str().unwrap().to_owned();
    let (created, expires) = (time("ct"), time("et"));
    bench.now += Duration::from_secs(10);
    let content = r#"{"m2m:cin":{"rn":"i","con":"12345"}}"#;
    let late = json(&bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, content));
    let later = late["m2m:cin"]["ct"].as_str().unwrap().to_owned();
    let (c, d, i) = ("cse-in/a/c", "cse-in/a/d", "cse-in/a/c/i");
    let cases: &[(String, &[&str])] = &[
        (format!("crb={created}"), &[]),
        (format!("crb={later}"), &[c, d]),
        (format!("cra={later}"), &[i]),
        (format!("cra={created}"), &[c, d, i]),
        (format!("us={later}"), &[d]),
        (format!("ms={later}"), &[c, i]),
        (format!("rn=d&exa={expires}"), &[d]),
        (format!("rn=d&exb={expires}"), &[]),
        ("szb=5".to_owned(), &[]),
        ("sza=5".to_owned(), &[i]),
        ("sts=1".to_owned(), &[d]),
        ("stb=1".to_owned(), &[c, i]),
        (format!("fo=2&cra={created}&crb={later}"), &[c, d]),
        (format!("fo=2&cra={later}&crb={created}"), &[]),
        ("fo=2&sza=6&szb=9".to_owned(), &[]),
        ("atr=rn,i&atr=rn,d".to_owned(), &[d, i]),
        ("rn=i&rn=d&ty=3".to_owned(), &[d]),
        ("atr=rn,i&atr=rn,d&atr=con,1*".to_owned(), &[i]),
        ("catr=rn,c&catr=rn,i&ty=3".to_owned(), &[c]),
        ("patr=rn,c&patr=rn,a".to_owned(), &[c, d, i]),
    ];
    for (query, expected) in cases {
        assert_eq!(
            found(&bench.get("Ca", &format!("cse-in/a?fu=1&{query}"))),
            *expected,
            "{query}"
        );
    }
}

#[test]
fn discovery_cut_by_the_cse_is_told_and_counted() {
    let mut config = crate::bench::config();
    config.limits.results = 3;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    for _ in 0..5 {
        bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{}}"#);
    }
    let response = bench.get("Ca", "cse-in/a?fu=1");
    assert_eq!((found(&response).len(), response.cut_at()), (3, Some(3)));
    let rest = bench.get("Ca", "cse-in/a?fu=1&ofst=4");
    assert_eq!((found(&rest).len(), rest.cut_at()), (2, None));
    assert_eq!(bench.cse.counters().results_cut, 1);
}

#[test]
fn a_full_container_lets_the_oldest_go() {
    let mut bench = Bench::with_container();
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"mni":3}}"#);
    for number in 0..5 {
        bench.reading(&format!("r{number}"), "0123456789");
    }
    let container = json(&bench.get("Ca", "cse-in/a/c"));
    assert_eq!(container["m2m:cnt"]["cni"], 3);
    assert_eq!(container["m2m:cnt"]["cbs"], 30);
    assert_eq!(container["m2m:cnt"]["st"], 6, "one update, five instances");
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c/ol"))["m2m:cin"]["rn"], "r2");
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c/la"))["m2m:cin"]["rn"], "r4");
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"mbs":15}}"#);
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c/ol"))["m2m:cin"]["rn"], "r4");
    assert_eq!(bench.cse.counters().trimmed, 4);
}

#[test]
fn what_expires_is_gone() {
    let mut bench = Bench::with_container();
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"mia":60}}"#);
    bench.reading("one", "1");
    bench.create(
        "Ca",
        "cse-in/a",
        ResourceType::Container,
        r#"{"m2m:cnt":{"rn":"e","et":"20231114T221330"}}"#,
    );
    assert_eq!(bench.cse.poll_timeout(), Some(Duration::from_secs(1_700_000_010)));
    bench.now += Duration::from_secs(10);
    bench.cse.handle(bench.now, Input::Tick);
    bench.run();
    assert_eq!(bench.get("Ca", "cse-in/a/e").status.number(), 4004);
    bench.now += Duration::from_secs(50);
    assert_eq!(bench.get("Ca", "cse-in/a/c/one").status.number(), 2000, "expiry is a tick's work");
    assert_eq!(bench.get("Ca", "cse-in/a/c/one").status.number(), 4004);
    assert_eq!(bench.cse.counters().expired, 2);
    assert_eq!(bench.rows.len(), 3, "base, AE and container are stored, nothing more");
}

/// What expires with its container has its own time when the container is given more, and goes with
/// the container when that has less.
#[test]
fn instances_keep_their_time_when_their_container_has_another() {
    let mut bench = Bench::with_container();
    let limit = |bench: &mut Bench, time: &str| {
        let content = format!(r#"{{"m2m:cnt":{{"et":"20231114T{time}"}}}}"#);
        bench.update("Ca", "cse-in/a/c", &content);
    };
    let wait = |bench: &mut Bench, seconds| {
        bench.now += Duration::from_secs(seconds);
        bench.cse.handle(bench.now, Input::Tick);
        bench.run();
    };
    let at = |seconds: u64| Some(Duration::from_secs(1_700_000_000 + seconds));
    limit(&mut bench, "221420");
    for name in ["one", "two"] {
        bench.reading(name, "1");
    }
    limit(&mut bench, "221520");
    assert_eq!(bench.cse.poll_timeout(), at(60));
    for name in ["three", "four"] {
        bench.reading(name, "1");
    }
    wait(&mut bench, 60);
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c"))["m2m:cnt"]["cni"], 2);
    assert_eq!(bench.get("Ca", "cse-in/a/c/two").status.number(), 4004);
    assert_eq!(bench.get("Ca", "cse-in/a/c/three").status.number(), 2000);
    limit(&mut bench, "221430");
    assert_eq!(bench.cse.poll_timeout(), at(70));
    bench.restart();
    wait(&mut bench, 10);
    assert_eq!(bench.get("Ca", "cse-in/a/c").status.number(), 4004);
    assert_eq!(bench.rows.len(), 2, "base and AE are stored, nothing more");
}

#[test]
fn updates_set_and_remove() {
    let mut bench = Bench::with_container();
    let set = bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"],"mni":5}}"#);
    assert_eq!(json(&set)["m2m:cnt"]["mni"], 5);
    assert_eq!(json(&set)["m2m:cnt"]["st"], 1);
    bench.now += Duration::from_secs(1);
    let mut request = bench
        .request(Operation::Update, "Ca", "cse-in/a/c")
        .with_content(r#"{"m2m:cnt":{"mni":null}}"#);
    request.result_content = Some(9);
    let removed = json(&bench.ask(request));
    assert_eq!(removed, json!({"m2m:cnt": {"lt": "20231114T221321,000000", "st": 2}}));
    let now = json(&bench.get("Ca", "cse-in/a/c"));
    assert!(now["m2m:cnt"]["mni"].is_null());
    assert_eq!(now["m2m:cnt"]["lbl"], json!(["x"]));
}

/// TS-0001 §8.1.2: no descendant without its parents, so none of them is counted either.
#[test]
fn what_is_nested_is_what_is_counted() {
    let mut bench = Bench::with_container();
    bench.create(
        "Ca",
        "cse-in/a/c",
        ResourceType::Container,
        r#"{"m2m:cnt":{"rn":"d","lbl":["x"]}}"#,
    );
    bench.create(
        "Ca",
        "cse-in/a",
        ResourceType::Container,
        r#"{"m2m:cnt":{"rn":"e","lbl":["x"]}}"#,
    );
    bench.create(
        "Ca",
        "cse-in/a/e",
        ResourceType::Container,
        r#"{"m2m:cnt":{"rn":"f","lbl":["x"]}}"#,
    );
    for rcn in [4, 8] {
        let response = bench.get("Ca", &format!("cse-in/a?rcn={rcn}&lbl=x&lim=2"));
        let nested = json(&response)["m2m:ae"]["m2m:cnt"].clone();
        assert_eq!(nested.as_array().unwrap().len(), 1);
        assert_eq!((&nested[0]["rn"], &nested[0]["m2m:cnt"][0]["rn"]), (&json!("e"), &json!("f")));
        assert_eq!(response.cut_at(), None);
    }
    // References stand for themselves.
    assert_eq!(found(&bench.get("Ca", "cse-in/a?fu=1&lbl=x")).len(), 3);
}

/// TS-0001 §8.1.2: which result contents go with what.
#[test]
fn result_contents_go_with_what_is_asked() {
    let mut bench = Bench::with_container();
    for (query, status) in [
        ("fu=1", 2000),
        ("fu=1&rcn=6", 2000),
        ("fu=1&rcn=11", 2000),
        ("fu=1&rcn=1", 4000),
        ("fu=1&rcn=4", 4000),
        ("fu=1&rcn=5", 4000),
        ("fu=1&rcn=8", 4000),
        ("rcn=11", 4000),
        ("rcn=7", 4000),
        ("rcn=6", 2000),
        ("fu=2&rcn=4", 2000),
    ] {
        assert_eq!(
            bench.get("Ca", &format!("cse-in/a?{query}")).status.number(),
            status,
            "{query}"
        );
    }
}

/// TS-0004 §7.3.3.17.17: the result is what lies at the path.
#[test]
fn a_relative_path_leads_to_the_result() {
    let mut bench = Bench::with_container();
    let sub = r#"{"m2m:sub":{"rn":"s","nu":["cse-in/a"]}}"#;
    bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, sub);
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"d"}}"#);
    let eight = json(&bench.get("Ca", "cse-in/a?rcn=8&ty=3&arp=s"));
    assert_eq!(eight["m2m:ae"]["m2m:sub"][0]["rn"], "s");
    assert_eq!(eight["m2m:ae"].as_object().unwrap().len(), 1, "{eight}");
    let five = json(&bench.get("Ca", "cse-in/a?rcn=5&ty=3&arp=s"));
    let expected = json!([{ "nm": "s", "typ": 23, "val": "cse-in/a/c/s" }]);
    assert_eq!(five["m2m:ae"]["ch"], expected);
}

/// RFC 8259 §4: what a reader makes of a name that is there twice is not known.
#[test]
fn a_name_twice_is_refused_with_its_place() {
    let mut bench = Bench::with_container();
    let (container, instance) = (ResourceType::Container, ResourceType::ContentInstance);
    for (kind, content, place) in [
        (container, r#"{"m2m:cnt":{"rn":"d","rn":"e"}}"#, "m2m:cnt/rn"),
        (instance, r#"{"m2m:cin":{"con":"1","con":"2"}}"#, "m2m:cin/con"),
        (instance, r#"{"m2m:cin":{"con":{"a":[{"b":1,"\u0062":2}]}}}"#, "m2m:cin/con/a/b"),
    ] {
        let refused = bench.create("Ca", "cse-in/a/c", kind, content);
        assert_eq!(refused.status, Status::BadRequest, "{content}");
        let words = json(&refused)["m2m:dbg"].as_str().unwrap().to_owned();
        assert_eq!(words, format!("the member {place} is there more than once"));
    }
    let changed = bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"mni":1,"mni":2}}"#);
    assert_eq!(changed.status, Status::BadRequest);
    // The same name in other objects, and in a text.
    let content = r#"{"m2m:cin":{"con":"{\"a\":1,\"a\":2}","lbl":["con","con:x"]}}"#;
    let made = bench.create("Ca", "cse-in/a/c", instance, content);
    assert_eq!(made.status, Status::Created, "{made:?}");
    let primitive = r#"{"op":2,"to":"cse-in","to":"cse-in/a","rqi":"r","rvi":"4","fr":"Ca"}"#;
    let (id, refusal) = Request::from_json(primitive.as_bytes()).unwrap_err();
    assert_eq!((id.as_deref(), refusal.status), (Some("r"), Status::BadRequest));
}

/// TS-0001 §8.1.2, TS-0004 §7.3.3.12: what was not asked for, or became something else.
#[test]
fn an_update_tells_what_the_cse_changed() {
    let mut bench = Bench::with_container();
    let mut update = |content: &str| {
        let request = bench.request(Operation::Update, "Ca", "cse-in/a/c");
        let mut request = request.with_content(content);
        request.result_content = Some(9);
        let mut changed = json(&bench.ask(request))["m2m:cnt"].clone();
        for name in ["lt", "st"] {
            changed.as_object_mut().unwrap().remove(name);
        }
        changed
    };
    assert_eq!(update(r#"{"m2m:cnt":{"lbl":["x"],"mni":3}}"#), json!({}));
    assert_eq!(update(r#"{"m2m:cnt":{"mni":null}}"#), json!({}));
    let far = update(r#"{"m2m:cnt":{"et":"20991231T235959"}}"#);
    assert!(far["et"].as_str().unwrap() < "20991231T235959", "{far}");
}

/// TS-0004 §7.3.3.3: no child outlives its parent, whatever it asks for; without a time of its own a
/// resource gets one from this CSE.
#[test]
fn lifetimes_end_with_the_parents() {
    let mut bench = Bench::with_container();
    let ends = |response: &gatewright_onem2m::Response, tag: &str| {
        json(response)[tag]["et"].as_str().unwrap_or_default().to_owned()
    };
    let early = "20231115T000000,000000";
    let update = format!(r#"{{"m2m:cnt":{{"et":"{early}"}}}}"#);
    assert_eq!(ends(&bench.update("Ca", "cse-in/a/c", &update), "m2m:cnt"), early);
    for content in [r#"{"m2m:cnt":{}}"#, r#"{"m2m:cnt":{"et":"20991231T235959"}}"#] {
        let made = bench.create("Ca", "cse-in/a/c", ResourceType::Container, content);
        assert_eq!(ends(&made, "m2m:cnt"), early, "{content}");
    }
    let made = bench.reading("i", "1");
    assert_eq!(ends(&made, "m2m:cin"), early);
    let made =
        bench.create("Ca", "cse-in/a/c", ResourceType::Container, r#"{"m2m:cnt":{"rn":"d"}}"#);
    assert_eq!(made.status.number(), 2001);
    let longer = r#"{"m2m:cnt":{"et":"20991231T235959"}}"#;
    assert_eq!(ends(&bench.update("Ca", "cse-in/a/c/d", longer), "m2m:cnt"), early);
    let renewed = bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"et":null}}"#);
    assert_eq!(renewed.status.number(), 2004);
    let entity = bench.get("Ca", "cse-in/a");
    assert_eq!(ends(&renewed, "m2m:cnt"), ends(&entity, "m2m:ae"));
}

/// TS-0004 §7.3.3.6: of the attributes asked for those that are set; one that the type has not is
/// refused.
#[test]
fn some_attributes_of_a_resource() {
    let mut bench = Bench::with_container();
    let some = json(&bench.get("Ca", "cse-in/a/c?atrl=rn+mni"));
    assert_eq!(some, json!({"m2m:cnt": {"rn": "c"}}));
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c?atrl=mni")), json!({"m2m:cnt": {}}));
    assert_eq!(bench.get("Ca", "cse-in/a/c?atrl=rn+aei").status.number(), 4000);
    assert_eq!(bench.get("Ca", "cse-in/a/c?atrl=nonsense").status.number(), 4000);
    // What the CSEBase has of its own: the time (currentTime).
    bench.now += Duration::from_secs(1);
    for query in ["", "?atrl=ctm", "?rcn=4", "?rcn=5"] {
        let base = json(&bench.get("Ca", &format!("cse-in{query}")));
        assert_eq!(base["m2m:cb"]["ctm"], "20231114T221321,000000", "{query}");
    }
}

/// TS-0004 §7.3.3.3: values that are none of their type, and attributes that a type has not.
#[test]
fn values_are_what_their_types_say() {
    let mut bench = Bench::with_container();
    let mut entity = |name: &str, attribute: &str| {
        let content = format!(
            r#"{{"m2m:ae":{{"rn":"{name}","api":"Nx","rr":false,"srv":["4"],{attribute}}}}}"#
        );
        bench.create(&format!("C{name}"), "cse-in", ResourceType::ApplicationEntity, &content)
    };
    for (name, attribute, status) in [
        ("x1", r#""csz":["wrong"]"#, 4000),
        ("x2", r#""csz":["application/json","application/vnd.onem2m-res+cbor"]"#, 2001),
        ("x3", r#""csz":["application/xml"]"#, 2001),
        ("x4", r#""csz":["text/plain"]"#, 4000),
        ("x5", r#""cr":null"#, 4000),
    ] {
        assert_eq!(entity(name, attribute).status.number(), status, "{attribute}");
    }
    let content = r#"{"m2m:cin":{"con":"1","dcnt":3}}"#;
    let made = bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, content);
    assert_eq!(made.status.number(), 5001, "nothing deletes it then");
    for (cnf, status) in [("text/plain:0", 2001), ("plain", 4000)] {
        let content = format!(r#"{{"m2m:ts":{{"cnf":"{cnf}"}}}}"#);
        let made = bench.create("Ca", "cse-in/a", ResourceType::TimeSeries, &content);
        assert_eq!(made.status.number(), status, "{cnf}");
    }
    let made = bench.create(
        "Ca",
        "cse-in/a",
        ResourceType::TimeSeries,
        r#"{"m2m:ts":{"rn":"t","pei":7}}"#,
    );
    let series = json(&made)["m2m:ts"].clone();
    assert_eq!((&series["mdd"], &series["peid"]), (&json!(false), &json!(3)));
    let changed = json(&bench.update("Ca", "cse-in/a/t", r#"{"m2m:ts":{"pei":4}}"#));
    assert_eq!(changed["m2m:ts"]["peid"], 2, "it goes with the period");
    let md = r#"{"m2m:sub":{"nu":["Ca"],"enc":{"net":[8],"md":{"num":1}}}}"#;
    assert_eq!(
        bench.create("Ca", "cse-in/a/t", ResourceType::Subscription, md).status.number(),
        4000
    );
    let sub = r#"{"m2m:sub":{"rn":"s","nu":["Ca"],"enc":{"net":[3]},"nct":1}}"#;
    assert_eq!(
        bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, sub).status.number(),
        2001
    );
    let changed = json(&bench.update("Ca", "cse-in/a/c/s", r#"{"m2m:sub":{"enc":null}}"#));
    assert_eq!(changed["m2m:sub"]["enc"], json!({"net": [1]}));
}
