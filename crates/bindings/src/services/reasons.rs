//! Texts for operators: what is wrong with the services, and why.

use gatewright_descriptors::Shortage;
use gatewright_onem2m::{ClockDoubt, RefusedMessage, Unreadable};
use gatewright_store::DiskSpace;

/// Octets in a mebibyte.
const MIB: u64 = 1024 * 1024;

/// Why deliverable outbox messages are held.
pub(super) fn why_held(
    queues: usize,
    RefusedMessage { status, from, to, .. }: &RefusedMessage,
) -> String {
    let (senders, status) = (if queues == 1 { "sender" } else { "senders" }, status.number());
    format!(
        "of {queues} {senders}; {from} is answered {status} at {to}: check the access rights there"
    )
}

/// Data that this CSE has and the CSE above will never get.
pub(super) fn why_lost(
    (readings, aged, last): (u64, u64, Option<RefusedMessage>),
) -> Option<String> {
    let last = last.map(|RefusedMessage { status, from, to, .. }| {
        let status = status.number();
        format!("{readings} readings refused above for good; {from} was answered {status} at {to}")
    });
    let aged = (aged > 0).then(|| format!("{aged} messages expired"));
    let told: Vec<String> = last.into_iter().chain(aged).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// What a clock step holds back, or a restart, which is no alarm.
pub(super) fn why_doubted(doubt: ClockDoubt) -> (&'static str, String) {
    match doubt {
        ClockDoubt::Leapt(ahead) => {
            let (by, whither) = (ahead.unsigned_abs(), if ahead < 0 { "back" } else { "ahead" });
            (
                "clock",
                format!(
                    "leapt {by} s {whither}: nothing expires until it has run evenly for an hour"
                ),
            )
        }
        ClockDoubt::Stopped(seconds) => {
            let text = format!(
                "did not run for {seconds} s: what expired meanwhile expires when a time server has \
                 confirmed the clock, or in an hour"
            );
            ("restart", text)
        }
    }
}

/// Stored rows that are not in the tree.
pub(super) fn why_unreadable(rows: &[Unreadable]) -> Option<String> {
    let first = rows.first()?;
    Some(format!("{} rows cannot be read; row {}: {}", rows.len(), first.row, first.damage))
}

/// Remembered requests that are lost.
pub(super) fn why_forgotten(lines: &[u64]) -> Option<String> {
    let first = lines.first()?;
    let count = lines.len();
    Some(format!("{count} lines are damaged, the first is {first}: repetitions are executed again"))
}

/// The disk, or the limit on the database, will soon be reached.
pub(super) fn why_short(disk_space: DiskSpace) -> Option<String> {
    let left = disk_space.rows_free.filter(|free| *free < disk_space.rows_low);
    if let (Some(left), false) = (left, disk_space.is_low) {
        return Some(format!("{} KiB are left of store_mib", left / 1024));
    }
    let free = disk_space.free.filter(|_| disk_space.is_low)? / MIB;
    let reserve = disk_space.reserve / MIB;
    Some(format!("{free} MiB are free, and {reserve} MiB in reserve for deletions"))
}

/// Consequence of a full disk.
pub(super) const DISK_FULL: &str = "creations are refused until 2.5 times the reserve is free on the disk and \
     within the database, or the reserve within it; deletions and the audit log use the reserve";

/// Consequence of not comparing certificates with system-ids.
pub(super) const UNBOUND: &str = "any device with a certificate of the authorities may associate under any \
     system-id: [devices.tls] system_id says which name of its certificate is to be its own";

/// Consequence of too few descriptors.
pub(super) fn short(shortage: Shortage) -> String {
    format!("with all else in this process {shortage}: connections above that wait to be accepted")
}
