//! Routes of the relay `kernel`: a router of OLSR in each host, as in the paper.

use gatewright_olsr::{OlsrRouter, OlsrSetup};
use gatewright_testbed::{Namespace, wait_until};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A tenth of the standard's intervals, so that routes are there after two seconds.
const HELLO: Duration = Duration::from_millis(200);
const TOPOLOGY: Duration = Duration::from_millis(500);

/// Time for the routes at the most.
const ROUTES_WITHIN: Duration = Duration::from_secs(20);

/// How soon a router ends.
const STEP: Duration = Duration::from_millis(50);

/// A router in a host, on a thread of its own; dropping it ends it and its routes.
#[derive(Debug)]
pub(crate) struct RouteFinder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl RouteFinder {
    /// Starts a router on these interfaces of a host.
    pub(crate) fn start(host: &Namespace, interfaces: Vec<String>, seed: u64) -> Self {
        let (host, stop) = (host.clone(), Arc::new(AtomicBool::new(false)));
        let its = Arc::clone(&stop);
        let mut setup = OlsrSetup::new(interfaces, seed);
        (setup.hello_interval, setup.topology_interval) = (HELLO, TOPOLOGY);
        let run = move || {
            let mut router = OlsrRouter::open(&setup).map_err(|error| error.to_string())?;
            while !its.load(Ordering::Relaxed) {
                router.step(STEP).map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        let thread = std::thread::spawn(move || match host.run(run) {
            Ok(result) => result,
            Err(error) => Err(error.to_string()),
        });
        Self { stop, thread: Some(thread) }
    }

    /// Why it has ended by itself, if it has.
    pub(crate) fn error(&mut self) -> Option<String> {
        let thread = self.thread.take_if(|thread| thread.is_finished())?;
        thread.join().ok()?.err()
    }
}

impl Drop for RouteFinder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Waits until a host has a route to an address from OLSR.
pub(crate) fn wait(host: &Namespace, to: Ipv4Addr) -> bool {
    let protocol = gatewright_olsr::ROUTE_PROTOCOL.to_string();
    let has = || {
        let routes = host.ip(&["route", "show", &to.to_string(), "proto", &protocol]);
        routes.is_ok_and(|routes| !routes.trim().is_empty())
    };
    wait_until(ROUTES_WITHIN, has)
}
