//! Time series that are watched: which points are missing, and who hears of it.

use crate::bench::{Bench, START, json};
use core::time::Duration;
use gatewright_onem2m::{Input, Operation, ResourceType, Response, Status};
use serde_json::{Value, json};

const SERIES: &str = r#"{"m2m:ts":{"rn":"t","pei":10000,"peid":2000,"mdt":4000,"mdd":true}}"#;

/// A bench with the series `cse-in/a/t` of one point each ten seconds.
fn watched(series: &str) -> Bench {
    let mut bench = Bench::with_container();
    let made = bench.create("Ca", "cse-in/a", ResourceType::TimeSeries, series);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    bench
}

/// An instance that was generated `seconds` after the start: 22:13:20 and so many.
fn add(bench: &mut Bench, seconds: u64) -> Response {
    let second = 20 + seconds;
    let time = format!("20231114T22{:02}{:02}", 13 + second / 60, second % 60);
    let content = format!(r#"{{"m2m:tsi":{{"con":"v","dgt":"{time}"}}}}"#);
    let made = bench.create("Ca", "cse-in/a/t", ResourceType::TimeSeriesInstance, &content);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    made
}

fn at(bench: &mut Bench, seconds: u64) {
    bench.now = START + Duration::from_secs(seconds);
    bench.cse.handle(bench.now, Input::Tick);
    bench.run();
}

fn missing(bench: &mut Bench) -> (Value, Vec<String>) {
    let series = json(&bench.get("Ca", "cse-in/a/t"));
    let list = &series["m2m:ts"]["mdlt"];
    assert_ne!(*list, json!([]), "absent while nothing is missing");
    let list = list.as_array().into_iter().flatten();
    let list = list.map(|point| point.as_str().unwrap()[9..15].to_owned()).collect();
    (series["m2m:ts"]["mdc"].clone(), list)
}

#[test]
fn a_point_without_an_instance_is_missing_when_its_time_is_over() {
    let mut bench = watched(SERIES);
    // Nothing is missed before the series has begun.
    at(&mut bench, 100);
    assert_eq!(missing(&mut bench), (json!(0), vec![]));
    add(&mut bench, 100);
    at(&mut bench, 111);
    // Two seconds late is within its tolerance; then one point is left out.
    add(&mut bench, 112);
    at(&mut bench, 123);
    assert_eq!(missing(&mut bench), (json!(0), vec![]), "there is still a second to come");
    assert_eq!(bench.cse.poll_timeout(), Some(START + Duration::from_secs(124)));
    at(&mut bench, 124);
    assert_eq!(missing(&mut bench), (json!(1), vec!["221520".to_owned()]));
    // The points stay where they were: at 130, not ten seconds after the last instance.
    add(&mut bench, 128);
    at(&mut bench, 135);
    assert_eq!(missing(&mut bench).0, json!(1));
    let mut again = Bench {
        cse: bench.reopened(),
        rows: bench.rows.clone(),
        next_seq: bench.next_seq,
        lead: 0,
        now: bench.now,
        asked: bench.asked,
        calls: Vec::new(),
        device_calls: Vec::new(),
        entries: Vec::new(),
        unreadable: Vec::new(),
        clock: None,
        remembered: Vec::new(),
    };
    at(&mut again, 144);
    assert_eq!(missing(&mut again), (json!(2), vec!["221520".to_owned(), "221540".to_owned()]));
    assert_eq!(again.cse.counters().points_missing, 1);
}

#[test]
fn the_list_is_bounded_and_the_count_is_not() {
    let series = SERIES.replace("}}", r#","mdn":2}}"#);
    let mut bench = watched(&series);
    add(&mut bench, 0);
    at(&mut bench, 55);
    let expected = ["221400", "221410"].map(str::to_owned).to_vec();
    assert_eq!(missing(&mut bench), (json!(5), expected));
    // A day of silence is found in one step, too.
    at(&mut bench, 24 * 3_600 + 4);
    assert_eq!(missing(&mut bench).0, json!(8_640));
}

#[test]
fn whoever_subscribes_to_missing_data_hears_when_it_is_enough() {
    let mut bench = watched(SERIES);
    let of = |criterion: &str| {
        format!(r#"{{"m2m:sub":{{"nu":["http://m/x"],"enc":{{"net":[8],"md":{criterion}}}}}}}"#)
    };
    for bad in [r#"{"dur":"PT1M"}"#, r#"{"num":0}"#, r#"{"num":2,"dur":"soon"}"#] {
        let refused = bench.create("Ca", "cse-in/a/t", ResourceType::Subscription, &of(bad));
        assert_eq!(refused.status.number(), 4000, "{bad}");
    }
    let subscription = of(r#"{"num":2,"dur":"PT25S"}"#);
    let request = bench.request(Operation::Create, "Ca", "cse-in/a/t");
    bench.ask_later(request.creating(ResourceType::Subscription, subscription));
    let asked = bench.calls();
    assert_eq!(bench.reply(&asked[0], Status::Ok).len(), 1);
    add(&mut bench, 0);
    at(&mut bench, 15);
    assert!(bench.calls.is_empty(), "one is not enough");
    at(&mut bench, 24);
    let told: Vec<Value> = bench
        .calls
        .iter()
        .map(|call| serde_json::from_str(call.request.content.as_deref().unwrap()).unwrap())
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    let event = &told[0]["m2m:sgn"]["nev"];
    assert_eq!((&event["net"], &event["rep"]["m2m:tsn"]["mdc"]), (&json!(8), &json!(2)));
    assert_eq!(event["rep"]["m2m:tsn"]["mdlt"].as_array().unwrap().len(), 2);
}

#[test]
fn a_watch_is_ordered_and_withdrawn() {
    let mut bench = watched(r#"{"m2m:ts":{"rn":"t","pei":10000,"mdt":6000}}"#);
    let refuse = |bench: &mut Bench, update: &str| {
        let status = bench.update("Ca", "cse-in/a/t", update).status.number();
        assert_eq!(status, 4000, "{update}");
    };
    add(&mut bench, 0);
    at(&mut bench, 60);
    refuse(&mut bench, r#"{"m2m:ts":{"mdd":true,"mdt":7000}}"#);
    refuse(&mut bench, r#"{"m2m:ts":{"peid":5001}}"#);
    let on = r#"{"m2m:ts":{"mdd":true}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a/t", on).status.number(), 2004);
    refuse(&mut bench, r#"{"m2m:ts":{"mdt":7000}}"#);
    // It begins with the next instance.
    at(&mut bench, 100);
    assert_eq!(missing(&mut bench), (json!(0), vec![]));
    add(&mut bench, 100);
    at(&mut bench, 116);
    assert_eq!(missing(&mut bench).0, json!(1));
    let off = r#"{"m2m:ts":{"mdd":false}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a/t", off).status.number(), 2004);
    at(&mut bench, 200);
    assert_eq!(missing(&mut bench).0, json!(1));
    assert_eq!(bench.update("Ca", "cse-in/a/t", on).status.number(), 2004);
    assert_eq!(missing(&mut bench), (json!(0), vec![]));
    for bad in [
        r#"{"m2m:ts":{"mdd":true}}"#,
        r#"{"m2m:ts":{"mdd":true,"pei":1000}}"#,
        r#"{"m2m:ts":{"mdd":true,"pei":1000,"mdt":500}}"#,
        r#"{"m2m:ts":{"mdd":true,"pei":99,"mdt":90}}"#,
    ] {
        let refused = bench.create("Ca", "cse-in/a", ResourceType::TimeSeries, bad);
        assert_eq!(refused.status.number(), 4000, "{bad}");
    }
}
