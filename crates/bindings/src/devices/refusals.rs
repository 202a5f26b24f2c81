//! Refusals as events: of devices' own requests by the CSE (which device, which resource, and why),
//! and of associations with another's certificate.

use gatewright_health::code::SystemId;
use gatewright_onem2m::{Request, Status};
use gatewright_part::{LogEvent, LogLevel};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time in which the same refusal is one event: a device repeats what it has no answer to.
const SAME_WITHIN: Duration = Duration::from_mins(1);
/// Refusals remembered for that; beyond, all are forgotten.
const KNOWN_MAX: usize = 1_024;
/// Events that wait for the log; beyond, the counters alone say more.
const WAITING_MAX: usize = 64;

/// Refusals that are not in the log yet.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// When each originator was last refused at each resource, and each system-id with each name.
    known: HashMap<(String, String), Instant>,
    waiting: VecDeque<LogEvent>,
}

impl Refusals {
    /// The device whose request was refused, unless that was noted a moment ago.
    pub(super) fn is_news<'request>(
        &self,
        entity_prefix: &str,
        request: &'request Request,
    ) -> Option<&'request str> {
        let name = request.from.strip_prefix('C').and_then(|it| it.strip_prefix(entity_prefix));
        // The gateway's own requests have no device as originator.
        let device = name?;
        self.lock().is_news((request.from.clone(), request.to.clone())).then_some(device)
    }

    /// Tells that a device was rejected whose certificate names other system-ids, or none.
    pub(super) fn tell_foreign(&self, system: SystemId, named: &[SystemId]) {
        let named: Vec<String> = named.iter().map(SystemId::to_string).collect();
        let named = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
        let mut noted = self.lock();
        if !noted.is_news((system.to_string(), named.clone())) || noted.is_full() {
            return;
        }
        let text = format!(
            "the association of {system} is rejected: the system-id in its certificate is {named}"
        );
        let event = LogEvent::new(LogLevel::Warning, "devices", "system-id-foreign", text);
        noted.waiting.push_back(event.with("device", system.to_string()).with("named", named));
    }

    /// Tells that a device's request was refused; `holder` has the device's name or AE-ID.
    pub(super) fn tell(
        &self,
        device: &str,
        request: &Request,
        status: Status,
        holder: Option<&str>,
    ) {
        let mut noted = self.lock();
        if !noted.is_full() {
            noted.waiting.push_back(event(device, request, status, holder));
        }
    }

    /// Removes the events that are not in the log yet.
    pub(super) fn take(&self) -> Vec<LogEvent> {
        self.lock().waiting.drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    /// Whether this was not refused a moment ago; notes it.
    fn is_news(&mut self, key: (String, String)) -> bool {
        let now = Instant::now();
        let last = self.known.get(&key);
        if last.is_some_and(|last| now.saturating_duration_since(*last) < SAME_WITHIN) {
            return false;
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(key, now);
        true
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }
}

fn event(device: &str, request: &Request, status: Status, holder: Option<&str>) -> LogEvent {
    let (from, to, number) = (&request.from, &request.to, status.number());
    let why = match (holder, status) {
        (Some(holder), _) => {
            format!("{holder}; once that is deleted, the device gets its place when it associates")
        }
        (None, Status::OriginatorHasNoPrivilege) => format!(
            "its policy does not let {from} do that; acpi there needs device-itself, as \
             docs/devices.md says"
        ),
        (None, Status::NotFound) => "it does not exist".to_owned(),
        (None, _) => format!("{status:?}"),
    };
    let text = format!("requests of the device {device} to {to} are refused with {number}: {why}");
    LogEvent::new(LogLevel::Error, "devices", "device-refused", text)
        .with("device", device)
        .with("resource", to)
        .with("status", number)
}
