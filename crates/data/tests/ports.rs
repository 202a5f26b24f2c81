//! The same random scenario by the ports of threads, of a process and of the simulator: handlers come
//! and go, links go down and up, routes change, frames arrive, time passes. All do the same with
//! every frame, and count the same.
//!
//! This test is its own data plane: with [`SERVES`] in its environment it serves the other process.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_data::{
    Clock, DataError, DataProcess, DataSetup, DeviceSetup, HANDLER_TAKEN, HandlerNow, HandlerOrder,
    HandlerValue, Pace, Port, PortAnswer, PortRequest, ProcessCommand, ProcessStarted,
    RequestNumber, Simulator, StageNumber, TraceNumber, TraceOrder, VirtualClock, WorkerLink,
    Workers, start,
};
use gatewright_link::KernelTables;
use gatewright_packet::{CHUNK_SIZE, LinkAddress, LinkIndex};
use gatewright_stack::{
    Address, AddressState, At, Attachment, AttachmentId, Host, Interface, NeighbourLimits, Place,
    Route, Side, TraceStep, builtin::Match,
};
use gatewright_tables::{
    Counted, CounterName, CounterOwner, Prefix,
    records::{Neighbour, NeighbourKey, NeighbourState},
};
use gatewright_wire::{EtherType, IpProtocol, MacAddress};
use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

const LINKS: u16 = 3;
const ROUTES_MAX: u32 = 1000;
const SERVES: &str = "GATEWRIGHT_DATA_TEST_SERVES";
const OPERATIONS: usize = 400;
const SEEDS: u64 = 4;
const PATIENCE: Duration = Duration::from_secs(20);

/// The sequence of Knuth's MMIX.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn octet(&mut self, below: u64) -> u8 {
        u8::try_from(self.below(below)).unwrap()
    }

    fn link(&mut self) -> LinkIndex {
        LinkIndex(u16::try_from(self.below(LINKS.into())).unwrap())
    }
}

/// One step of a scenario.
#[derive(Clone, Debug)]
enum Operation {
    Attach(Attachment, HandlerValue),
    /// Detaches the handler of this place in the order.
    Detach(usize),
    SetLink(LinkIndex, bool),
    AddRoute(u8, LinkIndex),
    RemoveRoute(u8),
    Frame(LinkIndex, Vec<u8>),
    Pass(Duration),
}

fn mac(link: u16) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, link.to_le_bytes()[0]])
}

fn operation(random: &mut Random) -> Operation {
    match random.below(16) {
        0 => {
            let at = [
                At::Frame,
                At::EtherType(EtherType::IPV4),
                At::IpProtocol(IpProtocol::UDP),
                At::IpProtocol(IpProtocol(200)),
            ];
            let at = at[usize::from(random.octet(4))];
            let place = [Place::Before, Place::Tap, Place::After][usize::from(random.octet(3))];
            let side = [Side::Receive, Side::Transmit][usize::from(random.octet(2))];
            let link = (random.below(2) == 0).then(|| random.link());
            Operation::Attach(Attachment { at, side, place, link }, handler(random))
        }
        1 => Operation::Detach(usize::from(random.octet(6))),
        2 => Operation::SetLink(random.link(), random.below(3) > 0),
        3 => Operation::AddRoute(random.octet(4), random.link()),
        4 => Operation::RemoveRoute(random.octet(4)),
        5 => Operation::Pass(Duration::from_millis(random.below(1500))),
        _ => Operation::Frame(random.link(), frame(random)),
    }
}

fn handler(random: &mut Random) -> HandlerValue {
    match random.below(5) {
        0 | 1 => HandlerValue::Count,
        2 => {
            let which = Match { port: Some(u16::from(random.octet(3))), ..Match::default() };
            HandlerValue::Drop { which }
        }
        3 => HandlerValue::RateLimit { rate: 5, burst: 3 },
        _ => HandlerValue::Mirror { to: random.link() },
    }
}

/// An IPv4 packet in an Ethernet frame: for a neighbour, a route, the host itself, or nobody; whole,
/// at its last hop, or broken.
fn frame(random: &mut Random) -> Vec<u8> {
    let own = mac(random.link().0);
    let net = random.octet(u64::from(LINKS) + 1);
    let to = match random.below(3) {
        0 => [192, 0, 2, random.octet(4)],
        _ => [10, 0, net, 1 + random.octet(4)],
    };
    let hops = [0, 1, 64][usize::from(random.octet(3))];
    let protocol = [17, 17, 1, 200][usize::from(random.octet(4))];
    let mut ip = vec![0x45, 0, 0, 32, 0, random.octet(9), 0, 0, hops, protocol, 0, 0];
    ip.extend([10, 0, random.octet(3), 9]);
    ip.extend(to);
    let sum: u32 =
        ip.as_chunks::<2>().0.iter().map(|two| u32::from(u16::from_be_bytes(*two))).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(0);
    if random.below(8) > 0 {
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let payload = [4, 0, 0, random.octet(3), 0, 12, 0, 0, 1, 2, 3, random.octet(9)];
    let mut frame = [&own.0[..], &[2, 0, 0, 0, 1, 9], &[8, 0], &ip, &payload].concat();
    if random.below(10) == 0 {
        frame.truncate(random.octet(40).into());
    }
    frame
}

/// The host of a gateway of three links, with two neighbours each.
fn host() -> Host {
    furnished(Host::with_random(ROUTES_MAX, [3, 5]).unwrap())
}

fn furnished(mut host: Host) -> Host {
    for link in 0..LINKS {
        let net = link.to_le_bytes()[0];
        let address = |last| Ipv4Addr::new(10, 0, net, last);
        let own = Address { ip: address(1).into(), prefix_len: 24, state: AddressState::Preferred };
        host.add_interface(Interface {
            link: LinkIndex(link),
            name: format!("link{link}"),
            link_address: LinkAddress::ethernet(mac(link).0),
            mtu: 1500,
            addresses: vec![own],
            up: true,
            forwarding: true,
            ..Interface::default()
        })
        .unwrap();
        for last in [2, 3] {
            let record = Neighbour {
                address: LinkAddress::ethernet([2, 0, 0, 0, net, last]),
                state: NeighbourState::Permanent,
                router: false,
            };
            let key = NeighbourKey { link, address: address(last).into() };
            host.tables_mut().permanent.set(&key, &record).unwrap();
        }
    }
    host
}

fn setup(workers: usize) -> DataSetup {
    let link = |link| WorkerLink {
        name: format!("link{link}"),
        device: DeviceSetup::Spare(LinkIndex(link)),
        queues: None,
    };
    DataSetup {
        links: (0..LINKS).map(link).collect(),
        workers,
        spin: Duration::ZERO,
        frames: 1024,
        chunk_size: CHUNK_SIZE,
        cores: Vec::new(),
        neighbours: NeighbourLimits::DEFAULT,
        seed: 7,
        waits: false,
    }
}

/// A gateway behind a port.
struct Gateway<P> {
    port: P,
    clock: VirtualClock,
    host: Host,
    attached: Vec<AttachmentId>,
    next_id: u32,
    /// Tells a clock elsewhere what the time is.
    tell: Box<dyn Fn(Duration)>,
}

impl<P: Port> Gateway<P> {
    fn ask(&self, request: PortRequest) -> PortAnswer {
        let number = self.port.submit(request).unwrap();
        self.port.answer(number, PATIENCE).unwrap()
    }

    /// Waits until the workers have done what they were asked for. A worker answers at the
    /// beginning of a turn; the turn before is then over.
    fn settle(&self) {
        for _ in 0..3 {
            self.ask(PortRequest::Links);
        }
    }

    /// Executes an operation; returns the steps of its frame.
    fn execute(&mut self, operation: &Operation) -> Vec<TraceStep> {
        let mut steps = Vec::new();
        match operation {
            Operation::Attach(attachment, value) => {
                let id = AttachmentId(self.next_id);
                let kept = self.attached.iter().map(|id| HandlerOrder::Kept(*id));
                let new = HandlerOrder::New(id, *attachment, value.clone());
                // No packet passes some positions.
                if let Some(stage) = self.stage(kept.chain([new]).collect()) {
                    self.ask(PortRequest::Commit(stage));
                    self.attached.push(id);
                    self.next_id += 1;
                }
            }
            Operation::Detach(place) if *place < self.attached.len() => {
                let gone = CounterOwner::Handler(self.attached.remove(*place).0);
                let taken = |side: &Self| side.host.tables().counters.sum(gone, HANDLER_TAKEN);
                assert!(taken(self).is_some(), "an attached handler has its counters");
                let kept = self.attached.iter().map(|id| HandlerOrder::Kept(*id)).collect();
                let stage = self.stage(kept).expect("they stand already");
                self.ask(PortRequest::Commit(stage));
                assert_eq!(taken(self), None, "its slots are free for others");
            }
            Operation::Detach(_) => {}
            Operation::SetLink(link, up) => {
                self.ask(PortRequest::SetLink { link: *link, up: *up });
            }
            Operation::AddRoute(last, link) => {
                let to = Prefix::new(Ipv4Addr::new(192, 0, 2, *last), 32).unwrap();
                let gateway = Ipv4Addr::new(10, 0, link.0.to_le_bytes()[0], 2).into();
                self.host.add_route(to, Route::Via { link: *link, gateway }).unwrap();
            }
            Operation::RemoveRoute(last) => {
                self.host.remove_route(Prefix::new(Ipv4Addr::new(192, 0, 2, *last), 32).unwrap());
            }
            Operation::Frame(link, octets) => {
                let trace = TraceNumber(0);
                let order = TraceOrder {
                    number: trace,
                    link: Some(*link),
                    which: Match::default(),
                    frame: Some(octets.clone()),
                    own: None,
                };
                let number = self.port.submit(PortRequest::Trace(order)).unwrap();
                self.port.submit(PortRequest::EndTrace(Some(trace))).unwrap();
                let PortAnswer::Traced(traced) = self.port.answer(number, PATIENCE).unwrap() else {
                    panic!("it was a trace");
                };
                steps = traced
                    .into_iter()
                    .map(|step| TraceStep { took: Duration::ZERO, ..step })
                    .collect();
            }
            Operation::Pass(time) => {
                self.clock.set(self.clock.now() + *time);
                (self.tell)(self.clock.now());
            }
        }
        self.settle();
        steps
    }

    fn stage(&self, orders: Vec<HandlerOrder>) -> Option<StageNumber> {
        // Another process refuses by its answer.
        let number = self.port.submit(PortRequest::Stage(orders)).ok()?;
        match self.port.answer(number, PATIENCE).ok()? {
            PortAnswer::Staged(stage) => Some(stage),
            other => panic!("{other:?}"),
        }
    }

    /// All that is counted: by links, layers, ways, handlers.
    fn counted(&self, handlers: Vec<HandlerNow>) -> (BTreeMap<String, u64>, Vec<HandlerNow>) {
        // With it the workers show what their links have counted.
        self.ask(PortRequest::Links);
        let table = self.host.tables().counters;
        let line = |Counted { name, value }: Counted| {
            let CounterName { worker, owner, of, link, item } = name;
            (format!("{worker} {owner:?} {of} {link:?} {item}"), value)
        };
        (table.iter().map(line).collect(), handlers)
    }

    fn sum(&self, owner: impl Fn(CounterOwner) -> bool) -> u64 {
        let all = self.host.tables().counters;
        all.iter().filter(|counted| owner(counted.name.owner)).map(|counted| counted.value).sum()
    }
}

fn threads(workers: usize) -> (Gateway<std::sync::Arc<gatewright_data::ThreadPort>>, Workers) {
    let (mut host, clock) = (host(), VirtualClock::default());
    let started =
        start(&setup(workers), &mut host, &KernelTables::default(), Clock::Virtual(clock.clone()))
            .unwrap();
    let port = std::sync::Arc::clone(started.workers.port());
    let (attached, next_id) = (Vec::new(), 1);
    let side = Gateway { port, clock, host, attached, next_id, tell: Box::new(|_| ()) };
    (side, started.workers)
}

fn simulated(workers: usize) -> Gateway<Simulator> {
    let mut host = host();
    let port = Simulator::new(&setup(workers), &mut host).unwrap();
    let clock = port.clock().clone();
    Gateway { port, clock, host, attached: Vec::new(), next_id: 1, tell: Box::new(|_| ()) }
}

fn process(workers: usize) -> (Gateway<std::sync::Arc<gatewright_data::ProcessPort>>, u32) {
    let (mut host, clock) =
        (furnished(Host::shared(ROUTES_MAX, [3, 5]).unwrap()), VirtualClock::default());
    let own = std::env::current_exe().unwrap().into_os_string();
    let arguments = ["--exact", "serves_the_other_process", "--nocapture"].map(Into::into);
    let command = ProcessCommand {
        program: "env".into(),
        arguments: [format!("{SERVES}=1").into(), own].into_iter().chain(arguments).collect(),
        name: String::new(),
        routes_max: ROUTES_MAX,
        clock: Some(Duration::ZERO),
        divided: false,
        maps: Err("no link forwards in its driver".to_owned()),
    };
    let watch = |event| panic!("{event:?}");
    let ProcessStarted { process, .. } =
        DataProcess::start(command, &setup(workers), (&mut host, None), watch).unwrap();
    let (port, id) = (std::sync::Arc::clone(process.port()), process.id());
    let tell = Box::new(move |now| process.set_clock(now).unwrap());
    (Gateway { port, clock, host, attached: Vec::new(), next_id: 1, tell }, id)
}

/// The data plane of the process, if this is it.
#[test]
fn serves_the_other_process() {
    if std::env::var_os(SERVES).is_some() {
        gatewright_data::serve(Duration::MAX, || {}).unwrap();
    }
}

#[test]
fn threads_process_and_simulator_do_the_same() {
    for seed in 0..SEEDS {
        let workers = if seed % 2 == 0 { 1 } else { 2 };
        let mut random = Random(seed);
        let (mut threads, handle) = threads(workers);
        let (mut process, id) = process(workers);
        let mut simulated = simulated(workers);
        for number in 0..OPERATIONS {
            let operation = operation(&mut random);
            let one = simulated.execute(&operation);
            for other in [threads.execute(&operation), process.execute(&operation)] {
                assert_eq!(one, other, "seed {seed}, operation {number}: {operation:?}");
            }
        }
        let handlers = threads.port.handlers();
        assert!(handlers.iter().any(|handler| handler.counted != Some((0, 0))));
        let one = threads.counted(handlers);
        let other = simulated.counted(simulated.port.handlers());
        assert_eq!(one, other, "seed {seed}");
        let handlers = process.port.handlers();
        assert_eq!(process.counted(handlers), other, "seed {seed}");
        let passed = threads.sum(|owner| matches!(owner, CounterOwner::Edge(_)));
        assert!(passed > OPERATIONS as u64, "seed {seed}: packets passed");
        let dropped = threads.sum(|owner| matches!(owner, CounterOwner::Layer(_)));
        assert!(dropped > 3, "seed {seed}: some were dropped");
        drop((handle, process));
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists(), "no process is left");
    }
}

/// A trace of a packet that does not come.
fn waiting(port: &impl Port, number: TraceNumber) -> RequestNumber {
    let order = TraceOrder { number, link: None, which: Match::default(), frame: None, own: None };
    port.submit(PortRequest::Trace(order)).unwrap()
}

fn only_its_own_trace_ends<P: Port>(side: &Gateway<P>) {
    let port = &side.port;
    let (first, second) = (TraceNumber(1), TraceNumber(2));
    let answer = waiting(port, first);
    side.settle();
    let refused = waiting(port, second);
    side.settle();
    assert!(matches!(port.answer(refused, PATIENCE), Err(DataError::Busy)), "one at a time");
    port.submit(PortRequest::EndTrace(Some(second))).unwrap();
    side.settle();
    let still = port.answer(answer, Duration::ZERO);
    assert!(matches!(still, Err(DataError::Late)), "the first trace goes on: {still:?}");
    port.submit(PortRequest::EndTrace(Some(first))).unwrap();
    let ended = port.answer(answer, PATIENCE);
    assert!(matches!(&ended, Ok(PortAnswer::Traced(steps)) if steps.is_empty()), "{ended:?}");
    let again = waiting(port, TraceNumber(3));
    port.submit(PortRequest::EndTrace(None)).unwrap();
    let ended = port.answer(again, PATIENCE);
    assert!(matches!(ended, Ok(PortAnswer::Traced(_))), "all: {ended:?}");
}

/// Of several who trace one is refused: its time limit does not end the others' traces.
#[test]
fn a_trace_is_ended_by_its_number() {
    for workers in [1, 2] {
        let (threads, handle) = threads(workers);
        only_its_own_trace_ends(&threads);
        drop(handle);
        only_its_own_trace_ends(&process(workers).0);
        only_its_own_trace_ends(&simulated(workers));
    }
}

/// The simulator runs timers in their order, however far the clock is moved.
#[test]
fn the_simulator_asks_for_a_neighbour_thrice_and_gives_up() {
    let mut side = simulated(1);
    side.ask(PortRequest::Pace(Pace { spin: Duration::ZERO }));
    let mut packet = frame(&mut Random(1));
    let header = [0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9, 10, 0, 1, 77];
    packet[14..34].copy_from_slice(&header);
    let sum: u32 =
        header.as_chunks::<2>().0.iter().map(|two| u32::from(u16::from_be_bytes(*two))).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet[..6].copy_from_slice(&mac(0).0);
    side.execute(&Operation::Frame(LinkIndex(0), packet));
    side.port.run_until(Duration::from_secs(10));
    side.ask(PortRequest::Links);
    let down = side.host.tables().counters.sum(CounterOwner::Link(1), "transmit_down");
    // RFC 4861 §10: MAX_MULTICAST_SOLICIT; the same number here of ARP requests. The answer to the
    // sender, who is not known either, makes its own three.
    assert!(down >= Some(3), "{down:?}");
}
