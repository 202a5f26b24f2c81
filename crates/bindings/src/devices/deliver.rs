//! What becomes of a device's requests: stored here, and sent on to the CSE above.

use super::{Above, Delivery, Shared};
use crate::engine::{Task, now};
use core::hash::{Hash, Hasher};
use core::time::Duration;
use gatewright_health::code::SystemId;
use gatewright_interwork::{Outcome, outcome};
use gatewright_onem2m::{Letter, Request, Response, Status, Timestamp};
use std::collections::hash_map::DefaultHasher;

/// How often a creation is tried if the store fails.
const TRIES: u32 = 3;
/// Pause between two tries; all of them are over before a device gives up its report (3 s).
const TRY_AGAIN: Duration = Duration::from_millis(250);
/// How long the CSE above may take with a reading that is not stored here: less than a device
/// waits for its answer (3 s).
const DIRECT_WITHIN: Duration = Duration::from_millis(2_500);
/// Devices remembered as announced; beyond, all are announced once more.
const ANNOUNCED_MAX: usize = 100_000;

/// A creation here, and the letter that makes the same above.
#[derive(Debug)]
struct Item {
    request: Request,
    letter: Option<Letter>,
}

/// What became of one try.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Stored,
    Refused,
    Again,
}

/// What became of creations.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Created {
    stored: u64,
    refused: u64,
    /// How many too many wait for the CSE above: none of them was stored.
    full: u64,
    /// How many were tried again.
    again: u64,
    /// Whether all are stored.
    is_whole: bool,
}

impl Shared {
    /// Makes a device's places here and, the first time in this run, above, with the ways to the
    /// device. Whether they are there or on their way.
    pub(super) async fn register(&self, device: SystemId, requests: Vec<Request>) -> bool {
        let print = print(&requests);
        if self.lock().announced.get(&device) == Some(&print) {
            return self.create(requests.into_iter().map(here).collect()).await.is_whole;
        }
        let ways = self.ways(device, &requests);
        let is_whole = match &self.above {
            None => self.create(requests.into_iter().map(here).collect()).await.is_whole,
            // Its places are worth having as long as its readings come.
            Some(above @ Above { delivery: Delivery::Durable(_), .. }) => {
                let items = requests.into_iter().map(|request| self.item(above, request, None));
                self.create(items.collect()).await.is_whole
            }
            Some(above) => {
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

    /// Has a report's readings stored or sent, as the delivery says. Whether that is done with all
    /// of them.
    pub(super) async fn deliver(&self, readings: Vec<Request>) -> bool {
        let above = self.above.as_ref();
        let count = u64::try_from(readings.len()).unwrap_or(u64::MAX);
        if let Some(above) = above.filter(|above| above.delivery == Delivery::Direct) {
            let arrived = self.send(above, &readings).await;
            self.count(|counters| counters.direct += if arrived { count } else { 0 });
            return arrived;
        }
        let items: Vec<Item> = match above {
            Some(Above { delivery: Delivery::Durable(keep), .. }) => {
                let until = Timestamp::new(now().saturating_add(*keep));
                let item = |reading| match above {
                    Some(above) => self.item(above, reading, Some(until)),
                    None => here(reading),
                };
                readings.into_iter().map(item).collect()
            }
            _ => readings.into_iter().map(here).collect(),
        };
        let created = self.create(items).await;
        self.count(|counters| {
            counters.readings += created.stored;
            counters.readings_again += created.again;
            counters.readings_refused += created.refused;
            counters.outbox_full += created.full;
            counters.posted += if above.is_some() { created.stored } else { 0 };
        });
        created.is_whole
    }

    /// A creation with its letter. What one device reports goes above in order.
    fn item(&self, above: &Above, request: Request, until: Option<Timestamp>) -> Item {
        let letter = Letter {
            lane: format!("device/{}", request.from).into(),
            target: above.url.clone(),
            request: self.moved(above, &request),
            until: until.unwrap_or(Timestamp::MAX),
            batch: None,
        };
        Item { request, letter: Some(letter) }
    }

    /// The same request for the CSE above.
    fn moved(&self, above: &Above, request: &Request) -> Request {
        let below = request.to.strip_prefix(self.base.as_str()).unwrap_or_default();
        Request { to: format!("{}{below}", above.base), ..request.clone() }
    }

    /// Sends requests to the CSE above, one after the other; whether all have arrived.
    async fn send(&self, above: &Above, requests: &[Request]) -> bool {
        let urls = [above.url.clone()];
        for request in requests {
            let request = self.moved(above, request);
            let sent = self.sender.send(&urls, &request);
            let answer = tokio::time::timeout(DIRECT_WITHIN, sent).await;
            let arrived = answer.is_ok_and(|answer| {
                answer.is_ok_and(|answer| outcome(answer.status) == Outcome::Stored)
            });
            if !arrived {
                return false;
            }
        }
        true
    }

    /// Creates resources whose names are unique, and returns when it is known what is stored. All
    /// are one commit: with their letters, or not at all.
    async fn create(&self, mut items: Vec<Item>) -> Created {
        let mut created = Created::default();
        for attempt in 1..=TRIES {
            let tasks = items.iter().flat_map(|item| {
                let letter = item.letter.clone().map(Task::Post);
                core::iter::once(Task::Ask(item.request.clone())).chain(letter)
            });
            let letters = items.iter().filter_map(|item| item.letter.as_ref());
            let lane = letters.clone().next().map_or("", |letter| &letter.lane);
            let Some(answers) = self.engine.together(tasks, (lane, letters.count())) else {
                created.full = u64::try_from(items.len()).unwrap_or(u64::MAX);
                break;
            };
            let mut answers = answers.into_iter();
            let mut failed = Vec::new();
            for mut item in items {
                let mut fate = Fate::Again;
                if let Some(answer) = answers.next() {
                    fate = stored(answer.await.ok().as_ref());
                }
                if item.letter.is_some()
                    && let Some(answer) = answers.next()
                {
                    let posted = posted(answer.await.ok().as_ref());
                    fate = if fate == Fate::Stored { posted } else { fate };
                }
                match fate {
                    Fate::Stored => created.stored += 1,
                    Fate::Refused => created.refused += 1,
                    Fate::Again => {
                        // Another request for the same name: not to be taken for a repetition.
                        item.request.id = format!("{}-{attempt}", item.request.id);
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
}

const fn here(request: Request) -> Item {
    Item { request, letter: None }
}

fn stored(answer: Option<&Response>) -> Fate {
    match answer.map_or(Outcome::Again, |answer| outcome(answer.status)) {
        Outcome::Stored => Fate::Stored,
        Outcome::Refused => Fate::Refused,
        Outcome::Again => Fate::Again,
    }
}

/// A letter is accepted when it is stored.
fn posted(answer: Option<&Response>) -> Fate {
    match answer.map(|answer| answer.status) {
        Some(Status::Accepted) => Fate::Stored,
        _ => Fate::Again,
    }
}

/// What tells one registration from another of the same device: everything but the request
/// identifiers, which have the association in them.
fn print(requests: &[Request]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for request in requests {
        (&request.to, &request.from, &request.content).hash(&mut hasher);
    }
    hasher.finish()
}
