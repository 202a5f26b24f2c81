//! The audit log of changes that callers make (`[web] audit`): who, what, with what result.
//!
//! Its file is chained, limited and verified as the audit log of a CSE (`gatewright-store`). An entry
//! is a JSON object of the same form ([`gatewright_onem2m::audit`]):
//!
//! | member | what it says |
//! |---|---|
//! | `op`, `to` | the operation of the API, as its description names it; the path |
//! | `fr`, `by`, `as` | the name of the token or certificate; how it was shown; the role |
//! | `ip` | the caller's address, if it has one |
//! | `of` | what it was about |
//! | `end` | the HTTP status of the answer; `waits` before it is done |
//!
//! What changes the gateway has two entries. Where the first cannot be stored nothing is changed.
//!
//! Entries that change no description are limited: of each operation, a caller has so many an hour. The
//! rest of that hour is counted, in entries `Counted` with `count`: those since the one before. So no
//! caller can push out what others have done. While `end` is `waits`, as many as `more` says may follow
//! before the next one, which is stored before anything beyond is let through. So the log accounts for
//! every change at any moment, also on a disk that has become full. While it is known to fail, what would
//! be counted has to be stored, too.
//!
//! Entries of changes of the description wait for no others, and are kept when the log has no more room.

mod budget;

use crate::{
    access::Arrival,
    answer::WebRefusal,
    counters::count,
    routes::Endpoint,
    session::Caller,
    site::{Asked, Site},
};
use budget::{CountedEntries, EntryBudgets, Taken};
use gatewright_gateway::{LogEvent, LogLevel};
use gatewright_store::{AuditLog, StoreError};
use hyper::StatusCode;
use serde::Serialize;
use serde_json::json;
use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::Semaphore;

/// Room of the log: some 50,000 entries. The oldest are dropped, which an entry says.
const AUDIT_OCTETS_MAX: u64 = 16 * 1024 * 1024;

/// Operations whose entries a flood of others does not push out: those of
/// [`Endpoint::changes_description`].
const KEPT: &[&str] = &["Reload", "RollBack"];

/// An open log with its path.
#[derive(Debug)]
pub(crate) struct WebAudit {
    path: PathBuf,
    /// The turn of entries that change no description: one at a time waits for the disk, so that others
    /// wait for one at most, and a thread that waits is left to them.
    turn: Semaphore,
    log: Mutex<LimitedLog>,
}

/// The log with the limits of its callers.
#[derive(Debug)]
struct LimitedLog {
    log: AuditLog,
    budgets: EntryBudgets,
}

/// An entry; members are in the order of the text.
#[derive(Debug, Serialize)]
struct WebAuditEntry<'a> {
    op: String,
    to: &'a str,
    fr: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<IpAddr>,
    by: &'static str,
    #[serde(rename = "as")]
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<&'a str>,
    end: AuditEnd,
}

/// How a change ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(untagged)]
enum AuditEnd {
    /// It has yet to be done: `waits`.
    Begun(&'static str),
    Answered(u16),
}

/// Who makes a change, and which; what its entries have in common.
#[derive(Clone, Debug)]
pub(crate) struct AuditedChange {
    endpoint: Endpoint,
    path: String,
    caller: Caller,
    address: Option<IpAddr>,
    log: Arc<WebAudit>,
}

impl WebAudit {
    /// Opens the log at `path`, or creates it.
    pub(crate) fn open(path: &Path) -> Result<Arc<Self>, StoreError> {
        let log = AuditLog::open(path, AUDIT_OCTETS_MAX, KEPT)?;
        let log = Mutex::new(LimitedLog { log, budgets: EntryBudgets::default() });
        Ok(Arc::new(Self { path: path.to_owned(), turn: Semaphore::new(1), log }))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Stores an entry, or counts it if its caller has had its share of this operation; waits for the
    /// disk.
    fn add(&self, (endpoint, caller): (Endpoint, &str), text: &str) -> Result<(), StoreError> {
        let mut limited = self.lock();
        let now = Instant::now();
        for counted in limited.budgets.ended(now) {
            limited.add_counted(&counted, now)?;
        }
        if endpoint.changes_description() {
            return limited.log.add(now_micros(), text);
        }
        limited.add_limited((endpoint, caller), text, now)
    }

    /// A poisoned lock is safe here: an entry is stored or not.
    fn lock(&self) -> MutexGuard<'_, LimitedLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimitedLog {
    /// Stores an entry of a caller, or counts it.
    fn add_limited(
        &mut self,
        caller: (Endpoint, &str),
        text: &str,
        now: Instant,
    ) -> Result<(), StoreError> {
        let key = self.budgets.key(caller);
        let taken = self.budgets.take(&key, now);
        let stored = match taken {
            Taken::Entry => self.log.add(now_micros(), text),
            // What cannot be stored stops changes, whether they have entries or are counted.
            Taken::Counted if !self.log.is_failing() => return Ok(()),
            Taken::Counted | Taken::CountedDue => match self.budgets.unlogged(&key) {
                Some(counted) => self.add_counted(&counted, now),
                None => Ok(()),
            },
        };
        if stored.is_err() {
            self.budgets.give_back(&key, taken);
        }
        stored
    }

    /// Stores how many entries of a caller were only counted.
    fn add_counted(&mut self, counted: &CountedEntries, now: Instant) -> Result<(), StoreError> {
        let CountedEntries { key: (endpoint, caller), count, more } = counted;
        let of = format!("{endpoint:?}");
        let mut entry = json!({ "op": "Counted", "of": of, "fr": caller, "count": count });
        if let (Some(more), Some(members)) = (more, entry.as_object_mut()) {
            members.insert("end".to_owned(), WAITS.into());
            members.insert("more".to_owned(), (*more).into());
        }
        self.log.add(now_micros(), &entry.to_string())?;
        self.budgets.note_logged(counted, now);
        Ok(())
    }
}

/// What was only counted is stored before the log is closed.
impl Drop for WebAudit {
    fn drop(&mut self) {
        let mut limited = self.lock();
        for counted in limited.budgets.all() {
            // Nobody is left to be told.
            let _lost = limited.add_counted(&counted, Instant::now());
        }
    }
}

/// The end of what goes on.
const WAITS: &str = "waits";

/// Microseconds since 1970.
fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl AuditedChange {
    pub(crate) fn new(
        log: Arc<WebAudit>,
        (endpoint, path): (Endpoint, &str),
        (caller, arrival): (&Caller, &Arrival),
    ) -> Self {
        let (path, caller) = (path.to_owned(), caller.clone());
        Self { endpoint, path, caller, address: arrival.peer, log }
    }

    fn entry(&self, of: Option<&str>, end: AuditEnd) -> String {
        let Self { endpoint, path, caller, address, .. } = self;
        let entry = WebAuditEntry {
            op: format!("{endpoint:?}"),
            to: path,
            fr: &caller.name,
            ip: *address,
            by: caller.shown.name(),
            role: caller.role.map_or("", |role| role.name()),
            of,
            end,
        };
        // Members are texts and numbers, of which JSON has all.
        serde_json::to_string(&entry).unwrap_or_default()
    }

    /// Stores an entry on a thread that may wait for the disk.
    async fn store(&self, of: Option<&str>, end: AuditEnd) -> Result<(), String> {
        let (log, text) = (Arc::clone(&self.log), self.entry(of, end));
        let (endpoint, caller) = (self.endpoint, self.caller.name.clone());
        let _turn = if endpoint.changes_description() {
            None
        } else {
            // It is never closed.
            self.log.turn.acquire().await.ok()
        };
        let stored = tokio::task::spawn_blocking(move || log.add((endpoint, &caller), &text)).await;
        stored.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }
}

impl Site {
    /// Stores that a change begins, before anything is changed.
    ///
    /// # Errors
    ///
    /// 503 if it cannot be stored.
    pub(crate) async fn begin_change(&self, asked: &Asked<'_>) -> Result<(), WebRefusal> {
        let Some(change) = &asked.audited else { return Ok(()) };
        let of = asked.about.get().map(String::as_str);
        change.store(of, AuditEnd::Begun(WAITS)).await.map_err(|why| {
            self.audit_failed(&why);
            let why = "the change cannot be logged, so nothing is changed: `gatewright events` on \
                       the gateway says why";
            WebRefusal::unavailable(why)
        })
    }

    /// Stores how a change ended.
    pub(crate) async fn end_change(
        &self,
        change: &AuditedChange,
        of: Option<&str>,
        status: StatusCode,
    ) {
        let stored = change.store(of, AuditEnd::Answered(status.as_u16())).await;
        if let Err(why) = stored {
            self.audit_failed(&why);
        }
    }

    /// Counts and logs an entry that could not be stored.
    fn audit_failed(&self, why: &str) {
        count(&self.counters.audit_lost);
        let Ok(gateway) = self.gateway() else { return };
        let text = format!("an entry of the web interface's audit log is lost: {why}");
        gateway.events().log(LogEvent::new(LogLevel::Error, "web", "web-audit-lost", text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{access::ArrivalKind, tokens::AccessRole};
    use std::{
        fs,
        pin::pin,
        task::{Context, Waker},
    };

    #[test]
    fn changes_of_the_description_are_kept() {
        let all = crate::routes::ROUTES.iter().map(|route| route.endpoint);
        let changes = all.filter(|endpoint| endpoint.changes_description());
        let names: Vec<_> = changes.map(|endpoint| format!("{endpoint:?}")).collect();
        assert_eq!(names, KEPT);
    }

    /// Stores entries of a flood of changes in the log of a new folder; returns both.
    fn flooded(name: &str, entries: u32) -> (PathBuf, Arc<WebAudit>) {
        let folder = std::env::temp_dir().join(format!("gw-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let log = WebAudit::open(&folder.join("audit.db")).unwrap();
        for _ in 0..entries {
            log.add(FLOOD, r#"{"op":"Trace"}"#).unwrap();
        }
        (folder, log)
    }

    const FLOOD: (Endpoint, &str) = (Endpoint::Trace, "eve");

    fn try_to_change(log: &WebAudit, attempts: u64) -> u64 {
        (0..attempts).map(|_| u64::from(log.add(FLOOD, r#"{"op":"Trace"}"#).is_ok())).sum()
    }

    /// Operation, end, count, and how many may follow, of each entry.
    fn stored(folder: &Path) -> Vec<(String, Option<String>, [Option<u64>; 2])> {
        let stored = gatewright_store::last_entries(&folder.join("audit.db"), 200).unwrap();
        let members = stored.into_iter().map(|entry| {
            let numbers = ["count", "more"].map(|name| entry.number_of(name));
            (
                entry.text_of("op").unwrap().to_owned(),
                entry.text_of("end").map(str::to_owned),
                numbers,
            )
        });
        members.collect()
    }

    /// How many changes a stored log accounts for: at least, and at most.
    fn accounted(folder: &Path) -> [u64; 2] {
        let (mut least, mut more) = (0, 0);
        for (op, _, [count, follow]) in stored(folder) {
            least += count.unwrap_or(u64::from(op == "Trace"));
            more = if op == "Counted" { follow.unwrap_or(0) } else { more };
        }
        [least, least + more]
    }

    /// A gateway that is killed at any moment leaves a log that accounts for each change, and for at
    /// most twice as many counted ones.
    #[test]
    fn a_log_accounts_for_every_change_at_any_moment() {
        let (folder, log) = flooded("audit-accounts", 0);
        for changes in 1..=200 {
            assert_eq!(try_to_change(&log, 1), 1);
            let [least, most] = accounted(&folder);
            assert!(least <= changes && changes <= most, "{changes}: {least} to {most}");
            assert!(most <= 60 + 2 * (changes.max(60) - 60), "{changes}: {most}");
        }
        drop(log);
        assert_eq!(accounted(&folder), [200; 2], "at the end");
        fs::remove_dir_all(folder).unwrap();
    }

    /// Whenever the log begins to fail, as on a full disk, no more changes are let through than it
    /// accounts for. While it fails none begins, whether it would have an entry or be counted; attempts
    /// use up nobody's share.
    #[test]
    fn a_log_that_fails_lets_through_what_it_accounts_for() {
        for before in [0, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 75, 76, 92] {
            let (folder, log) = flooded("audit-fails", before);
            let (path, away) = (folder.join("audit.db"), folder.join("away.db"));
            fs::rename(&path, &away).unwrap();
            let let_through = u64::from(before) + try_to_change(&log, 100);
            assert_eq!(try_to_change(&log, 100), 0, "it is known to fail");
            fs::rename(&away, &path).unwrap();
            let [least, most] = accounted(&folder);
            assert!(least <= let_through && let_through <= most, "{before}: {let_through}, {most}");
            assert_eq!(try_to_change(&log, 1), 1);
            drop(log);
            assert_eq!(accounted(&folder), [let_through + 1; 2], "{before}");
            let lost = stored(&folder).iter().filter(|(op, ..)| op == "Lost").count();
            assert_eq!(lost, 1, "{before}");
            fs::remove_dir_all(folder).unwrap();
        }
    }

    /// What is stored when a gateway is killed says that entries are counted, and how many.
    #[test]
    fn a_log_says_that_entries_are_counted_before_their_hour_is_over() {
        let (folder, log) = flooded("audit-counted", 80);
        let counted = |stored: Vec<(String, Option<String>, [Option<u64>; 2])>| {
            let counted = stored.into_iter().filter(|(op, ..)| op == "Counted");
            counted.map(|(_, end, numbers)| (end, numbers)).collect::<Vec<_>>()
        };
        let goes_on = |count, more| (Some(WAITS.to_owned()), [Some(count), Some(more)]);
        let killed =
            [(1, 0), (1, 1), (2, 3), (4, 7), (8, 15)].map(|(count, more)| goes_on(count, more));
        assert_eq!(counted(stored(&folder)), killed);
        drop(log);
        assert_eq!(counted(stored(&folder)).last(), Some(&(None, [Some(4), None])), "the rest");
        fs::remove_dir_all(folder).unwrap();
    }

    /// While another entry has its turn, further ones wait for theirs, and that of a reload is stored.
    #[tokio::test]
    async fn an_entry_of_a_reload_waits_for_no_others() {
        let folder = std::env::temp_dir().join(format!("gw-web-audit-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let log = WebAudit::open(&folder.join("audit.db")).unwrap();
        let arrival = Arrival::new(ArrivalKind::Loopback, None);
        let caller = Caller::of_test("ops", AccessRole::Operator);
        let change =
            |endpoint| AuditedChange::new(Arc::clone(&log), (endpoint, "/"), (&caller, &arrival));
        let (trace, reload) = (change(Endpoint::Trace), change(Endpoint::Reload));
        let turn = log.turn.acquire().await.unwrap();
        let mut waits = pin!(trace.store(None, AuditEnd::Answered(200)));
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        reload.store(None, AuditEnd::Begun("waits")).await.unwrap();
        drop(turn);
        waits.await.unwrap();
        let stored = gatewright_store::last_entries(&folder.join("audit.db"), 10).unwrap();
        let stored: Vec<_> = stored.iter().map(|entry| entry.text_of("op").unwrap()).collect();
        assert_eq!(stored, ["Reload", "Trace"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
