//! Status and metrics while a reload is under way.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail loudly")]

use gatewright_config::{Config, Listen};
use gatewright_gateway::{Assembly, Gateway, metrics::MetricsServer};
use gatewright_part::{Change, Part, Staged, Unable, Unchanged};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// A part that stages a description for as long as the test wants.
struct Slow {
    stages: Sender<()>,
    goes_on: Mutex<Receiver<()>>,
}

impl Part for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn differences(&self, _: &Config, _: &Config) -> Vec<Change> {
        Vec::new()
    }

    fn stage(&self, _: &Config, _: &Config) -> Result<Box<dyn Staged>, Unable> {
        self.stages.send(()).unwrap();
        self.goes_on.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        Ok(Box::new(Unchanged))
    }
}

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn page(server: &MetricsServer) -> String {
    let mut stream = TcpStream::connect(server.address().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The reload goes on only when the page and the status have come: whoever waited for it would wait
/// for ever.
#[test]
fn status_and_metrics_do_not_wait_for_a_reload() {
    let config = Config::default();
    let ((stages, is_staging), (go_on, goes_on)) = (channel(), channel());
    let slow = Slow { stages, goes_on: Mutex::new(goes_on) };
    let gateway =
        Arc::new(Gateway::open(&config, 7, Assembly::default()).unwrap().with_part(Arc::new(slow)));
    let listen = Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let server = MetricsServer::start(Arc::clone(&gateway), &listen).unwrap();
    let reloads = thread::spawn({
        let gateway = Arc::clone(&gateway);
        move || gateway.reload(&config).map(|changes| changes.len())
    });
    is_staging.recv_timeout(PATIENCE).unwrap();
    let asked = Instant::now();
    let page = page(&server);
    println!("the page took {:?}", asked.elapsed());
    assert!(page.starts_with("HTTP/1.1 200 ") && page.ends_with("# EOF\n"), "{page}");
    gateway.status().unwrap();
    assert!(!reloads.is_finished());
    go_on.send(()).unwrap();
    assert_eq!(reloads.join().unwrap().unwrap(), 0);
}
