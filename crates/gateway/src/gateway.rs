//! A description that runs, with everything that it asks for.

use crate::{
    Change, Configured, ProgramHandlers, ReloadError, RunError, api,
    api::StatusAnswer,
    control::ControlListeners,
    programs::{ProgramError, Programs},
    services,
};
use gatewright_bindings::services::{ServiceError, Services};
use gatewright_config::Config;
use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A description that runs: links, handlers, proxies, programs, devices and service entity, control
/// socket and metrics page.
pub struct Gateway {
    configured: Arc<Mutex<Configured>>,
    programs: Programs,
    /// The gateway attaches to them for as long as they are here.
    _handlers: Arc<dyn ProgramHandlers>,
    services: Option<Arc<Services>>,
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

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("programs", &self.programs).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Starts everything that `config` asks for: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// [`StartError`] names what failed.
    pub fn start(config: &Config, options: StartOptions) -> Result<Self, StartError> {
        let StartOptions { seed, file, socket, default_socket, say } = options;
        let mut configured = Configured::open(config, seed)?;
        if let Some(file) = file {
            configured.set_file(file);
        }
        let services = services::start(&say, config, &mut configured)?;
        let programs = Programs::start(&config.programs, seed)?;
        programs.notes().iter().for_each(|note| say(note));
        configured.add_part(programs.part());
        let handlers: Arc<dyn ProgramHandlers> = Arc::new(programs.clone());
        configured.set_programs(&handlers)?;
        say_links(&say, config, &configured)?;
        let configured = Arc::new(Mutex::new(configured));
        let listeners =
            ControlListeners::serve(say, socket, default_socket, &config.control, &configured)
                .map_err(StartError::Control)?;
        lock(&configured).on_control(listeners.on_reload());
        Ok(Self { configured, programs, _handlers: handlers, services })
    }

    /// Takes `config` for the description in force; what has changed.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; then the gateway is as it was.
    pub fn reload(&self, config: &Config) -> Result<Vec<Change>, ReloadError> {
        lock(&self.configured).reload(config)
    }

    /// What the gateway is and has counted.
    ///
    /// # Errors
    ///
    /// In words, if its workers have ended.
    pub fn status(&self) -> Result<StatusAnswer, String> {
        api::status(&lock(&self.configured))
    }

    /// Ends everything; what the gateway had counted then. Control socket and metrics page end
    /// first, and with them who asks there.
    ///
    /// # Errors
    ///
    /// In words, if its workers had ended before.
    pub fn stop(self) -> Result<StatusAnswer, String> {
        let ended = lock(&self.configured).end_control();
        drop(ended);
        let status = self.status();
        drop(self.configured);
        self.programs.stop();
        if let Some(services) = self.services {
            services.stop();
        }
        status
    }
}

fn lock(configured: &Mutex<Configured>) -> MutexGuard<'_, Configured> {
    configured.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says loudly which mode each link got and why.
fn say_links(say: &Say, config: &Config, configured: &Configured) -> Result<(), RunError> {
    for link in configured.planes().status()?.links {
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
