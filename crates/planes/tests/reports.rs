//! Reports of a device between two kernels: the gateway's driver sends them on, the worker does while
//! somebody looks, and every reading arrives once.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_health::code::{DataRequestId, Handle, InvokeId, SystemId, event};
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::decimal::{Decimal, Number};
use gatewright_health::report::{FixedObservation, encode_scan};
use gatewright_health::specialisation::THERMOMETER;
use gatewright_interwork::{CoapPlan, Device, Mapping, ReportPlan};
use gatewright_link::Backend;
use gatewright_onem2m::Serialisation;
use gatewright_onem2m::coap::CoapMessage;
use gatewright_onem2m::coap::primitive::read_request;
use gatewright_planes::{Planes, ReportForwarder, ReportForwarderSetup, ReportRoute, Setup};
use gatewright_stack::{At, Attachment, Place, builtin::Count};
use gatewright_tables::records::{Entity, EntityPlan, Sender};
use gatewright_tables::{DriverDevice, DriverReports, EntityWriters};
use gatewright_testbed::{Needs, TwoSubnets, in_time_namespace, wait_until};
use gatewright_wire::coap::Message;
use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const WITHIN: Duration = Duration::from_secs(30);
const DEVICES_PORT: u16 = 6024;
const COAP_PORT: u16 = 5683;
/// Reports sent in each phase.
const REPORTS: u16 = 200;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // As forwarding in drivers: Linux 6.8 tells of tags that a virtual cable has taken out.
    let needs = || Needs::new().namespaces().program("ethtool").program("ping").linux(6, 8);
    let trial = |name: &str, test: fn() -> Result<(), Failed>, needs: Needs| match needs.missing() {
        None => Trial::test(name, test),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), || Ok(())).with_ignored_flag(true)
        }
    };
    let trials = vec![
        trial(BY_IPV4, || every_reading_arrives(false), needs()),
        trial("every_reading_arrives_by_ipv6", || every_reading_arrives(true), needs()),
        trial(
            "reports_have_their_time_in_a_time_namespace",
            || Ok(in_time_namespace(BY_IPV4)?),
            needs().time_namespaces(),
        ),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

const BY_IPV4: &str = "every_reading_arrives_by_ipv4";

/// Octets behind the mapped ones, as devices may have them. The kernel keeps little room behind a short
/// frame of one of its sockets on a virtual cable, and a request is longer than its report.
const BEHIND: [u8; 128] = [7; 128];

/// A report of a thermometer (ISO/IEEE 11073-10408): tenths of a degree, and a time of its own for each
/// number.
fn report(number: u16, tenths: i32) -> Vec<u8> {
    let value = Number::Finite(Decimal::new(tenths, -1)).to_float().unwrap();
    let bcd = |number: u16| u8::try_from(number / 10 % 10 * 16 + number % 10).unwrap();
    let time =
        [0x20, 0x26, 0x11, 0x29, bcd(number / 1000), bcd(number / 60 % 60), bcd(number % 60)];
    let octets = [&value[..], &time, &[0], &BEHIND].concat();
    let observations = [FixedObservation { handle: Handle(1), octets: &octets }];
    let info = encode_scan(DataRequestId::AGENT_INITIATED, number, &observations).unwrap();
    let event = event::SCAN_FIXED;
    let report = EventReport { handle: Handle::MDS, time: 0, event, info: &info };
    DataApdu { invoke_id: InvokeId(number), message: DataMessage::EventReport(report) }
        .encode()
        .unwrap()
}

/// The reading that a request creates.
fn reading(octets: &[u8]) -> String {
    let message = Message::parse(octets).unwrap();
    let options = message.options().map(|it| (it.number, it.value.to_vec())).collect();
    let payload = message.payload().to_vec();
    let request = read_request(&CoapMessage { code: message.code(), options, payload }).unwrap();
    let content = request.content.unwrap();
    let (_, behind) = content.split_once("\"value\":\"").unwrap();
    behind.split_once('"').unwrap().0.to_owned()
}

struct World {
    hosts: TwoSubnets,
    gateway: Planes,
    forwarder: ReportForwarder,
    writers: EntityWriters,
    device: UdpSocket,
    cse: UdpSocket,
    number: u16,
}

impl World {
    fn new(is_6: bool) -> Result<Self, Failed> {
        let hosts = TwoSubnets::with_queues(1)?;
        for (host, end, net) in [(&hosts.north, "n0", "1"), (&hosts.south, "s0", "2")] {
            host.ip(&["address", "add", &format!("fd00:{net}::2/64"), "dev", end, "nodad"])?;
            host.ip(&["-6", "route", "add", "default", "via", &format!("fd00:{net}::1")])?;
        }
        let at = |net: u8, host: u8| -> IpAddr {
            let text =
                if is_6 { format!("fd00:{net}::{host}") } else { format!("10.10.{net}.{host}") };
            text.parse().unwrap()
        };
        let listen = SocketAddr::new(at(1, 1), DEVICES_PORT);
        let cse = SocketAddr::new(at(2, 2), COAP_PORT);
        let gateway = hosts.middle.run(|| {
            let mut setup = Setup::new(7);
            setup.routes_max = 1000;
            setup.reports = Some(ReportRoute { listen, cse });
            for (name, device, net) in [("lan", "g0", 1), ("wan", "g1", 2)] {
                let address = |text: String| text.parse::<IpAddr>().unwrap();
                setup
                    .link(name, device)
                    .backend(Backend::Xdp)
                    .address(address(format!("10.10.{net}.1")), 24)
                    .address(address(format!("fd00:{net}::1")), 64)
                    .forward_in_driver();
            }
            Planes::open(&setup)
        })??;
        let (writers, entities) = gateway.change_host(|host| {
            let tables = host.tables_mut();
            (tables.entities.take().unwrap(), tables.data_entities())
        });
        let setup = ReportForwarderSetup { listen, cse };
        let forwarder = ReportForwarder::start(gateway.sockets(), setup, &entities)?;
        let device = hosts.north.run(|| UdpSocket::bind((at(1, 2), 40_000)))??;
        device.connect(listen)?;
        let cse = hosts.south.run(|| UdpSocket::bind(cse))??;
        cse.set_read_timeout(Some(WITHIN))?;
        let world = Self { hosts, gateway, forwarder, writers, device, cse, number: 0 };
        let there = || world.ping(at(2, 2));
        if wait_until(WITHIN, there) { Ok(world) } else { Err(world.said().into()) }
    }

    fn ping(&self, to: IpAddr) -> bool {
        let ping = self.hosts.north.command("ping").args(["-n", "-q", "-c1", "-W1"]);
        ping.args([&to.to_string()]).output().is_ok_and(|out| out.status.success())
    }

    fn drivers(&self) -> &DriverReports {
        self.writers.drivers.as_ref().unwrap()
    }

    /// Puts the device into the AE table, with its plan, as the control plane does after its first report.
    fn associate(&mut self) -> Result<Sender, Failed> {
        let configuration = THERMOMETER.configuration().unwrap();
        let (mapping, system) =
            (Mapping::default(), SystemId([0, 0x22, 9, 0x22, 0x5c, 0xfe, 0x4d, 1]));
        let device = Device::new(&mapping, "/id-in/cse-in", system, 7, &configuration);
        let plan = ReportPlan::of_report(&mapping, &device, &configuration, &report(0, 0), "4");
        let plan = plan.unwrap();
        let plan = CoapPlan::new(&plan, &device, Serialisation::Cbor, |request| request).unwrap();
        let place = self.writers.plans.insert(&EntityPlan::new(1, &plan.octets()).unwrap())?;
        let own = self.device.local_addr()?;
        let sender = Sender { address: own.ip(), port: own.port() };
        let entity = Entity { plan: (place, 1), ..Entity::default() };
        self.writers.entities.set(&sender, &entity)?;
        let plan = plan.driver_plan().unwrap();
        assert!(self.drivers().insert(&sender, (place, 1), &plan, &DriverDevice::default()));
        Ok(sender)
    }

    /// Reports of the LAN's link with this outcome in its driver.
    fn count(&self, outcome: &str) -> u64 {
        let status = self.gateway.status().unwrap();
        let counts = &status.links[0].in_driver;
        counts.iter().find(|count| count.outcome == outcome).map_or(0, |count| count.packets)
    }

    fn said(&self) -> String {
        let status = self.gateway.status().map(|status| status.links);
        format!("{status:#?} {:?}", self.forwarder.counts())
    }

    /// Sends reports, whose readings arrive in order; returns how many went in the driver.
    fn send(&mut self, reports: u16) -> Result<u64, Failed> {
        let before = self.count("report-sent");
        let mut octets = [0; 2048];
        for _ in 0..reports {
            self.number += 1;
            self.device.send(&report(self.number, i32::from(self.number) + 300))?;
            let length = self
                .cse
                .recv(&mut octets)
                .map_err(|error| format!("report {}: {error}: {}", self.number, self.said()))?;
            let tenths = self.number + 300;
            let expected = format!("{}.{}", tenths / 10, tenths % 10);
            assert_eq!(reading(&octets[..length]), expected, "report {}", self.number);
        }
        Ok(self.count("report-sent") - before)
    }
}

/// Drivers send reports on, but not while a handler sees what is for this host; both count on from the
/// same number, and the latest one is known, whoever has sent it.
fn every_reading_arrives(is_6: bool) -> Result<(), Failed> {
    let mut world = World::new(is_6)?;
    let sender = world.associate()?;
    // The first ones find the CSE's link-layer address, of which the driver learns.
    let begun = Instant::now();
    while world.send(1)? == 0 {
        assert!(begun.elapsed() < WITHIN, "{}", world.said());
    }
    let all = u64::from(REPORTS);
    assert_eq!(world.send(REPORTS)?, all, "{}", world.said());
    let tap = Attachment::new(At::UdpPort(DEVICES_PORT), Place::Tap);
    let id = world.gateway.attach(tap, Box::new(Count::default()))?;
    assert_eq!(world.send(REPORTS)?, 0, "{}", world.said());
    world.gateway.detach(id)?;
    let now = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros());
    let before = now()?;
    assert_eq!(world.send(REPORTS)?, all, "{}", world.said());
    let after = now()?;
    let reports = world.drivers().reports(&sender, 1).unwrap();
    let (number, by_driver) = (u64::from(world.number), world.count("report-sent"));
    assert_eq!((reports.reports, reports.last), (number, number));
    // The driver is told the wall clock once a second.
    let slack = u64::try_from(Duration::from_secs(1).as_micros())?;
    let times = before - slack..=after + slack;
    assert!(times.contains(&reports.received), "{} of {times:?}", reports.received);
    assert_eq!(reports.latest.octets(), report(world.number, i32::from(world.number) + 300));
    let counts = world.forwarder.counts();
    assert_eq!((counts.reports + by_driver, counts.passed_on), (number, 0), "{counts:?}");
    // The AE table has it soon, for a control plane after this one.
    let is_noted = || world.writers.reports.get(0).unwrap().unwrap() == reports;
    assert!(wait_until(WITHIN, is_noted), "{:?}", world.writers.reports.get(0));
    Ok(())
}
