//! Missing data of time series (TS-0001 §9.6.36, §10.2.4.28): points in time without their
//! instance, and the notifications of them.
//!
//! The first instance says when the series begins; from then on one is due each `pei`, give or take
//! `peid`. A point without an instance `mdt` after it is missing: it is counted in `mdc`, and the
//! latest `mdn` of them stand in `mdlt`.

use super::Cse;
use super::Refusal;
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::schema::check_content_info;
use crate::time::{Timestamp, parse_duration};
use crate::tree::{Instance, Slot};
use core::time::Duration;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Shortest monitored period: each missing point is a row to be stored.
const PERIOD_MIN: Duration = Duration::from_millis(100);
/// The longest time that an attribute here may name: longer than any resource lives.
const SPAN_MAX: Duration = Duration::from_hours(10 * 365 * 24);
/// Missing points listed by a series without mdn.
const LISTED: u64 = 1_024;
/// How long missing points are counted together by a subscription that sets no duration.
const WINDOW: Duration = Duration::from_hours(24);

/// Monitored series.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// The next point of each, by the number of its row.
    next: BTreeMap<u64, Timestamp>,
    due: BTreeSet<(Timestamp, u64)>,
    /// When each is due: what stands in `due`, by number.
    due_of: BTreeMap<u64, Timestamp>,
    /// Missing points that a subscription has counted, and until when it counts on.
    windows: BTreeMap<u64, (Timestamp, u64)>,
}

impl Watches {
    /// Time at which the next point counts as missing.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|&(time, _)| time)
    }

    fn clear(&mut self) {
        self.next.clear();
        self.due.clear();
        self.due_of.clear();
    }

    fn forget(&mut self, seq: u64) {
        self.next.remove(&seq);
        if let Some(time) = self.due_of.remove(&seq) {
            self.due.remove(&(time, seq));
        }
    }

    /// Its next point, which counts as missing at `due`.
    fn expect(&mut self, seq: u64, next: Timestamp, due: Timestamp) {
        self.forget(seq);
        self.next.insert(seq, next);
        self.due.insert((due, seq));
        self.due_of.insert(seq, due);
    }
}

/// Monitoring parameters of a series.
#[derive(Clone, Copy, Debug)]
struct Period {
    every: Duration,
    tolerance: Duration,
    wait: Duration,
    listed: usize,
}

impl Period {
    /// Reads them; `None` if the series is not monitored.
    fn of(series: &Resource) -> Option<Self> {
        if series.resource_type != ResourceType::TimeSeries || !series.flag("mdd") {
            return None;
        }
        let span = |name| series.uint(name).map(Duration::from_millis);
        let every = span("pei").filter(|&every| every >= PERIOD_MIN)?;
        let listed = series.uint("mdn").unwrap_or(LISTED).min(LISTED);
        Some(Self {
            every,
            // Without a word half a period belongs to each point.
            tolerance: span("peid").unwrap_or(every / 2),
            wait: span("mdt")?,
            listed: usize::try_from(listed).unwrap_or(usize::MAX),
        })
    }
}

impl Cse {
    /// Starts monitoring every series, at start and after an undo.
    pub(super) fn watch_all(&mut self) {
        self.watches.clear();
        let watched: Vec<(u64, Slot, Option<Timestamp>)> = self
            .tree
            .iter()
            .filter(|(_, it)| Period::of(it).is_some())
            .map(|(slot, it)| (it.seq, slot, self.last_point(slot, it)))
            .collect();
        for (seq, slot, last) in watched {
            let period = self.tree.get(slot).and_then(Period::of);
            if let (Some(last), Some(period)) = (last, period) {
                self.watches.next.insert(seq, last.plus(period.every));
                self.pursue_series(slot);
            }
        }
    }

    /// The last point that is settled: missing, or one that an instance stands for which came
    /// since the watch was ordered. Missing ones tell where the points lie to the microsecond; an
    /// instance, within its tolerance.
    fn last_point(&self, slot: Slot, series: &Resource) -> Option<Timestamp> {
        let missing = series.texts("mdlt").last().and_then(Timestamp::parse);
        let latest = self.tree.latest(slot).and_then(|latest| match latest {
            Instance::Resident(latest) => self.tree.get(latest),
            // Those of a time series stay in memory.
            Instance::PagedOut(_) => None,
        });
        let since = latest.filter(|it| missing.is_some() || it.created >= series.modified);
        let latest = since.and_then(Resource::generated);
        let (Some(missing), Some(latest)) = (missing, latest) else {
            return missing.or(latest);
        };
        let every = series.uint("pei").unwrap_or(1).saturating_mul(1_000).max(1);
        let after = latest.micros().saturating_sub(missing.micros());
        let points = after.saturating_add(every / 2) / every;
        Some(missing.plus(Duration::from_micros(points.saturating_mul(every))))
    }

    /// Handles a new instance: the first starts the monitoring, later ones settle their points.
    pub(super) fn point_arrived(&mut self, slot: Slot, generated: Timestamp) {
        let Some((seq, period)) =
            self.tree.get(slot).and_then(|it| Period::of(it).map(|period| (it.seq, period)))
        else {
            return;
        };
        self.watches.next.entry(seq).or_insert_with(|| generated.plus(period.every));
        self.pursue_series(slot);
    }

    /// Handles a change of the monitoring.
    pub(super) fn rewatch(&mut self, slot: Slot, changed: &[String]) {
        let Some(series) =
            self.tree.get(slot).filter(|it| it.resource_type == ResourceType::TimeSeries)
        else {
            return;
        };
        let (seq, watched) = (series.seq, Period::of(series).is_some());
        let touched = ["mdd", "pei", "peid", "mdt"];
        if !changed.iter().any(|name| touched.contains(&name.as_str())) {
            return;
        }
        self.watches.forget(seq);
        if watched {
            self.change(slot, |series| begin(&mut series.attributes));
        }
    }

    /// Settles the points that are due.
    pub(super) fn pursue_watches(&mut self) {
        while let Some(&(time, seq)) = self.watches.due.first() {
            if time > self.now {
                return;
            }
            match self.tree.by_seq(seq) {
                Some(slot) => self.pursue_series(slot),
                None => self.watches.forget(seq),
            }
        }
    }

    fn pursue_series(&mut self, slot: Slot) {
        let Some(series) = self.tree.get(slot) else {
            return;
        };
        let seq = series.seq;
        let (Some(period), Some(&from)) = (Period::of(series), self.watches.next.get(&seq)) else {
            self.watches.forget(seq);
            return;
        };
        let (next, missing) = settle(series, period, from, self.now);
        self.watches.expect(seq, next, next.plus(period.wait));
        if missing.count > 0 {
            self.note_missing(slot, period, &missing);
        }
    }

    fn note_missing(&mut self, slot: Slot, period: Period, missing: &Missing) {
        self.counters.points_missing += missing.count;
        let count = missing.count;
        self.change(slot, |series| {
            let before = series.uint("mdc").unwrap_or(0);
            series.attributes.insert("mdc".into(), json!(before.saturating_add(count)));
            let list = series.attributes.entry("mdlt").or_insert_with(|| json!([]));
            if let Value::Array(list) = list {
                list.extend(missing.points.iter().map(|point| json!(point.to_string())));
                let over = list.len().saturating_sub(period.listed);
                list.drain(..over);
            }
        });
        self.tell_missing(slot, count);
    }

    /// Notifies subscribers to missing data (net 8) that have counted enough points.
    fn tell_missing(&mut self, slot: Slot, count: u64) {
        let Some(series) = self.tree.get(slot) else {
            return;
        };
        let points = json!({
            "mdlt": series.attribute("mdlt").cloned().unwrap_or_else(|| json!([])),
            "mdc": series.uint("mdc").unwrap_or(0),
        });
        let content = json!({ "m2m:tsn": points }).to_string();
        let subscriptions =
            series.family.as_ref().map_or_else(Vec::new, |family| family.subscriptions.clone());
        for subscription in subscriptions {
            if self.has_enough_missing(subscription, count) {
                self.send_notification(subscription, REPORT_ON_MISSING, &content);
            }
        }
    }

    fn has_enough_missing(&mut self, subscription: Slot, count: u64) -> bool {
        let Some(resource) = self.tree.get(subscription) else {
            return false;
        };
        let criteria = resource.attribute("enc");
        let events = criteria.and_then(|it| it.get("net")).and_then(Value::as_array);
        if !events.into_iter().flatten().any(|event| event.as_u64() == Some(REPORT_ON_MISSING)) {
            return false;
        }
        let data = criteria.and_then(|it| it.get("md"));
        let wanted = data.and_then(|it| it.get("num")).and_then(Value::as_u64).unwrap_or(1);
        let span = data.and_then(|it| it.get("dur")).and_then(span_of).unwrap_or(WINDOW);
        let (seq, now) = (resource.seq, self.now);
        if !self.watches.windows.contains_key(&seq) {
            // Those of subscriptions that are gone make room.
            let tree = &self.tree;
            self.watches.windows.retain(|&seq, _| tree.by_seq(seq).is_some());
        }
        let window = self.watches.windows.entry(seq).or_insert((now.plus(span), 0));
        if window.0 <= now {
            *window = (now.plus(span), 0);
        }
        window.1 = window.1.saturating_add(count);
        if window.1 < wanted {
            return false;
        }
        self.watches.windows.remove(&seq);
        true
    }
}

/// m2m:notificationEventType, report on missing data points.
pub(super) const REPORT_ON_MISSING: u64 = 8;

/// Points found missing: their number, and the latest of them.
#[derive(Debug, Default)]
struct Missing {
    count: u64,
    points: Vec<Timestamp>,
}

/// Goes from point to point as far as they are settled: the first that is not, and those missing.
fn settle(
    series: &Resource,
    period: Period,
    from: Timestamp,
    now: Timestamp,
) -> (Timestamp, Missing) {
    let generated = series.family.as_ref().map(|family| &family.generated);
    let mut missing = Missing::default();
    let mut next = from;
    // A series that was silent for long has more missing points than are listed: only those that
    // are listed are looked at one by one.
    let silent = now.micros().saturating_sub(next.plus(period.wait).micros());
    let every = u64::try_from(period.every.as_micros()).unwrap_or(u64::MAX).max(1);
    let beyond = (silent / every).saturating_sub(LISTED);
    missing.count = beyond;
    next = Timestamp::from_micros(next.micros().saturating_add(beyond.saturating_mul(every)));
    loop {
        let early = next
            .micros()
            .saturating_sub(u64::try_from(period.tolerance.as_micros()).unwrap_or(u64::MAX));
        let around = Timestamp::from_micros(early)..=next.plus(period.tolerance);
        let came = generated.is_some_and(|times| times.range(around).next().is_some());
        if !came && next.plus(period.wait) > now {
            return (next, missing);
        }
        if !came {
            missing.count += 1;
            missing.points.push(next);
        }
        let following = next.plus(period.every);
        if following == next {
            // The end of time.
            return (next, missing);
        }
        next = following;
    }
}

/// The attributes of a series when its monitoring begins.
fn begin(attributes: &mut Map<String, Value>) {
    attributes.insert("mdc".into(), json!(0));
    // Absent while nothing is missing.
    attributes.remove("mdlt");
}

/// A duration as text or as a number of milliseconds.
fn span_of(value: &Value) -> Option<Duration> {
    match value {
        Value::String(text) => parse_duration(text),
        Value::Number(number) => number.as_u64().map(Duration::from_millis),
        _ => None,
    }
}

/// Whether a series can be watched as it says, all of its attributes together.
pub(super) fn check_time_series(whole: &mut Map<String, Value>) -> Result<(), Refusal> {
    let span = |name: &str| whole.get(name).and_then(Value::as_u64).map(Duration::from_millis);
    let (every, tolerance, wait) = (span("pei"), span("peid"), span("mdt"));
    check_content_info(whole.get("cnf").and_then(Value::as_str))?;
    if [every, tolerance, wait].into_iter().flatten().any(|span| span > SPAN_MAX) {
        return Err(Refusal::bad("pei, peid and mdt are of ten years at most"));
    }
    if every.zip(tolerance).is_some_and(|(every, tolerance)| tolerance > every / 2) {
        return Err(Refusal::bad("peid is at most half of pei"));
    }
    if whole.get("mdd").and_then(Value::as_bool) != Some(true) {
        return Ok(());
    }
    let (Some(every), Some(wait)) = (every, wait) else {
        return Err(Refusal::bad("mdd goes with pei and mdt"));
    };
    if every < PERIOD_MIN {
        return Err(Refusal::bad("a series with mdd has a pei of at least 100 ms"));
    }
    if wait <= tolerance.unwrap_or(every / 2) {
        return Err(Refusal::bad("mdt is more than peid"));
    }
    whole.entry("mdc").or_insert_with(|| json!(0));
    Ok(())
}

/// Fills in what a new series does not say: that it is not watched, and its tolerance.
pub(super) fn settle_time_series(attributes: &mut Map<String, Value>) {
    attributes.entry("mdd").or_insert_with(|| json!(false));
    settle_tolerance(attributes);
}

/// With a period goes a tolerance, half of it unless something else is said.
pub(super) fn settle_tolerance(attributes: &mut Map<String, Value>) {
    if let (Some(period), false) =
        (attributes.get("pei").and_then(Value::as_u64), attributes.contains_key("peid"))
    {
        attributes.insert("peid".into(), json!(period / 2));
    }
}

/// Whether a subscription's criterion for missing data (`md`) is one.
pub(super) fn check_missing_data(criterion: &Value) -> Result<(), Refusal> {
    let number = criterion.get("num").and_then(Value::as_u64).is_some_and(|number| number > 0);
    let span = criterion.get("dur").is_some_and(|span| {
        span_of(span).is_some_and(|span| span > Duration::ZERO && span <= SPAN_MAX)
    });
    if number && span {
        Ok(())
    } else {
        Err(Refusal::bad("md has a positive num and a duration dur"))
    }
}
