//! Services of `[devices]` and `[cse]` in a description, on their own runtime.

mod alarms;
mod difference;
mod limits;
mod part;
mod reasons;

pub use part::{component, parts};

use crate::alarms::container::{AlarmContainer, CONTAINER};
use crate::keyring::{Keyring, Keys};
use crate::listeners::{CannotListen, ExchangedListeners, ListenerAddress};
use crate::mqtt::Url;
use crate::tasks::block_on;
use crate::tls::{Tls, TlsError};
use crate::{cse, devices};
use alarms::ServiceAlarms;
use gatewright_config::{Config, Delivery, PeerBounds};
use gatewright_health::code::{SystemId, Type, UnitCode};
use gatewright_histogram::Histogram;
use gatewright_interwork::Mapping;
use gatewright_interwork::mapping::{FlexView, ObjectMatch, Rule};
use gatewright_onem2m::audit::Audit;
use gatewright_onem2m::{CseType, Registrar, Serialisation};
use gatewright_part::{Change, LogEvent, LogLevel, PartHistogram, PartStatus, Staged, Unable};
use limits::set_limits;
use reasons::{
    DISK_FULL, UNBOUND, short, why_doubted, why_forgotten, why_held, why_lost, why_short,
    why_unreadable,
};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::runtime::Runtime;

/// Octets in a mebibyte.
const MIB: u64 = 1024 * 1024;

/// Why the services of a description do not start or do not take another description.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The service entity does not start.
    #[error("[cse]: {0}")]
    Cse(#[source] cse::StartError),
    /// The device listeners cannot start.
    #[error("[devices]: {0}")]
    Devices(#[source] devices::StartError),
    /// An address cannot be bound.
    #[error(transparent)]
    Listen(#[from] CannotListen),
    /// Certificates cannot be used.
    #[error("{key}: {source}")]
    Tls {
        /// Their table, such as `[cse.tls]`.
        key: &'static str,
        /// The cause.
        source: TlsError,
    },
    /// The system gives no threads.
    #[error("no threads for [cse]: {0}")]
    Threads(#[source] io::Error),
}

impl From<cse::StartError> for ServiceError {
    fn from(error: cse::StartError) -> Self {
        match error {
            cse::StartError::Listen(refused) => refused.into(),
            cse::StartError::Tls(source) => Self::Tls { key: "[cse.tls]", source },
            error => Self::Cse(error),
        }
    }
}

impl From<devices::StartError> for ServiceError {
    fn from(error: devices::StartError) -> Self {
        match error {
            devices::StartError::Listen(refused) => refused.into(),
            devices::StartError::Tls(source) => Self::Tls { key: "[devices.tls]", source },
            error => Self::Devices(error),
        }
    }
}

impl ServiceError {
    /// The exit code of a program that ends for this (`sysexits.h`): 75 for a database or an address
    /// in use, which may be free later, 77 for a missing right, 78 for certificates and for the
    /// database of another CSE.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Cse(cse::StartError::Store(error)) => error.exit_code().unwrap_or(69),
            Self::Listen(CannotListen { source, .. }) => match source.kind() {
                io::ErrorKind::AddrInUse => 75,
                io::ErrorKind::PermissionDenied => 77,
                _ => 69,
            },
            Self::Tls { .. } | Self::Cse(cse::StartError::Identity { .. }) => 78,
            Self::Cse(_) | Self::Devices(_) | Self::Threads(_) => 69,
        }
    }

    /// The configuration key at fault, such as `[cse] http`, and the cause.
    pub fn key(&self) -> (&'static str, String) {
        match self {
            Self::Cse(error @ (cse::StartError::Store(_) | cse::StartError::Database { .. })) => {
                ("[cse] store", error.to_string())
            }
            Self::Cse(cse::StartError::Broker(error)) => ("[cse] mqtt", error.to_string()),
            Self::Cse(error @ cse::StartError::Identity { stored, configured, .. }) => {
                let is_id = stored.cse_id != configured.cse_id;
                (if is_id { "[cse] id" } else { "[cse] base" }, error.to_string())
            }
            Self::Cse(error) => ("[cse]", error.to_string()),
            Self::Devices(error) => ("[devices]", error.to_string()),
            Self::Listen(CannotListen { place: ListenerAddress { kind, address }, source }) => {
                (kind.key(), format!("cannot listen on {address}: {source}"))
            }
            Self::Tls { key, source } => (key, source.to_string()),
            Self::Threads(_) => ("[cse]", self.to_string()),
        }
    }
}

/// Keys of `config` whose certificates and keys a start would refuse, each as `[cse.tls] key`, and the
/// cause; the files are loaded as by a start, and nothing is connected.
pub fn unusable_files(config: &Config) -> Vec<(String, String)> {
    let cse = config.cse.as_ref().and_then(|cse| cse.tls.as_ref()).map(cse_tls);
    let devices = config.devices.as_ref().and_then(|it| it.tls.as_ref()).map(devices_tls);
    let tables = [("[cse.tls]", cse), ("[devices.tls]", devices)].into_iter();
    let faults = tables.flat_map(|(table, tls)| {
        let faults = tls.map(|tls| tls.faults()).unwrap_or_default().into_iter();
        faults.map(move |(key, error)| (format!("{table} {key}"), error.to_string()))
    });
    faults.collect()
}

/// The running CSE of a description and its device listener.
#[derive(Debug)]
pub struct Services {
    running: RunningServices,
    alarms: Mutex<ServiceAlarms>,
    /// Failed transactions of the database that are in the log.
    store_failures: Mutex<u64>,
    /// The description taken last.
    config: Mutex<Config>,
    /// Runtime; dropped after what it runs.
    runtime: Runtime,
}

#[derive(Debug)]
struct RunningServices {
    cse: cse::RunningCse,
    devices: Option<devices::RunningDevices>,
}

impl RunningServices {
    /// Address of the policy that authorises operators, if there is one.
    fn policy(&self) -> Option<String> {
        self.devices.as_ref()?.policy()
    }
}

impl Services {
    /// Starts the services of `config`; `None` if it has no `[cse]`.
    ///
    /// # Errors
    ///
    /// [`ServiceError`]: either every listener is bound or nothing starts.
    pub fn start(config: &Config) -> Result<Option<Arc<Self>>, ServiceError> {
        Self::start_over(config, None)
    }

    /// As [`Self::start`], with the gateway's own stack for devices whose packets arrive by its links.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn start_over(
        config: &Config,
        own_stack: Option<devices::OwnStack>,
    ) -> Result<Option<Arc<Self>>, ServiceError> {
        let Some(described) = &config.cse else { return Ok(None) };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads())
            .thread_name("services")
            .enable_all()
            .build()
            .map_err(ServiceError::Threads)?;
        let running = block_on(&runtime, run(config, described, own_stack))?;
        let alarms = ServiceAlarms::start(&running, described.base.value.as_str());
        let alarms = Mutex::new(block_on(&runtime, alarms));
        let config = Mutex::new(config.clone());
        Ok(Some(Arc::new(Self { running, alarms, store_failures: Mutex::new(0), config, runtime })))
    }

    /// The CSE.
    pub const fn cse(&self) -> &cse::RunningCse {
        &self.running.cse
    }

    /// The device listener, if there is one.
    pub const fn devices(&self) -> Option<&devices::RunningDevices> {
        self.running.devices.as_ref()
    }

    /// Current state of the CSE, as reported to operators.
    fn cse_told(&self) -> PartStatus {
        let cse = &self.running.cse;
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let registrar = config.cse.as_ref().and_then(|cse| cse.registrar.as_ref());
        let brokers = config.cse.as_ref().and_then(|cse| cse.mqtt.as_deref()).into_iter();
        let brokers = brokers.chain(registrar.map(|it| it.url.as_str()));
        let configured: Vec<String> =
            brokers.filter_map(|url| Some(Url::parse(url).ok()?.authority())).collect();
        let registrar = registrar.map(|it| format!("{} {}", it.id, it.url));
        drop(config);
        let engine = cse.engine();
        let alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        let (alarm_words, alarm_counters) = (alarms.words(), alarms.counters());
        let is_unreachable = alarms.is_registrar_unreachable();
        let is_registered = registrar.is_some().then(|| {
            let is_registered = engine.is_registered() && !is_unreachable;
            ("registered", u64::from(is_registered))
        });
        let alarms = alarms.told();
        let mut words = vec![("listens_at", cse.urls().join(", "))];
        if let Some(registrar) = registrar {
            let stands = registration(engine, is_unreachable);
            words.push(("registration", format!("{stands} {registrar}")));
        }
        let failures = engine.sender().map(|sender| sender.failures()).unwrap_or_default();
        // A peer may name any broker, in a notification target: what it is like is no event here.
        words.extend(failures.into_iter().map(|(broker, failure)| {
            let is_ours = configured.contains(&broker);
            (if is_ours { "broker" } else { "broker_of_peers" }, failure)
        }));
        let (held, first) = engine.held();
        words.extend(first.map(|first| ("messages_held", why_held(held, &first))));
        words.extend(why_lost(engine.lost_above()).map(|why| ("not_delivered", why)));
        words.extend(engine.doubted_clock().map(why_doubted));
        words.extend(why_unreadable(&cse.unreadable()).map(|why| ("rows_damaged", why)));
        words.extend(why_forgotten(cse.remembered_damaged()).map(|why| ("remembered_lost", why)));
        let disk_space = engine.disk_space().unwrap_or_default();
        words.extend(why_short(disk_space).map(|why| ("disk_short", why)));
        words.extend(disk_space.is_short.then(|| ("disk_full", DISK_FULL.to_owned())));
        words.extend(cse.shortage().map(|shortage| ("connections", short(shortage))));
        let revoked = cse.keyring().map(|keyring| keyring.revoked()).unwrap_or_default();
        words.extend(revoked.1.map(|names| ("certificate_revoked", names)));
        words.extend(alarm_words);
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let mut gauges = vec![
            ("disk_reserve_octets", disk_space.reserve),
            ("disk_free_octets", disk_space.free.unwrap_or_default()),
            ("resources", count(engine.resources())),
            ("instances_on_disk", count(engine.instances_paged_out())),
            ("answers_unread_octets", count(engine.unread_octets().0)),
            ("messages_waiting", count(engine.messages_waiting())),
            ("containers_backlogged", count(engine.backlogs())),
            ("rows_unreadable", count(cse.unreadable().len())),
            ("remembered_unreadable", count(cse.remembered_damaged().len())),
        ];
        gauges.extend(is_registered);
        let histograms = engine.store_histograms().map(|store| {
            vec![
                ("store_group_batches", store.batches),
                ("store_waited_ns", store.waited),
                ("store_written_ns", store.written),
                ("store_synchronised_ns", store.synchronised),
                ("store_log_rest_ns", store.rests_moved),
                ("store_log_pass_ns", store.passes),
            ]
        });
        let histograms = histograms.unwrap_or_default().into_iter().map(histogram).collect();
        let mut counters = cse.counters();
        counters.extend(alarm_counters);
        PartStatus { words, gauges, counters, alarms, histograms, ..PartStatus::default() }
    }

    /// Current state of the device listener, as reported to operators.
    fn devices_told(&self) -> Option<PartStatus> {
        let devices = self.running.devices.as_ref()?;
        let count = u64::try_from(devices.devices()).unwrap_or(u64::MAX);
        let at = devices.places().join(", ");
        let held = devices.held_places().join(", ");
        let held = Some(("closes_when_devices_have_gone", held)).filter(|(_, it)| !it.is_empty());
        let shortage = devices.shortage().map(|shortage| ("connections", short(shortage)));
        let unbound = devices.is_unbound().then(|| ("certificates", UNBOUND.to_owned()));
        let revoked = devices.keyring().map(|keyring| keyring.revoked()).unwrap_or_default();
        let names = revoked.1.map(|names| ("certificate_revoked", names));
        let broker = devices.home_assistant_failure().map(|why| ("home_assistant", why));
        let words = core::iter::once(("listens_at", at)).chain(held).chain(shortage).chain(broker);
        let counters = devices.counters();
        let counters = counters.each().chain([("certificates_revoked", revoked.0)]);
        let counters = counters.chain(devices.home_assistant_counters());
        Some(PartStatus {
            words: words.chain(unbound).chain(names).collect(),
            gauges: vec![("associated", count)],
            counters: counters.collect(),
            histograms: devices.stages().each().into_iter().map(histogram).collect(),
            ..PartStatus::default()
        })
    }

    /// Observes the causes of alarms; returns what was raised or cleared.
    fn alarm_events(&self) -> Vec<LogEvent> {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let thresholds = config.cse.as_ref().map(|cse| cse.alarms).unwrap_or_default();
        drop(config);
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        alarms.observe(&self.running, thresholds)
    }

    /// Transactions of the database that have failed since the last call, and why the last one did.
    fn store_failed(&self) -> Option<LogEvent> {
        let engine = self.running.cse.engine();
        let failures = engine.store_counters()?.failures;
        let mut known = self.store_failures.lock().unwrap_or_else(PoisonError::into_inner);
        let more = failures.checked_sub(*known).filter(|more| *more > 0)?;
        *known = failures;
        let cause = engine.store_failure().unwrap_or_else(|| "the cause is not known".to_owned());
        let text = format!(
            "the database could not be written, and requests are refused: {cause} ({more} more, \
             {failures} since the start)"
        );
        let event = LogEvent::new(LogLevel::Error, "cse", "store-failed", text);
        Some(event.with("cause", cause).with("more", more).with("store_failures", failures))
    }

    /// Refusals of devices' requests since the last call.
    fn devices_refused(&self) -> Vec<LogEvent> {
        self.running.devices.as_ref().map(devices::RunningDevices::refusals).unwrap_or_default()
    }

    /// Whether the files of the CSE's certificates have changed since they were read.
    fn cse_certificates_differ(&self, new: &Config) -> bool {
        let tls = new.cse.as_ref().and_then(|cse| cse.tls.as_ref()).map(cse_tls);
        differ(self.running.cse.keyring(), tls.as_ref())
    }

    /// Whether the files of the device listener's certificates have changed since they were read.
    fn devices_certificates_differ(&self, new: &Config) -> bool {
        let keyring = self.running.devices.as_ref().and_then(devices::RunningDevices::keyring);
        let tls = new.devices.as_ref().and_then(|devices| devices.tls.as_ref()).map(devices_tls);
        differ(keyring, tls.as_ref())
    }

    /// Applies the changes that need no restart. Not to be called on the runtime. Unwanted
    /// listeners are closed on commit.
    ///
    /// # Errors
    ///
    /// The certificates' fault, or the address that cannot be bound; nothing has changed then.
    fn take(self: &Arc<Self>, config: &Config) -> Result<Taken, ServiceError> {
        let keys = self.read_keys(config)?;
        let listeners = block_on(&self.runtime, self.exchange_listeners(config))?;
        let before = self.exchange(config, keys);
        let services = Arc::downgrade(self);
        Ok(Taken { services, was: Some((listeners, before)) })
    }

    /// Reads the certificates of each part.
    fn read_keys(&self, config: &Config) -> Result<ExchangedKeys, ServiceError> {
        let RunningServices { cse, devices, .. } = &self.running;
        let mut all = Vec::new();
        let tls = config.cse.as_ref().and_then(|cse| cse.tls.as_ref()).map(cse_tls);
        let refuse = |key| move |source| ServiceError::Tls { key, source };
        if let (Some(keyring), Some(tls)) = (cse.keyring(), tls) {
            let keys = Keys::read(&tls).map_err(refuse("[cse.tls]"))?;
            all.push((Arc::clone(keyring), keys));
        }
        let tls = config.devices.as_ref().and_then(|it| it.tls.as_ref()).map(devices_tls);
        if let (Some(devices), Some(tls)) = (devices, tls) {
            let keys = Keys::read(&tls).map_err(refuse("[devices.tls]"))?;
            all.push((Arc::clone(devices.keyring_or(&keys)), keys));
        }
        Ok(all)
    }

    /// Opens the wanted listeners, all or none.
    async fn exchange_listeners(
        &self,
        config: &Config,
    ) -> Result<[ExchangedListeners; 2], CannotListen> {
        let RunningServices { cse, devices, .. } = &self.running;
        let Some(described) = &config.cse else { return Ok(Default::default()) };
        let of_cse = cse.exchange_listeners(&cse_config(config, described)).await?;
        let (Some(wanted), Some(devices)) = (&config.devices, devices) else {
            return Ok([of_cse, ExchangedListeners::default()]);
        };
        match devices.exchange_listeners(&devices_config(wanted, described)).await {
            Ok(of_devices) => Ok([of_cse, of_devices]),
            Err(refused) => {
                cse.undo_listeners(of_cse).await;
                Err(refused)
            }
        }
    }

    async fn undo_listeners(&self, [of_cse, of_devices]: [ExchangedListeners; 2]) {
        if let Some(devices) = &self.running.devices {
            devices.undo_listeners(of_devices).await;
        }
        self.running.cse.undo_listeners(of_cse).await;
    }

    fn settle_listeners(&self, [of_cse, of_devices]: &[ExchangedListeners; 2]) {
        if let Some(devices) = &self.running.devices {
            devices.settle_listeners(of_devices);
        }
        self.running.cse.settle_listeners(of_cse);
    }

    /// Takes another description and other keys; returns the previous ones.
    fn exchange(&self, config: &Config, keys: ExchangedKeys) -> (Config, ExchangedKeys) {
        let keys = keys.into_iter().map(|(keyring, keys)| {
            let before = keyring.set(keys);
            (keyring, before)
        });
        let keys = keys.collect();
        let mut last = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let before = core::mem::replace(&mut *last, config.clone());
        drop(last);
        if (&before.cse, &before.devices) == (&config.cse, &config.devices) {
            return (before, keys);
        }
        if let Some(described) = &config.cse {
            self.running.cse.reconfigure(cse_config(config, described));
            if let (Some(wanted), Some(devices)) = (&config.devices, &self.running.devices) {
                let taken = with_keys(devices_config(wanted, described), &self.running.cse);
                block_on(&self.runtime, devices.reconfigure(taken));
                let policy = devices.policy();
                let engine = self.running.cse.engine();
                let admit =
                    AlarmContainer::admit(engine, described.base.value.as_str(), policy.as_deref());
                let obstacle = block_on(&self.runtime, admit);
                let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
                alarms.set_obstacle(obstacle);
            }
        }
        (before, keys)
    }

    /// Aborts the associations, stores pending data, and ends. Later requests by remaining holders
    /// find no service.
    pub fn stop(self: Arc<Self>) {
        let Some(Self { running, alarms, runtime, .. }) = Arc::into_inner(self) else { return };
        // It holds the engine.
        drop(alarms);
        block_on(&runtime, async {
            if let Some(devices) = running.devices {
                devices.stop().await;
            }
            running.cse.stop().await;
        });
    }
}

/// A description that was taken: permanent when this is dropped, unless it is taken back.
struct Taken {
    services: Weak<Services>,
    was: Option<([ExchangedListeners; 2], (Config, ExchangedKeys))>,
}

impl Staged for Taken {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        Ok(Vec::new())
    }

    fn undo(mut self: Box<Self>) {
        let (Some(services), Some((listeners, (config, keys)))) =
            (self.services.upgrade(), self.was.take())
        else {
            return;
        };
        block_on(&services.runtime, services.undo_listeners(listeners));
        services.exchange(&config, keys);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let (Some(services), Some((listeners, _))) = (self.services.upgrade(), self.was.take()) {
            services.settle_listeners(&listeners);
        }
    }
}

async fn run(
    config: &Config,
    described: &gatewright_config::Cse,
    own_stack: Option<devices::OwnStack>,
) -> Result<RunningServices, ServiceError> {
    let cse = cse::start(cse_config(config, described)).await?;
    let Some(devices) = &config.devices else {
        return Ok(RunningServices { cse, devices: None });
    };
    let wanted = with_keys(devices_config(devices, described), &cse);
    let devices = devices::start_over(wanted, Arc::clone(cse.engine()), own_stack).await?;
    Ok(RunningServices { cse, devices: Some(devices) })
}

/// How this CSE's registration at its registrar stands.
fn registration(engine: &crate::engine::Engine, is_unreachable: bool) -> String {
    match engine.refused_by_registrar() {
        _ if is_unreachable => "no answer from".to_owned(),
        _ if engine.is_registered() => "registered at".to_owned(),
        Some(refused) => format!("refused with {} by", refused.status.number()),
        None => "not yet at".to_owned(),
    }
}

/// A histogram, as reported to operators.
fn histogram((name, values): (&'static str, Histogram)) -> PartHistogram {
    PartHistogram { name, values }
}

/// Threads of the runtime: half of the processors. The others are for the threads that store and
/// move packets; and waking a second thread takes as long as a part of a request.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| all.get().div_ceil(2))
}

fn cse_config(config: &Config, described: &gatewright_config::Cse) -> cse::CseServerConfig {
    let kind = if described.infrastructure { CseType::Infrastructure } else { CseType::Middle };
    let mut machine = gatewright_onem2m::CseConfig::new(
        kind,
        described.id.as_str(),
        described.base.value.as_str(),
    );
    machine.admin.clone_from(&described.admin);
    machine.audit = match (described.audit, described.audit_strict) {
        (false, _) => Audit::Off,
        (true, true) => Audit::Strict,
        (true, false) => Audit::Lenient,
    };
    machine.admitted_cses.clone_from(&described.admit);
    if let Some(devices) = &described.admit_devices {
        machine.sponsored_entities.clone_from(devices);
    }
    machine.adopted_entities.clone_from(&described.adopt_devices);
    machine.cses_beyond.clone_from(&described.admit_beyond);
    machine.reserved_names = vec![CONTAINER.to_owned()];
    if let Some(devices) = config.devices.as_ref().filter(|_| is_reserving(described)) {
        let pattern = format!("{}*", mapping(devices).entity_prefix);
        machine.reserved_entities = vec![format!("C{pattern}")];
        machine.reserved_names.push(pattern);
    }
    machine.registrar = described.registrar.as_ref().map(|above| Registrar {
        cse_id: above.id.clone(),
        name: above.base.clone(),
        url: above.url.clone(),
    });
    if let Some(provider) = &described.provider {
        machine.provider = format!("//{}", provider.trim_start_matches('/'));
    }
    set_limits(&mut machine.limits, config, described);
    if let Some(devices) = &config.devices {
        machine.base_readers.clone_from(&devices.operators);
    }
    let mut running = cse::CseServerConfig::new(machine);
    running.listen = described.http.iter().map(|http| http.value).collect();
    running.listen_coap = described.coap.iter().map(|coap| coap.value).collect();
    running.listen_ws = described.ws.iter().map(|ws| ws.value).collect();
    running.mqtt.clone_from(&described.mqtt);
    if let Some(tls) = &described.tls {
        running.listen_tls = tls.https.iter().map(|https| https.value).collect();
        running.listen_wss = tls.wss.iter().map(|wss| wss.value).collect();
        running.tls = Some(cse_tls(tls));
    }
    running.store = described.store.as_ref().map(PathBuf::from);
    running.options.octets_max = described.store_mib.map(|mib| u64::from(mib) * MIB);
    if let Some(mib) = described.reserve_mib {
        running.options.reserve_octets = u64::from(mib) * MIB;
    }
    if let Some(mib) = described.audit_mib {
        running.options.audit_octets_max = u64::from(mib) * MIB;
    }
    running.quota = quota(described.peer);
    running.cse.points_of_access.clone_from(&described.points_of_access);
    running.reach_own = described.reach_own;
    running.reach_only.clone_from(&described.reach_only);
    running.reach_not.clone_from(&described.reach_not);
    if let Some(most) = described.peer.connections {
        running.connections_per_peer_max = usize::try_from(most).unwrap_or(usize::MAX);
    }
    running
}

/// Whether registrations of devices that come from outside are refused, as only this process
/// registers its devices.
///
/// A CSE below that has no certificate registers its devices as anybody registers an AE: where such
/// CSEs are admitted, the two cannot be told apart.
fn is_reserving(described: &gatewright_config::Cse) -> bool {
    let in_the_clear = described.http.is_some()
        || described.coap.is_some()
        || described.ws.is_some()
        || described.mqtt.is_some();
    described.admit.is_empty() || !in_the_clear
}

fn devices_config(
    wanted: &gatewright_config::Devices,
    described: &gatewright_config::Cse,
) -> devices::DevicesConfig {
    let mut config =
        devices::DevicesConfig::new(wanted.listen.value, described.base.value.as_str());
    let admitted = wanted.admit.iter().copied().map(SystemId);
    config.admitted = (!wanted.admit.is_empty()).then(|| admitted.collect());
    config.connections_max = usize::try_from(wanted.devices_max).unwrap_or(usize::MAX);
    if let Some(most) = wanted.peer_connections {
        config.connections_per_peer_max = usize::try_from(most).unwrap_or(usize::MAX);
    }
    config.datagrams = wanted.udp.as_ref().map(|udp| udp.value);
    config.stack = wanted.stack.as_ref().map(|stack| stack.value);
    config.tls = wanted.tls.as_ref().map(|tls| (tls.listen.value, devices_tls(tls)));
    let field = wanted.tls.as_ref().and_then(|tls| tls.system_id);
    config.system_id = field.map(|field| match field {
        gatewright_config::SystemIdField::Uri => devices::SystemIdField::Uri,
        gatewright_config::SystemIdField::Dns => devices::SystemIdField::Dns,
    });
    config.operators.clone_from(&wanted.operators);
    let silent = wanted.silent.iter().map(|rule| devices::SilentAfter {
        after: rule.after,
        kinds: rule.kinds.iter().cloned().collect(),
    });
    config.silent = silent.collect();
    config.home_assistant = wanted.home_assistant.as_ref().map(|it| devices::HomeAssistantConfig {
        broker: it.broker.clone(),
        prefix: it.prefix.clone(),
        topic: it.topic.clone(),
        tls: None,
    });
    config.mapping = mapping(wanted);
    config.above = described.registrar.as_ref().map(|above| devices::Above {
        url: above.url.clone(),
        base: above.readings.clone().unwrap_or_else(|| format!("{}/{}", above.id, above.base)),
        beyond: above.readings.is_some(),
        delivery: match wanted.delivery {
            Delivery::Durable => devices::Delivery::Durable(wanted.keep),
            Delivery::Direct => devices::Delivery::Direct,
        },
        // What is durable is said last: it is the one that loses nothing.
        kinds: (wanted.direct.iter().map(|kind| (kind, devices::Delivery::Direct)))
            .chain(
                wanted.durable.iter().map(|kind| (kind, devices::Delivery::Durable(wanted.keep))),
            )
            .map(|(kind, delivery)| (kind.clone(), delivery))
            .collect(),
        coap: above
            .coap
            .as_ref()
            .map(|_| if above.coap_json { Serialisation::Json } else { Serialisation::Cbor }),
    });
    config
}

/// The configuration with the certificates of the CSE, which are shown to Home Assistant's broker, too.
fn with_keys(mut config: devices::DevicesConfig, cse: &cse::RunningCse) -> devices::DevicesConfig {
    if let Some(home_assistant) = &mut config.home_assistant {
        let tls = cse.keyring().and_then(|keyring| keyring.client().ok());
        home_assistant.tls = tls.map(Arc::new);
    }
    config
}

/// Keyrings and the certificates to put into them.
type ExchangedKeys = Vec<(Arc<Keyring>, Arc<Keys>)>;

fn differ(keyring: Option<&Arc<Keyring>>, tls: Option<&Tls>) -> bool {
    keyring.zip(tls).is_some_and(|(keyring, tls)| !keyring.is_of(tls))
}

fn cse_tls(tls: &gatewright_config::CseTls) -> Tls {
    let files = files([&tls.certificate, &tls.key, &tls.authorities], tls.crl.as_ref());
    let ocsp_response = tls.ocsp_response.as_ref().map(PathBuf::from);
    Tls { ocsp_response, ocsp_required: tls.ocsp_required, ..files }
}

fn devices_tls(tls: &gatewright_config::DevicesTls) -> Tls {
    let files = files([&tls.certificate, &tls.key, &tls.authorities], tls.crl.as_ref());
    Tls { ocsp_response: tls.ocsp_response.as_ref().map(PathBuf::from), ..files }
}

fn files(paths: [&String; 3], crl: Option<&String>) -> Tls {
    let [certificate, key, authorities] = paths.map(PathBuf::from);
    let (crl, ocsp_response) = (crl.map(PathBuf::from), None);
    Tls { certificate, key, authorities, crl, ocsp_response, ocsp_required: false }
}

/// Mapping of the description, then the built-in one.
fn mapping(wanted: &gatewright_config::Devices) -> Mapping {
    let known = Mapping::default();
    let mut mapping = if wanted.views { known } else { known.without_views() };
    let described = wanted.maps.iter().map(|map| Rule {
        when: ObjectMatch {
            kind: map.measured.map(|(partition, code)| Type::new(partition, code)),
            class: None,
            unit: map.unit.map(UnitCode),
        },
        container: map.container.clone(),
        labels: map.labels.clone(),
        instances_max: map.instances.map(u64::from),
        view: map.view.as_ref().map(|view| FlexView {
            definition: view.definition.clone(),
            tag: view.name.clone(),
            attribute: view.attribute.clone(),
        }),
        loinc: map.loinc.clone(),
        vital_sign: false,
    });
    mapping.rules.splice(0..0, described);
    mapping
}

fn quota(peer: PeerBounds) -> cse::Quota {
    let default = cse::Quota::default();
    cse::Quota {
        rate: peer.rate,
        waiting: peer.requests.unwrap_or(default.waiting),
        octets: peer.mib.map_or(default.octets, |mib| u64::from(mib) * MIB),
        octets_of_all: peer.mib_of_all.map_or(default.octets_of_all, |mib| u64::from(mib) * MIB),
    }
}

#[cfg(test)]
mod tests {
    use gatewright_config::DEVICE_KINDS;
    use gatewright_health::{kind, specialisation};
    use std::collections::BTreeSet;

    /// The kinds that a description may name are those that devices have.
    #[test]
    fn kinds_are_told_by_the_same_names() {
        let simulated = specialisation::ALL.iter().map(|kind| kind.name);
        let known = simulated.chain(kind::KINDS.iter().map(|kind| kind.name));
        let known: BTreeSet<_> = known.chain([kind::UNKNOWN]).collect();
        assert_eq!(known, BTreeSet::from(DEVICE_KINDS));
    }
}
