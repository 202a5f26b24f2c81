//! One request for each response status code that creation, retrieval, update and deletion of
//! the basic resource types can give (TS-0004 §6.6.3 and §7).

use crate::bench::{Bench, config};
use core::time::Duration;
use gatewright_onem2m::primitive::Deadline;
use gatewright_onem2m::{CseType, Operation, ResourceType};

#[test]
fn registration_of_an_ae() {
    let mut bench = Bench::new();
    let made = bench.register("Cmine", "m");
    assert_eq!(made.status.number(), 2001);
    assert_eq!(made.location.as_deref(), Some("cse-in/m"));
    assert_eq!(crate::bench::json(&made)["m2m:ae"]["aei"], "Cmine");
    assert_eq!(crate::bench::json(&made)["m2m:ae"]["ri"], "Cmine");
    let cases = [
        ("again under another name", "Cmine", "other", 4117),
        ("a name that is taken", "Cother", "m", 4105),
        ("an originator that is no AE-ID", "Xyz", "x", 4126),
        ("an originator with a slash", "C/yz", "x", 4126),
        ("no originator: one is invented", "", "x1", 2001),
        ("only the initial", "C", "x2", 2001),
        ("of the service provider", "S", "x3", 2001),
    ];
    for (what, from, name, status) in cases {
        assert_eq!(bench.register(from, name).status.number(), status, "{what}");
    }
    let sloppy = r#"{"m2m:ae":{"api":"x","rr":false,"srv":["4"]}}"#;
    let refused = bench.create("Cq", "cse-in", ResourceType::ApplicationEntity, sloppy);
    assert_eq!(refused.status.number(), 4000);
    let below = bench.create("Cq", "cse-in/m", ResourceType::ApplicationEntity, sloppy);
    assert_eq!(below.status.number(), 4103);
}

#[test]
fn a_middle_node_gives_no_ids_of_the_service_provider() {
    let mut config = config();
    config.cse_type = CseType::Middle;
    let mut bench = Bench::with(config);
    assert_eq!(bench.register("S", "x").status.number(), 5001);
}

#[test]
fn creation() {
    let mut bench = Bench::with_container();
    bench.reading("one", "1");
    let cnt = ResourceType::Container;
    let cin = ResourceType::ContentInstance;
    let cases: &[(&str, &str, &str, ResourceType, &str, u16)] = &[
        ("good", "Ca", "cse-in/a/c", cin, r#"{"m2m:cin":{"con":"1"}}"#, 2001),
        ("unstructured", "Ca", "Ca", cnt, r#"{"m2m:cnt":{}}"#, 2001),
        ("by the dash", "Ca", "-/a", cnt, r#"{"m2m:cnt":{}}"#, 2001),
        ("SP-relative", "Ca", "/id-in/cse-in/a", cnt, r#"{"m2m:cnt":{}}"#, 2001),
        ("SP-relative originator", "/id-in/Ca", "cse-in/a", cnt, r#"{"m2m:cnt":{}}"#, 2001),
        ("name taken", "Ca", "cse-in/a/c", cin, r#"{"m2m:cin":{"rn":"one","con":"1"}}"#, 4105),
        ("name of a virtual child", "Ca", "cse-in/a/c", cin, r#"{"m2m:cin":{"rn":"la"}}"#, 4000),
        ("no such parent", "Ca", "cse-in/a/x", cin, r#"{"m2m:cin":{"con":"1"}}"#, 4004),
        ("no such CSE", "Ca", "/id-x/cse-in", cnt, r#"{"m2m:cnt":{}}"#, 4004),
        ("wrong child type", "Ca", "cse-in/a", cin, r#"{"m2m:cin":{"con":"1"}}"#, 4108),
        ("child of an instance", "Ca", "cse-in/a/c/one", cnt, r#"{"m2m:cnt":{}}"#, 4108),
        ("stranger", "Cb", "cse-in/a/c", cin, r#"{"m2m:cin":{"con":"1"}}"#, 4103),
        ("below the latest", "Ca", "cse-in/a/c/la", cin, r#"{"m2m:cin":{}}"#, 4005),
        ("wrong tag", "Ca", "cse-in/a", cnt, r#"{"m2m:cin":{}}"#, 4000),
        ("two tags", "Ca", "cse-in/a", cnt, r#"{"m2m:cnt":{},"m2m:x":{}}"#, 4000),
        ("no object", "Ca", "cse-in/a", cnt, "[]", 4000),
        ("no JSON", "Ca", "cse-in/a/c", cin, "{", 4000),
        ("unknown attribute", "Ca", "cse-in/a/c", cin, r#"{"m2m:cin":{"foo":1}}"#, 4000),
        ("attribute of the CSE", "Ca", "cse-in/a/c", cin, r#"{"m2m:cin":{"cs":1}}"#, 4000),
        ("bad content info", "Ca", "cse-in/a/c", cin, r#"{"m2m:cin":{"cnf":"x"}}"#, 4000),
        ("creator not null", "Ca", "cse-in/a/c", cin, r#"{"m2m:cin":{"cr":"Ca"}}"#, 4000),
        ("expired", "Ca", "cse-in/a", cnt, r#"{"m2m:cnt":{"et":"20200101T000000"}}"#, 4000),
        ("bad rn", "Ca", "cse-in/a", cnt, r#"{"m2m:cnt":{"rn":"a b"}}"#, 4000),
        ("a request by hand", "CAdmin", "cse-in", ResourceType::Request, r#"{"m2m:req":{}}"#, 4108),
    ];
    for (what, from, to, resource_type, content, status) in cases {
        let response = bench.create(from, to, *resource_type, content);
        assert_eq!(response.status.number(), *status, "{what}: {:?}", response.content);
    }
}

/// Null removes an attribute in an update; in a creation there is nothing to remove.
#[test]
fn null_is_no_value_of_a_creation() {
    let mut bench = Bench::with_container();
    bench.create("Ca", "cse-in/a", ResourceType::TimeSeries, r#"{"m2m:ts":{"rn":"t"}}"#);
    let cin = ResourceType::ContentInstance;
    for name in ["con", "rn", "cnf", "et", "lbl", "at", "aa", "or", "conr", "dgt", "loc", "dcnt"] {
        let content = format!(r#"{{"m2m:cin":{{"{name}":null}}}}"#);
        let made = bench.create("Ca", "cse-in/a/c", cin, &content);
        assert_eq!(made.status.number(), 4000, "{name}: {:?}", made.content);
    }
    let others = [
        ("cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"mni":null}}"#),
        ("cse-in/a", ResourceType::FlexContainer, r#"{"m2m:fcnt":{"cnd":"x.y","a":null}}"#),
        ("cse-in/a", ResourceType::Group, r#"{"m2m:grp":{"mnm":1,"mid":[],"spty":null}}"#),
        (
            "cse-in/a/t",
            ResourceType::TimeSeriesInstance,
            r#"{"m2m:tsi":{"con":null,"dgt":"20231114T221320"}}"#,
        ),
    ];
    for (to, resource_type, content) in others {
        let made = bench.create("Ca", to, resource_type, content);
        assert_eq!(made.status.number(), 4000, "{content}: {:?}", made.content);
    }
    assert_eq!(bench.cse.resources(), 4, "none was made");
    // Nested in a content it is a value as any other; the creator is asked for by it.
    for content in [r#"{"m2m:cin":{"con":[null]}}"#, r#"{"m2m:cin":{"con":"1","cr":null}}"#] {
        assert_eq!(bench.create("Ca", "cse-in/a/c", cin, content).status.number(), 2001);
    }
}

#[test]
fn parameters_of_any_request() {
    let mut bench = Bench::with_container();
    let base = bench.request(Operation::Retrieve, "Ca", "cse-in/a");
    let mut no_id = base.clone();
    no_id.id = String::new();
    assert_eq!(bench.ask(no_id).status.number(), 4000);
    let mut nobody = base.clone();
    nobody.from = String::new();
    assert_eq!(bench.ask(nobody).status.number(), 4000);
    let mut nowhere = base.clone();
    nowhere.to = String::new();
    assert_eq!(bench.ask(nowhere).status.number(), 4000);
    let mut typed = base.clone();
    typed.resource_type = Some(ResourceType::Container);
    assert_eq!(bench.ask(typed).status.number(), 4000);
    let mut late = base.clone();
    late.request_expires = Some(Deadline::After(Duration::ZERO));
    assert_eq!(bench.ask(late).status.number(), 4008);
    let mut wrong_result = base;
    wrong_result.result_content = Some(2);
    assert_eq!(bench.ask(wrong_result).status.number(), 4000);
    let create = bench.request(Operation::Create, "Ca", "cse-in/a");
    assert_eq!(bench.ask(create).status.number(), 4000, "no type");
}

#[test]
fn too_much_of_anything_is_refused_and_counted() {
    let mut config = config();
    config.limits.content_octets = 100;
    config.limits.resources = 5;
    config.limits.depth = 3;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    let long = format!(r#"{{"m2m:cnt":{{"lbl":["{}"]}}}}"#, "x".repeat(100));
    let made = bench.create("Ca", "cse-in/a", ResourceType::Container, &long);
    assert_eq!(made.status.number(), 5207);
    let mut at = "cse-in/a".to_owned();
    for status in [2001, 2001, 5207] {
        let made = bench.create("Ca", &at, ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
        assert_eq!(made.status.number(), status);
        at.push_str("/c");
    }
    for status in [2001, 5000] {
        let made = bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{}}"#);
        assert_eq!(made.status.number(), status);
    }
    let counters = bench.cse.counters();
    assert_eq!((counters.content_too_large, counters.too_deep, counters.tree_full), (1, 1, 1));
}

/// A list attribute of a contentInstance has as many entries as those of other types.
#[test]
fn an_instance_with_too_many_labels_is_refused() {
    let mut bench = Bench::with_container();
    let most = config().limits.list_entries;
    for (name, entry) in [("lbl", "\"l\""), ("at", "\"/id-x\""), ("aa", "\"lbl\""), ("conr", "{}")]
    {
        for (entries, status) in [(most, 2001), (most + 1, 4000)] {
            if name == "at" && status == 2001 {
                // It would be announced there.
                continue;
            }
            let list = vec![entry; entries].join(",");
            let content = format!(r#"{{"m2m:cin":{{"con":"1","{name}":[{list}]}}}}"#);
            let made = bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &content);
            assert_eq!(made.status.number(), status, "{name} with {entries}: {made:?}");
        }
    }
}

/// What is large takes the places of many, whether it is made so, or made larger later.
#[test]
fn a_large_resource_takes_several_places() {
    let mut config = config();
    config.limits.branch_resources = 40;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    let make = |bench: &mut Bench, attributes: &str| {
        let content = format!(r#"{{"m2m:cnt":{{{attributes}}}}}"#);
        bench.create("Ca", "cse-in/a", ResourceType::Container, &content).status.number()
    };
    // Some 30 places: labels cost their place in the index.
    let labels: Vec<String> = (0..300).map(|number| format!("\"label-{number}\"")).collect();
    let labels = format!(r#""lbl":[{}]"#, labels.join(","));
    assert_eq!(make(&mut bench, &format!(r#""rn":"large",{labels}"#)), 2001);
    assert_eq!(make(&mut bench, r#""rn":"small""#), 2001);
    let grow = |bench: &mut Bench, name: &str, attributes: &str| {
        let content = format!(r#"{{"m2m:cnt":{{{attributes}}}}}"#);
        bench.update("Ca", &format!("cse-in/a/{name}"), &content).status.number()
    };
    assert_eq!(grow(&mut bench, "small", &labels), 5000);
    assert_eq!(grow(&mut bench, "small", r#""lbl":["one"]"#), 2004);
    assert_eq!(bench.cse.counters().branch_full, 1);
    // The same labels again need no place more; and without them there is room.
    assert_eq!(grow(&mut bench, "large", &labels), 2004);
    assert_eq!(grow(&mut bench, "large", r#""lbl":null"#), 2004);
    assert_eq!(grow(&mut bench, "small", &labels), 2004);
    bench.restart();
    assert_eq!(grow(&mut bench, "large", &labels), 5000);
    assert_eq!(bench.delete("Ca", "cse-in/a/small").status.number(), 2002);
    assert_eq!(grow(&mut bench, "large", &labels), 2004);
}

/// Readings go on in a full branch, however large: as many give way as a new one needs places.
#[test]
fn large_readings_replace_as_many_as_they_need() {
    let mut config = config();
    config.limits.branch_resources = 20;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    for number in 0..30 {
        assert_eq!(bench.reading(&format!("s{number}"), "1").status.number(), 2001);
    }
    assert_eq!(bench.cse.resources(), 1 + 20);
    let large = "x".repeat(8 * 2_048);
    for number in 0..4 {
        assert_eq!(bench.reading(&format!("l{number}"), &large).status.number(), 2001);
        // One that is larger than what gives way goes beyond by its own places at most.
        assert!(bench.cse.resources() <= 1 + 20);
    }
    // AE and container, and two or three large ones of nine places; one that has left memory takes one.
    if crate::RESIDENT_OCTETS.is_none() {
        assert!(bench.cse.resources() <= 1 + 2 + 3, "{}", bench.cse.resources());
    }
    assert_eq!(bench.reading("last", "1").status.number(), 2001);
}

/// Octets of the store count toward a branch's share too, also of what has left memory and after a
/// restart, and though escapes make a text six times as long as its content.
#[test]
fn one_branch_takes_its_part_of_the_store_only() {
    for content in ["x".repeat(10_000), "\\u0001".repeat(10_000)] {
        let mut config = config();
        (config.limits.stored_octets, config.limits.branch_stored_octets) = (800_000, 200_000);
        let mut bench = Bench::with(config);
        bench.register("Ca", "a");
        bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
        for round in 0..3 {
            for number in 0..20 {
                let made = bench.reading(&format!("r{round}-{number}"), &content);
                assert_eq!(made.status.number(), 2001, "{made:?}");
            }
            let octets: usize = bench.rows.values().map(|row| row.len()).sum();
            assert!((100_000..=202_000).contains(&octets), "{octets}");
            bench.restart();
        }
        let large = format!(r#"{{"m2m:cnt":{{"lbl":["{}"]}}}}"#, "l".repeat(9_000));
        let make = |bench: &mut Bench, from: &str, to: &str| {
            let made = bench.create(from, to, ResourceType::Container, &large);
            made.status.number()
        };
        let made: Vec<u16> = (0..20).map(|_| make(&mut bench, "Ca", "cse-in/a")).collect();
        assert!(made.ends_with(&[5000]), "{made:?}");
        bench.register("Cb", "b");
        assert_eq!(make(&mut bench, "Cb", "cse-in/b"), 2001);
    }
}

/// One AE fills its share and no more: another has room, and its own readings go on.
#[test]
fn one_branch_leaves_room_for_others() {
    let mut config = config();
    config.limits.branch_resources = 4;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    for name in ["one", "two", "three"] {
        assert_eq!(bench.reading(name, "1").status.number(), 2001, "{name}");
    }
    assert_eq!(bench.get("Ca", "cse-in/a/c/one").status.number(), 4004, "it gave way");
    let refused = bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{}}"#);
    assert_eq!(refused.status.number(), 5000);
    assert_eq!((bench.cse.counters().branch_full, bench.cse.counters().trimmed), (1, 1));
    // What is there is said to be there, as a device that comes back has to know.
    let there =
        bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    assert_eq!(there.status.number(), 4105);
    assert_eq!(bench.register("Cb", "b").status.number(), 2001);
    for status in [2001, 2001, 2001, 5000] {
        let made = bench.create("Cb", "cse-in/b", ResourceType::Container, r#"{"m2m:cnt":{}}"#);
        assert_eq!(made.status.number(), status);
    }
    // The same after a restart, and there is room again where something is deleted.
    bench.restart();
    let full = bench.create("Cb", "cse-in/b", ResourceType::Container, r#"{"m2m:cnt":{}}"#);
    assert_eq!(full.status.number(), 5000);
    assert_eq!(bench.delete("Ca", "cse-in/a/c").status.number(), 2002);
    let made = bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{}}"#);
    assert_eq!(made.status.number(), 2001);
}

#[test]
fn in_a_full_tree_the_newest_instance_takes_the_place_of_the_oldest() {
    let mut config = config();
    config.limits.resources = 6;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    for name in ["c", "empty"] {
        let content = format!(r#"{{"m2m:cnt":{{"rn":"{name}"}}}}"#);
        bench.create("Ca", "cse-in/a", ResourceType::Container, &content);
    }
    for name in ["one", "two", "three"] {
        let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"1"}}}}"#);
        let made = bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &content);
        assert_eq!(made.status.number(), 2001, "{name}");
    }
    for (name, status) in [("one", 4004), ("two", 2000), ("three", 2000)] {
        let read = bench.request(Operation::Retrieve, "Ca", &format!("cse-in/a/c/{name}"));
        assert_eq!(bench.ask(read).status.number(), status, "{name}");
    }
    let content = r#"{"m2m:cin":{"con":"1"}}"#;
    let made = bench.create("Ca", "cse-in/a/empty", ResourceType::ContentInstance, content);
    assert_eq!(made.status.number(), 5000, "nothing there gives way");
    let wrong = r#"{"m2m:cin":{"con":"1","at":["http://other"]}}"#;
    let made = bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, wrong);
    assert_eq!(made.status.number(), 4000);
    assert_eq!(bench.get("Ca", "cse-in/a/c/two").status.number(), 2000, "nor for what is refused");
    let counters = bench.cse.counters();
    assert_eq!((counters.trimmed, counters.tree_full), (1, 1));
}

#[test]
fn retrieval_update_and_deletion() {
    let mut bench = Bench::with_container();
    assert_eq!(bench.get("Ca", "cse-in/a/c/la").status.number(), 4004, "empty");
    bench.reading("one", "1");
    bench.reading("two", "2");
    assert_eq!(bench.get("Ca", "cse-in/a/c/one").status.number(), 2000);
    assert_eq!(bench.get("Cb", "cse-in/a/c/one").status.number(), 4103);
    assert_eq!(bench.get("Cb", "cse-in/a/c/la").status.number(), 4103);
    assert_eq!(bench.get("Ca", "cse-in/a/c/la?rcn=3").status.number(), 4000);
    let update = |bench: &mut Bench, to: &str, content: &str| {
        bench.update("Ca", to, content).status.number()
    };
    assert_eq!(update(&mut bench, "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"]}}"#), 2004);
    assert_eq!(update(&mut bench, "cse-in/a/c", r#"{"m2m:cnt":{"rn":"x"}}"#), 4000);
    assert_eq!(update(&mut bench, "cse-in/a/c", r#"{"m2m:cnt":{"cni":1}}"#), 4000);
    assert_eq!(update(&mut bench, "cse-in/a/c", r#"{"m2m:ae":{}}"#), 4000);
    assert_eq!(update(&mut bench, "cse-in/a/c/one", r#"{"m2m:cin":{}}"#), 4005);
    assert_eq!(update(&mut bench, "cse-in/a/c/la", r#"{"m2m:cin":{}}"#), 4005);
    assert_eq!(update(&mut bench, "cse-in", r#"{"m2m:cb":{}}"#), 4103);
    assert_eq!(bench.update("CAdmin", "cse-in", r#"{"m2m:cb":{}}"#).status.number(), 4005);
    assert_eq!(bench.delete("Cb", "cse-in/a/c").status.number(), 4103);
    assert_eq!(bench.delete("Ca", "cse-in/a/c/ol").status.number(), 2002);
    assert_eq!(bench.get("Ca", "cse-in/a/c/one").status.number(), 4004, "the oldest");
    assert_eq!(bench.delete("CAdmin", "cse-in").status.number(), 4005);
    assert_eq!(bench.delete("Ca", "cse-in/a").status.number(), 2002);
    assert_eq!(bench.get("CAdmin", "cse-in/a/c/two").status.number(), 4004, "gone with it");
    assert_eq!(bench.cse.resources(), 1);
}

#[test]
fn a_container_that_shows_nothing() {
    let mut bench = Bench::with_container();
    bench.reading("one", "1");
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"disr":true}}"#);
    assert_eq!(bench.get("Ca", "cse-in/a/c/one").status.number(), 4005);
    assert_eq!(bench.get("Ca", "cse-in/a/c/la").status.number(), 4005);
}

#[test]
fn more_octets_than_the_container_takes() {
    let mut bench = Bench::with_container();
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"mbs":3}}"#);
    assert_eq!(bench.reading("one", "1234").status.number(), 5207);
    assert_eq!(bench.reading("one", "123").status.number(), 2001);
}
