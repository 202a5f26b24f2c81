//! `gatewright neigh`: the neighbours of a running gateway.

use super::status::word;
use crate::{exit::Exit, face::Face, socket::Which};
use anyhow::Result;
use gatewright_gateway::api::ControlRequest;
use serde_json::Value;
use std::net::IpAddr;

pub(super) const JSON: &str = "{neighbours: [{link, address, mac, state}]}: those listed, added, removed or flushed; state \
     is incomplete, reachable, stale, delay, probe or permanent";

/// Lists, sets and forgets the neighbours of a running gateway.
///
/// Without a part it lists what ARP and neighbour discovery know. A neighbour that is set is neither
/// asked for nor forgotten; it ends with the gateway.
#[derive(Debug, clap::Args)]
pub(crate) struct Neigh {
    #[command(subcommand)]
    part: Option<NeighbourAction>,
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, clap::Subcommand)]
enum NeighbourAction {
    /// Lists the neighbours that are known.
    List,
    /// Sets a neighbour.
    Add {
        /// Its address.
        address: IpAddr,
        /// Its link-layer address: six pairs of hexadecimal digits with colons between them, or as
        /// many as addresses on the link have.
        #[arg(value_name = "MAC")]
        mac: String,
        /// The link; found by the address if not given.
        #[arg(long, value_name = "NAME")]
        link: Option<String>,
    },
    /// Forgets a neighbour; it is asked for again when a packet is for it.
    #[command(alias = "remove")]
    Del {
        /// Its address.
        address: IpAddr,
        /// The link; found by the address if not given.
        #[arg(long, value_name = "NAME")]
        link: Option<String>,
    },
    /// Forgets all neighbours that were learnt, and tells them.
    Flush {
        /// Only those of this link.
        #[arg(long, value_name = "NAME")]
        link: Option<String>,
    },
}

impl Neigh {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
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
