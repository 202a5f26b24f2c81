//! Schedules (TS-0001 §9.6.9): times at which a subscription's notifications are sent, or an entity
//! can be reached.

use super::create::Draft;
use super::outbox::DEVICE_QUEUE;
use super::{Cse, Refusal, Target};
use crate::clock::Moment;
use crate::resource_type::ResourceType;
use crate::schedule::Schedule;
use crate::status::Status;
use crate::tree::Slot;
use core::time::Duration;
use serde_json::{Map, Value};

/// Seconds after which a schedule is looked at again: it may have been changed, or the clock set.
const LOOK_AFTER: u64 = 60;
/// Name of a schedule below a subscription (TS-0001 Table 9.6.8-1).
const OF_NOTIFICATIONS: &str = "notificationSchedule";

impl Cse {
    /// Checks a new schedule, of which an entity or a subscription has one.
    ///
    /// # Errors
    ///
    /// 4105 if there is one already; else as [`check_schedule`].
    pub(super) fn prepare_schedule(
        &self,
        draft: &mut Draft,
        entries_max: usize,
    ) -> Result<(), Refusal> {
        check_schedule(&draft.attributes, entries_max)?;
        let parent = self.resource(draft.parent)?;
        if parent.family.as_ref().is_some_and(|family| family.schedule.is_some()) {
            return Err(Refusal::new(Status::Conflict, "there is a schedule"));
        }
        if parent.resource_type == ResourceType::Subscription {
            let name = draft.attributes.entry("rn").or_insert_with(|| OF_NOTIFICATIONS.into());
            if name.as_str() != Some(OF_NOTIFICATIONS) {
                let why = format!("the schedule of a subscription is named {OF_NOTIFICATIONS}");
                return Err(Refusal::bad(why));
            }
        }
        Ok(())
    }

    /// When a queue is to be looked at again, if its subscription's schedule or its target's lets it
    /// send nothing now.
    pub(super) fn scheduled_later(&self, queue: &str, target: &str) -> Option<Moment> {
        if queue.starts_with(DEVICE_QUEUE) {
            return None;
        }
        let by = queue.split_once(' ').and_then(|(id, _)| self.tree.by_id(id));
        let by = by.and_then(|slot| self.opens(slot));
        let to = match self.resolve_local(target) {
            Some(Target::Resource(entity)) if !target.contains("://") => self.opens(entity),
            _ => None,
        };
        by.max(to)
    }

    /// The next second of a resource's schedule, or when to look again; `None` if it has none or its
    /// time is now.
    fn opens(&self, slot: Slot) -> Option<Moment> {
        let schedule = self.tree.get(slot)?.family.as_ref()?.schedule?;
        let entries = self.tree.get(schedule)?.attribute("se")?.get("sce")?.as_array()?;
        let patterns: Vec<Schedule> =
            entries.iter().filter_map(Value::as_str).filter_map(Schedule::parse).collect();
        let opens_in = (0..LOOK_AFTER).map(Duration::from_secs).find(|&after| {
            let time = self.now.plus(after);
            patterns.iter().any(|pattern| pattern.includes(time))
        });
        let after = opens_in.unwrap_or(Duration::from_secs(LOOK_AFTER));
        (!after.is_zero()).then(|| self.moment.plus(after))
    }
}

/// Checks the attributes of a schedule.
///
/// # Errors
///
/// 4000 if its entries are no patterns. 5001 for networkCoordinated: no underlying network is
/// reached from here.
pub(super) fn check_schedule(
    attributes: &Map<String, Value>,
    entries_max: usize,
) -> Result<(), Refusal> {
    if attributes.get("nco").is_some_and(|it| it.as_bool() == Some(true)) {
        let why = "schedules are not coordinated with a network (nco)";
        return Err(Refusal::new(Status::NotImplemented, why));
    }
    let Some(element) = attributes.get("se") else { return Ok(()) };
    let is_pattern = |entry: &Value| entry.as_str().is_some_and(|it| Schedule::parse(it).is_some());
    let entries = element.get("sce").and_then(Value::as_array);
    let fits = entries
        .is_some_and(|it| (1..=entries_max).contains(&it.len()) && it.iter().all(is_pattern));
    if fits {
        return Ok(());
    }
    Err(Refusal::bad("se has sce, a list of times: second minute hour day month weekday year"))
}
