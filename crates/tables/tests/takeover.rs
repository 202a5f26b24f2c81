//! A writer in another process is killed at any instant; readers go on, and the next writer mends.
//!
//! This test is its own child: with [`CHILD`] in its environment it is the writer.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_tables::records::NextHop;
use gatewright_tables::{Capacities, HopIndex, Miss, Prefix, Tables, TablesWriter};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const CHILD: &str = "GATEWRIGHT_TABLES_TEST_CHILD";
/// Networks that the child gives routes to and takes them from.
const NETWORKS: u32 = 2000;
const KILLS: u64 = 20;

fn main() {
    if std::env::var_os(CHILD).is_some() {
        write_for_ever();
    }
    let trial = Trial::test("a_killed_writer_is_replaced_under_its_readers", || {
        for kill in 0..KILLS {
            kill_and_take_over(Duration::from_micros(500 + kill * 731))?;
        }
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 | number << 8 | 1)
}

fn network(number: u32) -> Prefix<Ipv4Addr> {
    Prefix::new(address(number), 24).unwrap()
}

/// The child: says where its descriptor is and writes without a pause until it is killed.
fn write_for_ever() -> ! {
    let mut writer = TablesWriter::create(&Capacities::default(), [1, 2]).unwrap();
    writer.routes4.insert(Prefix::all(), HopIndex(u32::MAX - 1)).unwrap();
    let descriptor = writer.descriptor().unwrap().as_raw_fd();
    std::io::stdout().write_all(format!("{descriptor}\n").as_bytes()).unwrap();
    for round in 0_u32.. {
        let number = round.wrapping_mul(7919) % NETWORKS;
        if round % 3 == 0 {
            writer.routes4.remove(network(number));
        } else {
            writer.routes4.insert(network(number), HopIndex(number)).unwrap();
        }
        let hop = NextHop { mtu: round, ..NextHop::via(7, address(round & 0xff).into()) };
        writer.hops.set(round % 16, &hop).unwrap();
    }
    unreachable!("rounds end with the process");
}

struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

fn kill_and_take_over(after: Duration) -> Result<(), Failed> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .map(Writer)?;
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let path = format!("/proc/{}/fd/{}", child.0.id(), line.trim());
    let region = File::options().read(true).write(true).open(path)?;
    let capacities = Capacities::default();
    let readers = Tables::attach(&region, &capacities)?;

    let end = std::time::Instant::now() + after;
    while std::time::Instant::now() < end {
        check(&readers);
    }
    child.0.kill()?;
    child.0.wait()?;
    check(&readers);

    let mut writer = TablesWriter::adopt(&region, &capacities)?;
    // Whatever the dead one left half-written is free now, and the rest is still there.
    assert!(writer.hops.torn() <= 1, "one writer dies in one record");
    assert!((0..16).all(|place| readers.hops.get(place).is_ok()));
    check(&readers);
    writer.routes4.replace([(network(1), HopIndex(77))])?;
    assert_eq!(readers.routes4.lookup(address(1)), Ok(HopIndex(77)));
    assert_eq!(readers.routes4.lookup(address(2)), Err(Miss::NoRoute));
    Ok(())
}

/// Every answer is one that was right at some time.
fn check(readers: &Tables) {
    for number in 0..NETWORKS {
        let HopIndex(hop) = readers.routes4.lookup(address(number)).unwrap();
        assert!(hop == number || hop == u32::MAX - 1, "{number} leads to {hop}");
    }
    for place in 0..16 {
        if let Ok(Some(hop)) = readers.hops.get(place) {
            assert_eq!(hop.gateway, Some(address(hop.mtu & 0xff).into()));
        }
    }
}
