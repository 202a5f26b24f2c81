//! Reports of devices that drivers send on: maps, counts, and the program of a link.

use super::maps::STAGES_MAX;
use super::{Forwarding, ForwardingError, PacketCount, SharedMap, check, failed, total};
use crate::layout::{COUNT_LEN, LINKS_MAX};
use crate::map::{BpfMap, MapType};
use gatewright_tables::DriverReports;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Places of each link in `report_counts`.
const REPORT_ROOM: u32 = 16;
/// Octets of `struct scratch`.
const SCRATCH_LEN: usize = 5632;

/// Why a report was sent on in the driver, or not (`enum report_reason`).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum DriverReason {
    /// It was sent on.
    Sent,
    /// Its sender has no plan in the driver.
    Stranger,
    /// It is not as its plan has it, or has a value that drivers do not write.
    Differs,
    /// Its checksum is wrong, or missing over IPv6: the graph judges it.
    Checksum,
    /// It is a fragment.
    Fragment,
    /// Settings or plan were being changed, or the worker had a report of the device.
    Busy,
    /// A handler counts or drops packets where it came in, or looks at them where requests leave.
    LookedAt,
    /// No route, neighbour or source address towards the CSE.
    NoWay,
    /// The frame cannot grow, or the egress link's MTU is too small.
    NoRoom,
    /// The egress link has just gone: it is dropped.
    Lost,
    /// Besides: sent on with a message ID that may be remembered still (RFC 7252 §4.4).
    IdReused,
}

impl DriverReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Sent,
        Self::Stranger,
        Self::Differs,
        Self::Checksum,
        Self::Fragment,
        Self::Busy,
        Self::LookedAt,
        Self::NoWay,
        Self::NoRoom,
        Self::Lost,
        Self::IdReused,
    ];

    /// Its name in `status` and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "report-sent",
            Self::Stranger => "report-no-plan",
            Self::Differs => "report-differs",
            Self::Checksum => "report-bad-checksum",
            Self::Fragment => "report-fragment",
            Self::Busy => "report-busy",
            Self::LookedAt => "report-looked-at",
            Self::NoWay => "report-no-way",
            Self::NoRoom => "report-no-room",
            Self::Lost => "report-lost",
            Self::IdReused => "report-id-reused",
        }
    }
}

/// The maps of reports.
#[derive(Debug)]
pub(super) struct ReportMaps {
    capacity: u32,
    pub(super) seed: [u32; 2],
    /// By link: the program that sends reports on, and behind all of these the one that limits.
    stages: BpfMap,
    common: SharedMap,
    devices: SharedMap,
    counts: BpfMap,
    scratch: BpfMap,
}

impl ReportMaps {
    /// Maps for so many devices, rounded up to a power of two; for none, there is no such program.
    pub(super) fn new(devices: u32) -> Result<Self, ForwardingError> {
        let capacity = if devices == 0 { 0 } else { devices.next_power_of_two() };
        let map = |kind, name, value: usize, entries| {
            let value = u32::try_from(value).unwrap_or(u32::MAX);
            BpfMap::new(kind, name, 4, value, entries).map_err(failed("make a map"))
        };
        // Outsiders choose their ports: the order of the table is not theirs to know.
        let drawn = RandomState::new();
        let seed = |nth: u64| u32::try_from(drawn.hash_one(nth) >> 32).unwrap_or_default();
        let each = MapType::PerProcessorArray;
        Ok(Self {
            capacity,
            seed: [0, 1].map(seed),
            stages: map(MapType::Programs, "stages", 4, STAGES_MAX)?,
            common: SharedMap::new("reports", DriverReports::COMMON_OCTETS, 1)?,
            devices: SharedMap::new(
                "report_devices",
                DriverReports::DEVICE_OCTETS,
                capacity.max(1),
            )?,
            counts: map(each, "report_counts", COUNT_LEN, LINKS_MAX * REPORT_ROOM)?,
            scratch: map(each, "report_scratch", SCRATCH_LEN, 1)?,
        })
    }

    /// The memory and the maps, in the order of their names.
    pub(super) fn parts(&self) -> (&BpfMap, [&BpfMap; 4]) {
        (&self.common.map, [&self.stages, &self.devices.map, &self.counts, &self.scratch])
    }

    /// Number of devices and seed.
    pub(super) const fn shape(&self) -> [u32; 3] {
        let [first, second] = self.seed;
        [self.capacity, first, second]
    }
}

impl Forwarding {
    /// The memory of reports that drivers send on.
    pub fn driver_reports(&self) -> DriverReports {
        let ReportMaps { capacity, seed, common, devices, .. } = &self.reports;
        DriverReports::new(common.words.clone(), devices.words.clone(), *capacity, *seed)
    }

    /// Numbers of a link's reports by outcome, over all processors.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system does not tell.
    pub fn report_counts(
        &self,
        link: u32,
    ) -> Result<Vec<(DriverReason, PacketCount)>, ForwardingError> {
        check("link", link, LINKS_MAX)?;
        let count = |(index, reason)| {
            let index = link * REPORT_ROOM + index;
            total(&self.reports.counts, index).map(|count| (reason, count))
        };
        (0..).zip(DriverReason::ALL).map(count).collect()
    }
}
