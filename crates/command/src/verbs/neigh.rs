//! `gatewright neigh`: the neighbours of a running gateway.

use super::status::word;
use crate::{exit::Exit, face::Face, socket::Which};
use anyhow::Result;
use gatewright_gateway::api::ControlRequest;
use serde_json::Value;
use std::net::IpAddr;

/// The shape of its answer.
pub const JSON: &str = "{neighbours: [{link, address, mac, state}]}: those listed, added, removed or flushed; state \
     is incomplete, reachable, stale, delay, probe or permanent";

/// Lists, sets and removes neighbours of a running gateway.
///
/// Without a subcommand it lists what ARP and neighbour discovery have learnt. A neighbour that was
/// set is permanent: it is neither resolved nor evicted, until the gateway ends.
#[derive(Debug, clap::Args)]
pub struct Neigh {
    #[command(subcommand)]
    part: Option<NeighbourAction>,
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, clap::Subcommand)]
enum NeighbourAction {
    /// Lists the known neighbours.
    List,
    /// Sets a permanent neighbour.
    Add {
        /// Its address.
        address: IpAddr,
        /// Its link-layer address: pairs of hexadecimal digits separated by colons, six on
        /// Ethernet.
        #[arg(value_name = "MAC")]
        mac: String,
        /// The link; found by the address if not given.
        #[arg(long, value_name = "NAME")]
        link: Option<String>,
    },
    /// Removes a neighbour; it is resolved again for the next packet.
    #[command(alias = "remove")]
    Del {
        /// Its address.
        address: IpAddr,
        /// The link; found by the address if not given.
        #[arg(long, value_name = "NAME")]
        link: Option<String>,
    },
    /// Removes all learnt neighbours, and lists them.
    Flush {
        /// Only those of this link.
        #[arg(long, value_name = "NAME")]
        link: Option<String>,
    },
}

impl Neigh {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let request = match self.part {
            None | Some(NeighbourAction::List) => ControlRequest::Neighbours,
            Some(NeighbourAction::Add { address, mac, link }) => {
                ControlRequest::AddNeighbour { address, mac, link }
            }
            Some(NeighbourAction::Del { address, link }) => {
                ControlRequest::RemoveNeighbour { address, link }
            }
            Some(NeighbourAction::Flush { link }) => ControlRequest::FlushNeighbours { link },
        };
        self.which.tell_list(face, &request, "neighbours", line)
    }
}

/// A neighbour in one line: `192.0.2.9 at 02:00:00:00:00:09 on lan, reachable`.
fn line(neighbour: &Value) -> String {
    let (address, link) = (word(neighbour, "address"), word(neighbour, "link"));
    let (mac, state) = (word(neighbour, "mac"), word(neighbour, "state"));
    format!("{address:<28} at {mac:<17} on {link}, {state}\n")
}
