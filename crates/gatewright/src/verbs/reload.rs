//! `gatewright reload`: another description for a running gateway.

use super::status::{list, word};
use crate::{
    description::{Description, folder_of, refusals},
    exit::{Exit, Failure},
    face::Face,
    socket::Which,
};
use anyhow::Result;
use gatewright_diagnostic::SourceId;
use gatewright_gateway::api::ControlRequest;
use serde_json::{Value, json};

pub(super) const JSON: &str =
    "{file, ok, changes: [{what, how}], findings}, findings as of `gatewright check`";

/// Makes a running gateway what its description says now.
///
/// The description is checked first: one with an error changes nothing, and neither does one of
/// which something cannot be done. Links stay open, and no packet is lost, but on a link whose device
/// or mode is another now: that link is closed and opened anew. Links come and go, four more than
/// there were at the start at the most. Handlers and routes that came by command stay, but for handlers
/// on a link that goes. Gateway programs are read again: one that has changed takes over at its
/// addresses, and sessions end in the program in which they began. A relay of TCP that changes or goes
/// closes its connections. SIGHUP to the gateway does the same.
///
/// `[devices]` and `[cse]` listen at other addresses from then on: those that come are opened before
/// those that go are given up. Devices that are associated stay, over UDP too; a connection of HTTP ends
/// when what was asked over it is answered, and one of WebSocket with its peer. The CSE above is told.
/// Certificates are read again.
///
/// Only a gateway that is started anew takes other values of [gateway] name, workers,
/// neighbours_max, routes_max; [devices] devices_max, views, map; [cse] base, id, mqtt, store, store_mib, reserve_mib, type, audit_mib, provider;
/// [cse.registrar] id, base; and tables [devices], [cse], [cse.tls] and [cse.registrar] that come or go.
#[derive(Debug, clap::Args)]
pub(crate) struct Reload {
    #[command(flatten)]
    which: Which,
    /// The description; the one that the gateway was started with if not given; `-` is standard
    /// input.
    #[arg(value_name = "FILE")]
    file: Option<String>,
}

impl Reload {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let file = match self.file {
            Some(file) => file,
            None => self.file_of_gateway()?,
        };
        let read = Description::load(&file)?;
        let findings = Face::data(&read.findings, &read.sources);
        if read.config.is_none() {
            face.findings(&read.findings, &read.sources);
            let value = json!({ "file": file, "ok": false, "changes": [], "findings": findings });
            face.answer(&value, String::new)?;
            face.note(&format!("{file}: nothing is changed"));
            return Ok(Exit::Configuration);
        }
        let text = read.sources.get(SourceId::default()).text().to_owned();
        let folder = Some(folder_of(&file)?);
        let answer = match self.which.ask_to_take(&ControlRequest::Reload { text, folder }) {
            Ok(answer) => answer,
            Err((failure, refused)) => {
                face.findings(&read.findings, &read.sources);
                let found = refusals(&read.sources, &refused.refused, refused.restart);
                if found.is_empty() {
                    return Err(failure.into());
                }
                face.findings(&found, &read.sources);
                let mut findings = findings;
                findings.extend(Face::data(&found, &read.sources));
                let value =
                    json!({ "file": file, "ok": false, "changes": [], "findings": findings });
                face.answer(&value, String::new)?;
                face.note(&format!("{file}: {}", failure.message));
                return Ok(failure.exit);
            }
        };
        let changes = list(&answer, "changes");
        // Warnings about what runs already were shown when it began to.
        if !changes.is_empty() {
            face.findings(&read.findings, &read.sources);
        }
        let value = json!({ "file": file, "ok": true, "changes": changes, "findings": findings });
        face.answer(&value, || match changes {
            [] => "the gateway is as the description says: nothing is changed".to_owned(),
            changes => changes.iter().map(line).collect(),
        })?;
        Ok(Exit::Success)
    }

    fn file_of_gateway(&self) -> Result<String, Failure> {
        let answer = self.which.ask(&ControlRequest::Description)?;
        let file = answer.get("file").and_then(Value::as_str).map(str::to_owned);
        let message = "the gateway's description came by standard input: name the file";
        file.ok_or_else(|| Failure::new(Exit::Usage, message))
    }
}

fn line(change: &Value) -> String {
    format!("{}: {}\n", word(change, "what"), word(change, "how"))
}
