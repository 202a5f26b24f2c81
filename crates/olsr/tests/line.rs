//! Four routers in a line, each in a network namespace: routes appear, packets arrive, a cut heals.
//!
//! No other implementation of OLSR is a peer here: Debian 12 has none.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

use gatewright_olsr::{OlsrNetwork, OlsrRouter, OlsrRouterError, OlsrSetup};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

fn main() {
    let missing = Needs::new().namespaces().program("ping").missing();
    let trials: Vec<Trial> = [
        ("a_line_finds_routes_and_removes_them", line as fn() -> Result<(), Failed>),
        ("a_cut_in_a_ring_heals", ring),
    ]
    .into_iter()
    .map(|(name, test)| Trial::test(name, test).with_ignored_flag(missing.is_some()))
    .collect();
    if let Some(missing) = missing {
        eprintln!("skipped: {missing}");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A router that runs on a thread of its own.
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(host: &Namespace, setup: OlsrSetup) -> Self {
        let (host, stop) = (host.clone(), Arc::new(AtomicBool::new(false)));
        let its = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let run = || {
                let mut router = OlsrRouter::open(&setup).unwrap();
                while !its.load(Ordering::Relaxed) {
                    router.step(Duration::from_millis(50)).unwrap();
                }
            };
            host.run(run).unwrap();
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Hosts with a cable between each and the next, and between the last and the first in a ring.
fn hosts(count: usize, ring: bool) -> (Vec<Namespace>, Vec<Veth>) {
    let hosts: Vec<Namespace> = (0..count).map(|_| Namespace::new().unwrap()).collect();
    let cables = if ring { count } else { count - 1 };
    let cable = |at: usize| {
        let (left, right) = (&hosts[at], &hosts[(at + 1) % count]);
        let cable = Veth::pair(left, "right", right, "left").unwrap();
        for (end, number) in [(&cable.a, 1), (&cable.b, 2)] {
            end.disable_ipv6().unwrap();
            end.add_address(&format!("10.98.{at}.{number}/24")).unwrap();
        }
        cable.up().unwrap();
        cable
    };
    let cables = (0..cables).map(cable).collect();
    for host in &hosts {
        host.sysctl("net.ipv4.ip_forward", "1").unwrap();
        host.sysctl("net.ipv4.conf.all.rp_filter", "0").unwrap();
        host.sysctl("net.ipv4.conf.default.rp_filter", "0").unwrap();
    }
    (hosts, cables)
}

fn setup(interfaces: &[&str], seed: u64) -> OlsrSetup {
    let names = interfaces.iter().map(|&name| name.to_owned()).collect();
    let mut setup = OlsrSetup::new(names, seed);
    // A tenth of the standard's intervals.
    setup.hello_interval = Duration::from_millis(200);
    setup.topology_interval = Duration::from_millis(500);
    setup
}

fn ours(host: &Namespace) -> String {
    host.ip(&["route", "show", "proto", "98"]).unwrap_or_default()
}

fn answers(host: &Namespace, to: &str) -> bool {
    let mut ping = host.command("ping");
    ping = ping.args(["-c", "1", "-W", "1", "-n", to]);
    ping.output().is_ok_and(|output| output.status.success())
}

fn line() -> Result<(), Failed> {
    let (hosts, _cables) = hosts(4, false);
    let names: [&[&str]; 4] = [&["right"], &["left", "right"], &["left", "right"], &["left"]];
    // What a killed router left is removed, what the administrator wrote is not.
    hosts[0].ip(&["route", "add", "10.55.0.1", "via", "10.98.0.2", "proto", "98"])?;
    hosts[0].ip(&["route", "add", "10.55.0.2", "via", "10.98.0.2"])?;
    let mut running: Vec<Running> = (hosts.iter().zip(names).enumerate())
        .map(|(at, (host, names))| {
            let mut setup = setup(names, at as u64);
            if at == 3 {
                setup.networks = vec![OlsrNetwork::new([10, 77, 0, 0].into(), 16)];
            }
            Running::start(host, setup)
        })
        .collect();
    let all = || answers(&hosts[0], "10.98.2.2") && ours(&hosts[0]).contains("10.77.0.0/16");
    if !wait_until(Duration::from_secs(30), all) {
        return Err(format!("no way to the far end: {}", ours(&hosts[0])).into());
    }
    let routes = hosts[0].ip(&["route", "show"])?;
    assert!(!routes.contains("10.55.0.1 ") && routes.contains("10.55.0.2 "), "{routes}");
    // Further interfaces, by MID: the middle's side that does not face us.
    let alias = || ours(&hosts[0]).contains("10.98.1.1 ") && answers(&hosts[0], "10.98.2.1");
    assert!(wait_until(Duration::from_secs(20), alias), "{}", ours(&hosts[0]));
    // A second one would take the first one's routes for those of an earlier one.
    let is_second = || {
        let second = OlsrRouter::open(&setup(&["right"], 9));
        matches!(second, Err(OlsrRouterError::Second))
    };
    assert!(hosts[0].run(is_second)?);
    // What somebody else removes comes back.
    hosts[0].ip(&["route", "flush", "proto", "98"])?;
    assert!(wait_until(Duration::from_secs(30), all), "{}", ours(&hosts[0]));
    // A router that ends takes its routes along, and its neighbours forget it.
    running.pop();
    assert_eq!(ours(&hosts[3]), "");
    let gone = || !ours(&hosts[0]).contains("10.98.2.2 ");
    assert!(wait_until(Duration::from_secs(30), gone), "{}", ours(&hosts[0]));
    Ok(())
}

fn ring() -> Result<(), Failed> {
    let (hosts, cables) = hosts(4, true);
    let _running: Vec<Running> = (hosts.iter().enumerate())
        .map(|(at, host)| Running::start(host, setup(&["left", "right"], at as u64)))
        .collect();
    // From host 0 to host 1, by its main address, which is that of its `left`.
    let direct = || ours(&hosts[0]).contains("10.98.0.2 dev right");
    assert!(wait_until(Duration::from_secs(30), direct), "{}", ours(&hosts[0]));
    // Until everybody knows every way.
    let ready = || answers(&hosts[2], "10.98.0.2") && ours(&hosts[0]).contains("10.98.1.2 ");
    assert!(wait_until(Duration::from_secs(30), ready), "{}", ours(&hosts[0]));
    cables[0].b.down()?;
    cables[0].a.down()?;
    // Host 1 is at 10.98.1.1, too, which the other way leads to.
    let healed = || answers(&hosts[0], "10.98.1.1");
    assert!(wait_until(Duration::from_secs(30), healed), "{}", ours(&hosts[0]));
    cables[0].a.up()?;
    cables[0].b.up()?;
    assert!(wait_until(Duration::from_secs(30), direct), "{}", ours(&hosts[0]));
    Ok(())
}
