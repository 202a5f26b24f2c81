//! `gatewright mesh ping` and `gatewright mesh trace`: ECHO over the path of a class.

use super::number;
use crate::{
    exit::{Exit, Failure},
    face::Face,
    socket::Which,
};
use anyhow::Result;
use gatewright_gateway::api::ControlRequest;
use serde_json::{Value, json};
use std::time::Duration;

/// TTL by which a request reaches the end of every path.
const TO_THE_END: u8 = 64;

/// Relays of a path at the most, and its end.
const HOPS_MAX: u8 = 33;

/// Relays in a row without an answer after which a trace ends.
const SILENT_MAX: usize = 4;

/// Echo requests to a node.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct PingOptions {
    /// Number of requests.
    #[arg(long, short, value_name = "NUMBER", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Time between two requests, in milliseconds.
    #[arg(long, value_name = "MS", default_value = "200", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    interval: u64,
    #[command(flatten)]
    class: ClassOption,
}

/// The class whose path is taken.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ClassOption {
    /// Class of traffic whose path is taken: 0 control, 1 bounded delay, 2 bulk, 3 background.
    #[arg(long, value_name = "CLASS", default_value = "2", value_parser = clap::value_parser!(u8).range(0..=3))]
    class: u8,
}

/// One answer, or why there is none.
fn echo(which: &Which, node: &str, (class, ttl): (u8, u8)) -> Result<Value, Failure> {
    which.ask(&ControlRequest::EchoMesh { node: node.to_owned(), class, ttl }).or_else(|failure| {
        // The gateway has answered that nobody answered it.
        if failure.exit == Exit::Negative {
            Ok(json!({ "error": failure.message }))
        } else {
            Err(failure)
        }
    })
}

fn error(answer: &Value) -> Option<&str> {
    answer.get("error").and_then(Value::as_str)
}

/// Sends requests to the end of the path, and shows each answer.
pub(super) fn ping(which: &Which, node: &str, options: PingOptions, face: Face) -> Result<Exit> {
    let mut echoes = Vec::new();
    for sequence in 1..=options.count {
        if sequence > 1 {
            std::thread::sleep(Duration::from_millis(options.interval));
        }
        let answer = echo(which, node, (options.class.class, TO_THE_END))?;
        if !face.is_json() {
            face.line(&answer, || ping_line(sequence, node, &answer))?;
        }
        echoes.push(answer);
    }
    let summary = summary(node, &echoes);
    face.answer(&summary, || summary_line(&summary))?;
    Ok(if number(&summary, "answered") > 0 { Exit::Success } else { Exit::Negative })
}

fn ping_line(sequence: u32, node: &str, answer: &Value) -> String {
    match error(answer) {
        Some(error) => format!("{sequence}: {error}"),
        None => format!(
            "{sequence}: {node} answers over {} links, label {}, in {}",
            number(answer, "hops"),
            number(answer, "label"),
            ms(number(answer, "rtt_us")),
        ),
    }
}

pub(super) fn ms(us: u64) -> String {
    format!("{}.{:03} ms", us / 1_000, us % 1_000)
}

/// The answers with their times in order.
fn summary(node: &str, echoes: &[Value]) -> Value {
    let answered = echoes.iter().filter(|answer| error(answer).is_none());
    let mut times: Vec<u64> = answered.map(|answer| number(answer, "rtt_us")).collect();
    times.sort_unstable();
    json!({
        "node": node,
        "sent": echoes.len(),
        "answered": times.len(),
        "min_us": times.first(),
        "median_us": times.get(times.len() / 2),
        "max_us": times.last(),
        "echoes": echoes,
    })
}

fn summary_line(summary: &Value) -> String {
    let [sent, answered] = ["sent", "answered"].map(|name| number(summary, name));
    let times = ["min_us", "median_us", "max_us"].map(|name| ms(number(summary, name)));
    let times = if answered > 0 { format!("; {}", times.join(" / ")) } else { String::new() };
    format!("{sent} sent, {answered} answered{times}")
}

/// Asks each node of the path in turn.
pub(super) fn trace(which: &Which, node: &str, class: ClassOption, face: Face) -> Result<Exit> {
    let (mut hops, mut silent, mut reached) = (Vec::new(), 0, false);
    for hop in 1..=HOPS_MAX {
        let mut answer = echo(which, node, (class.class, hop))?;
        if let Some(answer) = answer.as_object_mut() {
            answer.insert("hop".to_owned(), hop.into());
        }
        if !face.is_json() {
            face.line(&answer, || hop_line(hop, &answer))?;
        }
        reached = answer.get("node").and_then(Value::as_str) == Some(node);
        silent = if error(&answer).is_some() { silent + 1 } else { 0 };
        hops.push(answer);
        if reached || silent >= SILENT_MAX {
            break;
        }
    }
    let trace = json!({ "node": node, "reached": reached, "hops": hops });
    if face.is_json() {
        face.answer(&trace, String::new)?;
    } else if !reached {
        let text = format!("{node} is not reached");
        return Err(Failure::new(Exit::Negative, text).into());
    }
    Ok(if reached { Exit::Success } else { Exit::Negative })
}

fn hop_line(hop: u8, answer: &Value) -> String {
    match error(answer) {
        Some(error) => format!("{hop:>2}  {error}"),
        None => format!(
            "{hop:>2}  {}  label {}  {}",
            super::word(answer, "node"),
            number(answer, "label"),
            ms(number(answer, "rtt_us")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_times_of_what_was_answered() {
        let answer = |rtt_us: u64| json!({ "rtt_us": rtt_us, "hops": 2, "label": 16 });
        let echoes = [answer(1_500), json!({ "error": "no answer" }), answer(300), answer(900)];
        let summary = summary("02:00:00:00:00:02", &echoes);
        assert_eq!(summary_line(&summary), "4 sent, 3 answered; 0.300 ms / 0.900 ms / 1.500 ms");
        assert_eq!(ping_line(2, "", &echoes[1]), "2: no answer");
        assert_eq!(
            ping_line(1, "02:00:00:00:00:02", &echoes[0]),
            "1: 02:00:00:00:00:02 answers over 2 links, label 16, in 1.500 ms"
        );
    }

    #[test]
    fn a_hop_is_a_node_with_its_label_or_silent() {
        let answer = json!({ "node": "02:00:00:00:00:02", "label": 16, "rtt_us": 1_020 });
        assert_eq!(hop_line(1, &answer), " 1  02:00:00:00:00:02  label 16  1.020 ms");
        assert_eq!(hop_line(10, &json!({ "error": "no answer" })), "10  no answer");
    }
}
