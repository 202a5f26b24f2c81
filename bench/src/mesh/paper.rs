//! `bench mesh-paper`: the first two experiments of the Lilith paper (Untz, Heusse, Rousseau and Duda, 2004)
//! on links of 100 Mbit/s, by nodes of the mesh and by the kernel's forwarding of IP in turn.
//!
//! Table 1 is four nodes in a line: the first ping, round trips, and a TCP stream where each cable has a
//! switch of its own, and where all share one hub. Table 2 is a square, A–B–D and A–C–D: round trips by
//! both routes while a greedy stream fills the first. Over the same square many flows are spread.

mod net;

use bench::{Bench, Options, Relation};
use gatewright_testbed::Needs;
use net::{Medium, PaperNet, Way};
use std::time::Duration;

/// The classes of traffic by their TOS octets: network control and bounded delay keep to the first path,
/// bulk is spread, background takes the other path.
const BOUNDED: i32 = 0xa0;
const BULK: i32 = 0;
const BACKGROUND: i32 = 0x20;

/// A stream's time.
const WINDOW: Duration = Duration::from_millis(1_500);
/// Streams that are spread over two paths.
const FLOWS: usize = 16;
/// First pings, each by a node that has just started; and pairs of streams.
const FIRST: usize = 100;
const PAIRS: usize = 7;
/// Round trips of a sample.
const PINGS: u32 = 200;

const PROMISED: [(&str, Relation, f64); 7] = [
    ("first_ping_ms", Relation::AtMost, 1.0),
    ("first_ping_p99_ms", Relation::AtMost, 3.0),
    ("throughput_switch_vs_ip", Relation::AtLeast, 0.99),
    ("throughput_hub_vs_ip", Relation::AtLeast, 0.98),
    ("rtt_vs_ip", Relation::AtMost, 1.1),
    ("route2_rtt_vs_idle", Relation::AtMost, 1.1),
    ("spread_vs_one", Relation::AtLeast, 1.8),
];

/// The paper's own figures.
const PAPER: &str = "the paper's Table 1, IP and Lilith: first ping 0.9 and 6.0 ms, ping of 64 octets 0.3 and \
    0.5 ms, of 1000 octets 0.8 and 1.0 ms, throughput by a hub 22.6 and 22.3 Mbit/s, by switches 91.4 and 91.0; \
    its Table 2, round trip and deviation in ms while a greedy stream is on route 1: by switches route 1 5.3 and \
    0.08, route 2 0.5 and 0.07; by hubs 12.0 and 3.55, 0.3 and 0.07";

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("mesh-paper", options);
    if let Some(missing) =
        Needs::new().namespaces().program("tc").program("ethtool").linux(6, 6).missing()
    {
        for (key, relation, bound) in PROMISED {
            bench.skip(key, relation, bound, &missing.to_string());
        }
        return Ok(bench);
    }
    first_ping(&mut bench)?;
    throughput(&mut bench, Medium::Switch, ["ip_switch_mbit_s", "label_switch_mbit_s"])?;
    bench.ratio("throughput_switch_vs_ip", "label_switch_mbit_s", "ip_switch_mbit_s");
    throughput(&mut bench, Medium::Hub, ["ip_hub_mbit_s", "label_hub_mbit_s"])?;
    bench.ratio("throughput_hub_vs_ip", "label_hub_mbit_s", "ip_hub_mbit_s");
    round_trips(&mut bench)?;
    two_routes(&mut bench)?;
    for (key, relation, bound) in PROMISED {
        bench.promise(key, relation, bound);
    }
    bench.note(PAPER);
    Ok(bench)
}

/// Datagrams of 64 octets from A to D: the neighbour caches are empty, and A has just started.
fn first_ping(bench: &mut Bench) -> Result<(), String> {
    let count = bench.options().pick(FIRST, 10);
    let mut net = PaperNet::line(Medium::Switch)?;
    let mut all = Vec::new();
    for _ in 0..count {
        net.forget_neighbours()?;
        bench.sample("first_ping_ip_ms", "ms", net.round_trip(Way::Ip, (0, 3), BULK, 64)? / 1e3);
        net.restart(0)?;
        net.forget_neighbours()?;
        let first = net.round_trip(Way::Label, (0, 3), BULK, 64)? / 1e3;
        bench.sample("first_ping_ms", "ms", first);
        all.push(first);
    }
    all.sort_by(f64::total_cmp);
    let p99 = all.get((all.len() * 99).div_ceil(100).saturating_sub(1));
    bench.sample("first_ping_p99_ms", "ms", *p99.ok_or("no ping")?);
    bench.note(format!(
        "first_ping: four nodes in a line, ARP and discovery included, {count} times; p99: the largest of \
         fewer than a hundred"
    ));
    Ok(())
}

/// A TCP stream from A to D, by IP and by labels in turn.
fn throughput(bench: &mut Bench, medium: Medium, keys: [&str; 2]) -> Result<(), String> {
    let net = PaperNet::line(medium)?;
    for way in [Way::Ip, Way::Label] {
        net.streams(way, (0, 3), BULK, (1, Duration::from_millis(300)))?;
    }
    for _ in 0..bench.options().pick(PAIRS, 3) {
        for (way, key) in [Way::Ip, Way::Label].into_iter().zip(keys) {
            bench.sample(key, "Mbit/s", net.streams(way, (0, 3), BULK, (1, WINDOW))?);
        }
    }
    Ok(())
}

/// Round trips where the middle link takes 0.15 ms each way.
fn round_trips(bench: &mut Bench) -> Result<(), String> {
    let net = PaperNet::line(Medium::Slow)?;
    for len in [64, 1000] {
        let (ip, label) = (format!("ip_rtt_{len}_us"), format!("label_rtt_{len}_us"));
        for _ in 0..bench.options().pick(PAIRS, 3) {
            for (way, key) in [(Way::Ip, &ip), (Way::Label, &label)] {
                let samples = net.round_trips(way, (0, 3), BULK, (len, PINGS))?;
                bench.sample(key, "µs", median(&samples));
            }
        }
    }
    bench.ratio("rtt_vs_ip", "label_rtt_64_us", "ip_rtt_64_us");
    bench.note(
        "rtt: the median of a sample; the middle link of three takes 0.15 ms each way, so that a round trip by \
         IP has the paper's 0.3 ms",
    );
    Ok(())
}

/// Table 2, and streams over both routes.
fn two_routes(bench: &mut Bench) -> Result<(), String> {
    let net = PaperNet::square(Medium::Switch)?;
    net.settle((0, 3))?;
    let pings = |class| net.round_trips(Way::Label, (0, 3), class, (64, PINGS));
    for _ in 0..bench.options().pick(PAIRS, 3) {
        let idle = pings(BACKGROUND)?;
        bench.sample("route2_idle_us", "µs", median(&idle));
        let greedy = net.greedy((0, 3), BOUNDED)?;
        for (route, class) in [(1, BOUNDED), (2, BACKGROUND)] {
            let samples = pings(class)?;
            bench.sample(&format!("route{route}_rtt_us"), "µs", median(&samples));
            bench.sample(&format!("route{route}_mean_us"), "µs", mean(&samples));
            bench.sample(&format!("route{route}_deviation_us"), "µs", deviation(&samples));
        }
        greedy.end()?;
    }
    bench.ratio("route2_rtt_vs_idle", "route2_rtt_us", "route2_idle_us");
    for _ in 0..bench.options().pick(PAIRS, 3) {
        for (key, class) in [("one_path_mbit_s", BOUNDED), ("spread_mbit_s", BULK)] {
            bench.sample(key, "Mbit/s", net.streams(Way::Label, (0, 3), class, (FLOWS, WINDOW))?);
        }
    }
    bench.ratio("spread_vs_one", "spread_mbit_s", "one_path_mbit_s");
    bench.note(format!(
        "route1, route2: a square of two equal routes; the greedy stream and the pings of route 1 are of bounded \
         delay, those of route 2 background traffic; rtt and idle are medians, mean and deviation those of the \
         paper. spread: {FLOWS} streams of bulk traffic, beside as many of \
         bounded delay, which keep to one path"
    ));
    Ok(())
}

/// What a single late wake-up of a busy machine does not move.
fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / count(samples)
}

fn deviation(samples: &[f64]) -> f64 {
    let mean = mean(samples);
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (squares / count(samples)).sqrt()
}

fn count(samples: &[f64]) -> f64 {
    f64::from(u32::try_from(samples.len().max(1)).unwrap_or(u32::MAX))
}
