//! The TCP proxies of a description, as a part of its gateway.

use super::{ConnectionTarget, Counts, TcpProxy, TcpProxyCounters, TcpProxySetup};
use crate::{
    RunError,
    balance::{BalanceStatus, Balancer, flow_kind},
    difference,
};
use gatewright_config::{self as config, Config, ProxyTarget};
use gatewright_part::{Change, EventSink, Part, PartStatus, Sojourn, Staged, Unable};
use std::{
    io::ErrorKind,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The proxies of a gateway, by name. Counters of removed proxies are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct TcpProxies {
    running: Arc<Mutex<RunningProxies>>,
    /// Takes the refusals of balances.
    log: EventSink,
}

#[derive(Debug, Default)]
struct RunningProxies {
    proxies: Vec<(String, TcpProxy)>,
    /// The balances of these proxies; several of them share one.
    balancers: Vec<Arc<Balancer>>,
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
    pub(crate) fn start(config: &Config, log: EventSink) -> Result<Self, RunError> {
        let this = Self { running: Arc::default(), log };
        config.tcp_proxies.iter().try_for_each(|proxy| this.begin(proxy, config))?;
        Ok(this)
    }

    /// The balances that proxies use.
    pub(crate) fn balances(&self) -> Vec<BalanceStatus> {
        self.lock().balancers.iter().map(|balancer| balancer.status()).collect()
    }

    /// The balancer of a described balance; one that runs already, if it is the same.
    fn balancer(&self, described: &config::Balance) -> Arc<Balancer> {
        let mut running = self.lock();
        let known = running.balancers.iter().find(|known| known.described() == described);
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let new = Balancer::new(described, self.log.clone());
        running.balancers.push(Arc::clone(&new));
        new
    }

    /// Forgets the balances that no proxy uses.
    fn forget_balances(&self) {
        self.lock().balancers.retain(|balancer| Arc::strong_count(balancer) > 1);
    }

    fn lock(&self) -> MutexGuard<'_, RunningProxies> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a proxy of `config`.
    fn begin(&self, proxy: &config::TcpProxy, config: &Config) -> Result<(), RunError> {
        let target = match &proxy.target {
            ProxyTarget::Server(server) => ConnectionTarget::Server(server.value),
            ProxyTarget::Balance(flow) => {
                // That it is there was checked with the description.
                let Some(described) = balance_of(config, proxy) else {
                    let (name, source) = (proxy.name.value.clone(), ErrorKind::NotFound.into());
                    return Err(RunError::TcpProxy { name, source });
                };
                ConnectionTarget::Balance(self.balancer(described), flow_kind(flow))
            }
        };
        let setup = TcpProxySetup {
            listen: proxy.listen.value,
            target,
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
        let is_in = |config: &Config, proxy: &config::TcpProxy, its: &Config| {
            let same = |other: &config::TcpProxy| {
                other == proxy && balance_of(config, other) == balance_of(its, proxy)
            };
            config.tcp_proxies.iter().any(same)
        };
        let gone: Vec<_> = old.tcp_proxies.iter().filter(|proxy| !is_in(new, proxy, old)).collect();
        let come = new.tcp_proxies.iter().filter(|proxy| !is_in(old, proxy, new));
        // Whoever listens where another one does can begin only when that one has ended; the others
        // begin first, so that what fails cuts no connection.
        let taken = |proxy: &config::TcpProxy| {
            gone.iter().any(|gone| {
                gone.listen.value == proxy.listen.value || gone.name.value == proxy.name.value
            })
        };
        let (later, first): (Vec<_>, Vec<_>) = come.partition(|proxy| taken(proxy));
        self.start_all(&first, new)?;
        self.end_all(&gone);
        let started = self.start_all(&later, new);
        if started.is_err() {
            self.end_all(&first);
            // Their ports were their own a moment ago.
            let _free = self.start_all(&gone, old);
        }
        self.forget_balances();
        started
    }

    /// Starts all of these proxies of `config` or none.
    fn start_all(&self, proxies: &[&config::TcpProxy], config: &Config) -> Result<(), RunError> {
        for (at, proxy) in proxies.iter().enumerate() {
            if let Err(error) = self.begin(proxy, config) {
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
            let TcpProxySetup { listen, target, .. } = &proxy.setup;
            let to = match target {
                ConnectionTarget::Server(server) => server.to_string(),
                ConnectionTarget::Balance(balancer, _) => {
                    format!("balance {}", balancer.described().name.value)
                }
            };
            ("relays", format!("{listen} to {to}"))
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
                ("not_admitted", sum.not_admitted),
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

/// The balance of a proxy of `config`, if it has one.
fn balance_of<'config>(
    config: &'config Config,
    proxy: &config::TcpProxy,
) -> Option<&'config config::Balance> {
    let ProxyTarget::Balance(flow) = &proxy.target else { return None };
    config.balances.iter().find(|balance| balance.name.value == flow.balance.value)
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
