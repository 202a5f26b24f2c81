//! The gateways that every back end plays, and how: their `test` blocks at every cut, and random
//! runs beside the native machine.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test may fail loudly, and each test takes of this what it needs"
)]

use crate::happenings::Happenings;
use crate::peers::native::Native;
use crate::peers::{Gateway, play, play_among_strangers};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::{Program, RoleId, StepAction, Transport};
use gatewright_translate::machine::TURN_MESSAGES;
use libtest_mimic::Failed;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Random runs of each gateway, and how much happens in each.
const RUNS: u64 = 100;
const EVENTS: usize = 60;

/// Seeds that once found a difference.
const FOUND: [(&str, &[u64]); 2] = [("lines_gateway", &[250]), ("pipes", &[116, 1591])];

/// The examples, and programs that try the machine's corners.
pub const GATEWAYS: [&str; 16] = [
    "smtp_relay",
    "smtp_to_http",
    "http_to_smtp",
    "coap_to_modbus",
    "modbus_to_mqtt",
    "mqtt_to_coap",
    "coap_to_mqtt",
    "oximeter_onem2m",
    "board",
    "slp_upnp",
    "sip_rtsp",
    "finder",
    "lines_gateway",
    "pipes",
    "too_long",
    "signs",
];

/// Whatever happens, in whatever order: the generated gateway does what the native one does.
pub fn agree(gateway: &mut Gateway, name: &str, program: &Arc<Program>) -> Result<(), Failed> {
    for seed in seeds(name) {
        let run = Run::of(program, Happenings::new(program, seed), EVENTS);
        run.is_done_by(gateway).map_err(|why| {
            Failed::from(format!("seed {seed}\n{}", why.message().unwrap_or_default()))
        })?;
    }
    let corpus = root().join("fuzz/corpus/differential");
    for input in fs::read_dir(corpus)? {
        let octets = fs::read(input?.path())?;
        if let Some((_, events)) = chosen(&octets).filter(|(of, _)| *of == name) {
            Run::of(program, Happenings::of(program, events), CHOSEN_MAX).is_done_by(gateway)?;
        }
    }
    Ok(())
}

/// Whoever answers from an address that was not asked answers nothing, and is counted.
pub fn strangers(gateway: &mut Gateway, program: &Arc<Program>) -> Result<(), Failed> {
    const ANSWERED_ONCE: &str = "the repetitions end with the answer, which passes";
    let test =
        program.tests.iter().find(|test| test.name == ANSWERED_ONCE).ok_or("no such test")?;
    play_among_strangers(gateway, program, test)?;
    let counted = gateway.tell("counted")?;
    let found = counted.iter().any(|count| count == "strangers 1");
    if found { Ok(()) } else { Err(counted.join("\n").into()) }
}

/// A client of the relay that sends its requests without waiting for answers has them answered by
/// turns, so that one request of another client waits for one turn of it; counted, not timed.
pub fn turns(gateway: &mut Gateway) -> Result<(), Failed> {
    const PIPELINED: usize = 1_000;
    // As many as the native machine answers in a turn.
    let turn = usize::try_from(TURN_MESSAGES)?;
    let request = "4e4f4f500d0a";
    let answers = |told: &[String]| {
        let written = told.iter().filter_map(|line| line.strip_prefix("wrote ")?.split_once(' '));
        // "250 2.0.0 ok" with its end.
        let count = |octets: &str| octets.matches("32353020322e302e30206f6b0d0a").count();
        written.map(|(conn, octets)| (conn.to_owned(), count(octets))).collect::<Vec<_>>()
    };
    let all = |conn: &str, count| vec![(conn.to_owned(), count)];
    for line in ["new", "accept 0", "accept 0", "accept 0"] {
        gateway.tell(line)?;
    }
    let many = request.repeat(PIPELINED);
    let first = answers(&gateway.tell(&format!("octets 0 {many}"))?);
    let second = answers(&gateway.tell(&format!("octets 1 {many}"))?);
    let polite = answers(&gateway.tell(&format!("octets 2 {request}"))?);
    assert_eq!((first, second), (all("0", turn), all("1", turn)));
    assert_eq!(polite, all("2", 1));
    // The two who have more take turns to the end.
    let rest = answers(&gateway.tell("time 0")?);
    assert!(rest.chunks(2).all(|pair| pair[0].0 == "0" && pair[1].0 == "1"), "{rest:?}");
    assert!(rest.iter().all(|(_, count)| *count <= turn), "{rest:?}");
    assert_eq!(rest.iter().map(|(_, count)| count).sum::<usize>(), 2 * (PIPELINED - turn));
    gateway.tell("free")?;
    Ok(())
}

/// Runs of each gateway without memory, and how much happens in each.
const POOR_RUNS: u64 = 40;
const POOR_EVENTS: usize = 60;

/// When there is no memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Poverty {
    /// In the middle of the run.
    Comes,
    /// From the start.
    Lasts,
}

/// Whatever happens when there is no memory: each connection's end is told, and all that was taken
/// is given back.
pub fn without_memory(
    gateway: &mut Gateway,
    program: &Arc<Program>,
    poverty: Poverty,
) -> Result<(), Failed> {
    for seed in 0..POOR_RUNS {
        let mut history = String::new();
        poor_run(gateway, program, (poverty, seed), &mut history).map_err(|why| {
            let why = why.message().unwrap_or_default();
            Failed::from(format!("seed {seed}, without memory\n{history}{why}"))
        })?;
    }
    Ok(())
}

fn poor_run(
    gateway: &mut Gateway,
    program: &Arc<Program>,
    (poverty, seed): (Poverty, u64),
    history: &mut String,
) -> Result<(), Failed> {
    let mut happenings = Happenings::new(program, seed);
    let mut tell = |line: &str| {
        let _ = writeln!(history, "  {line}");
        let told = gateway.tell(line)?;
        let _ = writeln!(history, "    {told:?}");
        Ok::<_, Failed>(told)
    };
    let octets = 64 << (seed % 8);
    let comes = poverty == Poverty::Comes;
    tell(&if comes { "new".to_owned() } else { format!("new {octets}") })?;
    for at in 0..POOR_EVENTS {
        if comes && seed % 20 == u64::try_from(at)? {
            tell(&format!("limit {octets}"))?;
        }
        let event = happenings.next();
        happenings.learn(&tell(&event.to_string())?);
    }
    if comes {
        tell("limit 0")?;
    }
    while let Some(conn) = happenings.one_left() {
        let told = tell(&format!("break {conn}"))?;
        happenings.learn(&told);
        if !happenings.is_gone(conn) {
            return Err(format!("nobody was told of the end of {conn}").into());
        }
    }
    let kept = tell("free")?;
    if kept.is_empty() { Ok(()) } else { Err(kept.join("\n").into()) }
}

/// The most that happens in a run that octets choose.
pub const CHOSEN_MAX: usize = 1_000;

/// The gateway that the first of some octets chooses; the others say what happens to it.
pub fn chosen(octets: &[u8]) -> Option<(&'static str, &[u8])> {
    let (first, events) = octets.split_first()?;
    Some((GATEWAYS[usize::from(*first) % GATEWAYS.len()], events))
}

/// What happened to a native machine, and what it made of it.
pub struct Run {
    lines: Vec<String>,
    told: Vec<Vec<String>>,
}

impl Run {
    /// At most so many events.
    pub fn of(program: &Arc<Program>, mut happenings: Happenings<'_>, events: usize) -> Self {
        let mut native = Native::new(program);
        let mut run = Self { lines: vec!["new".to_owned()], told: vec![Vec::new()] };
        for _ in 0..events {
            if happenings.is_over() {
                break;
            }
            let event = happenings.next();
            let told = native.tell(&event);
            happenings.learn(&told);
            run.lines.push(event.to_string());
            run.told.push(told);
        }
        run.lines.push("free".to_owned());
        run.told.push(Vec::new());
        run
    }

    /// A generated gateway makes the same of it, and keeps nothing.
    pub fn is_done_by(&self, gateway: &mut Gateway) -> Result<(), Failed> {
        let all = gateway.tell_all(&self.lines).map_err(|why| {
            let history = self.history(self.lines.len());
            Failed::from(format!("{history}{}", why.message().unwrap_or_default()))
        })?;
        for (at, (wanted, found)) in self.told.iter().zip(&all).enumerate() {
            if in_order(wanted) != in_order(found) {
                let history = self.history(at);
                let event = &self.lines[at];
                let why = format!("{history}  {event}\nwanted {wanted:#?}\nfound {found:#?}");
                return Err(why.into());
            }
        }
        Ok(())
    }

    fn history(&self, events: usize) -> String {
        let mut text = String::new();
        for (line, told) in self.lines.iter().zip(&self.told).take(events) {
            let _ = writeln!(text, "  {line}");
            for line in told {
                let _ = writeln!(text, "    {line}");
            }
        }
        text
    }
}

/// The top of the repository.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().find(|at| at.join("examples/gateways").is_dir()).unwrap()
}

/// The seeds of the runs: the first ones and those that once found a difference. Others are tried by
/// `EVENT_SEEDS=FROM..TO`.
fn seeds(name: &str) -> Vec<u64> {
    let asked = std::env::var("EVENT_SEEDS").unwrap_or_default();
    let bounds =
        asked.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    if let Some((from, to)) = bounds {
        return (from..to).collect();
    }
    let found = FOUND.into_iter().filter(|found| found.0 == name).flat_map(|found| found.1);
    (0..RUNS).chain(found.copied()).collect()
}

/// Lines of one connection in their order; which connection comes first does not matter, nor in how
/// many pieces octets are written.
fn in_order(told: &[String]) -> Vec<String> {
    let key = |line: &&String| line.split(' ').nth(1).map(str::to_owned);
    let mut told: Vec<&String> = told.iter().collect();
    told.sort_by_key(key);
    let mut joined: Vec<String> = Vec::new();
    for line in told {
        let written = line.strip_prefix("wrote ").and_then(|rest| rest.split_once(' '));
        match (joined.last_mut(), written) {
            (Some(last), Some((conn, hex))) if last.starts_with(&format!("wrote {conn} ")) => {
                last.push_str(hex);
            }
            _ => joined.push(line.clone()),
        }
    }
    joined
}

/// An example with further tests behind its own.
pub fn program(name: &str) -> (Arc<Program>, Sources) {
    let corners = root().join("crates/translate/tests/programs");
    let examples = root().join("examples/gateways");
    let file = format!("{name}.gate");
    let folder = if corners.join(&file).is_file() { corners } else { examples };
    let more = root().join("crates/emit/tests/transcripts");
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let text = read(folder.join(&file)) + &read(more.join(&file));
    let mut sources = Sources::of(file, text);
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), fs::read_to_string(folder.join(import)).ok()?))
    });
    let found: String =
        compiled.diagnostics.iter().map(|found| found.render(&sources, false)).collect();
    (Arc::new(compiled.program.unwrap_or_else(|| panic!("{found}"))), sources)
}

/// Whether what a role's peer sends can be cut on its way.
fn is_tcp(program: &Program, role: RoleId) -> bool {
    program.role(role).is_some_and(|role| role.transport == Transport::Tcp)
}

/// Plays the `test` blocks, in pieces and cut at every place.
pub fn transcripts(
    gateway: &mut Gateway,
    program: &Arc<Program>,
    everywhere: bool,
) -> Result<(), Failed> {
    if program.tests.is_empty() {
        return Err("no test block".into());
    }
    let pieces: &[usize] = if everywhere { &[0, 1, 3] } else { &[0, 1] };
    for test in &program.tests {
        let longest = test.steps.iter().map(|step| match &step.action {
            StepAction::Sends { role, octets } if is_tcp(program, *role) => octets.len(),
            _ => 0,
        });
        let cuts = if everywhere { longest.max().unwrap_or(0) } else { 0 };
        let plans = pieces.iter().map(|size| (*size, 0)).chain((1..cuts).map(|cut| (0, cut)));
        for (size, cut) in plans {
            play(gateway, program, test, (size, cut)).map_err(|why| {
                format!(
                    "{}, pieces of {size}, cut at {cut}: {}",
                    test.name,
                    why.message().unwrap_or_default()
                )
            })?;
        }
    }
    Ok(())
}
