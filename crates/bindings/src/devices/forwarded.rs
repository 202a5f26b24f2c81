//! Devices whose reports the data plane may send on by itself: the data plane's AE table, and the
//! plans in it.
//!
//! A device's first report goes through the control plane, which compiles a plan from its layout. From
//! then on the data plane sends such reports to the CSE above, and passes on everything else. If
//! reports go on to arrive here, their layout has changed, and the plan is compiled anew.

use super::connection::DeviceConnection;
use super::{Delivery, Shared};
use core::time::Duration;
use gatewright_health::code::SystemId;
use gatewright_health::manager::ReportRecord;
use gatewright_interwork::{CoapPlan, Device, DeviceAssociation, Mapping, ReportPlan};
use gatewright_onem2m::Release;
use gatewright_tables::records::{Entity, EntityPlan, Sender};
use gatewright_tables::{DriverDevice, EntityWriters};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Reports that arrive here before the plan is compiled anew.
const REPORTS_BEFORE_ANOTHER: u32 = 8;
/// Time between two looks at what the data plane has sent on, for devices that fall silent.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The writer of the data plane's AE table.
#[derive(Debug)]
pub(super) struct ForwardedDevices {
    writers: EntityWriters,
    /// Serial number of the last plan.
    serial: u32,
    /// Devices of an earlier control plane, which have no connection here.
    left: HashMap<Sender, SystemId>,
}

impl ForwardedDevices {
    /// Takes over the table with the devices that are in it.
    pub(super) fn new(writers: EntityWriters) -> Self {
        let known = writers.plans.iter().map(|(_, plan)| plan.serial).max().unwrap_or_default();
        // Larger than any that a worker may know still, whoever gave it.
        let now = u32::try_from(crate::engine::wall().as_secs() & u64::from(u32::MAX >> 1));
        let left = writers.entities.iter();
        let left = left.map(|(sender, entity)| (sender, SystemId(entity.system_id))).collect();
        Self { writers, serial: known.max(now.unwrap_or_default()), left }
    }

    /// Whether a device of an earlier control plane sends from there. It is not associated any more
    /// after that: it is told so when it sends something that the data plane does not send on.
    pub(super) fn forget_left(&mut self, sender: &Sender) -> bool {
        let is_left = self.left.contains_key(sender);
        if is_left {
            self.leave(sender);
        }
        is_left
    }

    pub(super) fn join(&mut self, sender: &Sender, entity: &Entity) -> bool {
        self.leave(sender);
        // A device has one association: the one before this was another control plane's.
        let again = |(_, device): &(&Sender, &SystemId)| device.0 == entity.system_id;
        if let Some((before, _)) = self.left.iter().find(again).map(|(at, it)| (*at, *it)) {
            self.leave(&before);
        }
        if self.writers.entities.set(sender, entity).is_ok() {
            return true;
        }
        // One that an earlier control plane knew gives way.
        let Some(before) = self.left.keys().next().copied() else { return false };
        self.leave(&before);
        self.writers.entities.set(sender, entity).is_ok()
    }

    /// Updates a record; its plan ends, as it was made for what the device was before.
    pub(super) fn update(&mut self, sender: &Sender, entity: &Entity) {
        if self.writers.entities.get(sender).is_some() {
            self.drop_plan(sender);
            let _kept = self.writers.entities.set(sender, entity);
        }
    }

    pub(super) fn leave(&mut self, sender: &Sender) {
        self.left.remove(sender);
        self.drop_plan(sender);
        self.writers.entities.remove(sender);
    }

    /// Ends all plans: reports arrive here again.
    pub(super) fn drop_plans(&mut self) {
        let all: Vec<_> = self.writers.entities.iter().map(|(sender, _)| sender).collect();
        for sender in &all {
            self.drop_plan(sender);
        }
    }

    fn drop_plan(&mut self, sender: &Sender) {
        let Some(entity) = self.writers.entities.get(sender).filter(|it| it.plan.1 > 0) else {
            return;
        };
        self.writers.drivers.iter().for_each(|drivers| drivers.remove(sender));
        // First the device, so that no reader finds a plan that is gone.
        let _kept = self.writers.entities.set(sender, &Entity { plan: (0, 0), ..entity });
        self.writers.plans.remove(entity.plan.0);
    }

    /// Puts a plan into the table; returns whether there was room. Drivers carry it out, too, if they
    /// can and have room; else the worker does.
    fn set_plan(&mut self, sender: &Sender, plan: &CoapPlan) -> bool {
        let octets = &plan.octets();
        self.drop_plan(sender);
        let Some(entity) = self.writers.entities.get(sender) else { return false };
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        let serial = self.serial;
        let Some(record) = EntityPlan::new(serial, octets) else { return false };
        let Ok(place) = self.writers.plans.insert(&record) else { return false };
        let entity = Entity { plan: (place, serial), ..entity };
        let is_set = self.writers.entities.set(sender, &entity).is_ok();
        let of_drivers = self.writers.drivers.as_ref().zip(plan.driver_plan());
        if let Some((drivers, driver_plan)) = of_drivers.filter(|_| is_set) {
            let before = DriverDevice { time: plan.last_time(), ..DriverDevice::default() };
            let _full = drivers.insert(sender, entity.plan, &driver_plan, &before);
        }
        is_set
    }

    /// Devices for which the data plane has sent on reports since `earlier`, by the last one's time.
    fn heard(&self, earlier: &mut HashMap<Sender, u64>) -> Vec<SystemId> {
        let mut heard = Vec::new();
        earlier.retain(|sender, _| self.writers.entities.get(sender).is_some());
        for (sender, entity) in self.writers.entities.iter().filter(|(_, it)| it.plan.1 > 0) {
            let of_drivers = self.writers.drivers.as_ref();
            let of_drivers = of_drivers.and_then(|it| it.reports(&sender, entity.plan.1));
            let of_worker = || self.writers.reports.get(entity.plan.0).ok().flatten();
            let Some(reports) = of_drivers.or_else(of_worker) else { continue };
            if reports.serial == entity.plan.1
                && earlier.insert(sender, reports.received) != Some(reports.received)
            {
                heard.push(SystemId(entity.system_id));
            }
        }
        heard
    }
}

/// Has devices count as heard whose reports the data plane sends on, until `stop` is set.
pub(super) async fn serve(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut earlier = HashMap::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = stop.changed() => return,
        }
        let mut state = shared.lock();
        let heard = state.entities.forwarded().map(|devices| devices.heard(&mut earlier));
        let heard = heard.into_iter().flatten().map(|device| {
            let kind = state.kinds.get(&device).map(|(_, kind)| *kind);
            (device, kind.unwrap_or(gatewright_health::kind::UNKNOWN))
        });
        let heard: Vec<_> = heard.collect();
        drop(state);
        for (device, kind) in heard {
            shared.note_heard(device, kind);
        }
    }
}

impl DeviceConnection {
    /// Compiles the plan of such reports for the data plane, if they may go that way.
    pub(super) fn plan(&mut self, record: &ReportRecord) {
        let count = self.reports_here;
        self.reports_here = count.wrapping_add(1);
        let is_due = count.is_multiple_of(REPORTS_BEFORE_ANOTHER);
        if !is_due || !self.is_over_stack() || self.is_test {
            return;
        }
        let Some(session) = &self.session else { return };
        let Some(plan) = self.shared.compile(session, record) else { return };
        let mut state = self.shared.lock();
        let forwarded = state.entities.forwarded();
        let is_set = forwarded.is_some_and(|it| it.set_plan(&self.sender, &plan));
        state.counters.plans += u64::from(is_set);
        state.counters.plans_full += u64::from(!is_set);
    }
}

impl Shared {
    /// The plan of reports such as `record`.
    fn compile(&self, session: &DeviceAssociation, record: &ReportRecord) -> Option<CoapPlan> {
        let above = self.above()?;
        let serialisation = above.coap?;
        let device = session.device();
        if above.delivery(device) != Delivery::Direct || has_views(&self.mapping) {
            return None;
        }
        let (mapping, configuration) = (&self.mapping, session.configuration());
        // Readings are named by an epoch of their own: numbers of reports that arrive here meanwhile
        // name others.
        let epoch = self.lock().next_epoch();
        let device = Device::new(mapping, &self.base, device.system_id(), epoch, configuration);
        let (report, release) = (record.apdu.as_slice(), Release::default());
        let plan = ReportPlan::of_report(mapping, &device, configuration, report, release.text())?;
        let moved = |request| self.moved(&above, &request);
        let plan = CoapPlan::new(&plan, &device, serialisation, moved)?;
        Some(plan.behind(report))
    }
}

/// Whether readings are shown in flexContainers, which the control plane updates.
pub(super) fn has_views(mapping: &Mapping) -> bool {
    mapping.rules.iter().any(|rule| rule.view.is_some())
}
