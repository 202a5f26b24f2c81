//! The dual plane beside the single one: our data plane's worker, which converts the reports of the same
//! devices by the plans in its AE table.

use super::{DEVICES, text};
use crate::gateway::live::source_port;
use crate::gateway::ours::LOOK;
use crate::gateway::world::{LOCAL, OWN_IP, REMOTE, SENDER_IP};
use gatewright_health::code::SystemId;
use gatewright_health::specialisation::OXIMETER;
use gatewright_interwork::{CoapPlan, Device, Mapping, ReportPlan};
use gatewright_link::Backend;
use gatewright_onem2m::Serialisation;
use gatewright_planes::{Planes, ReportForwarder, ReportForwarderSetup, Setup};
use gatewright_tables::EntityWriters;
use gatewright_tables::records::{Entity, EntityPlan, Sender};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Serves the devices of the generator until `stop`, whose reports are like `report`.
pub(super) fn work(report: &[u8], stop: &AtomicBool) -> Result<(), String> {
    let mut setup = Setup::new(42);
    for (name, ip) in ["g0", "g1"].into_iter().zip(OWN_IP) {
        setup.link(name, name).backend(Backend::Xdp).address(IpAddr::V4(ip), 24);
    }
    let gateway = Planes::open(&setup).map_err(text)?;
    let (writers, entities) = gateway.change_host(|host| {
        let tables = host.tables_mut();
        (tables.entities.take(), tables.data_entities())
    });
    associate(&mut writers.ok_or("the AE table has a writer")?, report)?;
    let setup = ReportForwarderSetup { listen: LOCAL.into(), cse: REMOTE.into() };
    let forwarder = ReportForwarder::start(gateway.sockets(), setup, &entities).map_err(text)?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    let status = gateway.status().map_err(text)?;
    if let Some(link) = status.links.iter().find(|link| !link.mode.starts_with("AF_XDP")) {
        return Err(format!("{} is a link of mode {}", link.name, link.mode));
    }
    let counts = forwarder.counts();
    if counts.reports == 0 || counts.passed_on > 0 || counts.strangers > 0 {
        return Err(format!("not all reports were forwarded: {counts:?}"));
    }
    Ok(())
}

/// Puts the devices of the generator into the AE table.
fn associate(writers: &mut EntityWriters, report: &[u8]) -> Result<(), String> {
    let (mapping, configuration) = (Mapping::default(), OXIMETER.configuration());
    let configuration = configuration.ok_or("the oximeter has no configuration")?;
    for nth in 0..DEVICES {
        let system_id = SystemId(u64::from(nth).to_be_bytes());
        let device = Device::new(&mapping, "/id-in/cse-in", system_id, 7, &configuration);
        let plan = ReportPlan::of_report(&mapping, &device, &configuration, report, "4");
        let plan = plan.ok_or("these reports have no plan")?;
        let plan = CoapPlan::new(&plan, &device, Serialisation::Cbor, |request| request);
        let octets = plan.ok_or("these reports have no plan")?.octets();
        let serial = u32::from(nth) + 1;
        let plan = EntityPlan::new(serial, &octets).ok_or("the plan is too long")?;
        let place = writers.plans.insert(&plan).map_err(text)?;
        let sender = Sender { address: SENDER_IP.into(), port: source_port(nth) };
        let entity = Entity { system_id: system_id.0, plan: (place, serial), ..Entity::default() };
        writers.entities.set(&sender, &entity).map_err(text)?;
    }
    Ok(())
}
