//! What a description asks for in `[devices]` and `[cse]`, on a runtime of its own.

use crate::tls::Tls;
use crate::{cse, devices};
use gatewright_config::{Config, Delivery};
use gatewright_health::code::SystemId;
use gatewright_onem2m::{CseType, Registrar};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
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
        Ok(Some(Arc::new(Self { running, runtime })))
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
        let http = cse.addresses().iter().map(ToString::to_string);
        let listens: Vec<String> = http.chain(coap).chain(ws).chain(cse.broker()).collect();
        let mut words = vec![("listens_at", listens.join(", "))];
        if let Some(registrar) = registrar {
            let stands = if engine.is_registered() { "registered at" } else { "not yet at" };
            words.push(("registration", format!("{stands} {registrar}")));
        }
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let gauges = vec![
            ("resources", count(engine.resources())),
            ("letters_waiting", count(engine.letters())),
            ("rows_unreadable", count(cse.unreadable_rows())),
        ];
        Told { words, gauges, counters: cse.counters() }
    }

    /// The listener for devices at this moment.
    pub fn devices_told(&self) -> Option<Told> {
        let devices = self.running.devices.as_ref()?;
        let count = u64::try_from(devices.devices()).unwrap_or(u64::MAX);
        let also = [("udp", devices.datagrams()), ("tls", devices.tls())];
        let also = also.into_iter().filter_map(|(how, at)| Some(format!(", {how} {}", at?)));
        let at = format!("{}{}", devices.address(), also.collect::<String>());
        Some(Told {
            words: vec![("listens_at", at)],
            gauges: vec![("associated", count)],
            counters: devices.counters().each().collect(),
        })
    }

    /// Aborts the associations, stores what was taken, and ends; what is asked of it by whoever
    /// still holds it finds nobody.
    pub fn stop(self: Arc<Self>) {
        let Some(Self { running, runtime }) = Arc::into_inner(self) else { return };
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
    machine.registrar = described.registrar.as_ref().map(|above| Registrar {
        cse_id: above.id.clone(),
        name: above.base.clone(),
        url: above.url.clone(),
    });
    if let Some(devices) = &config.devices {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        machine.limits.notifications_waiting = count(devices.waiting_max);
        machine.limits.notifications_waiting_total = count(devices.waiting_total);
    }
    let mut running = cse::Config::new(machine);
    running.listen = described.http.iter().map(|http| http.value).collect();
    running.listen_coap = described.coap.iter().map(|coap| coap.value).collect();
    running.listen_ws = described.ws.iter().map(|ws| ws.value).collect();
    running.mqtt.clone_from(&described.mqtt);
    running.store = described.store.as_ref().map(PathBuf::from);
    running.options.octets_max = described.store_mib.map(|mib| u64::from(mib) * MIB);
    running.audit = described.audit;
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
    config.tls = wanted.tls.as_ref().map(|tls| {
        let [certificate, key, authorities] =
            [&tls.certificate, &tls.key, &tls.authorities].map(PathBuf::from);
        (tls.listen.value, Tls { certificate, key, authorities })
    });
    config.operators.clone_from(&wanted.operators);
    config.above = described.registrar.as_ref().map(|above| devices::Above {
        url: above.url.clone(),
        base: format!("{}/{}", above.id, above.base),
        delivery: match wanted.delivery {
            Delivery::Durable => devices::Delivery::Durable(wanted.keep),
            Delivery::Direct => devices::Delivery::Direct,
        },
    });
    config
}
