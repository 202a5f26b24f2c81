//! Devices that have not reported for too long.

use super::shards::Shards;
use super::{RunningDevices, Shared};
use crate::engine::wall;
use core::time::Duration;
use gatewright_health::code::SystemId;
use gatewright_health::kind;
use gatewright_interwork::stored;
use gatewright_onem2m::{Operation, Request, ResourceType};
use std::collections::{BTreeSet, HashMap};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Devices of one shard whose last report is remembered; further ones are not watched.
const HEARD_MAX: usize = 8_192;

/// Time without a report after which devices count as silent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SilentAfter {
    /// The time.
    pub after: Duration,
    /// Kinds of devices, by name; all if empty.
    pub kinds: BTreeSet<String>,
}

/// When the devices of one shard were last heard.
#[derive(Debug, Default)]
pub(super) struct LastHeard(HashMap<SystemId, HeardDevice>);

/// When a device was last heard.
#[derive(Clone, Copy, Debug)]
struct HeardDevice {
    at: Duration,
    kind: &'static str,
    /// Whether it was not heard in this run: its time begins with the run.
    is_presumed: bool,
}

impl LastHeard {
    /// Notes a report, or a new association.
    pub(super) fn note(&mut self, now: Duration, device: SystemId, kind: &'static str) {
        if self.0.len() < HEARD_MAX || self.0.contains_key(&device) {
            self.0.insert(device, HeardDevice { at: now, kind, is_presumed: false });
        }
    }

    /// Notes a device from an earlier run: its time begins now.
    fn begin(&mut self, now: Duration, device: SystemId, kind: &'static str) {
        if self.0.len() < HEARD_MAX {
            let presumed = HeardDevice { at: now, kind, is_presumed: true };
            self.0.entry(device).or_insert(presumed);
        }
    }
}

/// A device that has not reported for too long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SilentDevice {
    pub(crate) system_id: SystemId,
    pub(crate) kind: &'static str,
    /// Time since its last report or association.
    pub(crate) for_time: Duration,
}

/// The time after which a device of this kind is silent, by the first rule that fits.
fn limit(rules: &[SilentAfter], kind: &str) -> Option<Duration> {
    let rule = rules.iter().find(|rule| rule.kinds.is_empty() || rule.kinds.contains(kind))?;
    Some(rule.after)
}

impl Shared {
    /// Notes that a device has reported or associated.
    pub(super) fn note_heard(&self, device: SystemId, kind: &'static str) {
        let now = self.now();
        self.shards.of(Some(device)).heard.note(now, device, kind);
    }

    /// When a device has last reported or associated in this run.
    pub(super) fn last_heard(&self, device: SystemId) -> Option<Duration> {
        let heard = self.shards.of(Some(device)).heard.0.get(&device).copied()?;
        (!heard.is_presumed).then_some(heard.at)
    }

    /// Sets the rules, and begins to watch the devices that are known from earlier.
    pub(super) async fn watch_silence(&self, rules: Vec<SilentAfter>) {
        let kinds: BTreeSet<String> = rules.iter().flat_map(|rule| rule.kinds.clone()).collect();
        let is_any = rules.iter().any(|rule| rule.kinds.is_empty());
        self.is_silence_watched.store(!rules.is_empty(), Ordering::Relaxed);
        *self.silent_after.write().unwrap_or_else(PoisonError::into_inner) = rules;
        for name in kinds {
            let known = self.known_devices(Some(&name)).await;
            self.begin_watch(&known, kind_named(&name));
        }
        if is_any {
            let known = self.known_devices(None).await;
            self.begin_watch(&known, kind::UNKNOWN);
        }
    }

    fn begin_watch(&self, devices: &[SystemId], kind: &'static str) {
        let now = self.now();
        for &device in devices {
            self.shards.of(Some(device)).heard.begin(now, device, kind);
        }
    }

    /// Devices that have an AE, of one kind or of all; as many as one discovery finds.
    async fn known_devices(&self, kind: Option<&str>) -> Vec<SystemId> {
        let id = format!("devices-known-{}-{}", kind.unwrap_or("all"), wall().as_micros());
        let mut request = Request::new(Operation::Retrieve, &*self.base, self.engine.cse_id(), id);
        let label = kind.map(|kind| format!("kind:{kind}"));
        let entity = ResourceType::ApplicationEntity.number().to_string();
        let criteria = [("fu", "1"), ("lvl", "1"), ("ty", entity.as_str())];
        for (name, value) in criteria.into_iter().chain(label.iter().map(|it| ("lbl", &**it))) {
            // Known parameters with values that they take.
            let _ = request.set(name, value);
        }
        let content = self.engine.ask(request).await.and_then(|answer| answer.content);
        let found: serde_json::Value =
            content.and_then(|found| serde_json::from_str(&found).ok()).unwrap_or_default();
        let found = found.get("m2m:uril").and_then(serde_json::Value::as_array);
        let name = |address: &serde_json::Value| {
            let (_, name) = address.as_str()?.rsplit_once('/')?;
            let digits = name.strip_prefix(self.mapping.entity_prefix.as_str())?;
            stored::system_id(&[&format!("system-id:{digits}")])
        };
        found.into_iter().flatten().filter_map(name).collect()
    }

    /// Address of a device's AE.
    fn entity_address(&self, device: SystemId) -> String {
        format!("{}/{}{device}", self.base, self.mapping.entity_prefix)
    }
}

/// The kind of this name.
fn kind_named(name: &str) -> &'static str {
    kind::named(name).unwrap_or(kind::UNKNOWN)
}

impl RunningDevices {
    /// Devices that have not reported for too long. One whose AE was deleted is forgotten.
    pub(crate) fn silent(&self) -> Vec<SilentDevice> {
        let shared = &self.context.shared;
        if !shared.is_silence_watched.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let rules = shared.silent_after.read().unwrap_or_else(PoisonError::into_inner).clone();
        let now = shared.now();
        let mut silent = Vec::new();
        shared.shards.each_heard(|heard| {
            for (&system_id, &HeardDevice { at, kind, .. }) in &heard.0 {
                let for_time = now.saturating_sub(at);
                if limit(&rules, kind).is_some_and(|limit| for_time >= limit) {
                    silent.push(SilentDevice { system_id, kind, for_time });
                }
            }
        });
        silent.retain(|device| {
            let is_there = shared.engine.has_resource(&shared.entity_address(device.system_id));
            if !is_there {
                shared.shards.of(Some(device.system_id)).heard.0.remove(&device.system_id);
            }
            is_there
        });
        silent.sort_unstable_by_key(|device| device.system_id);
        silent
    }

    /// Whether a device with an AE has not been heard since the start, though silence is watched.
    pub(crate) fn is_unheard(&self, device: SystemId) -> bool {
        let shared = &self.context.shared;
        let heard = shared.shards.of(Some(device)).heard.0.get(&device).copied();
        let is_heard = heard.is_some_and(|heard| !heard.is_presumed);
        shared.is_silence_watched.load(Ordering::Relaxed)
            && !is_heard
            && shared.engine.has_resource(&shared.entity_address(device))
    }
}

impl Shards {
    /// Calls `look` with the last reports of each shard.
    fn each_heard(&self, mut look: impl FnMut(&LastHeard)) {
        self.each(|shard| look(&shard.heard));
    }
}
