//! `gatewright diag`: an archive for who helps from afar, without secrets and health values.

mod archive;
mod callers;
mod scrub;

use super::{doctor::all_checks, status::word};
use crate::{
    description::Description,
    exit::{Exit, Failure},
    face::Face,
    new_file::{OWNER_ONLY, write_new},
    socket::Which,
};
use anyhow::Result;
use archive::Archive;
use callers::number_callers;
use gatewright_config::{Config, redacted};
use gatewright_diagnostic::{Diagnostic, SourceId, Sources};
use gatewright_gateway::api::ControlRequest;
use gatewright_planes::process_version;
use scrub::Scrubber;
use serde_json::{Value, json};
use std::{
    fs,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// The shape of its answer.
pub const JSON: &str = "{file, entries: [{name, octets}], removed, devices}, removed being the number of removed values, devices \
     that of devices with other names";

/// Writes one archive (.tar.gz) about this machine and a gateway, to be sent to who helps.
///
/// It has version, description, status, events, metrics, and what `doctor` finds. Passwords, values
/// of parameters, originators, labels and comments are removed from the description, and wherever
/// else they occur; devices' identities, and in events the names of tokens and certificates of the
/// web interface, are replaced by numbers. Nothing of what the service entity
/// stores is read. Look into it before you send it.
///
/// Without a running gateway it has what can be had.
#[derive(Debug, clap::Args)]
pub struct Diag {
    #[command(flatten)]
    which: Which,
    /// The description; that of the running gateway if not given.
    #[arg(value_name = "FILE")]
    file: Option<String>,
    /// The archive, which must not exist; gatewright-diag-TIME.tar.gz if not given.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What was asked of the running gateway.
const ASKED: [(&str, ControlRequest); 3] = [
    ("status.json", ControlRequest::Status),
    ("events.json", ControlRequest::Events { since: None, level: None, follow: false }),
    ("metrics.txt", ControlRequest::Metrics),
];

/// Files of the system that say which machine it is; none of them names a person.
const SYSTEM: [&str; 5] =
    ["/proc/version", "/proc/meminfo", "/proc/uptime", "/proc/loadavg", "/etc/os-release"];

const README: &str = "\
Made by `gatewright diag`. Removed: values of keys that are secrets or may name persons, wherever they
occur, comments, the names of devices, which are numbered (device-1), and in events the names of callers
of the web interface (caller-1), but not their addresses. No readings are in it: nothing that the service
entity stores was read.

version.json      the program
description.toml  the description without what is removed
findings.json     what `gatewright check` finds: codes and places
status.json       state and counters of the running gateway
events.json       its latest events
metrics.txt       its metrics
doctor.json       what `gatewright doctor` finds
system.txt        kernel, distribution, memory, load
";

impl Diag {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let mut scrubber = Scrubber::default();
        let mut archive = Archive::new(now());
        archive.file("README.txt", README.as_bytes());
        let version = json!({
            "version": env!("CARGO_PKG_VERSION"), "planes": process_version(),
            "target": format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        });
        archive.json("version.json", &version)?;
        let config = self.describe(face, &mut scrubber, &mut archive)?;
        for (name, request) in ASKED {
            self.ask(name, &request, face, &mut scrubber, &mut archive)?;
        }
        face.note("looking at this machine");
        // Without a gateway or a mesh there are no tunnels to look at.
        let mesh = self.which.ask(&ControlRequest::Mesh).unwrap_or_default();
        let found = serde_json::to_value(all_checks(config.as_ref(), &mesh, face))?;
        archive.json("doctor.json", &scrubber.value(found))?;
        let read = |path: &&str| {
            let text = fs::read_to_string(path).unwrap_or_else(|error| error.to_string());
            format!("== {path}\n{text}\n")
        };
        let system: String = SYSTEM.iter().map(read).collect();
        archive.file("system.txt", scrubber.text(&system).as_bytes());
        let entries = archive.entries();
        let path = self.write(&archive.finish())?;
        let (removed, devices) = scrubber.counts();
        let value = json!({
            "file": path, "entries": entries, "removed": removed, "devices": devices,
        });
        face.answer(&value, || {
            format!(
                "{}: {removed} values removed, {devices} devices renamed; look into it before you \
                 send it: tar -xzf {0}",
                path.display()
            )
        })?;
        Ok(Exit::Success)
    }

    /// Adds the description and the findings about it, and learns what is to be removed elsewhere.
    fn describe(
        &self,
        face: Face,
        scrubber: &mut Scrubber,
        archive: &mut Archive,
    ) -> Result<Option<Config>> {
        let file = self.file.clone().or_else(|| {
            let answer = self.which.ask(&ControlRequest::Description).ok()?;
            Some(answer.get("file")?.as_str()?.to_owned())
        });
        let Some(file) = file else {
            face.note("no description: no gateway runs that has a file; name FILE");
            return Ok(None);
        };
        let read = Description::load(face.program(), &file)?;
        let shown = redacted(read.sources.get(SourceId::default()).text());
        scrubber.remove(shown.removed);
        archive.file("description.toml", shown.text.as_bytes());
        let findings: Vec<Value> =
            read.findings.iter().map(|found| place(found, &read.sources)).collect();
        archive.json("findings.json", &scrubber.value(json!(findings)))?;
        Ok(read.config)
    }

    /// Adds an answer of the running gateway, or why there is none.
    fn ask(
        &self,
        name: &str,
        request: &ControlRequest,
        face: Face,
        scrubber: &mut Scrubber,
        archive: &mut Archive,
    ) -> Result<()> {
        match self.which.ask(request) {
            Ok(Value::String(metrics)) => {
                archive.file(name, scrubber.metrics(&metrics).as_bytes());
            }
            Ok(value) => {
                // The version of the tables is a number like an identity.
                let version = value.pointer("/planes/version").and_then(Value::as_str);
                scrubber.keep(version.unwrap_or_default());
                archive.json(name, &scrubber.value(number_callers(without_quotes(value))))?;
            }
            Err(failure) => {
                face.note(&format!("{name}: {}", failure.message));
                archive.file(name, scrubber.text(&failure.message).as_bytes());
            }
        }
        Ok(())
    }

    /// Writes a new file that its owner alone can read.
    fn write(&self, octets: &[u8]) -> Result<PathBuf, Failure> {
        let path = self
            .output
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("gatewright-diag-{}.tar.gz", now())));
        write_new(&path, octets, OWNER_ONLY)?;
        Ok(path)
    }
}

/// Kinds of events whose words quote an error about a description, and so maybe a value of one that
/// never ran.
const QUOTING: [&str; 2] = ["reload-refused", "last-good"];
const UNQUOTED: &str = "(removed: it may quote a value)";

/// An answer without words that may quote a description.
fn without_quotes(mut answer: Value) -> Value {
    let events = answer.get_mut("events").and_then(Value::as_array_mut).into_iter().flatten();
    for event in events.filter(|event| QUOTING.contains(&word(event, "kind"))) {
        if let Some(text) = event.get_mut("text") {
            *text = json!(UNQUOTED);
        }
    }
    if let Some(why) = answer.get_mut("fallback") {
        *why = json!(UNQUOTED);
    }
    answer
}

/// A finding's code and place; its words may quote a value.
fn place(found: &Diagnostic, sources: &Sources) -> Value {
    let place = json!(sources.place(found.primary.span));
    let (file, line) = (word(&place, "file"), place.get("line"));
    json!({ "code": found.code.to_string(), "severity": found.severity, "file": file, "line": line })
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
