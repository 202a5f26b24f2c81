//! Limits of the system that the links of a gateway may meet: memory that they lock, and mappings.

use crate::setup::Setup;
use gatewright_data::DeviceSetup;
use gatewright_link::Backend;
use gatewright_part::{EventSink, LogEvent, LogLevel};
use nix::sys::resource::{Resource, getrlimit};
use std::fs;

/// Mappings of a process without links: its code, libraries, heaps, threads, and the tables.
const MAPPINGS_BESIDE: u64 = 256;

/// Mappings of a link's queue at a worker: four rings, and its share of the slab.
const MAPPINGS_OF_QUEUE: u64 = 5;

/// Maximum queues of a link that are counted on; most devices have as many as processors.
const QUEUES: u64 = 64;

/// `CAP_IPC_LOCK` (capabilities(7)), with which no limit of locked memory counts.
const CAP_IPC_LOCK: u64 = 1 << 14;

/// What a gateway needs of limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Needs {
    /// Octets that it locks: the slabs of workers with AF_XDP links.
    locked: u64,
    /// Mappings of its memory.
    mappings: u64,
}

/// What the system allows; `None` where there is no limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Allowed {
    locked: Option<u64>,
    mappings: Option<u64>,
}

/// Limits of the system that are too low for the links of `setup`, in words for the operator.
pub fn limit_shortages(setup: &Setup) -> Vec<String> {
    shortages(needs(setup, setup.chunk_size), allowed())
}

/// Logs which limits are too low for the links of `setup`. They are opened nevertheless: each says
/// by itself what it got.
pub(crate) fn check(setup: &Setup, chunk_size: usize, log: &EventSink) {
    for text in shortages(needs(setup, chunk_size), allowed()) {
        log.log(LogEvent::new(LogLevel::Warning, "links", "limit-too-low", text));
    }
}

fn needs(setup: &Setup, chunk_size: usize) -> Needs {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let locks = |device: &DeviceSetup| matches!(device, DeviceSetup::Interface(link) if link.backend != Backend::PacketSocket);
    let links = number(setup.links.iter().filter(|link| locks(&link.device)).count());
    let (workers, slab) = (number(setup.workers), number(setup.frames) * number(chunk_size));
    let locked = if links == 0 { 0 } else { workers.saturating_mul(slab) };
    let mappings = MAPPINGS_BESIDE + links.saturating_mul(QUEUES) * MAPPINGS_OF_QUEUE;
    Needs { locked, mappings }
}

fn allowed() -> Allowed {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let is_limited = effective.unwrap_or(0) & CAP_IPC_LOCK == 0;
    let locked = getrlimit(Resource::RLIMIT_MEMLOCK).ok().map(|(soft, _)| soft);
    let mappings = fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    Allowed {
        locked: locked.filter(|_| is_limited),
        mappings: mappings.and_then(|text| text.trim().parse().ok()),
    }
}

/// Limits that are below the needs, in words for the operator.
fn shortages(needs: Needs, allowed: Allowed) -> Vec<String> {
    let is_short = |needed: u64, limit: Option<u64>| limit.filter(|limit| *limit < needed);
    let locked = is_short(needs.locked, allowed.locked).map(|limit| {
        let (needed, limit) = (needs.locked / KIB, limit / KIB);
        format!(
            "AF_XDP locks {needed} KiB of memory, and {limit} KiB are allowed: give CAP_IPC_LOCK, \
             or raise the limit (`ulimit -l`, LimitMEMLOCK= of a unit)"
        )
    });
    let mappings = is_short(needs.mappings, allowed.mappings).map(|limit| {
        let needed = needs.mappings;
        format!(
            "the links may need {needed} mappings of memory, and {limit} are allowed: raise \
             vm.max_map_count (sysctl)"
        )
    });
    locked.into_iter().chain(mappings).collect()
}

const KIB: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_need_their_workers_slabs_and_a_mapping_for_each_ring() {
        let mut setup = Setup::new(7);
        setup.frames = 4096;
        setup.link("lan", "g0").backend(Backend::PacketSocket);
        let beside = Needs { locked: 0, mappings: MAPPINGS_BESIDE };
        assert_eq!(needs(&setup, 2048), beside);
        setup.link("wan", "g1");
        setup.workers = 2;
        let both = needs(&setup, 2048);
        // Two slabs of 4096 chunks of 2 KiB; 64 queues with four rings and the slab.
        assert_eq!(both, Needs { locked: 16 << 20, mappings: 256 + 64 * 5 });
        let enough = Allowed { locked: Some(16 << 20), mappings: Some(65_530) };
        assert_eq!(shortages(both, enough), Vec::<String>::new());
        assert_eq!(shortages(both, Allowed::default()), Vec::<String>::new());
        // The limit of locked memory of Debian 12, and a small limit of mappings.
        let told = shortages(both, Allowed { locked: Some(8 << 20), mappings: Some(500) });
        assert!(
            told[0].starts_with("AF_XDP locks 16384 KiB of memory, and 8192 KiB are"),
            "{told:?}"
        );
        assert!(told[1].contains("576 mappings of memory, and 500 are allowed"), "{told:?}");
    }
}
