//! `gatewright mesh key`: keys of the members of a mesh with `trust = "pki"`.

use crate::{
    description,
    exit::{Exit, Failure},
    face::Face,
    new_file::{OWNER_ONLY, write_new},
};
use anyhow::Result;
use gatewright_mesh::{MESH_KEY_LEN, MeshNodeKey, MeshPublicKey};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::path::Path;

#[derive(Debug, clap::Subcommand)]
pub(super) enum KeyAction {
    /// Writes a new key for a node or an authority, and shows its public key.
    New {
        /// The file, which only its owner can read; one that is there is not replaced.
        file: String,
    },
    /// Shows the public key in a file, and the node that has it.
    Show {
        /// The file.
        file: String,
    },
    /// Admits a node with an authority's key: prints the line for the node's file.
    Admit {
        /// The authority's file.
        authority: String,
        /// The node's public key, as `show` prints it.
        member: String,
    },
}

impl KeyAction {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        match self {
            Self::New { file } => {
                let key = new()?;
                write_new(Path::new(&file), key.text().as_bytes(), OWNER_ONLY)?;
                show(&file, &key, face)?;
            }
            Self::Show { file } => show(&file, &read(&file)?, face)?,
            Self::Admit { authority, member } => {
                let public = MeshPublicKey::parse(&member).ok_or_else(|| {
                    let digits = 2 * MESH_KEY_LEN;
                    let message = format!(
                        "{member} is not a public key of {digits} hexadecimal digits: `gatewright \
                         mesh key show FILE` prints a node's"
                    );
                    Failure::new(Exit::Usage, message)
                })?;
                let certificate = read(&authority)?.admit(&public).ok_or_else(refused)?;
                let answer = json!({ "member": member, "certificate": certificate.to_string() });
                face.answer(&answer, || format!("certificate {certificate}"))?;
            }
        }
        Ok(Exit::Success)
    }
}

fn refused() -> Failure {
    Failure::new(Exit::Negative, "the key is refused")
}

/// A key of the system's randomness.
fn new() -> Result<MeshNodeKey> {
    const RANDOM: &str = "/dev/urandom";
    let mut seed = [0; MESH_KEY_LEN];
    let drawn = File::open(RANDOM).and_then(|mut random| random.read_exact(&mut seed));
    drawn.map_err(|error| Failure::file(RANDOM, &error))?;
    Ok(MeshNodeKey::of_seed(seed).ok_or_else(refused)?)
}

fn read(file: &str) -> Result<MeshNodeKey> {
    let text = description::read(file)?;
    let key = MeshNodeKey::parse(&text);
    Ok(key.map_err(|error| Failure::new(Exit::Configuration, format!("{file}: {error}")))?)
}

fn show(file: &str, key: &MeshNodeKey, face: Face) -> Result<()> {
    let public = key.public().to_string();
    // The last six octets are the link-layer address of the mesh interface.
    let octets = key.public().node().0.to_be_bytes().into_iter().skip(2);
    let node = octets.map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":");
    let certificate = key.certificate().map(|certificate| certificate.to_string());
    let has = if certificate.is_some() { "with" } else { "without" };
    let answer = json!({ "file": file, "key": public, "node": node, "certificate": certificate });
    face.answer(&answer, || format!("member {public}\nnode {node}, {has} a certificate"))
}
