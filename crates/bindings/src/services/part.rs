//! CSE and device listener as parts of a gateway.

use super::{ServiceError, Services, difference};
use crate::{Engine, cse, devices::OwnStack};
use gatewright_config::Config;
use gatewright_onem2m::{RefusedRegistration, Unreadable};
use gatewright_part::{
    Change, ComponentError, LogEvent, LogLevel, Part, PartStatus, ServiceParts, Staged, Unable,
    Unchanged, Watched, When,
};
use gatewright_stack::Sockets;
use gatewright_tables::EntityWriters;
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Starts devices and service entity as a component of a gateway; devices whose packets arrive by its
/// links use the sockets of its own stack and the AE table.
///
/// # Errors
///
/// As [`Services::start`].
pub fn component(
    config: &Config,
    own_stack: Option<(Sockets, EntityWriters)>,
) -> Result<ServiceParts, ComponentError> {
    let own_stack = own_stack.map(|(sockets, entities)| OwnStack { sockets, entities });
    let services = Services::start_over(config, own_stack)?;
    let entity = services.as_ref().map(|services| {
        let engine: Weak<Engine> = Arc::downgrade(services.cse().engine());
        let entity: Weak<dyn Any + Send + Sync> = engine;
        entity
    });
    Ok(ServiceParts { parts: parts(services), entity })
}

impl From<ServiceError> for ComponentError {
    fn from(error: ServiceError) -> Self {
        let (why, exit_code, refused) = (error.to_string(), error.exit_code(), error.key());
        Self { why, exit_code, refused: Some(refused) }
    }
}

/// The service parts, in the order in which they take a description. Without services they report
/// nothing, and list the settings that need a restart.
pub fn parts(services: Option<Arc<Services>>) -> Vec<Arc<dyn Part>> {
    let devices = Devices(services.as_ref().map_or_else(Weak::new, Arc::downgrade));
    vec![Arc::new(Entity(Mutex::new(services))), Arc::new(devices)]
}

/// The name of the CSE's part.
const CSE: &str = "cse";

/// The CSE. It stages a description for both parts, since devices' data goes to the CSE's
/// resources.
struct Entity(Mutex<Option<Arc<Services>>>);

impl Entity {
    fn running(&self) -> Option<Arc<Services>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Part for Entity {
    fn name(&self) -> &'static str {
        CSE
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        let renewed = self.running().is_some_and(|it| it.cse_certificates_differ(new));
        or_renewed(difference::cse(old, new), "[cse.tls]", renewed)
    }

    fn stage(&self, _: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        let Some(services) = self.running() else { return Ok(Box::new(Unchanged)) };
        Ok(Box::new(services.take(new)?))
    }

    fn tell(&self) -> PartStatus {
        self.running().map(|services| services.cse_told()).unwrap_or_default()
    }

    fn watched(&self) -> &'static [Watched] {
        OF_CSE
    }

    fn new_events(&self) -> Vec<LogEvent> {
        let Some(services) = self.running() else { return Vec::new() };
        let mut events = services.alarm_events();
        events.extend(services.store_failed());
        let engine = services.cse().engine();
        let own = engine.cse_id();
        let refused = engine.take_refused_registrations();
        events.extend(refused.iter().map(|refused| registration_refused(&own, refused)));
        events
    }

    fn start_events(&self) -> Vec<LogEvent> {
        self.running().map(|services| start_events(services.cse())).unwrap_or_default()
    }

    fn stop(&self) {
        let services = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(services) = services {
            services.stop();
        }
    }
}

/// The device listener, which the CSE part reconfigures and ends.
struct Devices(Weak<Services>);

impl Part for Devices {
    fn name(&self) -> &'static str {
        "devices"
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        let running = self.0.upgrade();
        let renewed = running.is_some_and(|it| it.devices_certificates_differ(new));
        or_renewed(difference::devices(old, new), "[devices.tls]", renewed)
    }

    fn stage(&self, _: &Config, _: &Config) -> Result<Box<dyn Staged>, Unable> {
        Ok(Box::new(Unchanged))
    }

    fn tell(&self) -> PartStatus {
        self.0.upgrade().and_then(|services| services.devices_told()).unwrap_or_default()
    }

    fn watched(&self) -> &'static [Watched] {
        OF_DEVICES
    }

    fn new_events(&self) -> Vec<LogEvent> {
        self.0.upgrade().map(|services| services.devices_refused()).unwrap_or_default()
    }
}

/// The event of a refused registration, at this CSE of the CSE-ID `own` or of it.
fn registration_refused(own: &str, refused: &RefusedRegistration) -> LogEvent {
    let RefusedRegistration { cse_id, registrar, address, status, reason } = refused;
    let code = status.number();
    let why = if reason.is_empty() { "no reason was given" } else { reason.as_str() };
    let text = if registrar == own {
        let from = address.map(|address| format!(" from {address}")).unwrap_or_default();
        format!(
            "the registration of {cse_id}{from} is refused with {code}: {why}; `admit` in [cse] \
             names the CSEs that may register"
        )
    } else {
        format!(
            "the CSE above, {registrar}, refuses to register {cse_id} with {code}: {why}; it has to \
             admit this CSE-ID, and the certificate, if one is needed, has to name it"
        )
    };
    let event = LogEvent::new(LogLevel::Warning, CSE, "registration-refused", text)
        .with("cse_id", cse_id)
        .with("registrar", registrar)
        .with("status", code);
    match address {
        Some(address) => event.with("address", address),
        None => event,
    }
}

/// Events for rows that are not served and remembered transactions that cannot be read: up to a
/// limit of each kind, and then their number.
fn start_events(cse: &cse::RunningCse) -> Vec<LogEvent> {
    let row = |bad: &Unreadable| {
        let text = format!(
            "row {} is not served: {}; `gatewright store quarantine` shows its text",
            bad.row, bad.damage
        );
        LogEvent::new(LogLevel::Error, CSE, "row-unreadable", text).with("row", bad.row)
    };
    let line = |number: &u64| {
        let text = format!(
            "line {number} of the remembered requests cannot be read: if one of its requests is \
             repeated, it is executed again"
        );
        LogEvent::new(LogLevel::Error, CSE, "remembered-unreadable", text).with("line", number)
    };
    let unreadable = cse.unreadable();
    let mut events: Vec<_> = unreadable.iter().take(SHOWN_MAX).map(row).collect();
    events.extend(cse.remembered_damaged().iter().take(SHOWN_MAX).map(line));
    for (kind, count, what) in [
        ("row-unreadable", unreadable.len(), "rows are not served"),
        ("remembered-unreadable", cse.remembered_damaged().len(), "lines cannot be read"),
    ] {
        if let Some(more) = count.checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
            let text = format!("{more} more {what}; `gatewright store verify` lists them");
            events.push(LogEvent::new(LogLevel::Error, CSE, kind, text).with("more", more));
        }
    }
    let blocks = cse.blocks_damaged();
    if blocks > 0 {
        let text = format!(
            "{blocks} blocks of records are damaged: the start has read the rows instead, and they are \
             made anew; `gatewright store verify` shows whether the file is sound"
        );
        let event = LogEvent::new(LogLevel::Warning, CSE, "blocks-damaged", text);
        events.push(event.with("blocks", blocks));
    }
    events
}

/// Events of one kind at the start: fewer than the log takes at once.
const SHOWN_MAX: usize = 16;

const fn watched(
    (name, when): (&'static str, When),
    (level, kind): (LogLevel, &'static str),
    text: &'static str,
) -> Watched {
    Watched { name, when, level, kind, text }
}

/// Values of the CSE's report whose changes are events; those of alarms are beside them.
const OF_CSE: &[Watched] = &[
    watched(
        ("remembered_lost", When::Appears),
        (LogLevel::Error, "remembered-lost"),
        "the database has remembered requests that cannot be read",
    ),
    watched(
        ("disk_full", When::Appears),
        (LogLevel::Error, "disk-full"),
        "the disk of the database is full",
    ),
    watched(("registration", When::Changes), (LogLevel::Info, "registration"), "the CSE above"),
    watched(
        ("broker", When::Appears),
        (LogLevel::Warning, "broker-lost"),
        "the MQTT broker is not reachable",
    ),
    watched(
        ("not_delivered", When::Appears),
        (LogLevel::Error, "readings-lost"),
        "readings are refused for good by the CSE above, or expired",
    ),
    watched(
        ("connections", When::Appears),
        (LogLevel::Warning, "descriptors-short"),
        "the system allows too few descriptors",
    ),
    watched(
        ("certificates_revoked", When::Grows),
        (LogLevel::Warning, "certificate-revoked"),
        "peers with revoked certificates are refused; status names the last one",
    ),
    watched(
        ("store_intrusions", When::Grows),
        (LogLevel::Error, "database-intruded"),
        "another program has written into the database while it was in use: the audit log shows it \
         (`gatewright cse audit --verify`), and rows may be lost",
    ),
    watched(
        ("store_audit_lost", When::Grows),
        (LogLevel::Error, "audit-lost"),
        "entries of the audit log could not be stored, as the store has failed: the next entry says how \
         many (`gatewright cse audit --verify`)",
    ),
    watched(
        ("readings_backlogged", When::Grows),
        (LogLevel::Warning, "outbox-full"),
        "the outbox to the CSE above is full; readings are stored here and sent later: check that it is reachable",
    ),
    watched(
        ("tree_full", When::Grows),
        (LogLevel::Warning, "tree-full"),
        "creations are refused, as the tree is full",
    ),
];

/// Values of the device listener's report whose changes are events.
const OF_DEVICES: &[Watched] = &[
    watched(
        ("home_assistant", When::Appears),
        (LogLevel::Warning, "broker-lost"),
        "the broker of Home Assistant is not connected",
    ),
    watched(
        ("reports_not_stored", When::Grows),
        (LogLevel::Error, "reports-not-stored"),
        "reports of devices could not be stored: devices keep those that request an answer",
    ),
    watched(
        ("connections_refused", When::Grows),
        (LogLevel::Warning, "devices-full"),
        "connections of devices are refused: devices_max or peer_connections allows more",
    ),
    watched(
        ("connections_evicted", When::Grows),
        (LogLevel::Warning, "devices-silent"),
        "connections without an association give way to others, as devices_max of them are open: look \
         for an address that opens many (`ss -tn`)",
    ),
    watched(
        ("certificates_revoked", When::Grows),
        (LogLevel::Warning, "certificate-revoked"),
        "peers with revoked certificates are refused; status names the last one",
    ),
    watched(
        ("connections", When::Appears),
        (LogLevel::Warning, "descriptors-short"),
        "the system allows too few descriptors",
    ),
    watched(
        ("certificates", When::Appears),
        (LogLevel::Warning, "system-id-unchecked"),
        "certificates and system-ids are not compared",
    ),
];

/// The differences; or, if the description's text is the same, changed certificate files.
fn or_renewed(mut found: Vec<Change>, table: &str, renewed: bool) -> Vec<Change> {
    if found.is_empty() && renewed {
        found.push(Change::new(table, "the content of its certificate files has changed"));
    }
    found
}

impl From<ServiceError> for Unable {
    fn from(error: ServiceError) -> Self {
        let (key, why) = error.key();
        Self { key: Some(key.to_owned()), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_diagnostic::SourceId;
    use gatewright_onem2m::{Batch, Operation, Request, ResourceType, RowChange, Status};
    use gatewright_store::{Database, DatabaseOptions};
    use gatewright_testbed::free_port;

    /// As many events as a person reads, and one for the rest.
    #[test]
    fn each_unreadable_row_is_an_event() {
        let folder = std::env::temp_dir().join(format!("unreadable-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let store = folder.join("a.db");
        let http = free_port();
        let text = format!(
            "[cse]\nbase = \"gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:{http}\"\nstore = \"a.db\"\n"
        );
        let parsed = gatewright_config::parse(SourceId::default(), &text);
        let config = parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
        // A relative path is one in the folder of the description.
        let config = config.with_files_in(&folder, None);
        Services::start(&config).unwrap().unwrap().stop();
        assert!(store.exists());
        let (database, restored) = Database::open(&store, &DatabaseOptions::default()).unwrap();
        let first = restored.next_seq;
        let broken = |seq| RowChange::Put { seq, body: "{\"broken".into() };
        let writer = database.start(|_| {}).unwrap();
        let batch = Batch {
            number: 1,
            epoch: 0,
            next_seq: first + 20,
            records: (first..first + 20).map(broken).collect(),
            entries: Vec::new(),
            clock: None,
            remembered: None,
        };
        writer.push(batch).unwrap();
        drop(writer);
        let parts = parts(Services::start(&config).unwrap());
        let events = parts[0].start_events();
        assert_eq!(events.len(), 17);
        let (one, rest) = (&events[0], &events[16]);
        assert_eq!((one.kind, &*one.fields), ("row-unreadable", &[("row", first.to_string())][..]));
        assert!(rest.text.starts_with("4 more rows are not served"), "{}", rest.text);
        assert!(parts[0].tell().gauges.contains(&("rows_unreadable", 20)));
        for part in &parts {
            part.stop();
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// The event says why the database could not be written.
    #[test]
    fn a_failed_transaction_is_an_event_with_its_cause() {
        let folder = std::env::temp_dir().join(format!("failed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let http = free_port();
        let text = format!(
            "[cse]\nbase = \"gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:{http}\"\nadmin = \"CAdmin\"\n\
             store = \"a.db\"\nstore_mib = 1\n"
        );
        let parsed = gatewright_config::parse(SourceId::default(), &text);
        let config = parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
        let config = config.with_files_in(&folder, None);
        let services = Services::start(&config).unwrap().unwrap();
        let parts = parts(Some(Arc::clone(&services)));
        assert!(parts[0].new_events().is_empty());
        let store = |(number, kib): (u32, usize)| {
            let content = serde_json::json!({ "m2m:cnt": { "lbl": ["x".repeat(kib * 1024)] } });
            let request = Request::new(Operation::Create, "gw", "CAdmin", number.to_string())
                .creating(ResourceType::Container, content.to_string());
            let answer = services.runtime.block_on(services.cse().engine().ask(request));
            answer.unwrap().status
        };
        // One resource may be larger than what is left.
        assert_eq!(store((0, 1_000)), Status::InternalServerError);
        let events = parts[0].new_events();
        let failed: Vec<_> = events.iter().filter(|one| one.kind == "store-failed").collect();
        assert!(failed[0].text.contains("store_mib"), "{}", failed[0].text);
        // What is bounded by the tree fails no transaction, and the alarm says so beforehand, which is
        // what the metric and `/readyz` show.
        let refused = (1..64).map(|number| store((number, 64))).find(|made| !made.is_success());
        assert_eq!(refused, Some(Status::InternalServerError));
        let events = parts[0].new_events();
        let raised = events.iter().find(|one| one.kind == "disk-short");
        assert!(raised.is_some_and(|one| one.text.contains("store_mib")), "{raised:?}");
        let alarms = parts[0].tell().alarms;
        assert!(alarms.iter().any(|alarm| alarm.name == "disk-short" && alarm.raised == 1));
        assert!(parts[0].new_events().iter().all(|one| one.kind != "store-failed"));
        drop(services);
        for part in &parts {
            part.stop();
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// One AE that stores what it can uses its part of `store_mib`, and the readings of another go on.
    #[test]
    fn a_greedy_ae_leaves_the_store_to_others() {
        let folder = std::env::temp_dir().join(format!("greedy-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let http = free_port();
        let text = format!(
            "[cse]\nbase = \"gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:{http}\"\nadmin = \"CAdmin\"\n\
             store = \"a.db\"\nstore_mib = 2\n"
        );
        let parsed = gatewright_config::parse(SourceId::default(), &text);
        let config = parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
        let services = Services::start(&config.with_files_in(&folder, None)).unwrap().unwrap();
        let parts = parts(Some(Arc::clone(&services)));
        let mut asked = 0;
        let mut create = |to: &str, from: &str, kind: ResourceType, content: serde_json::Value| {
            asked += 1;
            let request = Request::new(Operation::Create, to, from, format!("r{asked}"))
                .creating(kind, content.to_string());
            services.runtime.block_on(services.cse().engine().ask(request)).unwrap().status
        };
        for (ae, from) in [("greedy", "CGreedy"), ("device", "CDevice")] {
            let content = serde_json::json!({ "m2m:ae": { "rn": ae, "api": "N.a", "rr": false,
                "srv": ["3"] } });
            let made = create("gw", from, ResourceType::ApplicationEntity, content);
            assert_eq!(made, Status::Created, "{ae}");
            let content = serde_json::json!({ "m2m:cnt": { "rn": "c" } });
            let made = create(&format!("gw/{ae}"), from, ResourceType::Container, content);
            assert_eq!(made, Status::Created, "{ae}");
        }
        for length in [60_000, 4_000, 300, 10] {
            for number in 0..150 {
                let content = serde_json::json!({ "m2m:cin": { "con": "x".repeat(length) } });
                let made = create("gw/greedy/c", "CGreedy", ResourceType::ContentInstance, content);
                assert_eq!(made, Status::Created, "{number} of {length} octets");
            }
        }
        for _ in 0..20 {
            let reading = serde_json::json!({ "m2m:cin": { "con": "97" } });
            let made = create("gw/device/c", "CDevice", ResourceType::ContentInstance, reading);
            assert_eq!(made, Status::Created);
        }
        let events = parts[0].new_events();
        assert!(events.iter().all(|one| !["store-failed", "disk-short"].contains(&one.kind)));
        drop(services);
        for part in &parts {
            part.stop();
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A counter under another name would be watched in vain.
    #[test]
    fn watched_counters_are_reported() {
        let [http, devices] = [(); 2].map(|()| free_port());
        let text = format!(
            "[cse]\nbase = \"gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:{http}\"\nstore = \"STORE\"\n\
             [devices]\nlisten = \"127.0.0.1:{devices}\"\n"
        );
        let folder = std::env::temp_dir().join(format!("watched-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let text = text.replace("STORE", &folder.join("a.db").to_string_lossy());
        let parsed = gatewright_config::parse(SourceId::default(), &text);
        let config = parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
        let parts = parts(Services::start(&config).unwrap());
        for part in &parts {
            let told = part.tell();
            let counted = part.watched().iter().filter(|one| one.when == When::Grows);
            for one in counted {
                let found = told.counters.iter().any(|(name, _)| *name == one.name);
                assert!(found, "{}: {}", part.name(), one.name);
            }
        }
        for part in &parts {
            part.stop();
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
