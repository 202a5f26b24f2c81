//! flexContainers and what they were, nodes and their management objects, time series.

use crate::bench::{Bench, found, json};
use gatewright_onem2m::ResourceType;
use serde_json::json;

const OXIMETER: &str = r#"{"cod:oximr":{"rn":"o","cnd":"org.onem2m.common.moduleclass.oximeter",
    "oxySn":96,"mni":2}}"#;

#[test]
fn a_flex_container_keeps_what_it_was() {
    let mut bench = Bench::with_container();
    let made = bench.create("Ca", "cse-in/a", ResourceType::FlexContainer, OXIMETER);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    assert_eq!(json(&made)["cod:oximr"]["cs"], 2);
    for value in [97, 98] {
        let update = format!(r#"{{"cod:oximr":{{"oxySn":{value}}}}}"#);
        let changed = bench.update("Ca", "cse-in/a/o", &update);
        assert_eq!(changed.status.number(), 2004, "{changed:?}");
    }
    let now = json(&bench.get("Ca", "cse-in/a/o"));
    assert_eq!(now["cod:oximr"]["oxySn"], 98);
    assert_eq!((&now["cod:oximr"]["cni"], &now["cod:oximr"]["st"]), (&json!(2), &json!(2)));
    assert_eq!(json(&bench.get("Ca", "cse-in/a/o/ol"))["cod:oximr"]["oxySn"], 97);
    let latest = json(&bench.get("Ca", "cse-in/a/o/la"));
    assert_eq!(latest["cod:oximr"]["oxySn"], 98);
    assert_eq!(latest["cod:oximr"]["ty"], 58);
    assert_eq!(found(&bench.get("Ca", "cse-in/a?fu=1&atr=oxySn,98")).len(), 2);
    let wrong = bench.update("Ca", "cse-in/a/o", r#"{"cod:puls":{"x":1}}"#);
    assert_eq!(wrong.status.number(), 4000);
    let by_hand = bench.create("Ca", "cse-in/a/o", ResourceType::FlexContainerInstance, OXIMETER);
    assert_eq!(by_hand.status.number(), 4108);
    for bad in [r#"{"cod:oximr":{}}"#, r#"{"oximr":{"cnd":"x"}}"#, r#"{"a\"b:c":{"cnd":"x"}}"#] {
        let refused = bench.create("Ca", "cse-in/a", ResourceType::FlexContainer, bad);
        assert_eq!(refused.status.number(), 4000, "{bad}");
    }
    let rows: Vec<_> = bench.cse.rows().collect();
    let again: Vec<_> = bench.reopened().rows().collect();
    assert_eq!(rows, again);
}

#[test]
fn a_flex_container_without_bounds_keeps_nothing() {
    let mut bench = Bench::with_container();
    let plain = r#"{"cod:oximr":{"rn":"o","cnd":"x","oxySn":96}}"#;
    bench.create("Ca", "cse-in/a", ResourceType::FlexContainer, plain);
    bench.update("Ca", "cse-in/a/o", r#"{"cod:oximr":{"oxySn":97}}"#);
    assert_eq!(bench.get("Ca", "cse-in/a/o/la").status.number(), 4004);
}

#[test]
fn nodes_and_management_objects() {
    let mut bench = Bench::with_container();
    let node = r#"{"m2m:nod":{"rn":"n","ni":"urn:x"}}"#;
    assert_eq!(bench.create("CAdmin", "cse-in", ResourceType::Node, node).status.number(), 2001);
    let mut manage = |content: &str| {
        bench.create("CAdmin", "cse-in/n", ResourceType::ManagementObject, content).status.number()
    };
    assert_eq!(manage(r#"{"m2m:bat":{"rn":"b","mgd":1006,"btl":80,"bts":1}}"#), 2001);
    assert_eq!(manage(r#"{"m2m:dvi":{"mgd":1006,"btl":80,"bts":1}}"#), 4000);
    // Here `loc` is text, as acmecse has it: of all others it is a geometry.
    assert_eq!(manage(r#"{"m2m:dvi":{"mgd":1007,"dlb":"x","loc":"ward 3, bed 2"}}"#), 2001);
    assert_eq!(manage(r#"{"m2m:dvi":{"mgd":1007,"dlb":"x","loc":7}}"#), 4000);
    assert_eq!(manage(r#"{"m2m:bat":{"btl":80,"bts":1}}"#), 4000);
    assert_eq!(manage(r#"{"m2m:xyz":{"mgd":1999}}"#), 5001);
    let changed = bench.update("CAdmin", "cse-in/n/b", r#"{"m2m:bat":{"btl":79}}"#);
    assert_eq!(json(&changed)["m2m:bat"]["btl"], 79);
}

#[test]
fn a_time_series_has_one_instance_a_time() {
    let mut bench = Bench::with_container();
    let series = r#"{"m2m:ts":{"rn":"t","mni":2,"pei":1000}}"#;
    assert_eq!(
        bench.create("Ca", "cse-in/a", ResourceType::TimeSeries, series).status.number(),
        2001
    );
    let add = |bench: &mut Bench, content: &str| {
        bench.create("Ca", "cse-in/a/t", ResourceType::TimeSeriesInstance, content).status.number()
    };
    let at =
        |second: u8| format!(r#"{{"m2m:tsi":{{"con":"v","dgt":"20231114T2213{second:02}"}}}}"#);
    assert_eq!(add(&mut bench, &at(1)), 2001);
    assert_eq!(add(&mut bench, &at(1)), 4105);
    assert_eq!(add(&mut bench, r#"{"m2m:tsi":{"con":"v"}}"#), 4000);
    assert_eq!(add(&mut bench, r#"{"m2m:tsi":{"con":"v","dgt":"now"}}"#), 4000);
    assert_eq!(add(&mut bench, &at(2)), 2001);
    assert_eq!(add(&mut bench, &at(3)), 2001);
    let oldest = json(&bench.get("Ca", "cse-in/a/t/ol"));
    assert_eq!(oldest["m2m:tsi"]["dgt"], "20231114T221302");
}

/// TS-0001 §9.6.35: an instance shows what the definition's attributes were, so other changes make none.
#[test]
fn what_is_no_content_makes_no_instance() {
    let mut bench = Bench::with_container();
    let content = OXIMETER.replace(r#""mni":2"#, r#""mni":9"#);
    bench.create("Ca", "cse-in/a", ResourceType::FlexContainer, &content);
    let count =
        |bench: &mut Bench| json(&bench.get("Ca", "cse-in/a/o"))["cod:oximr"]["cni"].clone();
    assert_eq!(count(&mut bench), 1);
    for (update, expected) in [
        (r#""lbl":["x"]"#, 1),
        (r#""mni":5"#, 1),
        (r#""oxySn":97"#, 2),
        (r#""oxySn":97,"lbl":["y"]"#, 3),
    ] {
        bench.update("Ca", "cse-in/a/o", &format!(r#"{{"cod:oximr":{{{update}}}}}"#));
        assert_eq!(count(&mut bench), expected, "{update}");
    }
}

/// TS-0001 §9.6.18: a node names the AEs that name it.
#[test]
fn a_node_names_its_entities() {
    let mut bench = Bench::with_container();
    for name in ["n1", "n2"] {
        let node = format!(r#"{{"m2m:nod":{{"rn":"{name}","ni":"{name}"}}}}"#);
        bench.create("CAdmin", "cse-in", ResourceType::Node, &node);
    }
    let hosted = |bench: &mut Bench, node: &str| {
        json(&bench.get("CAdmin", &format!("cse-in/{node}")))["m2m:nod"]["hael"].clone()
    };
    let entity =
        r#"{"m2m:ae":{"rn":"b","api":"Nx","rr":false,"srv":["4"],"nl":"/id-in/cse-in/n1"}}"#;
    bench.create("Cb", "cse-in", ResourceType::ApplicationEntity, entity);
    bench.update("Ca", "cse-in/a", r#"{"m2m:ae":{"nl":"cse-in/n1"}}"#);
    assert_eq!(hosted(&mut bench, "n1"), json!(["Cb", "Ca"]));
    bench.update("Cb", "cse-in/b", r#"{"m2m:ae":{"nl":"cse-in/n2"}}"#);
    assert_eq!(
        (hosted(&mut bench, "n1"), hosted(&mut bench, "n2")),
        (json!(["Ca"]), json!(["Cb"]))
    );
    bench.delete("Cb", "cse-in/b");
    assert_eq!(hosted(&mut bench, "n2"), json!(null));
    bench.delete("CAdmin", "cse-in/n1");
    assert_eq!(json(&bench.get("Ca", "cse-in/a"))["m2m:ae"]["nl"], json!(null));
}
