//! The single plane, the system that the paper's authors had before: whatever a message needs is
//! done, in one thread, before the next is looked at. Reports are delivered *direct*: converted and
//! sent on at once, nothing stored.
//!
//! It stands here and in no crate of the product because nobody is to run it: it is what two planes
//! are measured against. What it does with a message is the product's own code.

use gatewright_health::code::SystemId;
use gatewright_health::configuration::{Configuration, Library};
use gatewright_health::convert::observe;
use gatewright_health::manager::{Input, Manager, ManagerSettings, Output, ReportRecord};
use gatewright_health::report::Report;
use gatewright_interwork::{Device, Instances, Mapping, ReportArrival};
use gatewright_onem2m::Timestamp;
use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Devices at the same time.
const ASSOCIATIONS_MAX: usize = 100_000;
/// With which an association request begins (ISO/IEEE 11073-20601, AARQ).
const AARQ: [u8; 2] = [0xE2, 0x00];
/// Address of the CSEBase that readings go to.
const BASE: &str = "/id-in/cse-in";
/// The release of oneM2M that is spoken there.
const RELEASE: &str = "4";
/// How often waits that have ended are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// To whom a datagram goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum To {
    Device(SocketAddrV4),
    /// To the IN-CSE.
    Above,
}

impl To {
    /// Its address, where `above` is the IN-CSE's.
    pub(super) const fn address(self, above: SocketAddrV4) -> SocketAddrV4 {
        match self {
            Self::Device(device) => device,
            Self::Above => above,
        }
    }
}

/// What is to be sent; its memory is used again.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    octets: Vec<u8>,
    each: Vec<(To, Range<usize>)>,
}

impl Datagrams {
    fn push(&mut self, to: To, octets: &[u8]) {
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        self.each.push((to, start..self.octets.len()));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (To, &[u8])> {
        self.each.iter().map(|(to, range)| (*to, self.octets.get(range.clone()).unwrap_or(&[])))
    }

    pub(super) fn clear(&mut self) {
        self.octets.clear();
        self.each.clear();
    }
}

/// What has been done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counters {
    /// Reports converted and sent on.
    pub(super) forwarded: u64,
    /// Messages of devices that are not associated, dropped (the paper's rule).
    pub(super) strangers: u64,
    /// Associations made.
    pub(super) associations: u64,
    /// Configurations learned.
    pub(super) configurations: u64,
    /// Associations refused because there are too many.
    pub(super) refused: u64,
}

/// An entry of the AE table.
#[derive(Debug)]
struct Association {
    manager: Manager,
    /// The device, once its configuration is known.
    device: Option<(Device, Arc<Configuration>)>,
}

/// The gateway.
#[derive(Debug)]
pub(super) struct SinglePlane {
    settings: ManagerSettings,
    library: Library,
    mapping: Mapping,
    instances: Instances,
    associations: HashMap<SocketAddrV4, Association>,
    epoch: u64,
    swept: Duration,
    counters: Counters,
    control_work: Duration,
}

impl SinglePlane {
    pub(super) fn new() -> Self {
        let settings =
            ManagerSettings { datagrams: true, ..ManagerSettings::new(SystemId(*b"GATEWAY1")) };
        Self {
            settings,
            library: Library::standard(),
            mapping: Mapping::default(),
            instances: Instances::new(),
            associations: HashMap::new(),
            epoch: 0,
            swept: Duration::ZERO,
            counters: Counters::default(),
            control_work: Duration::ZERO,
        }
    }

    /// The same with so much more work for each control message: the paper does not tell what one
    /// costs.
    pub(super) const fn with_control_work(mut self, work: Duration) -> Self {
        self.control_work = work;
        self
    }

    /// Whether a device is associated from there.
    pub(super) fn is_associated(&self, from: SocketAddrV4) -> bool {
        self.associations.contains_key(&from)
    }

    pub(super) const fn counters(&self) -> Counters {
        self.counters
    }

    /// Does everything that one message needs; `now` counts from 1970.
    pub(super) fn handle(
        &mut self,
        now: Duration,
        from: SocketAddrV4,
        apdu: &[u8],
        out: &mut Datagrams,
    ) {
        if !self.associations.contains_key(&from) {
            if !apdu.starts_with(&AARQ) {
                self.counters.strangers += 1;
                return;
            }
            if self.associations.len() >= ASSOCIATIONS_MAX {
                self.counters.refused += 1;
                return;
            }
            let mut manager = Manager::new(self.settings);
            manager.handle(now, Input::Connected, &mut self.library);
            self.associations.insert(from, Association { manager, device: None });
        }
        let reports = self.counters.forwarded;
        self.step(now, from, Input::Apdu(apdu), out);
        if self.counters.forwarded == reports {
            spin(self.control_work);
        }
        if now.saturating_sub(self.swept) >= SWEEP {
            self.swept = now;
            self.sweep(now, out);
        }
    }

    /// Ends waits whose time is over.
    fn sweep(&mut self, now: Duration, out: &mut Datagrams) {
        let due = |association: &Association| {
            association.manager.poll_timeout().is_some_and(|due| due <= now)
        };
        let late: Vec<SocketAddrV4> =
            self.associations.iter().filter(|(_, it)| due(it)).map(|(from, _)| *from).collect();
        for from in late {
            self.step(now, from, Input::Tick, out);
        }
    }

    fn step(&mut self, now: Duration, from: SocketAddrV4, input: Input<'_>, out: &mut Datagrams) {
        let Some(association) = self.associations.get_mut(&from) else { return };
        let Association { manager, device } = association;
        manager.handle(now, input, &mut self.library);
        while let Some(output) = manager.poll_output() {
            match output {
                Output::Send(octets) => out.push(To::Device(from), &octets),
                Output::Associated { .. } => self.counters.associations += 1,
                Output::Configured { configuration, .. } => {
                    self.epoch += 1;
                    self.counters.configurations += 1;
                    *device = manager.system_id().map(|system_id| {
                        let (mapping, epoch) = (&self.mapping, self.epoch);
                        (
                            Device::new(mapping, BASE, system_id, epoch, &configuration),
                            configuration,
                        )
                    });
                }
                Output::Report(record) => {
                    if let Some((device, configuration)) = &device {
                        let made = (&self.mapping, device, configuration.as_ref());
                        forward(&mut self.instances, made, now, &record, out);
                        self.counters.forwarded += 1;
                    }
                    // Direct delivery: what was sent on counts as delivered.
                    manager.handle(now, Input::Committed(record.id), &mut self.library);
                }
                _ => {}
            }
        }
        if manager.system_id().is_none() {
            self.associations.remove(&from);
        }
    }
}

/// Computes for so long.
fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Converts a report's observations, each to one request primitive of one datagram.
fn forward(
    instances: &mut Instances,
    (mapping, device, configuration): (&Mapping, &Device, &Configuration),
    now: Duration,
    record: &ReportRecord,
    out: &mut Datagrams,
) {
    let Some((handle, _, Report::Scan(scan))) = record.report() else { return };
    instances.start(ReportArrival { report: record.number, received: Timestamp::new(now) });
    observe(configuration, handle, &scan, |observation| {
        if let Some(primitive) = instances.primitive(mapping, device, observation, RELEASE) {
            out.push(To::Above, primitive.as_bytes());
        }
    });
}
