//! Delay models of everything that passes a gateway: packets in the graph, octets in proxies,
//! requests in programs. A thread reads their sojourn histograms; nothing is added where they pass.

use crate::events::EventLog;
use gatewright_delay::{DelayReading, LiveModel, ServerCount};
use gatewright_part::{LogEvent, LogLevel, Sojourn};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

/// The delay model of a relay or program, and its last reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RelayDelay {
    /// How it passes: `graph`, `tcp_proxy`, `program`.
    pub mode: &'static str,
    /// The relay's or program's name, if there can be several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
    /// The handler of a program, with its role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// The reading.
    #[serde(flatten)]
    pub reading: DelayReading,
}

/// Mode, relay and handler of a histogram.
type RelayKey = (&'static str, Option<String>, Option<String>);

/// Time between two reads of all histograms.
const READ_EVERY: Duration = Duration::from_secs(5);

/// Models at the most: three histograms each, some 20 kB. Further relays have none.
const MODELS_MAX: usize = 1024;

/// The models of a gateway.
#[derive(Debug)]
struct DelayModels {
    models: BTreeMap<RelayKey, LiveModel>,
    /// Workers that serve packets at the same time.
    workers: u32,
    /// Relays without a model, as there are too many.
    left_out: u64,
}

/// A thread that keeps the models until this value is dropped.
pub(crate) struct DelayWatch {
    models: Arc<Mutex<DelayModels>>,
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for DelayWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayWatch").finish_non_exhaustive()
    }
}

impl DelayWatch {
    /// Reads the histograms of `read` from now on. Packets are served by so many workers; drift is
    /// logged.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub(crate) fn start(
        read: impl Fn() -> Vec<Sojourn> + Send + 'static,
        workers: u16,
        log: &EventLog,
    ) -> io::Result<Self> {
        let models = DelayModels { models: BTreeMap::new(), workers: workers.into(), left_out: 0 };
        let models = Arc::new(Mutex::new(models));
        let (shared, log, (end, ended)) = (Arc::clone(&models), log.clone(), mpsc::channel::<()>());
        let work = move || {
            let begin = Instant::now();
            loop {
                let sojourns = read();
                let events = lock(&shared).look(begin.elapsed(), &sojourns);
                for event in events {
                    log.log(event);
                }
                if ended.recv_timeout(READ_EVERY) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = Some(Builder::new().name("delays".to_owned()).spawn(work)?);
        Ok(Self { models, end: Some(end), thread })
    }

    /// The models with a reading, and how many relays have none as there are too many.
    pub(crate) fn delays(&self) -> (Vec<RelayDelay>, u64) {
        let models = lock(&self.models);
        let delay = |((mode, relay, handler), model): (&RelayKey, &LiveModel)| {
            let reading = *model.reading()?;
            Some(RelayDelay { mode, relay: relay.clone(), handler: handler.clone(), reading })
        };
        (models.models.iter().filter_map(delay).collect(), models.left_out)
    }

    /// Ends the thread.
    pub(crate) fn stop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Drop for DelayWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A panic elsewhere leaves models that are whole: each is changed by one call.
fn lock(models: &Mutex<DelayModels>) -> MutexGuard<'_, DelayModels> {
    models.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DelayModels {
    /// Takes the histograms as they are at `now`; returns the drifts that begin and end.
    fn look(&mut self, now: Duration, sojourns: &[Sojourn]) -> Vec<LogEvent> {
        let key = |it: &Sojourn| (it.mode, it.relay.clone(), it.handler.clone());
        self.models.retain(|known, _| sojourns.iter().any(|it| key(it) == *known));
        self.left_out = 0;
        let mut events = Vec::new();
        for sojourn in sojourns {
            let key = key(sojourn);
            if !self.models.contains_key(&key) && self.models.len() >= MODELS_MAX {
                self.left_out += 1;
                continue;
            }
            let servers = match sojourn.mode {
                "graph" => ServerCount::Few(self.workers),
                // One thread serves all connections of a proxy.
                "tcp_proxy" => ServerCount::Few(1),
                _ => ServerCount::Unlimited,
            };
            let model = self.models.entry(key).or_insert_with(|| LiveModel::new(servers));
            let drifted = model.reading().is_some_and(|it| it.drifts);
            let Some(reading) = model.observe(now, &sojourn.times) else { continue };
            if reading.drifts != drifted {
                events.push(drift(sojourn, &reading));
            }
        }
        events
    }
}

/// The event of a drift that begins or ends.
fn drift(of: &Sojourn, reading: &DelayReading) -> LogEvent {
    let names = [Some(of.mode), of.relay.as_deref(), of.handler.as_deref()];
    let name = names.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let measured = reading.measured_p99_us;
    let predicted = reading.predicted_p99_us.unwrap_or_default();
    let (level, text) = if reading.drifts {
        let text = format!(
            "delays in {name}: 99 % are within {measured:.0} µs, and its model says {predicted:.0}: \
             look for other work on its processors; if it stays, the model follows in five minutes"
        );
        (LogLevel::Warning, text)
    } else {
        (LogLevel::Info, format!("delays in {name} are again as its model says"))
    };
    LogEvent::new(level, "gateway", "delay-drift", text)
        .with("mode", of.mode)
        .with("relay", of.relay.as_deref().unwrap_or_default())
        .with("measured_p99_us", format!("{measured:.1}"))
        .with("predicted_p99_us", format!("{predicted:.1}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_histogram::Sample;

    fn proxy(relay: usize, times: u64, nanoseconds: u64) -> Sojourn {
        let mut it =
            Sojourn { mode: "tcp_proxy", relay: Some(format!("r{relay}")), ..Sojourn::default() };
        it.times.add(Sample { times, ..Sample::from(nanoseconds) });
        it
    }

    #[test]
    fn a_drift_is_an_event_once_and_its_end_another() {
        let mut models = DelayModels { models: BTreeMap::new(), workers: 1, left_out: 0 };
        let (mut now, mut all) = (Duration::ZERO, proxy(0, 0, 0));
        let mut kinds = Vec::new();
        for minute in 0..30 {
            now += Duration::from_mins(1);
            // Ten times as slow from the tenth minute on, for good.
            let time = if minute < 10 { 50_000 } else { 500_000 };
            all.times.add(Sample { times: 6000, ..Sample::from(time) });
            for event in models.look(now, std::slice::from_ref(&all)) {
                kinds.push((minute, event.level, event.kind));
            }
        }
        let drift = "delay-drift";
        assert_eq!(kinds, [(12, LogLevel::Warning, drift), (14, LogLevel::Info, drift)]);
    }

    #[test]
    fn relays_that_have_gone_are_forgotten_and_too_many_are_counted() {
        let mut models = DelayModels { models: BTreeMap::new(), workers: 1, left_out: 0 };
        let many: Vec<Sojourn> = (0..MODELS_MAX + 3).map(|relay| proxy(relay, 1, 1000)).collect();
        assert!(models.look(Duration::ZERO, &many).is_empty());
        assert_eq!((models.models.len(), models.left_out), (MODELS_MAX, 3));
        assert!(models.look(Duration::from_secs(5), &many[..2]).is_empty());
        assert_eq!((models.models.len(), models.left_out), (2, 0));
    }
}
