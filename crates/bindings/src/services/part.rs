//! CSE and device listener as parts of a gateway.

use super::{ServiceError, Services, difference};
use gatewright_config::Config;
use gatewright_part::{Change, Part, Staged, Told, Unable, Unchanged};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The service parts, in the order in which they take a description. Without services they report
/// nothing, and list the settings that need a restart.
pub fn parts(services: Option<Arc<Services>>) -> Vec<Arc<dyn Part>> {
    let devices = Devices(services.as_ref().map_or_else(Weak::new, Arc::downgrade));
    vec![Arc::new(Entity(Mutex::new(services))), Arc::new(devices)]
}

/// The CSE. It stages a description for both parts, since devices' data goes to the CSE's
/// resources.
struct Entity(Mutex<Option<Arc<Services>>>);

impl Entity {
    fn running(&self) -> Option<Arc<Services>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Part for Entity {
    fn name(&self) -> &'static str {
        "cse"
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        let renewed = self.running().is_some_and(|it| it.cse_certificates_differ(new));
        or_renewed(difference::cse(old, new), "[cse.tls]", renewed)
    }

    fn stage(&self, _: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        let Some(services) = self.running() else { return Ok(Box::new(Unchanged)) };
        Ok(Box::new(services.take(new)?))
    }

    fn tell(&self) -> Told {
        self.running().map(|services| services.cse_told()).unwrap_or_default()
    }

    fn stop(&self) {
        let services = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(services) = services {
            services.stop();
        }
    }
}

/// The device listener, which the CSE part reconfigures and ends.
struct Devices(Weak<Services>);

impl Part for Devices {
    fn name(&self) -> &'static str {
        "devices"
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        let running = self.0.upgrade();
        let renewed = running.is_some_and(|it| it.devices_certificates_differ(new));
        or_renewed(difference::devices(old, new), "[devices.tls]", renewed)
    }

    fn stage(&self, _: &Config, _: &Config) -> Result<Box<dyn Staged>, Unable> {
        Ok(Box::new(Unchanged))
    }

    fn tell(&self) -> Told {
        self.0.upgrade().and_then(|services| services.devices_told()).unwrap_or_default()
    }
}

/// The differences; or, if the description's text is the same, changed certificate files.
fn or_renewed(mut found: Vec<Change>, table: &str, renewed: bool) -> Vec<Change> {
    if found.is_empty() && renewed {
        found.push(Change::new(table, "what its files of certificates hold changed"));
    }
    found
}

impl From<ServiceError> for Unable {
    fn from(error: ServiceError) -> Self {
        let (key, why) = error.key();
        Self { key: Some(key.to_owned()), why }
    }
}
