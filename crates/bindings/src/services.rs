//! What a description asks for in `[devices]` and `[cse]`, on a runtime of its own.

use crate::keyring::{Keyring, Keys};
use crate::tls::{Tls, TlsError};
use crate::{cse, devices};
use gatewright_config::{Config, Delivery, PeerBounds};
use gatewright_descriptors::Shortage;
use gatewright_health::code::{SystemId, Type, UnitCode};
use gatewright_interwork::Mapping;
use gatewright_interwork::mapping::{Rule, View, When};
use gatewright_onem2m::{CseType, Registrar, Verdict};
use gatewright_store::Histogram;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Runtime;

/// Octets in a mebibyte.
const MIB: u64 = 1024 * 1024;

/// Why the services of a description do not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The service entity does not start.
    #[error("[cse]: {0}")]
    Cse(#[from] cse::StartError),
    /// Devices cannot be listened for.
    #[error("[devices]: cannot listen on {address}: {source}")]
    Devices {
        /// Where.
        address: std::net::SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The system gives no threads.
    #[error("no threads for [cse]: {0}")]
    Threads(#[source] io::Error),
}

/// The service entity of a description and its listener for devices, at work.
#[derive(Debug)]
pub struct Services {
    running: Running,
    /// What was taken last.
    config: Mutex<Config>,
    /// Behind what it runs.
    runtime: Runtime,
}

#[derive(Debug)]
struct Running {
    cse: cse::Running,
    devices: Option<devices::Running>,
    registrar: Option<String>,
}

/// What a service is and has counted, in pairs of a name and a value.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Told {
    /// What it is, in words.
    pub words: Vec<(&'static str, String)>,
    /// What it has now.
    pub gauges: Vec<(&'static str, u64)>,
    /// What it has counted.
    pub counters: Vec<(&'static str, u64)>,
    /// How long things took, in microseconds where the name ends in `_us`, and how many came
    /// together.
    pub histograms: Vec<(&'static str, Histogram)>,
}

impl Services {
    /// Starts what `config` asks for; nothing, if it has no `[cse]`.
    ///
    /// # Errors
    ///
    /// [`ServiceError`]: it listens everywhere it is told, or does not start.
    pub fn start(config: &Config) -> Result<Option<Arc<Self>>, ServiceError> {
        let Some(described) = &config.cse else { return Ok(None) };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("services")
            .enable_all()
            .build()
            .map_err(ServiceError::Threads)?;
        let running = runtime.block_on(run(config, described))?;
        let config = Mutex::new(config.clone());
        Ok(Some(Arc::new(Self { running, config, runtime })))
    }

    /// The service entity.
    pub const fn cse(&self) -> &cse::Running {
        &self.running.cse
    }

    /// The listener for devices, if there is one.
    pub const fn devices(&self) -> Option<&devices::Running> {
        self.running.devices.as_ref()
    }

    /// The service entity at this moment.
    pub fn cse_told(&self) -> Told {
        let Running { cse, registrar, .. } = &self.running;
        let engine = cse.engine();
        let coap = cse.coap_addresses().map(|address| format!("coap://{address}"));
        let ws = cse.ws_addresses().iter().map(|address| format!("ws://{address}"));
        let wss = cse.wss_addresses().iter().map(|address| format!("wss://{address}"));
        let http = cse.addresses().iter().map(ToString::to_string);
        let ws = coap.chain(ws).chain(wss);
        let listens: Vec<String> = http.chain(ws).chain(cse.broker()).collect();
        let mut words = vec![("listens_at", listens.join(", "))];
        if let Some(registrar) = registrar {
            let stands = if engine.is_registered() { "registered at" } else { "not yet at" };
            words.push(("registration", format!("{stands} {registrar}")));
        }
        let (held, first) = engine.held();
        words.extend(first.map(|first| ("letters_held", why_held(held, &first))));
        words.extend(why_lost(engine.lost_above()).map(|why| ("not_delivered", why)));
        words.extend(cse.shortage().map(|shortage| ("connections", short(shortage))));
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let gauges = vec![
            ("resources", count(engine.resources())),
            ("letters_waiting", count(engine.letters())),
            ("rows_unreadable", count(cse.unreadable_rows())),
        ];
        let histograms = engine.store_histograms().map(|store| {
            vec![
                ("store_group_batches", store.batches),
                ("store_waited_us", store.waited),
                ("store_written_us", store.written),
                ("store_synchronised_us", store.synchronised),
                ("store_log_rest_us", store.rests_moved),
                ("store_log_pass_us", store.passes),
            ]
        });
        let histograms = histograms.unwrap_or_default();
        Told { words, gauges, counters: cse.counters(), histograms }
    }

    /// The listener for devices at this moment.
    pub fn devices_told(&self) -> Option<Told> {
        let devices = self.running.devices.as_ref()?;
        let count = u64::try_from(devices.devices()).unwrap_or(u64::MAX);
        let also = [("udp", devices.datagrams()), ("tls", devices.tls())];
        let also = also.into_iter().filter_map(|(how, at)| Some(format!(", {how} {}", at?)));
        let at = format!("{}{}", devices.address(), also.collect::<String>());
        let shortage = devices.shortage().map(|shortage| ("connections", short(shortage)));
        Some(Told {
            words: core::iter::once(("listens_at", at)).chain(shortage).collect(),
            gauges: vec![("associated", count)],
            counters: devices.counters().each().collect(),
            histograms: devices.stages().each().collect(),
        })
    }

    /// What is another in `[cse]`: a sentence each, and whether it needs a restart.
    pub fn cse_differences(old: &Config, new: &Config) -> Vec<(String, bool)> {
        let (Some(old), Some(new)) = (&old.cse, &new.cse) else {
            return vec![("comes or goes".to_owned(), true)];
        };
        let mut told = Vec::new();
        let url = |cse: &gatewright_config::Cse| cse.registrar.as_ref().map(|it| it.url.clone());
        for (what, same) in [
            ("who may do everything (admin)", old.admin == new.admin),
            ("which CSEs may register (admit)", old.admit == new.admit),
            (
                "which AEs those may register (admit_devices)",
                old.admit_devices == new.admit_devices,
            ),
            ("whether requests are noted (audit)", old.audit == new.audit),
            ("what one peer may ask (peer_…)", old.peer == new.peer),
            ("where the registrar is (url)", url(old) == url(new)),
            (
                "where its certificates are (tls)",
                old.tls.as_ref().map(cse_tls) == new.tls.as_ref().map(cse_tls),
            ),
        ] {
            if !same {
                told.push((what.to_owned(), false));
            }
        }
        let mut taken = old.clone();
        (taken.admin, taken.admit) = (new.admin.clone(), new.admit.clone());
        taken.admit_devices.clone_from(&new.admit_devices);
        (taken.audit, taken.peer) = (new.audit, new.peer);
        if let (Some(taken), Some(new)) = (&mut taken.tls, &new.tls) {
            taken.certificate.clone_from(&new.certificate);
            taken.key.clone_from(&new.key);
            taken.authorities.clone_from(&new.authorities);
        }
        if let (Some(taken), Some(url)) = (&mut taken.registrar, url(new)) {
            taken.url = url;
        }
        if taken != *new {
            told.push(("its name, store, addresses or registrar".to_owned(), true));
        }
        told
    }

    /// The same of `[devices]`.
    pub fn devices_differences(old: &Config, new: &Config) -> Vec<(String, bool)> {
        let (Some(old), Some(new)) = (&old.devices, &new.devices) else {
            return vec![("comes or goes".to_owned(), true)];
        };
        let way =
            |it: &gatewright_config::Devices| (it.delivery, it.direct.clone(), it.durable.clone());
        let bounds = |it: &gatewright_config::Devices| (it.keep, it.waiting_max, it.waiting_total);
        let mut told = Vec::new();
        for (what, same) in [
            ("how readings are delivered", way(old) == way(new)),
            ("how long and how many readings wait", bounds(old) == bounds(new)),
            ("which devices may associate (admit)", old.admit == new.admit),
            ("who may ask devices (operators)", old.operators == new.operators),
            (
                "where its certificates are (tls)",
                old.tls.as_ref().map(devices_tls) == new.tls.as_ref().map(devices_tls),
            ),
        ] {
            if !same {
                told.push((what.to_owned(), false));
            }
        }
        let listens = |it: &gatewright_config::Devices| {
            let tls = it.tls.as_ref().map(|tls| tls.listen.clone());
            (it.listen.clone(), it.udp.clone(), tls, it.devices_max)
        };
        if listens(old) != listens(new) {
            told.push(("its addresses or devices_max".to_owned(), true));
        }
        if (old.views, &old.maps) != (new.views, &new.maps) {
            told.push(("what objects become (map, views)".to_owned(), true));
        }
        told
    }

    /// Whether the files of the service entity's certificates hold others than it uses.
    pub fn cse_certificates_differ(&self, new: &Config) -> bool {
        let tls = new.cse.as_ref().and_then(|cse| cse.tls.as_ref()).map(cse_tls);
        differ(self.running.cse.keyring(), tls.as_ref())
    }

    /// The same of the listener for devices.
    pub fn devices_certificates_differ(&self, new: &Config) -> bool {
        let keyring = self.running.devices.as_ref().and_then(devices::Running::keyring);
        let tls = new.devices.as_ref().and_then(|devices| devices.tls.as_ref()).map(devices_tls);
        differ(keyring, tls.as_ref())
    }

    /// Takes what can change under way; see [`cse_differences`](Self::cse_differences) and
    /// [`devices_differences`](Self::devices_differences). Not to be called on the runtime. What is
    /// returned takes it back.
    ///
    /// # Errors
    ///
    /// What is wrong with the certificates; then nothing has changed.
    pub fn take(self: &Arc<Self>, config: &Config) -> Result<Box<dyn FnOnce() + Send>, TlsError> {
        let mut keys = Vec::new();
        let tls = config.cse.as_ref().and_then(|cse| cse.tls.as_ref()).map(cse_tls);
        if let (Some(keyring), Some(tls)) = (self.running.cse.keyring(), tls) {
            keys.push((Arc::clone(keyring), Keys::read(&tls)?));
        }
        let keyring = self.running.devices.as_ref().and_then(devices::Running::keyring);
        let tls = config.devices.as_ref().and_then(|it| it.tls.as_ref()).map(devices_tls);
        if let (Some(keyring), Some(tls)) = (keyring, tls) {
            keys.push((Arc::clone(keyring), Keys::read(&tls)?));
        }
        let before = self.exchange(config, keys);
        let services = Arc::downgrade(self);
        Ok(Box::new(move || {
            if let (Some(services), (config, keys)) = (services.upgrade(), before) {
                services.exchange(&config, keys);
            }
        }))
    }

    /// Takes another description and other keys; those before.
    fn exchange(&self, config: &Config, keys: Exchanged) -> (Config, Exchanged) {
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
                let taken = devices_config(wanted, described);
                self.runtime.block_on(devices.reconfigure(taken));
            }
        }
        (before, keys)
    }

    /// Aborts the associations, stores what was taken, and ends; what is asked of it by whoever
    /// still holds it finds nobody.
    pub fn stop(self: Arc<Self>) {
        let Some(Self { running, runtime, .. }) = Arc::into_inner(self) else { return };
        runtime.block_on(async {
            if let Some(devices) = running.devices {
                devices.stop().await;
            }
            running.cse.stop().await;
        });
    }
}

async fn run(config: &Config, described: &gatewright_config::Cse) -> Result<Running, ServiceError> {
    let cse = cse::start(cse_config(config, described)).await?;
    let registrar = described.registrar.as_ref().map(|it| format!("{} {}", it.id, it.url));
    let Some(devices) = &config.devices else {
        return Ok(Running { cse, devices: None, registrar });
    };
    let address = devices.listen.value;
    let started = devices::start(devices_config(devices, described), Arc::clone(cse.engine()));
    let devices = started.await.map_err(|source| ServiceError::Devices { address, source })?;
    Ok(Running { cse, devices: Some(devices), registrar })
}

fn cse_config(config: &Config, described: &gatewright_config::Cse) -> cse::Config {
    let kind = if described.infrastructure { CseType::Infrastructure } else { CseType::Middle };
    let mut machine =
        gatewright_onem2m::Config::new(kind, described.id.as_str(), described.base.value.as_str());
    machine.admin.clone_from(&described.admin);
    machine.admitted_cses.clone_from(&described.admit);
    if let Some(devices) = &described.admit_devices {
        machine.sponsored_entities.clone_from(devices);
    }
    machine.registrar = described.registrar.as_ref().map(|above| Registrar {
        cse_id: above.id.clone(),
        name: above.base.clone(),
        url: above.url.clone(),
    });
    if let Some(provider) = &described.provider {
        machine.provider = format!("//{}", provider.trim_start_matches('/'));
    }
    if let Some(devices) = &config.devices {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        machine.limits.letters_waiting = count(devices.waiting_max);
        machine.limits.letters_waiting_total = count(devices.waiting_total);
    }
    let mut running = cse::Config::new(machine);
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
    running.audit = described.audit;
    running.quota = quota(described.peer);
    if let Some(most) = described.peer.connections {
        running.connections_per_peer_max = usize::try_from(most).unwrap_or(usize::MAX);
    }
    running
}

fn devices_config(
    wanted: &gatewright_config::Devices,
    described: &gatewright_config::Cse,
) -> devices::Config {
    let mut config = devices::Config::new(wanted.listen.value, described.base.value.as_str());
    let admitted = wanted.admit.iter().copied().map(SystemId);
    config.admitted = (!wanted.admit.is_empty()).then(|| admitted.collect());
    config.connections_max = usize::try_from(wanted.devices_max).unwrap_or(usize::MAX);
    config.datagrams = wanted.udp.as_ref().map(|udp| udp.value);
    config.tls = wanted.tls.as_ref().map(|tls| (tls.listen.value, devices_tls(tls)));
    config.operators.clone_from(&wanted.operators);
    config.mapping = mapping(wanted);
    config.above = described.registrar.as_ref().map(|above| devices::Above {
        url: above.url.clone(),
        base: format!("{}/{}", above.id, above.base),
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
    });
    config
}

/// Keyrings, and what is taken into them.
type Exchanged = Vec<(Arc<Keyring>, Arc<Keys>)>;

fn differ(keyring: Option<&Arc<Keyring>>, tls: Option<&Tls>) -> bool {
    keyring.zip(tls).is_some_and(|(keyring, tls)| !keyring.is_of(tls))
}

fn cse_tls(tls: &gatewright_config::CseTls) -> Tls {
    files([&tls.certificate, &tls.key, &tls.authorities])
}

fn devices_tls(tls: &gatewright_config::DevicesTls) -> Tls {
    files([&tls.certificate, &tls.key, &tls.authorities])
}

fn files(paths: [&String; 3]) -> Tls {
    let [certificate, key, authorities] = paths.map(PathBuf::from);
    Tls { certificate, key, authorities }
}

/// What becomes what: what is described, then what is known by itself.
fn mapping(wanted: &gatewright_config::Devices) -> Mapping {
    let known = Mapping::default();
    let mut mapping = if wanted.views { known } else { known.without_views() };
    let described = wanted.maps.iter().map(|map| Rule {
        when: When {
            kind: map.measured.map(|(partition, code)| Type::new(partition, code)),
            class: None,
            unit: map.unit.map(UnitCode),
        },
        container: map.container.clone(),
        labels: map.labels.clone(),
        instances_max: map.instances.map(u64::from),
        view: map.view.as_ref().map(|view| View {
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

/// Why letters wait that could be delivered, for the operator.
fn why_held(lanes: usize, Verdict { status, from, to, .. }: &Verdict) -> String {
    let (senders, status) = (if lanes == 1 { "sender" } else { "senders" }, status.number());
    format!("of {lanes} {senders}; {from} is answered {status} at {to}: who may ask there?")
}

/// What this CSE has and the one above never will, for the operator: data is lost there.
fn why_lost((readings, aged, last): (u64, u64, Option<Verdict>)) -> Option<String> {
    let last = last.map(|Verdict { status, from, to, .. }| {
        let status = status.number();
        format!("{readings} readings refused above for good; {from} was answered {status} at {to}")
    });
    let aged = (aged > 0).then(|| format!("{aged} letters grew too old"));
    let told: Vec<String> = last.into_iter().chain(aged).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// What comes of too few descriptors, for the operator.
fn short(shortage: Shortage) -> String {
    format!("with all else in this process {shortage}: connections above that wait at the door")
}

#[cfg(test)]
mod tests {
    use gatewright_config::DEVICE_KINDS;
    use gatewright_health::specialisation;

    /// The kinds that a description may name are those that devices have.
    #[test]
    fn kinds_are_told_by_the_same_names() {
        let known = specialisation::ALL.iter().map(|kind| kind.name).chain(["device"]);
        assert_eq!(known.collect::<Vec<_>>(), DEVICE_KINDS);
    }
}
