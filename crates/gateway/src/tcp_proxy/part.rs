//! The TCP proxies of a description, as a part of its gateway.

use super::{Counts, TcpProxy, TcpProxyCounters, TcpProxySetup};
use crate::{RunError, difference};
use gatewright_config::{self as config, Config};
use gatewright_part::{Change, Part, PartStatus, Sojourn, Staged, Unable};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The proxies of a gateway, by name. Counters of removed proxies are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct TcpProxies(Arc<Mutex<RunningProxies>>);

#[derive(Debug, Default)]
struct RunningProxies {
    proxies: Vec<(String, TcpProxy)>,
    /// Counters of proxies whose threads are ending.
    ending: Vec<Arc<Counts>>,
    /// Counters of proxies that have ended.
    ended: TcpProxyCounters,
}

impl RunningProxies {
    /// Counters of removed proxies.
    fn gone(&self) -> TcpProxyCounters {
        self.ending.iter().map(|counts| counts.read()).fold(self.ended, TcpProxyCounters::and)
    }
}

impl TcpProxies {
    /// Starts the proxies of `config`.
    pub(crate) fn start(config: &Config) -> Result<Self, RunError> {
        let this = Self::default();
        config.tcp_proxies.iter().try_for_each(|proxy| this.begin(proxy))?;
        Ok(this)
    }

    fn lock(&self) -> MutexGuard<'_, RunningProxies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, proxy: &config::TcpProxy) -> Result<(), RunError> {
        let setup = TcpProxySetup {
            listen: proxy.listen.value,
            server: proxy.forward.value,
            connections_max: proxy.connections_max,
            idle: proxy.idle,
            connect: proxy.connect,
        };
        let name = proxy.name.value.clone();
        match TcpProxy::start(setup) {
            Ok(proxy) => self.lock().proxies.push((name, proxy)),
            Err(source) => return Err(RunError::TcpProxy { name, source }),
        }
        Ok(())
    }

    /// Ends one proxy, and its connections.
    fn end(&self, name: &str) {
        let mut running = self.lock();
        let Some(at) = running.proxies.iter().position(|(known, _)| known == name) else { return };
        let (_, proxy) = running.proxies.remove(at);
        let counts = Arc::clone(&proxy.counts);
        running.ending.push(Arc::clone(&counts));
        drop(running);
        // Its thread is gone then, and counts no more.
        drop(proxy);
        let mut running = self.lock();
        running.ending.retain(|other| !Arc::ptr_eq(other, &counts));
        running.ended = running.ended.and(counts.read());
    }

    /// Ends changed TCP proxies with their connections, and starts new ones; all of them or none.
    fn exchange(&self, old: &Config, new: &Config) -> Result<(), RunError> {
        let (old, new) = (&old.tcp_proxies, &new.tcp_proxies);
        let gone: Vec<_> = old.iter().filter(|proxy| !new.contains(proxy)).collect();
        let come = new.iter().filter(|proxy| !old.contains(proxy));
        // Whoever listens where another one does can begin only when that one has ended; the others
        // begin first, so that what fails cuts no connection.
        let taken = |proxy: &config::TcpProxy| {
            gone.iter().any(|gone| {
                gone.listen.value == proxy.listen.value || gone.name.value == proxy.name.value
            })
        };
        let (later, first): (Vec<_>, Vec<_>) = come.partition(|proxy| taken(proxy));
        self.start_all(&first)?;
        self.end_all(&gone);
        if let Err(error) = self.start_all(&later) {
            self.end_all(&first);
            // Their ports were their own a moment ago.
            let _free = self.start_all(&gone);
            return Err(error);
        }
        Ok(())
    }

    /// Starts all of them or none.
    fn start_all(&self, proxies: &[&config::TcpProxy]) -> Result<(), RunError> {
        for (at, proxy) in proxies.iter().enumerate() {
            if let Err(error) = self.begin(proxy) {
                self.end_all(proxies.get(..at).unwrap_or_default());
                return Err(error);
            }
        }
        Ok(())
    }

    fn end_all(&self, proxies: &[&config::TcpProxy]) {
        for proxy in proxies {
            self.end(&proxy.name.value);
        }
    }
}

impl Part for TcpProxies {
    fn name(&self) -> &'static str {
        "tcp_proxy"
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        difference::tcp_proxies(old, new)
    }

    fn stage(&self, old: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        self.exchange(old, new)?;
        let (this, before, after) = (self.clone(), old.clone(), new.clone());
        Ok(Box::new(StagedProxies { this, before, after }))
    }

    fn stop(&self) {
        let all = std::mem::take(&mut self.lock().proxies);
        drop(all);
    }

    /// The combined report of all of them; nothing if there never was one.
    fn tell(&self) -> PartStatus {
        let running = self.lock();
        if running.proxies.is_empty() && running.gone() == TcpProxyCounters::default() {
            return PartStatus::default();
        }
        let words = running.proxies.iter().map(|(_, proxy)| {
            let TcpProxySetup { listen, server, .. } = proxy.setup;
            ("relays", format!("{listen} to {server}"))
        });
        let each = running.proxies.iter().map(|(_, proxy)| proxy.counters());
        let sum = each.fold(running.gone(), TcpProxyCounters::and);
        let sojourns = running.proxies.iter().map(|(name, proxy)| Sojourn {
            mode: "tcp_proxy",
            relay: Some(name.clone()),
            times: proxy.times(),
            ..Sojourn::default()
        });
        let short = running.proxies.iter().filter_map(|(_, proxy)| {
            let (shortage, listen) = (proxy.descriptors.shortage()?, proxy.setup.listen);
            Some(("connections", format!("{listen}: with all else in this process {shortage}")))
        });
        PartStatus {
            words: words.chain(short).collect(),
            gauges: vec![("open_connections", sum.open)],
            counters: vec![
                ("accepted", sum.accepted),
                ("ended", sum.ended),
                ("refused", sum.refused),
                ("unreachable", sum.unreachable),
                ("broken", sum.broken),
                ("idle", sum.idle),
                ("octets_to_server", sum.octets_to_server),
                ("octets_to_clients", sum.octets_to_clients),
            ],
            sojourns: sojourns.collect(),
            ..PartStatus::default()
        }
    }
}

struct StagedProxies {
    this: TcpProxies,
    before: Config,
    after: Config,
}

impl Staged for StagedProxies {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        Ok(Vec::new())
    }

    fn undo(self: Box<Self>) {
        // Ports that were theirs a moment ago are free.
        let _free = self.this.exchange(&self.after, &self.before);
    }
}
