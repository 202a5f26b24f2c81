//! The thread that looks at the gateway while somebody views the stream.

use super::{RECENT_MAX, StatusStream, StreamState, patch::merge_patch};
use crate::counters::count;
use gatewright_gateway::{
    Gateway, LogLevel,
    events::{EventReader, LogEntry},
};
use serde_json::{Value, json};
use std::{
    io,
    sync::{Arc, Weak, atomic::Ordering},
    thread::Builder,
    time::{Duration, Instant},
};

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// How long it goes on when nobody looks: a viewer whose connection broke continues where it was.
const LINGER: Duration = Duration::from_secs(10);

/// Starts the thread; it ends by itself.
pub(super) fn start(stream: Weak<StatusStream>, gateway: Weak<Gateway>) -> io::Result<()> {
    Builder::new().name("web-sample".to_owned()).spawn(move || {
        let Some(reader) = begin(&stream, &gateway) else { return };
        run(&stream, &gateway, reader);
    })?;
    Ok(())
}

/// Takes the last events of the log; returns the reader of those that follow.
fn begin(stream: &Weak<StatusStream>, gateway: &Weak<Gateway>) -> Option<EventReader> {
    let (stream, gateway) = (stream.upgrade()?, gateway.upgrade());
    let Some(gateway) = gateway else {
        end(&stream);
        return None;
    };
    let mut reader = gateway.events().reader(None, LogLevel::Debug);
    let events = reader.read(Duration::ZERO).events;
    let surplus = events.len().saturating_sub(RECENT_MAX);
    stream.lock().recent.extend(events.into_iter().skip(surplus));
    Some(reader)
}

fn run(stream: &Weak<StatusStream>, gateway: &Weak<Gateway>, mut reader: EventReader) {
    let mut next = Instant::now();
    loop {
        if Instant::now() >= next {
            let Some(stream) = stream.upgrade() else { return };
            // The gateway is held only while it is asked: it may end at any time.
            let Some(sampled) = gateway.upgrade().map(|gateway| sample(&gateway)) else {
                return end(&stream);
            };
            if publish_status(&stream, sampled) {
                return;
            }
            // A machine that was too slow does not catch up.
            next = (next + SAMPLE_EVERY).max(Instant::now());
        }
        let read = reader.read(next.saturating_duration_since(Instant::now()));
        let Some(stream) = stream.upgrade() else { return };
        publish_events(&stream, &read.events, read.missed);
        if read.ended {
            return end(&stream);
        }
    }
}

/// The status as a document; `None` if the workers have ended.
fn sample(gateway: &Gateway) -> Option<Value> {
    gateway.status().ok().and_then(|status| serde_json::to_value(status).ok())
}

/// Publishes a sample; returns whether the sampler is to end, as nobody looks.
fn publish_status(stream: &StatusStream, sampled: Option<Value>) -> bool {
    let mut state = stream.lock();
    if state.viewers.is_empty() && state.left_at.elapsed() >= LINGER {
        state.begin();
        state.is_sampled = false;
        return true;
    }
    let Some(status) = sampled else { return false };
    count(&stream.counters.samples);
    let Some(before) = state.status.replace(status) else {
        // Who waits for the first snapshot finds it by this number.
        stream.latest.send_replace(state.ring.last());
        return false;
    };
    let patch = state.status.as_ref().map(|status| merge_patch(&before, status));
    stream.publish(&mut state, "delta", &patch.unwrap_or_default().to_string());
    false
}

fn publish_events(stream: &StatusStream, events: &[Arc<LogEntry>], missed: u64) {
    if events.is_empty() && missed == 0 {
        return;
    }
    let mut state = stream.lock();
    if missed > 0 {
        stream.counters.events_missed.fetch_add(missed, Ordering::Relaxed);
        stream.publish(&mut state, "missed", &json!({ "missed": missed }).to_string());
    }
    for entry in events {
        keep(&mut state, entry);
        if let Ok(data) = serde_json::to_string(&**entry) {
            stream.publish(&mut state, "event", &data);
        }
    }
}

/// Keeps an event for those who come later.
fn keep(state: &mut StreamState, entry: &Arc<LogEntry>) {
    if state.recent.len() >= RECENT_MAX {
        state.recent.pop_front();
    }
    state.recent.push_back(Arc::clone(entry));
}

/// Ends the stream of every viewer.
fn end(stream: &StatusStream) {
    let mut state = stream.lock();
    state.has_ended = true;
    state.is_sampled = false;
    let last = state.ring.last();
    drop(state);
    stream.latest.send_replace(last);
}
