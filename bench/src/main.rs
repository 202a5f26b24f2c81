//! `cargo xtask bench [NAME] [--quick]`: runs one benchmark, or all.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for a terminal: its table is its output"
)]

mod cse;
mod devices;
mod footprint;
mod forward;
mod gateway;
mod health;
mod lab;
mod mesh;
mod neighbours;
mod planes;
mod process;
mod programs;
mod route;
mod single_plane;
mod smtp;
mod stall;
mod tables;
mod translate;
mod web;
mod xdp;

use bench::{Bench, Options};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Run = fn(Options) -> Result<Bench, String>;

/// Every benchmark, in the order in which all are run.
const BENCHMARKS: [(&str, Run); 24] = [
    ("route", route::run),
    ("tables", tables::run),
    ("neighbours", neighbours::run),
    ("forward", forward::run),
    ("gateway", gateway::run),
    ("dpdk", gateway::dpdk::run),
    ("xdp", xdp::run),
    ("mesh", mesh::run),
    ("mesh-paper", mesh::paper::run),
    ("mesh-failover", mesh::peers::run),
    ("footprint", footprint::run),
    ("planes", planes::run),
    ("health", health::run),
    ("devices", devices::run),
    ("outbox", devices::drain::run),
    ("translate", translate::run),
    ("cse", cse::run),
    ("stall", stall::run),
    ("single-plane", single_plane::run),
    ("smtp", smtp::run),
    ("lab", lab::run_lab),
    ("paper", lab::paper::run),
    ("balance", lab::balance::run),
    ("web", web::run),
];

/// The binary that users run, beside this one; made if `cargo` runs us.
fn binary() -> Result<PathBuf, String> {
    if let Some(cargo) = std::env::var_os("CARGO") {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let build = ["build", "--quiet", "--profile", profile, "--package", "gatewright"];
        let built = std::process::Command::new(cargo).args(build).status();
        if !built.is_ok_and(|status| status.success()) {
            return Err("gatewright does not build".to_owned());
        }
    }
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let binary = here.with_file_name("gatewright");
    if binary.exists() { Ok(binary) } else { Err(format!("there is no {}", binary.display())) }
}

/// What the command line asks for.
enum Choice {
    Help,
    /// These benchmarks; all, if there is none.
    Run(Options, Vec<String>),
}

fn help() -> String {
    let known = BENCHMARKS.map(|(name, _)| name).join(" ");
    format!(
        "Usage: bench [NAME]… [--quick] [--rounds N]\n\nRuns these benchmarks, or all: {known}.\n--quick \
         takes fewer rounds and smaller sizes; --rounds runs each contestant N times."
    )
}

fn choose(words: Vec<String>) -> Result<Choice, String> {
    let (mut options, mut names) = (Options::default(), Vec::new());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => options.quick = true,
            "--rounds" => {
                let rounds = words.next().and_then(|it| it.parse().ok());
                options.asked_rounds = Some(rounds.ok_or("`--rounds` needs a number above zero")?);
            }
            "--help" | "-h" => return Ok(Choice::Help),
            name if BENCHMARKS.iter().any(|(known, _)| *known == name) => names.push(word),
            other => return Err(format!("there is no `{other}`")),
        }
    }
    Ok(Choice::Run(options, names))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // A benchmark's own contestant, in a process of its own.
    if let [smtp::RELAY_BY_THREADS, port] = words.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        return match smtp::relay_by_threads(port) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                eprintln!("{problem}");
                ExitCode::FAILURE
            }
        };
    }
    let (options, names) = match choose(words) {
        Ok(Choice::Run(options, names)) => (options, names),
        Ok(Choice::Help) => {
            println!("{}", help());
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("bench: {problem}\n\n{}", help());
            return ExitCode::from(2);
        }
    };
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let mut failed = false;
    for (name, run) in BENCHMARKS.into_iter().filter(|(name, _)| wanted(name)) {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench"));
        let table =
            run(options).and_then(|bench| bench.finish(folder).map_err(|it| it.to_string()));
        match table {
            Ok(table) => println!("{table}\n"),
            Err(problem) => {
                eprintln!("bench {name}: {problem}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
