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

/// The shape of its answer.
pub const JSON: &str =
    "{file, ok, changes: [{what, how}], findings}, findings as of `gatewright check`";

/// Applies a changed description to a running gateway, completely or not at all.
///
/// The description is checked first; if it has an error, or if a part of it cannot be applied,
/// nothing changes. Links stay open, and no packet is lost, except on a link whose device or mode
/// changes: its device is opened anew. At most four links more than at the start can be added.
/// Handlers and routes that were added by command stay, unless their link is removed. Programs are
/// read again: a changed one takes over at its addresses, and sessions end in the program in which
/// they began. A TCP proxy that is changed or removed closes its connections. SIGHUP to the gateway
/// does the same.
///
/// Listeners of `[devices]` and `[cse]` move to changed addresses: new ones open before old ones
/// close. Associated devices stay, over UDP too; an HTTP connection ends after its pending answers,
/// a WebSocket connection when its peer closes it. The CSE above is informed. Certificates are read
/// again.
///
/// Only a restart applies other values of [gateway] name, workers, neighbours_max, routes_max;
/// [planes] mode, data_cores, control_core; [devices] stack, devices_max, views, map; [cse] base, id,
/// mqtt, store, store_mib, reserve_mib, type, audit_mib, provider; [cse.registrar] coap,
/// coap_content, id, base; added or removed tables [devices], [cse], [cse.tls] and [cse.registrar];
/// added or removed links that are shared, of mode tun, or on another link (VLANs); and forward =
/// "xdp" of a first link.
#[derive(Debug, clap::Args)]
pub struct Reload {
    #[command(flatten)]
    which: Which,
    /// The description; if not given, the file that the gateway was started with; `-` is standard
    /// input.
    #[arg(value_name = "FILE")]
    file: Option<String>,
}

impl Reload {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self.file_of_gateway()?,
        };
        let read = Description::load(face.program(), &file)
            .inspect_err(|failure| self.tell(&failure.message))?;
        let findings = Face::data(&read.findings, &read.sources);
        if read.config.is_none() {
            self.tell(&read.first_error());
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

    /// Has the gateway log that a description was refused here.
    fn tell(&self, why: &str) {
        let request = ControlRequest::LogRefused { why: why.to_owned() };
        // Without a gateway there is no log; the user is told the error itself.
        let _told = self.which.ask(&request);
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
