//! Random requests against a reference model that shares no code with the machine: a map from
//! path to what lies there, and the rules of creation, access, expiry and deletion said once more.

use crate::bench::{Bench, START, json};
use core::time::Duration;
use gatewright_onem2m::{Operation, Request, ResourceType};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum What {
    Base,
    Entity,
    Container,
    Instance,
    /// Gives these operations to this originator.
    Policy(&'static str, u64),
}

#[derive(Clone, Debug)]
struct Thing {
    what: What,
    owner: &'static str,
    /// Paths of the policies that it names.
    policies: Vec<String>,
    /// Seconds from the start after which it is gone.
    expires: u64,
    most: Option<usize>,
    label: Option<&'static str>,
    /// Where it is, on a line.
    place: Option<u8>,
    born: usize,
}

#[derive(Clone, Debug)]
enum Step {
    Register { who: &'static str, name: &'static str },
    Container { who: &'static str, at: usize, name: &'static str },
    Instance { who: &'static str, at: usize, name: &'static str },
    Relabel { who: &'static str, at: usize, label: &'static str },
    Move { who: &'static str, at: usize, place: u8 },
    Bound { who: &'static str, at: usize, most: usize },
    Policy { name: &'static str, whom: &'static str, operations: u64 },
    Guard { who: &'static str, at: usize, name: &'static str },
    Lifetime { who: &'static str, at: usize, minute: u64 },
    Wait { seconds: u64 },
    Delete { who: &'static str, at: usize },
    Get { who: &'static str, at: usize },
    End { who: &'static str, at: usize, latest: bool },
    Discover { who: &'static str, at: usize, wanted: Wanted },
    Restart,
}

/// What a discovery asks for, and how that is written.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Anything,
    Label(&'static str),
    /// A label of the form `is:WORD`, by an expression.
    Is(&'static str),
    IsNot(&'static str),
    NoLabel,
    /// A place from the first to the second.
    Between(u8, u8),
    /// One of two names, and a label if one is wanted.
    Named(&'static str, &'static str, Option<&'static str>),
    /// Both of the label and the place, one of them, or exactly one.
    Combined(u8, &'static str, u8, u8),
}

impl Wanted {
    fn criteria(self) -> Vec<(&'static str, String)> {
        let between = |from: u8, to: u8| {
            let ends = format!("[[{from}.0,0],[{to}.5,0]]");
            vec![("gmty", "2".to_owned()), ("geom", ends), ("gsf", "3".to_owned())]
        };
        let expression = |text: String| vec![("lbq", text)];
        match self {
            Self::Anything => Vec::new(),
            Self::Label(label) => vec![("lbl", format!("is:{label}"))],
            Self::Is(label) => expression(format!("is IN ({label}, other)")),
            Self::IsNot(label) => expression(format!("is NE {label}")),
            Self::NoLabel => expression("NT is".to_owned()),
            Self::Between(from, to) => between(from, to),
            Self::Named(first, second, label) => {
                let named = |name: &str| ("atr", format!("rn,{name}"));
                let label = label.map(|label| ("atr", format!("lbl,is:{label}")));
                [named(first)].into_iter().chain(label).chain([named(second)]).collect()
            }
            Self::Combined(operation, label, from, to) => {
                let mut both = between(from, to);
                both.push(("lbq", format!("is EQ {label}")));
                both.push(("fo", operation.to_string()));
                both
            }
        }
    }

    fn fits(self, name: &str, thing: &Thing) -> bool {
        let between = |from, to| thing.place.is_some_and(|place| place >= from && place <= to);
        match self {
            Self::Anything => true,
            Self::Label(label) | Self::Is(label) => thing.label == Some(label),
            Self::IsNot(label) => thing.label.is_some_and(|found| found != label),
            Self::NoLabel => thing.label.is_none(),
            Self::Between(from, to) => between(from, to),
            Self::Named(first, second, label) => {
                (name == first || name == second) && (label.is_none() || thing.label == label)
            }
            Self::Combined(operation, label, from, to) => {
                let (first, second) = (between(from, to), thing.label == Some(label));
                match operation {
                    1 => first && second,
                    2 => first || second,
                    _ => first != second,
                }
            }
        }
    }
}

const BASE: &str = "cse-in";
const NOBODY_THERE: &str = "cse-in/nobody";

#[derive(Debug, Default)]
struct Model {
    things: BTreeMap<String, Thing>,
    births: usize,
    /// Seconds from the start.
    now: u64,
}

/// Operations of access control (TS-0004, m2m:accessControlOperations); retrieval goes with
/// discovery here.
const CREATE: u64 = 1;
const SEE: u64 = 2 + 32;
const UPDATE: u64 = 4;
const DELETE: u64 = 8;

/// The time that is `minute` minutes after 22:14:00, as an expirationTime and in seconds from the
/// start, which is 22:13:20.
fn minute(minute: u64) -> (String, u64) {
    (format!("20231114T22{:02}00", 14 + minute), 40 + 60 * minute)
}

impl Model {
    fn new() -> Self {
        let mut model = Self::default();
        model.put(BASE.to_owned(), What::Base, "");
        model
    }

    fn put(&mut self, path: String, what: What, owner: &'static str) {
        self.births += 1;
        let above = self.things.get(Self::parent(&path));
        let expires = above.map_or(u64::MAX, |above| above.expires);
        let (policies, born) = (Vec::new(), self.births);
        let (most, label, place) = (None, None, None);
        let thing = Thing { what, owner, policies, expires, most, label, place, born };
        self.things.insert(path, thing);
    }

    /// Lets time pass: what expires goes, with all below it.
    fn wait(&mut self, seconds: u64) {
        self.now += seconds;
        let expired: Vec<String> = self
            .things
            .iter()
            .filter(|(_, thing)| thing.expires <= self.now)
            .map(|(path, _)| path.clone())
            .collect();
        for path in expired {
            self.remove(&path);
        }
    }

    fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        self.things.retain(|other, _| other != path && !other.starts_with(&below));
    }

    /// The policies that something names and that exist.
    fn policies<'it>(&'it self, thing: &'it Thing) -> impl Iterator<Item = (&'static str, u64)> {
        thing.policies.iter().filter_map(|path| match self.things.get(path)?.what {
            What::Policy(whom, operations) => Some((whom, operations)),
            _ => None,
        })
    }

    /// Any path: one of those that exist, or one that does not.
    fn path(&self, at: usize) -> String {
        let mut paths: Vec<&String> = self.things.keys().collect();
        paths.sort_by_key(|path| self.things[*path].born);
        paths.get(at % (paths.len() + 1)).map_or(NOBODY_THERE.to_owned(), |path| (*path).clone())
    }

    fn registered(&self, who: &str) -> bool {
        self.things.values().any(|thing| thing.what == What::Entity && thing.owner == who)
    }

    fn parent(path: &str) -> &str {
        path.rsplit_once('/').map_or("", |(parent, _)| parent)
    }

    fn may(&self, who: &str, path: &str, operation: u64) -> bool {
        let thing = &self.things[path];
        match thing.what {
            _ if who == "CAdmin" => true,
            What::Base => operation == SEE && self.registered(who),
            What::Instance => self.may(who, Self::parent(path), operation),
            What::Policy(..) => false,
            What::Entity | What::Container if self.policies(thing).next().is_some() => self
                .policies(thing)
                .any(|(whom, operations)| whom == who && operations & operation != 0),
            What::Entity | What::Container => thing.owner == who,
        }
    }

    fn children(&self, path: &str, what: What) -> Vec<String> {
        let mut found: Vec<(&String, &Thing)> = self
            .things
            .iter()
            .filter(|(child, thing)| Self::parent(child) == path && thing.what == what)
            .collect();
        found.sort_by_key(|(_, thing)| thing.born);
        found.into_iter().map(|(child, _)| child.clone()).collect()
    }

    fn trim(&mut self, path: &str) {
        let most = self.things[path].most.unwrap_or(usize::MAX);
        let instances = self.children(path, What::Instance);
        let spare = instances.len().saturating_sub(most);
        for gone in &instances[..spare] {
            self.things.remove(gone);
        }
    }

    fn make(&mut self, who: &'static str, path: &str, name: &str, what: What) -> u16 {
        let Some(parent) = self.things.get(path).cloned() else {
            return 4004;
        };
        if !self.may(who, path, CREATE) {
            return 4103;
        }
        let fits = match (what, parent.what) {
            (What::Instance, above) => above == What::Container,
            (_, above) => !matches!(above, What::Instance | What::Policy(..)),
        };
        if !fits {
            return 4108;
        }
        if what == What::Instance && parent.most == Some(0) {
            return 5207;
        }
        let child = format!("{path}/{name}");
        if self.things.contains_key(&child) {
            return 4105;
        }
        self.put(child, what, who);
        self.trim(path);
        2001
    }

    fn change(&mut self, who: &str, path: &str, how: impl FnOnce(&mut Thing)) -> u16 {
        let Some(thing) = self.things.get(path) else {
            return 4004;
        };
        let fixed = matches!(thing.what, What::Base | What::Instance);
        if !self.may(who, path, UPDATE) {
            return 4103;
        }
        if fixed {
            return 4005;
        }
        how(self.things.get_mut(path).unwrap());
        self.trim(path);
        2004
    }

    fn delete(&mut self, who: &str, path: &str) -> u16 {
        if !self.things.contains_key(path) {
            return 4004;
        }
        if !self.may(who, path, DELETE) {
            return 4103;
        }
        if path == BASE {
            return 4005;
        }
        self.remove(path);
        2002
    }

    /// Names another policy for something: who may, is said by those of them that exist, here by the
    /// administrator's alone; or it is the owner.
    fn guard(&mut self, who: &str, path: &str, policy: &str) -> u16 {
        let Some(thing) = self.things.get(path) else {
            return 4004;
        };
        let is_guarded = self.policies(thing).next().is_some();
        if who != "CAdmin" && (is_guarded || thing.owner != who) {
            return 4103;
        }
        let is_policy = |it: &Thing| matches!(it.what, What::Policy(..));
        if !self.things.get(policy).is_some_and(is_policy) {
            return 4000;
        }
        self.things.get_mut(path).unwrap().policies = vec![policy.to_owned()];
        2004
    }

    /// Sets the expirationTime, which is not later than the parent's.
    fn limit(&mut self, who: &str, path: &str, expires: u64) -> u16 {
        let now = self.now;
        let above = self.things.get(Self::parent(path)).map_or(u64::MAX, |above| above.expires);
        if expires <= now {
            // It must be refused for nothing else.
            let changed = self.change(who, path, |_| {});
            return if changed == 2004 { 4000 } else { changed };
        }
        self.change(who, path, |thing| thing.expires = expires.min(above))
    }

    fn discover(&self, who: &str, path: &str, wanted: Wanted) -> Option<BTreeSet<String>> {
        let below = format!("{path}/");
        self.things.contains_key(path).then_some(())?;
        self.may(who, path, SEE).then(|| {
            self.things
                .iter()
                .filter(|(other, thing)| {
                    let name = other.rsplit('/').next().unwrap_or(other);
                    other.starts_with(&below)
                        && wanted.fits(name, thing)
                        && self.may(who, other, SEE)
                })
                .map(|(other, _)| other.clone())
                .collect()
        })
    }
}

fn tag(model: &Model, path: &str) -> &'static str {
    match model.things.get(path).map(|thing| thing.what) {
        Some(What::Base) => "m2m:cb",
        Some(What::Entity) => "m2m:ae",
        Some(What::Instance) => "m2m:cin",
        Some(What::Policy(..)) => "m2m:acp",
        Some(What::Container) | None => "m2m:cnt",
    }
}

fn play(steps: Vec<Step>) {
    let mut model = Model::new();
    let mut bench = Bench::new();
    for (number, step) in steps.into_iter().enumerate() {
        let context = format!("step {number}: {step:?}");
        match step {
            Step::Register { .. }
            | Step::Container { .. }
            | Step::Instance { .. }
            | Step::Policy { .. } => {
                play_creation(&mut model, &mut bench, &step, &context);
            }
            Step::Relabel { .. } | Step::Move { .. } | Step::Bound { .. } | Step::Delete { .. } => {
                play_change(&mut model, &mut bench, &step, &context);
            }
            Step::Guard { .. } | Step::Lifetime { .. } => {
                play_rule(&mut model, &mut bench, &step, &context);
            }
            Step::Wait { seconds } => {
                model.wait(seconds);
                bench.pass(Duration::from_secs(seconds));
                assert_eq!(bench.now, START + Duration::from_secs(model.now));
                assert_eq!(bench.cse.resources(), model.things.len(), "{context}");
            }
            Step::Get { .. } | Step::End { .. } | Step::Discover { .. } => {
                play_look(&model, &mut bench, &step, &context);
            }
            Step::Restart => {
                let expected: Vec<_> = bench.cse.rows().collect();
                bench.cse = bench.reopened();
                let rows: Vec<_> = bench.cse.rows().collect();
                assert_eq!(rows, expected, "{context}");
            }
        }
    }
    assert_eq!(bench.cse.resources(), model.things.len());
}

fn play_creation(model: &mut Model, bench: &mut Bench, step: &Step, context: &str) {
    let (made, expected) = match *step {
        Step::Register { who, name } => {
            let path = format!("{BASE}/{name}");
            let expected = if model.registered(who) {
                4117
            } else if model.things.contains_key(&path) {
                4105
            } else {
                model.put(path, What::Entity, who);
                2001
            };
            (bench.register(who, name), expected)
        }
        Step::Container { who, at, name } => {
            let path = model.path(at);
            let content = format!(r#"{{"m2m:cnt":{{"rn":"{name}"}}}}"#);
            let made = bench.create(who, &path, ResourceType::Container, &content);
            (made, model.make(who, &path, name, What::Container))
        }
        Step::Instance { who, at, name } => {
            let path = model.path(at);
            let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"1"}}}}"#);
            let made = bench.create(who, &path, ResourceType::ContentInstance, &content);
            (made, model.make(who, &path, name, What::Instance))
        }
        Step::Policy { name, whom, operations } => {
            let content = format!(
                r#"{{"m2m:acp":{{"rn":"{name}","pv":{{"acr":[{{"acor":["{whom}"],"acop":{operations}}}]}},
                "pvs":{{"acr":[{{"acor":["CAdmin"],"acop":63}}]}}}}}}"#
            );
            let made = bench.create("CAdmin", BASE, ResourceType::AccessControlPolicy, &content);
            (made, model.make("CAdmin", BASE, name, What::Policy(whom, operations)))
        }
        _ => return,
    };
    assert_eq!(made.status.number(), expected, "{context}");
}

/// Changes of who may do what, and for how long.
fn play_rule(model: &mut Model, bench: &mut Bench, step: &Step, context: &str) {
    let (changed, expected) = match *step {
        Step::Guard { who, at, name } => {
            let (path, policy) = (model.path(at), format!("{BASE}/{name}"));
            let tag = tag(model, &path);
            if !matches!(tag, "m2m:cnt" | "m2m:ae") {
                return;
            }
            let content = format!(r#"{{"{tag}":{{"acpi":["{policy}"]}}}}"#);
            (bench.update(who, &path, &content), model.guard(who, &path, &policy))
        }
        Step::Lifetime { who, at, minute: wanted } => {
            let path = model.path(at);
            let (text, expires) = minute(wanted);
            let content = format!(r#"{{"{}":{{"et":"{text}"}}}}"#, tag(model, &path));
            (bench.update(who, &path, &content), model.limit(who, &path, expires))
        }
        _ => return,
    };
    assert_eq!(changed.status.number(), expected, "{context}: {:?}", changed.content);
}

fn play_change(model: &mut Model, bench: &mut Bench, step: &Step, context: &str) {
    let (changed, expected) = match *step {
        Step::Relabel { who, at, label } => {
            let path = model.path(at);
            let content = format!(r#"{{"{}":{{"lbl":["is:{label}"]}}}}"#, tag(model, &path));
            let updated = bench.update(who, &path, &content);
            (updated, model.change(who, &path, |thing| thing.label = Some(label)))
        }
        Step::Move { who, at, place } => {
            let path = model.path(at);
            let location = format!(r#"{{"typ":1,"crd":"[{place},0]"}}"#);
            let content = format!(r#"{{"{}":{{"loc":{location}}}}}"#, tag(model, &path));
            let updated = bench.update(who, &path, &content);
            (updated, model.change(who, &path, |thing| thing.place = Some(place)))
        }
        Step::Bound { who, at, most } => {
            let path = model.path(at);
            if tag(model, &path) != "m2m:cnt" {
                return;
            }
            let content = format!(r#"{{"m2m:cnt":{{"mni":{most}}}}}"#);
            let updated = bench.update(who, &path, &content);
            (updated, model.change(who, &path, |thing| thing.most = Some(most)))
        }
        Step::Delete { who, at } => {
            let path = model.path(at);
            (bench.delete(who, &path), model.delete(who, &path))
        }
        _ => return,
    };
    assert_eq!(changed.status.number(), expected, "{context}");
}

fn play_look(model: &Model, bench: &mut Bench, step: &Step, context: &str) {
    match *step {
        Step::Get { who, at } => {
            let path = model.path(at);
            let got = bench.get(who, &path);
            let expected = match model.things.get(&path) {
                None => 4004,
                Some(_) if model.may(who, &path, SEE) => 2000,
                Some(_) => 4103,
            };
            assert_eq!(got.status.number(), expected, "{context} at {path}");
            if expected == 2000 && model.things[&path].what == What::Container {
                let count = model.children(&path, What::Instance).len();
                assert_eq!(json(&got)["m2m:cnt"]["cni"], count, "{context} at {path}");
            }
        }
        Step::End { who, at, latest } => {
            let path = model.path(at);
            let got = bench.get(who, &format!("{path}/{}", if latest { "la" } else { "ol" }));
            let container =
                model.things.get(&path).is_some_and(|thing| thing.what == What::Container);
            let instances = model.children(&path, What::Instance);
            let end = if latest { instances.last() } else { instances.first() };
            match end {
                _ if !container => assert_eq!(got.status.number(), 4004, "{context}"),
                _ if !model.may(who, &path, SEE) => {
                    assert_eq!(got.status.number(), 4103, "{context}");
                }
                None => assert_eq!(got.status.number(), 4004, "{context}"),
                Some(end) => {
                    let name = end.rsplit('/').next().unwrap();
                    assert_eq!(json(&got)["m2m:cin"]["rn"], name, "{context}");
                }
            }
        }
        Step::Discover { who, at, wanted } => {
            let path = model.path(at);
            let written = |(name, value)| format!("{name}={value}");
            let criteria: Vec<String> = wanted.criteria().into_iter().map(written).collect();
            let got = bench.get(who, &format!("{path}?fu=1&{}", criteria.join("&")));
            match model.discover(who, &path, wanted) {
                Some(expected) => {
                    let found: BTreeSet<String> = crate::bench::found(&got).into_iter().collect();
                    assert_eq!(found, expected, "{context} at {path}");
                }
                None => assert!(!got.status.is_success(), "{context} at {path}"),
            }
        }
        _ => {}
    }
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let label = || prop::sample::select(vec!["red", "blue"]);
    let name = || prop::sample::select(vec!["x", "y", "z"]);
    let span = || (0_u8..5, 0_u8..3).prop_map(|(from, width)| (from, from + width));
    prop_oneof![
        Just(Wanted::Anything),
        Just(Wanted::NoLabel),
        label().prop_map(Wanted::Label),
        label().prop_map(Wanted::Is),
        label().prop_map(Wanted::IsNot),
        span().prop_map(|(from, to)| Wanted::Between(from, to)),
        (name(), name(), prop::option::of(label()))
            .prop_map(|(first, second, label)| Wanted::Named(first, second, label)),
        (1_u8..4, label(), span()).prop_map(|(operation, label, (from, to))| Wanted::Combined(
            operation, label, from, to
        )),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let who = || prop::sample::select(vec!["Ca", "Cb", "CAdmin", "Cstranger"]);
    let owner = || prop::sample::select(vec!["Ca", "Ca", "Cb"]);
    let name = || prop::sample::select(vec!["x", "y", "z"]);
    let label = || prop::sample::select(vec!["red", "blue"]);
    let at = || 0_usize..12;
    let operations = || prop::sample::select(vec![63, SEE, CREATE, SEE | CREATE, UPDATE | DELETE]);
    prop_oneof![
        2 => (owner(), name()).prop_map(|(who, name)| Step::Register { who, name }),
        4 => (owner(), at(), name()).prop_map(|(who, at, name)| Step::Container { who, at, name }),
        1 => (who(), at(), name()).prop_map(|(who, at, name)| Step::Container { who, at, name }),
        6 => (owner(), at(), name()).prop_map(|(who, at, name)| Step::Instance { who, at, name }),
        2 => (who(), at(), label()).prop_map(|(who, at, label)| Step::Relabel { who, at, label }),
        2 => (owner(), at(), 0_usize..3).prop_map(|(who, at, most)| Step::Bound { who, at, most }),
        1 => (who(), at()).prop_map(|(who, at)| Step::Delete { who, at }),
        2 => (who(), at()).prop_map(|(who, at)| Step::Get { who, at }),
        3 => (who(), at(), any::<bool>())
            .prop_map(|(who, at, latest)| Step::End { who, at, latest }),
        2 => (who(), at(), 0_u8..5).prop_map(|(who, at, place)| Step::Move { who, at, place }),
        4 => (who(), at(), wanted()).prop_map(|(who, at, wanted)| Step::Discover { who, at, wanted }),
        3 => (name(), owner(), operations()).prop_map(|(name, whom, operations)| Step::Policy {
            name,
            whom,
            operations
        }),
        3 => (who(), at(), name()).prop_map(|(who, at, name)| Step::Guard { who, at, name }),
        2 => (owner(), at(), 0_u64..20)
            .prop_map(|(who, at, minute)| Step::Lifetime { who, at, minute }),
        2 => (1_u64..120).prop_map(|seconds| Step::Wait { seconds }),
        1 => Just(Step::Restart),
    ]
}

/// A request that is wrong somewhere: a piece of one that is right, cut, doubled or changed.
fn disturbed() -> impl Strategy<Value = Vec<u8>> {
    let right = prop::sample::select(vec![
        r#"{"op":1,"to":"cse-in/a/c","fr":"Ca","rqi":"1","rvi":"4","ty":4,"pc":{"m2m:cin":{"con":1.5}}}"#,
        r#"{"op":1,"to":"cse-in/a","fr":"Ca","rqi":"1","rvi":"4","ty":23,"pc":{"m2m:sub":{"nu":["http://x"],"enc":{"net":[3]},"bn":{"num":3}}}}"#,
        r#"{"op":1,"to":"cse-in/a","fr":"Ca","rqi":"1","rvi":"4","ty":9,"pc":{"m2m:grp":{"mnm":3,"mid":["cse-in/a/c"]}}}"#,
        r#"{"op":1,"to":"cse-in","fr":"Cq","rqi":"1","rvi":"4","ty":1,"pc":{"m2m:acp":{"pv":{"acr":[{"acor":["all"],"acop":63}]},"pvs":{"acr":[{"acor":["Ca"],"acop":63}]}}}}"#,
        r#"{"op":2,"to":"cse-in","fr":"Ca","rqi":"1","rvi":"4","rcn":4,"fc":{"fu":1,"ty":[3,4],"crb":"20231114T221320","atr":[{"nm":"rn","val":"*"}]}}"#,
        r#"{"op":2,"to":"cse-in","fr":"Ca","rqi":"1","rvi":"4","fc":{"fu":1,"fo":2,"lbq":["a EQ b","NT c"],"cfs":1,"cfq":"$[?@.a>1]","gmty":3,"geom":"[[0,0],[1,0],[1,1],[0,0]]","gsf":2}}"#,
        r#"{"op":3,"to":"cse-in/a/c","fr":"Ca","rqi":"1","rvi":"4","pc":{"m2m:cnt":{"loc":{"typ":1,"crd":"[1,2]"}}}}"#,
        r#"{"op":3,"to":"cse-in/a/c","fr":"Ca","rqi":"1","rvi":"4","pc":{"m2m:cnt":{"mni":3,"et":"20991114T221320"}}}"#,
        r#"{"op":4,"to":"cse-in/a/c/la","fr":"Ca","rqi":"1","rvi":"4"}"#,
    ]);
    let change = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0_u8..5, any::<u8>());
    (right, prop::collection::vec(change, 0..4)).prop_map(|(right, changes)| {
        let mut octets = right.as_bytes().to_vec();
        for (from, to, how, octet) in changes {
            if octets.is_empty() {
                break;
            }
            let (from, to) = (from.index(octets.len()), to.index(octets.len()));
            let (from, to) = (from.min(to), from.max(to));
            match how {
                0 => octets[from] = octet,
                1 => octets.insert(from, octet),
                2 => drop(octets.drain(from..to)),
                3 => octets.truncate(to),
                _ => {
                    let again = octets[from..to].to_vec();
                    octets.splice(to..to, again);
                }
            }
        }
        octets
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_machine_does_what_the_model_does(steps in prop::collection::vec(step(), 1..60)) {
        play(steps);
    }

    /// Whatever comes in, one answer comes out, and the machine goes on.
    #[test]
    fn a_disturbed_request_is_answered_and_disturbs_nothing(requests in
        prop::collection::vec(disturbed(), 1..10))
    {
        let mut bench = Bench::with_container();
        for octets in requests {
            let Ok(request) = Request::from_json(&octets) else {
                continue;
            };
            bench.asked += 1;
            let token = gatewright_onem2m::Token(bench.asked);
            bench.cse.handle(bench.now, gatewright_onem2m::Input::Request { token, request });
            let answered = bench.run().len();
            let calls = bench.calls();
            prop_assert!(answered <= 1 && answered + calls.len() >= 1);
            for call in calls {
                bench.away(&call);
            }
        }
        let rows: Vec<_> = bench.cse.rows().collect();
        let again: Vec<_> = bench.reopened().rows().collect();
        prop_assert_eq!(rows, again);
    }

    #[test]
    fn any_octets_are_a_request_or_refused(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Request::from_json(&octets);
        let _ = Request::from_cbor(&octets);
    }

    #[test]
    fn any_content_and_any_target_are_answered(
        resource_type in prop::sample::select(ResourceType::ALL.to_vec()),
        content in ".{0,80}",
        target in "[a-z/~.-]{0,20}",
    ) {
        let mut bench = Bench::with_container();
        for to in ["cse-in/a", "cse-in", "cse-in/a/c", &target] {
            if to.is_empty() {
                continue;
            }
            let request = bench
                .request(Operation::Create, "Ca", to)
                .creating(resource_type, content.as_str());
            let answer = bench.ask(request);
            prop_assert!(!answer.status.is_success());
        }
    }
}
