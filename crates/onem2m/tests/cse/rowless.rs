//! Readings of devices that are stored with their messages: whatever fails, each that was
//! acknowledged arrives at the CSE above.

use crate::bench::{Bench, config};
use core::time::Duration;
use gatewright_onem2m::{
    Call, Input, Operation, OutboxMessage, Output, Request, ResourceType, Response, Status, Token,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

const TARGET: &str = "http://192.0.2.1:8080";
/// Instances that a container keeps.
const KEPT: usize = 3;
const DEVICES: [&str; 3] = ["a", "b", "d"];

/// Devices that report to a gateway, and the CSE above it.
struct Ward {
    bench: Bench,
    /// Readings made so far.
    made: usize,
    /// Names of the acknowledged readings of each device.
    acknowledged: [Vec<String>; DEVICES.len()],
    /// Requests that the CSE above has not executed.
    sent: Vec<Call>,
    /// What it has executed, and each name that it was sent again.
    above: Vec<String>,
    again: Vec<String>,
}

impl Ward {
    fn new() -> Self {
        let mut bench = Bench::with(config());
        for device in DEVICES {
            bench.register(&format!("C{device}"), device);
            let content = format!(r#"{{"m2m:cnt":{{"rn":"c","mni":{KEPT}}}}}"#);
            let (from, to) = (format!("C{device}"), format!("cse-in/{device}"));
            bench.create(&from, &to, ResourceType::Container, &content);
        }
        let acknowledged = [const { Vec::new() }; DEVICES.len()];
        Self {
            bench,
            made: 0,
            acknowledged,
            sent: Vec::new(),
            above: Vec::new(),
            again: Vec::new(),
        }
    }

    /// A device reports; with `fails` the store refuses the next batch.
    fn report(&mut self, device: usize, fails: bool) {
        self.made += 1;
        let (name, from) =
            (format!("{}{}", DEVICES[device], self.made), format!("C{}", DEVICES[device]));
        let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"{}"}}}}"#, self.made);
        let create = |to: String| {
            Request::new(Operation::Create, to, &*from, &*name)
                .creating(ResourceType::ContentInstance, &*content)
        };
        let message = OutboxMessage {
            queue: format!("device/{from}").into(),
            target: TARGET.into(),
            request: create(format!("/id-up/cse-up/{}/c", DEVICES[device])).into(),
            keep: Some(Duration::from_hours(24)),
            batch: None,
        };
        let request = create(format!("cse-in/{}/c", DEVICES[device])).into();
        self.bench.asked += 1;
        let token = Token(self.bench.asked);
        let input = Input::AskAndPost { token, request, message: Box::new(message) };
        let answers = self.tell(input, fails);
        if answers.iter().any(|(it, answer)| *it == token && answer.status == Status::Created) {
            self.acknowledged[device].push(name);
        }
    }

    fn tell(&mut self, input: Input, fails: bool) -> Vec<(Token, Response)> {
        let mut answers = Vec::new();
        self.bench.cse.handle(self.bench.clocks(), input);
        if fails {
            let mut others = Vec::new();
            while let Some(output) = self.bench.cse.poll_output() {
                match output {
                    Output::Store(batch) => {
                        let failed = Input::Failed(batch.number);
                        self.bench.cse.handle(self.bench.clocks(), failed);
                        break;
                    }
                    Output::Respond { token, response } => answers.push((token, response)),
                    Output::Call(call) => others.push(*call),
                    other => panic!("{other:?}"),
                }
            }
            self.bench.calls.extend(others);
        }
        answers.extend(self.bench.run());
        self.sent.append(&mut self.bench.calls());
        answers
    }

    fn pass(&mut self, millis: u64, fails: bool) {
        self.bench.now += Duration::from_millis(millis);
        self.tell(Input::Tick, fails);
    }

    /// The CSE above executes the first request of a device, and answers it unless the answer is
    /// lost.
    fn execute(&mut self, device: usize, is_answered: bool) {
        let from = format!("C{}", DEVICES[device]);
        let Some(at) = self.sent.iter().position(|call| call.request.from == from) else { return };
        let call = self.sent.remove(at);
        let content = call.request.content.as_deref().unwrap();
        let content: serde_json::Value = serde_json::from_str(content).unwrap();
        let name = content["m2m:cin"]["rn"].as_str().unwrap().to_owned();
        assert_eq!(content["m2m:cin"]["con"].as_str().unwrap(), &name[1..]);
        assert_eq!(call.request.to, format!("/id-up/cse-up/{}/c", DEVICES[device]));
        let status = if self.above.contains(&name) {
            self.again.push(name);
            Status::Conflict
        } else {
            self.above.push(name);
            Status::Created
        };
        if is_answered {
            self.answer(&call, status);
        }
    }

    fn answer(&mut self, call: &Call, status: Status) {
        let answer = Response::new(status, call.request.id.as_str(), call.request.release);
        self.tell(Input::Answer { call: call.id, answer: Ok(answer) }, false);
    }

    /// The CSE above refuses the first request of a device for a while.
    fn refuse(&mut self, device: usize) {
        let from = format!("C{}", DEVICES[device]);
        if let Some(at) = self.sent.iter().position(|call| call.request.from == from) {
            let call = self.sent.remove(at);
            self.answer(&call, Status::InternalServerError);
        }
    }

    fn restart(&mut self) {
        self.sent.clear();
        self.bench.calls();
        self.bench.restart();
        self.sent = self.bench.calls();
    }

    /// Executes everything until nothing waits.
    fn drain(&mut self) {
        for _ in 0..400 {
            for device in 0..DEVICES.len() {
                while self.sent.iter().any(|it| it.request.from == format!("C{}", DEVICES[device]))
                {
                    self.execute(device, true);
                }
            }
            self.pass(1_000, false);
            if self.sent.is_empty() && self.bench.cse.messages_waiting() == 0 {
                return;
            }
        }
        panic!("{} messages wait for ever", self.bench.cse.messages_waiting());
    }

    /// Names of a device's readings in the order in which they arrived.
    fn arrived(&self, device: usize) -> Vec<String> {
        let its = self.above.iter().filter(|name| name.starts_with(DEVICES[device]));
        its.cloned().collect()
    }

    fn rows(&self, mark: &str) -> usize {
        self.bench.rows.values().filter(|row| row.starts_with(mark)).count()
    }
}

/// The store writes a reading, and what it needs once for its container.
#[test]
fn a_reading_costs_one_row() {
    let mut ward = Ward::new();
    ward.report(0, false);
    for mark in ["{\"_w\":", "{\"_m\":"] {
        assert_eq!(ward.rows(mark), 1, "{mark}");
    }
    let before = ward.bench.rows.len();
    ward.report(0, false);
    assert_eq!((ward.bench.rows.len(), ward.rows("{\"_x\":")), (before + 1, 0));
    ward.drain();
    assert_eq!(ward.arrived(0), ward.acknowledged[0]);
}

/// What has arrived for a tenth of a second is not sent again after a kill.
#[test]
fn what_has_arrived_is_not_sent_again() {
    let mut ward = Ward::new();
    for _ in 0..2 {
        (0..DEVICES.len()).for_each(|device| ward.report(device, false));
    }
    ward.drain();
    ward.restart();
    assert!(ward.sent.is_empty() && ward.bench.cse.messages_waiting() == 0);
    ward.report(1, false);
    ward.restart();
    ward.drain();
    assert_eq!((ward.arrived(1).len(), ward.again.len()), (3, 0));
}

/// A container that is full drops its oldest reading, whose message then has a row, also if the store
/// fails at first.
#[test]
fn the_message_of_a_reading_that_goes_has_a_row() {
    for fails in [false, true] {
        let mut ward = Ward::new();
        for number in 0..8 {
            ward.report(0, fails && number == 5);
            ward.pass(5_000, false);
        }
        assert_eq!(ward.rows("{\"_x\":"), ward.acknowledged[0].len() - KEPT);
        ward.restart();
        ward.drain();
        assert_eq!(ward.arrived(0), ward.acknowledged[0]);
        assert_eq!(ward.rows("{\"_x\":"), 0);
        ward.restart();
        assert!(ward.sent.is_empty());
    }
}

/// A device whose readings the CSE above refuses for a while has others' not sent again.
#[test]
fn who_waits_does_not_hold_up_the_mark() {
    let mut ward = Ward::new();
    ward.report(0, false);
    ward.refuse(0);
    for _ in 0..20 {
        ward.report(1, false);
        ward.execute(1, true);
        ward.pass(100, false);
        ward.refuse(0);
    }
    ward.restart();
    ward.drain();
    assert_eq!(
        (ward.arrived(0), ward.arrived(1)),
        (ward.acknowledged[0].clone(), ward.acknowledged[1].clone())
    );
    assert_eq!(ward.again, Vec::<String>::new());
}

/// A message that has waited for a minute has a row with its age.
#[test]
fn a_message_that_waits_for_long_has_a_row() {
    let mut ward = Ward::new();
    ward.report(0, false);
    ward.pass(59_000, false);
    ward.report(1, false);
    assert_eq!(ward.rows("{\"_x\":"), 0);
    ward.pass(1_000, false);
    assert_eq!(ward.rows("{\"_x\":"), 1);
    ward.restart();
    ward.drain();
    assert_eq!((ward.arrived(0).len(), ward.arrived(1).len(), ward.again.len()), (1, 1, 0));
}

/// An instance in a device's container that was not to go above does not go after a restart.
#[test]
fn an_instance_without_a_message_is_not_sent() {
    let mut ward = Ward::new();
    ward.report(0, false);
    let content = r#"{"m2m:cin":{"rn":"mine","con":"1"}}"#;
    let made = ward.bench.create("CAdmin", "cse-in/a/c", ResourceType::ContentInstance, content);
    assert_eq!(made.status, Status::Created);
    assert_eq!((ward.rows("{\"_w\":"), ward.rows("{\"_x\":")), (0, 1));
    ward.restart();
    ward.drain();
    assert_eq!(ward.above, ward.acknowledged[0]);
    // The next one has a message again.
    ward.report(0, false);
    ward.restart();
    ward.drain();
    assert_eq!(ward.above, ward.acknowledged[0]);
}

/// A deleted device's readings arrive all the same.
#[test]
fn readings_of_a_deleted_device_arrive() {
    let mut ward = Ward::new();
    ward.report(0, false);
    ward.report(0, false);
    let deleted = ward.bench.delete("CAdmin", "cse-in/a");
    assert_eq!(deleted.status, Status::Deleted);
    assert_eq!((ward.rows("{\"_w\":"), ward.rows("{\"_x\":")), (0, 2));
    ward.restart();
    ward.drain();
    assert_eq!(ward.arrived(0), ward.acknowledged[0]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Report { device: usize, fails: bool },
    Execute { device: usize, is_answered: bool },
    Refuse { device: usize },
    Pass { millis: u64, fails: bool },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let device = || 0..DEVICES.len();
    let fails = || prop::bool::weighted(0.1);
    let passes = prop::sample::select(vec![10, 100, 500, 1_100, 5_000, 61_000]);
    prop_oneof![
        6 => (device(), fails()).prop_map(|(device, fails)| Step::Report { device, fails }),
        6 => (device(), prop::bool::weighted(0.9))
            .prop_map(|(device, is_answered)| Step::Execute { device, is_answered }),
        1 => device().prop_map(|device| Step::Refuse { device }),
        3 => (passes, fails()).prop_map(|(millis, fails)| Step::Pass { millis, fails }),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    /// Each acknowledged reading arrives, and in its turn unless the CSE above took others first.
    #[test]
    fn no_acknowledged_reading_is_lost(steps in prop::collection::vec(step(), 1..80)) {
        let mut ward = Ward::new();
        let mut is_refused = false;
        for step in steps {
            match step {
                Step::Report { device, fails } => ward.report(device, fails),
                Step::Execute { device, is_answered } => ward.execute(device, is_answered),
                Step::Refuse { device } => {
                    is_refused = true;
                    ward.refuse(device);
                }
                Step::Pass { millis, fails } => ward.pass(millis, fails),
                Step::Restart => ward.restart(),
            }
        }
        ward.restart();
        ward.drain();
        for device in 0..DEVICES.len() {
            let (arrived, told) = (ward.arrived(device), ward.acknowledged[device].clone());
            let acknowledged: BTreeSet<_> = told.iter().collect();
            let known: Vec<_> =
                arrived.iter().filter(|name| acknowledged.contains(name)).cloned().collect();
            if is_refused {
                prop_assert_eq!(known.iter().collect::<BTreeSet<_>>(), acknowledged);
            } else {
                prop_assert_eq!(known, told);
            }
        }
        ward.pass(200, false);
        prop_assert_eq!((ward.rows("{\"_x\":"), ward.rows("{\"_b\":")), (0, 0));
        ward.restart();
        prop_assert!(ward.sent.is_empty(), "{:?}", ward.sent);
    }
}
