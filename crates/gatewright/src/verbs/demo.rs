//! `gatewright demo`: a gateway between two real kernel hosts, or a ward, shown at work.

mod checks;
mod mesh;
mod planes;
mod story;
mod ward;
mod world;

use anyhow::Result;
use checks::CHECKS;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_testbed::Needs;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use world::DemoNetwork;

pub(super) const JSON: &str = "{demo, links: [{name, mode, why}], checks: [{name, passed, said, milliseconds}], passed}; \
     ward: {demo, in_cse, kills, devices: [{kind, measured, answered, values, passed}], waited, \
     sent, stored, received, twice, notified_again, passed}; mesh: {demo, cuts: [{cut, cable, at_ms, healed_ms, outage_ms, before, \
     after}], ping: {sent, answered, rtt_median_ms}, video: the same, svg, \
     passed}; story: {demo, page, checks, sent, stored, received, twice, mails, passed}";

/// Demonstrates a gateway: between two kernel hosts, as two processes, in a hospital ward, as a mesh, or all of it in one story.
///
/// gateway: creates, in network namespaces, two hosts on two subnets, IPv4 and IPv6, the second
/// link with a smaller MTU, and a gateway between them, with AF_XDP if possible. Each check uses
/// software that is not ours: the kernels' own hosts, ping, traceroute. Nothing is left behind,
/// even if it is killed.
///
/// planes: a gateway whose data plane is a process of its own, between two kernel hosts. Control is
/// killed and started again, then the data plane is killed, while datagrams pass. Each check shows
/// what was lost, or for how long nothing passed.
///
/// ward: three simulated devices (IEEE 11073) report to a gateway, which forwards their readings to
/// a central CSE, a separate process that is killed and restarted meanwhile. A monitor that
/// subscribed there shows the readings as they arrive. All of it runs on loopback, without
/// privileges.
///
/// mesh: eight nodes in the network of the Lilith paper's Figure 6, in namespaces. Four cables of the
/// path in use are cut and healed, near and far, with and without loss of the carrier, while a ping
/// and a flow like a video's pass. Shows how long nothing arrived, and draws the round trips as SVG.
///
/// story: an oximeter reports over UDP and a mesh whose path is cut meanwhile, to a gateway of two planes
/// with mesh, devices, CSE, program and page in one description; its readings go on to a CSE above and
/// its monitor, and an alarm leaves as mail through a program in the gateway language. Counts what was
/// sent, stored and received, and compares the delay of each hop with its budget.
///
/// Ends with 0 only if every check passed; for the ward, only if every reading sent was stored and
/// received, none twice.
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// The demo.
    #[arg(value_name = "NAME", default_value = "gateway", value_parser = ["gateway", "planes", "ward", "mesh", "story"])]
    name: String,
    /// gateway: time to continue forwarding after the checks, for inspection; ward and
    /// story: duration of measuring (12, 8).
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// mesh: file of the drawing; gatewright-demo-mesh.svg in the temporary folder if not given.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// ward: another CSE as the central one, which is not killed: http://HOST:PORT.
    #[arg(long, value_name = "URL")]
    in_cse: Option<String>,
    /// ward: address of that CSE's base resource.
    #[arg(long, value_name = "ADDRESS", default_value = "/id-in/cse-in")]
    in_base: String,
    /// ward: originator that may read and subscribe there.
    #[arg(long, value_name = "AE-ID", default_value = "CAdmin")]
    originator: String,
}

#[derive(Serialize)]
struct DemoReport {
    demo: String,
    links: Vec<LinkAnswer>,
    checks: Vec<CheckAnswer>,
    passed: bool,
}

#[derive(Serialize)]
struct LinkAnswer {
    name: String,
    mode: String,
    why: String,
}

#[derive(Serialize)]
struct CheckAnswer {
    name: &'static str,
    passed: bool,
    said: String,
    milliseconds: u128,
}

impl DemoReport {
    fn of(demo: &str, links: Vec<LinkAnswer>, checks: Vec<CheckAnswer>) -> Self {
        let passed = checks.iter().all(|check| check.passed);
        Self { demo: demo.to_owned(), links, checks, passed }
    }

    fn summary(&self) -> String {
        let good = self.checks.iter().filter(|check| check.passed).count();
        format!("{good} of {} checks passed", self.checks.len())
    }
}

impl CheckAnswer {
    /// The outcome of a check that began at `start`, shown as a line.
    fn show(
        face: Face,
        name: &'static str,
        start: Instant,
        outcome: Result<String, String>,
    ) -> Self {
        let passed = outcome.is_ok();
        let said = outcome.unwrap_or_else(|why| why);
        let verdict = if passed { "ok  " } else { "FAIL" };
        face.note(&format!("{verdict} {name:<34} {said}"));
        Self { name, passed, said, milliseconds: start.elapsed().as_millis() }
    }
}

const PICTURE: &str = "
    north  10.10.1.2        gateway         10.10.2.2  south
    kernel fd00:1::2 ── lan ──┤ ├── wan ──  fd00:2::2  kernel
                    MTU 1500       MTU 1400
";

impl Demo {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        if self.name == "ward" {
            let Self { seconds, in_cse, in_base, originator, .. } = self;
            return ward::run(&ward::Wish { seconds, in_cse, in_base, originator }, face);
        }
        if self.name == "planes" {
            if let Some(missing) = Needs::new().namespaces().missing() {
                return Err(
                    Failure::new(Exit::Permission, format!("the demo needs {missing}")).into()
                );
            }
            return planes::run(face);
        }
        if self.name == "story" {
            let needs = Needs::new().namespaces().program("ip").program("ping").linux(6, 6);
            if let Some(missing) = needs.missing() {
                return Err(
                    Failure::new(Exit::Permission, format!("the demo needs {missing}")).into()
                );
            }
            return story::run(self.seconds, face);
        }
        if self.name == "mesh" {
            let needs = Needs::new().namespaces().program("ip").linux(6, 6);
            if let Some(missing) = needs.missing() {
                return Err(
                    Failure::new(Exit::Permission, format!("the demo needs {missing}")).into()
                );
            }
            return mesh::run(self.svg, face);
        }
        let needs = Needs::new().namespaces().program("ip").program("ping").program("traceroute");
        if let Some(missing) = needs.missing() {
            return Err(Failure::new(Exit::Permission, format!("the demo needs {missing}")).into());
        }
        face.note(PICTURE);
        let world = DemoNetwork::build()?;
        let status = world.gateway().status()?;
        let link = |link: gatewright_planes::LinkStatus| LinkAnswer {
            name: link.name,
            mode: link.mode,
            why: link.why,
        };
        let links: Vec<_> = status.links.into_iter().map(link).collect();
        for link in &links {
            face.note(&format!("link {}: {}, {}", link.name, link.mode, link.why));
        }
        let mut checks = Vec::new();
        for &(name, check) in CHECKS {
            let start = Instant::now();
            checks.push(CheckAnswer::show(face, name, start, check(&world)));
        }
        if let Some(seconds) = self.seconds.filter(|seconds| *seconds > 0) {
            face.note(&format!("forwarding for {seconds} seconds more"));
            std::thread::sleep(Duration::from_secs(seconds));
        }
        let status = world.gateway().status()?;
        let answer = DemoReport::of(&self.name, links, checks);
        face.answer(&answer, || {
            format!("{}{}", gatewright_command::verbs::status::summary(&status), answer.summary())
        })?;
        Ok(if answer.passed { Exit::Success } else { Exit::Negative })
    }
}
