//! Observes the causes of alarms in the running services, and tells their changes.

use super::{MIB, RunningServices};
use crate::alarms::container::AlarmContainer;
use crate::alarms::{AlarmChange, AlarmName, Alarms, Observation};
use crate::engine::{now, wall};
use crate::keyring::Keyring;
use core::time::Duration;
use gatewright_config::CseAlarms;
use gatewright_health::code::SystemId;
use gatewright_interwork::stored;
use gatewright_onem2m::{ClockDoubt, Timestamp};
use gatewright_part::{AlarmStatus, AlarmSubject, LogEvent, LogLevel};
use gatewright_store::DiskSpace;

const DAY: Duration = Duration::from_hours(24);
/// How long requests to the CSE above may have no answer: a restart takes as long.
const SILENT_FOR: Duration = Duration::from_secs(5);

/// The alarms of running services.
#[derive(Debug)]
pub(super) struct ServiceAlarms {
    alarms: Alarms,
    container: AlarmContainer,
    /// Since when requests to the CSE above have no answer, by the monotonic clock.
    silent_since: Option<Duration>,
}

impl ServiceAlarms {
    /// Continues where the last run ended.
    pub(super) async fn start(running: &RunningServices, base: &str) -> Self {
        let mut alarms = Alarms::default();
        let policy = running.policy();
        let engine = running.cse.engine();
        let container = AlarmContainer::found(engine, base, policy.as_deref(), &mut alarms).await;
        Self { alarms, container, silent_since: None }
    }

    /// Notes why changes of alarms are not stored.
    pub(super) fn set_obstacle(&mut self, obstacle: Option<String>) {
        self.container.set_obstacle(obstacle);
    }

    /// Observes every cause; returns the changes as events, and stores them.
    pub(super) fn observe(
        &mut self,
        running: &RunningServices,
        thresholds: CseAlarms,
    ) -> Vec<LogEvent> {
        let elapsed = now().elapsed;
        let is_silent = running.cse.engine().is_registrar_silent();
        self.silent_since = is_silent.then(|| self.silent_since.unwrap_or(elapsed));
        let mut observed = self.observations(running, thresholds);
        observed.extend(self.silent_since.map(|since| registrar(elapsed.saturating_sub(since))));
        let changes = self.alarms.observe((elapsed, Timestamp::new(wall())), observed);
        self.container.take(&changes, &self.alarms);
        self.container.pursue(elapsed);
        changes.into_iter().map(event).collect()
    }

    /// Whether requests to the CSE above have had no answer for so long that its alarm is raised.
    pub(super) fn is_registrar_unreachable(&self) -> bool {
        self.silent_since.is_some()
            && self.alarms.subjects(AlarmName::RegistrarUnreachable).next().is_some()
    }

    /// The alarms with the number of subjects for which each is raised.
    pub(super) fn told(&self) -> Vec<AlarmStatus> {
        let one = |name: AlarmName| {
            let raised = self.alarms.raised().filter(|(of, ..)| *of == name);
            let subjects = raised.map(|(_, subject, raised)| AlarmSubject {
                subject: subject.to_owned(),
                since: raised.since.to_string(),
                detail: raised.detail.clone(),
            });
            let subjects: Vec<_> = subjects.collect();
            let raised = u64::try_from(subjects.len()).unwrap_or(u64::MAX);
            AlarmStatus { name: name.text(), raised, subjects }
        };
        AlarmName::ALL.map(one).into()
    }

    /// The raised alarms that no other word of the report tells, as text for operators.
    pub(super) fn words(&self) -> Vec<(&'static str, String)> {
        let own = [
            AlarmName::CertificateEnding,
            AlarmName::DatabaseMissing,
            AlarmName::DeviceSilent,
            AlarmName::DiskSlow,
            AlarmName::OutboxFilling,
            AlarmName::RegistrarUnreachable,
        ];
        let mut words: Vec<_> = own.into_iter().filter_map(|name| self.word(name)).collect();
        words.extend(self.container.obstacle().map(|why| ("alarms", why.to_owned())));
        words
    }

    fn word(&self, name: AlarmName) -> Option<(&'static str, String)> {
        let mut raised = self.alarms.raised().filter(|(of, ..)| *of == name);
        let (_, subject, first) = raised.next()?;
        // Of one from before a restart only the subject is known.
        let detail = if first.detail.is_empty() { subject } else { &first.detail };
        let what = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        let since = first.since;
        let more = match raised.count() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        Some(("alarm", format!("{name} since {since}{what}{more}")))
    }

    /// Numbers beside the alarms: those left out, and changes that were not stored.
    pub(super) const fn counters(&self) -> [(&'static str, u64); 2] {
        [
            ("alarms_left_out", self.alarms.left_out()),
            ("alarm_changes_dropped", self.container.dropped()),
        ]
    }

    fn observations(&self, running: &RunningServices, thresholds: CseAlarms) -> Vec<Observation> {
        let engine = running.cse.engine();
        let doubt = engine.doubted_clock();
        let mut all = Vec::new();
        all.extend(leapt(doubt));
        all.extend(rows(running.cse.unreadable().len()));
        all.extend(engine.database_missing().map(|missing| files(&missing)));
        all.extend(short(engine.disk_space().unwrap_or_default()));
        all.extend(engine.slow_commit().map(slow));
        let waiting = (engine.readings_waiting(), engine.backlogs());
        all.extend(outbox(waiting, thresholds.outbox_percent));
        let devices = running.devices.as_ref();
        let keyrings = [running.cse.keyring(), devices.and_then(|it| it.keyring())];
        if doubt.is_some() {
            // By a clock that is not trusted, no certificate ends and none is renewed.
            all.extend(self.kept(AlarmName::CertificateEnding));
        } else {
            let wall = Timestamp::new(wall());
            let keyrings = keyrings.into_iter().flatten();
            all.extend(keyrings.flat_map(|keyring| certificates(keyring, wall, thresholds)));
        }
        all.extend(self.silent(running));
        all
    }

    /// Observations that keep what is raised.
    fn kept(&self, name: AlarmName) -> Vec<Observation> {
        let kept = |subject: &str| Observation {
            name,
            subject: subject.to_owned(),
            level: LogLevel::Warning,
            detail: String::new(),
            is_raising: false,
        };
        self.alarms.subjects(name).map(kept).collect()
    }

    /// Devices that have not reported for too long, and those that were silent before a restart and
    /// have not been heard since.
    fn silent(&self, running: &RunningServices) -> Vec<Observation> {
        let Some(devices) = &running.devices else { return Vec::new() };
        let mut all = self.kept(AlarmName::DeviceSilent);
        all.retain(|kept| system_id(&kept.subject).is_some_and(|id| devices.is_unheard(id)));
        all.extend(devices.silent().into_iter().map(|device| {
            let (id, kind, minutes) =
                (device.system_id, device.kind, device.for_time.as_secs() / 60);
            Observation {
                name: AlarmName::DeviceSilent,
                subject: id.to_string(),
                level: LogLevel::Warning,
                detail: format!(
                    "no report of {id} ({kind}) for {}: is it on, and near?",
                    counted(minutes, "minute")
                ),
                is_raising: true,
            }
        }));
        all
    }
}

/// The event of a change.
fn event(change: AlarmChange) -> LogEvent {
    let AlarmChange { name, subject, is_raised, level, since, detail } = change;
    let text = match (is_raised, detail.as_str()) {
        (true, detail) => detail.to_owned(),
        (false, "") if subject.is_empty() => format!("cleared: it was raised at {since}"),
        (false, "") => format!("cleared for {subject}: it was raised at {since}"),
        (false, detail) => format!("cleared: it was raised at {since}, as {detail}"),
    };
    let event = LogEvent::new(level, "cse", name.text(), text)
        .with("alarm", if is_raised { "raised" } else { "cleared" });
    if subject.is_empty() { event } else { event.with("subject", subject) }
}

fn observation(
    (name, level): (AlarmName, LogLevel),
    is_raising: bool,
    detail: String,
) -> Observation {
    Observation { name, subject: String::new(), level, detail, is_raising }
}

fn leapt(doubt: Option<ClockDoubt>) -> Option<Observation> {
    let Some(ClockDoubt::Leapt(seconds)) = doubt else { return None };
    let whither = if seconds < 0 { "back" } else { "ahead" };
    let by = seconds.unsigned_abs();
    let detail = format!(
        "the system's clock has leapt {by} s {whither} and is not believed: nothing expires until a \
         time server has confirmed it, or for an hour"
    );
    Some(observation((AlarmName::ClockLeapt, LogLevel::Warning), true, detail))
}

fn rows(unreadable: usize) -> Option<Observation> {
    let detail = format!(
        "{} of the database not served: `gatewright store quarantine` shows them; restore them from a \
         backup",
        if unreadable == 1 { "1 row is".to_owned() } else { format!("{unreadable} rows are") }
    );
    let found = observation((AlarmName::RowsUnreadable, LogLevel::Error), true, detail);
    (unreadable > 0).then_some(found)
}

fn files(missing: &str) -> Observation {
    let detail = format!(
        "{missing}: nothing is stored, and requests that store are refused. Put the file back, or \
         restore a backup and restart the gateway"
    );
    observation((AlarmName::DatabaseMissing, LogLevel::Error), true, detail)
}

/// Where both are short, the disk is told: more room within `store_mib` would not help.
fn short(space: DiskSpace) -> Option<Observation> {
    let told = [disk(space), rows_limit(space)].into_iter().flatten();
    // A raised one goes before one that is only kept.
    told.min_by_key(|seen| !seen.is_raising)
}

/// As for the disk, for what `store_mib` leaves.
fn rows_limit(space: DiskSpace) -> Option<Observation> {
    let kept_below = space.rows_low.saturating_add(space.rows_low / 4);
    let free = space.rows_free.filter(|free| *free < kept_below)?;
    let detail = format!(
        "the database has almost reached its limit (store_mib), and what is beyond is refused; delete \
         resources, or raise the limit: {} KiB are left",
        free / 1024
    );
    let name = (AlarmName::DiskShort, LogLevel::Warning);
    Some(observation(name, free < space.rows_low, detail))
}

/// Raised below the mark, and kept until a quarter more than that is free.
fn disk(space: DiskSpace) -> Option<Observation> {
    let free = space.free.filter(|free| *free < space.low.saturating_add(space.low / 4))?;
    let (free, reserve) = (free / MIB, space.reserve / MIB);
    let detail = format!(
        "the disk of the database is almost full; make room: {free} MiB are free, and {reserve} MiB \
         in reserve for deletions"
    );
    Some(observation((AlarmName::DiskShort, LogLevel::Warning), space.is_low, detail))
}

fn slow(commit: Duration) -> Observation {
    let detail = format!(
        "commits take up to {} ms: the disk of the database is slow or failing. What stores something is \
         answered when it is on the disk; what only reads is not held up",
        commit.as_millis()
    );
    observation((AlarmName::DiskSlow, LogLevel::Warning), true, detail)
}

/// A number of things: `1 minute`, `2 minutes`.
fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// Raised at the share, and kept above half of it.
fn outbox(
    ((waiting, most), backlogs): ((usize, usize), usize),
    percent: u32,
) -> Option<Observation> {
    let share = most.saturating_mul(usize::try_from(percent).unwrap_or(100)) / 100;
    let is_raising = backlogs > 0 || (waiting > 0 && waiting >= share);
    let detail = format!(
        "{waiting} of {most} readings wait for the CSE above: is it reached? When the outbox is full, \
         readings are stored here and sent later"
    );
    let found = observation((AlarmName::OutboxFilling, LogLevel::Warning), is_raising, detail);
    (is_raising || waiting > share / 2).then_some(found)
}

/// Raised after some seconds, and kept until there is an answer.
fn registrar(silent_for: Duration) -> Observation {
    let detail = "requests to the CSE above have no answer: does it run, and is the network up? \
                  Readings wait here and are sent when it answers";
    let is_raising = silent_for >= SILENT_FOR;
    observation((AlarmName::RegistrarUnreachable, LogLevel::Warning), is_raising, detail.to_owned())
}

/// Certificates that end within the days of the thresholds.
fn certificates(keyring: &Keyring, wall: Timestamp, thresholds: CseAlarms) -> Vec<Observation> {
    let CseAlarms { certificate_days, certificate_days_urgent, .. } = thresholds;
    let ends = keyring.ends().into_iter();
    let ending = ends.filter(|(_, end)| *end <= wall.plus(DAY.saturating_mul(certificate_days)));
    let one = |(file, end): (std::path::PathBuf, Timestamp)| {
        let is_urgent = end <= wall.plus(DAY.saturating_mul(certificate_days_urgent));
        let file = file.display().to_string();
        let left = end.since_epoch().saturating_sub(wall.since_epoch());
        let days = left.as_secs() / DAY.as_secs();
        let when = if left.is_zero() {
            "has ended".to_owned()
        } else {
            format!("ends in {}", counted(days, "day"))
        };
        Observation {
            name: AlarmName::CertificateEnding,
            detail: format!("a certificate in {file} {when} ({end}): replace the file and reload"),
            subject: file,
            level: if is_urgent { LogLevel::Error } else { LogLevel::Warning },
            is_raising: true,
        }
    };
    if certificate_days == 0 { Vec::new() } else { ending.map(one).collect() }
}

fn system_id(digits: &str) -> Option<SystemId> {
    stored::system_id(&[&format!("system-id:{digits}")])
}

#[cfg(test)]
mod tests;
