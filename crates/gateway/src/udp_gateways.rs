//! The UDP gateways of a description, as a part of its gateway.

use crate::{RunError, difference, links::Links};
use gatewright_config::{self as config, Config};
use gatewright_part::{Change, Part, Staged, Unable};
use gatewright_planes::{MergeLimit, Series, UdpGateway, UdpGatewaySetup};
use gatewright_stack::Form;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Running UDP gateways, by name.
#[derive(Clone, Debug)]
pub(crate) struct UdpGateways {
    running: Arc<Mutex<Vec<(String, UdpGateway)>>>,
    /// The links whose sockets they use.
    links: Links,
}

impl UdpGateways {
    /// Starts the UDP gateways of `config`.
    pub(crate) fn start(links: &Links, config: &Config) -> Result<Self, RunError> {
        let this = Self { running: Arc::default(), links: links.clone() };
        config.udp_gateways.iter().try_for_each(|relay| this.begin(relay))?;
        Ok(this)
    }

    /// Calls `show` for each with its name.
    pub(crate) fn map<T>(&self, show: impl Fn(&str, &UdpGateway) -> T) -> Vec<T> {
        self.lock().iter().map(|(name, relay)| show(name, relay)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, UdpGateway)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, relay: &config::UdpGateway) -> Result<(), RunError> {
        let name = relay.name.value.clone();
        match UdpGateway::start(self.links.planes().sockets(), setup(relay)) {
            Ok(started) => self.lock().push((name, started)),
            Err(source) => return Err(RunError::UdpGateway { name, source }),
        }
        Ok(())
    }

    /// Ends changed UDP gateways and starts new ones; all of them or none.
    fn exchange(&self, old: &Config, new: &Config) -> Result<(), RunError> {
        let (old, new) = (&old.udp_gateways, &new.udp_gateways);
        let gone: Vec<_> = old.iter().filter(|relay| !new.contains(relay)).collect();
        self.end(&gone);
        let mut started = Vec::new();
        for relay in new.iter().filter(|relay| !old.contains(relay)) {
            if let Err(error) = self.begin(relay) {
                self.end(&started);
                for relay in gone {
                    // Its port was its own a moment ago.
                    let _free = self.begin(relay);
                }
                return Err(error);
            }
            started.push(relay);
        }
        Ok(())
    }

    fn end(&self, relays: &[&config::UdpGateway]) {
        let goes = |(name, _): &mut (String, UdpGateway)| {
            relays.iter().any(|relay| relay.name.value == *name)
        };
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

/// The planes' setup of a described UDP gateway.
fn setup(relay: &config::UdpGateway) -> UdpGatewaySetup {
    let server = relay.forward.value;
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
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
    UdpGatewaySetup { listen, server, series, clients_max: relay.clients_max }
}
