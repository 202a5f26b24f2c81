//! The verbs of every gateway, a file each.
//!
//! A verb is a `clap::Args` whose documentation is its help. It has `run`, which answers through
//! the face and returns the exit code, and `JSON`, which tells the shape of its answer.

pub mod attach;
pub mod capture;
pub mod check;
pub mod completion;
pub mod config;
pub mod detach;
pub mod diag;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod init;
pub mod link;
pub mod log;
pub mod man;
pub mod mesh;
pub mod neigh;
pub mod olsr;
pub mod reload;
pub mod route;
pub mod run;
pub mod schema;
pub mod status;
pub mod top;
pub mod trace;
pub mod upgrade;
pub mod version;

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
