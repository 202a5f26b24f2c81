//! The description's file beside the running gateway, and the reload.

use crate::answer::tag_of;
use gatewright_config::{Config, TEXT_LEN_MAX, parse};
use gatewright_diagnostic::{Finding, SourceId, Sources, has_errors};
use gatewright_gateway::{
    Gateway,
    api::{self, ControlRequest, Refused},
    credentials_folder, read_file,
};
use hyper::{StatusCode, header::HeaderValue};
use serde_json::{Value, json};
use std::path::Path;

/// A description as its file has it now.
pub(crate) struct DescriptionFile {
    /// Its entity tag.
    pub(crate) etag: HeaderValue,
    file: String,
    text: String,
    findings: Vec<Value>,
    /// The description, if it has no error.
    config: Option<Config>,
}

/// What a reload did, or why it did nothing.
pub(crate) struct Reloaded {
    pub(crate) status: StatusCode,
    pub(crate) document: Value,
}

impl DescriptionFile {
    /// Reads the file that the gateway was started with.
    ///
    /// # Errors
    ///
    /// In words, if there is none or it cannot be read.
    pub(crate) fn read(gateway: &Gateway) -> Result<Self, String> {
        let file = gateway.file().ok_or("the gateway's description came by standard input")?;
        if Path::new(file).is_dir() {
            let why = "the description is a folder, which `gatewright reload` reads";
            return Err(format!("{file}: {why}"));
        }
        let text = read_file(Path::new(file)).map_err(|error| format!("{file}: {error}"))?;
        if text.len() > TEXT_LEN_MAX {
            return Err(format!("{file} is longer than a description may be"));
        }
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        let parsed = parse(SourceId::default(), &text);
        let sources = Sources::of(file, text.clone());
        let findings = parsed.diagnostics.iter().map(|found| {
            let Finding { code, severity, message, label, place, help, .. } =
                found.finding(&sources);
            json!({
                "severity": severity, "code": code, "message": message, "line": place.line,
                "column": place.column, "text": label, "help": help,
            })
        });
        let config = parsed.config.filter(|_| !has_errors(&parsed.diagnostics));
        Ok(Self {
            etag: tag_of(text.as_bytes()),
            file: file.to_owned(),
            findings: findings.collect(),
            config: config
                .map(|config| config.with_files_in(folder, credentials_folder().as_deref())),
            text,
        })
    }

    /// Text, findings, and what a reload would change.
    pub(crate) fn document(&self, gateway: &Gateway) -> Value {
        let config = self.config.as_ref();
        let differences = config.map(|config| gateway.differences(config)).unwrap_or_default();
        json!({
            "file": self.file, "text": self.text, "findings": self.findings,
            "differences": differences, "etag": self.etag.to_str().unwrap_or_default(),
        })
    }

    /// Has the gateway take it.
    pub(crate) fn reload(&self, gateway: &Gateway) -> Reloaded {
        if self.config.is_none() {
            let error = format!("{}: it has errors: nothing is changed", self.file);
            gateway.log_refused(&error);
            let document = json!({ "error": error, "findings": self.findings });
            return Reloaded { status: StatusCode::UNPROCESSABLE_ENTITY, document };
        }
        // As by the command: the description is kept, too.
        let request = ControlRequest::Reload { text: self.text.clone(), folder: None };
        match api::answer(request, gateway) {
            Ok(answer) => {
                let changes = answer.get("changes").cloned().unwrap_or_default();
                let document = json!({ "changes": changes, "findings": self.findings });
                Reloaded { status: StatusCode::OK, document }
            }
            Err(Refused { error, refused, restart, .. }) => {
                let document = json!({ "error": error, "refused": refused, "restart": restart });
                Reloaded { status: StatusCode::CONFLICT, document }
            }
        }
    }
}
