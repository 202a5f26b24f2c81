//! A description that runs, with everything that it asks for.

use crate::{
    RunError, api,
    api::StatusAnswer,
    control::ControlListeners,
    handlers::Handlers,
    links::Links,
    messages::Messages,
    programs::{ProgramError, Programs},
    tcp_proxy::TcpProxies,
    udp_gateways::UdpGateways,
};
use gatewright_bindings::services::{self, ServiceError, Services};
use gatewright_config::Config;
use gatewright_part::{Part, PartAnswer, Told};
use gatewright_planes::Planes;
use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A description that runs: links, handlers, proxies, programs, devices and service entity, control
/// socket and metrics page, each a [`Part`].
#[derive(Debug)]
pub struct Gateway {
    /// Ended before the planes whose sockets they use.
    pub(crate) udp_gateways: UdpGateways,
    pub(crate) messages: Messages,
    pub(crate) handlers: Handlers,
    pub(crate) links: Links,
    tcp_proxies: TcpProxies,
    programs: Programs,
    services: ServiceParts,
    control: ControlListeners,
    /// The description in force. Whoever changes what runs holds it; to tell needs no lock.
    in_force: Mutex<Config>,
    file: Option<String>,
}

/// Service entity and listener for devices, in the order in which they take a description.
struct ServiceParts(Vec<Arc<dyn Part>>);

impl fmt::Debug for ServiceParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|part| part.name())).finish()
    }
}

/// Says in a line for the operator how something was begun.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// How a description is started.
pub struct StartOptions {
    /// The start of all randomness.
    pub seed: u64,
    /// The description's file, which `reload` reads again.
    pub file: Option<String>,
    /// The control socket, whatever the description says.
    pub socket: Option<PathBuf>,
    /// The control socket where nobody says another.
    pub default_socket: PathBuf,
    /// Is told what listens where, and by which mode each link was opened.
    pub say: Say,
}

impl fmt::Debug for StartOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartOptions").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Why a description does not start. Then nothing of it runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Links, handlers or proxies.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Devices or the service entity.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// Programs.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The control socket or the metrics page, in words for the operator.
    #[error("{0}")]
    Control(String),
}

impl StartError {
    /// The exit code of a program that ends for this (`sysexits.h`).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_code(),
            Self::Program(error) => error.exit_code(),
            Self::Service(_) | Self::Control(_) => 69,
        }
    }

    /// The key of the description that asks for what cannot be had, and why, if it is one.
    pub fn refused(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Service(error) => Some(error.key()),
            _ => None,
        }
    }
}

impl Gateway {
    /// Runs what `config` describes, all of it or nothing; control socket and metrics page are left
    /// out. `seed` begins all randomness.
    ///
    /// # Errors
    ///
    /// [`StartError`] names what failed.
    pub fn open(config: &Config, seed: u64) -> Result<Self, StartError> {
        Self::begin(config, seed, None, &|_| {})
    }

    /// Runs what `config` describes: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// [`StartError`] names what failed.
    pub fn start(config: &Config, options: StartOptions) -> Result<Arc<Self>, StartError> {
        let StartOptions { seed, file, socket, default_socket, say } = options;
        let gateway = Arc::new(Self::begin(config, seed, file, &*say)?);
        let control = &config.control;
        (gateway.control.serve(say, socket, default_socket, control, &gateway))
            .map_err(StartError::Control)?;
        Ok(gateway)
    }

    fn begin(
        config: &Config,
        seed: u64,
        file: Option<String>,
        say: &dyn Fn(&str),
    ) -> Result<Self, StartError> {
        let links = Links::open(config, seed)?;
        let handlers = Handlers::start(&links, config)?;
        let udp_gateways = UdpGateways::start(&links, config)?;
        let tcp_proxies = TcpProxies::start(config)?;
        let services = services::parts(Services::start(config)?);
        for part in &services {
            let words = part.tell().words.into_iter().map(|(_, said)| said);
            let words: Vec<_> = words.collect();
            if !words.is_empty() {
                say(&format!("{}: {}", part.name(), words.join(", ")));
            }
        }
        let programs = Programs::start(&config.programs, seed)?;
        programs.notes().iter().for_each(|note| say(note));
        let messages = Messages::start(&links, &programs, config)?;
        say_links(say, config, &links)?;
        Ok(Self {
            udp_gateways,
            messages,
            handlers,
            links,
            tcp_proxies,
            programs,
            services: ServiceParts(services),
            control: ControlListeners::default(),
            in_force: Mutex::new(config.clone()),
            file,
        })
    }

    /// The description in force. Held, nobody else changes what runs.
    pub(crate) fn in_force(&self) -> MutexGuard<'_, Config> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parts in the order in which they stage a description: programs before the handlers at
    /// their messages, and these before the handlers at packets, as all take ids of one row; links
    /// before those who use their sockets. What is quick to say that it cannot comes early.
    pub(crate) fn stage_order(&self) -> Vec<&dyn Part> {
        let services = self.services.0.iter().map(|part| &**part);
        let own: [&dyn Part; 7] = [
            &self.programs,
            &self.messages,
            &self.handlers,
            &self.links,
            &self.udp_gateways,
            &self.tcp_proxies,
            &self.control,
        ];
        services.chain(own).collect()
    }

    /// The parts in the order of a description.
    pub(crate) fn told_order(&self) -> Vec<&dyn Part> {
        let own: [&dyn Part; 7] = [
            &self.links,
            &self.handlers,
            &self.messages,
            &self.udp_gateways,
            &self.tcp_proxies,
            &self.control,
            &self.programs,
        ];
        own.into_iter().chain(self.services.0.iter().rev().map(|part| &**part)).collect()
    }

    /// What its parts tell; one that has nothing to tell is there for what a reload brings.
    pub(crate) fn parts_told(&self) -> Vec<PartAnswer> {
        let [proxies, programs]: [&dyn Part; 2] = [&self.tcp_proxies, &self.programs];
        let services = self.services.0.iter().map(|part| &**part);
        let told = [proxies].into_iter().chain(services).chain([programs]);
        let told = told.map(|part| PartAnswer { name: part.name(), told: part.tell() });
        told.filter(|part| part.told != Told::default()).collect()
    }

    /// Takes in a part that an embedder runs: it stages descriptions behind devices and service entity.
    #[must_use]
    pub fn with_part(mut self, part: Arc<dyn Part>) -> Self {
        self.services.0.push(part);
        self
    }

    /// The planes, for handlers and sockets of an embedder.
    pub fn planes(&self) -> &Planes {
        self.links.planes()
    }

    /// The file of the description, if there is one.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// What the gateway is and has counted. It waits for no reload.
    ///
    /// # Errors
    ///
    /// In words, if its workers have ended.
    pub fn status(&self) -> Result<StatusAnswer, String> {
        api::status(self)
    }

    /// Ends everything; what the gateway had counted then. Control socket and metrics page end
    /// first, and with them who asks there.
    ///
    /// # Errors
    ///
    /// In words, if its workers had ended before.
    pub fn stop(&self) -> Result<StatusAnswer, String> {
        self.control.stop();
        let status = self.status();
        self.told_order().into_iter().for_each(Part::stop);
        status
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.told_order().into_iter().for_each(Part::stop);
    }
}

/// Says loudly which mode each link got and why.
fn say_links(say: &dyn Fn(&str), config: &Config, links: &Links) -> Result<(), RunError> {
    for link in links.planes().status()?.links {
        let (name, device, mode, why) = (link.name, link.device, link.mode, link.why);
        let (kernel, mtu, addresses) = (link.kernel, link.mtu, link.addresses.join(", "));
        say(&format!("link {name}: {device} by {mode}, {why}; {kernel}; MTU {mtu}, {addresses}"));
    }
    for relay in &config.tcp_proxies {
        let (name, to) = (&relay.name.value, relay.forward.value);
        say(&format!("tcp_proxy {name}: relays {} to {to}", relay.listen.value));
    }
    Ok(())
}
