//! The verbs: a file each, and here a line each in the list and in `verbs!`.
//!
//! A verb is a `clap::Args` whose documentation is its help. It has `run`, which answers through
//! the face and returns the exit code, and `JSON`, which tells the shape of its answer.

mod attach;
mod capture;
mod check;
mod completion;
mod config;
mod cse;
mod demo;
mod detach;
mod device;
mod diag;
mod doctor;
mod events;
mod explain;
mod gw;
mod header;
mod init;
mod lab;
mod link;
mod log;
mod man;
mod mesh;
mod neigh;
mod olsr;
mod reload;
mod route;
mod run;
mod schema;
mod status;
mod store;
mod top;
mod trace;
mod upgrade;
mod version;
mod web;

use crate::exit::Exit;
use crate::face::Face;

/// Selects packets that match all given options.
#[derive(Debug, clap::Args)]
pub(crate) struct Packets {
    /// Only packets of this link.
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Only packets from this address or network.
    #[arg(long, value_name = "NETWORK")]
    source: Option<String>,
    /// Only packets to this address or network.
    #[arg(long, value_name = "NETWORK")]
    destination: Option<String>,
    /// Only packets of this IP protocol: icmp, udp, tcp, ..., or a number.
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<String>,
    /// Only packets to this port of TCP or UDP.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

impl Packets {
    /// The selection as a control request has it.
    fn into_which(self) -> gatewright_gateway::Which {
        let Self { link, source, destination, protocol, port } = self;
        gatewright_gateway::Which { link, source, destination, protocol, port }
    }
}

macro_rules! verbs {
    ($($name:ident = $word:literal in $module:ident,)*) => {
        /// The verb.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Verb {
            $(#[command(name = $word)] $name($module::$name),)*
        }

        impl Verb {
            /// Runs it.
            ///
            /// # Errors
            ///
            /// What kept the verb from its work; a [`Failure`](crate::exit::Failure) among the
            /// causes has the exit code.
            pub(crate) fn run(self, face: Face) -> anyhow::Result<Exit> {
                match self { $(Self::$name(verb) => verb.run(face),)* }
            }
        }

        /// The shape of a verb's answer with `--json`.
        pub(crate) fn shape(verb: &str) -> &'static str {
            match verb { $($word => $module::JSON,)* _ => "" }
        }
    };
}

verbs! {
    Demo = "demo" in demo,
    Run = "run" in run,
    Check = "check" in check,
    Doctor = "doctor" in doctor,
    Diag = "diag" in diag,
    Init = "init" in init,
    Status = "status" in status,
    Events = "events" in events,
    Log = "log" in log,
    Top = "top" in top,
    Reload = "reload" in reload,
    Config = "config" in config,
    Upgrade = "upgrade" in upgrade,
    Link = "link" in link,
    Route = "route" in route,
    Neigh = "neigh" in neigh,
    Mesh = "mesh" in mesh,
    Olsr = "olsr" in olsr,
    Capture = "capture" in capture,
    Trace = "trace" in trace,
    Attach = "attach" in attach,
    Detach = "detach" in detach,
    Device = "device" in device,
    Cse = "cse" in cse,
    Store = "store" in store,
    Lab = "lab" in lab,
    Explain = "explain" in explain,
    Gw = "gw" in gw,
    Header = "header" in header,
    Schema = "schema" in schema,
    Completion = "completion" in completion,
    Man = "man" in man,
    Version = "version" in version,
    Web = "web" in web,
}
