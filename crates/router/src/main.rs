//! `gatewright-router`: runs gateways between links, for machines with little flash.
//!
//! It has links, routes, handlers, proxies and the mesh. Language, health devices, service entity, web
//! interface and lab are crates that it does not link; a description with their tables is refused.
#![forbid(unsafe_code)]

use gatewright_command::CommandLine;
use gatewright_gateway::Assembly;
use std::process::ExitCode;

const NAME: &str = "gatewright-router";

static PROGRAM: CommandLine = CommandLine {
    name: NAME,
    command,
    assembly: Assembly { services: None, programs: None, web: false },
    web: None,
    programs: None,
    files: |_, _| Vec::new(),
    checks: |_| Vec::new(),
    codes: &[],
};

gatewright_command::verbs! {
    Run = "run" in gatewright_command::verbs::run,
    Check = "check" in gatewright_command::verbs::check,
    Doctor = "doctor" in gatewright_command::verbs::doctor,
    Diag = "diag" in gatewright_command::verbs::diag,
    Status = "status" in gatewright_command::verbs::status,
    Events = "events" in gatewright_command::verbs::events,
    Log = "log" in gatewright_command::verbs::log,
    Top = "top" in gatewright_command::verbs::top,
    Reload = "reload" in gatewright_command::verbs::reload,
    Config = "config" in gatewright_command::verbs::config,
    Upgrade = "upgrade" in gatewright_command::verbs::upgrade,
    Link = "link" in gatewright_command::verbs::link,
    Route = "route" in gatewright_command::verbs::route,
    Neigh = "neigh" in gatewright_command::verbs::neigh,
    Mesh = "mesh" in gatewright_command::verbs::mesh,
    Olsr = "olsr" in gatewright_command::verbs::olsr,
    Capture = "capture" in gatewright_command::verbs::capture,
    Trace = "trace" in gatewright_command::verbs::trace,
    Attach = "attach" in gatewright_command::verbs::attach,
    Detach = "detach" in gatewright_command::verbs::detach,
    Explain = "explain" in gatewright_command::verbs::explain,
    Schema = "schema" in gatewright_command::verbs::schema,
    Completion = "completion" in gatewright_command::verbs::completion,
    Man = "man" in gatewright_command::verbs::man,
    Version = "version" in gatewright_command::verbs::version,
}

/// The command line.
fn command() -> clap::Command {
    gatewright_command::command::<Verb>(
        NAME,
        "Runs gateways between links.",
        "Frames and packets come in on one side and leave on the other: forwarded, switched or \
         relayed, on one small Linux machine. The full `gatewright` also translates messages, and \
         has health devices, a service entity, a web interface and a laboratory.",
    )
}

fn main() -> ExitCode {
    gatewright_command::main::<Verb>(&PROGRAM)
}
