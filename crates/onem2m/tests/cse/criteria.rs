//! Discovery by the criteria that have a language of their own: labels queries, content queries
//! and geo-queries; how they combine, what they cost, and that they travel.

use crate::bench::{Bench, config, found, json};
use gatewright_onem2m::{Operation, PartialContent, Request, ResourceType, Response};
use serde_json::json;

/// Discovers with criteria as a query string would give them.
fn discover(bench: &mut Bench, criteria: &[(&str, &str)]) -> Response {
    let mut request = bench.request(Operation::Retrieve, "Ca", "cse-in/a");
    request.set("fu", "1").unwrap();
    for (name, value) in criteria {
        request.set(name, value).unwrap();
    }
    bench.ask(request)
}

fn names(bench: &mut Bench, criteria: &[(&str, &str)]) -> Vec<String> {
    let found = found(&discover(bench, criteria));
    found.iter().map(|path| path.rsplit('/').next().unwrap().to_owned()).collect()
}

fn container(bench: &mut Bench, attributes: &str) {
    let content = format!(r#"{{"m2m:cnt":{attributes}}}"#);
    let made = bench.create("Ca", "cse-in/a", ResourceType::Container, &content);
    assert_eq!(made.status.number(), 2001, "{made:?}");
}

fn instance(bench: &mut Bench, attributes: &str) {
    let content = format!(r#"{{"m2m:cin":{attributes}}}"#);
    let made = bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &content);
    assert_eq!(made.status.number(), 2001, "{made:?}");
}

/// The examples of TS-0004 §7.3.3.17.16, on containers and on instances.
#[test]
fn labels_queries() {
    let mut bench = Bench::with_container();
    for (name, labels) in [
        ("red", r#"["color:red","size:3"]"#),
        ("blue", r#"["color:blue"]"#),
        ("both", r#"["color:red","color:green"]"#),
        ("key", r#"["color"]"#),
    ] {
        container(&mut bench, &format!(r#"{{"rn":"{name}","lbl":{labels}}}"#));
    }
    instance(&mut bench, r#"{"rn":"i","con":"1","lbl":["color:yellow"]}"#);
    let cases: &[(&str, &[&str])] = &[
        ("color", &["red", "blue", "both", "key", "i"]),
        ("NT color", &["c"]),
        ("color EQ red", &["red", "both"]),
        ("color:red", &["red", "both"]),
        ("color NE red", &["blue", "i"]),
        ("color IN (blue, green)", &["blue", "both"]),
        ("color NI (blue, green)", &["red", "i"]),
        ("size+color EQ blue", &["red", "blue"]),
        ("weight", &[]),
    ];
    for (query, expected) in cases {
        assert_eq!(names(&mut bench, &[("lbq", query)]), *expected, "{query}");
    }
}

#[test]
fn content_queries() {
    let mut bench = Bench::with_container();
    for attributes in [
        r#"{"rn":"text","cnf":"application/json:0","con":"{\"spo2\":96.5,\"at\":[1,2]}"}"#,
        r#"{"rn":"plain","cnf":"text/plain:0","con":"{\"spo2\":96.5}"}"#,
        r#"{"rn":"coded","cnf":"application/json:1","con":"eyJzcG8yIjo5Nn0="}"#,
        r#"{"rn":"sealed","cnf":"application/json:0:1","con":"{\"spo2\":96.5}"}"#,
        r#"{"rn":"broken","cnf":"application/json:0","con":"{\"spo2\":"}"#,
        r#"{"rn":"senml","cnf":"application/senml+json:0","con":"[{\"v\":96.5}]"}"#,
        r#"{"rn":"value","con":{"spo2":88}}"#,
        r#"{"rn":"nothing"}"#,
    ] {
        instance(&mut bench, attributes);
    }
    let series = r#"{"m2m:ts":{"rn":"t","cnf":"application/json"}}"#;
    bench.create("Ca", "cse-in/a", ResourceType::TimeSeries, series);
    let point = r#"{"m2m:tsi":{"rn":"p","dgt":"20231114T221320","con":"{\"spo2\":91}"}}"#;
    let made = bench.create("Ca", "cse-in/a/t", ResourceType::TimeSeriesInstance, point);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    let cases: &[(&str, &[&str])] = &[
        ("$", &["text", "senml", "value", "p"]),
        ("$.spo2", &["text", "value", "p"]),
        ("$[?@ >= 91]", &["text", "p"]),
        ("$[?@.v == 96.5]", &["senml"]),
        ("$.at[1]", &["text"]),
        ("$..v", &["senml"]),
        ("$.none", &[]),
    ];
    for (query, expected) in cases {
        let mut found = names(&mut bench, &[("cfs", "1"), ("cfq", query)]);
        found.sort_by_key(|name| expected.iter().position(|it| it == name));
        assert_eq!(found, *expected, "{query}");
    }
    let two = [("cfs", "1"), ("cfq", "$.at"), ("cfq", "$[0].v")];
    assert_eq!(names(&mut bench, &two), ["text", "senml"], "several are alternatives");
}

/// A ward, a corridor along it, beds in it and one outside.
fn bench_with_places() -> Bench {
    let mut bench = Bench::with_container();
    let ward = "[[0,0],[0.001,0],[0.001,0.0004],[0,0.0004],[0,0]]";
    for (name, geometry, coordinates) in [
        ("ward", 3, ward),
        ("corridor", 2, "[[-0.001,0],[0.002,0]]"),
        ("bed", 1, "[0.0002,0.0003]"),
        ("door", 1, "[0.0005,0,3.5]"),
        ("yard", 1, "[0.01,0.01]"),
    ] {
        let location = json!({ "typ": geometry, "crd": coordinates });
        container(&mut bench, &format!(r#"{{"rn":"{name}","loc":{location}}}"#));
    }
    instance(&mut bench, r#"{"rn":"fix","con":"1","loc":{"typ":1,"crd":"[0.0003,0.0003]"}}"#);
    bench
}

fn place<'a>(
    geometry: &'a str,
    coordinates: &'a str,
    function: &'a str,
) -> [(&'a str, &'a str); 3] {
    [("gmty", geometry), ("geom", coordinates), ("gsf", function)]
}

/// `gsf` is said of the geometry in the query: what it is within, what it contains, what it meets.
#[test]
fn geo_queries() {
    let mut bench = bench_with_places();
    let around = "[[-0.0005,-0.0005],[0.0015,-0.0005],[0.0015,0.0005],[-0.0005,0.0005],\
                  [-0.0005,-0.0005]]";
    let several = format!("[{around}]");
    let cases: &[(&str, &str, &str, &[&str])] = &[
        ("3", around, "2", &["ward", "bed", "door", "fix"]),
        ("3", around, "3", &["ward", "corridor", "bed", "door", "fix"]),
        ("3", around, "1", &[]),
        ("1", "[0.0002,0.0002]", "1", &["ward"]),
        ("1", "[0.0005,0]", "1", &["corridor", "door"]),
        ("1", "[0.0005,0]", "3", &["ward", "corridor", "door"]),
        ("4", "[[0.0005,0],[0.01,0.01]]", "2", &["door", "yard"]),
        ("6", &several, "2", &["ward", "bed", "door", "fix"]),
        ("2", "[[0,-1],[0,1]]", "3", &["ward", "corridor"]),
    ];
    for (geometry, coordinates, function, expected) in cases {
        let criteria = place(geometry, coordinates, function);
        assert_eq!(names(&mut bench, &criteria), *expected, "{criteria:?}");
    }
    bench.update("Ca", "cse-in/a/door", r#"{"m2m:cnt":{"loc":null}}"#);
    bench.update("Ca", "cse-in/a/yard", r#"{"m2m:cnt":{"loc":{"typ":1,"crd":"[0.0005,0]"}}}"#);
    assert_eq!(names(&mut bench, &place("1", "[0.0005,0]", "2")), ["yard"], "it has moved");
    let fix = json(&bench.get("Ca", "cse-in/a/c/fix"));
    assert_eq!(fix["m2m:cin"]["loc"], json!({ "typ": 1, "crd": "[0.0003,0.0003]" }));
    bench.cse = bench.reopened();
    let moved = names(&mut bench, &place("3", around, "2"));
    assert_eq!(moved, ["ward", "bed", "yard", "fix"], "and is stored");
}

#[test]
fn criteria_combine() {
    let mut bench = bench_with_places();
    bench.update("Ca", "cse-in/a/bed", r#"{"m2m:cnt":{"lbl":["kind:bed"]}}"#);
    bench.update("Ca", "cse-in/a/yard", r#"{"m2m:cnt":{"lbl":["kind:yard"]}}"#);
    instance(&mut bench, r#"{"rn":"json","con":{"a":1}}"#);
    let in_ward = place("3", "[[0,0],[0.001,0],[0.001,0.001],[0,0.001],[0,0]]", "2");
    let content = [("cfs", "1"), ("cfq", "$.a")];
    let both = |operation| [&[("fo", operation), ("lbq", "kind")], &in_ward[..]].concat();
    assert_eq!(names(&mut bench, &both("1")), ["bed"]);
    assert_eq!(names(&mut bench, &both("2")), ["ward", "bed", "yard", "fix"]);
    assert_eq!(names(&mut bench, &both("3")), ["ward", "yard", "fix"]);
    let with_content = [&both("2")[..], &content[..]].concat();
    assert_eq!(names(&mut bench, &with_content), ["ward", "bed", "yard", "fix", "json"]);
    let with_content = [&both("1")[..], &content[..]].concat();
    assert_eq!(names(&mut bench, &with_content), [""; 0]);
    // A condition on one resource: it is there, or it is not.
    let mut conditional = bench.request(Operation::Retrieve, "Ca", "cse-in/a/bed");
    conditional.set("lbq", "kind EQ bed").unwrap();
    assert_eq!(bench.ask(conditional.clone()).status.number(), 2000);
    conditional.id = "other".to_owned();
    conditional.filter = None;
    conditional.set("lbq", "kind NE bed").unwrap();
    assert_eq!(bench.ask(conditional).status.number(), 4004);
}

#[test]
fn wrong_criteria_are_bad_requests() {
    let mut bench = bench_with_places();
    for (name, value, status) in [
        ("lbq", "color IS red", 4000),
        ("lbq", "(", 4000),
        ("cfs", "2", 4000),
        ("cfq", "spo2", 4000),
        ("cfq", "$[?search(@, 'x')]", 5001),
        ("gmty", "7", 4000),
        ("gsf", "0", 4000),
        ("smf", "SELECT ?x WHERE { ?x ?y ?z }", 5001),
    ] {
        let mut request = Request::new(Operation::Retrieve, "cse-in", "Ca", "1");
        let refused = request.set(name, value).map_err(|refusal| refusal.status.number());
        assert_eq!(refused, Err(status), "{name}={value}");
    }
    for missing in [
        &[("cfs", "1")][..],
        &[("cfq", "$")],
        &[("gmty", "1")],
        &[("geom", "[1,2]")],
        &[("gsf", "1")],
        &[("gmty", "1"), ("geom", "[1,2]")],
        &[("gmty", "1"), ("gsf", "1")],
    ] {
        assert_eq!(discover(&mut bench, missing).status.number(), 4000, "{missing:?}");
    }
    let wrong = r#"{"m2m:cnt":{"rn":"x","loc":{"typ":1,"crd":"[[1,2]]"}}}"#;
    assert_eq!(
        bench.create("Ca", "cse-in/a", ResourceType::Container, wrong).status.number(),
        4000
    );
    let wrong = r#"{"m2m:cin":{"loc":{"typ":3,"crd":"[1,2]"}}}"#;
    let refused = bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, wrong);
    assert_eq!(refused.status.number(), 4000);
    let refused = bench.update("Ca", "cse-in/a/bed", r#"{"m2m:cnt":{"loc":"here"}}"#);
    assert_eq!(refused.status.number(), 4000);
}

/// What costs more than a request may is refused, and what is found before does not matter.
#[test]
fn criteria_cost_what_they_may() {
    let mut config = config();
    config.limits.filter_steps = 2_000;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    container(&mut bench, r#"{"rn":"c"}"#);
    let status =
        |bench: &mut Bench, criteria: &[(&str, &str)]| discover(bench, criteria).status.number();
    let content = [("cfs", "1"), ("cfq", "$..a")];
    let corner = place("1", "[0,0]", "3");
    for number in 0..40 {
        let list = json!([0, 0, 0, 0, 0, 0, 0, 0, number]);
        let location = json!({ "typ": 1, "crd": "[1,1]" });
        instance(&mut bench, &format!(r#"{{"con":{list},"loc":{location}}}"#));
        if number == 0 {
            let each = [&content[..], &corner, &[("lbq", "a")]];
            assert!(each.into_iter().all(|criteria| status(&mut bench, criteria) == 2000));
        }
    }
    assert_eq!(status(&mut bench, &content), 5207);
    assert_eq!(status(&mut bench, &corner), 5207);
    assert_eq!(status(&mut bench, &[("lbq", "a")]), 5207);
    assert_eq!(status(&mut bench, &[("ty", "3"), content[0], content[1]]), 2000);
    assert_eq!(status(&mut bench, &[("lvl", "1"), content[0], content[1]]), 2000);
}

/// Where a criterion costs too much on one resource, that one is not found, and all others are. The
/// answer says that it is partial, and where it was cut, too, if it was.
#[test]
fn one_costly_content_spoils_no_search() {
    let mut config = config();
    // In one slice.
    config.limits.slice_steps = config.limits.filter_steps;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    container(&mut bench, r#"{"rn":"c"}"#);
    instance(&mut bench, r#"{"rn":"before","con":{"spo2":97}}"#);
    let nested = (0..17).fold("0".to_owned(), |inner, _| format!("[{inner},{inner}]"));
    instance(&mut bench, &format!(r#"{{"rn":"deep","con":{nested}}}"#));
    instance(&mut bench, r#"{"rn":"after","con":{"spo2":98}}"#);
    for turn in 1..=2 {
        let answer = discover(&mut bench, &[("cfs", "1"), ("cfq", "$..spo2")]);
        assert_eq!(answer.status.number(), 2000);
        assert_eq!(found(&answer), ["cse-in/a/c/before", "cse-in/a/c/after"]);
        assert_eq!(bench.cse.counters().filters_cut, turn);
        assert_eq!(answer.partial, Some(PartialContent { offset: None }));
    }
    let cut = discover(&mut bench, &[("cfs", "1"), ("cfq", "$..spo2"), ("lim", "1")]);
    assert_eq!(cut.cut_at(), Some(1));
    // Where it is not judged, nothing is missing.
    let whole =
        discover(&mut bench, &[("cfs", "1"), ("cfq", "$..spo2"), ("crb", "19990101T000000")]);
    assert_eq!((whole.partial, bench.cse.counters().filters_cut), (None, 3));
    // Alone it is asked for: that its condition is not evaluated is said.
    let mut request = bench.request(Operation::Retrieve, "Ca", "cse-in/a/c/deep");
    for (name, value) in [("fu", "2"), ("cfs", "1"), ("cfq", "$..spo2")] {
        request.set(name, value).unwrap();
    }
    assert_eq!(bench.ask(request).status.number(), 5207);
}

/// Criteria are the same after a query string, JSON and CBOR.
#[test]
fn criteria_travel() {
    let mut request = Request::new(Operation::Retrieve, "cse-in", "Ca", "1");
    for (name, value) in [
        ("fu", "1"),
        ("lbq", "color IN (red, green)+NT size+place:room 7"),
        ("cfs", "1"),
        ("cfq", "$[?@.a == 'x+y' && @.b > 1]"),
        ("cfq", "$..a"),
        ("gmty", "3"),
        ("geom", "[[0,0],[1.5,0],[1.5,1],[0,0]]"),
        ("gsf", "2"),
    ] {
        request.set(name, value).unwrap();
    }
    let text = request.to_json();
    assert_eq!(Request::from_json(text.as_bytes()).unwrap(), request, "{text}");
    let cbor = gatewright_onem2m::primitive::cbor_from_json(&text).unwrap();
    assert_eq!(Request::from_cbor(&cbor).unwrap(), request);
    let mut again = Request::new(Operation::Retrieve, "cse-in", "Ca", "1");
    for (name, value) in request.query() {
        again.set(name, &value).unwrap();
    }
    assert_eq!(again, request);
    let list = r#"{"op":2,"to":"x","rqi":"1","rvi":"4","fc":{"gmty":1,"geom":[1,2],"gsf":3}}"#;
    let list = Request::from_json(list.as_bytes()).unwrap();
    let text = r#"{"op":2,"to":"x","rqi":"1","rvi":"4","fc":{"gmty":1,"geom":"[1,2]","gsf":3}}"#;
    assert_eq!(list, Request::from_json(text.as_bytes()).unwrap());
}

/// A label may have any characters: where a primitive lists them (m2m:labels is a list of JSON), each
/// is one; a query string lists them with `+`.
#[test]
fn labels_of_a_primitive_are_whole() {
    let mut bench = Bench::with_container();
    container(&mut bench, r#"{"rn":"room","lbl":["ward 7","a+b"]}"#);
    container(&mut bench, r#"{"rn":"word","lbl":["ward","a"]}"#);
    for (criteria, expected) in [
        (r#""lbl":["ward 7"]"#, &["room"][..]),
        (r#""lbl":["a+b","x"]"#, &["room"]),
        (r#""lbl":["ward","7"]"#, &["word"]),
        (r#""clbl":["a+b"]"#, &[]),
        (r#""palb":["ward 7"]"#, &[]),
        (r#""lbq":["a+b"]"#, &["room"]),
    ] {
        let text = format!(
            r#"{{"op":2,"to":"cse-in/a","fr":"Ca","rqi":"w","rvi":"4","fc":{{"fu":1,{criteria}}}}}"#
        );
        let request = Request::from_json(text.as_bytes()).unwrap();
        assert_eq!(Request::from_json(request.to_json().as_bytes()).unwrap(), request);
        let got = found(&bench.ask(request));
        let got: Vec<&str> = got.iter().map(|path| path.rsplit('/').next().unwrap()).collect();
        assert_eq!(got, expected, "{criteria}");
    }
    assert_eq!(names(&mut bench, &[("lbl", "ward+7")]), ["word"]);
}
