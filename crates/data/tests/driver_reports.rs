//! Reports that a driver sends on beside the worker: what it makes of them, the worker makes octet for
//! octet; what it passes up is as it came, and the worker counts on from where the driver is.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test may fail loudly"
)]

#[path = "../../stack/tests/common/mod.rs"]
mod common;

use common::ipv6::{self, A6, B6, LAN6, WAN6};
use common::{A, B, Gateway, LAN, LAN_IP, LAN_MAC, WAN, WAN_IP, WAN_MAC, address, interface};
use gatewright_data::{ReportForwarder, ReportForwarderCounts, ReportForwarderSetup};
use gatewright_health::code::{DataRequestId, Handle, InvokeId, SystemId, attribute, event};
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::report::{FixedObservation, encode_scan};
use gatewright_health::specialisation::{
    ACTIVITY, DISPENSER, GLUCOSE, OXIMETER, SCALE, Specialisation, THERMOMETER,
};
use gatewright_interwork::{CoapPlan, Device, Mapping, ReportPlan};
use gatewright_onem2m::{Serialisation, Timestamp};
use gatewright_stack::{Interface, SuiteLink};
use gatewright_tables::records::{Entity, EntityPlan, Sender};
use gatewright_tables::{
    DRIVER_COMPARED_MAX, DRIVER_PIECES_MAX, DRIVER_PORTS, DRIVER_TEXT_MAX, DriverPiece,
    DriverPieceKind, DriverPlan, EntityWriters, RoutesWriter,
};
use gatewright_tables::{DriverDevice, DriverReports, DriverRoute, EntityTables, HopIndex};
use gatewright_wire::{Checksum, IpProtocol};
use gatewright_xdp::program::BpfProgram;
use gatewright_xdp::{
    DriverReason, Forwarding, ForwardingRule, Hop, HopNeighbour, LinkPort, LinkProgram, RuleAction,
    TableSizes, program_clock,
};
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MTU: u32 = 1400;
const FRAMES: usize = 4_000;
const DEVICES_PORT: u16 = 6024;
const COAP_PORT: u16 = 5683;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const SIZES: TableSizes = TableSizes {
    hops: 8,
    hop_groups: 1,
    neighbours: 8,
    routes4: 100,
    groups: 0,
    routes6: 100,
    devices: 32,
};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = Forwarding::new(SIZES).err();
    let trial = |name: &str, test: fn() -> Result<(), Failed>| match &missing {
        None => Trial::test(name, test),
        Some(missing) => {
            let name = format!("{name} (needs BPF: {missing})");
            Trial::test(name, || Ok(())).with_ignored_flag(true)
        }
    };
    let trials = vec![
        trial("reports_of_ipv4_become_requests_of_ipv4", || both([false, false])),
        trial("reports_of_ipv4_become_requests_of_ipv6", || both([false, true])),
        trial("reports_of_ipv6_become_requests_of_ipv4", || both([true, false])),
        trial("reports_of_ipv6_become_requests_of_ipv6", || both([true, true])),
        trial("reports_go_up_while_a_driver_cannot_send_them_on", going_up),
        trial("the_longest_plan_is_carried_out", longest_plan),
        trial("answers_to_requests_of_a_driver_count_once", answers),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A seeded generator: the same frames in every run.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.draw() >> 33).unwrap() % end
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// The kinds of devices, with the object in their reports.
const KINDS: [(&Specialisation, Handle); 6] = [
    (&OXIMETER, Handle(10)),
    (&THERMOMETER, Handle(1)),
    (&SCALE, Handle(1)),
    (&GLUCOSE, Handle(1)),
    (&DISPENSER, Handle(3)),
    (&ACTIVITY, Handle(1)),
];

/// A code without a name in the nomenclature.
const UNNAMED: [u8; 2] = 5_000_u16.to_be_bytes();

/// A device whose reports have one object.
struct Sensor {
    sender: Sender,
    kind: &'static Specialisation,
    handle: Handle,
    plan: CoapPlan,
    serial: u32,
    place: u32,
    number: u16,
    /// Octets behind the mapped ones.
    behind: usize,
    /// What it measured last, with its time.
    measured: Vec<u8>,
}

impl Sensor {
    fn new(
        nth: u16,
        address: IpAddr,
        (kind, handle): (&'static Specialisation, Handle),
        serialisation: Serialisation,
    ) -> Self {
        let configuration = kind.configuration().unwrap();
        let system = SystemId([0, 0x22, 9, 0x22, 0x5c, 0xfe, 0x4d, nth as u8]);
        let (mapping, epoch) = (Mapping::default(), [7, 1 << 40, u64::MAX][usize::from(nth % 3)]);
        let device = Device::new(&mapping, "/id-in/cse-in", system, epoch, &configuration);
        let behind = [0, 7, 300, 1_300][usize::from(nth % 4)];
        let measured = measured((kind, handle, behind), &mut Random(9));
        let like = apdu(handle, 0, &measured);
        let plan = ReportPlan::of_report(&mapping, &device, &configuration, &like, "4").unwrap();
        let plan = CoapPlan::new(&plan, &device, serialisation, |request| request).unwrap();
        let sender = Sender { address, port: 40_000 + nth };
        let (serial, number) = (u32::from(nth) + 1, 65_500);
        Self { sender, kind, handle, plan, serial, place: 0, number, behind, measured }
    }
}

/// What an object measures: values of the kind's encoding, sometimes no number or no date.
fn measured(
    (kind, handle, behind): (&Specialisation, Handle, usize),
    random: &mut Random,
) -> Vec<u8> {
    let metric = kind.metrics.iter().find(|metric| metric.handle == handle).unwrap();
    let mut octets = Vec::new();
    for entry in metric.map {
        match entry.length {
            _ if entry.attribute == attribute::ENUMERATION_OID => octets.extend(UNNAMED),
            8 => octets.extend(time(random)),
            4 => octets.extend(float(random)),
            _ => octets.extend(sfloat(random)),
        }
    }
    octets.extend((0..behind).map(|_| random.draw() as u8));
    octets
}

fn time(random: &mut Random) -> [u8; 8] {
    let bcd = |number: usize| (((number / 10) << 4) | (number % 10)) as u8;
    match random.below(12) {
        0 => random.draw().to_be_bytes(),
        1 => random.one(&[
            [0; 8],
            [0x19, 0x70, 1, 1, 0, 0, 0, 0],
            [0x19, 0x69, 0x12, 0x31, 0, 0, 0, 0],
        ]),
        2 => random
            .one(&[[0, 0, 1, 1, 0, 0, 0, 0], [0x99, 0x99, 0x12, 0x31, 0x23, 0x59, 0x60, 0x99]]),
        _ => [
            0x20,
            bcd(random.below(100)),
            bcd(random.below(12) + 1),
            bcd(random.below(28) + 1),
            bcd(random.below(24)),
            bcd(random.below(60)),
            bcd(random.below(60)),
            bcd(random.below(100)),
        ],
    }
}

fn sfloat(random: &mut Random) -> [u8; 2] {
    let any = random.draw() as u16;
    // The special values, what lies beside them, and what is common.
    let special = random.one(&[0x07fd, 0x07fe, 0x07ff, 0x0800, 0x0801, 0x0802, 0x0803, 0, 0xf000]);
    let common = random.one(&[0x0062, 0xf3c5, 0x004b, 0xf44c]);
    random.one(&[any, any, special, common]).to_be_bytes()
}

fn float(random: &mut Random) -> [u8; 4] {
    let any = random.draw() as u32;
    let exponent = random.one(&[0xff_u32, 0xfe, 0, 1, 7, 8, 9, 0xf8, 0xf7, 0x80, 0x7f, 0xfb]);
    let near = exponent << 24 | any >> 8;
    let special = random.one(&[
        0x007f_fffd_u32,
        0x007f_fffe,
        0x007f_ffff,
        0x0080_0000,
        0x0080_0001,
        0x0080_0002,
        0x0080_0003,
        0,
        0xff00_016d,
    ]);
    random.one(&[any, near, near, near, special]).to_be_bytes()
}

/// A fixed scan report of one object.
fn apdu(handle: Handle, number: u16, octets: &[u8]) -> Vec<u8> {
    let observations = [FixedObservation { handle, octets }];
    let info = encode_scan(DataRequestId::AGENT_INITIATED, number, &observations).unwrap();
    let (time, event) = (u32::from(number) * 8, event::SCAN_FIXED);
    let report = EventReport { handle: Handle::MDS, time, event, info: &info };
    DataApdu { invoke_id: InvokeId(number), message: DataMessage::EventReport(report) }
        .encode()
        .unwrap()
}

/// A frame with a datagram; its UDP checksum is off by `wrong`, and `padding` octets follow.
fn datagram(
    from: SocketAddr,
    to: SocketAddr,
    payload: &[u8],
    wrong: u16,
    padding: usize,
) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let mut udp = from.port().to_be_bytes().to_vec();
    udp.extend(to.port().to_be_bytes());
    udp.extend(length.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    let mut sum = pseudo(from.ip(), to.ip(), length);
    sum.add(&udp);
    let checksum = sum.finish_udp().wrapping_add(wrong);
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    let (kind, mut header) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0x45, 0];
            header.extend((20 + length).to_be_bytes());
            header.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
            header.extend(from.octets());
            header.extend(to.octets());
            let mut sum = Checksum::new();
            sum.add(&header);
            let sum = sum.finish();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            (0x0800_u16, header)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut header = vec![0x60, 0, 0, 0];
            header.extend(length.to_be_bytes());
            header.extend([17, 64]);
            header.extend(from.octets());
            header.extend(to.octets());
            (0x86dd, header)
        }
        _ => unreachable!("both are of one family"),
    };
    header.extend(udp);
    header.resize(header.len() + padding, 0);
    [&LAN_MAC.0[..], &A.0.0, &kind.to_be_bytes(), &header].concat()
}

fn pseudo(from: IpAddr, to: IpAddr, length: u16) -> Checksum {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            Checksum::pseudo_ipv4(from, to, IpProtocol::UDP, length)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            Checksum::pseudo_ipv6(from, to, IpProtocol::UDP, length.into())
        }
        _ => unreachable!("both are of one family"),
    }
}

/// A gateway whose worker forwards reports, with the AE table.
struct Worker {
    gateway: Gateway,
    forwarder: ReportForwarder,
    tables: EntityTables,
    _writers: EntityWriters,
}

/// Whether devices send by IPv6, and whether the CSE is reached by it.
type Families = [bool; 2];

fn setup([listen_6, cse_6]: Families) -> ReportForwarderSetup {
    let listen: IpAddr = if listen_6 { LAN6.into() } else { LAN_IP.into() };
    let cse: IpAddr = if cse_6 { B6.into() } else { B.1.into() };
    ReportForwarderSetup {
        listen: SocketAddr::new(listen, DEVICES_PORT),
        cse: SocketAddr::new(cse, COAP_PORT),
    }
}

impl Worker {
    fn new(
        families: Families,
        sensors: &mut [Sensor],
        drivers: Option<DriverReports>,
    ) -> Result<Self, Failed> {
        let mut gateway =
            Gateway::of(&[SuiteLink::Ethernet(LAN), SuiteLink::Ethernet(WAN)], |_| {});
        let ends =
            [(LAN, LAN_MAC, LAN_IP, LAN6, 0x10, 1500), (WAN, WAN_MAC, WAN_IP, WAN6, 0x20, MTU)];
        for (link, mac, ip, ip6, local, mtu) in ends {
            let own = vec![address(ip, 24), ipv6::with(ip6), ipv6::with(ipv6::link_local(local))];
            gateway.host.add_interface(Interface { mtu, ..interface(link, mac, own) })?;
        }
        gateway.tick(10);
        gateway.introduce(LAN, LAN_MAC, LAN_IP, A);
        gateway.introduce(WAN, WAN_MAC, WAN_IP, B);
        gateway.receive(LAN, &[ipv6::solicitation(A.0, A6, LAN6)]);
        gateway.receive(WAN, &[ipv6::solicitation(B.0, B6, WAN6)]);
        let mut writers = gateway.host.tables_mut().entities.take().unwrap();
        let mut entities = gateway.host.tables_mut().data_entities();
        entities.drivers = drivers;
        for sensor in sensors {
            let plan = EntityPlan::new(sensor.serial, &sensor.plan.octets()).unwrap();
            sensor.place = writers.plans.insert(&plan)?;
            let plan = (sensor.place, sensor.serial);
            writers.entities.set(&sensor.sender, &Entity { plan, ..Entity::default() })?;
        }
        let tables = entities.readers.clone();
        let forwarder = ReportForwarder::start(&gateway.sockets, setup(families), &entities)?;
        gateway.tick(0);
        Ok(Self { gateway, forwarder, tables, _writers: writers })
    }

    /// What leaves when a frame arrives.
    fn receive(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let sent = self.gateway.receive(LAN, &[frame.to_vec()]);
        sent.into_iter()
            .map(|(link, frame)| {
                assert_eq!(link, WAN);
                frame
            })
            .collect()
    }
}

/// The driver of the LAN's link.
struct Driver {
    forwarding: Forwarding,
    program: BpfProgram,
    drivers: DriverReports,
}

impl Driver {
    fn new(families: Families) -> Result<Self, Failed> {
        let mut forwarding = Forwarding::new(SIZES)?;
        let mut routes = RoutesWriter::in_memory(100)?;
        let hop = |port, source: gatewright_wire::MacAddress| Hop {
            port,
            mtu: MTU,
            source: source.0,
            neighbour: HopNeighbour::Destination,
        };
        let [lan, wan] = [HopIndex(0), HopIndex(1)];
        forwarding.set_hop(lan, Some(&hop(0, LAN_MAC)))?;
        forwarding.set_hop(wan, Some(&hop(1, WAN_MAC)))?;
        // A next hop that is not set: this host.
        let own = HopIndex(2);
        for (prefix, hop) in [("10.0.0.0/24", lan), ("10.0.0.1/32", own), ("10.0.1.0/24", wan)] {
            routes.insert(prefix.parse()?, hop)?;
            forwarding.insert4(prefix.parse()?, hop, &routes)?;
        }
        for (prefix, hop) in [("fd00:1::/64", lan), ("fd00:1::1/128", own), ("fd00:2::/64", wan)] {
            forwarding.routes6().insert(prefix.parse()?, hop)?;
        }
        for (port, ip, mac) in [(1, IpAddr::from(B.1), B.0), (1, B6.into(), B.0)] {
            forwarding.set_neighbour(port, ip, Some(mac.0))?;
        }
        let own = [IpAddr::from(LAN_IP), WAN_IP.into(), LAN6.into(), WAN6.into()];
        forwarding.set_own(own);
        // Nothing is sent: the loopback stands for any interface.
        forwarding.set_port(1, 1)?;
        let program = forwarding.program(&LinkPort { index: 0, mac: LAN_MAC.0 })?;
        forwarding.maps()?.add_reports(&LinkProgram::passing(0))?;
        let drivers = forwarding.driver_reports();
        let ReportForwarderSetup { listen, cse } = setup(families);
        let source = if cse.is_ipv6() { WAN6.into() } else { WAN_IP.into() };
        drivers.set_route(Some(&DriverRoute { listen, cse, source, link: 1 }));
        drivers.set_clock(wall().checked_sub(program_clock()).unwrap().as_micros() as u64);
        Ok(Self { forwarding, program, drivers })
    }

    fn associate(&self, sensors: &[Sensor]) {
        for sensor in sensors {
            let plan = sensor.plan.driver_plan().unwrap();
            let before = DriverDevice { time: sensor.plan.last_time(), ..DriverDevice::default() };
            let place = (sensor.place, sensor.serial);
            assert!(self.drivers.insert(&sensor.sender, place, &plan, &before));
        }
    }

    fn said(&self) -> Result<String, Failed> {
        Ok(format!("{:?} {:?}", self.forwarding.report_counts(0)?, self.forwarding.counts(0)?))
    }

    fn count(&self, reason: DriverReason) -> Result<u64, Failed> {
        let counts = self.forwarding.report_counts(0)?;
        Ok(counts.iter().find(|(of, _)| *of == reason).unwrap().1.packets)
    }
}

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// What of a request's frame does not depend on its sender's numbers and on the time: both its
/// checksums are right.
fn request(frame: &[u8]) -> Vec<u8> {
    let is_6 = frame[12..14] == [0x86, 0xdd];
    let (ip, udp) = frame[14..].split_at(if is_6 { 40 } else { 20 });
    let (from, to): (IpAddr, IpAddr) = if is_6 {
        let part = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap();
        (part(8).into(), part(24).into())
    } else {
        let mut sum = Checksum::new();
        sum.add(ip);
        assert!(sum.is_valid(), "{ip:02x?}");
        let part = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap();
        (part(12).into(), part(16).into())
    };
    let mut sum = pseudo(from, to, udp.len() as u16);
    sum.add(udp);
    assert!(sum.is_valid() && udp[6..8] != [0, 0], "{udp:02x?}");
    let mut frame = frame.to_vec();
    if !is_6 {
        // Identification and checksum.
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
    let at = frame.len() - udp.len();
    // Source port and checksum; message ID and token.
    for range in [at..at + 2, at + 6..at + 8, at + 10..at + 16] {
        frame[range].fill(0);
    }
    if let Some(at) = time_at(&frame) {
        frame[at..at + 22].fill(b'0');
    }
    frame
}

/// Where a frame has a time as oneM2M writes it.
fn time_at(frame: &[u8]) -> Option<usize> {
    let digits = |octets: &[u8]| octets.iter().all(u8::is_ascii_digit);
    let is_it = |octets: &[u8]| {
        digits(&octets[..8])
            && octets[8] == b'T'
            && digits(&octets[9..15])
            && octets[15] == b','
            && digits(&octets[16..])
    };
    frame.windows(22).position(is_it)
}

/// Sensors of all kinds, in both serialisations.
fn sensors([listen_6, _]: Families) -> Vec<Sensor> {
    let address: IpAddr = if listen_6 { A6.into() } else { A.1.into() };
    let both = [Serialisation::Json, Serialisation::Cbor];
    let all = KINDS.into_iter().flat_map(|kind| both.map(|serialisation| (kind, serialisation)));
    let sensor = |(nth, (kind, serialisation))| Sensor::new(nth, address, kind, serialisation);
    // Durations in CBOR are the worker's.
    (0..).zip(all).map(sensor).filter(|it: &Sensor| it.plan.driver_plan().is_some()).collect()
}

/// A frame of a sensor, or of nobody: mostly a report as its plan has it.
fn frame(random: &mut Random, sensors: &mut [Sensor], to: SocketAddr) -> Vec<u8> {
    let place = random.below(sensors.len());
    let sensor = &mut sensors[place];
    let Sender { address, mut port } = sensor.sender;
    sensor.number = match random.below(20) {
        0 => random.draw() as u16,
        1 => sensor.number,
        _ => sensor.number.wrapping_add(1),
    };
    // A clock may stand still.
    if random.below(5) > 0 {
        sensor.measured = measured((sensor.kind, sensor.handle, sensor.behind), random);
    }
    let mut payload = apdu(sensor.handle, sensor.number, &sensor.measured);
    let (mut wrong, mut padding) = (0, random.one(&[0, 0, 0, 1, 6, 40]));
    match random.below(24) {
        0 => port = 39_999,
        1 => wrong = 1 + random.draw() as u16 % 60_000,
        2 => payload.truncate(random.below(payload.len() + 1)),
        3 => payload.extend(vec![0; 1 + random.below(300)]),
        4 | 5 => {
            let at = random.below(payload.len());
            payload[at] ^= 1 << random.below(8);
        }
        6 => padding = 600,
        _ => {}
    }
    let mut frame = datagram(SocketAddr::new(address, port), to, &payload, wrong, padding);
    let is_4 = frame[12..14] == [8, 0];
    let udp = if is_4 { 34 } else { 54 };
    match random.below(60) {
        // No checksum, another port, a length that is not its own.
        0 => frame[udp + 6..udp + 8].fill(0),
        1 => frame[udp + 2] ^= 1,
        2 => frame[udp + 5] ^= 1,
        _ => {}
    }
    frame
}

/// The driver's and the worker's requests are the same, and together they count and keep what the worker
/// alone does.
fn both(families: Families) -> Result<(), Failed> {
    let mut sensors = sensors(families);
    let driver = Driver::new(families)?;
    let mut alone = Worker::new(families, &mut sensors, None)?;
    let mut beside = Worker::new(families, &mut sensors, Some(driver.drivers.clone()))?;
    driver.associate(&sensors);
    let (listen, mut random) = (setup(families).listen, Random(0x5eed_0014));
    let (mut sent_on, mut tokens) = (0, BTreeMap::new());
    for nth in 0..FRAMES {
        let frame = frame(&mut random, &mut sensors, listen);
        let run = driver.program.run(&frame, 1)?;
        let expected: Vec<_> = alone.receive(&frame).iter().map(|it| request(it)).collect();
        let sent = match run.verdict {
            XDP_REDIRECT => {
                sent_on += 1;
                note_token(&mut tokens, &run.frame);
                check_time(&driver, &sensors, &frame, &run.frame);
                vec![run.frame]
            }
            verdict => {
                assert_eq!((verdict, &run.frame), (XDP_PASS, &frame), "frame {nth}: {frame:02x?}");
                beside.receive(&frame)
            }
        };
        let sent: Vec<_> = sent.iter().map(|it| request(it)).collect();
        assert_eq!(sent, expected, "frame {nth}, verdict {}: {frame:02x?}", run.verdict);
    }
    assert!(sent_on > FRAMES / 3, "{sent_on}");
    assert!(tokens.len() + 3 > sent_on, "{} tokens of {sent_on} requests", tokens.len());
    assert_eq!(driver.count(DriverReason::Sent)?, sent_on as u64);
    for reason in [DriverReason::Stranger, DriverReason::Differs, DriverReason::Checksum] {
        assert!(driver.count(reason)? > 20, "{reason:?}");
    }
    check_counts(sent_on as u64, alone.forwarder.counts(), beside.forwarder.counts());
    for sensor in &sensors {
        let expected = alone.tables.reports.get(sensor.place)?.unwrap();
        let mut found = driver.drivers.reports(&sensor.sender, sensor.serial).unwrap();
        found.received = expected.received;
        assert_eq!(found, expected, "{}", sensor.kind.name);
    }
    Ok(())
}

fn check_counts(sent_on: u64, alone: ReportForwarderCounts, beside: ReportForwarderCounts) {
    let together = ReportForwarderCounts {
        reports: beside.reports + sent_on,
        requests: beside.requests + sent_on,
        ..beside
    };
    assert_eq!(together, alone);
    assert!(beside.reports > 0 && beside.passed_on > 0 && beside.strangers > 0, "{beside:?}");
}

/// Notes the token of a request.
fn note_token(tokens: &mut BTreeMap<[u8; 4], u32>, frame: &[u8]) {
    let coap = if frame[12..14] == [8, 0] { 42 } else { 62 };
    *tokens.entry(frame[coap + 4..coap + 8].try_into().unwrap()).or_default() += 1;
}

/// The time of arrival in a request is the one that is kept, and that of the wall clock.
fn check_time(driver: &Driver, sensors: &[Sensor], frame: &[u8], sent: &[u8]) {
    let udp = if frame[12..14] == [8, 0] { 34 } else { 54 };
    let port = u16::from_be_bytes([frame[udp], frame[udp + 1]]);
    let sensor = sensors.iter().find(|sensor| sensor.sender.port == port).unwrap();
    let device = driver.drivers.get(&sensor.sender, sensor.serial).unwrap();
    let now = wall().as_micros() as u64;
    assert!(now.abs_diff(device.received) < 5_000_000, "{now} {}", device.received);
    let at = time_at(sent).unwrap();
    let text = Timestamp::from_micros(device.received).to_string();
    assert_eq!(&sent[at..at + 22], text.as_bytes());
}

/// A report of a sensor as its plan has it.
fn plain_report(sensor: &mut Sensor, to: SocketAddr) -> Vec<u8> {
    sensor.number = sensor.number.wrapping_add(1);
    let octets = [&[0, 60][..], &vec![0; sensor.behind]].concat();
    let payload = apdu(sensor.handle, sensor.number, &octets);
    let Sender { address, port } = sensor.sender;
    datagram(SocketAddr::new(address, port), to, &payload, 0, 0)
}

/// A plan with as much of everything as there is room for is compared and written to its last octet.
fn longest_plan() -> Result<(), Failed> {
    const LENGTH: usize = 200;
    let (driver, listen) = (Driver::new([false; 2])?, setup([false; 2]).listen);
    driver.drivers.set_ports(&[50_000; DRIVER_PORTS]);
    let sender = Sender { address: A.1.into(), port: 41_000 };
    let empty = apdu(Handle(1), 0, &[]).len();
    let mut report = apdu(Handle(1), 0, &vec![5; LENGTH - empty]);
    report[LENGTH - 2..].copy_from_slice(&[0, 98]);
    let text: Vec<u8> = (0..DRIVER_TEXT_MAX).map(|at| (at % 251) as u8).collect();
    let is_text = true;
    let (kind, at) = (DriverPieceKind::Sfloat, (LENGTH - 2) as u16);
    let mut pieces = vec![DriverPiece { kind, at, length: 0, is_text }];
    let each = DRIVER_TEXT_MAX.div_ceil(DRIVER_PIECES_MAX - 1);
    pieces.extend((0..DRIVER_PIECES_MAX - 1).map(|nth| {
        let (at, end) = (nth * each, DRIVER_TEXT_MAX.min((nth + 1) * each));
        let (kind, length) = (DriverPieceKind::Text, (end - at) as u16);
        DriverPiece { kind, at: at as u16, length, is_text: false }
    }));
    let mut fixed = vec![0; DRIVER_COMPARED_MAX];
    fixed[DRIVER_COMPARED_MAX - 1] = 0xff;
    let expected = report[..DRIVER_COMPARED_MAX].to_vec();
    let length = LENGTH as u16;
    let plan =
        DriverPlan { is_cbor: true, epoch: 1, time_at: 0, length, expected, fixed, text, pieces };
    assert!(driver.drivers.insert(&sender, (0, 1), &plan, &DriverDevice::default()));
    let from = SocketAddr::new(sender.address, sender.port);
    let run = driver.program.run(&datagram(from, listen, &report, 0, 0), 1)?;
    assert_eq!(run.verdict, XDP_REDIRECT, "{}", driver.said()?);
    let written = [b"\x6298", &plan.text[..]].concat();
    assert_eq!(run.frame[14 + 20 + 8 + 8..], written);
    // The last compared octet.
    report[DRIVER_COMPARED_MAX - 1] ^= 1;
    let run = driver.program.run(&datagram(from, listen, &report, 0, 0), 1)?;
    assert_eq!((run.verdict, driver.count(DriverReason::Differs)?), (XDP_PASS, 1));
    // One octet more does not fit.
    let text = vec![1; DRIVER_TEXT_MAX + 1];
    let beyond = DriverPlan { text, ..plan };
    assert!(!driver.drivers.insert(&sender, (0, 1), &beyond, &DriverDevice::default()));
    Ok(())
}

/// A driver that has lost a thing that it needs passes reports up as they came, with the cause; the next
/// one is sent on when it has it again.
fn going_up() -> Result<(), Failed> {
    let families = [false, false];
    let mut sensors = sensors(families);
    let mut driver = Driver::new(families)?;
    let mut worker = Worker::new(families, &mut sensors, Some(driver.drivers.clone()))?;
    driver.associate(&sensors);
    let setup = setup(families);
    let mut expect = |driver: &Driver, verdict: u32, reason: DriverReason| -> Result<(), Failed> {
        let before = driver.count(reason)?;
        let frame = plain_report(&mut sensors[0], setup.listen);
        let run = driver.program.run(&frame, 1)?;
        assert_eq!((run.verdict, driver.count(reason)?), (verdict, before + 1), "{reason:?}");
        assert!(verdict != XDP_PASS || run.frame == frame, "{reason:?}");
        Ok(())
    };
    let cse = setup.cse.ip();
    expect(&driver, XDP_REDIRECT, DriverReason::Sent)?;
    driver.forwarding.set_neighbour(1, cse, None)?;
    expect(&driver, XDP_PASS, DriverReason::NoWay)?;
    driver.forwarding.set_neighbour(1, cse, Some(B.0.0))?;
    expect(&driver, XDP_REDIRECT, DriverReason::Sent)?;
    driver.forwarding.look_at(1, [false; 2], [true, false])?;
    expect(&driver, XDP_PASS, DriverReason::LookedAt)?;
    driver.forwarding.look_at(1, [false; 2], [false; 2])?;
    let rule = ForwardingRule { action: RuleAction::Count, place: 0, header_len: 0 };
    driver.forwarding.set_rules(0, false, &[rule])?;
    expect(&driver, XDP_PASS, DriverReason::LookedAt)?;
    driver.forwarding.set_rules(0, false, &[])?;
    let hop = Hop { port: 1, mtu: 200, source: WAN_MAC.0, neighbour: HopNeighbour::Destination };
    driver.forwarding.set_hop(HopIndex(1), Some(&hop))?;
    expect(&driver, XDP_PASS, DriverReason::NoRoom)?;
    driver.forwarding.set_hop(HopIndex(1), Some(&Hop { mtu: MTU, ..hop }))?;
    let route =
        DriverRoute { listen: setup.listen, cse: setup.cse, source: WAN_IP.into(), link: 2 };
    driver.drivers.set_route(Some(&route));
    expect(&driver, XDP_PASS, DriverReason::NoWay)?;
    driver.drivers.set_route(Some(&DriverRoute { link: 1, ..route }));
    expect(&driver, XDP_REDIRECT, DriverReason::Sent)?;
    let drivers = driver.drivers.clone();
    let (sender, serial) = (Sender { address: A.1.into(), port: 40_000 }, 1);
    let held = drivers.hold(&sender, serial).unwrap();
    expect(&driver, XDP_PASS, DriverReason::Busy)?;
    drop(held);
    expect(&driver, XDP_REDIRECT, DriverReason::Sent)?;
    drivers.end_plan(0);
    expect(&driver, XDP_PASS, DriverReason::Stranger)?;
    // While its record is held, the worker does not know how to number a report of it either.
    let Sensor { sender, serial, .. } = sensors[1];
    let held = drivers.hold(&sender, serial).unwrap();
    let report = plain_report(&mut sensors[1], setup.listen);
    assert!(worker.receive(&report).is_empty());
    assert_eq!(worker.forwarder.counts().passed_on, 1);
    drop(held);
    assert_eq!(worker.receive(&report).len(), 1);
    Ok(())
}

/// An answer to a driver's request counts as executed, once; one that says that the place is lacking ends
/// the device's plan.
fn answers() -> Result<(), Failed> {
    let families = [false, false];
    let mut sensors = sensors(families);
    let driver = Driver::new(families)?;
    let mut worker = Worker::new(families, &mut sensors, Some(driver.drivers.clone()))?;
    driver.associate(&sensors);
    let listen = setup(families).listen;
    for (code, sent_on) in [(0x41, true), (0x84, true), (0x41, false)] {
        let frame = plain_report(&mut sensors[0], listen);
        let run = driver.program.run(&frame, 1)?;
        let is_sent_on = run.verdict == XDP_REDIRECT;
        assert_eq!(is_sent_on, sent_on, "{}", driver.said()?);
        if !sent_on {
            break;
        }
        let (port, token) = (&run.frame[34..36], &run.frame[46..50]);
        let port = u16::from_be_bytes(port.try_into()?);
        let answer = [&[0x54, code, 9, 9], token].concat();
        let (from, to) = (setup(families).cse, SocketAddr::new(WAN_IP.into(), port));
        let mut frame = datagram(from, to, &answer, 0, 0);
        frame[..12].copy_from_slice(&[WAN_MAC.0, B.0.0].concat());
        let before = worker.forwarder.counts();
        for _ in 0..2 {
            worker.gateway.receive(WAN, &[frame.clone()]);
        }
        let after = worker.forwarder.counts();
        let executed = u64::from(code == 0x41);
        assert_eq!(after.created, before.created + executed);
        assert_eq!(after.refused, before.refused + 1 - executed);
        assert_eq!(after.unmatched, before.unmatched + 1, "the second one");
    }
    Ok(())
}
