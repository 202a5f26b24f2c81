//! Two processes, one region: workers here count and sleep; a process of its own reads their
//! counters by name while packets flow, and wakes a worker.
//!
//! This test is its own child: with [`READER`] or [`CALLER`] in its environment it is the other
//! process.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::exit,
    reason = "a test may fail loudly"
)]

use gatewright_data::{
    Clock, DataSetup, DeviceSetup, HandlerOrder, HandlerValue, Port, PortAnswer, PortRequest,
    ThreadPort, TraceNumber, TraceOrder, VirtualClock, Waker, WorkerLink, start,
};
use gatewright_link::KernelTables;
use gatewright_packet::{CHUNK_SIZE, LinkAddress, LinkIndex};
use gatewright_stack::{
    At, Attachment, AttachmentId, Host, Interface, NeighbourLimits, Place, Wake, builtin::Match,
};
use gatewright_tables::{Counted, CounterName, CounterOwner, CounterTable, Tables, WakeFlags};
use gatewright_wire::EtherType;
use libtest_mimic::{Arguments, Failed, Trial};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Write, stdin, stdout},
    os::fd::{AsFd, AsRawFd},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

/// The path of the tables, for the process that reads counters.
const READER: &str = "GATEWRIGHT_DATA_TEST_READER";
/// The path of the tables, for the process that wakes a worker.
const CALLER: &str = "GATEWRIGHT_DATA_TEST_CALLER";
const ROUTES_MAX: u32 = 100;
/// Frames before the reader begins, and those that it sees come at least.
const FRAMES: u64 = 300;
const PATIENCE: Duration = Duration::from_mins(1);
const CALLS: u32 = 3000;

fn main() {
    if let Some(path) = std::env::var_os(READER) {
        return read(&Tables::attach(File::open(path).unwrap(), &capacities()).unwrap().counters);
    }
    if let Some(path) = std::env::var_os(CALLER) {
        let wakers = Tables::attach_wakers(File::open(path).unwrap(), &capacities()).unwrap();
        return call(&wakers.of(3).unwrap());
    }
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("another_process_reads_the_counters_by_name", read_elsewhere),
        Trial::test("another_process_wakes_a_worker_each_time_it_calls", woken_from_elsewhere),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn capacities() -> gatewright_tables::Capacities {
    Host::capacities(ROUTES_MAX)
}

struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

impl Other {
    fn start(role: &str, host: &Host, stdin: Stdio) -> Result<Self, Failed> {
        let descriptor = host.descriptor().ok_or("no descriptor")?.as_raw_fd();
        let path = format!("/proc/{}/fd/{descriptor}", std::process::id());
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.env(role, path).stdin(stdin).stdout(Stdio::piped()).spawn();
        Ok(Self(child?))
    }

    fn ended_well(&mut self) -> Result<(), Failed> {
        let status = self.0.wait()?;
        status.success().then_some(()).ok_or_else(|| format!("the other process: {status}").into())
    }
}

/// Each named counter with its value, as one line.
fn lines(table: &CounterTable) -> BTreeMap<String, u64> {
    let line = |Counted { name, value }: Counted| {
        let CounterName { worker, owner, of, link, item } = name;
        (format!("{worker} {owner:?} {of} {link:?} {item}"), value)
    };
    table.iter().map(line).collect()
}

fn setup() -> DataSetup {
    let link = |link| WorkerLink {
        name: format!("link{link}"),
        device: DeviceSetup::Spare(LinkIndex(link)),
        queues: None,
    };
    DataSetup {
        links: (0..2).map(link).collect(),
        workers: 1,
        spin: Duration::ZERO,
        frames: 256,
        chunk_size: CHUNK_SIZE,
        cores: Vec::new(),
        neighbours: NeighbourLimits::DEFAULT,
        seed: 7,
        waits: false,
    }
}

/// A worker gets a frame that is for nobody.
fn send(port: &ThreadPort) -> Result<(), Failed> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0];
    // RFC 791 §3.1: a header of version 5, which IPv4 drops.
    frame.extend([0x55; 40]);
    let order = TraceOrder {
        number: TraceNumber(0),
        link: Some(LinkIndex(0)),
        which: Match::default(),
        frame: Some(frame),
        own: None,
    };
    let number = port.submit(PortRequest::Trace(order))?;
    port.submit(PortRequest::EndTrace(None))?;
    port.answer(number, PATIENCE)?;
    // Answered at the beginning of a turn: the frame is counted then.
    port.ask(PortRequest::Links)?;
    Ok(())
}

fn read_elsewhere() -> Result<(), Failed> {
    let mut host = Host::shared(ROUTES_MAX, [3, 4])?;
    for link in [LinkIndex(0), LinkIndex(1)] {
        host.add_interface(Interface {
            link,
            link_address: LinkAddress::ethernet([2, 0, 0, 0, 0, 1]),
            up: true,
            mtu: 1500,
            ..Interface::default()
        })?;
    }
    let clock = Clock::Virtual(VirtualClock::default());
    let started = start(&setup(), &mut host, &KernelTables::default(), clock)?;
    let port = Arc::clone(started.workers.port());
    let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Tap);
    let order = HandlerOrder::New(AttachmentId(5), at, HandlerValue::Count);
    let PortAnswer::Staged(stage) = port.ask(PortRequest::Stage(vec![order]))? else {
        return Err("it was to be staged".into());
    };
    port.ask(PortRequest::Commit(stage))?;
    for _ in 0..FRAMES {
        send(&port)?;
    }
    let here = lines(&host.tables().counters);
    let mut reader = Other::start(READER, &host, Stdio::piped())?;
    let mut expected = reader.0.stdin.take().ok_or("no pipe")?;
    for (name, value) in &here {
        writeln!(expected, "{value} {name}")?;
    }
    writeln!(expected)?;
    expected.flush()?;
    let mut said = String::new();
    BufReader::new(reader.0.stdout.take().ok_or("no pipe")?).read_line(&mut said)?;
    assert_eq!(said, "the same\n");
    let end = Instant::now() + PATIENCE;
    while reader.0.try_wait()?.is_none() {
        send(&port)?;
        assert!(Instant::now() < end, "the reader sees no packet");
    }
    reader.ended_well()?;
    let now = port.handlers();
    assert!(
        now.first().and_then(|now| now.counted).is_some_and(|(packets, _)| packets >= 2 * FRAMES)
    );
    Ok(())
}

/// The other process: finds every counter with its value by name, and sees them grow together.
fn read(table: &CounterTable) {
    let mut expected = BTreeMap::new();
    for line in stdin().lines().map(Result::unwrap).take_while(|line| !line.is_empty()) {
        let (value, name) = line.split_once(' ').unwrap();
        expected.insert(name.to_owned(), value.parse::<u64>().unwrap());
    }
    assert_eq!(lines(table), expected);
    let counted = |item| table.sum(CounterOwner::Handler(5), item).unwrap();
    assert_eq!((counted("packets"), counted("octets")), (FRAMES, FRAMES * 40));
    assert_eq!(counted("taken"), 0);
    let dropped: u64 = expected
        .iter()
        .filter(|(name, _)| name.contains(" ipv4 None "))
        .map(|(_, value)| value)
        .sum();
    assert_eq!(dropped, FRAMES, "{expected:?}");
    println!("the same");
    stdout().flush().unwrap();
    let (mut before, end) = (lines(table), Instant::now() + PATIENCE);
    while counted("packets") < 2 * FRAMES {
        assert!(Instant::now() < end, "no packet came");
        let now = lines(table);
        for (name, value) in &before {
            assert!(now.get(name) >= Some(value), "{name} never goes down");
        }
        before = now;
    }
}

/// A worker's way to sleep, and another process that wakes it. Each call finds it asleep, or awake
/// with a last look before it.
fn woken_from_elsewhere() -> Result<(), Failed> {
    let host = Host::shared(ROUTES_MAX, [3, 4])?;
    let event = nix::sys::eventfd::EventFd::new()?;
    let copy = event.as_fd().try_clone_to_owned()?;
    let waker = Waker::attach(event.into(), host.wakers().of(3).ok_or("no such worker")?);
    let mut caller = Other::start(CALLER, &host, copy.into())?;
    let patience = PollTimeout::try_from(PATIENCE)?;
    for number in 0..CALLS {
        waker.fall_asleep();
        if waker.flags().is_called() {
            waker.wake_up(false);
        } else {
            let mut fds = [PollFd::new(waker.descriptor(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut fds, patience)?, 1, "call {number} was lost");
            waker.wake_up(true);
        }
        // A readable descriptor alone is one that was read too early for the call before.
        while !waker.flags().take_call() {
            std::thread::yield_now();
        }
    }
    caller.ended_well()
}

/// The other process, whose standard input is the worker's eventfd.
fn call(flags: &WakeFlags) {
    let event = stdin().as_fd().try_clone_to_owned().unwrap();
    let waker = Waker::attach(event, flags.clone());
    let end = Instant::now() + PATIENCE;
    for _ in 0..CALLS {
        waker.wake();
        while flags.is_called() {
            assert!(Instant::now() < end, "the worker sleeps");
            std::thread::yield_now();
        }
    }
}
