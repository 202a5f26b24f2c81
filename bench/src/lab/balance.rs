//! `bench balance`: how many flows are carried by policy, and how many of them are late.

use bench::{Bench, Options, Relation};
use gatewright_lab::balance::{BalanceExperiment, BalanceOutcome, balance, balance_on_namespaces};
use gatewright_testbed::Needs;

/// Figures that need no privileges: networks are simulated.
const SIMULATED: [(&str, Relation, f64); 3] = [
    ("flows_vs_min_hop", Relation::AtLeast, 1.5),
    ("violations_ways_least-load_pct", Relation::AtMost, 1.0),
    ("violations_ways_min-hop_pct", Relation::AtMost, 1.0),
];

/// The same flows over relays in namespaces.
const SLOWED: [(&str, Relation, f64); 3] = [
    ("flows_vs_min_hop_namespaces", Relation::AtLeast, 1.5),
    ("violations_namespaces_least-load_pct", Relation::AtMost, 1.0),
    ("violations_namespaces_min-hop_pct", Relation::AtMost, 1.0),
];

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("balance", options);
    networks(&mut bench, options);
    for (key, relation, bound) in SIMULATED {
        bench.promise(key, relation, bound);
    }
    if let Some(missing) = Needs::new().namespaces().linux(6, 6).missing() {
        for (key, relation, bound) in SLOWED {
            bench.skip(key, relation, bound, &missing.to_string());
        }
        return Ok(bench);
    }
    slowed_nodes(&mut bench, options)?;
    Ok(bench)
}

/// Flows that simulated networks carry by policy, and what share of them is later than its bound.
/// The topologies are those of [`BalanceExperiment`]: ten relays on three ways between two sites,
/// two of speed 1, three of speed 2, five of speed 4; and grids of 10 to 1,000 nodes.
fn networks(bench: &mut Bench, options: Options) {
    for round in 0..options.rounds() {
        let seed = 1 + u64::try_from(round).unwrap_or(0);
        carry(bench, "ways", BalanceExperiment::three_ways(seed), options.pick(60.0, 20.0));
        carry(bench, "grid10", BalanceExperiment::grid(10, seed), options.pick(60.0, 20.0));
    }
    for (name, nodes) in [("grid100", 100), ("grid1000", 1000)] {
        carry(bench, name, BalanceExperiment::grid(nodes, 1), options.pick(30.0, 5.0));
    }
    bench.ratio("flows_vs_min_hop", "flows_ways_least-load", "flows_ways_min-hop");
    for name in ["grid10", "grid100", "grid1000"] {
        let of = |policy: &str| format!("flows_{name}_{policy}");
        let key = format!("flows_vs_min_hop_{name}");
        bench.ratio(&key, &of("least-load"), &of("min-hop"));
    }
    bench.note("flows_…: simulated packet by packet; 10 packets of 400 octets a second, p95 10 ms");
}

/// The three ways over ten relays in network namespaces, which compute as slower processors would
/// ([`BalanceExperiment::computed`]); and the simulation of just these.
fn slowed_nodes(bench: &mut Bench, options: Options) -> Result<(), String> {
    let seconds = options.pick(20.0, 6.0);
    for round in 0..options.rounds() {
        let seed = 1 + u64::try_from(round).unwrap_or(0);
        let ways = BalanceExperiment { seconds, ..BalanceExperiment::three_ways(seed).computed() };
        outcomes(bench, "namespaces", balance_on_namespaces(&ways)?);
        carry(bench, "computed", ways, seconds);
    }
    bench.ratio(
        "flows_vs_min_hop_namespaces",
        "flows_namespaces_least-load",
        "flows_namespaces_min-hop",
    );
    bench.ratio("flows_vs_min_hop_computed", "flows_computed_least-load", "flows_computed_min-hop");
    for (key, relation, bound) in SLOWED {
        bench.promise(key, relation, bound);
    }
    bench.note(
        "flows_namespaces_…: real datagrams over ten relays in namespaces, each of which does the \
         work of a slow processor; 28 flows ask, as many as the processors here can compute for; \
         models fitted from probes; p95 4.5 ms; flows_computed_… simulates these",
    );
    Ok(())
}

fn carry(bench: &mut Bench, name: &str, experiment: BalanceExperiment, seconds: f64) {
    outcomes(bench, name, balance(&BalanceExperiment { seconds, ..experiment }));
}

fn outcomes(bench: &mut Bench, name: &str, of: Vec<BalanceOutcome>) {
    for it in of {
        let flows = f64::from(u32::try_from(it.flows).unwrap_or(u32::MAX));
        let policy = it.policy.name();
        bench.sample(&format!("flows_{name}_{policy}"), "flows", flows);
        bench.sample(&format!("violations_{name}_{policy}_pct"), "%", it.violations_pct);
    }
}
