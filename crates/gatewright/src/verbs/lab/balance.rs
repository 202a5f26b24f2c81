//! `gatewright lab balance`.

use anyhow::{Result, anyhow};
use gatewright_command::{exit::Exit, face::Face};
use gatewright_lab::FlowKind;
use gatewright_lab::balance::{
    BALANCE_NODES, BalanceExperiment, BalanceOutcome, balance, balance_on_namespaces,
};
use serde::Serialize;
use std::fmt::Write;

/// Simulates how many flows a network of unequal nodes carries, by policy.
///
/// `three-ways` has ten relays between two sites: two of speed 1, three of speed 2, five of speed 4,
/// so that the fewest hops lead over the slowest relays. `grid` has nodes in rows of five, linked to
/// their neighbours, of speeds 1, 2 and 4 in turn, and flows between random ones. Flows ask one after
/// the other, and each policy admits those that keep their
/// bounds and leave the others theirs, by the delay models of the nodes. Then all packets of the
/// admitted flows are simulated: a flow whose packets are late more often than they may be is a
/// violation. The same seed gives the same run.
///
/// With --namespaces, real datagrams pass ten relays in network namespaces on the three ways, by
/// min-hop and by least load. Each relay does the work of a processor of its speed, half that of a
/// simulated one. They share the processors of this machine, so 40 flows ask. That needs root.
#[derive(Debug, clap::Args)]
pub(super) struct Balance {
    /// The network.
    #[arg(long, value_enum, default_value_t)]
    network: NetworkName,
    /// Sends real datagrams over relays in network namespaces, in place of a simulation.
    #[arg(long, conflicts_with_all = ["network", "nodes"])]
    namespaces: bool,
    /// Nodes of a grid.
    #[arg(long, default_value_t = 10, value_name = "NUMBER", value_parser = nodes)]
    nodes: usize,
    /// Packets a second of one flow.
    #[arg(long, default_value_t = 10, value_name = "PACKETS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rate: u16,
    /// Octets of payload of a packet.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u16).range(1..=1472))]
    octets: u16,
    /// Delay of the path that 95 % of the packets must keep: 10 if not given, and 4 with --namespaces.
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    within_ms: Option<u16>,
    /// Seconds of packets.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// Seed of pairs of nodes, samples and arrivals.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum NetworkName {
    /// Ten relays between two sites.
    #[default]
    ThreeWays,
    /// Rows of five nodes.
    Grid,
}

#[derive(Serialize)]
struct BalanceAnswer {
    nodes: usize,
    links: usize,
    offered: usize,
    seed: u64,
    policies: Vec<BalanceOutcome>,
}

fn nodes(text: &str) -> Result<usize, String> {
    let (least, most) = (BALANCE_NODES.start(), BALANCE_NODES.end());
    let nodes = text.parse().ok().filter(|nodes| BALANCE_NODES.contains(nodes));
    nodes.ok_or_else(|| format!("a network has {least} to {most} nodes"))
}

impl Balance {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let mut experiment = match self.network {
            NetworkName::ThreeWays => BalanceExperiment::three_ways(self.seed),
            NetworkName::Grid => BalanceExperiment::grid(self.nodes, self.seed),
        };
        if self.namespaces {
            experiment = experiment.computed();
        }
        experiment.seconds = self.seconds.into();
        let bound_us = self.within_ms.map(|bound| f64::from(bound) * 1000.0);
        experiment.kind = FlowKind {
            rate: self.rate.into(),
            octets: self.octets.into(),
            bound_us: bound_us.unwrap_or(experiment.kind.bound_us),
            ..experiment.kind
        };
        let policies = if self.namespaces {
            face.note("ten relays start, and probes show how long each takes");
            balance_on_namespaces(&experiment)
                .map_err(|why| anyhow!("{why}; relays in network namespaces need root"))?
        } else {
            balance(&experiment)
        };
        let answer = BalanceAnswer {
            nodes: experiment.speeds.len(),
            links: experiment.links.len(),
            offered: experiment.offered,
            seed: self.seed,
            policies,
        };
        face.answer(&answer, || text(&answer))?;
        Ok(Exit::Success)
    }
}

fn text(answer: &BalanceAnswer) -> String {
    let BalanceAnswer { nodes, links, offered, policies, .. } = answer;
    let mut text = format!("{nodes} nodes, {links} links, {offered} flows ask\n");
    for it in policies {
        let reasons: Vec<String> =
            it.refused.iter().map(|(why, count)| format!("{count} {why}")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:10} {:>6} flows, {:.1} % of them too late; busiest node {:.0} %; refused: {}",
            it.policy.name(),
            it.flows,
            it.violations_pct,
            it.busiest_pct,
            if reasons.is_empty() { "none".to_owned() } else { reasons.join(", ") }
        );
    }
    text
}
