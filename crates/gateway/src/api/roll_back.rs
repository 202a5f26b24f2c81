//! The descriptions that a gateway has taken: their list, the differences from what runs, and the
//! return to one of them.

use crate::{
    Gateway,
    api::{ControlRequest, Refused, read},
    credentials_folder,
    events::in_rfc3339,
    gateway::about,
    last_good::{DescriptionCause, DescriptionHistory, HistoryEntry},
};
use gatewright_config::Config;
use gatewright_part::{Change, LogLevel};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;

/// A description that a gateway has taken and keeps.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct KeptDescription {
    /// Its number; later ones have larger numbers.
    pub number: u64,
    /// When it was taken, in RFC 3339's form in UTC.
    pub time: String,
    /// Why it was taken.
    pub cause: DescriptionCause,
    /// Octets of its text.
    pub octets: u64,
    /// Whether the gateway runs from it.
    pub in_force: bool,
}

/// Answers a request about kept descriptions.
pub(crate) fn answer(request: &ControlRequest, gateway: &Gateway) -> Result<Value, Refused> {
    match *request {
        ControlRequest::KeptDescription { number } => {
            Ok(json!({ "number": number, "text": gateway.kept_description(number)? }))
        }
        ControlRequest::KeptDifferences { number } => {
            let config = gateway.kept_config(&gateway.kept_description(number)?)?;
            Ok(json!({ "number": number, "changes": gateway.differences(&config) }))
        }
        ControlRequest::RollBack { number } => {
            Ok(json!({ "number": number, "changes": gateway.roll_back(number)? }))
        }
        ControlRequest::DescriptionHistory => Ok(json!({ "kept": gateway.description_history()? })),
        _ => Err("no answer to this request".to_owned().into()),
    }
}

impl Gateway {
    /// The descriptions that were taken and are kept, the oldest first.
    ///
    /// # Errors
    ///
    /// In words, if none are kept or the folder cannot be read.
    pub fn description_history(&self) -> Result<Vec<KeptDescription>, String> {
        let in_force = self.last_good().in_force();
        let kept = |entry: HistoryEntry| KeptDescription {
            number: entry.number,
            time: in_rfc3339(entry.taken()),
            cause: entry.cause,
            octets: entry.octets,
            in_force: in_force == Some(entry.number),
        };
        let entries = self.history()?.entries();
        let entries = entries.map_err(|error| format!("the kept descriptions: {error}"))?;
        Ok(entries.into_iter().map(kept).collect())
    }

    /// The text of a kept description.
    fn kept_description(&self, number: u64) -> Result<String, String> {
        let found = self.history()?.text(number);
        let found = found.map_err(|error| format!("the kept description {number}: {error}"))?;
        found.ok_or_else(|| {
            format!("no description {number} is kept: `gatewright config history` lists them")
        })
    }

    /// Takes a kept description again, all of it or nothing; returns the changes. The description's
    /// file is not changed.
    fn roll_back(&self, number: u64) -> Result<Vec<Change>, Refused> {
        let text = self.kept_description(number)?;
        let changes = self.reload_text(&self.kept_config(&text)?, &text)?;
        self.keep_description(&text, DescriptionCause::RollBack);
        let event = format!("the kept description {number} is taken again");
        self.events().log(about(LogLevel::Info, "rolled-back", event).with("number", number));
        Ok(changes)
    }

    /// A kept text as a description; its paths are relative to the folder of the gateway's own file.
    fn kept_config(&self, text: &str) -> Result<Config, String> {
        let folder = self.folder().unwrap_or(Path::new(""));
        Ok(read(text)?.with_files_in(folder, credentials_folder().as_deref()))
    }

    fn history(&self) -> Result<DescriptionHistory, String> {
        self.last_good().history().ok_or_else(|| {
            "this gateway keeps no descriptions: `gatewright run --last-good FILE` does".to_owned()
        })
    }
}
