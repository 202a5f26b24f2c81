//! `gatewright init`: a description to begin with.

use crate::{
    exit::Exit,
    face::Face,
    new_file::{FOR_ALL, write_new},
};
use anyhow::Result;
use clap::builder::PossibleValue;
use gatewright_config::{TEMPLATES, Template};
use serde_json::json;
use std::path::Path;

/// The shape of its answer.
pub const JSON: &str = "{template, purpose, file, text}, file being null if none was written; without TEMPLATE \
     {templates: [{name, purpose}]}";

/// Writes a commented description as a starting point.
///
/// Without TEMPLATE it lists the templates.
#[derive(Debug, clap::Args)]
pub struct Init {
    /// The purpose of the gateway.
    #[arg(value_name = "TEMPLATE", value_parser = names())]
    template: Option<String>,
    /// Write to FILE, which must not exist, instead of standard output.
    #[arg(long, short, value_name = "FILE", requires = "template")]
    output: Option<String>,
}

fn names() -> clap::builder::PossibleValuesParser {
    let values =
        TEMPLATES.iter().map(|template| PossibleValue::new(template.name).help(template.purpose));
    clap::builder::PossibleValuesParser::new(values)
}

impl Init {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let asked = |template: &&Template| Some(template.name) == self.template.as_deref();
        let Some(template) = TEMPLATES.iter().find(asked) else { return list(face) };
        if let Some(path) = &self.output {
            write_new(Path::new(path), template.text.as_bytes(), FOR_ALL)?;
        }
        let Template { name, purpose, text } = template;
        let value =
            json!({ "template": name, "purpose": purpose, "file": self.output, "text": text });
        face.answer(&value, || match &self.output {
            None => (*text).to_owned(),
            Some(path) => format!("{path}: {purpose}\nnow: gatewright check {path}"),
        })?;
        Ok(Exit::Success)
    }
}

fn list(face: Face) -> Result<Exit> {
    let templates: Vec<_> = (TEMPLATES.iter())
        .map(|template| json!({ "name": template.name, "purpose": template.purpose }))
        .collect();
    let lines: Vec<String> = (TEMPLATES.iter())
        .map(|template| format!("{:<12} {}", template.name, template.purpose))
        .collect();
    face.answer(&json!({ "templates": templates }), || {
        lines.join(
            "
",
        )
    })?;
    Ok(Exit::Success)
}
