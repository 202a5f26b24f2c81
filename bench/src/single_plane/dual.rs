//! The dual plane beside the single one: reports of the same devices go by the plans in the AE table, in
//! the worker or in the link's driver; everything else goes to a control plane of its own thread, which
//! does what the single plane does with it.

use super::network::now;
use super::own_stack::{check_links, links};
use super::plane::{Datagrams, SinglePlane};
use super::{DEVICES, text};
use crate::gateway::live::source_port;
use crate::gateway::ours::LOOK;
use crate::gateway::relays::is_idle;
use crate::gateway::world::{LOCAL, REMOTE, SENDER_IP};
use gatewright_health::code::SystemId;
use gatewright_health::specialisation::OXIMETER;
use gatewright_interwork::{CoapPlan, Device, Mapping, ReportPlan};
use gatewright_onem2m::Serialisation;
use gatewright_planes::{Planes, ReportForwarder, ReportForwarderSetup, ReportRoute};
use gatewright_stack::{Sockets, UdpSocket};
use gatewright_tables::records::{Entity, EntityPlan, Sender};
use gatewright_tables::{DriverDevice, EntityWriters};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};

/// Octets of the largest datagram of an Ethernet frame.
const DATAGRAM_MAX: usize = 1472;

/// Where reports are converted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Converter {
    Worker,
    Driver,
}

/// Serves the devices of the generator until `stop`, whose reports are like `report`, with `control` as
/// control plane.
pub(super) fn work(
    converter: Converter,
    report: &[u8],
    control: SinglePlane,
    stop: &AtomicBool,
) -> Result<(), String> {
    let is_driver = converter == Converter::Driver;
    let (listen, cse) = (SocketAddr::from(LOCAL), SocketAddr::from(REMOTE));
    let mut setup = links(is_driver);
    setup.reports = is_driver.then_some(ReportRoute { listen, cse });
    let gateway = Planes::open(&setup).map_err(text)?;
    let (writers, entities) = gateway.change_host(|host| {
        let tables = host.tables_mut();
        (tables.entities.take(), tables.data_entities())
    });
    let mut writers = writers.ok_or("the AE table has a writer")?;
    if is_driver && writers.drivers.is_none() {
        return Err("drivers send on no reports".to_owned());
    }
    associate(&mut writers, report)?;
    let control = ControlPlane::new(gateway.sockets(), control, writers)?;
    let setup = ReportForwarderSetup { listen, cse };
    let forwarder = ReportForwarder::start(gateway.sockets(), setup, &entities).map_err(text)?;
    std::thread::scope(|scope| {
        let controls = scope.spawn(|| control.run(stop));
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        controls.join().map_err(|_| "the control plane panicked")?
    })?;
    check_links(&gateway)?;
    let status = gateway.status().map_err(text)?;
    let outcomes = status.links.iter().flat_map(|link| &link.in_driver);
    let in_driver: u64 =
        outcomes.filter(|it| it.outcome == "report-sent").map(|count| count.packets).sum();
    let counts = forwarder.counts();
    let all = counts.reports + in_driver;
    // The worker has the first ones, which find the receiver's address, and those that meet another one
    // of the same device.
    let stray = if is_driver { counts.reports } else { in_driver };
    if all == 0 || stray > all / 10 {
        let found = format!("{counts:?}, {in_driver} in drivers");
        return Err(format!("not all reports went by the {converter:?}: {found}: {status:#?}"));
    }
    Ok(())
}

/// Puts the devices of the generator into the AE table, and to the drivers.
fn associate(writers: &mut EntityWriters, report: &[u8]) -> Result<(), String> {
    for nth in 0..DEVICES {
        let plan = plan_of(nth, report)?;
        let serial = u32::from(nth) + 1;
        let kept = EntityPlan::new(serial, &plan.octets()).ok_or("the plan is too long")?;
        let place = writers.plans.insert(&kept).map_err(text)?;
        let sender = Sender { address: SENDER_IP.into(), port: source_port(nth) };
        let system_id = u64::from(nth).to_be_bytes();
        let entity = Entity { system_id, plan: (place, serial), ..Entity::default() };
        writers.entities.set(&sender, &entity).map_err(text)?;
        if let Some(drivers) = &writers.drivers {
            let plan = plan.driver_plan().ok_or("these reports have no plan in drivers")?;
            if !drivers.insert(&sender, (place, serial), &plan, &DriverDevice::default()) {
                return Err("drivers have no room for all devices".to_owned());
            }
        }
    }
    Ok(())
}

/// How the reports of device `nth`, which are like `report`, become requests.
pub(super) fn plan_of(nth: u16, report: &[u8]) -> Result<CoapPlan, String> {
    let (mapping, configuration) = (Mapping::default(), OXIMETER.configuration());
    let configuration = configuration.ok_or("the oximeter has no configuration")?;
    let system_id = SystemId(u64::from(nth).to_be_bytes());
    let device = Device::new(&mapping, "/id-in/cse-in", system_id, 7, &configuration);
    let plan = ReportPlan::of_report(&mapping, &device, &configuration, report, "4");
    let plan = plan.ok_or("these reports have no plan")?;
    let plan = CoapPlan::new(&plan, &device, Serialisation::Cbor, |request| request);
    plan.ok_or_else(|| "these reports have no plan".to_owned())
}

/// The control plane: it has what the data plane passes on, and keeps the AE table.
struct ControlPlane {
    socket: UdpSocket,
    plane: SinglePlane,
    writers: EntityWriters,
    out: Datagrams,
}

impl ControlPlane {
    fn new(sockets: &Sockets, plane: SinglePlane, writers: EntityWriters) -> Result<Self, String> {
        let socket = sockets.bind(LOCAL.into()).map_err(text)?;
        socket.set_read_timeout(Some(LOOK));
        Ok(Self { socket, plane, writers, out: Datagrams::default() })
    }

    fn run(mut self, stop: &AtomicBool) -> Result<(), String> {
        let mut buffer = [0; DATAGRAM_MAX];
        while !stop.load(Ordering::Relaxed) {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, SocketAddr::V4(from))) => {
                    self.take(from, buffer.get(..length).unwrap_or(&[]))?;
                }
                Ok(_) => {}
                Err(error) if is_idle(&error) => {}
                Err(error) => return Err(text(error)),
            }
        }
        Ok(())
    }

    fn take(&mut self, from: SocketAddrV4, message: &[u8]) -> Result<(), String> {
        let Self { socket, plane, writers, out } = self;
        let before = plane.is_associated(from);
        plane.handle(now(), from, message, out);
        let sender = Sender { address: (*from.ip()).into(), port: from.port() };
        match (before, plane.is_associated(from)) {
            (false, true) => {
                writers.entities.set(&sender, &Entity::default()).map_err(text)?;
            }
            (true, false) => {
                writers.entities.remove(&sender);
            }
            _ => {}
        }
        for (to, octets) in out.iter() {
            // As with the single plane, what finds no room is lost.
            let _lost = socket.send_to(octets, to.address(REMOTE).into());
        }
        out.clear();
        Ok(())
    }
}
