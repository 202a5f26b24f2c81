//! The mesh of a description.

use crate::located::Located;
use std::net::SocketAddr;

/// The node of the label-switched mesh.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mesh {
    /// Name of the interface by which the host uses the mesh.
    pub interface: String,
    /// Interfaces of the links that it joins.
    pub links: Vec<Located<String>>,
    /// Interfaces whose stations take part.
    pub ports: Vec<Located<String>>,
    /// Links to other sites.
    pub tunnels: Vec<MeshTunnel>,
    /// The profile of the mesh.
    pub profile: MeshProfile,
    /// How the nodes find routes.
    pub routing: MeshRouting,
    /// File of the keys that authenticate the nodes, or of the node's own key; without one everybody
    /// may join.
    pub key_file: Option<String>,
    /// File of the members whose own keys are admitted; without one the keys are those of all.
    pub members_file: Option<String>,
}

/// A link of the mesh to another site, over UDP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MeshTunnel {
    /// Name of its interface.
    pub interface: Located<String>,
    /// Own address and port.
    pub local: Located<SocketAddr>,
    /// Those of the node at the other end.
    pub remote: Located<SocketAddr>,
}

/// How the nodes of a mesh find routes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MeshRouting {
    /// When somebody sends.
    #[default]
    OnDemand,
    /// By OLSR (RFC 3626).
    Olsr,
}

/// The protocol profile of a mesh.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MeshProfile {
    /// The Lilith paper's protocol.
    Classic,
    /// Acknowledged, monitored and repaired.
    #[default]
    Default,
}
