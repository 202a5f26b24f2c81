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

/// The protocol profile of a mesh.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MeshProfile {
    /// The Lilith paper's protocol.
    Classic,
    /// Acknowledged, monitored and repaired.
    #[default]
    Default,
}
