//! Outbox: messages stored until they are answered, sent in order on each queue, retried with
//! growing pauses, and limited by number and age.

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

/// Prefix of the queues for readings of this CSE's own devices; the originator follows. No queue of
/// a subscription, of answers or of announcements begins so.
pub const DEVICE_LANE: &str = "device/";

/// Shortest and longest lifetime of outbox messages from a store of an earlier version.
const CONVERTED_MIN: Duration = Duration::from_hours(24);
const CONVERTED_MAX: Duration = Duration::from_hours(365 * 24);

/// An outbox message: a request that must arrive.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// Its queue; messages of one queue arrive in order.
    pub lane: Arc<str>,
    /// A URL, or the address of an entity.
    pub target: String,
    /// The request.
    pub request: Request,
    /// Lifetime of the message; unlimited if `None`.
    pub keep: Option<Duration>,
    /// Batching of several notifications into one.
    pub batch: Option<Gather>,
}

/// Batching of notifications (m2m:batchNotify).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Gather {
    /// Notifications that complete a batch.
    pub number: usize,
    /// Longest wait of a notification in an incomplete batch.
    pub duration: Duration,
    /// Whether only the latest of each batch is sent (latestNotify).
    pub latest: bool,
}

#[derive(Debug, Default)]
struct Lane {
    letters: BTreeMap<u64, Kept>,
    /// The messages by expiry.
    by_age: BTreeSet<(Moment, u64)>,
    /// Messages in progress: the first ones, in ascending order.
    sent: Vec<u64>,
    failures: u32,
    /// Time of the next check of the queue.
    due: Option<Moment>,
    /// The entity whose quota its messages use.
    payer: Arc<str>,
}

#[derive(Debug)]
pub(super) struct Kept {
    letter: Letter,
    since: Moment,
    /// Expiry of the message.
    until: Moment,
}

/// Every outbox queue.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    lanes: HashMap<Arc<str>, Lane>,
    lane_of: BTreeMap<u64, Arc<str>>,
    /// Messages per payer; all queues of devices share one.
    by_payer: HashMap<Arc<str>, usize>,
    due: BTreeSet<(Moment, Arc<str>)>,
    /// Queues held because their first message was refused on account of its originator, with the
    /// verdict.
    held: BTreeMap<Arc<str>, Verdict>,
    /// The last final verdict on a device's reading.
    refused: Option<Verdict>,
    /// Outbox messages whose accompanying request is not answered yet.
    beside: BTreeMap<Token, Letter>,
}

/// A receiver's verdict on an outbox message that it refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verdict {
    /// The response status code.
    pub status: Status,
    /// The originator.
    pub from: String,
    /// The target.
    pub to: String,
    /// The type of the resource to create.
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

    /// Removes the outbox message of a request, if there is one.
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

    /// Number of this payer's messages.
    fn of(&self, payer: &str) -> usize {
        self.by_payer.get(payer).copied().unwrap_or_default()
    }

    /// Restores a stored message.
    fn restore(&mut self, seq: u64, kept: Kept, now: Moment, payer: Arc<str>) {
        let lane = Arc::clone(&kept.letter.lane);
        self.keep(seq, kept, payer);
        self.wake_at(&lane, now);
    }

    /// Removes a message without an answer.
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

    /// Prefix of a message's row: messages and resources share the store, and no resource's row has
    /// it.
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

    /// Parses a stored row, if it is a message's.
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
    /// Restores a stored row, of a message or a resource.
    ///
    /// # Errors
    ///
    /// If it is neither.
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

    /// Outbox messages that wait or are in progress.
    pub fn letters(&self) -> usize {
        self.outbox.len()
    }

    /// Number of queues held because of their originator, and the first one's verdict.
    pub fn held(&self) -> (usize, Option<&Verdict>) {
        (self.outbox.held.len(), self.outbox.held.values().next())
    }

    /// The last final refusal of a device's reading. The reading was not delivered and will not be;
    /// it stays stored here.
    pub const fn refused(&self) -> Option<&Verdict> {
        self.outbox.refused.as_ref()
    }

    /// Whether a queue has room for this many further messages.
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

    /// The entity whose quota a queue's messages use: the devices of this CSE together, the
    /// subscription's creator, or the receiver of answers or announcements.
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

    /// Whether a queue is empty.
    pub(super) fn has_nothing_on(&self, lane: &str) -> bool {
        !self.outbox.lanes.contains_key(lane)
    }

    /// Queues and stores an outbox message, to be sent in its turn.
    ///
    /// # Errors
    ///
    /// 5103 if the queue is full.
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

    /// Executes a request with an outbox message that is queued if the request succeeds.
    pub(super) fn take_both(&mut self, token: Token, request: &Request, letter: Letter) {
        if !self.has_room(&letter.lane, 1) {
            let asker = self.asker(token, request);
            self.answer(&asker, Err(no_room()));
            return;
        }
        self.outbox.beside.insert(token, letter);
        self.take_request(token, request, true);
    }

    /// Queues the outbox message of an answered request if that succeeded; returns the answer to
    /// both.
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

    /// Drops the oldest message of a queue that is not in progress, to make room.
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

    /// Drops every message of a queue except the last and those in progress.
    pub(super) fn keep_latest(&mut self, lane: &str) {
        let lane_of = self.outbox.lanes.get(lane);
        let waiting = lane_of.map_or(0, |lane| lane.letters.len().saturating_sub(lane.sent.len()));
        for _ in 1..waiting {
            self.drop_oldest(lane);
        }
    }

    /// Sends a queue's incomplete batch at once, since no further notification follows.
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

    /// Removes a message from the store, with its result.
    fn discard(&mut self, seq: u64, end: End) {
        if let Some(kept) = self.outbox.forget(seq) {
            self.note_letter(&kept.letter, end);
            self.ledger.write(Record::Delete { seq }, Record::Put { seq, body: kept.to_record() });
        }
    }

    /// Changes the target of messages, and sends them at once.
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

    /// Checks the queues that are due.
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

    /// Sends the next message of a queue, unless one is in progress or it is paused.
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

    /// Current route to an entity; a request for an application goes to its URL.
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

    /// Holds a message that its receiver refuses on account of its originator.
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

    /// Counts devices' readings that are refused for good, and keeps the verdict.
    fn note_refusal(&mut self, name: &str, verdict: Option<Verdict>) {
        if !name.starts_with(DEVICE_LANE) {
            return;
        }
        if verdict.as_ref().is_some_and(|it| it.kind == Some(Kind::ContentInstance)) {
            self.counters.readings_refused_above += 1;
        }
        self.outbox.refused = verdict;
    }

    /// Finishes the messages in progress on a queue, delivered or not, and continues with the next.
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

    /// Schedules a retry of a queue's messages after a pause, or after a longer one from the
    /// receiver.
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

/// Combines notifications into one `m2m:agn` (TS-0004, m2m:aggregatedNotification).
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
