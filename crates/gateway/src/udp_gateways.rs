//! The UDP gateways of a description, as a part of its gateway.

use crate::{
    RunError,
    balance::{BalanceStatus, flow_balance, status_of, watched_counters},
    difference,
    links::Links,
};
use gatewright_config::{self as config, Config, ProxyTarget};
use gatewright_part::{Change, LogLevel, Part, PartStatus, Staged, Unable, Watched, When};
use gatewright_planes::{MergeLimit, Series, UdpGateway, UdpGatewaySetup, UdpTarget};
use gatewright_stack::Form;
use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Running UDP gateways, by name.
#[derive(Clone, Debug)]
pub(crate) struct UdpGateways {
    running: Arc<Mutex<Vec<RunningGateway>>>,
    /// The links whose sockets they use.
    links: Links,
    /// Whether there was one at the start: the gateway watches refusals then.
    watches: bool,
}

#[derive(Debug)]
struct RunningGateway {
    name: String,
    gateway: UdpGateway,
    /// The relays that share its clients, and the flow that each client is.
    balance: Option<(config::Balance, config::BalancedFlow)>,
}

impl UdpGateways {
    /// Starts the UDP gateways of `config`.
    pub(crate) fn start(links: &Links, config: &Config) -> Result<Self, RunError> {
        let watches = !config.udp_gateways.is_empty();
        let this = Self { running: Arc::default(), links: links.clone(), watches };
        config.udp_gateways.iter().try_for_each(|relay| this.begin(relay, config))?;
        Ok(this)
    }

    /// The balances that they use.
    pub(crate) fn balances(&self) -> Vec<BalanceStatus> {
        let running = self.lock();
        let status = |one: &RunningGateway| {
            let (balance, flow) = one.balance.as_ref()?;
            let counts = one.gateway.balance_counts()?;
            Some(status_of(balance, flow, counts))
        };
        running.iter().filter_map(status).collect()
    }

    /// Calls `show` for each with its name.
    pub(crate) fn map<T>(&self, show: impl Fn(&str, &UdpGateway) -> T) -> Vec<T> {
        self.lock().iter().map(|one| show(&one.name, &one.gateway)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RunningGateway>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, relay: &config::UdpGateway, config: &Config) -> Result<(), RunError> {
        let name = relay.name.value.clone();
        let balance = balance_of(config, relay);
        // That the balance is there was checked with the description.
        let setup = setup(relay, balance.as_ref()).ok_or_else(|| ErrorKind::NotFound.into());
        match setup.and_then(|setup| UdpGateway::start(self.links.planes().sockets(), setup)) {
            Ok(gateway) => self.lock().push(RunningGateway { name, gateway, balance }),
            Err(source) => return Err(RunError::UdpGateway { name, source }),
        }
        Ok(())
    }

    /// Ends changed UDP gateways and starts new ones; all of them or none.
    fn exchange(&self, old: &Config, new: &Config) -> Result<(), RunError> {
        let is_in = |config: &Config, relay: &config::UdpGateway, its: &Config| {
            let same = |other: &config::UdpGateway| {
                other == relay && balance_of(config, other) == balance_of(its, relay)
            };
            config.udp_gateways.iter().any(same)
        };
        let gone = old.udp_gateways.iter().filter(|relay| !is_in(new, relay, old));
        let gone: Vec<_> = gone.collect();
        self.end(&gone);
        let mut started = Vec::new();
        for relay in new.udp_gateways.iter().filter(|relay| !is_in(old, relay, new)) {
            if let Err(error) = self.begin(relay, new) {
                self.end(&started);
                for relay in gone {
                    // Its port was its own a moment ago.
                    let _free = self.begin(relay, old);
                }
                return Err(error);
            }
            started.push(relay);
        }
        Ok(())
    }

    fn end(&self, relays: &[&config::UdpGateway]) {
        let goes =
            |one: &mut RunningGateway| relays.iter().any(|relay| relay.name.value == one.name);
        let gone: Vec<_> = self.lock().extract_if(.., goes).collect();
        drop(gone);
    }
}

impl Part for UdpGateways {
    fn name(&self) -> &'static str {
        "udp_gateways"
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        difference::udp_gateways(old, new)
    }

    fn stage(&self, old: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        self.exchange(old, new)?;
        let (this, before, after) = (self.clone(), old.clone(), new.clone());
        Ok(Box::new(StagedUdp { this, before, after }))
    }

    fn watched(&self) -> &'static [Watched] {
        if self.watches { &WATCHED } else { &[] }
    }

    /// Datagrams refused for want of room for their clients; the refusals of all balances, and how often
    /// their relays were left out.
    fn tell(&self) -> PartStatus {
        let running = self.lock();
        let counts = running.iter().filter_map(|one| one.gateway.balance_counts());
        let mut counters = watched_counters(counts.map(|counts| counts.watched()));
        let refused = running.iter().map(|one| one.gateway.counts().datagrams_refused).sum();
        counters.push(("datagrams_refused", refused));
        PartStatus { counters, ..PartStatus::default() }
    }

    fn stop(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }
}

struct StagedUdp {
    this: UdpGateways,
    before: Config,
    after: Config,
}

impl Staged for StagedUdp {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        Ok(Vec::new())
    }

    fn undo(self: Box<Self>) {
        // Ports that were theirs a moment ago are free.
        let _free = self.this.exchange(&self.after, &self.before);
    }
}

/// Changes that are events.
static WATCHED: [Watched; 6] = [
    Watched {
        name: "datagrams_refused",
        when: When::Grows,
        level: LogLevel::Warning,
        kind: "datagrams-refused",
        text: "UDP gateways refuse datagrams of new clients, for which they have no room; a larger `clients_max` makes room, and \
               many clients of one address leave the last quarter to others",
    },
    Watched {
        name: "flows_refused",
        when: When::Grows,
        level: LogLevel::Warning,
        kind: "flow-refused",
        text: "no relay can carry clients of UDP gateways within their bounds; more relays, or a \
               wider bound, would",
    },
    Watched {
        name: "relays_left_out",
        when: When::Grows,
        level: LogLevel::Warning,
        kind: "relay-left-out",
        text: "relays of UDP gateways do not answer, and their clients go to others; `status` says \
               which",
    },
    Watched {
        name: "relays_back",
        when: When::Grows,
        level: LogLevel::Info,
        kind: "relay-back",
        text: "relays of UDP gateways answer again",
    },
    Watched {
        name: "relays_drift",
        when: When::Grows,
        level: LogLevel::Warning,
        kind: "relay-drifts",
        text: "relays of UDP gateways take longer or shorter to serve a datagram than their models \
               say, and flows are placed by that; `status` says which",
    },
    Watched {
        name: "relays_steady",
        when: When::Grows,
        level: LogLevel::Info,
        kind: "relay-steady",
        text: "relays of UDP gateways take as long as their models say, or give no answers to measure",
    },
];

/// The balance of a UDP gateway of `config`, with the flow that each client is; none without one.
fn balance_of(
    config: &Config,
    relay: &config::UdpGateway,
) -> Option<(config::Balance, config::BalancedFlow)> {
    let ProxyTarget::Balance(flow) = &relay.target else { return None };
    let balance = config.balances.iter().find(|known| known.name.value == flow.balance.value)?;
    Some((balance.clone(), flow.clone()))
}

/// The planes' setup of a described UDP gateway; `None` if its balance is not there.
fn setup(
    relay: &config::UdpGateway,
    balance: Option<&(config::Balance, config::BalancedFlow)>,
) -> Option<UdpGatewaySetup> {
    let target = match (&relay.target, balance) {
        (ProxyTarget::Server(server), _) => UdpTarget::Server(server.value),
        (ProxyTarget::Balance(_), balance) => {
            let (balance, flow) = balance?;
            UdpTarget::Balance(flow_balance(balance, flow))
        }
    };
    let is_ipv4 = target.addresses().next().is_none_or(|server| server.is_ipv4());
    let any: IpAddr =
        if is_ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let ip = relay.address.as_ref().map_or(any, |address| address.value);
    let limit = match relay.merge {
        config::Merge::Off => None,
        config::Merge::Octets(octets) => Some(MergeLimit::Octets(octets.into())),
        config::Merge::PathMtu => Some(MergeLimit::PathMtu),
    };
    let series = match (relay.series, limit) {
        (config::Series::Split, _) => Series::Split,
        (_, None) => Series::Plain,
        (config::Series::Plain, Some(limit)) => Series::Merge(Form::Plain, limit),
        (config::Series::Merge, Some(limit)) => Series::Merge(Form::Prefixed, limit),
    };
    let listen = SocketAddr::new(ip, relay.port.value);
    Some(UdpGatewaySetup { listen, target, series, clients_max: relay.clients_max })
}
