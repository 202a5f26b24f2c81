//! `/livez` while others hold the descriptors of the process.
//!
//! One test, as the limit is the whole process's.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "tests share a file, and not all of it"
)]

mod common;

use common::{Served, serve};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::{
    fs::File,
    io::Read,
    net::TcpStream,
    time::{Duration, Instant},
};

/// Descriptors that the process may have.
const LIMIT: u64 = 160;
/// Of those, the last ones, which connections of peers do not get.
const LAST: usize = 32;

/// Time for a connection to end at the server, too.
const SETTLED_AFTER: Duration = Duration::from_millis(200);

/// Takes every descriptor that is left.
fn hold_all() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

fn wait_for(served: &Served, path: &str, wanted: u16) {
    let began = Instant::now();
    loop {
        let status = served.get(path, "").0;
        if status == wanted {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{path}: {status}, not {wanted}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn livez_is_answered_while_others_hold_all_descriptors() {
    let served = serve();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, LIMIT, hard).unwrap();
    wait_for(&served, "/readyz", 200);
    let mut held = hold_all();
    for _ in 0..3 {
        // The client's is the only one that is free.
        held.pop();
        wait_for(&served, "/livez", 200);
        wait_for(&served, "/readyz", 503);
        // The reserve is taken back when its connection has ended.
        std::thread::sleep(SETTLED_AFTER);
        held.extend(hold_all());
    }
    // A few of the last are free, and no others: the same.
    held.truncate(held.len() - LAST / 4);
    assert_eq!(served.get("/livez", "").0, 200);
    assert_eq!(served.get("/api/v1/status", "").0, 503);
    // Connections that ask nothing give way to the next, and end soon.
    let began = Instant::now();
    let mut silent: Vec<TcpStream> = (0..4).map(|_| served.connect()).collect();
    assert_eq!(served.get("/livez", "").0, 200);
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0; 9]).unwrap_or(0), 0);
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    drop((held, silent));
    wait_for(&served, "/readyz", 200);
    assert!(served.counter("descriptors_refused") >= 4);
}
