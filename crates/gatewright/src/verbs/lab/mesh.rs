//! `gatewright lab mesh`.

use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_mesh::simulate::{
    MeshExperiment, MeshReport, MeshScenario, MeshShape, SCENARIO_NODES_MAX,
};
use gatewright_mesh::{MeshRouting, Profile};
use std::fmt::Write;
use std::time::Instant;

/// Simulates a label-switched mesh in virtual time.
///
/// `gatewright lab mesh --nodes 49 --scenario cold` starts a grid of 49 nodes, each of which pings
/// another one at once. The nodes are the machines of the mesh protocol; links, packets and time are
/// simulated. The same seed gives the same run. Meshes of up to 200 nodes are checked after every
/// event: a broken invariant is printed, and the exit code is 1.
#[derive(Debug, clap::Args)]
pub(super) struct Mesh {
    /// Nodes; a grid has the square below, `figure6` has seven, the scenario `mobility` fifty.
    #[arg(long, default_value_t = 49, value_name = "NUMBER")]
    nodes: usize,
    /// What is done.
    #[arg(long, value_enum, default_value_t)]
    scenario: ScenarioName,
    /// Which nodes have a link.
    #[arg(long, value_enum, default_value_t)]
    shape: ShapeName,
    /// Links of a node on average, with `--shape random` and `pairs`.
    #[arg(long, default_value_t = 6, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=64))]
    degree: u32,
    /// Per cent of the frames that links lose; not with the scenarios `failover` and `mobility`.
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    loss: u32,
    /// Profile of the protocol: `classic` is the Lilith paper's.
    #[arg(long, value_enum, default_value_t)]
    profile: ProfileName,
    /// How routes are found.
    #[arg(long, value_enum, default_value_t)]
    routing: RoutingName,
    /// Seed of places, labels, jitter and pings.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum ScenarioName {
    /// Every node pings another one at the very start.
    #[default]
    Cold,
    /// Nobody sends anything for a minute.
    Idle,
    /// The paper's Figure 6: links are cut near and far, with and without loss of the carrier.
    Failover,
    /// Twenty packets for all nodes.
    Broadcast,
    /// A minute with a hundred pings.
    Minute,
    /// Nodes that walk are pinged: the geometry of meshnet-lab's test.
    Mobility,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum ShapeName {
    /// Each node has a link to the next one.
    Line,
    /// A line whose ends are joined.
    Ring,
    /// Rows and columns.
    #[default]
    Grid,
    /// Random places of a square; links within a range that joins all.
    Random,
    /// Triangles on a torus: each node has six links.
    Lattice,
    /// Links between random pairs, over a tree that joins all.
    Pairs,
    /// The paper's Figure 6.
    Figure6,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum ProfileName {
    /// The paper's protocol.
    Classic,
    /// Both directions at once, acknowledged, monitored.
    #[default]
    Default,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum RoutingName {
    /// When somebody sends.
    #[default]
    OnDemand,
    /// By OLSR (RFC 3626).
    Olsr,
}

impl Mesh {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        if !(2..=SCENARIO_NODES_MAX).contains(&self.nodes) {
            let message = format!("a mesh has 2 to {SCENARIO_NODES_MAX} nodes, not {}", self.nodes);
            return Err(Failure::new(Exit::Usage, message).into());
        }
        let experiment = self.experiment();
        face.note(&format!("simulating: {:?}, seed {}", experiment.scenario, self.seed));
        let start = Instant::now();
        let report = experiment.run();
        let seconds = start.elapsed().as_secs_f64();
        face.answer(&self.value(&report, seconds), || text(&report, seconds))?;
        Ok(if report.violations.is_empty() { Exit::Success } else { Exit::Negative })
    }

    const fn experiment(&self) -> MeshExperiment {
        MeshExperiment {
            scenario: match self.scenario {
                ScenarioName::Cold => MeshScenario::Cold,
                ScenarioName::Idle => MeshScenario::Idle,
                ScenarioName::Failover => MeshScenario::Failover,
                ScenarioName::Broadcast => MeshScenario::Broadcast,
                ScenarioName::Minute => MeshScenario::Minute,
                ScenarioName::Mobility => MeshScenario::Mobility,
            },
            shape: match self.shape {
                ShapeName::Line => MeshShape::Line,
                ShapeName::Ring => MeshShape::Ring,
                ShapeName::Grid => MeshShape::Grid,
                ShapeName::Random => MeshShape::Random,
                ShapeName::Lattice => MeshShape::Lattice,
                ShapeName::Pairs => MeshShape::Pairs,
                ShapeName::Figure6 => MeshShape::ThreePaths,
            },
            profile: match self.profile {
                ProfileName::Classic => Profile::Classic,
                ProfileName::Default => Profile::Default,
            },
            routing: match self.routing {
                RoutingName::OnDemand => MeshRouting::OnDemand,
                RoutingName::Olsr => MeshRouting::Olsr,
            },
            nodes: self.nodes,
            degree: self.degree,
            loss_percent: self.loss,
            seed: self.seed,
        }
    }

    fn value(&self, report: &MeshReport, seconds: f64) -> serde_json::Value {
        let figures = report
            .figures
            .iter()
            .map(|figure| serde_json::json!({ "name": figure.name.trim(), "value": figure.value }));
        serde_json::json!({
            "seed": self.seed,
            "nodes": report.nodes,
            "links": report.links,
            "events": report.events,
            "seconds": seconds,
            "figures": figures.collect::<Vec<_>>(),
            "violations": report.violations,
        })
    }
}

fn text(report: &MeshReport, seconds: f64) -> String {
    let mut text = format!(
        "{} nodes, {} links; {} events in {seconds:.1} s\n",
        report.nodes, report.links, report.events
    );
    for figure in &report.figures {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<38} {:>12.3}", figure.name, figure.value);
    }
    for violation in &report.violations {
        let _ = writeln!(text, "broken: {violation}");
    }
    text
}
