//! `gatewright status`: what a running gateway is and has counted.

use crate::{exit::Exit, face::Face, socket::Which};
use anyhow::Result;
use gatewright_gateway::api::ControlRequest;
use gatewright_histogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{fmt::Write, time::Duration};

/// The shape of its answer.
pub const JSON: &str = "{planes: {mode, control, data, running, given_up, adopted, version}, uptime, links: [{link, name, device, mode, why, kernel, up, state, mtu, mac, addresses, queues: [{queue, worker}], counters, forwarding, forwards_in_driver, not_redirected, in_driver: [{outcome, packets, octets}]}], not_forwarding, \
     layers: [{layer, link, drops, measured: {packets, ns}}], ways: [{at, side, link, from, to, layer, to_device, packets, measured: {packets, ns}}], unclaimed, icmp: [{ip_version, type, message, received, sent, rate_limited}], \
     handlers: [{id, at, taken}], \
     kernel: {routes, forwarded, neighbours, renewed, overruns, withdrawn}, \
     delays: [{mode, relay, handler, seconds, samples, rate, a_us, c_ns, load, predicted_p99_us, measured_p99_us, drifts}], delays_left_out, \
     balances: [{name, policy, admitted, refused, relays: [{address, flows, load, a_us, c_ns, \
     reachability: {left_out, unreachable}}]}], \
     sojourn: [{mode, relay, handler, count, sum, largest, p50, p99, value_squares, octets, octet_squares, products, buckets}], \
     workers: [{worker, received, taken, given}], next_hops: [{link, via, packets, octets, in_graph}], measured_runs, \
     attached: [{id, handler, at, packets, octets, missed, messages, refused, measured: {packets, ns}}], \
     udp_gateways: [{name, received, sent, returned, lost}], \
     parts: [{name, words, gauges, counters, alarms: [{name, raised, subjects: [{subject, since, detail}]}], histograms: [{name, count, sum, largest, p50, p99, value_squares, octets, octet_squares, products, buckets}], \
     handlers: [{program, handler, started, finished, failed}]}], \
     events: [{part, kind, level, events, suppressed}], fallback, hops: [{name, median_ms, budget_ms}]}; fallback is why the last good description runs, if it does; times are {secs, nanos}, those of histograms nanoseconds; buckets are [its largest value, count]; measured and measured_runs are there with --layers; with --metrics one string";

/// Shows the state and the counters of a running gateway: links, handlers, drops by layer and
/// reason.
#[derive(Debug, clap::Args)]
pub struct Status {
    #[command(flatten)]
    which: Which,
    /// Print the counters as OpenMetrics text.
    #[arg(long)]
    metrics: bool,
    /// Measure for a second how long packets take in each layer, and show that, too.
    #[arg(long, conflicts_with = "metrics")]
    layers: bool,
}

/// How long the times of layers are measured.
const MEASURED_FOR: Duration = Duration::from_secs(1);

impl Status {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        if self.metrics {
            let page = self.which.ask(&ControlRequest::Metrics)?;
            face.answer(&page, || page.as_str().unwrap_or_default().to_owned())?;
            return Ok(Exit::Success);
        }
        let request = if self.layers {
            let request =
                ControlRequest::MeasuredStatus { seconds: MEASURED_FOR.as_secs_f64() * 2.0 };
            self.which.ask(&request)?;
            std::thread::sleep(MEASURED_FOR);
            request
        } else {
            ControlRequest::Status
        };
        let status = self.which.ask(&request)?;
        face.answer(&status, || {
            let without = if self.layers { without_layers(&status) } else { "" };
            text(&status) + without
        })?;
        Ok(Exit::Success)
    }
}

/// A few lines about a gateway that has ended.
pub fn summary(status: &impl Serialize) -> String {
    serde_json::to_value(status).map_or_else(|error| error.to_string(), |status| text(&status))
}

/// Why no times of layers are shown, if the gateway has none.
fn without_layers(status: &Value) -> &'static str {
    if !list(status, "links").is_empty() {
        return "";
    }
    "no layer is measured: the gateway has no links, whose packets they process. Devices, the service \
     entity, proxies and programs are served over the kernel's sockets\n"
}

/// The items of a list in the answer.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or("-")
}

pub(super) fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// Pairs of a name and a number that is not zero.
pub(super) fn counts(value: &Value, name: &str) -> Vec<String> {
    let pair = |pair: &Value| {
        let (name, count) = (pair.get(0)?.as_str()?, pair.get(1)?.as_u64()?);
        (count > 0).then(|| format!("{} {count}", name.replace('_', " ")))
    };
    list(value, name).iter().filter_map(pair).collect()
}

/// A part that others run: what it is, what it has, what it has counted.
fn part_text(out: &mut String, part: &Value) {
    let said = |pair: &Value| {
        let (name, said) = (pair.get(0)?.as_str()?, pair.get(1)?.as_str()?);
        Some(format!("{} {said}", name.replace('_', " ")))
    };
    let mut words: Vec<_> = list(part, "words").iter().filter_map(said).collect();
    words.extend(counts(part, "gauges"));
    let (name, counted) = (word(part, "name"), counts(part, "counters"));
    let (is_idle, has_counted) = (words.is_empty(), !counted.is_empty());
    if !is_idle {
        let _ = writeln!(out, "{name}: {}", words.join(", "));
    } else if has_counted {
        // What has ended is in the counters alone.
        let _ = writeln!(out, "{name}: {}", counted.join(", "));
    }
    if has_counted && !is_idle {
        let _ = writeln!(out, "     {}", counted.join(", "));
    }
    for histogram in list(part, "histograms") {
        if let Some(values) = values(histogram) {
            let _ = writeln!(out, "     {}", spread(word(histogram, "name"), &values));
        }
    }
}

/// A histogram in the answer, unless it is empty.
pub(super) fn values(histogram: &Value) -> Option<Histogram> {
    let read = Histogram::deserialize(histogram).ok();
    read.filter(|values| !values.is_empty())
}

/// A histogram in words.
fn spread(name: &str, values: &Histogram) -> String {
    let (name, is_time) = name.strip_suffix("_ns").map_or((name, false), |name| (name, true));
    let text = |value: u64| if is_time { microseconds(value) } else { value.to_string() };
    let within = |part: u64| text(values.quantile(part, 100).unwrap_or_default());
    format!(
        "{}: {}, half within {}, 99 % within {}, at most {}",
        name.replace('_', " "),
        values.count(),
        within(50),
        within(99),
        text(values.largest())
    )
}

fn microseconds(nanoseconds: u64) -> String {
    format!("{}.{} µs", nanoseconds / 1000, nanoseconds % 1000 / 100)
}

/// Sojourn times by mode: packets in the graph, octets in proxies, requests in programs.
fn sojourns(status: &Value, out: &mut String) {
    for sojourn in list(status, "sojourn") {
        let Some(times) = values(sojourn) else { continue };
        let name = passed(sojourn);
        let _ = writeln!(out, "delay in {}", spread(&format!("{name}_ns"), &times));
        if let Some(delay) = list(status, "delays").iter().find(|it| passed(it) == name) {
            let _ = writeln!(out, "     {}", model(delay));
        }
    }
    let left_out = number(status, "delays_left_out");
    if left_out > 0 {
        let _ = writeln!(out, "{left_out} relays have no delay model: there are too many");
    }
}

/// How something passed: mode, relay, handler.
fn passed(value: &Value) -> String {
    let names = ["mode", "relay", "handler"].iter();
    let names: Vec<_> = names.filter_map(|name| value.get(name)?.as_str()).collect();
    names.join(" ")
}

/// A delay model in words.
fn model(delay: &Value) -> String {
    let real = |name: &str| delay.get(name).and_then(Value::as_f64);
    let micros = |name: &str| real(name).map_or("?".to_owned(), |us| format!("{us:.1} µs"));
    let per_octet = real("c_ns").map_or(String::new(), |c| format!(" + {c:.2} ns an octet"));
    // Of programs it is a number of requests, which take no server's time while they wait.
    let load = match (word(delay, "mode"), real("load").unwrap_or_default()) {
        ("program", load) => format!("{load:.2} under way"),
        (_, load) => format!("load {:.1} %", load * 100.0),
    };
    let drift = delay.get("drifts").and_then(Value::as_bool) == Some(true);
    format!(
        "model: {}{per_octet}, {load}; in the last {:.0} s 99 % within {}, predicted {}{}",
        micros("a_us"),
        real("seconds").unwrap_or_default(),
        micros("measured_p99_us"),
        micros("predicted_p99_us"),
        if drift { ": DRIFT" } else { "" }
    )
}

/// The built-in handlers with their counts.
fn handlers(status: &Value, out: &mut String) {
    for attached in list(status, "attached") {
        let id = number(attached, "id");
        let _ = write!(out, "handler {id}: {} {}", word(attached, "handler"), word(attached, "at"));
        for name in ["packets", "messages", "octets", "refused", "missed"] {
            if let Some(count) = attached.get(name).and_then(Value::as_u64) {
                let _ = write!(out, ", {count} {name}");
            }
        }
        // One that stands at packets; at messages it has told already what it refused.
        let standing = list(status, "handlers").iter().find(|one| number(one, "id") == id);
        let drops = matches!(word(attached, "handler"), "drop" | "filter" | "rate-limit");
        if let Some(one) = standing.filter(|_| drops) {
            let _ = write!(out, ", {} dropped", number(one, "taken"));
        }
        out.push('\n');
    }
}

/// The gateway's own ICMP messages by type, a line for each IP version.
fn icmp(status: &Value, out: &mut String) {
    let rows = list(status, "icmp");
    for version in [4, 6] {
        let of_version = rows.iter().filter(|row| number(row, "ip_version") == version);
        let mut said = Vec::new();
        for (name, what) in [
            ("received", "received"),
            ("sent", "sent"),
            ("rate_limited", "held back by the rate limit"),
        ] {
            let counted = of_version.clone().filter(|row| number(row, name) > 0);
            let counted: Vec<_> = counted
                .map(|row| format!("{} {}", word(row, "message"), number(row, name)))
                .collect();
            if !counted.is_empty() {
                said.push(format!("{what} {}", counted.join(", ")));
            }
        }
        if !said.is_empty() {
            let _ = writeln!(out, "icmp of ipv{version}: {}", said.join("; "));
        }
    }
}

/// The state followed from the kernel, where links are shared with it.
fn kernel(status: &Value, out: &mut String) {
    let Some(kernel) = status.get("kernel").filter(|kernel| kernel.is_object()) else { return };
    let [routes, forwarded, neighbours, renewed, overruns] =
        ["routes", "forwarded", "neighbours", "renewed", "overruns"]
            .map(|name| number(kernel, name));
    let withdrawn = kernel.get("withdrawn").and_then(Value::as_bool) == Some(true);
    let _ = writeln!(
        out,
        "kernel: {routes} routes, {forwarded} of them forwarded here, {neighbours} neighbours; \
         full state read {renewed} times, {overruns} of them after lost changes{}",
        if withdrawn { "; WITHDRAWN: too many routes, the kernel forwards all" } else { "" }
    );
}

/// The counts of each worker, where there are several.
fn workers(status: &Value, out: &mut String) {
    for one in list(status, "workers") {
        let [worker, received, taken, given] =
            ["worker", "received", "taken", "given"].map(|name| number(one, name));
        let _ = writeln!(
            out,
            "worker {worker}: {received} received, {taken} from other workers, {given} to them"
        );
    }
}

/// The processes of the planes, if they are two.
fn planes(status: &Value, out: &mut String) {
    let planes = status.get("planes").unwrap_or(&Value::Null);
    if word(planes, "mode") != "process" {
        return;
    }
    let is = |name: &str| planes.get(name).and_then(Value::as_bool).unwrap_or(false);
    let (control, data) = (number(planes, "control"), number(planes, "data"));
    let state = match (is("running"), is("adopted")) {
        (false, _) if is("given_up") => ", which was given up: `gatewright reload` starts it again",
        (false, _) => ", which has ended",
        (true, true) => ", which ran before",
        (true, false) => "",
    };
    let _ = writeln!(out, "planes: control is process {control}, data is process {data}{state}");
}

/// Links whose packets for other hosts are dropped, in a gateway with links in several networks.
fn not_forwarding(status: &Value, out: &mut String) {
    let links = list(status, "not_forwarding").iter().filter_map(Value::as_str);
    let links = links.collect::<Vec<_>>().join(", ");
    if !links.is_empty() {
        let _ = writeln!(out, "not forwarded: packets for others from {links} ({NOT_FORWARDING})");
    }
}

/// Why a link does not forward.
pub(super) const NOT_FORWARDING: &str = "`forwarding = false` in [link.NAME]";

/// UDP gateways with their counters.
fn udp_gateways(status: &Value, out: &mut String) {
    for relay in list(status, "udp_gateways") {
        let [received, sent, returned, lost] =
            ["received", "sent", "returned", "lost"].map(|name| number(relay, name));
        let name = word(relay, "name");
        let _ = writeln!(
            out,
            "udp gateway {name}: {received} received, {sent} sent, {returned} returned, {lost} lost"
        );
    }
}

// Writing to a string cannot fail.
fn text(status: &Value) -> String {
    let mut out = String::new();
    if let Some(why) = status.get("fallback").and_then(Value::as_str) {
        let _ = writeln!(out, "THE LAST GOOD DESCRIPTION RUNS, as the file's is refused: {why}");
    }
    planes(status, &mut out);
    for link in list(status, "links") {
        let state = word(link, "state");
        let addresses: Vec<_> = list(link, "addresses").iter().filter_map(Value::as_str).collect();
        let _ = writeln!(
            out,
            "link {:<8} {state:<5} {} by {}, {}",
            word(link, "name"),
            word(link, "device"),
            word(link, "mode"),
            // Where there is none, why the link is as it is says more than nothing.
            if addresses.is_empty() { word(link, "why").to_owned() } else { addresses.join(", ") }
        );
        let counted = counts(link, "counters");
        if !counted.is_empty() {
            let _ = writeln!(out, "     {}", counted.join(", "));
        }
        driver(link, &mut out);
    }
    not_forwarding(status, &mut out);
    for hop in list(status, "next_hops") {
        let via = hop.get("via").and_then(Value::as_str).unwrap_or("its neighbours");
        let (link, packets) = (word(hop, "link"), number(hop, "packets"));
        let in_graph = number(hop, "in_graph");
        if packets > 0 {
            let _ = writeln!(out, "forwarded in drivers by {link} to {via}: {packets}");
        }
        if in_graph > 0 {
            let _ = writeln!(out, "sent by {link} to {via}, one of several next hops: {in_graph}");
        }
    }
    kernel(status, &mut out);
    workers(status, &mut out);
    handlers(status, &mut out);
    udp_gateways(status, &mut out);
    for part in list(status, "parts") {
        part_text(&mut out, part);
    }
    balances(status, &mut out);
    for layer in list(status, "layers") {
        let drops = counts(layer, "drops");
        if !drops.is_empty() {
            let _ = writeln!(out, "dropped by {}: {}", word(layer, "layer"), drops.join(", "));
        }
    }
    icmp(status, &mut out);
    let unclaimed = counts(status, "unclaimed");
    if !unclaimed.is_empty() {
        let _ = writeln!(out, "dropped without a receiving layer: {}", unclaimed.join(", "));
    }
    sojourns(status, &mut out);
    hops(status, &mut out);
    times(status, &mut out);
    out
}

/// Delays of hops beside their budgets, as somebody outside measures them.
fn hops(status: &Value, out: &mut String) {
    for hop in list(status, "hops") {
        let ms = |name: &str| hop.get(name).and_then(Value::as_f64);
        let (name, budget) = (word(hop, "name"), ms("budget_ms").unwrap_or_default());
        let _ = match ms("median_ms") {
            Some(median) => {
                let late = if median > budget { ": LATE" } else { "" };
                writeln!(out, "hop {name}: median {median:.2} ms, at most {budget} ms{late}")
            }
            None => writeln!(out, "hop {name}: not measured yet, at most {budget} ms"),
        };
    }
}

/// The mean times of measured packets: in layers, in handing frames to devices, in handlers.
fn times(status: &Value, out: &mut String) {
    let Some(runs) = status.get("measured_runs").and_then(Value::as_u64) else { return };
    let _ = writeln!(out, "measured: {runs} batches, one in a millisecond at most");
    let links = list(status, "links");
    let on = |of: &Value| {
        let link = of.get("link").and_then(Value::as_u64);
        let found = links.iter().find(|one| link.is_some() && Some(number(one, "link")) == link);
        found.map_or_else(String::new, |link| format!(" {}", word(link, "name")))
    };
    let mut told = |what: String, of: &Value| {
        let measured = of.get("measured").unwrap_or(&Value::Null);
        if let (packets @ 1.., ns) = (number(measured, "packets"), number(measured, "ns")) {
            let mean = ns / packets;
            let _ = writeln!(out, "     {what}: {mean} ns a packet, of {packets}");
        }
    };
    for layer in list(status, "layers") {
        told(format!("{}{}", word(layer, "layer"), on(layer)), layer);
    }
    let is_device = |way: &&Value| way.get("to_device").and_then(Value::as_bool) == Some(true);
    for way in list(status, "ways").iter().filter(is_device) {
        told(format!("to device{}", on(way)), way);
    }
    for one in list(status, "attached") {
        told(format!("handler {} {}", number(one, "id"), word(one, "handler")), one);
    }
}

/// Balances with the flows and loads of their relays.
fn balances(status: &Value, out: &mut String) {
    for balance in list(status, "balances") {
        let refused = balance.get("refused").and_then(Value::as_object);
        let refused: Vec<_> =
            refused.into_iter().flatten().map(|(why, count)| format!("{count} {why}")).collect();
        let _ = writeln!(
            out,
            "balance {}: {}, {} flows admitted, refused {}",
            word(balance, "name"),
            word(balance, "policy"),
            number(balance, "admitted"),
            if refused.is_empty() { "none".to_owned() } else { refused.join(", ") }
        );
        for relay in list(balance, "relays") {
            let real = |name: &str| relay.get(name).and_then(Value::as_f64).unwrap_or_default();
            let _ = writeln!(
                out,
                "     {}: {} flows, load {:.1} %, model {:.1} µs + {:.2} ns an octet{}{}",
                word(relay, "address"),
                number(relay, "flows"),
                real("load") * 100.0,
                real("a_us"),
                real("c_ns"),
                live(relay),
                unreachable(relay)
            );
        }
    }
}

/// What the answers of a live relay say of its model.
fn live(relay: &Value) -> String {
    let its = |name: &str| relay.pointer(&format!("/live/{name}"));
    let Some(factor) = its("factor").and_then(Value::as_f64) else { return String::new() };
    let answers = its("answers").and_then(Value::as_u64).unwrap_or_default();
    let drifts = its("drifts").and_then(Value::as_bool) == Some(true);
    let drifts = if drifts { ", drifts" } else { "" };
    format!(", {factor:.2} times the described by {answers} answers{drifts}")
}

/// Whether a relay is left out of its balance, and how often it was not reached.
fn unreachable(relay: &Value) -> String {
    let its = |name: &str| relay.pointer(&format!("/reachability/{name}"));
    let left_out = its("left_out").and_then(Value::as_bool) == Some(true);
    let left_out = if left_out { ", left out" } else { "" };
    match its("unreachable").and_then(Value::as_u64) {
        Some(count @ 1..) => format!("{left_out}, not reached {count} times"),
        _ => left_out.to_owned(),
    }
}

/// Where a link's packets are forwarded, if its driver is asked to.
fn driver(link: &Value, out: &mut String) {
    let forwarding = word(link, "forwarding");
    if forwarding == "by the graph" || forwarding.is_empty() {
        return;
    }
    let outcome =
        |count: &Value| format!("{} {}", word(count, "outcome"), number(count, "packets"));
    let outcomes: Vec<_> = list(link, "in_driver").iter().map(outcome).collect();
    let colon = if outcomes.is_empty() { "" } else { ": " };
    let _ = writeln!(out, "     forwards {forwarding}{colon}{}", outcomes.join(", "));
    let not_redirected = word(link, "not_redirected");
    if !not_redirected.is_empty() {
        let _ =
            writeln!(out, "     what other drivers send here goes by the graph: {not_redirected}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_delay_model_is_told_below_its_delays() {
        let status = json!({
            "sojourn": [{"mode": "tcp_proxy", "relay": "front", "count": 1, "sum": 900, "largest": 900,
                "buckets": [[927, 1]]}],
            "delays": [{"mode": "tcp_proxy", "relay": "front", "seconds": 5.0, "a_us": 12.34,
                "c_ns": 1.5, "load": 0.0215, "predicted_p99_us": null, "measured_p99_us": 99.0,
                "drifts": true}],
        });
        let mut out = String::new();
        sojourns(&status, &mut out);
        let (_, told) = out.split_once('\n').unwrap();
        let expected = "     model: 12.3 µs + 1.50 ns an octet, load 2.1 %; in the last 5 s 99 % \
             within 99.0 µs, predicted ?: DRIFT\n";
        assert_eq!(told, expected);
    }

    #[test]
    fn links_that_do_not_forward_are_named_with_the_key() {
        let said = text(&json!({ "not_forwarding": ["lan", "wan"] }));
        let expected = "not forwarded: packets for others from lan, wan (`forwarding = false` in \
                        [link.NAME])\n";
        assert_eq!(said, expected);
        assert_eq!(text(&json!({})), "");
    }

    #[test]
    fn times_are_told_of_what_was_measured() {
        let measured = |packets: u64, ns: u64| json!({ "packets": packets, "ns": ns });
        let mut out = String::new();
        let mut status = json!({
            "links": [{ "link": 1, "name": "wan" }],
            "layers": [
                { "layer": "ipv4", "link": null, "measured": measured(40, 3560) },
                { "layer": "arp", "link": null, "measured": measured(0, 0) },
                { "layer": "ethernet", "link": 1, "measured": measured(20, 200) }],
            "ways": [
                { "link": 1, "to_device": true, "measured": measured(10, 5000) },
                { "link": 1, "to_device": false, "measured": measured(10, 5000) }],
            "attached": [{ "id": 3, "handler": "count", "measured": measured(10, 30) }, { "id": 4 }],
        });
        times(&status, &mut out);
        assert_eq!(out, "", "nothing was asked for");
        status["measured_runs"] = 7.into();
        times(&status, &mut out);
        let expected = "measured: 7 batches, one in a millisecond at most\n     \
             ipv4: 89 ns a packet, of 40\n     ethernet wan: 10 ns a packet, of 20\n     \
             to device wan: 500 ns a packet, of 10\n     handler 3 count: 3 ns a packet, of 10\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn icmp_messages_are_told_by_version_and_fate() {
        let row = |version, message, [received, sent, rate_limited]: [u64; 3]| {
            json!({
                "ip_version": version, "message": message,
                "received": received, "sent": sent, "rate_limited": rate_limited,
            })
        };
        let status = json!({ "icmp": [
            row(4, "echo-reply", [0, 3, 0]),
            row(4, "echo-request", [3, 0, 0]),
            row(4, "time-exceeded", [0, 52, 148]),
            row(6, "packet-too-big", [0, 1, 0]),
        ]});
        let mut out = String::new();
        icmp(&status, &mut out);
        let expected = "icmp of ipv4: received echo-request 3; sent echo-reply 3, \
             time-exceeded 52; held back by the rate limit time-exceeded 148\n\
             icmp of ipv6: sent packet-too-big 1\n";
        assert_eq!(out, expected);
    }
}
