//! The forwarder of devices' reports in the data plane, as a part of its gateway; and the gateway's own
//! stack, as devices use it.

use crate::{
    RunError,
    links::{Links, report_route},
};
use gatewright_config::Config;
use gatewright_part::{Change, Part, PartStatus, Staged, Unable, Unchanged};
use gatewright_planes::{
    ReportForwarder, ReportForwarderCounts, ReportForwarderSetup, ReportRoute,
};
use gatewright_stack::Sockets;
use gatewright_tables::EntityWriters;
use std::{
    fmt,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

/// The sockets of the own stack and the AE table for the devices of `config`, if they have a port
/// there.
pub(crate) fn own_stack(links: &Links, config: &Config) -> Option<(Sockets, EntityWriters)> {
    config.devices.as_ref()?.stack.as_ref()?;
    let planes = links.planes();
    let entities = planes.change_host(|host| host.tables_mut().entities.take())?;
    Some((planes.sockets().clone(), entities))
}

/// The running forwarder, if the description has one.
pub(crate) struct ReportForwarding(Mutex<Option<(ReportForwarder, SocketAddr)>>);

impl fmt::Debug for ReportForwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReportForwarding")
    }
}

impl ReportForwarding {
    /// Starts the forwarder of `config`.
    pub(crate) fn start(links: &Links, config: &Config) -> Result<Self, RunError> {
        let Some(setup) = setup(config) else { return Ok(Self(Mutex::new(None))) };
        let planes = links.planes();
        let entities = planes.change_host(|host| host.tables_mut().data_entities());
        let started = ReportForwarder::start(planes.sockets(), setup, &entities);
        let started = started.map_err(|source| RunError::ReportForwarder { source })?;
        Ok(Self(Mutex::new(Some((started, setup.cse)))))
    }

    fn counts(&self) -> Option<(ReportForwarderCounts, SocketAddr)> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map(|(running, cse)| (running.counts(), *cse))
    }
}

/// The forwarder of a description.
fn setup(config: &Config) -> Option<ReportForwarderSetup> {
    report_route(config).map(|ReportRoute { listen, cse }| ReportForwarderSetup { listen, cse })
}

impl Part for ReportForwarding {
    fn name(&self) -> &'static str {
        "report_forwarder"
    }

    fn differences(&self, _: &Config, _: &Config) -> Vec<Change> {
        // Its keys are those of devices and CSE, which report them.
        Vec::new()
    }

    fn stage(&self, _: &Config, _: &Config) -> Result<Box<dyn Staged>, Unable> {
        Ok(Box::new(Unchanged))
    }

    fn tell(&self) -> PartStatus {
        let Some((counts, cse)) = self.counts() else { return PartStatus::default() };
        let counters = vec![
            ("reports", counts.reports),
            ("requests", counts.requests),
            ("not_sent", counts.not_sent),
            ("passed_on", counts.passed_on),
            ("strangers", counts.strangers),
            ("created", counts.created),
            ("refused", counts.refused),
            ("plans_unread", counts.plans_unread),
            ("ids_reused", counts.ids_reused),
            ("unmatched", counts.unmatched),
            ("answered", counts.answered),
            ("rejected", counts.rejected),
            ("repeated", counts.repeated),
            ("sent_again", counts.sent_again),
        ];
        let words = vec![("sends_to", format!("coap://{cse}"))];
        PartStatus { words, counters, ..PartStatus::default() }
    }

    fn stop(&self) {
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(ended);
    }
}
