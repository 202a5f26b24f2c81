//! `bench smtp`: mail through relays, after the figure of EZ's evaluation (Bromberg, Morandat,
//! Réveillère, Thomas, DAIS 2013): 1000 messages of 10 kB from 1 to 30 clients at once.
//!
//! Load comes from postfix's smtp-source and ends at its smtp-sink. Each run asks the sink how many
//! messages have arrived, and fails if one is missing.

mod blocking;
mod clients;
mod java;
mod ours;
mod peers;
mod pipelining;
mod world;

pub(crate) use blocking::{WORD as RELAY_BY_THREADS, relay as relay_by_threads};

use bench::{Bench, Chart, Curve, Options, Relation};
use gatewright_testbed::{Needs, Process};
use std::fs;
use world::{Load, MailSink, SINK, processor, text};

/// Messages of one point of the figure, and their octets.
const MESSAGES: u32 = 1_000;
const OCTETS: u32 = 10 << 10;
/// Clients at once.
const CLIENTS: [u32; 5] = [1, 5, 10, 20, 30];
/// The sweep of sizes, with as many messages as take some tenths of a second, from ten clients.
const SIZES: [(u32, u32); 4] = [(10_000, 1_000), (100_000, 300), (1_000_000, 60), (10_000_000, 20)];
const SWEEP_CLIENTS: u32 = 10;
/// Messages over which processor time is taken, so that its grain does not count.
const PROCESSOR_MESSAGES: u32 = 10_000;

/// Sessions that are silent, and clients that all send.
const IDLE_SESSIONS: u32 = 10_000;
const ACTIVE_CLIENTS: u32 = 1_000;

const PROMISES: [(&str, f64); 11] = [
    ("relay_wall_vs_nginx", 1.5),
    ("relay_cpu_new_vs_nginx", 0.8),
    ("relay_cpu_kept_vs_nginx", 1.0),
    ("pipelined_p99_vs_calm", 3.0),
    ("pipelined_p99_vs_calm_c", 3.0),
    ("pipelined_p99_vs_calm_java", 3.0),
    ("tunnel_wall_vs_haproxy2", 1.5),
    ("c_vs_native", 1.1),
    ("n1_ms", 2.0),
    ("idle_session_kib", 4.0),
    ("java_vs_native", 2.0),
];
/// What the relay as Java needs.
const JAVA_NEEDS: [&str; 4] = ["javac", "jar", "java", "make"];

/// A way from the source to the sink.
struct MailPath {
    name: &'static str,
    port: u16,
    /// What runs there; its first process is the one whose processor time counts.
    processes: Vec<Process>,
}

impl MailPath {
    fn key(&self, what: &str) -> String {
        format!("{}_{what}", self.name)
    }
}

/// What of Java is missing.
fn without_java() -> Option<String> {
    let needs = JAVA_NEEDS.iter().fold(Needs::new(), |needs, name| needs.program(name));
    needs.missing().map(|missing| missing.to_string())
}

fn ways(world: &MailSink) -> Result<Vec<MailPath>, String> {
    let nginx = peers::nginx(world)?;
    let [inner, outer] = peers::haproxy_twice(world)?;
    let [near, far] = ours::tunnel(world)?;
    let (relay, threads) = (ours::relay(world)?, ours::threads(world)?);
    let (relay_in_c, relay_each) = (ours::relay_in_c(world)?, ours::relay_each(world)?);
    let mut ways = vec![
        MailPath { name: "direct", port: SINK, processes: Vec::new() },
        MailPath { name: "nginx", port: peers::NGINX, processes: vec![nginx] },
        MailPath { name: "relay", port: ours::RELAY, processes: vec![relay] },
        MailPath { name: "relay_each", port: ours::RELAY_EACH, processes: vec![relay_each] },
        MailPath { name: "relay_c", port: ours::RELAY_IN_C, processes: vec![relay_in_c] },
        MailPath { name: "haproxy2", port: peers::HAPROXY, processes: vec![outer, inner] },
        MailPath { name: "tunnel", port: ours::TUNNEL, processes: vec![near, far] },
        MailPath { name: "threads", port: ours::THREADS, processes: vec![threads] },
    ];
    if without_java().is_none() {
        let java = java::relay(world, OCTETS)?;
        ways.push(MailPath { name: "java", port: java::JAVA, processes: vec![java] });
    }
    Ok(ways)
}

/// 1000 messages from each number of clients.
fn figure(bench: &mut Bench, world: &MailSink, ways: &[MailPath]) -> Result<(), String> {
    let messages = bench.options().pick(MESSAGES, MESSAGES / 5);
    for _round in 0..bench.options().rounds() {
        for sessions in CLIENTS {
            for way in ways {
                let load = Load { sessions, messages, octets: OCTETS, kept: false };
                let took = world.send(way.port, load)?.as_secs_f64() * 1e3;
                let thousand = took * f64::from(MESSAGES) / f64::from(messages);
                bench.sample(&way.key(&format!("ms_n{sessions}")), "ms", thousand);
            }
        }
    }
    Ok(())
}

/// Messages of every size from ten clients.
fn sweep(bench: &mut Bench, world: &MailSink, ways: &[MailPath]) -> Result<(), String> {
    for _round in 0..bench.options().rounds() {
        for (octets, messages) in SIZES {
            for way in ways {
                let messages = bench.options().pick(messages, messages / 4);
                let load = Load { sessions: SWEEP_CLIENTS, messages, octets, kept: false };
                let took = world.send(way.port, load)?.as_secs_f64();
                let carried = f64::from(octets) * f64::from(messages) / 1e6;
                let key = way.key(&format!("mb_s_{}kb", octets / 1_000));
                bench.sample(&key, "MB/s", carried / took);
            }
        }
    }
    Ok(())
}

/// Processor time a message, connections new for each message or kept.
fn processor_time(bench: &mut Bench, world: &MailSink, ways: &[MailPath]) -> Result<(), String> {
    let messages = bench.options().pick(PROCESSOR_MESSAGES, PROCESSOR_MESSAGES / 10);
    for _round in 0..bench.options().rounds() {
        for (kept, key) in [(false, "cpu_us_new"), (true, "cpu_us_kept")] {
            for way in ways {
                let Some(process) = way.processes.first() else { continue };
                let before = processor(process)?;
                let load = Load { sessions: SWEEP_CLIENTS, messages, octets: OCTETS, kept };
                world.send(way.port, load)?;
                let spent = processor(process)?.saturating_sub(before).as_secs_f64() * 1e6;
                bench.sample(&way.key(key), "us", spent / f64::from(messages));
            }
        }
    }
    Ok(())
}

fn charts(bench: &mut Bench, ways: &[MailPath]) {
    let curves = |points: &dyn Fn(&MailPath) -> Vec<(f64, f64)>| {
        ways.iter().map(|way| Curve { name: way.name.to_owned(), points: points(way) }).collect()
    };
    let clients = |way: &MailPath| {
        let point = |&n: &u32| Some((f64::from(n), bench.median(&way.key(&format!("ms_n{n}")))?));
        CLIENTS.iter().filter_map(point).collect()
    };
    let sizes = |way: &MailPath| {
        let point = |&(octets, _): &(u32, u32)| {
            let carried = bench.median(&way.key(&format!("mb_s_{}kb", octets / 1_000)))?;
            Some((f64::from(octets), carried))
        };
        SIZES.iter().filter_map(point).collect()
    };
    let figure = Chart {
        title: "clients".to_owned(),
        x: "clients at once".to_owned(),
        y: "ms for 1000 messages of 10 kB".to_owned(),
        curves: curves(&clients),
    };
    let sweep = Chart {
        title: "sizes".to_owned(),
        x: "octets of a message".to_owned(),
        y: "MB/s from 10 clients".to_owned(),
        curves: curves(&sizes),
    };
    bench.chart(figure);
    bench.chart(sweep);
}

/// Sessions in numbers: how much a silent one takes, and how long a message takes among many.
fn many(bench: &mut Bench, world: &MailSink) -> Result<(), String> {
    for _round in 0..bench.options().rounds().min(3) {
        for (start, port, ending) in [
            (ours::relay as fn(&MailSink) -> Result<Process, String>, ours::RELAY, ""),
            (ours::relay_in_c, ours::RELAY_IN_C, "_c"),
        ] {
            // A new process each time: memory that was used once stays resident.
            let relay = start(world)?;
            let idle = clients::idle(world, (&relay, port), IDLE_SESSIONS)?;
            bench.sample(&format!("idle_session_kib{ending}"), "KiB", idle);
            relay.kill();
            let relay = start(world)?;
            let times = clients::active(world, port, ACTIVE_CLIENTS, OCTETS)?;
            for (key, percent) in [("active_p50_ms", 50), ("active_p99_ms", 99)] {
                bench.sample(&format!("{key}{ending}"), "ms", percentile(&times, percent));
            }
            relay.kill();
        }
    }
    Ok(())
}

/// Mail while others pipeline, through the relay on each back end.
fn pipelining(bench: &mut Bench, world: &MailSink) -> Result<(), String> {
    type Start = fn(&MailSink, u16) -> Result<Process, String>;
    let kinds: [(&'static str, u16, Start); 3] = [
        ("relay", ours::RELAY, ours::relay_at),
        ("relay_c", ours::RELAY_IN_C, ours::relay_in_c_at),
        ("java", java::JAVA, |world, port| java::relay_at(world, OCTETS, port)),
    ];
    for (name, port, start) in kinds {
        if name == "java" && without_java().is_some() {
            continue;
        }
        let both = [start(world, port)?, start(world, ours::APART)?];
        for _round in 0..bench.options().rounds() {
            let relays = pipelining::Relays { name, port, apart: ours::APART };
            pipelining::sample(bench, world, relays)?;
        }
        both.into_iter().for_each(Process::kill);
    }
    Ok(())
}

/// The value that so many per cent of the sorted ones are below.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or(f64::NAN)
}

fn promises(bench: &mut Bench) {
    let java = without_java();
    for (ratio, ours, peer) in [
        ("java_vs_native", "java", "relay"),
        ("relay_wall_vs_nginx", "relay", "nginx"),
        ("tunnel_wall_vs_haproxy2", "tunnel", "haproxy2"),
        ("c_vs_native", "relay_c", "relay"),
        ("threads_vs_relay", "threads", "relay"),
        ("relay_each_wall_vs_nginx", "relay_each", "nginx"),
        ("nginx_vs_direct", "nginx", "direct"),
    ] {
        let mut all = Vec::new();
        if ours == "java" && java.is_some() {
            continue;
        }
        for sessions in CLIENTS {
            let key = |name: &str| format!("{name}_ms_n{sessions}");
            let name = format!("{ratio}_n{sessions}");
            bench.ratio(&name, &key(ours), &key(peer));
            all.push(name);
        }
        bench.greatest(ratio, &all);
    }
    bench.ratio("relay_cpu_new_vs_nginx", "relay_cpu_us_new", "nginx_cpu_us_new");
    bench.ratio("relay_cpu_kept_vs_nginx", "relay_cpu_us_kept", "nginx_cpu_us_kept");
    bench.ratio("relay_each_cpu_new_vs_nginx", "relay_each_cpu_us_new", "nginx_cpu_us_new");
    bench.ratio("relay_each_cpu_kept_vs_nginx", "relay_each_cpu_us_kept", "nginx_cpu_us_kept");
    for (name, ending) in [("relay", ""), ("relay_c", "_c"), ("java", "_java")] {
        if name == "java" && java.is_some() {
            continue;
        }
        for beside in ["calm", "apart"] {
            let ratio = format!("pipelined_p99_vs_{beside}{ending}");
            let beside = format!("{name}_{beside}_p99_ms");
            bench.ratio(&ratio, &format!("{name}_pipelined_p99_ms"), &beside);
        }
    }
    bench.ratio("c_cpu_new_vs_native", "relay_c_cpu_us_new", "relay_cpu_us_new");
    bench.ratio("c_cpu_kept_vs_native", "relay_c_cpu_us_kept", "relay_cpu_us_kept");
    bench.scaled("n1_ms", "ms", "relay_ms_n1", 1.0 / f64::from(MESSAGES));
    for (key, bound) in PROMISES {
        match &java {
            Some(missing) if key.contains("java") => {
                bench.skip(key, Relation::AtMost, bound, &format!("{missing} is missing"));
            }
            _ => bench.promise(key, Relation::AtMost, bound),
        }
    }
}

fn measure(bench: &mut Bench, world: &MailSink) -> Result<(), String> {
    let ways = ways(world)?;
    figure(bench, world, &ways)?;
    sweep(bench, world, &ways)?;
    processor_time(bench, world, &ways)?;
    charts(bench, &ways);
    drop(ways);
    many(bench, world)?;
    pipelining(bench, world)?;
    promises(bench);
    Ok(())
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("smtp", options);
    let needs = ["smtp-source", "smtp-sink", "nginx", "haproxy", "cc", "make"];
    let needs = needs.iter().fold(Needs::new().namespaces(), |needs, name| needs.program(name));
    if let Some(missing) = needs.missing() {
        for (key, bound) in PROMISES {
            bench.skip(key, Relation::AtMost, bound, &format!("{missing} is missing"));
        }
        return Ok(bench);
    }
    let folder = std::env::temp_dir().join(format!("gatewright-smtp-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(text)?;
    let measured = MailSink::new(&folder).and_then(|world| measure(&mut bench, &world));
    fs::remove_dir_all(&folder).map_err(text)?;
    measured?;
    bench.note(
        "load, relay and sink share the machine's processors; each run asserts that the sink has \
         counted every message",
    );
    bench.note(
        "processor time: of the relay alone; of two haproxy and of the tunnel that of the outer one",
    );
    bench.note(
        "connections to the sink: nginx opens one for each of the client's, and relay_each as well; \
         relay and relay_c keep up to 64 for other sessions, as their program says",
    );
    bench.note(
        "pipelined: mails of one client while 50 others send NOOP without waiting for answers; \
         calm: the same mails without them; apart: the same clients at another process of the same \
         relay, so that what the processors' other work costs a mail is seen by itself",
    );
    bench.note(
        "relay_c: the relay's program written as C, built with -O2; figures ending in _c are its own",
    );
    bench.note(
        "threads: the relay's program driven by a blocking thread for each session, as z2z did; \
         every other relay has one thread",
    );
    bench.note(
        "java: the relay as `gatewright gw build --target java` writes it, after 5,000 messages",
    );
    bench.note(
        "idle sessions: growth of the relay's resident memory; the kernel's part, its sockets, is \
         not in it",
    );
    Ok(bench)
}
