//! `bench outbox`: how fast a gateway's outbox empties when the CSE above is back.

use super::sink::Sink;
use super::{GatewayProcess, Setting};
use crate::process::text;
use bench::{Bench, Options, Relation};
use gatewright_config::LinkShape;
use gatewright_lab::DelayLine;
use gatewright_onem2m::{
    Cse, CseConfig, CseType, DEVICE_QUEUE, Input, Operation, OutboxMessage, Output, Request,
    ResourceType, Token,
};
use gatewright_store::{Database, DatabaseOptions, WriteReport};
use gatewright_testbed::{Namespace, TestInterface};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Messages that wait, and the queues that they are in.
const MANY: (u32, u32) = (60_000, 100);
const ONE: (u32, u32) = (6_000, 1);
/// What is promised of both, in a second.
const MANY_PER_S: f64 = 20_000.0;
const ONE_PER_S: f64 = 3_000.0;
/// Latency of the delay line each way, in microseconds, and the addresses at its ends.
const LATENCY_US: u32 = 10_000;
const GATEWAY_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const ABOVE_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// How long all may take to arrive.
const WITHIN: Duration = Duration::from_mins(1);

/// Fills a store with messages for the CSE at this address, as readings of so many devices.
fn fill(store: &Path, above: SocketAddr, (messages, queues): (u32, u32)) -> Result<(), String> {
    let (database, restored) = Database::open(store, &DatabaseOptions::default()).map_err(text)?;
    let mut config = CseConfig::new(CseType::Middle, "/gw", "cse-gw");
    config.admin = Some("CAdmin".to_owned());
    let opened = Cse::open(config, Duration::ZERO, restored.rows, restored.next_seq);
    let (mut cse, _) = opened.map_err(text)?;
    let (sender, reports) = channel();
    let writer = database.start(move |report| drop(sender.send(report))).map_err(text)?;
    let target: Arc<str> = format!("http://{above}").into();
    let mut last = 0;
    for number in 0..messages {
        let (from, to) = (format!("Cphd-{}", number % queues), "/id-in/cse-in/x/y".to_owned());
        let content =
            format!("{{\"m2m:cin\":{{\"rn\":\"n{number}\",\"con\":\"{}\"}}}}", "x".repeat(200));
        let queue = format!("{DEVICE_QUEUE}{from}").into();
        let request = Request::new(Operation::Create, to, from, format!("m{number}"))
            .creating(ResourceType::ContentInstance, content);
        let message = OutboxMessage {
            queue,
            target: Arc::clone(&target),
            request: request.into(),
            keep: None,
            batch: None,
        };
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

/// The hosts of the gateway and of a CSE above that is 20 ms away.
struct FarHosts {
    gateway: Namespace,
    above: Namespace,
    _line: DelayLine,
    _ends: [TestInterface; 2],
}

impl FarHosts {
    fn new() -> Result<Self, String> {
        let [gateway, above] = [Namespace::new().map_err(text)?, Namespace::new().map_err(text)?];
        let shape =
            LinkShape { capacity_mbps: 0.0, latency_us: LATENCY_US, jitter_us: 0, loss_pct: 0.0 };
        let (line, ends) = DelayLine::lay((&gateway, "wan"), (&above, "lan"), shape, 1)?;
        for (end, ip) in ends.iter().zip([GATEWAY_IP, ABOVE_IP]) {
            end.disable_ipv6().map_err(text)?;
            end.add_address(&format!("{ip}/24")).map_err(text)?;
            end.up().map_err(text)?;
        }
        Ok(Self { gateway, above, _line: line, _ends: ends })
    }
}

/// Starts a gateway with that many messages and a CSE above that takes them.
fn drain(
    binary: &Path,
    folder: &Path,
    load: (u32, u32),
    far: Option<&FarHosts>,
) -> Result<f64, String> {
    let sink = match far {
        Some(far) => far.above.run(|| Sink::start_at(ABOVE_IP)).map_err(text)??,
        None => Sink::start()?,
    };
    let setting = Setting { registrar: Some(sink.address), keeps_store: true, core: "0,1" };
    super::clear(folder);
    fill(&super::store(folder), sink.address, load)?;
    let start = || GatewayProcess::start(binary, folder, super::free_port()?, &setting);
    let gateway = match far {
        Some(far) => far.gateway.run(start).map_err(text)??,
        None => start()?,
    };
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

/// Measures queues of one load with a CSE above on this host, and with one that is far away.
fn round(
    bench: &mut Bench,
    binary: &Path,
    folder: &Path,
    far: Option<&FarHosts>,
) -> Result<(), String> {
    bench.sample("drain_per_s", "1/s", drain(binary, folder, MANY, None)?);
    bench.sample("drain_one_queue_per_s", "1/s", drain(binary, folder, ONE, None)?);
    if far.is_some() {
        bench.sample("drain_20ms_per_s", "1/s", drain(binary, folder, MANY, far)?);
        bench.sample("drain_20ms_one_queue_per_s", "1/s", drain(binary, folder, ONE, far)?);
    }
    Ok(())
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("outbox", options);
    let (binary, folder) = (crate::binary()?, super::folder()?);
    let far = FarHosts::new();
    for _round in 0..options.pick(3, 1) {
        if let Err(problem) = round(&mut bench, &binary, folder, far.as_ref().ok()) {
            bench.note(problem);
        }
    }
    bench.promise("drain_per_s", Relation::AtLeast, MANY_PER_S);
    bench.promise("drain_one_queue_per_s", Relation::AtLeast, ONE_PER_S);
    for (key, promised) in
        [("drain_20ms_per_s", MANY_PER_S), ("drain_20ms_one_queue_per_s", ONE_PER_S)]
    {
        match &far {
            Ok(_) => bench.promise(key, Relation::AtLeast, promised),
            Err(why) => bench.skip(key, Relation::AtLeast, promised, why),
        }
    }
    bench.note(
        "from the first of the waiting messages that arrives to the last, of 100 queues or one; the \
         CSE above answers 2001 and stores nothing, in this process; 20ms: it is in a network \
         namespace behind a delay line of 10 ms each way",
    );
    Ok(bench)
}
