//! `gatewright gw`: programs in the gateway language, checked, tested, laid out, shown, run and
//! written as C.

mod build;
mod check;
mod fmt;
mod live;
mod recorded;
mod run;
mod test;
mod trace;
mod view;

use anyhow::Result;
use gatewright_command::description::read;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::Compiled;
use gatewright_programs::import;

pub(super) const JSON: &str = "check: {ok, files: [{file, ok, program: {name, messages, roles, handlers, tests, session_octets, \
     sessions_max, bounds: [{what, octets}]}, findings}]}, program is null if the file is refused \
     or is only to be imported; fmt: {ok, check, files: [{file, ok, changed, text, findings}]}, \
     text is null but for standard input; graph, listing: {file, text, findings}, text is null \
     if the file is refused; test: {ok, files: [{file, ok, tests: [{name, ok, virtual_ms}], splits, views: [{view, ok, messages}], \
     handlers_untried, cases_untried: [PLACE], findings}]}; trace: {ok, file, test, steps: [{what, who, text, \
     place}], gaps: [WHY]}, no steps if no message came, gaps are why a recorded test may fail; findings as in `check`; build: {file, folder, files: [NAME], findings}, folder is null if the \
     file is refused; run, when it \
     ends: [{file, program, loops, connections, counters: {name: number}, handlers: {name: \
     {started, finished, failed, p50_us, p99_us}}}], connections are those that were cut off";

/// Checks, tests, formats, shows, runs and builds programs in the gateway language.
///
/// docs/language.md defines the language.
#[derive(Debug, clap::Args)]
pub(crate) struct Gw {
    #[command(subcommand)]
    part: GwVerb,
}

/// The action on a program.
#[derive(Debug, clap::Subcommand)]
enum GwVerb {
    Build(build::Build),
    Check(check::Check),
    Fmt(fmt::Fmt),
    Run(run::Run),
    Test(test::Test),
    Trace(trace::Trace),
    /// Prints a program's handlers as a graph in the dot language.
    ///
    /// Each box is a sequence that runs without suspension; a double border marks where the handler
    /// waits: `gatewright gw graph FILE | dot -Tsvg > handlers.svg`.
    Graph {
        /// The program; `-` is standard input.
        file: String,
    },
    /// Prints a compiled program, one instruction a line.
    ///
    /// The format is for reading only and may change.
    Listing {
        /// The program; `-` is standard input.
        file: String,
    },
}

impl Gw {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        match self.part {
            GwVerb::Build(build) => build.run(face),
            GwVerb::Check(check) => check.run(face),
            GwVerb::Fmt(fmt) => fmt.run(face),
            GwVerb::Run(run) => run.run(face),
            GwVerb::Test(test) => test.run(face),
            GwVerb::Trace(trace) => trace.run(face),
            GwVerb::Graph { file } => view::run(face, file, gatewright_lang::graph),
            GwVerb::Listing { file } => view::run(face, file, gatewright_lang::listing),
        }
    }
}

/// Compiles a file with what it imports.
fn compile(file: &str) -> Result<(Sources, Compiled), Failure> {
    let mut sources = Sources::of(file, read(file)?);
    let compiled = gatewright_lang::compile_importing(&mut sources, SourceId::default(), import);
    Ok((sources, compiled))
}
