//! A start with a long history: ten million instances, which are in the store only.
//!
//! They are written into the database by its own writer: by requests it would take minutes.

use super::{FAMILY, Gateway};
use crate::process::{resident_kib, text};
use bench::{Bench, Relation};
use gatewright_onem2m::{Batch, RecordBlock, RowChange};
use gatewright_store::{BatchWriter, Database, DatabaseOptions, WriteReport};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds until the first answer.
pub(super) const FIRST_ANSWER_MS: f64 = 500.0;
/// MiB of resident memory then.
const RESIDENT_MIB: f64 = 512.0;
/// Instances; in a hurry fewer.
const INSTANCES: (u64, u64) = (10_000_000, 1_000_000);
/// Containers that they are in.
const CONTAINERS: u64 = 100;
/// Rows of a transaction.
const ROWS: u64 = 4_000;
/// How long the blocks of records may take to be written behind the last row.
const WRITTEN_WITHIN: Duration = Duration::from_mins(5);

/// Measures starts with a long history.
pub(super) fn measure(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    let store = folder.join("history.db");
    let instances = bench.options().pick(INSTANCES.0, INSTANCES.1);
    let gateway = Gateway::start(binary, folder, &store)?;
    gateway.lay_out(CONTAINERS)?;
    drop(gateway);
    write(&store, instances)?;
    for _round in 0..bench.options().pick(5, 2) {
        let began = Instant::now();
        let gateway = Gateway::start(binary, folder, &store)?;
        let path = "/cse-in/archive/s0/la";
        let status = gateway.client("Cview0")?.ask("GET", path, "", "")?;
        bench.sample("history_first_answer_ms", "ms", began.elapsed().as_secs_f64() * 1e3);
        if status != 200 {
            return Err(format!("{path} with a long history: {status}"));
        }
        bench.sample("history_rss_mib", "MiB", resident_kib(gateway.child.id())? / 1024.0);
        gateway.check(CONTAINERS, instances / CONTAINERS)?;
    }
    Ok(())
}

/// Promises of a start with a long history.
pub(super) fn promise(bench: &mut Bench) {
    if bench.options().quick {
        let why = "in a hurry there are 1,000,000 instances, not 10,000,000";
        bench.skip("history_first_answer_ms", Relation::AtMost, FIRST_ANSWER_MS, why);
        bench.skip("history_rss_mib", Relation::AtMost, RESIDENT_MIB, why);
        return;
    }
    bench.promise("history_first_answer_ms", Relation::AtMost, FIRST_ANSWER_MS);
    bench.promise("history_rss_mib", Relation::AtMost, RESIDENT_MIB);
}

/// Writes instances into all containers of a database, and waits for their blocks of records.
fn write(store: &Path, instances: u64) -> Result<(), String> {
    let containers = containers(store)?;
    let options = DatabaseOptions::default();
    let (database, rows, begin) = Database::open_reading(store, &options).map_err(text)?;
    drop(rows);
    let (sender, reports) = channel();
    let writer = database.start(move |report| drop(sender.send(report))).map_err(text)?;
    let end = begin + instances;
    let (mut seq, mut number) = (begin, 0);
    while seq < end {
        let next_seq = (seq + ROWS).min(end);
        let put = |seq: u64| -> Option<RowChange> {
            let at = usize::try_from((seq - begin) % CONTAINERS).ok()?;
            Some(RowChange::Put { seq, body: instance(seq, containers.get(at)?).into() })
        };
        let records = (seq..next_seq).map(put).collect::<Option<Vec<_>>>();
        number += 1;
        let batch = Batch {
            number,
            epoch: 0,
            next_seq,
            records: records.ok_or("fewer containers than were made")?,
            entries: Vec::new(),
            clock: None,
            remembered: None,
        };
        store_batch(&writer, &reports, batch)?;
        seq = next_seq;
    }
    let began = Instant::now();
    // The last numbers have no block yet.
    while writer.counters().blocks + 1 < instances / RecordBlock::NUMBERS {
        if began.elapsed() > WRITTEN_WITHIN {
            return Err("the blocks of records were not written".to_owned());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn store_batch(
    writer: &BatchWriter,
    reports: &Receiver<WriteReport>,
    batch: Batch,
) -> Result<(), String> {
    let number = batch.number;
    writer.push(batch).map_err(|_| "the writer takes no batch".to_owned())?;
    loop {
        match reports.recv().map_err(text)? {
            WriteReport::Committed(reached) if reached >= number => return Ok(()),
            WriteReport::Failed { cause, .. } => return Err(cause),
            WriteReport::Committed(_) | WriteReport::Short(_) => {}
        }
    }
}

/// Identifiers of the containers that instances are put into.
fn containers(store: &Path) -> Result<Vec<String>, String> {
    let restored = Database::read(store).map_err(text)?;
    let id = |body: &str| -> Option<String> {
        let value: serde_json::Value = serde_json::from_str(body).ok()?;
        let container = value.get("m2m:cnt")?;
        let name = container.get("rn")?.as_str()?;
        let digits = name.strip_prefix('s')?;
        digits.parse::<u64>().ok()?;
        Some(container.get("ri")?.as_str()?.to_owned())
    };
    Ok(restored.rows.iter().filter_map(|(_, body)| id(body)).collect())
}

/// A reading as a device's is stored, with a given name.
fn instance(seq: u64, container: &str) -> String {
    let state = seq % FAMILY;
    format!(
        "{{\"m2m:cin\":{{\"ri\":\"cin{seq:x}\",\"rn\":\"phd-0123456789abcdef-{seq}\",\"pi\":\"{container}\",\
         \"ty\":4,\"ct\":\"20261124T060000,{state:06}\",\"lt\":\"20261124T060000,{state:06}\",\
         \"et\":\"20991124T060000,000000\",\"st\":{seq},\"cs\":12,\"con\":\"{seq} 97.5 72\"}}}}"
    )
}
