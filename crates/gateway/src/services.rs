//! Devices and the service entity of a description, as parts of its gateway.

use crate::{Change, Configured, Part, PartHistogram, Told, Unable, Undo, gateway::Say};
use gatewright_bindings::services::{self, Difference, ServiceError, Services};
use gatewright_config::Config;
use std::sync::Arc;

/// What a service tells of itself, if it is there.
type Tell = fn(&Services) -> Option<services::Told>;
/// Differences between two descriptions in a service's table.
type Differ = fn(&Config, &Config) -> Vec<Difference>;

/// Whether the files of a service's certificates hold others than it uses.
type Renewed = fn(&Services, &Config) -> bool;

/// Starts the service entity and the listener for devices, if the description asks for them, and
/// has the gateway tell of them.
pub(crate) fn start(
    say: &Say,
    config: &Config,
    gateway: &mut Configured,
) -> Result<Option<Arc<Services>>, ServiceError> {
    let Some(services) = Services::start(config)? else { return Ok(None) };
    let parts: [(&str, Tell, Differ, Renewed); 2] = [
        (
            "cse",
            |it| Some(it.cse_told()),
            Services::cse_differences,
            Services::cse_certificates_differ,
        ),
        (
            "devices",
            Services::devices_told,
            Services::devices_differences,
            Services::devices_certificates_differ,
        ),
    ];
    for (name, tell, differ, renewed) in parts {
        let Some(told) = tell(&services) else { continue };
        let words: Vec<_> = told.words.iter().map(|(_, said)| said.as_str()).collect();
        say(&format!("{name}: {}", words.join(", ")));
        let [weak, asked, taker] = [(); 3].map(|()| Arc::downgrade(&services));
        let part = Part::new(name, move || {
            weak.upgrade().and_then(|services| tell(&services)).map(part_told).unwrap_or_default()
        });
        let differences = move |old: &Config, new: &Config| {
            let change = |it: Difference| {
                let made = if it.restart { Change::restart } else { Change::new };
                made(it.key, it.how)
            };
            let mut told: Vec<_> = differ(old, new).into_iter().map(change).collect();
            // What the files hold is no text of the description.
            if told.is_empty() && asked.upgrade().is_some_and(|services| renewed(&services, new)) {
                let how = "what its files of certificates hold changed";
                told.push(Change::new(format!("[{name}.tls]"), how));
            }
            told
        };
        // One of the parts takes all, as they hang together.
        let take = move |config: &Config| match taker.upgrade() {
            Some(services) if name == "cse" => services.take(config).map_err(|error| {
                let (key, why) = error.key();
                Unable { key: Some(key.to_owned()), why }
            }),
            _ => Ok(Box::new(|| {}) as Undo),
        };
        gateway.add_part(part.exchanging(differences, take));
    }
    Ok(Some(services))
}

/// What a service tells, in the words of the planes.
fn part_told(told: services::Told) -> Told {
    let histograms = told.histograms.into_iter().map(|(name, it)| PartHistogram {
        name,
        counts: it.counts().to_vec(),
        sum: it.sum(),
        largest: it.largest(),
    });
    Told {
        words: told.words,
        gauges: told.gauges,
        counters: told.counters,
        histograms: histograms.collect(),
        ..Told::default()
    }
}
