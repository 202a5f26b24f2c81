//! From two looks at a gateway to what happened between them, a second.

use crate::verbs::status::{list, number, values, word};
use gatewright_histogram::Histogram;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// A gateway at one moment, as it answers.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// The answer to `status`.
    pub(super) status: Value,
    /// The answer to `sojourn`.
    pub(super) sojourn: Value,
}

/// The changes in an interval.
#[derive(Debug, Serialize)]
pub(super) struct Rates {
    /// How long the gateway has run.
    pub(super) uptime_seconds: f64,
    /// The time between the two looks.
    pub(super) seconds: f64,
    pub(super) links: Vec<LinkRates>,
    pub(super) workers: Vec<WorkerRates>,
    pub(super) layers: Vec<LayerRates>,
    pub(super) drops: Vec<Drop>,
    pub(super) handlers: Vec<HandlerRates>,
    pub(super) programs: Vec<ProgramRates>,
    pub(super) sojourn: Sojourn,
}

/// A link: packets and bits a second.
#[derive(Debug, Serialize)]
pub(super) struct LinkRates {
    pub(super) name: String,
    pub(super) up: bool,
    pub(super) state: String,
    pub(super) mode: String,
    pub(super) received: f64,
    pub(super) received_bits: f64,
    pub(super) sent: f64,
    pub(super) sent_bits: f64,
}

/// A worker, where there are several: packets a second.
#[derive(Debug, Serialize)]
pub(super) struct WorkerRates {
    pub(super) worker: u64,
    pub(super) received: f64,
    /// From other workers.
    pub(super) taken: f64,
    /// To other workers.
    pub(super) given: f64,
}

/// A layer of the graph, on all links: packets a second, and the time in it.
#[derive(Debug, Default, Serialize)]
pub(super) struct LayerRates {
    pub(super) layer: String,
    pub(super) receive: f64,
    pub(super) transmit: f64,
    /// The mean time in it of a packet that was measured in this interval, in nanoseconds.
    pub(super) ns: Option<f64>,
}

/// Drops of a link or layer, by reason.
#[derive(Debug, Serialize)]
pub(super) struct Drop {
    /// `link lan`, `ipv4`, or `graph` for what is no layer's.
    pub(super) by: String,
    pub(super) reason: String,
    /// Packets a second.
    pub(super) rate: f64,
    /// Packets since the gateway began.
    pub(super) total: u64,
}

/// An attached handler.
#[derive(Debug, Serialize)]
pub(super) struct HandlerRates {
    pub(super) id: u64,
    pub(super) handler: String,
    pub(super) at: String,
    /// Packets, or messages, taken or counted a second.
    pub(super) packets: f64,
    /// Whether those are messages of a gateway program.
    pub(super) messages: bool,
}

/// A handler of a gateway program: messages a second, and their delays in this interval.
#[derive(Debug, Serialize)]
pub(super) struct ProgramRates {
    pub(super) program: String,
    pub(super) handler: String,
    /// Messages whose handling began, a second.
    pub(super) started: f64,
    /// Messages whose handling was ended from outside, a second.
    pub(super) failed: f64,
    /// Those since the program began.
    pub(super) failed_total: u64,
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
}

/// Delays of the packets in this interval, in nanoseconds.
#[derive(Debug, Default, Eq, PartialEq, Serialize)]
pub(super) struct Sojourn {
    pub(super) packets: u64,
    pub(super) p50_ns: Option<u64>,
    pub(super) p90_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
    pub(super) p999_ns: Option<u64>,
}

/// The counters of a link that count no drop.
const NO_DROP: [&str; 8] = [
    "received",
    "received_octets",
    "sent",
    "sent_octets",
    "partial_checksums",
    "checksums_completed",
    "super_frames",
    "super_frames_sent",
];

/// The changes between two status answers, or since the start.
pub(super) fn rates(before: Option<&Look>, now: &Look) -> Rates {
    let nothing = Value::Null;
    let old = before.map_or(&nothing, |look| &look.status);
    let uptime = seconds(&now.status);
    let passed = if before.is_some() { uptime - seconds(old) } else { uptime };
    let rate = Rate(if passed > 0.0 { passed } else { f64::INFINITY });
    let was = before.map_or(&nothing, |look| &look.sojourn);
    Rates {
        uptime_seconds: uptime,
        seconds: passed,
        links: rate.links(old, &now.status),
        workers: rate.workers(old, &now.status),
        layers: rate.layers(old, &now.status),
        drops: rate.drops(old, &now.status),
        handlers: rate.handlers(old, &now.status),
        programs: rate.programs(old, &now.status),
        sojourn: sojourn(was, &now.sojourn),
    }
}

fn seconds(status: &Value) -> f64 {
    let time = status.get("uptime").unwrap_or(&Value::Null);
    let whole = Duration::from_secs(number(time, "secs"));
    (whole + Duration::from_nanos(number(time, "nanos"))).as_secs_f64()
}

/// Seconds that counters are divided by.
#[derive(Clone, Copy)]
struct Rate(f64);

impl Rate {
    /// A counter that is smaller than before has begun anew: its link was opened again.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no 64 bits")]
    fn of(self, before: u64, now: u64) -> f64 {
        now.checked_sub(before).unwrap_or(now) as f64 / self.0
    }

    fn links(self, old: &Value, new: &Value) -> Vec<LinkRates> {
        let link = |link: &Value| {
            let before = of_name(list(old, "links"), "name", word(link, "name"));
            let [received, received_octets, sent, sent_octets] =
                ["received", "received_octets", "sent", "sent_octets"]
                    .map(|name| self.of(counter(before, name), counter(link, name)));
            LinkRates {
                name: word(link, "name").to_owned(),
                up: link.get("up").and_then(Value::as_bool).unwrap_or_default(),
                state: word(link, "state").to_owned(),
                mode: word(link, "mode").to_owned(),
                received,
                received_bits: received_octets * OCTET_BITS,
                sent,
                sent_bits: sent_octets * OCTET_BITS,
            }
        };
        list(new, "links").iter().map(link).collect()
    }

    fn workers(self, old: &Value, new: &Value) -> Vec<WorkerRates> {
        let before = |worker: usize| list(old, "workers").get(worker).unwrap_or(&Value::Null);
        let worker = |(index, now): (usize, &Value)| {
            let [received, taken, given] = ["received", "taken", "given"]
                .map(|name| self.of(number(before(index), name), number(now, name)));
            WorkerRates { worker: number(now, "worker"), received, taken, given }
        };
        list(new, "workers").iter().enumerate().map(worker).collect()
    }

    fn layers(self, old: &Value, new: &Value) -> Vec<LayerRates> {
        let (before, now) = (ways(old), ways(new));
        let mut layers: Vec<LayerRates> = Vec::new();
        for (way, packets) in &now {
            let rate = self.of(before.get(way).copied().unwrap_or_default(), *packets);
            let (layer, side) = way;
            let place = layers.iter_mut().position(|known| known.layer == *layer);
            let known = match place.and_then(|place| layers.get_mut(place)) {
                Some(known) => known,
                None => {
                    layers.push_mut(LayerRates { layer: layer.clone(), ..LayerRates::default() })
                }
            };
            match side.as_str() {
                "receive" => known.receive += rate,
                _ => known.transmit += rate,
            }
        }
        for layer in &mut layers {
            layer.ns = measured_in(old, new, &layer.layer);
        }
        layers
    }

    fn drops(self, old: &Value, new: &Value) -> Vec<Drop> {
        let before = all_drops(old);
        let drop = |((by, reason), total): ((String, String), u64)| {
            let key = (by, reason);
            let rate = self.of(before.get(&key).copied().unwrap_or_default(), total);
            Drop { by: key.0, reason: key.1, rate, total }
        };
        let mut drops: Vec<Drop> = all_drops(new).into_iter().map(drop).collect();
        drops.sort_by(|one, other| {
            other.rate.total_cmp(&one.rate).then(other.total.cmp(&one.total))
        });
        drops
    }

    fn handlers(self, old: &Value, new: &Value) -> Vec<HandlerRates> {
        let handler = |handler: &Value| {
            let id = number(handler, "id");
            let count = |status: &Value| {
                let taken =
                    of_id(list(status, "handlers"), id).map_or(0, |one| number(one, "taken"));
                let counted = of_id(list(status, "attached"), id).map_or(0, |one| {
                    ["packets", "messages", "refused"].map(|name| number(one, name)).iter().sum()
                });
                taken + counted
            };
            HandlerRates {
                id,
                handler: word(handler, "handler").to_owned(),
                at: word(handler, "at").to_owned(),
                packets: self.of(count(old), count(new)),
                messages: handler.get("messages").is_some() || handler.get("refused").is_some(),
            }
        };
        list(new, "attached").iter().map(handler).collect()
    }

    fn programs(self, old: &Value, new: &Value) -> Vec<ProgramRates> {
        let program = |now: &Value| {
            let (program, handler) = (word(now, "program"), word(now, "handler"));
            let is_it = |other: &&Value| {
                word(other, "program") == program && word(other, "handler") == handler
            };
            let before = program_handlers(old).find(is_it).unwrap_or(&Value::Null);
            let [started, failed] =
                ["started", "failed"].map(|name| self.of(number(before, name), number(now, name)));
            let times = handled(new, program, handler).since(&handled(old, program, handler));
            let [p50_ns, p99_ns] = [50, 99].map(|percent| times.quantile(percent, 100));
            ProgramRates {
                program: program.to_owned(),
                handler: handler.to_owned(),
                started,
                failed,
                failed_total: number(now, "failed"),
                p50_ns,
                p99_ns,
            }
        };
        program_handlers(new).map(program).collect()
    }
}

const OCTET_BITS: f64 = 8.0;

fn of_name<'a>(items: &'a [Value], key: &str, name: &str) -> &'a Value {
    items.iter().find(|item| word(item, key) == name).unwrap_or(&Value::Null)
}

fn of_id(items: &[Value], id: u64) -> Option<&Value> {
    items.iter().find(|item| number(item, "id") == id)
}

/// Pairs of a name and a number.
fn pairs<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = (&'a str, u64)> {
    let pair = |pair: &'a Value| Some((pair.get(0)?.as_str()?, pair.get(1)?.as_u64()?));
    list(value, name).iter().filter_map(pair)
}

fn counter(link: &Value, name: &str) -> u64 {
    pairs(link, "counters").find(|(known, _)| *known == name).map_or(0, |(_, count)| count)
}

/// Packets to each layer, by direction.
fn ways(status: &Value) -> BTreeMap<(String, String), u64> {
    let mut ways = BTreeMap::new();
    for way in list(status, "ways") {
        if let Some(layer) = way.get("layer").and_then(Value::as_str) {
            let key = (layer.to_owned(), word(way, "side").to_owned());
            *ways.entry(key).or_default() += number(way, "packets");
        }
    }
    ways
}

/// All drops by component and reason, without those that are zero.
fn all_drops(status: &Value) -> BTreeMap<(String, String), u64> {
    let mut drops = BTreeMap::new();
    let mut add = |by: &str, reason: &str, count: u64| {
        if count > 0 {
            *drops.entry((by.to_owned(), reason.replace('_', "-"))).or_default() += count;
        }
    };
    for link in list(status, "links") {
        let by = format!("link {}", word(link, "name"));
        for (reason, count) in pairs(link, "counters").filter(|(name, _)| !NO_DROP.contains(name)) {
            add(&by, reason, count);
        }
    }
    for layer in list(status, "layers") {
        for (reason, count) in pairs(layer, "drops") {
            add(word(layer, "layer"), reason, count);
        }
    }
    for (reason, count) in pairs(status, "unclaimed") {
        add("graph", reason, count);
    }
    drops
}

/// Packets measured in the layers of a name, and the nanoseconds for all of them.
fn measured(status: &Value, layer: &str) -> (u64, u64) {
    let of_layer = list(status, "layers").iter().filter(|one| word(one, "layer") == layer);
    of_layer.filter_map(|one| one.get("measured")).fold((0, 0), |(packets, ns), more| {
        (packets + number(more, "packets"), ns + number(more, "ns"))
    })
}

/// The mean nanoseconds of a packet that was measured in a layer between two looks.
#[expect(clippy::cast_precision_loss, reason = "a mean needs no 64 bits")]
fn measured_in(old: &Value, new: &Value, layer: &str) -> Option<f64> {
    let ((before, before_ns), (packets, ns)) = (measured(old, layer), measured(new, layer));
    // A measurement that has begun anew meanwhile has fewer.
    let (packets, ns) =
        packets.checked_sub(before).zip(ns.checked_sub(before_ns)).unwrap_or((packets, ns));
    (packets > 0).then(|| ns as f64 / packets as f64)
}

/// The handlers of programs in a status.
fn program_handlers(status: &Value) -> impl Iterator<Item = &Value> {
    list(status, "parts").iter().flat_map(|part| list(part, "handlers"))
}

/// The delays of the messages of a program's handler.
fn handled(status: &Value, program: &str, handler: &str) -> Histogram {
    let is_it = |one: &&Value| {
        let of = (word(one, "mode"), word(one, "relay"), word(one, "handler"));
        of == ("program", program, handler)
    };
    list(status, "sojourn").iter().find(is_it).and_then(values).unwrap_or_default()
}

fn sojourn(old: &Value, new: &Value) -> Sojourn {
    let [old, new] = [old, new].map(|value| values(value).unwrap_or_default());
    let times = new.since(&old);
    let [p50_ns, p90_ns, p99_ns, p999_ns] =
        [500, 900, 990, 999].map(|per_mille| times.quantile(per_mille, 1000));
    Sojourn { packets: times.count(), p50_ns, p90_ns, p99_ns, p999_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn look(secs: u64, received: u64, hop_limit: u64, buckets: &Value) -> Look {
        let status = json!({
            "uptime": { "secs": secs, "nanos": 500_000_000 },
            "links": [{ "name": "lan", "up": true, "state": "up", "mode": "TAP", "counters":
                [["received", received], ["received_octets", received * 100], ["sent", 0],
                 ["sent_octets", 0], ["receive_overrun", 0], ["partial_checksums", received]] }],
            "layers": [{ "layer": "ipv4", "link": null, "drops": [["hop-limit", hop_limit]],
                "measured": { "packets": received / 10, "ns": received * 9 } }],
            "ways": [
                { "at": "ether:ipv4", "side": "receive", "layer": "ipv4", "packets": received },
                { "at": "ip:udp", "side": "transmit", "layer": "ipv4", "packets": 2 },
                { "at": "frame", "side": "transmit", "layer": null, "packets": 9 }],
            "unclaimed": [["loop", 1]],
            "handlers": [{ "id": 3, "taken": received / 2 }],
            "attached": [{ "id": 3, "handler": "drop", "at": "before ether:ipv4 receive" }],
        });
        Look { status, sojourn: json!({ "largest": 1000, "buckets": buckets }) }
    }

    #[track_caller]
    fn same(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-9, "{one} is not {other}");
    }

    #[test]
    fn rates_are_differences_by_the_gateways_own_clock() {
        let before = look(10, 100, 0, &json!([[10, 5], [20, 5]]));
        let now = look(12, 300, 7, &json!([[10, 5], [20, 95], [1000, 10]]));
        let rates = rates(Some(&before), &now);
        same(rates.seconds, 2.0);
        let link = &rates.links[0];
        assert_eq!((link.received, link.received_bits, link.sent), (100.0, 80_000.0, 0.0));
        let layer = &rates.layers[0];
        assert_eq!((layer.layer.as_str(), layer.receive, layer.transmit), ("ipv4", 100.0, 0.0));
        assert_eq!(layer.ns, Some(90.0));
        let told: Vec<_> = rates
            .drops
            .iter()
            .map(|d| (d.by.as_str(), d.reason.as_str(), d.rate, d.total))
            .collect();
        assert_eq!(told, [("ipv4", "hop-limit", 3.5, 7), ("graph", "loop", 0.0, 1)]);
        same(rates.handlers[0].packets, 50.0);
        let Sojourn { packets, p50_ns, p90_ns, p99_ns, .. } = rates.sojourn;
        assert_eq!((packets, p50_ns, p90_ns, p99_ns), (100, Some(20), Some(20), Some(1000)));
    }

    #[test]
    fn without_a_look_before_it_is_since_the_start() {
        let rates = rates(None, &look(9, 95, 0, &json!([])));
        assert_eq!((rates.seconds, rates.links[0].received), (9.5, 10.0));
        assert_eq!(rates.sojourn, Sojourn::default());
    }

    #[test]
    fn messages_of_programs_have_rates_errors_and_delays() {
        let look = |secs: u64, started: u64, failed: u64, buckets: &Value| {
            let one = json!({ "program": "relay", "handler": "web.post", "started": started,
                "finished": started - failed, "failed": failed });
            let stay = json!({ "mode": "program", "relay": "relay", "handler": "web.post",
                "largest": 90_000, "buckets": buckets });
            let status = json!({ "uptime": { "secs": secs, "nanos": 0 }, "sojourn": [stay],
                "parts": [{ "name": "programs", "handlers": [one] }] });
            Look { status, sojourn: Value::Null }
        };
        let before = look(10, 100, 1, &json!([[500, 100]]));
        let now = look(12, 150, 4, &json!([[500, 100], [2047, 49], [90_000, 1]]));
        let rates = rates(Some(&before), &now);
        let one = &rates.programs[0];
        assert_eq!((one.program.as_str(), one.handler.as_str()), ("relay", "web.post"));
        same(one.started, 25.0);
        same(one.failed, 1.5);
        assert_eq!((one.failed_total, one.p50_ns, one.p99_ns), (4, Some(2047), Some(90_000)));
    }

    #[test]
    fn a_counter_that_began_anew_counts_from_zero() {
        let rates = rates(Some(&look(1, 500, 0, &json!([]))), &look(2, 50, 0, &json!([])));
        same(rates.links[0].received, 50.0);
        assert_eq!(rates.layers[0].ns, Some(90.0));
    }

    #[test]
    fn a_layer_of_which_no_packet_was_measured_has_no_mean_time() {
        let look = || look(1, 500, 0, &json!([]));
        assert_eq!(rates(Some(&look()), &look()).layers[0].ns, None);
    }
}
