//! The description's file beside the running gateway, and the reload.

use crate::{
    answer::{JSON, PlainAnswer, WebAnswer, WebRefusal, json, tag_of},
    site::{Asked, Site},
    tokens::AccessRole,
};
use gatewright_config::{Config, TEXT_LEN_MAX, parse, redacted, without_values};
use gatewright_diagnostic::{Diagnostic, Finding, SourceId, Sources, has_errors};
use gatewright_gateway::{
    Gateway,
    api::{self, ControlRequest, Refused},
    credentials_folder, description_files, with_strays,
};
use hyper::{
    StatusCode,
    header::{ETAG, HeaderValue},
};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};

/// A description as its file, or the files of its folder, have it now.
pub(crate) struct DescriptionFile {
    /// Its entity tag.
    pub(crate) etag: HeaderValue,
    file: String,
    sources: Sources,
    findings: Vec<Diagnostic>,
    /// The description, if it has no error.
    config: Option<Config>,
}

/// What a reload did, or why it did nothing.
pub(crate) struct Reloaded {
    pub(crate) status: StatusCode,
    pub(crate) document: Value,
}

impl DescriptionFile {
    /// Reads what the gateway was started with.
    ///
    /// # Errors
    ///
    /// In words, if there is none or it cannot be read.
    pub(crate) fn read(gateway: &Gateway) -> Result<Self, String> {
        let file = gateway.file().ok_or("the gateway's description came by standard input")?;
        let mut sources = Sources::default();
        sources.add_files(description_files(Path::new(file)).map_err(|error| error.to_string())?);
        let source = sources.get(SourceId::default());
        let text = source.text();
        if text.len() > TEXT_LEN_MAX {
            return Err(format!("{file} is longer than a description may be"));
        }
        let folder = gateway.folder().unwrap_or(Path::new(""));
        let parsed = parse(SourceId::default(), text);
        let findings = with_strays(parsed.diagnostics, source);
        let config = parsed.config.filter(|_| !has_errors(&findings));
        Ok(Self {
            etag: tag_of(text.as_bytes()),
            file: file.to_owned(),
            findings,
            config: config
                .map(|config| config.with_files_in(folder, credentials_folder().as_deref())),
            sources,
        })
    }

    fn text(&self) -> &str {
        self.sources.get(SourceId::default()).text()
    }

    /// The findings as `role` may see them: words may quote values, which are for administrators.
    fn findings(&self, role: AccessRole) -> Vec<Value> {
        let one = |found: &Diagnostic| {
            let Finding { code, severity, message, label, place, help, .. } =
                found.finding(&self.sources);
            let place = (place.file, place.line, place.column);
            let (message, label, help) = match role {
                AccessRole::Admin => (message, label, help),
                _ => (found.code.title.to_owned(), String::new(), None),
            };
            json!({
                "severity": severity, "code": code, "message": message, "file": place.0,
                "line": place.1, "column": place.2, "text": label, "help": help,
            })
        };
        self.findings.iter().map(one).collect()
    }

    /// What a gateway says about this description, as `role` may see it.
    fn words(&self, role: AccessRole, words: &str) -> String {
        match role {
            AccessRole::Admin => words.to_owned(),
            _ => without_values(words, &redacted(self.text()).removed),
        }
    }

    /// Text, findings, and what a reload would change.
    pub(crate) fn document(&self, gateway: &Gateway) -> Value {
        let config = self.config.as_ref();
        let differences = config.map(|config| gateway.differences(config)).unwrap_or_default();
        json!({
            "file": self.file, "text": self.text(), "findings": self.findings(AccessRole::Admin),
            "differences": differences, "etag": self.etag.to_str().unwrap_or_default(),
        })
    }

    /// Has the gateway take it; the answer is for `role`.
    pub(crate) fn reload(&self, gateway: &Gateway, role: AccessRole) -> Reloaded {
        if self.config.is_none() {
            let error = format!("{}: it has errors: nothing is changed", self.file);
            gateway.log_refused(&error);
            let document = json!({ "error": error, "findings": self.findings(role) });
            return Reloaded { status: StatusCode::UNPROCESSABLE_ENTITY, document };
        }
        // As by the command: the description is kept, too.
        let request = ControlRequest::Reload { text: self.text().to_owned(), folder: None };
        match api::answer(request, gateway) {
            Ok(answer) => {
                let changes = answer.get("changes").cloned().unwrap_or_default();
                let document = json!({ "changes": changes, "findings": self.findings(role) });
                Reloaded { status: StatusCode::OK, document }
            }
            Err(Refused { error, mut refused, restart, .. }) => {
                let error = self.words(role, &error);
                for change in &mut refused {
                    change.how = self.words(role, &change.how);
                }
                let document = json!({ "error": error, "refused": refused, "restart": restart });
                Reloaded { status: StatusCode::CONFLICT, document }
            }
        }
    }
}

impl Site {
    /// The description's file, findings about it, and its differences from what runs.
    pub(crate) async fn description(
        self: &Arc<Self>,
        asked: &Asked<'_>,
    ) -> Result<WebAnswer, WebRefusal> {
        let found = self.ask(|gateway| {
            let file = DescriptionFile::read(gateway)?;
            Ok((file.etag.clone(), file.document(gateway).to_string()))
        });
        let (etag, text) = found.await?;
        let plain = PlainAnswer::new(JSON, text).cache("no-cache").etag(etag);
        Ok(plain.finish(&asked.head.headers))
    }

    /// Has the gateway take the file in the version that the caller has seen.
    pub(crate) async fn reload(
        self: &Arc<Self>,
        asked: &Asked<'_>,
    ) -> Result<WebAnswer, WebRefusal> {
        let seen = asked.versions_seen("/api/v1/config")?;
        let role = asked.caller.role.unwrap_or(AccessRole::Viewer);
        self.begin_change(asked).await?;
        let done = self.ask(move |gateway| {
            let file = DescriptionFile::read(gateway)?;
            if !seen.admit(&file.etag) {
                return Ok(None);
            }
            Ok(Some((file.etag.clone(), file.reload(gateway, role))))
        });
        let Some((etag, done)) = done.await? else {
            let why = "the file is no longer the one that you saw: look at /api/v1/config again";
            return Err(WebRefusal::new(StatusCode::PRECONDITION_FAILED, why));
        };
        let outcome = if done.status == StatusCode::OK { "is taken" } else { "is refused" };
        let text = format!("a reload by {} {outcome}", asked.caller.name);
        self.log_change(asked, "web-reload", text);
        let mut answer = json(done.status, &done.document);
        answer.headers_mut().insert(ETAG, etag);
        Ok(answer)
    }
}
