//! Delivery of a device's requests: stored here and forwarded to the CSE above.

use super::places::entity_of;
use super::{Above, Counters, Delivery, Shared};
use crate::alarms::container::{content_of, described};
use crate::engine::{Task, wall};
use core::hash::{Hash, Hasher};
use core::time::Duration;
use gatewright_health::code::ConfigId;
use gatewright_interwork::Device;
use gatewright_onem2m::{
    DEVICE_QUEUE, Fate, Operation, OutboxMessage, Request, ResourceType, Response, Status,
};
use serde_json::{Value, json};
use std::collections::hash_map::DefaultHasher;
use std::sync::Arc;
use std::time::Instant;

/// Attempts at a creation if the store fails.
const TRIES: u32 = 3;
/// Pause between two attempts; all end before a device gives up its report (3 s).
const TRY_AGAIN: Duration = Duration::from_millis(250);
/// Time limit of the CSE above for a reading that is not stored here: less than a device waits for
/// its answer (3 s).
const DIRECT_WITHIN: Duration = Duration::from_millis(2_500);
/// Devices remembered as announced; beyond, all are announced once more.
const ANNOUNCED_MAX: usize = 100_000;

/// A creation here with the outbox message that repeats it at the CSE above.
#[derive(Debug)]
struct Item {
    request: Arc<Request>,
    message: Option<OutboxMessage>,
}

impl Item {
    fn task(&self) -> Task {
        match self.message.clone() {
            Some(message) => Task::AskAndPost(Arc::clone(&self.request), Box::new(message)),
            None => Task::Ask(Arc::clone(&self.request)),
        }
    }
}

/// Result of a batch of creations.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Created {
    stored: u64,
    refused: u64,
    /// Creations that were retried.
    again: u64,
    /// Whether all are stored.
    is_whole: bool,
    /// When the first attempt had been carried out in memory.
    taken: Option<Instant>,
}

/// Result of delivering a report's readings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivered {
    /// Whether all readings were delivered.
    pub(super) is_whole: bool,
    /// When they waited for the commit, if they are stored here.
    pub(super) taken: Option<Instant>,
}

impl Shared {
    /// Creates a device's resources here and, the first time in this run, above, with the
    /// subscription and policies for requests to it. Returns whether they exist or are queued.
    pub(super) async fn register(&self, entity: &Device, requests: Vec<Request>) -> bool {
        let device = entity.system_id();
        self.latest.forget(entity.address());
        let print = print(&requests);
        if self.lock().announced.get(&device) == Some(&print) {
            return self.create(requests.into_iter().map(here).collect()).await.is_whole;
        }
        for request in self.readmission(device, &requests) {
            // The policy may be there.
            let _ = self.put(request).await;
        }
        let ways = self.ways(device, &requests);
        let way = self.way(entity);
        let is_whole = match &way {
            None => self.create(requests.into_iter().map(here).collect()).await.is_whole,
            // Its places are worth having as long as its readings come.
            Some((above, Delivery::Durable(_))) => {
                let items = requests.into_iter().map(|request| self.item(above, request, None));
                self.create(items.collect()).await.is_whole
            }
            Some((above, Delivery::Direct)) => {
                let there = self.send(above, &requests).await;
                let items = requests.into_iter().map(here).collect();
                there && self.create(items).await.is_whole
            }
        };
        // The ways lead to the places.
        let is_whole = is_whole && self.create(ways.into_iter().map(here).collect()).await.is_whole;
        if is_whole {
            let announced = &mut self.lock().announced;
            if announced.len() >= ANNOUNCED_MAX {
                announced.clear();
            }
            announced.insert(device, print);
        }
        is_whole
    }

    /// Stores or sends a report's readings, as the delivery says. Those of a confirmed report are
    /// all stored or none: the device repeats a rejected report, perhaps under another number.
    pub(super) async fn deliver(
        &self,
        device: &Device,
        readings: Vec<Request>,
        is_confirmed: bool,
        counters: &mut Counters,
    ) -> Delivered {
        let published = self.home_assistant.readings(&readings);
        let delivered = self.deliver_by_way(device, readings, is_confirmed, counters).await;
        if delivered.is_whole {
            self.home_assistant.delivered(device, published);
        }
        delivered
    }

    async fn deliver_by_way(
        &self,
        device: &Device,
        readings: Vec<Request>,
        is_confirmed: bool,
        counters: &mut Counters,
    ) -> Delivered {
        let way = self.way(device);
        let count = u64::try_from(readings.len()).unwrap_or(u64::MAX);
        if let Some((above, Delivery::Direct)) = &way {
            let received = u64::try_from(wall().as_micros()).unwrap_or(u64::MAX);
            let arrived = self.send(above, &readings).await;
            if arrived {
                self.latest.note(device.address(), received, &readings);
            }
            counters.direct += if arrived { count } else { 0 };
            return Delivered { is_whole: arrived, taken: None };
        }
        let items: Vec<Item> = match &way {
            Some((above, Delivery::Durable(keep))) => {
                let ends = (queue_of(device.originator()), Arc::from(above.url.as_str()));
                let ends = (&ends.0, &ends.1);
                let item = |reading| self.item_between(above, reading, ends, Some(*keep));
                readings.into_iter().map(item).collect()
            }
            _ => readings.into_iter().map(here).collect(),
        };
        let created = self.create_batch(items, is_confirmed).await;
        counters.readings += created.stored;
        counters.readings_again += created.again;
        counters.readings_refused += created.refused;
        counters.posted += if way.is_some() { created.stored } else { 0 };
        Delivered { is_whole: created.is_whole, taken: created.taken }
    }

    /// Stores a device's attributes and forwards them.
    pub(super) async fn describe(&self, device: &Device, request: Request) {
        // It is worth having, and nothing depends on it.
        let _ = match &self.way(device) {
            None => self.create(vec![here(request)]).await.is_whole,
            Some((above, Delivery::Durable(_))) => {
                self.create(vec![self.item(above, request, None)]).await.is_whole
            }
            Some((above, Delivery::Direct)) => self.send(above, &[request]).await,
        };
    }

    /// Updates the kind in the device's AE here and above, if it is known and differs: an AE
    /// outlives configurations.
    pub(super) async fn follow(&self, device: &Device, configuration: ConfigId) {
        let system_id = device.system_id();
        let known = (configuration, device.kind());
        if !device.is_kind_known() || self.lock().kinds.get(&system_id) == Some(&known) {
            return;
        }
        // A configuration may change within an association: no two of these requests are one.
        let micros = wall().as_micros();
        let id = format!("{system_id}-{micros}-labels");
        let (to, from) = (device.address(), device.originator());
        let found = self.put(Request::new(Operation::Retrieve, to, from, id)).await;
        // Labels that cannot be read are not written over: the next association tries again.
        let Some(found) = found.filter(|answer| answer.status.is_success()) else { return };
        let content = found.content.unwrap_or_default();
        let content: Value = serde_json::from_str(&content).unwrap_or_default();
        let labels = content.pointer("/m2m:ae/lbl").and_then(Value::as_array);
        let labels: Vec<_> = labels.into_iter().flatten().filter_map(Value::as_str).collect();
        if let Some(mut change) = device.follow(&labels) {
            change.id = format!("{system_id}-{micros}-kind");
            // It stands here however readings go above; a message takes it along where they do.
            let item = match self.way(device) {
                Some((above, Delivery::Durable(_))) => self.item(&above, change, None),
                Some((above, Delivery::Direct)) => {
                    let _ = self.send(&above, core::slice::from_ref(&change)).await;
                    here(change)
                }
                None => here(change),
            };
            self.create(vec![item]).await;
        }
        let kinds = &mut self.lock().kinds;
        if kinds.len() >= ANNOUNCED_MAX {
            kinds.clear();
        }
        kinds.insert(system_id, known);
    }

    /// Sends the CSE a request that is not urgent.
    pub(super) async fn put(&self, request: Request) -> Option<Response> {
        self.engine.together([Task::Ask(request.into())]).into_iter().next()?.await.ok()
    }

    /// CSE above and delivery of a device's readings.
    fn way(&self, device: &Device) -> Option<(Arc<Above>, Delivery)> {
        let above = self.above()?;
        let delivery = above.delivery(device);
        Some((above, delivery))
    }

    /// A creation with its outbox message. Readings of one device go to the CSE above in order.
    fn item(&self, above: &Above, request: Request, keep: Option<Duration>) -> Item {
        let ends = (queue_of(&request.from), Arc::from(above.url.as_str()));
        self.item_between(above, request, (&ends.0, &ends.1), keep)
    }

    /// The same with the queue and the target, which all readings of a report share.
    fn item_between(
        &self,
        above: &Above,
        request: Request,
        (queue, target): (&Arc<str>, &Arc<str>),
        keep: Option<Duration>,
    ) -> Item {
        let message = OutboxMessage {
            queue: Arc::clone(queue),
            target: Arc::clone(target),
            request: self.moved(above, &request).into(),
            keep,
            batch: None,
        };
        Item { request: request.into(), message: Some(message) }
    }

    /// The same request for the CSE above or the one beyond it.
    pub(super) fn moved(&self, above: &Above, request: &Request) -> Request {
        let below = request.to.strip_prefix(self.base.as_str()).unwrap_or_default();
        let mut moved = Request { to: format!("{}{below}", above.base), ..request.clone() };
        if above.beyond {
            moved.from = format!("{}/{}", self.engine.cse_id(), request.from);
            // Of an AE that is made or changed; anything else that is changed has another tag.
            let is_entity =
                moved.resource_type.is_none_or(|kind| kind == ResourceType::ApplicationEntity);
            let content = request.content.as_deref().filter(|_| is_entity);
            if let Some(container) = content.and_then(as_container) {
                moved.content = Some(container.into());
                moved.resource_type = moved.resource_type.map(|_| ResourceType::Container);
            }
        }
        moved
    }

    /// Sends requests to the CSE above in order; returns whether all have arrived.
    async fn send(&self, above: &Above, requests: &[Request]) -> bool {
        for request in requests {
            let status = self.send_one(above, &self.moved(above, request)).await;
            if matches!(status, Some(Status::NotFound | Status::OriginatorHasNotRegistered))
                && let Some(entity) = entity_of(&request.from)
            {
                // It has lost its memory, of the place or of who asks; the device sends its report
                // again.
                self.make_places_again(above, entity).await;
            }
            if !status.is_some_and(|status| status.fate().is_stored()) {
                return false;
            }
        }
        true
    }

    /// Sends a request to the CSE above; returns its status, if there is a response.
    pub(super) async fn send_one(&self, above: &Above, request: &Request) -> Option<Status> {
        let urls = [above.url.clone()];
        let answer = tokio::time::timeout(DIRECT_WITHIN, self.engine.send(&urls, request)).await;
        Some(answer.ok()?.ok()?.status)
    }

    /// Creates uniquely named resources and returns when they are stored or refused. All are one
    /// commit, and each stored resource has its outbox message; a refused one is not forwarded.
    async fn create(&self, items: Vec<Item>) -> Created {
        self.create_batch(items, false).await
    }

    /// Creates as [`Self::create`] does; if `is_indivisible`, the items are instances, and none is
    /// created if one is refused.
    async fn create_batch(&self, mut items: Vec<Item>, is_indivisible: bool) -> Created {
        let mut created = Created::default();
        for attempt in 1..=TRIES {
            let tasks = items.iter().map(Item::task);
            let answers = if is_indivisible && items.len() > 1 {
                match self.engine.together_or_none(tasks.collect()) {
                    Ok(answers) => answers,
                    Err(refusals) => {
                        created.refused += self.note_refusals(&items, &refusals).await;
                        created.is_whole = false;
                        return created;
                    }
                }
            } else {
                self.engine.together(tasks)
            };
            created.taken.get_or_insert_with(Instant::now);
            let mut answers = answers.into_iter();
            let mut failed = Vec::new();
            for mut item in items {
                let answer = match answers.next() {
                    Some(answer) => answer.await.ok(),
                    None => None,
                };
                let fate = answer.as_ref().map_or(Fate::Again(None), Response::fate);
                match fate {
                    Fate::Done | Fate::There => created.stored += 1,
                    Fate::Nowhere | Fate::Barred | Fate::Refused => {
                        created.refused += 1;
                        let status = answer.map_or(Status::InternalServerError, |it| it.status);
                        self.note_refusal(&item.request, status).await;
                    }
                    Fate::Again(_) => {
                        // Another request for the same name: not to be taken for a repetition.
                        let id = format!("{}-{attempt}", item.request.id);
                        Arc::make_mut(&mut item.request).id = id;
                        failed.push(item);
                    }
                }
            }
            created.is_whole = failed.is_empty() && created.refused == 0;
            if failed.is_empty() || attempt == TRIES {
                break;
            }
            created.again += u64::try_from(failed.len()).unwrap_or(u64::MAX);
            items = failed;
            tokio::time::sleep(TRY_AGAIN).await;
        }
        created
    }

    /// Notes which items the CSE refuses; returns how many.
    async fn note_refusals(&self, items: &[Item], refusals: &[Option<Status>]) -> u64 {
        let mut refused = 0;
        for (item, status) in items.iter().zip(refusals) {
            if let Some(status) = status {
                refused += 1;
                self.note_refusal(&item.request, *status).await;
            }
        }
        refused
    }

    /// Notes that the CSE refuses a device's request; the event names who has its name or AE-ID.
    async fn note_refusal(&self, request: &Request, status: Status) {
        if let Some(device) = self.refusals.is_news(&self.mapping.entity_prefix, request) {
            let holder = self.holder(&request.from).await;
            self.refusals.tell(device, request, status, holder.as_deref());
        }
    }

    /// What has the name or the AE-ID of this device's AE, if that is not the device's AE.
    async fn holder(&self, originator: &str) -> Option<String> {
        let name = entity_of(originator)?;
        let retrieve = |to: String| {
            let id = format!("{name}-{}-holder", wall().as_micros());
            content_of(
                &self.engine,
                Request::new(Operation::Retrieve, to, self.engine.cse_id(), id),
            )
        };
        let member = |found: &Value, member: &str| {
            let entity = found.get(ResourceType::ApplicationEntity.tag())?;
            Some(entity.get(member)?.as_str()?.to_owned())
        };
        if let Some(found) = retrieve(format!("{}/{name}", self.base)).await
            && member(&found, "aei").as_deref() != Some(originator)
        {
            return Some(format!("its name {name} is that of {}", described(&found)));
        }
        let found = retrieve(format!("{}/{originator}", self.engine.cse_id())).await?;
        let other = member(&found, "rn").filter(|other| other != name)?;
        Some(format!("its AE-ID {originator} is that of the AE {other} of somebody else"))
    }
}

/// Name and labels of the container that replaces an AE.
fn as_container(entity: &str) -> Option<String> {
    let entity: Value = serde_json::from_str(entity).ok()?;
    let entity = entity.get(ResourceType::ApplicationEntity.tag())?;
    let member = |name: &str| Some((name.to_owned(), entity.get(name)?.clone()));
    let container: serde_json::Map<_, _> = ["rn", "lbl"].into_iter().filter_map(member).collect();
    Some(json!({ ResourceType::Container.tag(): container }).to_string())
}

fn here(request: Request) -> Item {
    Item { request: request.into(), message: None }
}

/// The queue of a device's messages, by its AE-ID.
fn queue_of(originator: &str) -> Arc<str> {
    format!("{DEVICE_QUEUE}{originator}").into()
}

/// A hash that distinguishes registrations of the same device: of everything except the request
/// identifiers, which contain the association.
fn print(requests: &[Request]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for request in requests {
        (&request.to, &request.from, &request.content).hash(&mut hasher);
    }
    hasher.finish()
}
