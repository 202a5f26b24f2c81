//! `gatewright check`: all that is wrong with a description.

use super::status::NOT_FORWARDING;
use crate::{description::Description, exit::Exit, face::Face};
use anyhow::Result;
use gatewright_config::{Attach, Config, Link, fixed_keys_of};
use gatewright_diagnostic::{Finding, SourceId, has_errors};
use serde::Serialize;
use std::fmt;

/// The shape of its answer.
pub const JSON: &str = "{ok, files: [{file, ok, gateway: {name, links, routes, attachments, udp_gateways, tcp_proxies, programs, devices, cse, web, not_forwarding, waiting: {readings, octets}, restart}, \
     findings: [{code, severity, message, label, place, related, notes, \
     help, fix}]}]}; a place is {file, line, column, \
     end_line, end_column}; gateway is null if the file is refused";

/// Checks gateway descriptions and the programs that they name, and reports all errors.
///
/// Certificates, keys and other secrets are loaded from the files that it names, as by a start; nothing
/// is connected.
///
/// Every finding has file, line, column, an excerpt, a code for `gatewright explain`, and help.
/// Ends with 0 if every file can be run (warnings do not count), else with 78. For a file with
/// `[devices]` or `[cse]` it lists the keys that `gatewright reload` cannot change.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// Gateway descriptions in TOML; `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
}

#[derive(Serialize)]
struct DescriptionReport {
    ok: bool,
    files: Vec<Judgement>,
}

#[derive(Serialize)]
struct Judgement {
    file: String,
    ok: bool,
    gateway: Option<DescribedGateway>,
    findings: Vec<Finding>,
}

/// Bounds of the readings that wait for the CSE above.
#[derive(Serialize)]
struct OutboxBounds {
    readings: u32,
    octets: u64,
}

impl OutboxBounds {
    fn of(config: &Config) -> Option<Self> {
        config.cse.as_ref().filter(|cse| cse.registrar.is_some())?;
        let readings = config.devices.as_ref()?.waiting_total;
        Some(Self { readings, octets: config.waiting_octets().0 })
    }
}

/// The contents of a description, in numbers.
#[derive(Serialize)]
struct DescribedGateway {
    name: String,
    links: usize,
    routes: usize,
    attachments: usize,
    udp_gateways: usize,
    tcp_proxies: usize,
    programs: usize,
    /// Whether it has a listener for devices.
    devices: bool,
    /// Whether it has a service entity.
    cse: bool,
    /// Whether it has a web interface.
    web: bool,
    /// Links that do not forward, in a gateway with links in several networks.
    not_forwarding: Vec<String>,
    /// What its outbox for the CSE above holds; null if it sends no readings there.
    waiting: Option<OutboxBounds>,
    /// Its keys that only a restarted gateway takes.
    restart: Vec<String>,
}

impl DescribedGateway {
    fn of(config: &Config, text: &str) -> Self {
        // `host` of a link and `balance` of a route stand for handlers that nobody wrote.
        let is_written = |attach: &&Attach| attach.handler.is_written();
        let attachments = config.attachments.iter().filter(is_written).count();
        Self {
            name: config.name.clone(),
            links: config.links.iter().filter(|link| !Link::is_derived(link)).count(),
            routes: config.routes.len(),
            attachments: attachments + config.message_attachments.len(),
            udp_gateways: config.udp_gateways.len(),
            tcp_proxies: config.tcp_proxies.len(),
            programs: config.programs.len(),
            devices: config.devices.is_some(),
            cse: config.cse.is_some(),
            web: config.web.is_some(),
            not_forwarding: config.not_forwarding(),
            waiting: OutboxBounds::of(config),
            restart: fixed_keys_of(text),
        }
    }
}

impl fmt::Display for DescribedGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name)?;
        let parts = [
            (self.links, "link"),
            (self.routes, "route"),
            (self.attachments, "attachment"),
            (self.udp_gateways, "UDP gateway"),
            (self.tcp_proxies, "TCP relay"),
            (self.programs, "program"),
        ];
        for (count, what) in parts.into_iter().filter(|&(count, _)| count > 0) {
            write!(f, ", {count} {what}{}", if count == 1 { "" } else { "s" })?;
        }
        let further =
            [(self.devices, "devices"), (self.cse, "a CSE"), (self.web, "a web interface")];
        for (_, what) in further.iter().filter(|it| it.0) {
            write!(f, ", {what}")?;
        }
        if !self.not_forwarding.is_empty() {
            let links = self.not_forwarding.join(", ");
            write!(f, "\n  packets for others from {links} are not forwarded ({NOT_FORWARDING})")?;
        }
        if let Some(OutboxBounds { readings, octets }) = self.waiting {
            let kib = octets / 1024;
            write!(
                f,
                "\n  up to {readings} readings of {kib} KiB in all wait for the CSE above \
                 (waiting_total, waiting_mib); more are sent from the tree"
            )?;
        }
        if self.devices || self.cse {
            write!(f, "\n  `gatewright reload` takes all but {}", self.restart.join(", "))?;
        }
        Ok(())
    }
}

impl Check {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let mut files = Vec::new();
        for file in self.files {
            let mut read = Description::load(face.program(), &file)?;
            read.check_files(face.program());
            face.findings(&read.findings, &read.sources);
            files.push(Judgement {
                file,
                ok: !has_errors(&read.findings),
                gateway: read.config.as_ref().map(|config| {
                    DescribedGateway::of(config, read.sources.get(SourceId::default()).text())
                }),
                findings: Face::data(&read.findings, &read.sources),
            });
        }
        let answer = DescriptionReport { ok: files.iter().all(|file| file.ok), files };
        face.answer(&answer, || {
            let lines = answer
                .files
                .iter()
                .filter_map(|file| Some(format!("{}: ok: {}", file.file, file.gateway.as_ref()?)));
            lines.collect::<Vec<_>>().join("\n")
        })?;
        Ok(if answer.ok { Exit::Success } else { Exit::Configuration })
    }
}
