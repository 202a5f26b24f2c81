//! All conditions as CSV.

use crate::analysis::DelaySummary;
use crate::result::LabRun;
use gatewright_config::{LinkShape, NodeShape};
use std::fmt::Write;

/// Summaries of each condition, by the beginning of their columns' names.
const DELAYS: [&str; 7] =
    ["node", "in_queue", "processing", "out_queue", "link", "end_to_end", "lateness"];

/// What has an interval of 95 %, by the beginning of its columns' names.
const INTERVALS: [&str; 5] = ["node_p50", "node_p95", "node_p99", "nlr", "loss_pct"];

/// One line for each condition of each relay, delays in microseconds (RFC 4180).
pub fn csv(run: &LabRun) -> String {
    let mut csv = "relay,octets,rate,load_pct,batch,awake,frequency_mhz,sent,received,repeated,unstamped,loss_pct,spikes,\
                   cv_pct,steady,steal_pct,jitter_mean"
        .to_owned();
    for delay in DELAYS {
        for part in ["mean", "p5", "p50", "p95", "p99", "max"] {
            // Writing to a string cannot fail.
            let _ = write!(csv, ",{delay}_{part}");
        }
    }
    for interval in INTERVALS {
        let _ = write!(csv, ",{interval}_low,{interval}_high");
    }
    csv.push_str(
        ",nlr,slowdown,quota_pct,link_capacity_mbps,link_latency_us,link_jitter_us,link_loss_pct\n",
    );
    let setting = setting(run);
    for it in &run.conditions {
        let number = |value: Option<f64>| value.map_or_else(String::new, |it| format!("{it:.3}"));
        let _ = write!(
            csv,
            "{},{},{},{},{},{},{},{},{},{},{},{:.3},{},{},{},{:.2},{}",
            it.relay.name(),
            it.octets,
            it.rate,
            it.load_pct,
            it.batch,
            it.awake,
            it.frequency_mhz,
            it.sent,
            it.received,
            it.repeated,
            it.unstamped,
            it.loss_pct(),
            it.spikes,
            number(it.cv_pct),
            it.steady,
            it.steal_pct,
            number(it.jitter.map(|jitter| jitter.mean)),
        );
        let delays = [
            it.node,
            it.in_queue,
            it.processing,
            it.out_queue,
            it.link,
            it.end_to_end,
            it.lateness,
        ];
        for delay in delays {
            let parts = |it: DelaySummary| [it.mean, it.p5, it.p50, it.p95, it.p99, it.max];
            for value in delay.map_or([None; 6], |it| parts(it).map(Some)) {
                let _ = write!(csv, ",{}", number(value));
            }
        }
        let intervals = [
            it.node_median,
            it.node.and_then(|it| it.p95_interval),
            it.node.and_then(|it| it.p99_interval),
            it.node_link_interval,
            it.loss_interval_pct(),
        ];
        for interval in intervals {
            let (low, high) = interval.map(|it| (it.low, it.high)).unzip();
            let _ = write!(csv, ",{},{}", number(low), number(high));
        }
        let _ = writeln!(csv, ",{},{setting}", number(it.node_link_ratio()));
    }
    csv
}

/// What all conditions of a run have in common: the node and both links, whose columns are empty where
/// they had no shape. Lines of two runs in one file are told apart by it.
fn setting(run: &LabRun) -> String {
    let NodeShape { slowdown, quota_pct, .. } = run.experiment.node;
    // Loopback has no links.
    let link = run.experiment.link.filter(|_| run.namespaces).map_or_else(
        || ",,,".to_owned(),
        |LinkShape { capacity_mbps, latency_us, jitter_us, loss_pct }| {
            format!("{capacity_mbps},{latency_us},{jitter_us},{loss_pct}")
        },
    );
    format!("{slowdown},{quota_pct},{link}")
}
