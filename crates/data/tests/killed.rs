//! Kills of a data plane in a process of its own, and of its control plane.
//!
//! This test is its own child: with [`SERVES`] in its environment it is the data plane, with
//! [`CONTROLS`] a control plane that is killed.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_data::{
    DataError, DataProcess, DataSetup, DeviceSetup, FoundPlane, HandlerNow, HandlerOrder,
    HandlerValue, Pace, Port, PortAnswer, PortRequest, ProcessCommand, ProcessEvent,
    ProcessStarted, Reopen, TraceNumber, TraceOrder, WorkerLink, name_holders,
};
use gatewright_link::{CaptureConfig, Framing, NameHolder, pcapng::Speed};
use gatewright_packet::{CHUNK_SIZE, LinkAddress, LinkIndex};
use gatewright_stack::{
    At, Attachment, AttachmentId, Host, Interface, NeighbourLimits, Place, builtin::Match,
};
use gatewright_tables::CounterOwner;
use gatewright_testbed::{Needs, wait_until};
use gatewright_wire::EtherType;
use libtest_mimic::{Arguments, Failed, Trial};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs::File,
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

const SERVES: &str = "GATEWRIGHT_DATA_TEST_SERVES";
const CONTROLS: &str = "GATEWRIGHT_DATA_TEST_CONTROLS";
/// How the name of a control plane begins whose data plane does not get further than to its start.
const STARTS: &str = "starts:";
/// How the name of a control plane begins whose data plane reads nothing when a memo changes.
const LATE: &str = "late:";
/// The file to which the data plane tells which files it could open.
const OPENED: &str = "GATEWRIGHT_DATA_TEST_OPENED";
const ROUTES_MAX: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(30);
const HANDLER: AttachmentId = AttachmentId(7);
/// Listeners of another user at names of a data plane.
const FULL_LISTENERS: u32 = 300;
/// Time for a data plane that reads again to be given the latest memo; half a second is needed.
const TAKEN_WITHIN: Duration = Duration::from_secs(3);

fn main() {
    if std::env::var_os(SERVES).is_some() {
        // It may make no file later.
        let mut told = std::env::var_os(OPENED).map(|path| File::create(path).unwrap());
        let ready = || told.take().map_or((), tell_opened);
        return gatewright_data::serve(Duration::MAX, ready).unwrap();
    }
    if let Ok(name) = std::env::var(CONTROLS) {
        return match (name.strip_prefix(STARTS), name.strip_prefix(LATE)) {
            (Some(path), _) => starting_control(path),
            (None, Some(name)) => late_control(name),
            (None, None) => control(&name),
        };
    }
    let arguments = Arguments::from_args();
    let mut trials = vec![
        Trial::test("a_killed_data_plane_is_started_again_with_its_handlers", started_again),
        Trial::test("a_data_plane_that_dies_five_times_is_given_up_until_an_order", given_up),
        Trial::test("one_that_was_given_up_starts_without_the_link_at_fault", given_up_for_a_link),
        Trial::test("a_data_plane_outlives_its_control_plane_and_is_adopted", adopted),
        Trial::test("a_data_plane_that_dies_while_it_is_adopted_is_started_again", dies_adopted),
        Trial::test("an_order_that_meets_a_death_is_executed_by_the_next_one", orders_meet_deaths),
        Trial::test("a_data_plane_that_stands_still_is_an_error_that_names_it", stands_still),
        Trial::test("a_memo_that_is_taken_late_replaces_the_one_before", memo_taken_late),
        Trial::test("a_data_plane_without_a_name_ends_with_its_control_plane", ends_with_it),
        Trial::test("a_data_plane_that_starts_ends_with_its_control_plane", ends_while_it_starts),
        Trial::test("an_order_is_answered_when_the_data_plane_has_executed_it", answered),
        Trial::test("a_data_plane_opens_only_files_that_links_need", limited),
        Trial::test("a_data_plane_keeps_the_capabilities_of_links_alone", confined),
    ];
    let needs = Needs::new().program("python3");
    let strangers = match needs.missing() {
        None if nix::unistd::geteuid().is_root() => {
            Trial::test("another_users_listener_is_no_data_plane", stranger)
        }
        missing => {
            let missing = missing.map_or_else(|| "root".to_owned(), |it| it.to_string());
            let name = format!("another_users_listener_is_no_data_plane (needs {missing})");
            Trial::test(name, || Ok(())).with_ignored_flag(true)
        }
    };
    trials.push(strangers);
    libtest_mimic::run(&arguments, trials).exit();
}

/// Anybody may listen at an abstract name: what another user's process says is not asked for, and its
/// name is in nobody's way.
fn stranger() -> Result<(), Failed> {
    const LISTENS: &str = "import socket, sys, time\n\
         all = []\n\
         for end in sys.argv[2:]:\n\
         \x20 it = socket.socket(socket.AF_UNIX)\n\
         \x20 it.bind('\\0gatewright-data/' + sys.argv[1] + end)\n\
         \x20 it.listen(1)\n\
         \x20 all.append(it)\n\
         print('listens', flush=True)\n\
         time.sleep(60)\n";
    let name = format!("stranger-{}", std::process::id());
    // Their queues are full: they are neither connected to nor known for another user's.
    let ends = (0..FULL_LISTENERS).map(|number| format!("/{number:032x}"));
    let mut child = Command::new("python3")
        .args(["-c", LISTENS, &name, "", "/", "/0", "/ffffffffffffffffffffffffffffffff"])
        .args(ends)
        .stdout(Stdio::piped())
        .uid(65_534)
        .gid(65_534)
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line)?;
    assert_eq!(line, "listens\n");
    let held = name_holders(&name);
    let own = |holder: &NameHolder| holder.user == 65_534 && holder.name.contains(&name);
    assert!(held.iter().all(own) && !held.is_empty() && held.len() < 100, "{held:?}");
    assert_eq!(name_holders("stranger-of-nobody"), []);
    let found = FoundPlane::find(&name).map(|found| found.is_some());
    // It would panic if the name were taken.
    let (started, ..) = start(&name);
    let process = started.process.id();
    let again = FoundPlane::find(&name).map(drop);
    assert!(child.try_wait()?.is_none(), "nobody waited for the listeners' end");
    child.kill()?;
    child.wait()?;
    assert!(matches!(found, Ok(false)), "{found:?}");
    // The true one is found among them, and has a control plane.
    let said = again.unwrap_err().to_string();
    assert!(said.contains(&format!("(process {process}) has a control plane")), "{said}");
    Ok(())
}

fn command(name: &str) -> ProcessCommand {
    let own = std::env::current_exe().unwrap().into_os_string();
    ProcessCommand {
        program: "env".into(),
        arguments: vec!["-u".into(), CONTROLS.into(), format!("{SERVES}=1").into(), own],
        name: name.to_owned(),
        routes_max: ROUTES_MAX,
        clock: None,
        divided: false,
        maps: Err("no link forwards in its driver".to_owned()),
    }
}

fn setup() -> DataSetup {
    let link = |link| WorkerLink {
        name: format!("link{link}"),
        device: DeviceSetup::Spare(LinkIndex(link)),
        queues: None,
    };
    DataSetup {
        links: (0..2).map(link).collect(),
        workers: 2,
        spin: Duration::ZERO,
        frames: 256,
        chunk_size: CHUNK_SIZE,
        cores: Vec::new(),
        neighbours: NeighbourLimits::DEFAULT,
        seed: 7,
        waits: false,
    }
}

fn furnish(host: &mut Host) {
    for link in [LinkIndex(0), LinkIndex(1)] {
        host.add_interface(Interface {
            link,
            link_address: LinkAddress::ethernet([2, 0, 0, 0, 0, 1]),
            up: true,
            mtu: 1500,
            ..Interface::default()
        })
        .unwrap();
    }
}

/// A data plane with a handler that counts, and what happens to it.
fn start(name: &str) -> (ProcessStarted, Host, Receiver<ProcessEvent>) {
    let mut host = Host::shared(ROUTES_MAX, [3, 4]).unwrap();
    furnish(&mut host);
    let (tell, told) = channel();
    let watch = move |event| tell.send(event).unwrap_or_default();
    let started = DataProcess::start(command(name), &setup(), (&mut host, None), watch).unwrap();
    attach(&started, HANDLER);
    (started, host, told)
}

fn attach(started: &ProcessStarted, id: AttachmentId) {
    let port = started.process.port();
    let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Tap);
    let order = HandlerOrder::New(id, at, HandlerValue::Count);
    let PortAnswer::Staged(stage) = port.ask(PortRequest::Stage(vec![order])).unwrap() else {
        panic!("it was to be staged");
    };
    port.ask(PortRequest::Commit(stage)).unwrap();
}

/// A worker gets a frame that is for nobody, which the handler counts.
fn send(port: &impl Port) -> Result<(), DataError> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0];
    // RFC 791 §3.1: a header of version 5, which IPv4 drops.
    frame.extend([0x55; 40]);
    let which = Match::default();
    let (number, link) = (TraceNumber(0), Some(LinkIndex(0)));
    let order = TraceOrder { number, link, which, frame: Some(frame), own: None };
    let number = port.submit(PortRequest::Trace(order))?;
    port.submit(PortRequest::EndTrace(None))?;
    port.answer(number, PATIENCE)?;
    port.ask(PortRequest::Links)?;
    Ok(())
}

fn packets(handlers: &[HandlerNow]) -> u64 {
    handlers.first().and_then(|now| now.counted).unwrap().0
}

fn die(process: u32) {
    kill(Pid::from_raw(process.try_into().unwrap()), Signal::SIGKILL).unwrap();
}

fn is_there(process: u32) -> bool {
    // One that its parent has not asked for yet is there by name only.
    let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn gone(process: u32) {
    let end = Instant::now() + PATIENCE;
    while is_there(process) {
        assert!(Instant::now() < end, "process {process} is left");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn started_again() -> Result<(), Failed> {
    let (started, host, told) = start("");
    let port = started.process.port();
    port.ask(PortRequest::SetLink { link: LinkIndex(1), up: false })?;
    port.ask(PortRequest::Pace(Pace { spin: Duration::ZERO }))?;
    for kills in 1..=3 {
        send(port)?;
        assert_eq!(packets(&port.handlers()), 1, "its counters begin anew with it");
        let process = started.process.id();
        die(process);
        assert_eq!(told.recv_timeout(PATIENCE)?, ProcessEvent::Died);
        let ProcessEvent::Restarted(after) = told.recv_timeout(PATIENCE)? else {
            return Err("it was to be started again".into());
        };
        println!("kill {kills}: runs again after {:?}", after.time);
        assert!(started.process.is_running() && started.process.id() != process);
        assert_eq!(port.handlers().iter().map(|one| one.id).collect::<Vec<_>>(), [HANDLER]);
        assert_eq!(
            host.tables().counters.sum(CounterOwner::Handler(HANDLER.0), "packets"),
            Some(0)
        );
    }
    let process = started.process.id();
    drop(started);
    gone(process);
    Ok(())
}

fn given_up() -> Result<(), Failed> {
    let (started, _host, told) = start("");
    for death in 1..=5 {
        die(started.process.id());
        assert_eq!(told.recv_timeout(PATIENCE)?, ProcessEvent::Died);
        match told.recv_timeout(PATIENCE)? {
            ProcessEvent::Restarted(_) if death < 5 => {}
            ProcessEvent::GivenUp(why) if death == 5 => {
                assert_eq!(why, "it has died 5 times in a minute");
            }
            other => return Err(format!("death {death}: {other:?}").into()),
        }
    }
    assert!(!started.process.is_running());
    let refused = started.process.port().ask(PortRequest::Links);
    assert!(matches!(refused, Err(DataError::Ended)), "{refused:?}");
    let refused = started.sockets.bind("0.0.0.0:7000".parse()?).map(drop);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotConnected);
    // An order starts it again, with its handlers, and its deaths are counted anew.
    assert!(started.process.is_given_up());
    started.process.exchange()?;
    assert!(matches!(told.recv_timeout(PATIENCE)?, ProcessEvent::Exchanged(_)));
    assert!(started.process.is_running() && !started.process.is_given_up());
    send(started.process.port())?;
    assert_eq!(packets(&started.process.port().handlers()), 1);
    started.sockets.bind("0.0.0.0:7000".parse()?).map(drop)?;
    die(started.process.id());
    assert_eq!(told.recv_timeout(PATIENCE)?, ProcessEvent::Died);
    assert!(matches!(told.recv_timeout(PATIENCE)?, ProcessEvent::Restarted(_)));
    Ok(())
}

/// One that is given up because a link cannot be opened is started with the links of the order; one
/// that nobody starts again ends with its control plane.
fn given_up_for_a_link() -> Result<(), Failed> {
    let folder = std::env::temp_dir().join(format!("gatewright-given-up-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let read = folder.join("lan.pcap");
    // libpcap's file format: a header without packets, of Ethernet (pcap-savefile(5)).
    let header =
        [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    std::fs::write(&read, header)?;
    let mut setup = setup();
    let spare = setup.links.clone();
    setup.links[0].device = DeviceSetup::Capture(CaptureConfig {
        index: LinkIndex(0),
        name: "lan".to_owned(),
        read: Some(read.clone()),
        write: None,
        speed: Speed::Captured,
        framing: Framing::Ethernet,
        mtu: 1500,
    });
    let mut host = Host::shared(ROUTES_MAX, [3, 4])?;
    furnish(&mut host);
    let (tell, told) = channel();
    let watch = move |event| tell.send(event).unwrap_or_default();
    let started = DataProcess::start(command(""), &setup, (&mut host, None), watch)?;
    std::fs::remove_dir_all(folder)?;
    die(started.process.id());
    assert_eq!(told.recv_timeout(PATIENCE)?, ProcessEvent::Died);
    let ProcessEvent::GivenUp(why) = told.recv_timeout(PATIENCE)? else {
        return Err("it was to be given up".into());
    };
    assert!(why.contains("lan.pcap"), "{why}");
    assert!(started.process.start_again(&setup.links).is_err(), "as it was");
    started.process.start_again(&spare)?;
    assert!(started.process.is_running());
    assert!(started.process.port().ask(PortRequest::Links).is_ok());
    Ok(())
}

/// A socket is there when `bind` returns, and an error says that the process has not answered.
fn answered() -> Result<(), Failed> {
    let (started, _host, told) = start("");
    let bind = |port: u16| started.sockets.bind(([0, 0, 0, 0], port).into());
    let first = bind(7000)?;
    let process = Pid::from_raw(started.process.id().try_into()?);
    kill(process, Signal::SIGSTOP)?;
    let late = bind(7001).map(drop).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    assert_eq!(late.to_string(), "the data plane's process has not answered within 5 s");
    kill(process, Signal::SIGCONT)?;
    let _second = bind(7001)?;
    // The next process answers what the one before has not.
    kill(process, Signal::SIGSTOP)?;
    std::thread::scope(|threads| {
        let binding = threads.spawn(|| bind(7002));
        let closing = threads.spawn(|| drop(first));
        kill(process, Signal::SIGKILL)?;
        closing.join().map_err(|_| "closing")?;
        binding.join().map_err(|_| "binding")?.map(drop)?;
        Ok::<_, Failed>(())
    })?;
    assert_eq!(told.recv_timeout(PATIENCE)?, ProcessEvent::Died);
    assert!(matches!(told.recv_timeout(PATIENCE)?, ProcessEvent::Restarted(_)));
    bind(7000).map(drop)?;
    Ok(())
}

/// The control plane that is killed: says which process its data plane is.
fn control(name: &str) {
    let (started, _host, _told) = start(name);
    for _ in 0..5 {
        send(started.process.port()).unwrap();
    }
    started.process.keep_memo("a route").unwrap();
    let refused = started.process.keep_memo(&"a route ".repeat(10_000)).unwrap_err();
    assert!(refused.to_string().contains("it has 80000 octets"), "{refused}");
    println!("{}", started.process.id());
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

/// The control plane whose data plane does not take the last memo when it changes, and says its process
/// when it has had time to.
fn late_control(name: &str) {
    let (started, _host, _told) = start(name);
    let process = Pid::from_raw(started.process.id().try_into().unwrap());
    let large = "a route ".repeat(8_000);
    kill(process, Signal::SIGSTOP).unwrap();
    // Until the socket has no room.
    let late = (0..100).find_map(|_| started.process.keep_memo(&large).err()).unwrap();
    assert!(matches!(late, DataError::Late), "{late}");
    assert!(matches!(started.process.keep_memo("the last"), Err(DataError::Late)));
    kill(process, Signal::SIGCONT).unwrap();
    std::thread::sleep(TAKEN_WITHIN);
    println!("{}", started.process.id());
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

fn memo_taken_late() -> Result<(), Failed> {
    let name = format!("killed-test-late-{}", std::process::id());
    let (mut control, process) = other_of(LATE, &name)?;
    control.kill()?;
    control.wait()?;
    let found = FoundPlane::find(&name)?.ok_or("it is gone")?;
    assert_eq!((found.process(), found.memo()), (process, "the last"));
    die(process);
    Ok(())
}

/// Starts a control plane in a process of its own; returns it with its data plane's process.
fn other(name: &str) -> Result<(Child, u32), Failed> {
    other_of("", name)
}

/// As [`other`], of a kind.
fn other_of(kind: &str, name: &str) -> Result<(Child, u32), Failed> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(CONTROLS, format!("{kind}{name}"))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    Ok((child, line.trim().parse()?))
}

/// It dies when its next control plane has heard it and orders nothing yet: the one that comes after it has
/// its handlers until the first commit.
fn dies_adopted() -> Result<(), Failed> {
    let name = format!("killed-test-adopted-{}", std::process::id());
    let (mut control, process) = other(&name)?;
    control.kill()?;
    control.wait()?;
    let found = FoundPlane::find(&name)?.ok_or("it is gone")?;
    let next = found.next_id();
    let mut host = Host::adopt(found.tables(), ROUTES_MAX)?;
    die(process);
    gone(process);
    let (tell, told) = channel();
    let watch = move |event| tell.send(event).unwrap_or_default();
    let started = DataProcess::adopt(found, command(&name), &mut host, watch)?;
    let port = started.process.port();
    // The first orders of a control plane.
    port.ask(PortRequest::Pace(Pace { spin: Duration::ZERO }))?;
    port.ask(PortRequest::SetLink { link: LinkIndex(1), up: true })?;
    assert_eq!(told.recv_timeout(PATIENCE)?, ProcessEvent::Died);
    assert!(matches!(told.recv_timeout(PATIENCE)?, ProcessEvent::Restarted(_)));
    assert!(started.process.id() != process);
    furnish(&mut host);
    host.release();
    let sum = |host: &Host| host.tables().counters.sum(CounterOwner::Handler(HANDLER.0), "packets");
    send(port)?;
    assert_eq!(sum(&host), Some(1), "the handler stands still");
    assert!(port.handlers().is_empty(), "and is not this control plane's");
    attach(&started, next);
    assert_eq!(sum(&host), None);
    send(port)?;
    assert_eq!(packets(&port.handlers()), 1);
    Ok(())
}

/// A process dies before it has staged a wiring, or between that and the commit.
fn orders_meet_deaths() -> Result<(), Failed> {
    let (started, _host, told) = start("");
    let port = started.process.port();
    let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Tap);
    for number in 1..=4 {
        let id = AttachmentId(HANDLER.0 + number);
        let order = HandlerOrder::New(id, at, HandlerValue::Count);
        let dies_before = number % 2 == 0;
        if dies_before {
            die(started.process.id());
        }
        let PortAnswer::Staged(stage) = port.ask(PortRequest::Stage(vec![order]))? else {
            return Err("it was to be staged".into());
        };
        if !dies_before {
            die(started.process.id());
        }
        if number == 3 {
            // The next one has begun already, without it.
            assert_eq!(told.recv_timeout(PATIENCE)?, ProcessEvent::Died);
            assert!(matches!(told.recv_timeout(PATIENCE)?, ProcessEvent::Restarted(_)));
        }
        port.ask(PortRequest::Commit(stage))?;
        if number != 3 {
            assert_eq!(told.recv_timeout(PATIENCE)?, ProcessEvent::Died);
            assert!(matches!(told.recv_timeout(PATIENCE)?, ProcessEvent::Restarted(_)));
        }
        send(port)?;
        assert_eq!(port.handlers().iter().map(|one| one.id).collect::<Vec<_>>(), [id]);
        assert_eq!(packets(&port.handlers()), 1, "it stands once");
    }
    Ok(())
}

fn adopted() -> Result<(), Failed> {
    let name = format!("killed-test-{}", std::process::id());
    assert!(FoundPlane::find(&name)?.is_none());
    let (mut control, process) = other(&name)?;
    let refused = FoundPlane::find(&name).map(drop);
    let control_process = control.id();
    let expected = format!(
        "the data plane (process {process}) has a control plane already (process \
         {control_process}): `kill {control_process}` ends both"
    );
    assert!(matches!(&refused, Err(error) if error.to_string() == expected), "{refused:?}");
    control.kill()?;
    control.wait()?;
    let found = FoundPlane::find(&name)?.ok_or("it is gone")?;
    assert_eq!((found.process(), found.routes_max()), (process, ROUTES_MAX));
    assert_eq!(found.setup().links, setup().links);
    assert_eq!(found.memo(), "", "what was kept before a refusal is outdated");
    let next = found.next_id();
    assert!(next > HANDLER);
    let mut host = Host::adopt(found.tables(), ROUTES_MAX)?;
    let sum = |host: &Host| host.tables().counters.sum(CounterOwner::Handler(HANDLER.0), "packets");
    assert_eq!(sum(&host), Some(5), "nothing was lost of what the handler counted");
    let (tell, told) = channel();
    let watch = move |event| tell.send(event).unwrap_or_default();
    let started = DataProcess::adopt(found, command(&name), &mut host, watch)?;
    furnish(&mut host);
    host.release();
    let port = started.process.port();
    send(port)?;
    assert_eq!(sum(&host), Some(6), "the handler stands still");
    attach(&started, next);
    assert_eq!(sum(&host), None, "the next control plane's handlers stand in their place");
    send(port)?;
    assert_eq!(packets(&port.handlers()), 1);
    // Adopted or started here, it is started again.
    die(process);
    assert_eq!(told.recv_timeout(PATIENCE)?, ProcessEvent::Died);
    assert!(matches!(told.recv_timeout(PATIENCE)?, ProcessEvent::Restarted(_)));
    send(port)?;
    assert_eq!(packets(&port.handlers()), 1);
    let process = started.process.id();
    drop(started);
    gone(process);
    assert!(FoundPlane::find(&name)?.is_none());
    Ok(())
}

/// Whether all threads of a process are stopped: a signal stops one after the other.
fn stands(process: u32) -> bool {
    let is_stopped = |thread: std::fs::DirEntry| {
        // `PID (NAME) STATE …`, proc(5).
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    threads.is_ok_and(|threads| threads.flatten().all(is_stopped))
}

/// It is found, and does not answer; when it goes on it is adopted.
fn stands_still() -> Result<(), Failed> {
    let name = format!("killed-test-still-{}", std::process::id());
    let (mut control, process) = other(&name)?;
    let stopped = Pid::from_raw(process.try_into()?);
    // In this order: one that is stopped when it becomes an orphan is hung up by the kernel.
    control.kill()?;
    control.wait()?;
    kill(stopped, Signal::SIGSTOP)?;
    assert!(wait_until(PATIENCE, || stands(process)), "it stops");
    let (tell, told) = channel();
    let asked = name.clone();
    // It would wait for ever.
    std::thread::spawn(move || tell.send(FoundPlane::find(&asked).map(drop)));
    let refused = told.recv_timeout(PATIENCE);
    kill(stopped, Signal::SIGCONT)?;
    let said = refused?.unwrap_err().to_string();
    let expected = format!("{name} (process {process}) has not answered within 5 s");
    assert!(said.contains(&expected), "{said}");
    assert!(said.contains(&format!("`kill -CONT {process}`")), "{said}");
    FoundPlane::find(&name)?.ok_or("it is gone")?.stop();
    gone(process);
    Ok(())
}

fn ends_with_it() -> Result<(), Failed> {
    let (mut control, process) = other("")?;
    assert!(is_there(process));
    control.kill()?;
    control.wait()?;
    gone(process);
    Ok(())
}

/// A control plane whose data plane writes its number to the file, and never says that it has started.
fn starting_control(path: &str) {
    let mut host = Host::shared(ROUTES_MAX, [3, 4]).unwrap();
    furnish(&mut host);
    let arguments = vec!["-c".into(), format!("echo $$ > {path}; exec sleep 600").into()];
    let command = ProcessCommand { program: "sh".into(), arguments, ..command(path) };
    DataProcess::start(command, &setup(), (&mut host, None), |_| ()).unwrap();
}

/// It may have a device that the next one needs at once.
fn ends_while_it_starts() -> Result<(), Failed> {
    let path = std::env::temp_dir().join(format!("gatewright-starts-{}", std::process::id()));
    let name = format!("{STARTS}{}", path.to_str().ok_or("a name")?);
    let mut control = Command::new(std::env::current_exe()?).env(CONTROLS, name).spawn()?;
    let mut said = String::new();
    let starts = || {
        said = std::fs::read_to_string(&path).unwrap_or_default();
        said.ends_with('\n')
    };
    assert!(wait_until(PATIENCE, starts), "it starts");
    let process = said.trim().parse()?;
    assert!(is_there(process));
    control.kill()?;
    control.wait()?;
    gone(process);
    std::fs::remove_file(path)?;
    Ok(())
}

/// Which of some files this process can open: one of the system's, one of its own user's, one of
/// the kernel's.
fn tell_opened(mut told: File) {
    let own = std::env::current_exe().unwrap();
    for path in [Path::new("/etc/passwd"), &own, Path::new("/proc/self/status")] {
        let opened =
            File::open(path).map_or_else(|error| error.kind().to_string(), |_| "opened".into());
        writeln!(told, "{opened}").unwrap();
    }
    let made = File::create(own.with_file_name("made-by-a-data-plane"));
    writeln!(told, "{}", made.map_or_else(|error| error.kind().to_string(), |_| "made".into()))
        .unwrap();
}

fn limited() -> Result<(), Failed> {
    let folder = std::env::temp_dir().join(format!("gatewright-limited-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("captures"))?;
    let (opened, capture) = (folder.join("opened"), folder.join("captures/lan.pcapng"));
    let captured = |write: &Path| WorkerLink {
        name: "lan".to_owned(),
        device: DeviceSetup::Capture(CaptureConfig {
            index: LinkIndex(0),
            name: "lan".to_owned(),
            read: None,
            write: Some(write.to_owned()),
            speed: Speed::Captured,
            framing: Framing::Ethernet,
            mtu: 1500,
        }),
        queues: None,
    };
    let mut setup = setup();
    setup.links[0] = captured(&capture);
    let mut host = Host::shared(ROUTES_MAX, [3, 4])?;
    furnish(&mut host);
    let mut command = command("");
    command.arguments.insert(2, format!("{OPENED}={}", opened.display()).into());
    let started = DataProcess::start(command, &setup, (&mut host, None), |_| {})?;
    assert!(capture.exists(), "a file of a link is made");
    let reopened = |write: &Path| {
        let (device, before) = (captured(write), setup.links[0].clone());
        started.process.port().ask(PortRequest::Reopen(Box::new(Reopen { device, before })))
    };
    let end = Instant::now() + PATIENCE;
    let told = loop {
        let told = std::fs::read_to_string(&opened)?;
        if told.lines().count() == 4 {
            break told;
        }
        assert!(Instant::now() < end, "{told}");
        std::thread::sleep(Duration::from_millis(2));
    };
    if let Some(why) = &started.all_files {
        assert_eq!(told, "opened\nopened\nopened\nmade\n", "{why}");
    } else {
        let no = ErrorKind::PermissionDenied;
        assert_eq!(told, format!("{no}\n{no}\nopened\n{no}\n"));
        let elsewhere = reopened(&folder.join("elsewhere.pcapng")).unwrap_err().to_string();
        assert!(
            elsewhere.contains("opens no files in") && !folder.join("elsewhere.pcapng").exists()
        );
    }
    reopened(&folder.join("captures/other.pcapng"))?;
    assert!(folder.join("captures/other.pcapng").exists());
    drop(started);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// `/proc/PID/status` (proc(5)): the sets of capabilities as hexadecimal masks.
fn confined() -> Result<(), Failed> {
    let (started, _host, _told) = start("");
    let status = std::fs::read_to_string(format!("/proc/{}/status", started.process.id()))?;
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.trim_start_matches(':').trim().to_owned()
    };
    // CAP_NET_ADMIN 12, CAP_NET_RAW 13, CAP_IPC_LOCK 14, CAP_PERFMON 38, CAP_BPF 39.
    let links = 1_u64 << 12 | 1 << 13 | 1 << 14 | 1 << 38 | 1 << 39;
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd"] {
        let mask = u64::from_str_radix(&of(set), 16)?;
        // A machine may not let a process give up what it could get.
        assert!(mask & !links == 0 || set == "CapBnd", "{set} {mask:x}");
    }
    assert_eq!(of("NoNewPrivs"), "1");
    // Each thread has its own: the workers', too.
    for thread in std::fs::read_dir(format!("/proc/{}/task", started.process.id()))? {
        let status = std::fs::read_to_string(thread?.path().join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or("0");
        assert_eq!(u64::from_str_radix(line.trim(), 16)? & !links, 0);
    }
    Ok(())
}
