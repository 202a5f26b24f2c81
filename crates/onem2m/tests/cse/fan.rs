//! Random requests against a second reference model: containers that groups reach and that others
//! are told of, and a time series, with restarts and a wall clock that leaps. It shares no code with
//! the machine.

use crate::bench::{Bench, json};
use core::time::Duration;
use gatewright_onem2m::{ResourceType, Status};
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

const CONTAINERS: [&str; 3] = ["x", "y", "z"];

#[derive(Clone, Debug)]
enum Step {
    Make {
        at: usize,
    },
    Delete {
        at: usize,
    },
    Bound {
        at: usize,
        most: usize,
    },
    Reading {
        at: usize,
        name: u8,
    },
    Members {
        bits: u8,
    },
    FanCreate {
        name: u8,
    },
    FanLatest,
    Subscribe {
        at: usize,
    },
    Unsubscribe {
        at: usize,
    },
    Generated {
        second: u8,
    },
    SeriesBound {
        most: usize,
    },
    /// The wall clock is set wrong by so many days, or right.
    Leap {
        days: i64,
    },
    Wait {
        minutes: u64,
    },
    Restart,
}

#[derive(Clone, Debug, Default)]
struct Container {
    most: Option<usize>,
    readings: VecDeque<String>,
    subscribed: bool,
}

#[derive(Debug, Default)]
struct Model {
    containers: [Option<Container>; CONTAINERS.len()],
    members: Vec<usize>,
    /// Times of the series' instances, oldest instance first.
    series: VecDeque<u8>,
    series_most: Option<usize>,
    /// Names of what was told of, in the step under way.
    told: Vec<String>,
}

impl Model {
    fn create(&mut self, at: usize, name: &str) -> u16 {
        let Some(container) = &mut self.containers[at] else { return 4004 };
        if container.most == Some(0) {
            return 5207;
        }
        if container.readings.iter().any(|taken| taken == name) {
            return 4105;
        }
        container.readings.push_back(name.to_owned());
        if container.subscribed {
            self.told.push(format!("{} {name}", CONTAINERS[at]));
        }
        container.trim();
        2001
    }
}

impl Container {
    fn trim(&mut self) {
        while self.most.is_some_and(|most| self.readings.len() > most) {
            self.readings.pop_front();
        }
    }
}

fn path(at: usize) -> String {
    format!("cse-in/a/{}", CONTAINERS[at])
}

fn make(bench: &mut Bench, at: usize) -> u16 {
    let content = format!(r#"{{"m2m:cnt":{{"rn":"{}"}}}}"#, CONTAINERS[at]);
    bench.create("Ca", "cse-in/a", ResourceType::Container, &content).status.number()
}

/// A bench with the containers, a group of all of them and a series; notifications go to an AE
/// that subscribes for itself, so that nobody is asked first.
fn begin() -> (Bench, Model) {
    let mut bench = Bench::new();
    bench.register("Ca", "a");
    let poa = r#"{"m2m:ae":{"poa":["http://a:1/in"],"rr":true}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a", poa).status, Status::Updated);
    let mut model = Model { members: vec![0, 1, 2], ..Model::default() };
    for at in 0..CONTAINERS.len() {
        assert_eq!(make(&mut bench, at), 2001);
        model.containers[at] = Some(Container::default());
    }
    let group = r#"{"m2m:grp":{"rn":"g","mnm":5,"mt":3,
        "mid":["cse-in/a/x","cse-in/a/y","cse-in/a/z"]}}"#;
    assert_eq!(bench.create("Ca", "cse-in/a", ResourceType::Group, group).status, Status::Created);
    let series = r#"{"m2m:ts":{"rn":"t"}}"#;
    let made = bench.create("Ca", "cse-in/a", ResourceType::TimeSeries, series);
    assert_eq!(made.status, Status::Created, "{made:?}");
    (bench, model)
}

/// What was told: the container and the name of what came into it.
fn told(bench: &mut Bench) -> Vec<String> {
    let mut told = Vec::new();
    loop {
        let calls = bench.calls();
        if calls.is_empty() {
            return told;
        }
        for call in calls {
            let content = call.request.content.as_deref().unwrap();
            let content: serde_json::Value = serde_json::from_str(content).unwrap();
            let event = &content["m2m:sgn"]["nev"];
            assert_eq!(event["net"], 3, "{content}");
            let name = event["rep"]["m2m:cin"]["rn"].as_str().unwrap();
            let subscription = content["m2m:sgn"]["sur"].as_str().unwrap();
            let subscription = json(&bench.get("Ca", subscription));
            let label = subscription["m2m:sub"]["lbl"][0].as_str().unwrap().to_owned();
            told.push(format!("{label} {name}"));
            bench.reply(&call, Status::Ok);
        }
    }
}

fn play(steps: Vec<Step>) {
    let (mut bench, mut model) = begin();
    for (number, step) in steps.into_iter().enumerate() {
        let context = format!("step {number}: {step:?}");
        model.told.clear();
        match step {
            Step::Make { .. } | Step::Delete { .. } | Step::Bound { .. } | Step::Reading { .. } => {
                play_container(&mut bench, &mut model, &step, &context);
            }
            Step::Members { .. } | Step::FanCreate { .. } | Step::FanLatest => {
                play_group(&mut bench, &mut model, &step, &context);
            }
            Step::Subscribe { .. } | Step::Unsubscribe { .. } => {
                play_subscription(&mut bench, &mut model, &step, &context);
            }
            Step::Generated { .. } | Step::SeriesBound { .. } => {
                play_series(&mut bench, &mut model, &step, &context);
            }
            // No lifetime here is shorter than the leaps: nothing follows from them.
            Step::Leap { days } => bench.lead = days * 86_400,
            Step::Wait { minutes } => bench.pass(Duration::from_mins(minutes)),
            Step::Restart => {
                // What has arrived is noted as such.
                bench.pass(Duration::from_millis(100));
                bench.restart();
            }
        }
        let mut told = told(&mut bench);
        told.sort();
        model.told.sort();
        assert_eq!(told, model.told, "{context}");
    }
    for (at, container) in model.containers.iter().enumerate() {
        let got = bench.get("Ca", &path(at));
        assert_eq!(got.status.is_success(), container.is_some());
        if let Some(container) = container {
            assert_eq!(json(&got)["m2m:cnt"]["cni"], container.readings.len());
        }
    }
    assert_eq!(json(&bench.get("Ca", "cse-in/a/t"))["m2m:ts"]["cni"], model.series.len());
}

fn play_container(bench: &mut Bench, model: &mut Model, step: &Step, context: &str) {
    let (got, expected) = match *step {
        Step::Make { at } => {
            let expected = if model.containers[at].is_some() { 4105 } else { 2001 };
            model.containers[at].get_or_insert_default();
            (make(bench, at), expected)
        }
        Step::Delete { at } => {
            let expected = if model.containers[at].take().is_some() { 2002 } else { 4004 };
            (bench.delete("Ca", &path(at)).status.number(), expected)
        }
        Step::Bound { at, most } => {
            let content = format!(r#"{{"m2m:cnt":{{"mni":{most}}}}}"#);
            let expected = model.containers[at].as_mut().map_or(4004, |container| {
                container.most = Some(most);
                container.trim();
                2004
            });
            (bench.update("Ca", &path(at), &content).status.number(), expected)
        }
        Step::Reading { at, name } => {
            let content = format!(r#"{{"m2m:cin":{{"rn":"i{name}","con":"1"}}}}"#);
            let made = bench.create("Ca", &path(at), ResourceType::ContentInstance, &content);
            (made.status.number(), model.create(at, &format!("i{name}")))
        }
        _ => return,
    };
    assert_eq!(got, expected, "{context}");
}

fn play_group(bench: &mut Bench, model: &mut Model, step: &Step, context: &str) {
    match *step {
        Step::Members { bits } => {
            let wanted: Vec<usize> =
                (0..CONTAINERS.len()).filter(|at| bits & (1 << at) != 0).collect();
            let paths: Vec<String> = wanted.iter().map(|&at| path(at)).collect();
            let content = serde_json::json!({"m2m:grp": {"mid": paths}}).to_string();
            let got = bench.update("Ca", "cse-in/a/g", &content).status.number();
            let all_there = wanted.iter().all(|&at| model.containers[at].is_some());
            assert_eq!(got, if all_there { 2004 } else { 4004 }, "{context}");
            if all_there {
                model.members = wanted;
            }
        }
        Step::FanCreate { name } => {
            let content = format!(r#"{{"m2m:cin":{{"rn":"i{name}","con":"1"}}}}"#);
            let got =
                bench.create("Ca", "cse-in/a/g/fopt", ResourceType::ContentInstance, &content);
            let answers = json(&got)["m2m:agr"]["m2m:rsp"].clone();
            for (nth, at) in model.members.clone().into_iter().enumerate() {
                let expected = model.create(at, &format!("i{name}"));
                assert_eq!(answers[nth]["rsc"], expected, "{context}, member {nth}: {answers}");
            }
            assert_eq!(answers.as_array().unwrap().len(), model.members.len(), "{context}");
        }
        Step::FanLatest => {
            let answers =
                json(&bench.get("Ca", "cse-in/a/g/fopt/la"))["m2m:agr"]["m2m:rsp"].clone();
            for (nth, &at) in model.members.iter().enumerate() {
                let latest = model.containers[at].as_ref().and_then(|it| it.readings.back());
                let expected = if latest.is_some() { 2000 } else { 4004 };
                assert_eq!(answers[nth]["rsc"], expected, "{context}, member {nth}: {answers}");
                if let Some(latest) = latest {
                    assert_eq!(answers[nth]["pc"]["m2m:cin"]["rn"], *latest, "{context}");
                }
            }
        }
        _ => {}
    }
}

fn play_subscription(bench: &mut Bench, model: &mut Model, step: &Step, context: &str) {
    match *step {
        Step::Subscribe { at } => {
            let content = format!(
                r#"{{"m2m:sub":{{"rn":"s","lbl":["{}"],"nu":["cse-in/a"],"enc":{{"net":[3]}}}}}}"#,
                CONTAINERS[at]
            );
            let got = bench.create("Ca", &path(at), ResourceType::Subscription, &content);
            // A subscription has a name like any other child.
            let expected = model.containers[at].as_mut().map_or(4004, |container| {
                if core::mem::replace(&mut container.subscribed, true) { 4105 } else { 2001 }
            });
            assert_eq!(got.status.number(), expected, "{context}: {got:?}");
        }
        Step::Unsubscribe { at } => {
            let got = bench.delete("Ca", &format!("{}/s", path(at))).status.number();
            let was = model.containers[at]
                .as_mut()
                .is_some_and(|container| core::mem::replace(&mut container.subscribed, false));
            assert_eq!(got, if was { 2002 } else { 4004 }, "{context}");
        }
        _ => {}
    }
}

fn play_series(bench: &mut Bench, model: &mut Model, step: &Step, context: &str) {
    let trim = |model: &mut Model| {
        while model.series_most.is_some_and(|most| model.series.len() > most) {
            model.series.pop_front();
        }
    };
    match *step {
        Step::Generated { second } => {
            let time = format!("20231114T2213{second:02}");
            let content = format!(r#"{{"m2m:tsi":{{"dgt":"{time}","con":"1"}}}}"#);
            let got = bench.create("Ca", "cse-in/a/t", ResourceType::TimeSeriesInstance, &content);
            let expected = if model.series.contains(&second) {
                4105
            } else if model.series_most == Some(0) {
                5207
            } else {
                model.series.push_back(second);
                trim(model);
                2001
            };
            assert_eq!(got.status.number(), expected, "{context}: {got:?}");
        }
        Step::SeriesBound { most } => {
            let content = format!(r#"{{"m2m:ts":{{"mni":{most}}}}}"#);
            let got = bench.update("Ca", "cse-in/a/t", &content).status.number();
            assert_eq!(got, 2004, "{context}");
            model.series_most = Some(most);
            trim(model);
        }
        _ => {}
    }
    let there: BTreeSet<String> =
        model.series.iter().map(|second| format!("20231114T2213{second:02}")).collect();
    let latest = bench.get("Ca", "cse-in/a/t/la");
    assert_eq!(latest.status.is_success(), !there.is_empty(), "{context}");
    if let Some(second) = model.series.back() {
        let time = format!("20231114T2213{second:02}");
        assert_eq!(json(&latest)["m2m:tsi"]["dgt"], time, "{context}");
    }
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..CONTAINERS.len();
    let name = || 0_u8..6;
    prop_oneof![
        2 => at().prop_map(|at| Step::Make { at }),
        1 => at().prop_map(|at| Step::Delete { at }),
        1 => (at(), 0_usize..4).prop_map(|(at, most)| Step::Bound { at, most }),
        4 => (at(), name()).prop_map(|(at, name)| Step::Reading { at, name }),
        2 => (1_u8..8).prop_map(|bits| Step::Members { bits }),
        4 => name().prop_map(|name| Step::FanCreate { name }),
        2 => Just(Step::FanLatest),
        3 => at().prop_map(|at| Step::Subscribe { at }),
        1 => at().prop_map(|at| Step::Unsubscribe { at }),
        3 => (0_u8..8).prop_map(|second| Step::Generated { second }),
        1 => (0_usize..4).prop_map(|most| Step::SeriesBound { most }),
        1 => prop_oneof![Just(0), -300_i64..300].prop_map(|days| Step::Leap { days }),
        1 => (0_u64..120).prop_map(|minutes| Step::Wait { minutes }),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn groups_subscriptions_and_series_do_what_the_model_does(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        play(steps);
    }
}
