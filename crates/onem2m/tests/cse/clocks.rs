//! What the wall clock does to a gateway without a battery for it: nothing that is not made good.

use crate::bench::{Bench, config, json};
use core::time::Duration;
use gatewright_onem2m::{
    ClockDoubt, Cse, Input, Now, Operation, OutboxMessage, Request, ResourceType, Response, Status,
    Timestamp,
};
use proptest::prelude::*;
use std::sync::Arc;

const DAY: Duration = Duration::from_hours(24);
const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);
/// 2023-11-14 22:13:20.
const RIGHT: Duration = Duration::from_secs(1_700_000_000);

/// A bench whose two clocks are set apart.
struct World {
    bench: Bench,
    wall: Duration,
    elapsed: Duration,
}

impl World {
    fn new(wall: Duration) -> Self {
        let mut bench = Bench::new();
        bench.rows.clear();
        let elapsed = Duration::from_secs(7);
        let now = Now { wall, elapsed };
        bench.cse = Cse::open(config(), now, [], 1).unwrap().0;
        let mut world = Self { bench, wall, elapsed };
        world.step(Input::Tick);
        world
    }

    /// Restarts at this wall time; the clock that only goes on begins anew.
    fn restart(&mut self, wall: Duration) {
        (self.wall, self.elapsed) = (wall, Duration::from_secs(3));
        let rows: Vec<_> =
            self.bench.rows.iter().map(|(&seq, body)| (seq, Arc::clone(body))).collect();
        let now = Now { wall, elapsed: self.elapsed };
        let (cse, unreadable) = Cse::open(config(), now, rows, self.bench.next_seq).unwrap();
        assert_eq!(unreadable, []);
        self.bench.cse = cse;
        self.step(Input::Tick);
    }

    fn pass(&mut self, span: Duration) {
        self.wall += span;
        self.elapsed += span;
        self.step(Input::Tick);
    }

    /// Several steps, as the engine ticks.
    fn pass_in_steps(&mut self, span: Duration) {
        for _ in 0..8 {
            self.pass(span / 8);
        }
    }

    fn step(&mut self, input: Input) {
        self.bench.cse.handle(Now { wall: self.wall, elapsed: self.elapsed }, input);
        self.run();
    }

    fn run(&mut self) -> Vec<Response> {
        let now = Now { wall: self.wall, elapsed: self.elapsed };
        let mut answers = Vec::new();
        while let Some(output) = self.bench.cse.poll_output() {
            match output {
                gatewright_onem2m::Output::Store(batch) => {
                    self.bench.store(&batch.records);
                    self.bench.next_seq = batch.next_seq;
                    if let Some(clock) = batch.clock {
                        self.bench.rows.insert(0, clock);
                    }
                    self.bench.cse.handle(now, Input::Committed(batch.number));
                }
                gatewright_onem2m::Output::Respond { response, .. } => answers.push(response),
                gatewright_onem2m::Output::Call(call) => self.bench.calls.push(*call),
                gatewright_onem2m::Output::Read { read, rows } => {
                    let rows = Ok(self.bench.read(&rows));
                    self.bench.cse.handle(now, Input::Rows { read, rows });
                }
                _ => {}
            }
        }
        answers
    }

    fn ask(&mut self, request: Request) -> Response {
        self.bench.asked += 1;
        let token = gatewright_onem2m::Token(self.bench.asked);
        let now = Now { wall: self.wall, elapsed: self.elapsed };
        self.bench.cse.handle(now, Input::Request { token, request });
        self.run().pop().unwrap()
    }

    fn create(
        &mut self,
        from: &str,
        to: &str,
        resource_type: ResourceType,
        content: &str,
    ) -> Status {
        let id = format!("c{}", self.bench.asked);
        self.ask(Request::new(Operation::Create, to, from, id).creating(resource_type, content))
            .status
    }

    fn fill(&mut self) {
        let entity = r#"{"m2m:ae":{"rn":"a","api":"Nx","rr":false,"srv":["4"]}}"#;
        assert_eq!(
            self.create("Ca", "cse-in", ResourceType::ApplicationEntity, entity),
            Status::Created
        );
        let container = r#"{"m2m:cnt":{"rn":"c","mia":3600}}"#;
        assert_eq!(
            self.create("Ca", "cse-in/a", ResourceType::Container, container),
            Status::Created
        );
    }

    fn measure(&mut self) {
        let content = r#"{"m2m:cin":{"con":"1"}}"#;
        assert_eq!(
            self.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, content),
            Status::Created
        );
    }

    fn resources(&self) -> usize {
        self.bench.cse.resources()
    }

    /// Has a device's reading wait for the CSE above.
    fn post(&mut self, number: u64, keep: Duration) {
        let request = Request::new(Operation::Create, "/id-up/x", "Cphd-1", format!("r{number}"))
            .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{"con":"1"}}"#);
        let message = OutboxMessage {
            queue: "device/Cphd-1".into(),
            target: "http://up:1".into(),
            request: request.into(),
            keep: Some(keep),
            batch: None,
        };
        self.bench.asked += 1;
        let token = gatewright_onem2m::Token(self.bench.asked);
        self.step(Input::Post { token, message });
    }
}

/// Booted in 1970, readings taken, then the clock is set: nothing is lost, now or later.
#[test]
fn booting_in_1970_loses_nothing() {
    let mut world = World::new(Duration::from_secs(20));
    world.fill();
    for _ in 0..20 {
        world.measure();
        world.pass(Duration::from_secs(10));
    }
    let there = world.resources();
    world.wall = RIGHT;
    world.step(Input::Tick);
    assert_eq!(world.resources(), there, "held back");
    assert!(world.bench.cse.doubted_clock().is_some());
    world.pass_in_steps(HOUR + MINUTE);
    assert_eq!(world.bench.cse.doubted_clock(), None, "believed");
    // The instances have had their hour by now (mia), the container and the AE their five years not.
    world.pass_in_steps(10 * MINUTE);
    assert_eq!(world.resources(), there - 20);
    world.pass_in_steps(300 * DAY);
    assert_eq!(world.resources(), there - 20, "they were given what they lacked");
    let shown = world.ask(Request::new(Operation::Retrieve, "cse-in/a", "Ca", "q"));
    let expires = json(&shown)["m2m:ae"]["et"].as_str().and_then(Timestamp::parse).unwrap();
    assert!(expires > Timestamp::new(RIGHT + 4 * 365 * DAY), "{expires}");
}

/// What instances were given stays over restarts, though their rows are not written anew, and is
/// given once.
#[test]
fn what_readings_of_1970_were_given_stays_over_restarts() {
    let mut world = World::new(Duration::from_secs(20));
    world.fill();
    for _ in 0..5 {
        world.measure();
        world.pass(Duration::from_secs(10));
    }
    let there = world.resources();
    world.wall = RIGHT;
    world.step(Input::ClockConfirmed);
    // With it the clocks are stored.
    world.measure();
    let expiry = |world: &mut World| {
        let oldest = Request::new(Operation::Retrieve, "cse-in/a/c/ol", "Ca", "q");
        json(&world.ask(oldest))["m2m:cin"]["et"].as_str().and_then(Timestamp::parse).unwrap()
    };
    let given = expiry(&mut world);
    assert!(given > Timestamp::new(RIGHT + 50 * MINUTE), "{given}");
    assert!(given < Timestamp::new(RIGHT + 61 * MINUTE), "{given}");
    for at in 1..4 {
        world.restart(RIGHT + at * MINUTE);
        world.step(Input::ClockConfirmed);
        assert_eq!(expiry(&mut world), given);
        assert_eq!(world.resources(), there + 1);
    }
    world.pass_in_steps(HOUR + MINUTE);
    assert_eq!(world.resources(), there - 5, "all are gone when their hour is over");
}

/// Nothing changes for days: after a clean end the next start knows the length of the pause, and
/// after kill -9 to within the minute in which the clocks are stored.
#[test]
fn a_quiet_cse_knows_how_long_it_did_not_run() {
    let pause = 10 * MINUTE;
    for ends in [true, false] {
        let mut world = World::new(RIGHT);
        world.fill();
        for _ in 0..3 * 24 * 60 {
            world.pass(MINUTE);
        }
        world.pass(Duration::from_secs(59));
        if ends {
            world.bench.cse.end(Now { wall: world.wall, elapsed: world.elapsed });
            world.run();
        }
        world.restart(world.wall + pause);
        let Some(ClockDoubt::Stopped(seconds)) = world.bench.cse.doubted_clock() else {
            panic!("{:?}", world.bench.cse.doubted_clock());
        };
        let most = if ends { 600 } else { 659 };
        assert!((600..=most).contains(&seconds), "{seconds} s, ended: {ends}");
    }
}

/// The clocks alone are stored once a minute, also where that fails, and never where the store
/// has room for deletions only.
#[test]
fn clocks_alone_are_stored_once_a_minute() {
    let mut world = World::new(RIGHT);
    world.fill();
    let mut count = |span: Duration, store: fn(u64) -> Input| {
        let mut batches = 0;
        for _ in 0..span.as_secs() {
            world.wall += Duration::from_secs(1);
            world.elapsed += Duration::from_secs(1);
            let now = Now { wall: world.wall, elapsed: world.elapsed };
            world.bench.cse.handle(now, Input::Tick);
            while let Some(output) = world.bench.cse.poll_output() {
                if let gatewright_onem2m::Output::Store(batch) = output {
                    assert_eq!(batch.records.len(), 0);
                    assert!(batch.clock.is_some());
                    batches += 1;
                    world.bench.cse.handle(now, store(batch.number));
                }
            }
        }
        batches
    };
    assert_eq!(count(10 * MINUTE, Input::Committed), 10);
    assert_eq!(count(10 * MINUTE, Input::Failed), 10);
    let now = Now { wall: world.wall, elapsed: world.elapsed };
    world.bench.cse.handle(now, Input::Short(true));
    world.pass(10 * MINUTE);
    let stored = world.bench.rows.get(&0).cloned();
    world.pass(10 * MINUTE);
    assert_eq!(world.bench.rows.get(&0).cloned(), stored);
}

/// The same, with the power lost before the clock was set.
#[test]
fn a_restart_between_1970_and_now_loses_nothing() {
    let mut world = World::new(RIGHT);
    world.fill();
    world.pass(30 * DAY);
    world.restart(Duration::from_secs(20));
    let container = r#"{"m2m:cnt":{"rn":"new"}}"#;
    assert_eq!(world.create("Ca", "cse-in/a", ResourceType::Container, container), Status::Created);
    world.pass(MINUTE);
    world.measure();
    let there = world.resources();
    world.restart(RIGHT + 40 * DAY);
    assert_eq!(world.resources(), there);
    world.pass_in_steps(58 * MINUTE);
    assert_eq!(world.resources(), there, "held back for an hour");
    world.pass_in_steps(10 * DAY);
    // The instance had an hour, the container made in 1970 five years.
    assert_eq!(world.resources(), there - 1);
}

/// Eight days ahead at boot, then set right with the CSE above away: what waits is not too old, is
/// tried again at once, and keeps its time by what has passed.
#[test]
fn a_clock_set_back_drops_no_message_and_delays_none() {
    let mut world = World::new(RIGHT + 8 * DAY);
    world.post(1, 7 * DAY);
    world.wall = RIGHT;
    world.step(Input::Tick);
    assert_eq!(world.bench.calls.len(), 1);
    let call = world.bench.calls.pop().unwrap();
    let away = Err(gatewright_onem2m::Unreachable("away".to_owned()));
    world.step(Input::Answer { call: call.id, answer: away });
    world.post(2, 7 * DAY);
    world.pass(2 * MINUTE);
    assert_eq!(world.bench.calls.len(), 1, "the first is tried again by the clock that goes on");
    assert_eq!(world.bench.cse.messages_waiting(), 2);
    let call = world.bench.calls.pop().unwrap();
    let done = Response::new(Status::Created, call.request.id.as_str(), call.request.release);
    world.step(Input::Answer { call: call.id, answer: Ok(done) });
    assert_eq!(world.bench.cse.messages_waiting(), 1);
    assert_eq!(world.bench.cse.counters().messages_aged, 0);
}

/// Whatever the wall clock does, messages live as long as they may and no longer.
#[test]
fn keep_times_count_what_has_passed() {
    let mut world = World::new(RIGHT);
    world.post(1, 10 * HOUR);
    let call = world.bench.calls.pop().unwrap();
    let away = || Err(gatewright_onem2m::Unreachable("away".to_owned()));
    world.step(Input::Answer { call: call.id, answer: away() });
    for hour in 0..9 {
        world.wall = if hour % 2 == 0 { RIGHT } else { Duration::ZERO };
        world.pass(HOUR);
        if let Some(call) = world.bench.calls.pop() {
            world.step(Input::Answer { call: call.id, answer: away() });
        }
        assert_eq!(world.bench.cse.messages_waiting(), 1, "after {hour} hours");
    }
    world.pass(2 * HOUR);
    if let Some(call) = world.bench.calls.pop() {
        world.step(Input::Answer { call: call.id, answer: away() });
    }
    world.pass(HOUR);
    assert_eq!(
        (world.bench.cse.messages_waiting(), world.bench.cse.counters().messages_aged),
        (0, 1)
    );
}

#[test]
fn a_clock_that_is_ahead_expires_nothing_until_it_is_confirmed() {
    let mut world = World::new(RIGHT);
    world.fill();
    world.measure();
    world.pass(MINUTE);
    world.wall += 8 * DAY;
    world.step(Input::Tick);
    assert_eq!(world.resources(), 4);
    assert_eq!(world.bench.cse.doubted_clock(), Some(ClockDoubt::Leapt(8 * 86_400)));
    // Time passes all the same: the instance's hour is over.
    world.pass_in_steps(58 * MINUTE);
    assert_eq!(world.resources(), 4);
    world.pass(2 * MINUTE);
    assert_eq!(world.resources(), 3);
    world.measure();
    world.wall -= 16 * DAY;
    world.step(Input::Tick);
    world.step(Input::ClockConfirmed);
    assert_eq!((world.resources(), world.bench.cse.doubted_clock()), (4, None));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Passes(u64),
    Leaps(u64),
    Restarts(u64),
    Measures,
}

fn event() -> impl Strategy<Value = Event> {
    // Any time from 1970 to the middle of 2028: before the AE's five years are over.
    let wall = 0_u64..1_850_000_000;
    prop_oneof![
        4 => (0_u64..3_000).prop_map(Event::Passes),
        2 => wall.clone().prop_map(Event::Leaps),
        1 => wall.prop_map(Event::Restarts),
        4 => Just(Event::Measures),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The wall clock leaps and the CSE restarts as they like: within its hour no instance expires,
    /// and no message grows too old before its time.
    #[test]
    fn nothing_is_lost_by_leaps(events in proptest::collection::vec(event(), 1..60)) {
        let mut world = World::new(RIGHT);
        world.fill();
        world.post(0, 2 * HOUR);
        let (mut passed, mut measured) = (Duration::ZERO, Vec::new());
        for event in events {
            match event {
                Event::Passes(seconds) => {
                    passed += Duration::from_secs(seconds);
                    world.pass(Duration::from_secs(seconds));
                }
                Event::Leaps(wall) => {
                    world.wall = Duration::from_secs(wall);
                    world.step(Input::Tick);
                }
                Event::Restarts(wall) => world.restart(Duration::from_secs(wall)),
                Event::Measures => {
                    world.measure();
                    measured.push(passed);
                }
            }
            world.bench.calls.clear();
            let young = measured.iter().filter(|&&since| passed < since + HOUR).count();
            prop_assert!(world.resources() >= 3 + young, "{} of {young}", world.resources() - 3);
            if passed < 2 * HOUR {
                prop_assert_eq!(world.bench.cse.messages_waiting(), 1);
            }
        }
    }
}
