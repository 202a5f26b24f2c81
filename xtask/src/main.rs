//! `cargo xtask VERB`: see [`HELP`].
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for a terminal: its progress is its output"
)]

use std::process::{Command, ExitCode};
use xtask::{
    checks, dashboard, deb, interop, manual, oci, programs, reproduce, router, sbom, setup,
    step::CommandStep,
};

const HELP: &str = "\
The project's automation.

Usage: cargo xtask VERB [ARGUMENTS]

Verbs:
  setup                    install the Debian packages that tests and the demo use
                           (xtask/packages.txt); says first what it installs
  test                     set up, check format and lints, run every test, several test programs
                           at a time, and list what was skipped, or passed at a second attempt
                           only; at most 25 minutes from a fresh clone on two cores
  lint                     format, lints, and cargo-deny's bans, licences and sources
  demo [ARGUMENTS]         install what the demo needs, build the command with the profile `demo`,
                           and run `gatewright demo ARGUMENTS`; at most three minutes from a fresh
                           clone on two cores
  dashboard                build the page that a gateway serves from its sources; needs Node
  manual                   write the manual's reference anew from the sources, and build the manual as
                           a book in target/manual, where mdBook is
  interop [TEST]           tests against two kernels of Debian, in virtual machines; installs
                           qemu-system-x86; STAMP beside stamp-suite, which it builds; the page and a
                           report of the lab in a browser, where Node and Chromium are. With the name
                           of a test program, that one on the kernels only
  deb [--profile NAME | --program FILE] [--revision N]
                           build the command (profile release), or take it as it is built, and make
                           its package for Debian, in target/deb
  deb-check [--profile NAME | --program FILE] [--revision N]
                           the same, and judge it by lintian; install, upgrade, remove and purge it
                           in a clean Debian, and in one that systemd has booted; installs debootstrap,
                           lintian, skopeo and systemd-container
  oci [--profile NAME | --program FILE]
                           the same, as a static program, as an image for containers, in target/oci
  router [--profile NAME | --program FILE]
                           the program without language, devices, service entity, web and lab, for
                           little flash, in target/router; fails above 5 MiB
  reproduce [PROFILE]      build the package twice from the last commit, in two folders and
                           environments, and compare them
  sbom                     print the packages of the command's binary as CycloneDX
  soak [KILLS]             kill -9 of the gateway and of the CSE above while devices report, KILLS
                           times (200): nothing lost, nothing twice; then of both planes at random
                           points, five times as often: nothing left; then random meshes in
                           virtual time, 500 times as many: no invariant broken
  bench [NAME] [--quick] [--rounds N]
                           run a benchmark, or all; results go to target/bench/NAME.json; `bench dpdk`
                           is built with DPDK where its headers are
  fuzz [NAME…] [--seconds N]
                           fuzz each decoder for a minute and each machine for ten, or those
                           named, N seconds each
  help                     this text

Exit codes: 0 passed, 1 failed, 2 wrong usage.";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next().unwrap_or_else(|| "help".to_owned());
    let rest: Vec<String> = arguments.collect();
    let passed = match verb.as_str() {
        "setup" if rest.is_empty() => setup::setup(),
        "test" if rest.is_empty() => checks::test(),
        "lint" if rest.is_empty() => checks::lint(),
        "interop" if rest.len() <= 1 => interop::interop(rest.first().map(String::as_str)),
        "dashboard" if rest.is_empty() => dashboard::build(),
        "manual" if rest.is_empty() => manual::manual(),
        "demo" => {
            setup::setup_demo();
            // Without arguments, what a newcomer is to see.
            if rest.is_empty() { demo(&[]) && demo(&["mesh".to_owned()]) } else { demo(&rest) }
        }
        "deb" | "deb-check" | "oci" | "router" => match deb::DebPlan::parse(&rest) {
            Ok(plan) if verb == "deb" => deb::deb(&plan),
            Ok(plan) if verb == "oci" => oci::oci(&plan),
            Ok(plan) if verb == "router" => router::router(&plan),
            Ok(plan) => deb::installed::deb_check(&plan),
            Err(problem) => return usage(&problem),
        },
        "reproduce" => match &rest[..] {
            [] => reproduce::reproduce("release"),
            [profile] => reproduce::reproduce(profile),
            _ => return usage("`reproduce` takes one argument"),
        },
        "sbom" if rest.is_empty() => sbom::print(),
        "soak" => match checks::kills(&rest) {
            Ok(kills) => checks::soak(kills),
            Err(problem) => return usage(&problem),
        },
        "bench" => bench(&rest),
        // What cargo runs in place of a test program.
        programs::NOTE => match programs::note(&rest) {
            Ok(()) => true,
            Err(problem) => return usage(&format!("`{}`: {problem}", programs::NOTE)),
        },
        "fuzz" => match checks::FuzzPlan::parse(&rest) {
            Ok(plan) => checks::fuzz(&plan),
            Err(problem) => return usage(&problem),
        },
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            true
        }
        "interop" => return usage("`interop` takes one argument"),
        "setup" | "test" | "lint" | "dashboard" | "manual" | "sbom" => {
            return usage(&format!("`{verb}` takes no arguments"));
        }
        other => return usage(&format!("there is no verb `{other}`")),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("cargo xtask: {problem}\n\n{HELP}");
    ExitCode::from(2)
}

fn demo(arguments: &[String]) -> bool {
    let run = ["run", "--profile", "demo", "--locked", "--package", "gatewright", "--", "demo"];
    CommandStep::cargo("demo", &run).arguments(arguments).run()
}

/// Whether a program can be built with DPDK.
fn has_dpdk() -> bool {
    let asked = Command::new("pkg-config").args(["--exists", "libdpdk"]).status();
    asked.is_ok_and(|status| status.success())
}

fn bench(arguments: &[String]) -> bool {
    // All others are built without it, as users' programs are.
    let is_dpdk = arguments.iter().any(|argument| argument == "dpdk") && has_dpdk();
    let features: &[&str] = if is_dpdk { &["--features", "dpdk"] } else { &[] };
    let run = [&["run", "--release", "--package", "bench"], features, &["--"]].concat();
    CommandStep::cargo("bench", &run).arguments(arguments).run()
}
