//! Two processes, one region: one changes routes, neighbours and interfaces, the other maps the same
//! memory by its path and never sees what was not.
//!
//! This test is its own child: with [`CHILD`] in its environment it is the reader.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::exit,
    reason = "a test may fail loudly"
)]

use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_stack::{Address, AddressState, Host, Interface, Route, View};
use gatewright_tables::{
    Map, MapWriter, Prefix, RegionError, Tables,
    records::{Neighbour, NeighbourKey, NeighbourState},
};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    fs::File,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsRawFd,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

/// The path of the tables, for the reader.
const CHILD: &str = "GATEWRIGHT_STACK_TEST_TABLES";
const ROUTES_MAX: u32 = 4096;
const LINKS: [LinkIndex; 2] = [LinkIndex(0), LinkIndex(1)];
/// Networks that have routes all the time, which lead now by one link and now by the other.
const NETWORKS: u8 = 200;
const NEIGHBOURS: u8 = 100;
/// Changes that the reader is to meet, and how long it may take on a busy machine.
const CHANGES: u32 = 200;
const PATIENCE: Duration = Duration::from_mins(1);

fn main() {
    if let Some(path) = std::env::var_os(CHILD) {
        read(&File::open(path).unwrap());
        return;
    }
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("another_process_reads_what_this_one_changes", change_beside_a_reader),
        Trial::test("a_reader_states_the_same_room", a_reader_states_the_same_room),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

/// What both interfaces have after a change: MTU and address belong together.
fn interface(link: LinkIndex, number: u8) -> (u32, IpAddr) {
    let [low, high] = link.0.to_le_bytes();
    (1280 + u32::from(number), Ipv4Addr::new(10, high | low, number, 1).into())
}

fn gateways(network: u8) -> [Route; 2] {
    LINKS.map(|link| {
        let gateway = Ipv4Addr::new(10, 9, u8::from(link == LINKS[1]), network).into();
        Route::Via { link, gateway }
    })
}

fn gateways6(network: u8) -> [Route; 2] {
    LINKS.map(|link| {
        let gateway = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, link.0, network.into()).into();
        Route::Via { link, gateway }
    })
}

fn inside(network: u8) -> (Ipv4Addr, Ipv6Addr) {
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, network.into(), 0, 0, 0, 7);
    (Ipv4Addr::new(198, 18, network, 7), v6)
}

/// A neighbour whose address says in which state it is.
fn neighbour(number: u8, turn: u8) -> (NeighbourKey, Neighbour) {
    let address = Ipv4Addr::new(10, 9, 0, number).into();
    let states = [NeighbourState::Reachable, NeighbourState::Stale];
    let record = Neighbour {
        address: LinkAddress::ethernet([2, number, turn, !number, !turn, 0]),
        state: states[usize::from(turn % 2)],
        router: turn % 2 == 1,
    };
    (NeighbourKey { link: 0, address }, record)
}

struct Reader(Child);

impl Drop for Reader {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

/// The writer: changes everything, again and again, until the reader has seen enough.
fn change_beside_a_reader() -> Result<(), Failed> {
    let mut host = Host::shared(ROUTES_MAX, [3, 4])?;
    let mut neighbours = host.take_neighbours().ok_or("no writer of neighbours")?;
    for link in LINKS {
        host.add_interface(Interface { link, up: true, ..Interface::default() })?;
    }
    for number in 0..8 {
        // From here on each network has a route.
        change(&mut host, &mut neighbours, number)?;
    }
    let descriptor = host.descriptor().ok_or("no descriptor")?.as_raw_fd();
    let path = format!("/proc/{}/fd/{descriptor}", std::process::id());
    let child = Command::new(std::env::current_exe()?).env(CHILD, path).spawn();
    let mut reader = child.map(Reader)?;
    let end = Instant::now() + PATIENCE;
    for number in (0..=u8::MAX).cycle() {
        change(&mut host, &mut neighbours, number)?;
        if let Some(status) = reader.0.try_wait()? {
            return status.success().then_some(()).ok_or_else(|| failed(status));
        }
        if Instant::now() > end {
            return Err("the reader does not end".into());
        }
    }
    Ok(())
}

fn failed(status: ExitStatus) -> Failed {
    format!("the reader: {status}").into()
}

fn change(
    host: &mut Host,
    neighbours: &mut MapWriter<NeighbourKey, Neighbour>,
    number: u8,
) -> Result<(), Failed> {
    host.change(|host| {
        for link in LINKS {
            let (mtu, ip) = interface(link, number);
            host.change_interface(link, |interface| interface.mtu = mtu);
            let state = AddressState::Preferred;
            host.set_addresses(link, vec![Address { ip, prefix_len: 24, state }]);
        }
    });
    for network in (0..NETWORKS).filter(|network| network % 8 == number % 8) {
        let (to, to6) = inside(network);
        let way = usize::from(number / 8 % 2);
        host.add_route(Prefix::new(to, 24)?, gateways(network)[way])?;
        host.add_route6(Prefix::new(to6, 64)?, gateways6(network)[way])?;
    }
    let (key, record) = neighbour(number % NEIGHBOURS, number);
    neighbours.set(&key, &record)?;
    if number.is_multiple_of(5) {
        neighbours.remove(&neighbour(number.wrapping_mul(7) % NEIGHBOURS, 0).0);
    }
    Ok(())
}

/// The reader: panics when it sees anything that never was.
fn read(tables: &File) {
    let mut view = View::attach(tables, ROUTES_MAX).unwrap();
    let neighbours = Tables::attach(tables, &Host::capacities(ROUTES_MAX)).unwrap().neighbours;
    let (mut changes, mut known, end) = (0, 0, Instant::now() + PATIENCE);
    while changes < CHANGES || known < CHANGES {
        changes += u32::from(view.refresh());
        assert!(Instant::now() < end, "{changes} changes, {known} neighbours");
        if view.interfaces().is_empty() {
            // Whenever it looked, they were just being written.
            continue;
        }
        let [first, second] = LINKS.map(|link| view.interface(link).unwrap());
        let number = u8::try_from(first.mtu - 1280).unwrap();
        for (link, interface_seen) in LINKS.into_iter().zip([first, second]) {
            let ips: Vec<_> = interface_seen.addresses.iter().map(|address| address.ip).collect();
            assert_eq!((interface_seen.mtu, ips), {
                let (mtu, ip) = interface(link, number);
                (mtu, vec![ip])
            });
        }
        for network in (0..NETWORKS).step_by(7) {
            let (to, to6) = inside(network);
            let (way, way6) = (view.route4(to), view.route6(to6));
            assert!(gateways(network).contains(&way), "{network}: {way:?}");
            assert!(gateways6(network).contains(&way6), "{network}: {way6:?}");
        }
        known += look_at(&neighbours);
    }
}

/// How many neighbours are known; each is as it was written once.
fn look_at(neighbours: &Map<NeighbourKey, Neighbour>) -> u32 {
    let mut known = 0;
    for number in 0..NEIGHBOURS {
        let (key, _) = neighbour(number, 0);
        // What is being written right now is neither there nor not.
        let Ok(Some(found)) = neighbours.get(&key) else { continue };
        let [_, _, turn, ..] = found.address.to_ethernet().unwrap();
        assert_eq!(found, neighbour(number, turn).1);
        known += 1;
    }
    known
}

fn a_reader_states_the_same_room() -> Result<(), Failed> {
    let host = Host::shared(ROUTES_MAX, [3, 4])?;
    let descriptor = host.descriptor().ok_or("no descriptor")?;
    let other = View::attach(descriptor, ROUTES_MAX + 1);
    assert!(matches!(other, Err(RegionError::OtherLayout { .. })), "{other:?}");
    assert!(View::attach(descriptor, ROUTES_MAX).is_ok());
    assert!(Host::new(ROUTES_MAX)?.descriptor().is_none(), "one process's own has none");
    Ok(())
}
