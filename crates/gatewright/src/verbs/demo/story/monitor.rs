//! The monitor: what it was notified of, and when.

use super::network::text;
use gatewright_testbed::Process;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

/// Seconds of a day: times of one run are compared within it.
const DAY_S: f64 = 86_400.0;

/// A reading as it arrived.
struct Arrival {
    quantity: String,
    value: f64,
    /// From the gateway's receipt to the CSE above, and from there to the monitor.
    above_ms: f64,
    monitor_ms: f64,
}

#[derive(Default)]
struct Arrivals {
    readings: BTreeMap<String, Arrival>,
    again: usize,
}

/// Readings by the notifications of subscriptions.
#[derive(Default)]
pub(super) struct ReadingMonitor {
    arrivals: Arc<Mutex<Arrivals>>,
    subscriptions: Vec<Process>,
}

/// Seconds since midnight of a time such as `20261124T182752,954049`.
fn seconds_of_day(time: &str) -> Option<f64> {
    let (clock, fraction) = time.split_once('T')?.1.split_once(',')?;
    let digits: String = clock.chars().filter(char::is_ascii_digit).collect();
    let number = |range| digits.get(range).and_then(|part: &str| part.parse::<u32>().ok());
    let (hours, minutes, seconds) = (number(0..2)?, number(2..4)?, number(4..6)?);
    let fraction: f64 = format!("0.{fraction}").parse().ok()?;
    Some(f64::from(hours * 3_600 + minutes * 60 + seconds) + fraction)
}

/// From one time of the day to another, in ms.
fn ms_between(from: f64, to: f64) -> f64 {
    (to - from).rem_euclid(DAY_S) * 1e3
}

fn arrival(notification: &Value, now: f64) -> Option<(String, Arrival)> {
    let instance = notification.pointer("/nev/rep/m2m:cin")?;
    let member = |path: &str| instance.pointer(path).and_then(Value::as_str);
    let (received, created) =
        (seconds_of_day(member("/con/received")?)?, seconds_of_day(member("/ct")?)?);
    let arrival = Arrival {
        quantity: member("/con/name")?.to_owned(),
        value: member("/con/value")?.parse().ok()?,
        above_ms: ms_between(received, created),
        monitor_ms: ms_between(created, now),
    };
    Some((member("/rn")?.to_owned(), arrival))
}

impl ReadingMonitor {
    /// Takes the notifications that a subscription prints, a line each.
    pub(super) fn listen(&mut self, mut subscription: Process) -> Result<(), String> {
        let lines = BufReader::new(subscription.stdout().ok_or("no output")?).lines();
        let arrivals = Arc::clone(&self.arrivals);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let now = now.as_secs_f64() % DAY_S;
                let notification = serde_json::from_str(&line).unwrap_or_default();
                let Some((name, arrival)) = arrival(&notification, now) else { continue };
                let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                if arrivals.readings.insert(name, arrival).is_some() {
                    arrivals.again += 1;
                }
            }
        });
        self.subscriptions.push(subscription);
        Ok(())
    }

    fn with<T>(&self, look: impl FnOnce(&Arrivals) -> T) -> T {
        look(&self.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The names of all readings received.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.with(|all| all.readings.keys().cloned().collect())
    }

    /// Notifications of readings that were known already.
    pub(super) fn again(&self) -> usize {
        self.with(|all| all.again)
    }

    /// The lowest value of a quantity.
    pub(super) fn lowest(&self, quantity: &str) -> Option<f64> {
        self.with(|all| {
            let of = all.readings.values().filter(|one| one.quantity == quantity);
            of.map(|one| one.value).min_by(f64::total_cmp)
        })
    }

    /// Medians of the delays from the gateway to the CSE above, and from there to the monitor.
    pub(super) fn medians_ms(&self) -> Option<(f64, f64)> {
        let median = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        self.with(|all| {
            let of =
                |delay: fn(&Arrival) -> f64| median(all.readings.values().map(delay).collect());
            Some((of(|one| one.above_ms)?, of(|one| one.monitor_ms)?))
        })
    }

    /// Ends the subscriptions.
    pub(super) fn end(&mut self) -> Result<(), String> {
        for subscription in self.subscriptions.drain(..) {
            subscription.interrupt().map_err(text)?;
            subscription.wait().map_err(text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_notification_is_an_arrival_with_its_delays() {
        let con = json!({"name": "MDC_PULS_OXIM_SAT_O2", "received": "20261124T235959,900000",
                         "value": "97.2"});
        let instance = json!({"rn": "0247-1", "ct": "20261125T000000,100000", "con": con});
        let (name, arrival) =
            arrival(&json!({"nev": {"rep": {"m2m:cin": instance}}}), 0.25).expect("a reading");
        assert_eq!(name, "0247-1");
        assert!((arrival.above_ms - 200.0).abs() < 0.01, "{}", arrival.above_ms);
        assert!((arrival.monitor_ms - 150.0).abs() < 0.01, "{}", arrival.monitor_ms);
        assert!((arrival.value - 97.2).abs() < 1e-9);
    }
}
