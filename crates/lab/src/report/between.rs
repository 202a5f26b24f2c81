//! The report of a run between machines: one HTML file, and CSV.

use super::chart::{digits, escape};
use super::page::{SCROLL, STYLE, interval};
use crate::agent::{AgentCondition, AgentMachine, AgentRun, way};
use crate::analysis::DelaySummary;
use crate::covariates::Covariates;
use std::fmt::Write;

/// The report of a run between machines.
pub fn agents_html(run: &AgentRun) -> String {
    let title = escape(&run.experiment.title);
    let packets: u32 = run.conditions.iter().map(|it| it.sent).sum();
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><main><h1>{title}</h1><p class=\"soft\">Round trips between \
         {} machines: {} sessions and conditions, {packets} packets in {:.0} s; Gatewright {}.</p>",
        run.machines.len(),
        run.conditions.len(),
        run.seconds,
        escape(&run.version)
    );
    for finding in &run.findings {
        // Writing to a string cannot fail.
        let _ = write!(page, "<p class=\"warning\">{}.</p>", escape(finding));
    }
    sessions(&mut page, run);
    machines(&mut page, run);
    page.push_str(METHOD);
    let experiment = serde_json::to_string_pretty(&run.experiment).unwrap_or_default();
    let _ = writeln!(
        page,
        "<details><summary>The experiment</summary><pre>{}</pre></details></main></body></html>",
        escape(&experiment)
    );
    page
}

const METHOD: &str = "\
<h2>Method</h2><p>Sessions are of test packets of STAMP (RFC 8762), authenticated where an agent reflects. \
The sender follows a schedule. A round trip is without the time in the reflector. Sessions and conditions \
follow one another, round after round; where medians of the repetitions vary by more than the experiment \
allows, a condition is unsteady. Beside percentiles are intervals of 95 % by order statistics, which hold \
if packets are independent.</p><p>Delays on one way are by the difference of both clocks in the \
exchange with the shortest round trip of each repetition, so they are off by half of that round trip at \
the most: the bound beside them. The coordinator compares its clock with that of each machine before, \
between and after sessions; a difference that errors and a drift of 500 ppm do not explain is a leap. What \
a sender says is compared with what its reflector says.</p>";

fn micros(delay: Option<DelaySummary>, part: fn(DelaySummary) -> f64) -> String {
    delay.map_or_else(|| "–".to_owned(), |it| digits(part(it)))
}

fn sessions(page: &mut String, run: &AgentRun) {
    let _ = write!(
        page,
        "<h2>Sessions</h2>{SCROLL}<table><thead><tr><th class=\"text\">session</th>\
         <th>octets</th><th>rate</th><th>round trip, median [µs]</th><th>95 %</th><th>99 %</th>\
         <th>there</th><th>back</th><th>±</th><th>in the reflector</th><th>sent</th><th>lost there</th>\
         <th>lost back</th><th>CV</th><th>steady</th></tr></thead><tbody>",
    );
    for it in &run.conditions {
        let lost = |count: Option<u32>| count.map_or_else(|| "–".to_owned(), |it| it.to_string());
        let _ = write!(
            page,
            "<tr><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td></tr>",
            escape(&way(&it.session)),
            it.octets,
            it.rate,
            micros(it.round_trip, |it| it.p50),
            micros(it.round_trip, |it| it.p95)
                + &interval(it.round_trip.and_then(|it| it.p95_interval)),
            micros(it.round_trip, |it| it.p99)
                + &interval(it.round_trip.and_then(|it| it.p99_interval)),
            micros(it.there, |it| it.p50),
            micros(it.back, |it| it.p50),
            it.one_way_error_us.map_or_else(|| "–".to_owned(), digits),
            micros(it.inside, |it| it.p50),
            it.sent,
            if it.lost_there.is_some() { lost(it.lost_there) } else { both_ways(it) },
            lost(it.lost_back),
            it.cv_pct.map_or_else(|| "–".to_owned(), |cv| format!("{cv:.1} %")),
            match it {
                AgentCondition { received: 0, .. } => "nothing came back",
                AgentCondition { steady: true, .. } => "yes",
                _ => "<span class=\"different\">no</span>",
            }
        );
    }
    page.push_str("</tbody></table></div>");
}

/// Losses that cannot be told apart.
fn both_ways(it: &AgentCondition) -> String {
    format!("{} on either way", it.sent.saturating_sub(it.received))
}

fn machines(page: &mut String, run: &AgentRun) {
    let _ = write!(
        page,
        "<h2>Machines</h2>{SCROLL}<table><thead><tr><th>name</th>\
         <th class=\"text\">machine</th><th>clock at the start [µs]</th><th>at the end</th><th>±</th>\
         <th class=\"text\">conditions there</th></tr></thead><tbody>",
    );
    for it in &run.machines {
        let AgentMachine { name, machine, version, clocks, covariates, ended } = it;
        let offset = |at: Option<&crate::agent::ClockComparison>| {
            at.map_or_else(|| "–".to_owned(), |it| format!("{:+.1}", it.offset_us))
        };
        let error = clocks.iter().map(|it| it.error_us).reduce(f64::max);
        let unknown = || "not known".to_owned();
        let covariates = covariates.as_ref().map_or_else(unknown, Covariates::text);
        let ended = ended.as_ref().map_or_else(String::new, |why| {
            format!(" <span class=\"different\">Ended: {}.</span>", escape(why))
        });
        let _ = write!(
            page,
            "<tr><td>{}</td><td class=\"text\">{}; Gatewright {}{ended}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td class=\"text\">{}</td></tr>",
            escape(name),
            escape(machine),
            escape(version),
            offset(clocks.first()),
            offset(clocks.last()),
            error.map_or_else(|| "–".to_owned(), digits),
            escape(&covariates)
        );
    }
    page.push_str(
        "</tbody></table></div><p class=\"soft\">Clocks are ahead of the coordinator's by so much, wrong \
         by ± at the most.</p>",
    );
}

/// The sessions of a run between machines as CSV (RFC 4180); delays in microseconds.
pub fn agents_csv(run: &AgentRun) -> String {
    let mut text = String::from(
        "from,to,through,octets,rate,sent,received,lost_there,lost_back,round_trip_p50,round_trip_p95,\
         round_trip_p99,there_p50,back_p50,one_way_error,inside_p50,cv_pct,steady,round_trip_p95_low,\
         round_trip_p95_high,round_trip_p99_low,round_trip_p99_high\n",
    );
    let quoted = |value: &str| format!("\"{}\"", value.replace('"', "\"\""));
    let count = |value: Option<u32>| value.map_or_else(String::new, |it| it.to_string());
    let real = |value: Option<f64>| value.map_or_else(String::new, |it| format!("{it:.3}"));
    for it in &run.conditions {
        let session = &it.session;
        let reflector = session.reflector.map(|at| at.to_string());
        let to = session.to.clone().or(reflector).unwrap_or_default();
        let p95 = it.round_trip.and_then(|it| it.p95_interval);
        let p99 = it.round_trip.and_then(|it| it.p99_interval);
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            quoted(&session.from),
            quoted(&to),
            quoted(&session.through.join(" ")),
            it.octets,
            it.rate,
            it.sent,
            it.received,
            count(it.lost_there),
            count(it.lost_back),
            real(it.round_trip.map(|it| it.p50)),
            real(it.round_trip.map(|it| it.p95)),
            real(it.round_trip.map(|it| it.p99)),
            real(it.there.map(|it| it.p50)),
            real(it.back.map(|it| it.p50)),
            real(it.one_way_error_us),
            real(it.inside.map(|it| it.p50)),
            real(it.cv_pct),
            it.steady,
            real(p95.map(|it| it.low)),
            real(p95.map(|it| it.high)),
            real(p99.map(|it| it.low)),
            real(p99.map(|it| it.high))
        );
    }
    text
}
