//! Starts the device listeners: all that is bound, read and known to the engine before the first device
//! connects.

use super::associating::{AssociationTurns, IN_WORK_MAX};
use super::entities::Entities;
use super::home_assistant::HomeAssistant;
use super::latest::LatestReadings;
use super::refusals::Refusals;
use super::shards::Shards;
use super::state::State;
use super::transport::listener_addresses;
use super::unassociated::Unassociated;
use super::{
    CLOSING_MAX, DevicesConfig, ListenerContext, OwnStack, RunningDevices, Shared, ask, forwarded,
    now, places,
};
use crate::accept::{Admission, Peers};
use crate::engine::{CALLS_MAX, Engine};
use crate::keyring::{Keyring, Keys};
use crate::listeners::{Bound, CannotListen, ListenerAddress, ListenerKind, Listeners};
use crate::mqtt::UrlError;
use crate::queue_set::QueueSet;
use crate::tasks::spawn;
use crate::tls::TlsError;
use gatewright_descriptors::Claim;
use gatewright_health::configuration::Library;
use gatewright_stack::Sockets;
use gatewright_tables::EntityWriters;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Instant;
use tokio::sync::{mpsc, watch};

/// Why the device listeners cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be bound.
    #[error(transparent)]
    Listen(#[from] CannotListen),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The broker of Home Assistant has no URL of a broker.
    #[error(transparent)]
    Broker(#[from] UrlError),
    /// There is no memory for the table of associations.
    #[error("no table for the associations: {0}")]
    Table(#[source] io::Error),
}

/// Starts the listeners for devices whose readings go to `engine`.
///
/// # Errors
///
/// [`StartError`]: either every listener is bound or none starts.
pub async fn start(
    config: DevicesConfig,
    engine: Arc<Engine>,
) -> Result<RunningDevices, StartError> {
    start_over(config, engine, None).await
}

/// As [`start`], with the gateway's own stack, where [`DevicesConfig::stack`] is bound.
///
/// # Errors
///
/// As [`start`].
pub async fn start_over(
    mut config: DevicesConfig,
    engine: Arc<Engine>,
    own_stack: Option<OwnStack>,
) -> Result<RunningDevices, StartError> {
    let connections_max = config.connections_max.saturating_mul(2).saturating_add(CLOSING_MAX);
    // Datagrams of all devices come by one socket.
    let descriptors = Claim::new(u64::try_from(connections_max).unwrap_or(u64::MAX));
    let (sockets, of_data_plane) = own_stack.map(|it| (it.sockets, it.entities)).unzip();
    let bound = bind_all(&config, sockets.as_ref())?;
    let keyring = Arc::new(read_keyring(&config)?);
    let peers = Arc::new(Peers::new(config.connections_per_peer_max));
    let admission = Admission::new(connections_max, &peers);
    let unassociated = Unassociated::new(config.connections_max);
    let lost = Arc::new(QueueSet::new(config.connections_max));
    let (calls, asked) = mpsc::channel(CALLS_MAX);
    let connections_max = config.connections_max;
    let silent = std::mem::take(&mut config.silent);
    let home_assistant = config.home_assistant.take();
    let shared = make_shared(config, Arc::clone(&engine), of_data_plane).await?;
    engine.send_device_calls(calls);
    engine.tell_lost(Arc::clone(&lost));
    engine.set_unstored(shared.latest.clone());
    now::tell_of(&shared);
    shared.watch_silence(silent).await;
    shared.home_assistant.set(home_assistant, &shared.mapping)?;
    let (stop, stopped) = watch::channel(false);
    let tasks = vec![
        spawn(ask::serve(Arc::clone(&shared), asked, stopped.clone())),
        spawn(places::serve(Arc::clone(&shared), Arc::clone(&lost), stopped.clone())),
        spawn(forwarded::serve(Arc::clone(&shared), stopped.clone())),
    ];
    let (connection_guard, connections) = mpsc::channel(1);
    let context = ListenerContext {
        shared,
        admission,
        unassociated,
        connections_max,
        keyring,
        stopped,
        connection_guard,
    };
    let listeners = Listeners::new(bound.into_iter().map(|bound| context.serve(bound)).collect());
    Ok(RunningDevices { context, listeners, lost, connections, stop, tasks, descriptors })
}

/// Binds every listener of `config`; those of the gateway's own stack at `sockets`.
fn bind_all(config: &DevicesConfig, sockets: Option<&Sockets>) -> Result<Vec<Bound>, CannotListen> {
    let bind = |place: ListenerAddress| match sockets {
        Some(sockets) if place.kind == ListenerKind::DevicesStack => {
            Bound::on_stack(sockets, place.address)
        }
        _ => Bound::take(place),
    };
    listener_addresses(config).into_iter().map(bind).collect()
}

/// The certificates of the TLS listener; a reload may add one.
fn read_keyring(config: &DevicesConfig) -> Result<OnceLock<Arc<Keyring>>, TlsError> {
    let Some((_, tls)) = &config.tls else { return Ok(OnceLock::new()) };
    Ok(OnceLock::from(Keyring::new(Keys::read(tls)?)))
}

/// The state that all connections share, with the policy that authorises operators.
async fn make_shared(
    config: DevicesConfig,
    engine: Arc<Engine>,
    of_data_plane: Option<EntityWriters>,
) -> Result<Arc<Shared>, StartError> {
    let mut library = Library::standard();
    library.admit(config.admitted.clone());
    let policy = ask::make_policy(&engine, &config, false).await;
    let latest = Arc::new(LatestReadings::of(&config, of_data_plane.as_ref()));
    let entities = Entities::new(config.connections_max, of_data_plane);
    let entities = entities.map_err(|error| StartError::Table(io::Error::other(error)))?;
    Ok(Arc::new(Shared {
        engine,
        base: config.base,
        mapping: config.mapping,
        manager: config.manager,
        started: Instant::now(),
        above: RwLock::new(config.above.map(Arc::new)),
        system_id: RwLock::new(config.system_id),
        library: Mutex::new(library),
        shards: Shards::new(),
        refusals: Refusals::default(),
        turns: AssociationTurns::new(IN_WORK_MAX),
        silent_after: RwLock::default(),
        is_silence_watched: AtomicBool::new(false),
        home_assistant: HomeAssistant::default(),
        latest,
        state: Mutex::new(State::new(policy, entities)),
        #[cfg(test)]
        locked: std::sync::atomic::AtomicU64::new(0),
    }))
}
