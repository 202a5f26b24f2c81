//! The verbs that judge the code: `test`, `lint`, `soak`, `fuzz`.

use crate::{dashboard, programs, root, setup, step::CommandStep, summary::Summary};
use std::time::Instant;

/// Sets up, checks format and lints, runs every test, and closes with a summary.
pub fn test() -> bool {
    let start = Instant::now();
    let mut summary = Summary::default();
    if !setup::setup() {
        summary.skip("setup", "not everything could be installed, see its words above");
    }
    let style = style(&mut summary);
    let tests = programs::test(&mut summary) & dashboard::smoke(&mut summary);
    summary.took(start.elapsed());
    println!("== summary\n{summary}");
    let passed = style && tests;
    println!("== test: {}", if passed { "passed" } else { "FAILED" });
    passed
}

/// Checks format, lints, and the dependencies' bans, licences and sources.
pub fn lint() -> bool {
    let mut summary = Summary::default();
    let passed = style(&mut summary) & dependencies(&mut summary);
    println!("== summary\n{summary}");
    passed
}

fn style(summary: &mut Summary) -> bool {
    let has = |verb| CommandStep::cargo("style", &[verb, "--version"]).works();
    let mut passed = true;
    if has("fmt") {
        passed &= CommandStep::cargo("format", &["fmt", "--all", "--check"]).run();
    } else {
        summary.skip("format", "rustfmt is not installed");
    }
    if has("clippy") {
        let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
        passed &= CommandStep::cargo("lints", &clippy).run();
    } else {
        summary.skip("lints", "clippy is not installed");
    }
    passed
}

fn dependencies(summary: &mut Summary) -> bool {
    if CommandStep::cargo("dependencies", &["deny", "--version"]).works() {
        let deny = ["deny", "check", "bans", "licenses", "sources"];
        return CommandStep::cargo("dependencies", &deny).run();
    }
    summary.skip("dependencies", "cargo-deny is not installed (cargo install cargo-deny)");
    true
}

/// Kills of a soak that is not told how many.
const KILLS: u32 = 200;

/// Reads `[KILLS]`.
///
/// # Errors
///
/// Says which argument is wrong.
pub fn kills(arguments: &[String]) -> Result<u32, String> {
    match arguments {
        [] => Ok(KILLS),
        [kills] => kills.parse().map_err(|_| format!("`{kills}` is not a number of kills")),
        _ => Err("`soak` takes one argument".to_owned()),
    }
}

/// Kills of the planes in a soak for each of the gateway with its devices: 1,000 for 200.
const PLANE_KILLS: u32 = 5;

/// Random meshes in a soak for each kill of the gateway with its devices: 100,000 for 200.
const MESHES: u32 = 500;

/// Kills the gateway and the CSE above it so often, by turns, while devices report; then control
/// plane and data plane, five times as often, at random points of start, adoption, reload and
/// upgrade; then simulates random meshes, five hundred times as many.
pub fn soak(kills: u32) -> bool {
    let test = |name| ["test", "--release", "--package", "gatewright", "--test", name, "--"];
    let step = |title, name, variable, kills: u32, rest: &[&str]| {
        let arguments = [&test(name)[..], rest].concat();
        CommandStep::cargo(title, &arguments).environment(variable, &kills.to_string()).run()
    };
    let of_devices = step("soak", "kill", "GATEWRIGHT_KILLS", kills, &["--nocapture"]);
    let planes = kills.saturating_mul(PLANE_KILLS);
    let random = ["kills_at_random_points_leave_nothing"];
    let of_planes = step("soak of planes", "planes", "GATEWRIGHT_PLANE_KILLS", planes, &random);
    meshes(kills.saturating_mul(MESHES)) && of_planes && of_devices
}

/// Simulates so many random meshes, and checks their invariants after every event.
fn meshes(count: u32) -> bool {
    let test =
        ["test", "--release", "--package", "gatewright-mesh", "--test", "random_worlds", "--"];
    let arguments = [&test[..], &["invariants_hold_in_random_worlds", "--nocapture"]].concat();
    let seeds = count.to_string();
    CommandStep::cargo("soak of meshes", &arguments).environment("MESH_SEEDS", &seeds).run()
}

/// What `fuzz` is to do.
#[derive(Debug, Eq, PartialEq)]
pub struct FuzzPlan {
    /// The targets; none means all.
    pub targets: Vec<String>,
    /// How long each is fuzzed, if not as long as its kind wants ([`seconds_for`]).
    pub seconds: Option<u32>,
}

/// Targets that read one message and keep nothing. The others are machines, in which one message
/// changes what the next one finds, or compilers, in which one line does.
const DECODERS: [&str; 12] = [
    "coap",
    "dhcp",
    "labelled_frame",
    "layouts",
    "mesh_message",
    "mqtt",
    "ocsp",
    "options",
    "partial",
    "pcapng",
    "rows",
    "stored",
];

/// How long a target is fuzzed: a decoder for a minute, anything with a memory for ten.
fn seconds_for(target: &str) -> u32 {
    if DECODERS.contains(&target) { 60 } else { 600 }
}

impl FuzzPlan {
    /// Reads `[NAME…] [--seconds N]`.
    ///
    /// # Errors
    ///
    /// Says which argument is wrong.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut plan = Self { targets: Vec::new(), seconds: None };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "--seconds" {
                let value = arguments.next().map(String::as_str).unwrap_or_default();
                let seconds = value.parse();
                let seconds =
                    seconds.map_err(|_| format!("`--seconds {value}` is not a number"))?;
                plan.seconds = Some(seconds);
            } else if argument.starts_with('-') {
                return Err(format!("`fuzz` has no option `{argument}`"));
            } else {
                plan.targets.push(argument.clone());
            }
        }
        Ok(plan)
    }
}

/// Fuzzes each target of `fuzz/`, beginning from its committed corpus.
pub fn fuzz(plan: &FuzzPlan) -> bool {
    let all = targets();
    if all.is_empty() {
        eprintln!("fuzz: there is no target in fuzz/fuzz_targets");
        return false;
    }
    if let Some(unknown) = plan.targets.iter().find(|&target| !all.contains(target)) {
        eprintln!("fuzz: there is no target `{unknown}`; there are: {}", all.join(", "));
        return false;
    }
    if !CommandStep::program("fuzz", "cargo", &["+nightly", "fuzz", "--version"]).works() {
        eprintln!("fuzz: needs nightly Rust and cargo-fuzz (cargo install cargo-fuzz)");
        return false;
    }
    let targets = if plan.targets.is_empty() { &all } else { &plan.targets };
    let fuzz = |target: &String| {
        let seconds = plan.seconds.unwrap_or_else(|| seconds_for(target));
        let limit = format!("-max_total_time={seconds}");
        let run = ["+nightly", "fuzz", "run", target.as_str(), "--", limit.as_str()];
        CommandStep::program("fuzz", "cargo", &run).run()
    };
    targets.iter().fold(true, |passed, target| passed & fuzz(target))
}

/// The names of the files in `fuzz/fuzz_targets`.
fn targets() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("fuzz/fuzz_targets"));
    let names = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut targets: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".rs")?.to_owned())).collect();
    targets.sort();
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soak_reads_its_arguments() {
        let parse =
            |text: &str| kills(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!((parse(""), parse("7")), (Ok(KILLS), Ok(7)));
        assert!(parse("many").is_err() && parse("1 2").is_err());
    }

    #[test]
    fn fuzz_reads_its_arguments() {
        let parse = |text: &str| {
            FuzzPlan::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let plan = parse("arp --seconds 5 ipv4").unwrap();
        assert_eq!(
            plan,
            FuzzPlan { targets: vec!["arp".to_owned(), "ipv4".to_owned()], seconds: Some(5) }
        );
        assert_eq!(parse("").unwrap().seconds, None);
        assert_eq!(parse("--seconds x").unwrap_err(), "`--seconds x` is not a number");
        assert!(parse("--fast").is_err());
    }

    #[test]
    fn every_decoder_is_a_target() {
        let all = targets();
        assert!(DECODERS.iter().all(|decoder| all.iter().any(|target| target == decoder)));
        assert_eq!((seconds_for("layouts"), seconds_for("gateway")), (60, 600));
    }
}
