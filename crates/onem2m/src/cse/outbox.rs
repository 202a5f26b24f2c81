//! Requests that must arrive: kept in the store until they are answered, sent in order on each
//! lane, tried again with growing pauses, bounded by number and by age.

use super::announce::announcement;
use super::calls::{Purpose, Unreachable};
use super::polling::{Route, notification_target};
use super::{Cse, Output, Refusal, Token, not_found};
use crate::address::Address;
use crate::audit::End;
use crate::clock::Moment;
use crate::fate::{Fate, pause};
use crate::kind::Kind;
use crate::limits::share;
use crate::primitive::{Operation, Request, Response};
use crate::status::Status;
use crate::stored::Damage;
use crate::time::Timestamp;
use crate::tree::Record;
use core::time::Duration;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What the lanes begin with that carry what this CSE's own devices say; who it is from follows.
/// No lane of a subscription, of answers or of announcements begins so.
pub const DEVICE_LANE: &str = "device/";

/// How long letters of a store of an earlier version are worth delivering, at least and at most.
const CONVERTED_MIN: Duration = Duration::from_hours(24);
const CONVERTED_MAX: Duration = Duration::from_hours(365 * 24);

/// A request that must arrive.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// Letters of one lane arrive in the order they were posted.
    pub lane: Arc<str>,
    /// A URL, or the address of an entity.
    pub target: String,
    /// What to send.
    pub request: Request,
    /// How long it is worth delivering; for ever if nothing is said.
    pub keep: Option<Duration>,
    /// Several notifications go out as one.
    pub batch: Option<Gather>,
}

/// How notifications are gathered (m2m:batchNotify).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Gather {
    /// So many make a batch.
    pub number: usize,
    /// What has waited so long goes out all the same.
    pub duration: Duration,
    /// Of each batch only the latest is told (latestNotify).
    pub latest: bool,
}

#[derive(Debug, Default)]
struct Lane {
    letters: BTreeMap<u64, Kept>,
    /// The same by when they are too old.
    by_age: BTreeSet<(Moment, u64)>,
    /// Those under way: the first ones, in ascending order.
    sent: Vec<u64>,
    failures: u32,
    /// When to look at the lane again.
    due: Option<Moment>,
    /// Who uses up what its letters use up.
    payer: Arc<str>,
}

#[derive(Debug)]
pub(super) struct Kept {
    letter: Letter,
    since: Moment,
    /// When it is not worth delivering any more.
    until: Moment,
}

/// Every lane.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    lanes: HashMap<Arc<str>, Lane>,
    lane_of: BTreeMap<u64, Arc<str>>,
    /// How many letters each payer has; all lanes of devices have one.
    by_payer: HashMap<Arc<str>, usize>,
    due: BTreeSet<(Moment, Arc<str>)>,
    /// The lanes whose first letter was turned away because of who asks, with what was said.
    held: BTreeMap<Arc<str>, Verdict>,
    /// What was last said of what a device says, and is final.
    refused: Option<Verdict>,
    /// Letters whose request is not answered yet.
    beside: BTreeMap<Token, Letter>,
}

/// What a receiver said of a letter that it did not take.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verdict {
    /// What the receiver answered.
    pub status: Status,
    /// As whom it was asked.
    pub from: String,
    /// What it was asked for.
    pub to: String,
    /// The type of what it was to make.
    pub kind: Option<Kind>,
}

impl Verdict {
    fn new(status: Status, request: &Request) -> Self {
        let (from, to) = (request.from.clone(), request.to.clone());
        Self { status, from, to, kind: request.kind }
    }
}

impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.lane_of.len()
    }

    pub(super) fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(time, _)| *time)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (u64, Arc<str>)> {
        self.lanes
            .values()
            .flat_map(|lane| lane.letters.iter().map(|(&seq, kept)| (seq, kept.to_record())))
    }

    /// The letter that goes with a request, if there is one.
    pub(super) fn take_beside(&mut self, token: Token) -> Option<Letter> {
        if self.beside.is_empty() { None } else { self.beside.remove(&token) }
    }

    fn keep(&mut self, seq: u64, kept: Kept, payer: Arc<str>) {
        let name = Arc::clone(&kept.letter.lane);
        self.lane_of.insert(seq, Arc::clone(&name));
        let lane = self.lanes.entry(name).or_insert_with(|| Lane { payer, ..Lane::default() });
        lane.by_age.insert((kept.until, seq));
        lane.letters.insert(seq, kept);
        *self.by_payer.entry(Arc::clone(&lane.payer)).or_default() += 1;
    }

    /// Letters of this payer.
    fn of(&self, payer: &str) -> usize {
        self.by_payer.get(payer).copied().unwrap_or_default()
    }

    /// Takes over a stored letter.
    fn restore(&mut self, seq: u64, kept: Kept, now: Moment, payer: Arc<str>) {
        let lane = Arc::clone(&kept.letter.lane);
        self.keep(seq, kept, payer);
        self.wake_at(&lane, now);
    }

    /// Forgets a letter without a word.
    pub(super) fn forget(&mut self, seq: u64) -> Option<Kept> {
        let name = self.lane_of.remove(&seq)?;
        let lane = self.lanes.get_mut(&name)?;
        lane.sent.retain(|&sent| sent != seq);
        let kept = lane.letters.remove(&seq);
        if let Some(kept) = &kept {
            lane.by_age.remove(&(kept.until, seq));
        }
        if let Some(count) = self.by_payer.get_mut(&lane.payer) {
            *count -= 1;
            if *count == 0 {
                self.by_payer.remove(&lane.payer);
            }
        }
        if lane.letters.is_empty() {
            if let Some(due) = lane.due {
                self.due.remove(&(due, Arc::clone(&name)));
            }
            self.lanes.remove(&name);
            self.held.remove(&name);
        }
        kept
    }

    fn wake_at(&mut self, name: &Arc<str>, time: Moment) {
        let Some(lane) = self.lanes.get_mut(name) else {
            return;
        };
        if let Some(due) = lane.due.replace(time) {
            self.due.remove(&(due, Arc::clone(name)));
        }
        self.due.insert((time, Arc::clone(name)));
    }
}

impl Lane {
    fn is_sent(&self, seq: u64) -> bool {
        self.sent.binary_search(&seq).is_ok()
    }
}

impl Kept {
    fn new(letter: Letter, now: Moment) -> Self {
        let until = letter.keep.map_or(Moment::MAX, |keep| now.plus(keep));
        Self { letter, since: now, until }
    }

    /// Letters and resources share the store; a letter's row begins like no resource's.
    const MARK: &'static str = "{\"_x\":";

    fn to_record(&self) -> Arc<str> {
        let letter = &self.letter;
        let mut request = letter.request.clone();
        // As text within the text: numbers must come back digit for digit.
        let content = request.content.take();
        let gather = letter
            .batch
            .map(|batch| json!([batch.number, batch.duration.as_millis(), batch.latest]));
        let body = json!({
            "lane": &*letter.lane,
            "target": letter.target,
            "kept_until": (self.until != Moment::MAX).then(|| self.until.micros()),
            "keep": letter.keep.map(|keep| keep.as_micros()),
            "request": request.to_value(),
            "content": content,
            "gather": gather,
        });
        format!("{}{body}}}", Self::MARK).into()
    }

    /// Reads a stored row, if it is a letter's.
    fn from_record(body: &str, moment: Moment, wall: Timestamp) -> Option<Self> {
        let body = body.strip_prefix(Self::MARK)?.strip_suffix('}')?;
        let body: Value = serde_json::from_str(body).ok()?;
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let mut request = Request::from_value(body.get("request")?).ok()?;
        request.content = text("content").map(Into::into);
        let gather = body.get("gather").and_then(Value::as_array);
        let gather = gather.and_then(|pair| {
            let number = usize::try_from(pair.first()?.as_u64()?).ok()?;
            let duration = Duration::from_millis(pair.get(1)?.as_u64()?);
            let latest = pair.get(2).and_then(Value::as_bool).unwrap_or(false);
            Some(Gather { number, duration, latest })
        });
        let micros = |name: &str| body.get(name).and_then(Value::as_u64);
        let mut keep = micros("keep").map(Duration::from_micros);
        let mut until = micros("kept_until").map_or(Moment::MAX, Moment::from_micros);
        // Earlier versions noted a time of the wall clock, which may have been wrong, or is now.
        if let Some(time) = micros("until").map(Timestamp::from_micros)
            && time < Timestamp::MAX
        {
            let left = time.since_epoch().saturating_sub(wall.since_epoch());
            keep = Some(left.clamp(CONVERTED_MIN, CONVERTED_MAX));
            until = keep.map_or(Moment::MAX, |keep| moment.plus(keep));
        }
        let lane = text("lane")?.into();
        let target = text("target")?.to_owned();
        let letter = Letter { lane, target, request, keep, batch: gather };
        Some(Self { letter, since: moment, until })
    }
}

impl Cse {
    /// Takes over a stored row, a letter's or a resource's.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub(super) fn restore(&mut self, seq: u64, body: &Arc<str>) -> Result<(), Damage> {
        let Some(kept) = Kept::from_record(body, self.moment, self.now) else {
            if self.restore_postponed(seq, body) {
                return Ok(());
            }
            return self.tree.restore(seq, body);
        };
        let payer = self.payer_of(&kept.letter.lane);
        // One that could not be taken out is not to be tried, or given up, again at once.
        self.outbox.restore(seq, kept, self.moment.max(self.unstored.0), payer);
        Ok(())
    }

    /// Letters that wait or are under way.
    pub fn letters(&self) -> usize {
        self.outbox.len()
    }

    /// How many lanes wait because of who asks there, and the first of them.
    pub fn held(&self) -> (usize, Option<&Verdict>) {
        (self.outbox.held.len(), self.outbox.held.values().next())
    }

    /// What was last refused for good of what this CSE's devices say. It was not delivered and
    /// will not be; what stands here of it stays.
    pub const fn refused(&self) -> Option<&Verdict> {
        self.outbox.refused.as_ref()
    }

    /// Whether so many more letters may wait on a lane.
    pub fn has_room(&self, lane: &str, letters: usize) -> bool {
        let limits = &self.config.limits;
        let there = self.outbox.lanes.get(lane);
        let waiting = there.map_or(0, |lane| lane.letters.len()).saturating_add(letters);
        let of_devices = self.outbox.of(DEVICE_LANE);
        if lane.starts_with(DEVICE_LANE) {
            let all = of_devices.saturating_add(letters);
            return waiting <= limits.letters_waiting && all <= limits.letters_waiting_total;
        }
        let payer = self.payer_of(lane);
        let all = self.outbox.len().saturating_sub(of_devices).saturating_add(letters);
        let share = share(limits.notifications_waiting_total);
        waiting <= limits.notifications_waiting
            && all <= limits.notifications_waiting_total
            && self.outbox.of(&payer).saturating_add(letters) <= share
    }

    /// Who uses up what the letters of a lane use up: the devices of this CSE all together, whoever
    /// made the subscription, whoever gets answers or announcements.
    fn payer_of(&self, lane: &str) -> Arc<str> {
        if let Some(lane) = self.outbox.lanes.get(lane) {
            return Arc::clone(&lane.payer);
        }
        if lane.starts_with(DEVICE_LANE) {
            return DEVICE_LANE.into();
        }
        let (first, rest) = lane.split_once(' ').unwrap_or((lane, ""));
        let maker = self.tree.by_id(first).and_then(|slot| self.tree.get(slot));
        maker.map_or(rest, |maker| maker.owner.as_ref()).into()
    }

    /// Whether nothing waits on a lane.
    pub(super) fn has_nothing_on(&self, lane: &str) -> bool {
        !self.outbox.lanes.contains_key(lane)
    }

    /// Keeps a letter, to be stored, and sends it as soon as it is its turn.
    ///
    /// # Errors
    ///
    /// 5103 if as many wait as may.
    pub(super) fn post(&mut self, letter: Letter) -> Result<(), Refusal> {
        if !self.has_room(&letter.lane, 1) {
            return Err(no_room());
        }
        let seq = self.ledger.next_seq();
        let kept = Kept::new(letter, self.moment);
        self.ledger.write(Record::Put { seq, body: kept.to_record() }, Record::Delete { seq });
        self.note_letter(&kept.letter, End::Waits);
        let lane = Arc::clone(&kept.letter.lane);
        let payer = self.payer_of(&lane);
        self.outbox.keep(seq, kept, payer);
        self.run_lane(&lane);
        Ok(())
    }

    /// Does what a request asks, with a letter that is posted if it is done.
    pub(super) fn take_both(&mut self, token: Token, request: &Request, letter: Letter) {
        if !self.has_room(&letter.lane, 1) {
            let asker = self.asker(token, request);
            self.answer(&asker, Err(no_room()));
            return;
        }
        self.outbox.beside.insert(token, letter);
        self.take_request(token, request, true);
    }

    /// Posts the letter that goes with a request that was answered so, if it is done: the answer
    /// to both.
    pub(super) fn post_beside(&mut self, token: Token, response: Response) -> Response {
        match self.outbox.take_beside(token) {
            Some(letter) if response.fate().is_stored() => match self.post(letter) {
                Ok(()) => response,
                // Who asked waited for others, and the room is gone.
                Err(refusal) => Response::refusing(&refusal, response.id, response.release),
            },
            _ => response,
        }
    }

    /// Drops the oldest letter of a lane that is not under way, to make room.
    pub(super) fn drop_oldest(&mut self, lane: &str) {
        let oldest = self
            .outbox
            .lanes
            .get(lane)
            .and_then(|lane| lane.letters.keys().copied().find(|&seq| !lane.is_sent(seq)));
        if let Some(seq) = oldest {
            self.counters.notifications_dropped += 1;
            self.discard(seq, End::GivenUp);
        }
    }

    /// Drops every letter of a lane but the last and what is under way.
    pub(super) fn keep_latest(&mut self, lane: &str) {
        let lane_of = self.outbox.lanes.get(lane);
        let waiting = lane_of.map_or(0, |lane| lane.letters.len().saturating_sub(lane.sent.len()));
        for _ in 1..waiting {
            self.drop_oldest(lane);
        }
    }

    /// Has what is gathered on a lane go out at once: nothing more is coming.
    pub(super) fn flush(&mut self, name: &Arc<str>) {
        let Some(lane) = self.outbox.lanes.get_mut(name) else { return };
        for (&seq, kept) in &mut lane.letters {
            let before = kept.to_record();
            let Some(gather) = &mut kept.letter.batch else { continue };
            gather.duration = Duration::ZERO;
            let body = kept.to_record();
            self.ledger.write(Record::Put { seq, body }, Record::Put { seq, body: before });
        }
        self.run_lane(name);
    }

    /// Forgets a letter, to be stored, which ended so.
    fn discard(&mut self, seq: u64, end: End) {
        if let Some(kept) = self.outbox.forget(seq) {
            self.note_letter(&kept.letter, end);
            self.ledger.write(Record::Delete { seq }, Record::Put { seq, body: kept.to_record() });
        }
    }

    /// Has letters for one place go to another, at once.
    pub(super) fn readdress(&mut self, from: &str, to: &str) {
        let mut lanes = Vec::new();
        for (name, lane) in &mut self.outbox.lanes {
            let mut moved = false;
            for (&seq, kept) in &mut lane.letters {
                if kept.letter.target != from {
                    continue;
                }
                let before = kept.to_record();
                to.clone_into(&mut kept.letter.target);
                let body = kept.to_record();
                self.ledger.write(Record::Put { seq, body }, Record::Put { seq, body: before });
                moved = true;
            }
            if moved {
                lane.failures = 0;
                lanes.push(Arc::clone(name));
            }
        }
        for lane in lanes {
            self.outbox.wake_at(&lane, self.moment);
        }
    }

    /// Looks at the lanes that are due.
    pub(super) fn run_outbox(&mut self) {
        while let Some((time, lane)) = self.outbox.due.first().cloned() {
            if time > self.moment {
                return;
            }
            self.outbox.due.remove(&(time, Arc::clone(&lane)));
            if let Some(lane) = self.outbox.lanes.get_mut(&lane) {
                lane.due = None;
            }
            self.run_lane(&lane);
        }
    }

    /// Sends what is next on a lane, unless something is under way or a pause is on.
    fn run_lane(&mut self, name: &Arc<str>) {
        self.drop_stale(name);
        let Some(lane) = self.outbox.lanes.get_mut(name) else {
            return;
        };
        let paused = lane.failures > 0 && lane.due.is_some();
        let Some((_, first)) = lane.letters.first_key_value() else {
            return;
        };
        if paused || !lane.sent.is_empty() {
            return;
        }
        let target = first.letter.target.clone();
        let mut request = first.letter.request.clone();
        let count = match first.letter.batch {
            None => 1,
            Some(gather) => {
                let full = lane.letters.len() >= gather.number;
                let ripe = first.since.plus(gather.duration);
                if !full && ripe > self.moment {
                    self.outbox.wake_at(name, ripe);
                    return;
                }
                let number = gather.number.min(lane.letters.len());
                let superseded = if gather.latest { number.saturating_sub(1) } else { 0 };
                let contents = lane.letters.values().take(number).skip(superseded);
                let contents = contents.filter_map(|kept| kept.letter.request.content.as_deref());
                request.content = Some(gathered(contents).into());
                number
            }
        };
        lane.sent = lane.letters.keys().copied().take(count).collect();
        if self.send_letter(name, &target, request).is_err() {
            self.delivery_failed(name, None);
        }
    }

    fn drop_stale(&mut self, name: &str) {
        let stale: Vec<u64> = self.outbox.lanes.get(name).map_or_else(Vec::new, |lane| {
            let old = lane.by_age.iter().take_while(|(until, _)| *until <= self.moment);
            old.map(|&(_, seq)| seq).filter(|&seq| !lane.is_sent(seq)).collect()
        });
        for seq in stale {
            self.counters.letters_aged += 1;
            self.discard(seq, End::GivenUp);
        }
    }

    fn send_letter(
        &mut self,
        lane: &Arc<str>,
        target: &str,
        mut request: Request,
    ) -> Result<(), Refusal> {
        let route = self.reach(target, &mut request)?;
        let payer = self.payer_of(lane);
        self.send(route, request, Purpose::Letter(Arc::clone(lane)), &payer)
    }

    /// Where an entity can be reached now; a request for an application goes to its URL.
    pub(super) fn reach(&self, target: &str, request: &mut Request) -> Result<Route, Refusal> {
        let is_for_target = request.to == target;
        let (target, serialisation) = notification_target(target);
        if target.contains("://") {
            // What is for the CSE at this URL keeps its own address: a reading's container there.
            if is_for_target {
                request.to.clone_from(&target);
            }
            return Ok(Route::Urls(vec![target], serialisation));
        }
        let chosen = |route| match (route, serialisation) {
            (Route::Urls(urls, _), Some(chosen)) => Route::Urls(urls, Some(chosen)),
            (route, _) => route,
        };
        match Address::parse(&target, &self.config.cse_id, &self.config.provider) {
            Address::Here(path) => {
                let Some(super::Target::Resource(slot)) = self.resolve(path) else {
                    return Err(not_found("no such entity"));
                };
                let route = chosen(self.route_to(slot)?);
                if let (Kind::ApplicationEntity, Route::Urls(urls, _)) =
                    (self.resource(slot)?.kind, &route)
                    && let Some(url) = urls.first()
                {
                    request.to.clone_from(url);
                }
                Ok(route)
            }
            Address::There { cse, .. } => {
                let hop = self.next_hop(cse, &self.config.cse_id);
                let hop = hop.ok_or_else(|| not_found("no such CSE"))?;
                request.to.clone_from(&target);
                self.route_to(hop).map(chosen)
            }
            Address::Elsewhere => Err(not_found("no such service provider")),
        }
    }

    pub(super) fn letter_answered(
        &mut self,
        name: &Arc<str>,
        answer: Result<Response, Unreachable>,
    ) {
        self.outbox.held.remove(name);
        let Some(lane) = self.outbox.lanes.get(name) else {
            return;
        };
        let Ok(answer) = answer else {
            self.delivery_failed(name, None);
            return;
        };
        let (failures, status) = (lane.failures, answer.status);
        let first = lane.sent.first().and_then(|seq| lane.letters.get(seq));
        let request = first.map(|kept| &kept.letter.request);
        let creates = request.is_some_and(|request| request.operation == Operation::Create);
        let verdict = request.map(|request| Verdict::new(answer.status, request));
        let announcement = request.and_then(|request| announcement(name, request));
        match (answer.fate(), announcement) {
            (Fate::Done, _) => self.done_with(name, status, true),
            // It was there already: an earlier delivery whose answer was lost.
            (Fate::There, _) if creates => self.done_with(name, status, true),
            (Fate::Again(told), _) => self.delivery_failed(name, told),
            (Fate::Nowhere, Some(told)) => {
                if self.announcement_lost(&told, failures) {
                    self.done_with(name, status, told.operation == Operation::Delete);
                } else {
                    self.delivery_failed(name, None);
                }
            }
            // A receiver that is just starting may not have its resources yet, or never again.
            (Fate::Nowhere, None) => {
                if creates {
                    self.ledger.say(Output::Lost { lane: Arc::clone(name) });
                }
                self.delivery_failed(name, None);
            }
            // It does not know this CSE, or not yet what it may do: nothing is wrong with the letter.
            (Fate::Barred, _) if creates => self.hold(name, verdict),
            (Fate::There | Fate::Barred | Fate::Refused, announcement) => {
                if let Some(told) = announcement {
                    self.announcement_refused(&told);
                }
                self.note_refusal(name, verdict);
                self.done_with(name, status, false);
            }
        }
    }

    /// Keeps a letter that its receiver does not take because of who asks.
    fn hold(&mut self, name: &Arc<str>, verdict: Option<Verdict>) {
        self.counters.letters_unauthorised += 1;
        let status = verdict.as_ref().map(|verdict| verdict.status);
        if let Some(verdict) = verdict {
            self.outbox.held.insert(Arc::clone(name), verdict);
        }
        if status == Some(Status::OriginatorHasNotRegistered) {
            // It knows this CSE not, or not any more, or not the AE that asks.
            self.registration_lost();
            self.ledger.say(Output::Lost { lane: Arc::clone(name) });
        }
        self.delivery_failed(name, None);
    }

    /// Counts readings of devices that are refused for good, and remembers what was said.
    fn note_refusal(&mut self, name: &str, verdict: Option<Verdict>) {
        if !name.starts_with(DEVICE_LANE) {
            return;
        }
        if verdict.as_ref().is_some_and(|it| it.kind == Some(Kind::ContentInstance)) {
            self.counters.readings_refused_above += 1;
        }
        self.outbox.refused = verdict;
    }

    /// What was under way on a lane has arrived, or never will; the next has its turn.
    fn done_with(&mut self, name: &Arc<str>, status: Status, arrived: bool) {
        let Some(lane) = self.outbox.lanes.get_mut(name) else {
            return;
        };
        lane.failures = 0;
        for seq in core::mem::take(&mut lane.sent) {
            // Refused for good: to send it again would only be refused again.
            self.counters.delivered += u64::from(arrived);
            self.counters.letters_refused += u64::from(!arrived);
            self.discard(seq, End::Answered(status));
        }
        self.run_lane(name);
    }

    /// Tries what is under way on a lane again, not before a pause, or a longer one that was told.
    fn delivery_failed(&mut self, name: &Arc<str>, told: Option<Duration>) {
        let Some(lane) = self.outbox.lanes.get_mut(name) else {
            return;
        };
        self.counters.delivery_retries += 1;
        let wait = pause(lane.failures, told);
        lane.failures += 1;
        lane.sent.clear();
        self.outbox.wake_at(name, self.moment.plus(wait));
    }
}

fn no_room() -> Refusal {
    Refusal::new(Status::TargetNotReachable, "too much waits to be sent")
}

/// Single notifications as one: `m2m:agn` around them (TS-0004, m2m:aggregatedNotification).
fn gathered<'text>(contents: impl Iterator<Item = &'text str>) -> String {
    let mut text = String::from("{\"m2m:agn\":{\"m2m:sgn\":[");
    for (at, content) in contents.enumerate() {
        if at > 0 {
            text.push(',');
        }
        let inner = content.strip_prefix("{\"m2m:sgn\":").and_then(|rest| rest.strip_suffix('}'));
        text.push_str(inner.unwrap_or("{}"));
    }
    text.push_str("]}}");
    text
}
