//! The latest readings of devices with direct delivery, which are not stored here: whoever retrieves
//! a container's latest instance has it stored then.
//!
//! The data plane leaves the latest report of each planned device in the AE table, and the control
//! plane remembers the readings that it has sent on itself.

use super::DevicesConfig;
use crate::engine::UnstoredReadings;
use gatewright_interwork::{CoapPlan, CoapWriter, ReportArrival};
use gatewright_onem2m::coap::CoapMessage;
use gatewright_onem2m::coap::primitive::read_request;
use gatewright_onem2m::{Request, Timestamp};
use gatewright_tables::{DriverReports, EntityTables, EntityWriters};
use gatewright_wire::coap::Message;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Devices whose readings are remembered; those of further ones are not.
const DEVICES_MAX: usize = 4_096;
/// Containers of one device whose readings are remembered.
const CONTAINERS_MAX: usize = 32;
/// Containers of which it is known which reading was stored; beyond, all begin anew.
const TAKEN_MAX: usize = 65_536;

/// The latest readings of devices with direct delivery.
#[derive(Debug)]
pub(super) struct LatestReadings {
    /// Name of the CSEBase.
    base: String,
    /// What the names of devices' AEs begin with.
    entity_prefix: String,
    /// The data plane's AE table.
    tables: Option<EntityTables>,
    /// The devices whose reports drivers send on.
    drivers: Option<DriverReports>,
    known: Mutex<LatestInstances>,
}

#[derive(Debug, Default)]
struct LatestInstances {
    /// Readings that the control plane has sent on, by the address of the device's AE.
    sent: HashMap<String, Vec<LatestReading>>,
    /// When the reading arrived that was stored last, by container.
    taken: HashMap<String, u64>,
}

/// The creation of a reading, and when its report arrived: microseconds since 1970.
#[derive(Debug)]
struct LatestReading {
    received: u64,
    creation: Request,
}

impl LatestReadings {
    /// Those of devices of this configuration, with the data plane's AE table.
    pub(super) fn of(config: &DevicesConfig, of_data_plane: Option<&EntityWriters>) -> Self {
        let tables = of_data_plane.map(|it| EntityTables {
            entities: it.entities.reader(),
            plans: it.plans.reader(),
            reports: it.reports.clone(),
        });
        let drivers = of_data_plane.and_then(|it| it.drivers.clone());
        Self { drivers, ..Self::new(&config.base, &config.mapping.entity_prefix, tables) }
    }

    fn new(base: &str, entity_prefix: &str, tables: Option<EntityTables>) -> Self {
        let (base, entity_prefix) = (base.to_owned(), entity_prefix.to_owned());
        Self { base, entity_prefix, tables, drivers: None, known: Mutex::default() }
    }

    /// Remembers readings of the device with this AE that were sent on.
    pub(super) fn note(&self, entity: &str, received: u64, readings: &[Request]) {
        let sent = &mut self.known().sent;
        if sent.len() >= DEVICES_MAX && !sent.contains_key(entity) {
            return;
        }
        let latest = sent.entry(entity.to_owned()).or_default();
        for creation in readings {
            let reading = LatestReading { received, creation: creation.clone() };
            let may_add = latest.len() < CONTAINERS_MAX;
            match latest.iter_mut().find(|it| it.creation.to == creation.to) {
                Some(before) => *before = reading,
                None if may_add => latest.push(reading),
                None => {}
            }
        }
    }

    /// Forgets what was sent on for a device: its next readings may be stored.
    pub(super) fn forget(&self, entity: &str) {
        self.known().sent.remove(entity);
    }

    /// Forgets what was sent on for all devices.
    pub(super) fn forget_all(&self) {
        self.known().sent.clear();
    }

    /// The latest reading in a container of the device with this AE, by what the data plane has sent:
    /// when it arrived, and its creation unless its report was too long for the table.
    fn planned(&self, container: &str, entity: &str) -> Option<(u64, Option<Request>)> {
        let tables = self.tables.as_ref()?;
        let below = container.strip_prefix(self.base.as_str())?;
        let name = entity.strip_prefix(self.base.as_str())?.strip_prefix('/')?;
        let system = name.strip_prefix(self.entity_prefix.as_str())?;
        let system_id = u64::from_str_radix(system, 16).ok()?.to_be_bytes();
        let is_it = |it: &(_, gatewright_tables::records::Entity)| {
            it.1.system_id == system_id && it.1.plan.1 > 0
        };
        let (sender, found) = tables.entities.iter().flatten().find(is_it)?;
        let (place, serial) = found.plan;
        let plan = tables.plans.get(place).ok()?.filter(|it| it.serial == serial)?;
        let of_drivers = self.drivers.as_ref().and_then(|it| it.reports(&sender, serial));
        let of_worker = || tables.reports.get(place).ok()?.filter(|it| it.serial == serial);
        let reports = of_drivers.or_else(of_worker)?;
        let report = reports.latest.octets();
        if report.is_empty() {
            return Some((reports.received, None));
        }
        let plan = CoapPlan::of(plan.octets())?;
        let own = plan.identity(report).filter(|_| reports.latest.is_timed);
        let received = Timestamp::from_micros(reports.received);
        let arrival = ReportArrival { report: reports.last, received };
        // The request as the CSE above has received it: only its place is another one.
        let mut creation = None;
        CoapWriter::default().convert(&plan, (arrival, own), report, |message| {
            creation = creation.take().or_else(|| of_message(message, below));
        });
        let creation = Request { to: container.to_owned(), from: format!("C{name}"), ..creation? };
        Some((reports.received, Some(creation)))
    }

    /// A poisoned lock is safe here: each entry stands for itself.
    fn known(&self) -> MutexGuard<'_, LatestInstances> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnstoredReadings for LatestReadings {
    fn take_latest(&self, container: &str) -> Option<Request> {
        let (entity, _) = container.rsplit_once('/')?;
        let planned = self.planned(container, entity);
        let mut known = self.known();
        let sent = known.sent.get(entity).into_iter().flatten();
        let sent = sent.filter(|it| it.creation.to == container);
        let sent = sent.map(|it| (it.received, Some(it.creation.clone())));
        let (received, creation) = sent.chain(planned).max_by_key(|(received, _)| *received)?;
        let creation = creation.filter(|_| known.taken.get(container) != Some(&received))?;
        if known.taken.len() >= TAKEN_MAX {
            known.taken.clear();
        }
        known.taken.insert(container.to_owned(), received);
        Some(creation)
    }
}

/// The request in a planned message, if it is for the container at this place below a CSEBase.
fn of_message(message: &[u8], below: &str) -> Option<Request> {
    let message = Message::parse(message).ok()?;
    let options = message.options().map(|it| (it.number, it.value.to_vec())).collect();
    let payload = message.payload().to_vec();
    let request = read_request(&CoapMessage { code: message.code(), options, payload }).ok()?;
    request.to.ends_with(below).then_some(request)
}

#[cfg(test)]
mod tests;
