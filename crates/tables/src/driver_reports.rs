//! Reports that drivers send on: the devices with their plans, and what drivers have done.
//!
//! A program in the kernel and both planes read and write the same words
//! (`crates/xdp/programs/report.h` has the same layout, for little-endian machines). A device's record
//! belongs to who holds its lock: a driver that meets a held one passes its report up, so that no
//! driver waits. The worker takes the lock for a report of such a device that it converts itself, so
//! both count on from the same number.

use crate::records::{EntityReports, LATEST_OCTETS_MAX, LatestReport, Sender};
use crate::{
    SharedWords,
    driver_plan::{DriverPlan, PLAN_HEAD_OCTETS, PLAN_OCTETS},
};
use std::hint::spin_loop;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Ports of requests that drivers send, each with 65,536 message IDs.
pub const DRIVER_PORTS: usize = 64;

/// Requests of drivers whose answers are awaited at the most.
const AWAITED_MAX: u32 = 1 << 14;
/// Places in which a sender is looked for.
const SENDER_PROBES: u32 = 8;
/// Looks at a lock that another holds, before it is given up: a holder has it for a microsecond, unless
/// its thread was interrupted.
const LOCK_LOOKS: u32 = 10_000;

/// Words of a device's record, which is of whole cache lines.
const DEVICE_WORDS: usize = 464;
const LOCK: usize = 0;
const SERIAL: usize = 1;
/// Address, and a word of port and family.
const ADDRESS: usize = 2;
const PLACE: usize = 7;
const REPORTS: usize = 8;
const LAST: usize = 10;
const RECEIVED: usize = 12;
const TIME: usize = 14;
const FLAGS: usize = 16;
const LATEST: usize = 17;
/// The plan stands behind what else a report needs, and the last report behind the longest plan.
const PLAN: usize = 18;
const OCTETS: usize = 400;
const _: () = assert!(4 * PLAN + PLAN_HEAD_OCTETS + PLAN_OCTETS <= 4 * OCTETS);

const HAS_NUMBER: u32 = 1;
const HAS_TIME: u32 = 2;
const LATEST_IS_TIMED: u32 = 1 << 31;

/// Words that all reports have in common.
const COMMON_WORDS: usize = AWAITED + 2 * AWAITED_MAX as usize;
const VERSION: usize = 0;
const COMMON_FLAGS: usize = 1;
/// Behind flags, the link of the source and three addresses.
const LISTEN_PORT: usize = 16;
const CLOCK: usize = 18;
const PORTS: usize = 20;
const NEXT: usize = PORTS + DRIVER_PORTS / 2;
const AWAITED: usize = NEXT + 2 + 3 * DRIVER_PORTS;

const REPORTS_ON: u32 = 1;
const LISTEN_6: u32 = 2;
const CSE_6: u32 = 4;

const _: () = assert!(COMMON_WORDS * 4 == DriverReports::COMMON_OCTETS as usize);
const _: () = assert!(DEVICE_WORDS * 4 == DriverReports::DEVICE_OCTETS as usize);

/// Where devices' reports come in and where they go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DriverRoute {
    /// The address of this gateway to which devices send.
    pub listen: SocketAddr,
    /// The CoAP address of the CSE.
    pub cse: SocketAddr,
    /// The address of this gateway from which requests go there.
    pub source: IpAddr,
    /// The number of the link by which they go.
    pub link: u32,
}

/// What was sent on for a device: by drivers, and by the worker for them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DriverDevice {
    /// How many reports.
    pub reports: u64,
    /// The last one's number, which grows; `None` before the first one.
    pub last: Option<u64>,
    /// When that arrived: microseconds since 1970.
    pub received: u64,
    /// The device's own time of it: hundredths of a second since 1970.
    pub time: Option<u64>,
    /// That report.
    pub latest: LatestReport,
}

/// The memory of reports that drivers send on.
#[derive(Clone)]
pub struct DriverReports {
    common: SharedWords,
    devices: SharedWords,
    capacity: u32,
    seed: [u32; 2],
}

impl std::fmt::Debug for DriverReports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DriverReports({} devices)", self.capacity)
    }
}

impl DriverReports {
    /// Octets of the memory that all reports have in common.
    pub const COMMON_OCTETS: u32 = 132_056;
    /// Octets of a device's record.
    pub const DEVICE_OCTETS: u32 = 1_856;

    /// This memory, for `capacity` devices, a power of two; `seed` orders their table.
    pub const fn new(
        common: SharedWords,
        devices: SharedWords,
        capacity: u32,
        seed: [u32; 2],
    ) -> Self {
        Self { common, devices, capacity, seed }
    }

    /// Memory of this process alone, for tests.
    pub fn private(capacity: u32, seed: [u32; 2]) -> Self {
        let devices = DEVICE_WORDS * usize::try_from(capacity).unwrap_or(0);
        let [common, devices] = [COMMON_WORDS, devices].map(SharedWords::private);
        Self::new(common, devices, capacity, seed)
    }

    fn common(&self, at: usize) -> Option<&AtomicU32> {
        self.common.all().get(at)
    }

    /// Sets where reports come in and go; `None` has all of them go up.
    pub fn set_route(&self, route: Option<&DriverRoute>) {
        let mut words = [0; LISTEN_PORT + 1 - COMMON_FLAGS];
        if let Some(DriverRoute { listen, cse, source, link }) = route {
            let families = [(listen, LISTEN_6), (cse, CSE_6)];
            let families = families.map(|(it, flag)| if it.is_ipv6() { flag } else { 0 });
            let [listen_6, cse_6] = families;
            let [a, b] = listen.port().to_be_bytes();
            let [c, d] = cse.port().to_be_bytes();
            let ports = u32::from_ne_bytes([a, b, c, d]);
            let addresses = [listen.ip(), cse.ip(), *source].map(address_words);
            let head = [REPORTS_ON | listen_6 | cse_6, *link, 0];
            let all = head.into_iter().chain(addresses.into_iter().flatten()).chain([ports]);
            words.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        }
        self.write_common(COMMON_FLAGS, &words);
    }

    /// Sets microseconds since 1970 at which the clock of programs in drivers was 0.
    pub fn set_clock(&self, micros: u64) {
        let now = self.common(CLOCK).zip(self.common(CLOCK + 1));
        let now = now.map(|words| long([words.0, words.1]));
        if now != Some(micros) {
            self.write_common(CLOCK, &halves(micros));
        }
    }

    /// Writes words so that a driver which reads meanwhile knows.
    fn write_common(&self, at: usize, words: &[u32]) {
        let Some(version) = self.common(VERSION) else { return };
        let next = version.load(Ordering::Relaxed).wrapping_add(1) | 1;
        version.store(next, Ordering::Relaxed);
        fence(Ordering::Release);
        for (place, word) in self.common.all().iter().skip(at).zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
        version.store(next.wrapping_add(1), Ordering::Release);
    }

    /// Sets the ports of requests, from which answers come; all zero has reports go up.
    pub fn set_ports(&self, ports: &[u16; DRIVER_PORTS]) {
        let (pairs, _) = ports.as_chunks::<2>();
        // The first one is the mark that they are there.
        for (nth, [first, second]) in pairs.iter().enumerate().rev() {
            let [[a, b], [c, d]] = [first, second].map(|port| port.to_be_bytes());
            if let Some(word) = self.common(PORTS + nth) {
                word.store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release);
            }
        }
    }

    /// Sets the number of the next request, if none was sent: those of another forwarder may be
    /// remembered still.
    pub fn begin_at(&self, number: u64) {
        let Some((low, high)) = self.common(NEXT).zip(self.common(NEXT + 1)) else { return };
        if long([low, high]) == 0 {
            let [first, second] = halves(number);
            high.store(second, Ordering::Relaxed);
            low.store(first, Ordering::Relaxed);
        }
    }

    /// The plan's place of a driver's request that is answered with `token`, whose answer is awaited no
    /// longer.
    pub fn end_awaited(&self, token: u32) -> Option<u32> {
        let slot = usize::try_from(token & (AWAITED_MAX - 1)).ok()?;
        let at = AWAITED + 2 * slot;
        let (awaited, place) = self.common(at).zip(self.common(at + 1))?;
        let place = place.load(Ordering::Acquire).checked_sub(1)?;
        let ended = awaited.compare_exchange(token, 0, Ordering::AcqRel, Ordering::Relaxed);
        (token != 0 && ended.is_ok()).then_some(place)
    }

    /// Gives a device its plan, which has a place and a serial number in the AE table; returns whether
    /// there was room, for the plan, too. `before` is what was sent on for it until now.
    pub fn insert(
        &self,
        sender: &Sender,
        (place, serial): (u32, u32),
        plan: &DriverPlan,
        before: &DriverDevice,
    ) -> bool {
        self.remove(sender);
        if !plan.is_within_bounds() {
            return false;
        }
        let mut free = self.places(sender).filter(|device| device.word(SERIAL) == 0);
        let Some(device) = free.find_map(DeviceWords::lock) else { return false };
        let key = address_words(sender.address).into_iter().chain([port_word(sender), place]);
        device.0.write(ADDRESS, key);
        device.set(before);
        device.0.write(PLAN, plan.words());
        device.0.store(SERIAL, serial);
        true
    }

    /// Takes a device's plan away: its reports go up.
    pub fn remove(&self, sender: &Sender) {
        while let Some(device) = self.find(sender) {
            // The holder of a lock that is never given back is dead.
            let locked = device.lock();
            device.store(SERIAL, 0);
            drop(locked);
        }
    }

    /// Ends the plan at this place in the AE table: its device's reports go up.
    pub fn end_plan(&self, place: u32) {
        let devices = (0..self.capacity).filter_map(|at| self.device(at));
        let is_it = |it: &DeviceWords<'_>| it.word(SERIAL) != 0 && it.word(PLACE) == place;
        for device in devices.filter(is_it) {
            let locked = device.lock();
            device.store(SERIAL, 0);
            drop(locked);
        }
    }

    /// Takes all plans away.
    pub fn clear(&self) {
        for at in 0..self.capacity {
            if let Some(device) = self.device(at).filter(|device| device.word(SERIAL) != 0) {
                let locked = device.lock();
                device.store(SERIAL, 0);
                drop(locked);
            }
        }
    }

    /// What was sent on for a device by this plan.
    pub fn get(&self, sender: &Sender, serial: u32) -> Option<DriverDevice> {
        Some(self.hold(sender, serial)?.get())
    }

    /// The same as the AE table has it.
    pub fn reports(&self, sender: &Sender, serial: u32) -> Option<EntityReports> {
        let DriverDevice { reports, last, received, latest, .. } = self.get(sender, serial)?;
        Some(EntityReports { serial, reports, last: last?, received, latest })
    }

    /// Passes what was sent on for devices to `note`, with the place of each plan, if it is not what
    /// `known` has: serial number and count by the place in this table.
    pub fn changed(&self, known: &mut Vec<(u32, u32)>, mut note: impl FnMut(u32, &EntityReports)) {
        known.resize(usize::try_from(self.capacity).unwrap_or_default(), (0, 0));
        for (at, known) in (0..).zip(known) {
            let Some(device) = self.device(at) else { return };
            let now = (device.word(SERIAL), device.word(REPORTS));
            if now.0 == 0 || now == *known {
                continue;
            }
            let Some(held) = device.lock().filter(|held| held.0.word(SERIAL) == now.0) else {
                continue;
            };
            let (serial, place) = (now.0, device.word(PLACE));
            let DriverDevice { reports, last, received, latest, .. } = held.get();
            *known = (serial, device.word(REPORTS));
            drop(held);
            let last = last.unwrap_or_default();
            note(place, &EntityReports { serial, reports, last, received, latest });
        }
    }

    /// Holds the record of a device with this plan: drivers pass its reports up meanwhile. `None` if
    /// there is no such device, or its record is not given back by another.
    pub fn hold(&self, sender: &Sender, serial: u32) -> Option<HeldDevice<'_>> {
        let held = self.find(sender).filter(|device| device.word(SERIAL) == serial)?.lock()?;
        (held.0.word(SERIAL) == serial && held.0.is_of(sender)).then_some(held)
    }

    /// Whether drivers send on reports of a device by this plan, whoever holds its record.
    pub fn has(&self, sender: &Sender, serial: u32) -> bool {
        self.find(sender).is_some_and(|device| device.word(SERIAL) == serial)
    }

    fn find(&self, sender: &Sender) -> Option<DeviceWords<'_>> {
        self.places(sender).find(|device| device.word(SERIAL) != 0 && device.is_of(sender))
    }

    /// The records in which a sender may be.
    fn places(&self, sender: &Sender) -> impl Iterator<Item = DeviceWords<'_>> {
        let hash = self.hash(sender);
        let mask = self.capacity.wrapping_sub(1);
        let at = move |probe: u32| hash.wrapping_add(probe) & mask;
        (0..SENDER_PROBES).filter_map(move |probe| self.device(at(probe)))
    }

    fn device(&self, at: u32) -> Option<DeviceWords<'_>> {
        let start = usize::try_from(at).ok()?.checked_mul(DEVICE_WORDS)?;
        let words = self.devices.all().get(start..start.checked_add(DEVICE_WORDS)?)?;
        Some(DeviceWords(words))
    }

    /// The same as in `find_device` of the program.
    fn hash(&self, sender: &Sender) -> u32 {
        let [first, second] = self.seed;
        let step = |hash: u32, word: u32| {
            let hash = (hash ^ word).wrapping_mul(0x9e37_79b1);
            hash ^ hash >> 15
        };
        let hash = address_words(sender.address).into_iter().fold(first, step);
        // The port as the program has read it.
        let port = u32::from(u16::from_ne_bytes(sender.port.to_be_bytes()));
        let hash = (hash ^ (port << 16 | family(sender))).wrapping_mul(0x85eb_ca6b);
        let hash = (hash ^ hash >> 13 ^ second).wrapping_mul(0xc2b2_ae35);
        hash ^ hash >> 16
    }
}

/// The words of a device's record.
#[derive(Clone, Copy, Debug)]
struct DeviceWords<'words>(&'words [AtomicU32]);

impl<'words> DeviceWords<'words> {
    fn word(self, at: usize) -> u32 {
        self.0.get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn store(self, at: usize, word: u32) {
        if let Some(place) = self.0.get(at) {
            place.store(word, Ordering::Release);
        }
    }

    fn write(self, at: usize, words: impl IntoIterator<Item = u32>) {
        for (place, word) in self.0.iter().skip(at).zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }

    fn long(self, at: usize) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 1)) << 32
    }

    fn is_of(self, sender: &Sender) -> bool {
        let key = address_words(sender.address).into_iter().chain([port_word(sender)]);
        (ADDRESS..).zip(key).all(|(at, word)| self.word(at) == word)
    }

    /// Takes the record's lock, unless its holder keeps it.
    fn lock(self) -> Option<HeldDevice<'words>> {
        let lock = self.0.get(LOCK)?;
        for _ in 0..LOCK_LOOKS {
            if lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(HeldDevice(self));
            }
            spin_loop();
        }
        None
    }
}

/// A device's record while no driver has it.
#[derive(Debug)]
pub struct HeldDevice<'words>(DeviceWords<'words>);

impl HeldDevice<'_> {
    /// What was sent on for the device.
    pub fn get(&self) -> DriverDevice {
        let device = self.0;
        let flags = device.word(FLAGS);
        let has = |flag: u32, at: usize| (flags & flag > 0).then(|| device.long(at));
        let mut octets = [0; LATEST_OCTETS_MAX];
        for (nth, place) in octets.chunks_mut(4).enumerate() {
            let word = device.word(OCTETS + nth).to_ne_bytes();
            place.iter_mut().zip(word).for_each(|(to, from)| *to = from);
        }
        let latest = device.word(LATEST);
        let length = usize::try_from(latest & !LATEST_IS_TIMED).unwrap_or(usize::MAX);
        let report = octets.get(..length).unwrap_or_default();
        DriverDevice {
            reports: device.long(REPORTS),
            last: has(HAS_NUMBER, LAST),
            received: device.long(RECEIVED),
            time: has(HAS_TIME, TIME),
            latest: LatestReport::new(report, latest & LATEST_IS_TIMED > 0),
        }
    }

    /// Sets what was sent on for it.
    pub fn set(&self, now: &DriverDevice) {
        let DriverDevice { reports, last, received, time, latest } = now;
        let numbers = [*reports, last.unwrap_or_default(), *received, time.unwrap_or_default()];
        let flags = if last.is_some() { HAS_NUMBER } else { 0 };
        let flags = flags | if time.is_some() { HAS_TIME } else { 0 };
        let octets = latest.octets();
        let is_timed = if latest.is_timed { LATEST_IS_TIMED } else { 0 };
        let length = u32::try_from(octets.len()).unwrap_or_default() | is_timed;
        self.0.write(REPORTS, numbers.into_iter().flat_map(halves).chain([flags, length]));
        self.0.write(OCTETS, octet_words(octets, LATEST_OCTETS_MAX / 4));
    }
}

impl Drop for HeldDevice<'_> {
    fn drop(&mut self) {
        self.0.store(LOCK, 0);
    }
}

/// An address as it lies in a header, IPv4 in the first word.
fn address_words(address: IpAddr) -> [u32; 4] {
    let mut octets = [0; 16];
    match address {
        IpAddr::V4(address) => octets.iter_mut().zip(address.octets()).for_each(|(a, b)| *a = b),
        IpAddr::V6(address) => octets = address.octets(),
    }
    let mut words = octet_words(&octets, 4);
    core::array::from_fn(|_| words.next().unwrap_or_default())
}

fn family(sender: &Sender) -> u32 {
    if sender.address.is_ipv6() { 6 } else { 4 }
}

/// Port as in a header, and family.
fn port_word(sender: &Sender) -> u32 {
    u32::from(u16::from_ne_bytes(sender.port.to_be_bytes())) | family(sender) << 16
}

/// Octets as they lie in so many words, with zeroes behind.
pub(crate) fn octet_words(octets: &[u8], words: usize) -> impl Iterator<Item = u32> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 4];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        u32::from_ne_bytes(word)
    };
    octets.chunks(4).map(word).chain(std::iter::repeat(0)).take(words)
}

/// The words of a number, the lower one first.
pub(crate) fn halves(number: u64) -> [u32; 2] {
    let octets = number.to_le_bytes();
    let (words, _) = octets.as_chunks::<4>();
    core::array::from_fn(|at| words.get(at).map_or(0, |word| u32::from_le_bytes(*word)))
}

fn long([low, high]: [&AtomicU32; 2]) -> u64 {
    u64::from(low.load(Ordering::Relaxed)) | u64::from(high.load(Ordering::Relaxed)) << 32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

    use super::*;

    fn sender(port: u16) -> Sender {
        Sender { address: IpAddr::from([192, 0, 2, 7]), port }
    }

    fn plan() -> DriverPlan {
        DriverPlan {
            length: 40,
            expected: vec![1; 40],
            fixed: vec![2; 40],
            ..DriverPlan::default()
        }
    }

    #[test]
    fn a_device_keeps_what_was_sent_on_until_it_is_removed() {
        let all = DriverReports::private(16, [3, 9]);
        let none = DriverDevice::default();
        assert!(all.insert(&sender(1), (5, 7), &plan(), &none));
        assert_eq!(all.get(&sender(1), 7), Some(none));
        assert_eq!((all.get(&sender(1), 8), all.get(&sender(2), 7)), (None, None));
        assert_eq!(all.reports(&sender(1), 7), None, "it has sent nothing");
        let latest = LatestReport::new(&[1, 2, 3], true);
        let (last, time) = (Some(1 << 40), Some(0));
        let now = DriverDevice { reports: 3, last, received: u64::MAX, time, latest };
        all.hold(&sender(1), 7).unwrap().set(&now);
        assert_eq!(all.get(&sender(1), 7), Some(now));
        let mut known = Vec::new();
        let mut noted = Vec::new();
        for _ in 0..2 {
            all.changed(&mut known, |place, reports| noted.push((place, *reports)));
        }
        assert_eq!(noted, [(5, all.reports(&sender(1), 7).unwrap())]);
        all.end_plan(4);
        assert!(all.get(&sender(1), 7).is_some(), "that of another place");
        all.end_plan(5);
        assert_eq!(all.get(&sender(1), 7), None);
        assert!(all.insert(&sender(1), (5, 8), &plan(), &none));
        all.remove(&sender(1));
        assert_eq!(all.get(&sender(1), 8), None);
    }

    #[test]
    fn a_table_takes_what_has_a_place_and_refuses_the_rest() {
        let all = DriverReports::private(16, [3, 9]);
        let senders: Vec<_> = (0..64).map(sender).collect();
        let insert = |at: &&Sender| all.insert(at, (0, 7), &plan(), &DriverDevice::default());
        let taken: Vec<_> = senders.iter().filter(insert).collect();
        assert!((12..=16).contains(&taken.len()), "{}", taken.len());
        let known = |at: &&Sender| all.get(at, 7).is_some();
        assert_eq!(senders.iter().filter(known).collect::<Vec<_>>(), taken);
        all.clear();
        assert_eq!(senders.iter().find(known), None);
    }

    #[test]
    fn a_held_device_is_not_given_to_another() {
        let all = DriverReports::private(16, [3, 9]);
        assert!(all.insert(&sender(1), (0, 7), &plan(), &DriverDevice::default()));
        let held = all.hold(&sender(1), 7).unwrap();
        assert!(all.hold(&sender(1), 7).is_none());
        // A writer that is dead keeps it for ever: its device goes all the same.
        all.remove(&sender(1));
        drop(held);
        assert!(all.hold(&sender(1), 7).is_none());
    }

    #[test]
    fn an_awaited_answer_counts_once() {
        let all = DriverReports::private(1, [0; 2]);
        let (token, place) = (0xabc0_0003, 6);
        let at = AWAITED + 6;
        for (at, word) in [(at, token), (at + 1, place + 1)] {
            all.common(at).unwrap().store(word, Ordering::Relaxed);
        }
        assert_eq!(all.end_awaited(token ^ 1 << 20), None);
        assert_eq!((all.end_awaited(token), all.end_awaited(token)), (Some(place), None));
        assert_eq!(all.end_awaited(0), None, "an empty place");
    }
}
