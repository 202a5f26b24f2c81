//! `gatewright device export`: what devices have reported, for other systems.

use super::source::ReadingSource;
use crate::verbs::cse::{How, Whom, runtime, url};
use anyhow::Result;
use gatewright_bindings::tasks::block_on;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_gateway::ReplacedFile;
use gatewright_health::code::SystemId;
use gatewright_interwork::Mapping;
use gatewright_interwork::device::{ABOUT, ObjectContainer};
use gatewright_interwork::fhir::{self, Context, Description, Exported};
use gatewright_interwork::stored::{self, Stored};
use gatewright_onem2m::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Maximum number of resources of one Bundle.
const BUNDLE_MAX: u32 = 50_000;
const CONTAINER: (&str, u8) = ("m2m:cnt", 3);
const INSTANCE: (&str, u8) = ("m2m:cin", 4);

/// Exports devices' readings as FHIR R4 resources, after the HL7 guide for personal health devices.
///
/// Reads from a running CSE (--url and --as), or from the database of a stopped gateway (--store).
/// Each line is a Bundle: a self-contained transaction that creates each resource once, however
/// often it is sent (ifNoneExist). With --ndjson each resource is a line of its own, with an id
/// derived from the reading's name.
#[derive(Debug, clap::Args)]
pub(super) struct Export {
    /// Export as FHIR R4, the only format yet.
    #[arg(long, required = true)]
    fhir: bool,
    /// The database of a stopped gateway (`[cse] store`).
    #[arg(long, value_name = "FILE", required_unless_present_any = ["url", "originator"],
          conflicts_with_all = ["url", "originator"])]
    store: Option<PathBuf>,
    /// Address of a CSE: http://, https://, coap:// or ws://HOST:PORT, mqtt://BROKER:PORT/CSE-ID.
    #[arg(long, value_name = "URL", value_parser = url, requires = "originator")]
    url: Option<String>,
    /// The originator of requests to that CSE.
    #[arg(long = "as", value_name = "ORIGINATOR", requires = "url")]
    originator: Option<String>,
    /// The patient: a reference like Patient/7, for all devices or for one
    /// (0247000100000001=Patient/7); may be repeated.
    #[arg(long, value_name = "[SYSTEM-ID=]REFERENCE", required = true, value_parser = subject)]
    subject: Vec<Subject>,
    /// Only readings of this device; may be repeated.
    #[arg(long, value_name = "SYSTEM-ID", value_parser = system_id)]
    device: Vec<SystemId>,
    /// Only readings stored at this time or later: 20261121T130000.
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<String>,
    /// Offset of the devices' clocks from UTC, in minutes.
    #[arg(long, value_name = "MINUTES", default_value_t = 0, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i16).range(-840..=840))]
    utc_offset: i16,
    /// Maximum number of resources of one Bundle.
    #[arg(long, value_name = "N", default_value_t = 1_000, conflicts_with = "ndjson",
          value_parser = clap::value_parser!(u32).range(2..=i64::from(BUNDLE_MAX)))]
    bundle: u32,
    /// Write each resource on a line, instead of Bundles.
    #[arg(long)]
    ndjson: bool,
    /// Write to this file, which is replaced when the export is whole; standard output if not given.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    how: How,
}

#[derive(Clone, Debug)]
struct Subject {
    device: Option<SystemId>,
    reference: String,
}

#[derive(Debug, Default, Serialize)]
struct ExportReport {
    devices: u64,
    observations: u64,
    /// Bundles written; none with --ndjson.
    bundles: u64,
    /// Readings not exported: waveforms, and instances that are no readings.
    skipped: u64,
    /// Devices without a patient among the given ones.
    nobody: u64,
    /// System-ids that were given, and that no device has.
    unknown: Vec<String>,
}

fn system_id(text: &str) -> Result<SystemId, String> {
    let labels = format!("system-id:{text}");
    stored::system_id(&[&labels]).ok_or_else(|| "not sixteen hexadecimal digits".to_owned())
}

fn subject(text: &str) -> Result<Subject, String> {
    let (device, reference) = match text.split_once('=') {
        Some((device, reference)) => (Some(system_id(device)?), reference),
        None => (None, text),
    };
    let fits = reference.split_once('/').is_some_and(|(kind, id)| {
        kind.starts_with(char::is_uppercase) && !id.is_empty() && !reference.contains('"')
    });
    let reference = reference.to_owned();
    fits.then_some(Subject { device, reference }).ok_or_else(|| "not like Patient/7".to_owned())
}

fn time(text: &str) -> Result<String, String> {
    let known = Timestamp::parse(text).map(|_| text.to_owned());
    known.ok_or_else(|| "not a time like 20261121T130000".to_owned())
}

impl Export {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let Self { store, url, originator, subject, device, since, utc_offset, .. } = self;
        let source = match (store, url, originator) {
            (Some(store), ..) => ReadingSource::stopped(&store)?,
            (None, Some(url), Some(originator)) => {
                ReadingSource::running(Whom { url, originator, how: self.how })?
            }
            _ => return Err(Failure::new(Exit::Usage, "--url needs --as").into()),
        };
        let failure = |error| {
            let path = self.to.as_deref().unwrap_or_else(|| Path::new("-"));
            Failure::file(&path.display().to_string(), &error)
        };
        let replaced = self.to.as_deref().map(ReplacedFile::create).transpose().map_err(failure)?;
        let out: Box<dyn Write> = match &replaced {
            Some(replaced) => Box::new(replaced.file().try_clone()?),
            None => Box::new(std::io::stdout()),
        };
        let mut exporter = Exporter {
            source,
            mapping: Mapping::default(),
            subjects: subject,
            wanted: device,
            known: BTreeSet::new(),
            since,
            utc_offset,
            answer: ExportReport::default(),
            sheet: Sheet {
                out: BufWriter::new(out),
                most: (!self.ndjson).then(|| usize::try_from(self.bundle).unwrap_or(usize::MAX)),
                device: None,
                bundle: Vec::new(),
                bundles: 0,
            },
        };
        block_on(&runtime()?, exporter.run())?;
        let unknown = exporter.unknown();
        let Exporter { mut answer, mut sheet, .. } = exporter;
        sheet.finish()?;
        (answer.bundles, answer.unknown) = (sheet.bundles, unknown);
        if let Some(replaced) = replaced {
            replaced.place().map_err(failure)?;
            face.answer(&answer, || answer.text())?;
        } else {
            face.note(&answer.text());
        }
        Ok(Exit::Success)
    }
}

impl ExportReport {
    fn text(&self) -> String {
        let Self { devices, observations, bundles, skipped, nobody, unknown } = self;
        let mut text = format!("{devices} devices, {observations} observations");
        if *bundles > 1 {
            text.extend([" in ", &bundles.to_string(), " Bundles"]);
        }
        for (count, what) in [
            (skipped, "readings that FHIR cannot say here"),
            (nobody, "devices without --subject left out"),
        ] {
            if *count > 0 {
                text.extend(["; ", &count.to_string(), " ", what]);
            }
        }
        if !unknown.is_empty() {
            text.extend(["; no device has ", &unknown.join(", ")]);
        }
        text
    }
}

/// The output of the export.
struct Sheet {
    out: BufWriter<Box<dyn Write>>,
    /// Resources of one Bundle; each resource has a line of its own, if `None`.
    most: Option<usize>,
    /// The device of the present observations.
    device: Option<Exported>,
    bundle: Vec<Exported>,
    bundles: u64,
}

impl Sheet {
    /// Writes a device; its observations follow.
    fn begin(&mut self, device: Exported, id: &str) -> Result<()> {
        self.device = None;
        self.put(device.clone(), id)?;
        self.device = Some(device);
        Ok(())
    }

    fn put(&mut self, exported: Exported, id: &str) -> Result<()> {
        let Some(most) = self.most else {
            return Ok(writeln!(self.out, "{}", exported.with_id(id))?);
        };
        if self.bundle.len() >= most {
            self.write()?;
            // Observations refer to their device within their own transaction: each has it, and the
            // server creates it once.
            self.bundle.extend(self.device.clone());
        }
        self.bundle.push(exported);
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        writeln!(self.out, "{}", fhir::transaction(&self.bundle))?;
        self.bundle.clear();
        self.bundles += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if self.most.is_some() && (!self.bundle.is_empty() || self.bundles == 0) {
            self.write()?;
        }
        Ok(self.out.flush()?)
    }
}

struct Exporter {
    source: ReadingSource,
    mapping: Mapping,
    subjects: Vec<Subject>,
    wanted: Vec<SystemId>,
    /// Devices of the source.
    known: BTreeSet<SystemId>,
    since: Option<String>,
    utc_offset: i16,
    answer: ExportReport,
    sheet: Sheet,
}

impl Exporter {
    /// The system-ids that were given, and that no device of the source has.
    fn unknown(&self) -> Vec<String> {
        let given = self.subjects.iter().filter_map(|subject| subject.device);
        let given: BTreeSet<_> = self.wanted.iter().copied().chain(given).collect();
        given.difference(&self.known).map(SystemId::to_string).collect()
    }

    async fn run(&mut self) -> Result<()> {
        for address in self.source.entities().await? {
            let entity = self.source.get(&address).await?;
            let labels = labels(&entity);
            let Some(device) = stored::system_id(&labels) else { continue };
            self.known.insert(device);
            if !self.wanted.is_empty() && !self.wanted.contains(&device) {
                continue;
            }
            let own = self.subjects.iter().find(|subject| subject.device == Some(device));
            let of_all = || self.subjects.iter().find(|subject| subject.device.is_none());
            let Some(subject) = own.or_else(of_all).map(|subject| subject.reference.clone()) else {
                self.answer.nobody += 1;
                continue;
            };
            let reference = self.device(&address, device, stored::kind(&labels)).await?;
            self.readings(&address, device, &subject, &reference).await?;
        }
        Ok(())
    }

    /// Exports a device; how its observations refer to it.
    async fn device(&mut self, at: &str, id: SystemId, kind: Option<&str>) -> Result<String> {
        let latest = self.source.get(&format!("{at}/{ABOUT}/la")).await.unwrap_or_default();
        let mut known = Description::stored(&self.mapping, &content(&latest));
        let profile = kind.and_then(gatewright_health::kind::profile);
        if let Some(profile) = profile.filter(|_| known.specialisations.is_empty()) {
            known.specialisations.push((profile, None));
        }
        let exported = fhir::described(id, &known);
        let logical = format!("{}{id}", self.mapping.entity_prefix);
        let within = exported.full_url.clone().filter(|_| self.sheet.most.is_some());
        self.answer.devices += 1;
        self.sheet.begin(exported, &logical)?;
        Ok(within.unwrap_or_else(|| format!("Device/{logical}")))
    }

    async fn readings(&mut self, at: &str, id: SystemId, who: &str, device: &str) -> Result<()> {
        let (containers, _) = self.source.children(at, CONTAINER, None, 0).await?;
        for container in containers {
            let name = container.get("rn").and_then(Value::as_str).unwrap_or_default();
            let address = format!("{at}/{name}");
            let place = ObjectContainer::stored(&self.mapping, name, &address, &labels(&container));
            let Some(place) = place else { continue };
            let mut known = Vec::new();
            loop {
                let since = self.since.clone();
                let from = known.len();
                let page = self.source.children(&address, INSTANCE, since.as_deref(), from).await?;
                for instance in &page.0 {
                    let name = instance.get("rn").and_then(Value::as_str).unwrap_or_default();
                    let con = content(instance);
                    known.push(Stored::read(&self.mapping, &place, name, &con));
                }
                if !page.1 {
                    break;
                }
            }
            let readings: Vec<Stored> = known.iter().flatten().cloned().collect();
            self.answer.skipped += count(known.len() - readings.len());
            for group in stored::together(&place, readings) {
                self.observation(id, &place, (who, device), &group)?;
            }
        }
        Ok(())
    }

    fn observation(
        &mut self,
        id: SystemId,
        place: &ObjectContainer,
        (subject, device): (&str, &str),
        group: &[Stored],
    ) -> Result<()> {
        let Some(first) = group.first() else { return Ok(()) };
        let context = Context {
            subject,
            patient: subject.rsplit('/').next().unwrap_or_default(),
            device,
            gateway: None,
            coincident: None,
            offset_minutes: self.utc_offset,
            received: first.received,
        };
        let observations: Vec<_> = group.iter().map(Stored::observation).collect();
        let made = fhir::observation(&self.mapping, &context, id, place, &observations);
        let Some(made) = made else {
            self.answer.skipped += count(group.len());
            return Ok(());
        };
        self.answer.observations += 1;
        let nth = if first.nth > 0 { format!("-{}", first.nth) } else { String::new() };
        self.sheet.put(made, &format!("{}{nth}", first.report))
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn labels(resource: &Value) -> Vec<&str> {
    let list = resource.get("lbl").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The content of an instance; other CSEs keep objects as text.
fn content(instance: &Value) -> Value {
    match instance.get("con") {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        Some(con) => con.clone(),
        None => Value::Null,
    }
}
