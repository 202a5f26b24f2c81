//! How fast a gateway's outbox empties when the CSE above is back.

use super::sink::Sink;
use super::{GatewayProcess, Setting};
use crate::process::text;
use bench::Bench;
use gatewright_onem2m::{
    Cse, CseConfig, CseType, DEVICE_QUEUE, Input, Operation, OutboxMessage, Output, Request,
    ResourceType, Token,
};
use gatewright_store::{Database, DatabaseOptions, WriteReport};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Messages that wait, and the queues that they are in.
const MANY: (u32, u32) = (60_000, 100);
const ONE: (u32, u32) = (6_000, 1);
/// How long all may take to arrive.
const WITHIN: Duration = Duration::from_mins(1);

/// Fills a store with messages for the CSE at this port, as readings of so many devices.
fn fill(store: &Path, port: u16, (messages, queues): (u32, u32)) -> Result<(), String> {
    let (database, restored) = Database::open(store, &DatabaseOptions::default()).map_err(text)?;
    let mut config = CseConfig::new(CseType::Middle, "/gw", "cse-gw");
    config.admin = Some("CAdmin".to_owned());
    let opened = Cse::open(config, Duration::ZERO, restored.rows, restored.next_seq);
    let (mut cse, _) = opened.map_err(text)?;
    let (sender, reports) = channel();
    let writer = database.start(move |report| drop(sender.send(report))).map_err(text)?;
    let target: Arc<str> = format!("http://127.0.0.1:{port}").into();
    let mut last = 0;
    for number in 0..messages {
        let (from, to) = (format!("Cphd-{}", number % queues), "/id-in/cse-in/x/y".to_owned());
        let content =
            format!("{{\"m2m:cin\":{{\"rn\":\"n{number}\",\"con\":\"{}\"}}}}", "x".repeat(200));
        let queue = format!("{DEVICE_QUEUE}{from}").into();
        let request = Request::new(Operation::Create, to, from, format!("m{number}"))
            .creating(ResourceType::ContentInstance, content);
        let message =
            OutboxMessage { queue, target: Arc::clone(&target), request, keep: None, batch: None };
        let token = Token(number.into());
        cse.handle(Duration::ZERO, Input::Post { token, message });
        while let Some(output) = cse.poll_output() {
            if let Output::Store(batch) = output {
                last = batch.number;
                writer
                    .push_patiently(batch)
                    .map_err(|_| "the writer's queue is full".to_owned())?;
            }
        }
    }
    loop {
        match reports.recv().map_err(text)? {
            WriteReport::Committed(number) if number >= last => return Ok(()),
            WriteReport::Committed(_) | WriteReport::Short(_) => {}
            WriteReport::Failed { cause, .. } => return Err(cause),
        }
    }
}

/// Starts a gateway with that many messages and a CSE above that takes them.
fn drain(binary: &Path, folder: &Path, load: (u32, u32)) -> Result<f64, String> {
    let sink = Sink::start()?;
    let setting = Setting { registrar: Some(sink.port), keeps_store: true, core: "0,1" };
    super::clear(folder);
    fill(&super::store(folder), sink.port, load)?;
    let port = super::free_port()?;
    let gateway = GatewayProcess::start(binary, folder, port, &setting)?;
    let end = Instant::now() + WITHIN;
    while sink.answered().0 < u64::from(load.0) {
        if Instant::now() > end {
            return Err(format!("{} of {} messages arrived", sink.answered().0, load.0));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(gateway);
    let span = sink.span().ok_or("nothing arrived")?;
    Ok(f64::from(load.0) / span.as_secs_f64())
}

/// Measures both.
pub(super) fn run(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    bench.sample("drain_per_s", "1/s", drain(binary, folder, MANY)?);
    bench.sample("drain_one_queue_per_s", "1/s", drain(binary, folder, ONE)?);
    Ok(())
}
