//! `gatewright man`: manual pages.

use crate::{
    exit::{Exit, Failure},
    face::Face,
};
use anyhow::Result;
use clap_mangen::Man as Page;
use serde_json::json;
use std::fs;
use std::path::Path;

/// The shape of its answer.
pub const JSON: &str = "{pages: [{name, text}]}";

/// Prints the manual page of the program or of a verb, or writes all pages.
///
/// To read one: `gatewright man check | man -l -`.
#[derive(Debug, clap::Args)]
pub struct Man {
    /// The verb, such as `check` or `gw-check`; the whole program if none is given.
    verb: Option<String>,
    /// Write all pages into this folder instead.
    #[arg(long, value_name = "FOLDER", conflicts_with = "verb")]
    output: Option<String>,
}

impl Man {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let mut pages = pages(face)?;
        if let Some(folder) = &self.output {
            for (name, text) in &pages {
                let path = Path::new(folder).join(name);
                let shown = path.to_string_lossy().into_owned();
                fs::write(&path, text).map_err(|error| Failure::file(&shown, &error))?;
            }
        } else {
            let name = self.verb.as_ref().map_or(String::new(), |verb| format!("-{verb}"));
            let name = format!("{}{name}.1", face.program().name);
            pages.retain(|(page, _)| *page == name);
        }
        if pages.is_empty() {
            let verb = self.verb.unwrap_or_default();
            return Err(Failure::new(Exit::Negative, format!("there is no verb `{verb}`")).into());
        }
        let list: Vec<_> =
            pages.iter().map(|(name, text)| json!({ "name": name, "text": text })).collect();
        face.answer(&json!({ "pages": list }), || match self.output {
            Some(_) => pages.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join("\n"),
            None => pages.iter().map(|(_, text)| text.as_str()).collect(),
        })?;
        Ok(Exit::Success)
    }
}

/// Every page with its file name.
fn pages(face: Face) -> Result<Vec<(String, String)>> {
    let mut whole = (face.program().command)();
    whole.build();
    let mut pages = vec![page(whole.clone(), face.program().name)?];
    for verb in whole.get_subcommands() {
        let name = format!("{}-{}", face.program().name, verb.get_name());
        pages.push(page(verb.clone(), &name)?);
        for part in verb.get_subcommands() {
            pages.push(page(part.clone(), &format!("{name}-{}", part.get_name()))?);
        }
    }
    Ok(pages)
}

fn page(command: clap::Command, name: &str) -> Result<(String, String)> {
    let mut octets = Vec::new();
    Page::new(command).render(&mut octets)?;
    Ok((format!("{name}.1"), String::from_utf8(octets)?))
}
