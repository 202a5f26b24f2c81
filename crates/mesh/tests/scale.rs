//! Meshes of any size: what an idle node sends, and whether pings in a large mesh are answered.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test says what it has measured, and may fail loudly"
)]

use gatewright_mesh::simulate::{MeshExperiment, MeshReport, MeshScenario, MeshShape};
use gatewright_mesh::{MeshRouting, Profile};

const fn experiment(scenario: MeshScenario, shape: MeshShape, nodes: usize) -> MeshExperiment {
    MeshExperiment {
        scenario,
        shape,
        nodes,
        degree: 6,
        loss_percent: 0,
        profile: Profile::Default,
        routing: MeshRouting::OnDemand,
        seed: 1,
    }
}

fn figure(report: &MeshReport, name: &str) -> f64 {
    report.figures.iter().find(|figure| figure.name == name).unwrap().value
}

/// Six links of each node, exactly and on average: at most 200 octets a second, and the same within a tenth,
/// from 7 nodes on; 10,000 by `gatewright lab mesh --scenario idle`.
#[test]
fn an_idle_node_sends_the_same_in_a_mesh_of_any_size() {
    for shape in [MeshShape::Lattice, MeshShape::Pairs] {
        let sent = [7, 100, 1_000].map(|nodes| {
            let report = experiment(MeshScenario::Idle, shape, nodes).run();
            let (octets, degree) =
                (figure(&report, "octets_per_node_s"), figure(&report, "mean_degree"));
            println!("{shape:?}, {nodes} nodes: {octets:.1} octets, degree {degree}");
            assert!((5.9..=6.1).contains(&degree), "{shape:?}, {nodes}: degree {degree}");
            assert!(octets <= 200.0, "{shape:?}, {nodes}: {octets}");
            octets
        });
        let mean = sent.iter().sum::<f64>() / 3.0;
        assert!(
            sent.iter().all(|octets| (octets / mean - 1.0).abs() <= 0.1),
            "{shape:?}: {sent:?}"
        );
    }
}

/// A path has at most 32 relays: nodes that are nearer are reached. Those of a random mesh of links among all
/// nodes are near, those of a line are not.
#[test]
fn pings_within_32_relays_are_answered() {
    for (shape, nodes) in [(MeshShape::Random, 400), (MeshShape::Pairs, 400), (MeshShape::Line, 60)]
    {
        let report = experiment(MeshScenario::Minute, shape, nodes).run();
        let beyond = figure(&report, "pairs_beyond_32_relays");
        let answered = figure(&report, "pings_answered_pct");
        println!("{shape:?}, {nodes} nodes: {beyond} beyond, {answered} % answered");
        let unanswered = figure(&report, "pairs_within_32_relays_unanswered");
        assert!(unanswered < 0.5, "{shape:?}: {unanswered}");
        // Nobody is reached over more.
        assert!((answered + beyond - 100.0).abs() < 0.5, "{shape:?}: {answered} {beyond}");
        assert_eq!(shape == MeshShape::Line, beyond > 0.5, "{shape:?}: {beyond}");
    }
}
