//! The report as one HTML file that needs nothing else.

use super::chart::{digits, escape};
use super::figures::{Figure, figures, in_words};
use super::statements::{Agreement, statements};
use super::table::csv;
use crate::analysis::{ConfidenceInterval, DelaySummary, ModelChoice};
use crate::covariates::Covariates;
use crate::result::{LabRun, RelayModel};
use gatewright_onem2m::Timestamp;
use std::fmt::Write;
use std::time::Duration;

/// The report of a run.
pub fn html(run: &LabRun) -> String {
    let mut page = String::from("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{}</title>\
         <style>{STYLE}</style></head><body><main>",
        escape(&run.experiment.title)
    );
    head(&mut page, run);
    summary(&mut page, run);
    beside_paper(&mut page, run);
    page.push_str("<h2>Figures</h2><div class=\"figures\">");
    for figure in figures(run) {
        push_figure(&mut page, &figure);
    }
    page.push_str("</div>");
    models(&mut page, run);
    conditions(&mut page, run);
    method(&mut page, run);
    machine(&mut page, run);
    page + "</main></body></html>\n"
}

/// A number of things whose plural has an s.
pub fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// The beginning of a table that may be wider than the window: by keyboard, too, it can be scrolled.
pub(super) const SCROLL: &str =
    "<div class=\"scroll\" role=\"group\" aria-label=\"table\" tabindex=\"0\">";

pub(super) const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1f2328;--soft:#5a6169;--edge:#d0d7de;--tint:#f4f6f8;\
--good:#1a7f37;--bad:#b35900}\
@media(prefers-color-scheme:dark){:root{--paper:#15191e;--ink:#e6e9ec;--soft:#a0a8b1;--edge:#3a424b;\
--tint:#1e242b;--good:#57c878;--bad:#f0a04b;--c0:#58a6ff;--c1:#ff9248;--c2:#3fcf9b;--c3:#e79ccb;\
--c4:#f2c14e;--c5:#8ed1fc;--c6:#c9a26b;--c7:#a6adb5}}\
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);\
font:15px/1.5 system-ui,sans-serif}main{max-width:1120px;margin:0 auto;padding:32px 20px 64px}\
h1{font-size:28px;line-height:1.2;margin:0 0 6px}h2{font-size:20px;margin:40px 0 10px}\
p{max-width:75ch;margin:8px 0}.soft{color:var(--soft)}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%}\
th,td{padding:5px 10px;border-bottom:1px solid var(--edge);text-align:right;vertical-align:top}\
th{font-weight:600;font-size:13px;color:var(--soft)}th:first-child,td:first-child,td.text,th.text\
{text-align:left}tbody tr:hover{background:var(--tint)}\
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,500px),1fr));gap:22px}\
figure{margin:0;border:1px solid var(--edge);border-radius:8px;padding:12px;break-inside:avoid}\
figure svg{width:100%;height:auto;display:block}figcaption{font-size:13.5px;color:var(--soft);\
margin-top:6px}a{color:var(--c0,#0969da)}.same{color:var(--good)}.different{color:var(--bad)}\
.warning{border-left:3px solid var(--bad);padding:2px 12px;background:var(--tint);margin:10px 0}\
details{margin:10px 0}summary{cursor:pointer;font-weight:600}code{font-size:13px}\
pre{white-space:pre-wrap;background:var(--tint);padding:12px;border-radius:6px;font-size:12.5px}\
@media print{:root{--paper:#fff;--ink:#000}main{max-width:none;padding:0}\
.figures{grid-template-columns:1fr 1fr}tr{break-inside:avoid}details{display:block}}";

fn head(page: &mut String, run: &LabRun) {
    let probes: usize = run.conditions.iter().map(|it| it.sent).sum();
    let _ = write!(
        page,
        "<h1>{}</h1><p class=\"soft\">Relaying delay on {}. {}, {}, {} in {:.0} s; \
         Gatewright {}.</p>",
        escape(&run.experiment.title),
        escape(&run.machine),
        counted(run.relays().len(), "relay"),
        counted(run.conditions.len(), "condition"),
        counted(probes, "probe"),
        run.seconds,
        escape(&run.version)
    );
    if let Some(why) = &run.unfinished {
        let _ = write!(page, "<p class=\"warning\">This run is unfinished: {}.</p>", escape(why));
    }
    if !run.has_delays() {
        page.push_str("<p class=\"warning\">No relay has a result.</p>");
    }
    if !run.optimised {
        page.push_str(
            "<p class=\"warning\">This program was built without optimisation: the delays of relays \
             in user space are no result.</p>",
        );
    }
    for it in &run.left_out {
        let _ = write!(
            page,
            "<p class=\"warning\">Left out: {} — {}.</p>",
            escape(&it.what),
            escape(&it.why)
        );
    }
    if !run.warnings.is_empty() {
        let _ = write!(
            page,
            "<details class=\"warning\"><summary>{}: what disturbed this run</summary><ul>",
            counted(run.warnings.len(), "warning")
        );
        for warning in &run.warnings {
            let _ = write!(page, "<li>{}</li>", escape(warning));
        }
        page.push_str("</ul></details>");
    }
}

fn micros(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), digits)
}

pub(super) fn interval(value: Option<ConfidenceInterval>) -> String {
    value.map_or_else(String::new, |it| {
        format!(" <span class=\"soft\">{}–{}</span>", digits(it.low), digits(it.high))
    })
}

fn summary(page: &mut String, run: &LabRun) {
    let centre = run.experiment.centre;
    let _ = write!(
        page,
        "<h2>At the centre: {} octets, {} packets a second, other load {} %</h2>\
         {SCROLL}<table><thead><tr><th>relay</th><th>node delay, median [µs]</th>\
         <th>95 %</th><th>99 %</th><th>NLR</th><th>lost</th><th>spikes</th><th>probes</th>\
         <th>steady</th></tr></thead><tbody>",
        centre.octets, centre.rate, centre.load_pct
    );
    for relay in run.relays() {
        let Some(it) = run.centre(relay) else { continue };
        let node = |part: fn(DelaySummary) -> f64| it.node.map(part);
        let percent = |it: ConfidenceInterval| it.scaled(100.0);
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}{}</td><td>{}{}</td><td>{}{}</td><td>{}{}</td><td>{:.1} %{}</td>\
             <td>{}</td><td>{}</td><td>{}</td></tr>",
            relay.name(),
            micros(node(|it| it.p50)),
            interval(it.node_median),
            micros(node(|it| it.p95)),
            interval(it.node.and_then(|it| it.p95_interval)),
            micros(node(|it| it.p99)),
            interval(it.node.and_then(|it| it.p99_interval)),
            it.node_link_ratio().map_or("–".to_owned(), |it| format!("{:.0} %", it * 100.0)),
            interval(it.node_link_interval.map(percent)),
            it.loss_pct(),
            interval(it.loss_interval_pct()),
            it.spikes,
            it.received,
            match (it.steady, it.cv_pct) {
                (true, _) => "yes",
                (false, None) => "not known",
                (false, Some(_)) => "<span class=\"different\">no</span>",
            }
        );
    }
    page.push_str(
        "</tbody></table></div><p class=\"soft\">Beside each figure its interval of 95 %: of medians and \
         of NLR by block bootstrap, of percentiles by order statistics, of losses by Wilson; the last \
         two hold if probes are independent. Below 72 probes the 95th percentile has none, and below \
         368 the 99th. NLR is node delay over link delay, by medians. A relay is steady if the medians \
         of its repetitions vary by no more than the experiment allows.</p>",
    );
}

fn beside_paper(page: &mut String, run: &LabRun) {
    let _ = write!(
        page,
        "<h2>Beside the paper</h2><p class=\"soft\">T. Miya, K. Ohshima, Y. Kitaguchi, K. Yamaoka: \
         Experimental Analysis of Communication Relaying Delay in Low-Energy Ad-hoc Networks (2020), \
         on three Raspberry Pi Zero W. A different machine may well show something different; the \
         last column says so and does not judge.</p>{SCROLL}<table><thead><tr>\
         <th class=\"text\">the paper</th><th class=\"text\">this run</th><th class=\"text\">verdict</th>\
         </tr></thead><tbody>",
    );
    for it in statements(run) {
        let (class, verdict) = match it.agreement {
            Agreement::Same => ("same", "the same"),
            Agreement::Different => ("different", "different"),
            Agreement::Unknown => ("soft", "–"),
        };
        let _ = write!(
            page,
            "<tr><td>{}</td><td class=\"text\">{}</td><td class=\"text {class}\">{verdict}</td></tr>",
            escape(it.paper),
            escape(&it.ours)
        );
    }
    page.push_str("</tbody></table></div>");
}

fn push_figure(page: &mut String, figure: &Figure) {
    let file: String = figure.name.chars().filter(char::is_ascii_alphanumeric).collect();
    let _ = write!(
        page,
        "<figure>{}<figcaption><b>{}.</b> {} <a download=\"{}.csv\" \
         href=\"data:text/csv;charset=utf-8,{}\">Data</a></figcaption></figure>",
        figure.svg,
        escape(&figure.name),
        escape(&figure.caption),
        file.to_lowercase(),
        in_url(&figure.csv)
    );
}

/// Text inside of a `data:` URL (RFC 2397, RFC 3986 §2.3).
fn in_url(text: &str) -> String {
    let mut url = String::with_capacity(text.len() * 5 / 4);
    for octet in text.bytes() {
        match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b',' => {
                url.push(char::from(octet));
            }
            _ => {
                let _ = write!(url, "%{octet:02X}");
            }
        }
    }
    url
}

fn models(page: &mut String, run: &LabRun) {
    let _ = write!(
        page,
        "<h2>Models</h2>{SCROLL}<table><thead><tr><th>relay</th><th>a [µs]</th>\
         <th>c [ns/octet]</th><th>R²</th><th>c by Theil–Sen</th><th class=\"text\">queue</th>\
         <th>error</th><th>the other's</th><th>p99 error</th></tr></thead><tbody>",
    );
    for model in &run.models {
        push_model(page, model);
    }
    page.push_str(
        "</tbody></table></div><p class=\"soft\">S(b) = a + c·b by least squares, with bootstrap \
         intervals of 95 %. The queue model is the one that predicts the mean of each condition, left \
         out of the fit in its turn, with the smaller error; spikes are not part of these means. Where \
         the node is hardly loaded, both models say the same. Beside the error is the condition of which the \
         model is farthest off. A set-up time D is what packets take \
         longer after a pause g, as D·(1 − exp(−g/τ)); it is part of a model that predicts better with \
         it. The p99 error is that of a generalised Pareto tail fitted to every other repetition, \
         against the rest, where each half has a thousand probes.</p>",
    );
}

fn push_model(page: &mut String, model: &RelayModel) {
    let percent = |value: Option<f64>| value.map_or("–".to_owned(), |it| format!("{it:.1} %"));
    let service = model.service;
    let nano = |it: ConfidenceInterval| it.scaled(1000.0);
    let _ = write!(
        page,
        "<tr><td>{}</td><td>{}{}</td><td>{}{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td>\
         <td>{}</td><td>{}</td><td>{}</td></tr>",
        model.relay.name(),
        micros(service.map(|it| it.intercept)),
        interval(model.intervals.map(|it| it.intercept)),
        micros(service.map(|it| it.slope * 1000.0)),
        interval(model.intervals.map(|it| nano(it.slope))),
        service.map_or("–".to_owned(), |it| format!("{:.3}", it.r_squared)),
        micros(model.robust.map(|it| it.slope * 1000.0)),
        model.queue.map_or_else(|| "–".to_owned(), queue),
        percent(model.queue.map(|it| it.error_pct)) + &worst(model),
        percent(model.queue.map(|it| it.loser_error_pct)),
        percent(model.p99_error_pct)
    );
}

/// The condition of which the model is farthest off.
fn worst(model: &RelayModel) -> String {
    let worst =
        model.held_out.iter().max_by(|one, other| one.error_pct.total_cmp(&other.error_pct));
    worst.map_or_else(String::new, |it| {
        format!(
            " <span class=\"soft\">{:.1} % at {} octets, {}/s</span>",
            it.error_pct, it.octets, it.rate
        )
    })
}

/// A queue model in words.
fn queue(it: ModelChoice) -> String {
    let name = it.chosen.name();
    it.setup.map_or_else(
        || name.to_owned(),
        |setup| {
            let (longest, time_constant) = (setup.longest * 1e6, setup.time_constant * 1e3);
            format!("{name}, set-up D {longest:.1} µs, τ {time_constant} ms")
        },
    )
}

fn conditions(page: &mut String, run: &LabRun) {
    let _ = write!(
        page,
        "<h2>All conditions</h2><p><a download=\"conditions.csv\" \
         href=\"data:text/csv;charset=utf-8,{}\">All conditions as CSV</a></p><details><summary>Table \
         of {} conditions</summary>{SCROLL}<table><thead><tr><th>relay</th>\
         <th>octets</th><th>rate</th><th>beside</th><th>node median</th><th>95 %</th><th>99 %</th>\
         <th>link</th><th>end to end</th><th>lateness 99 %</th><th>lost</th><th>probes</th><th>CV</th></tr></thead>\
         <tbody>",
        in_url(&csv(run)),
        run.conditions.len()
    );
    for it in &run.conditions {
        let median = |delay: Option<DelaySummary>| micros(delay.map(|it| it.p50));
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td><td>{}{}</td><td>{}{}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{:.1} %{}</td><td>{}</td><td>{}</td></tr>",
            it.relay.name(),
            it.octets,
            it.rate,
            in_words(it.condition()),
            median(it.node),
            interval(it.node_median),
            micros(it.node.map(|it| it.p95)),
            interval(it.node.and_then(|it| it.p95_interval)),
            micros(it.node.map(|it| it.p99)),
            interval(it.node.and_then(|it| it.p99_interval)),
            median(it.link),
            median(it.end_to_end),
            micros(it.lateness.map(|it| it.p99)),
            it.loss_pct(),
            interval(it.loss_interval_pct()),
            it.received,
            it.cv_pct.map_or("–".to_owned(), |cv| format!("{cv:.1} %"))
        );
    }
    page.push_str("</tbody></table></div></details>");
}

fn method(page: &mut String, run: &LabRun) {
    page.push_str("<h2>Method</h2>");
    let place = if run.namespaces {
        "Sender, node and receiver are network namespaces, joined by virtual cables. Programs at the \
         node's ingress and egress (tcx) write down when each probe passes; a relay that takes frames \
         before these hooks (our stack) is stamped at the far ends of its cables, so its node delay \
         includes two crossings of a cable."
    } else {
        "Sender, relay and receiver are on loopback. The kernel's stamp on the relay's socket is the \
         ingress, that on the receiver's socket the egress: loopback delivers within the sending \
         call, so there is no link delay."
    };
    let _ = write!(
        page,
        "<p>{place}</p><p>A probe's payload begins with its sequence number and the run's tag (12 \
         octets, which relays that encrypt leave clear). Relays over sockets stamp a probe after the \
         call that receives it and before the call that sends it; the receiver has the kernel's stamp \
         on its socket (for TCP, the end of its read call). All times are of one clock.</p>\
         <p>The sender follows a schedule and leaves no probe out when it is late; its lateness is \
         reported beside the delays. Conditions of a relay follow one another in random order, and \
         relays in turn, round after round. The first probes of each repetition are in no result. Ends \
         are kept on processor {}, the relay on processor {}; a kernel that routes works on the \
         sender's.</p>",
        run.processors.0, run.processors.1
    );
    let _ = write!(page, "<p>{}</p>", observing(run));
    page.push_str(
        "<p>Spikes are upper outliers of a Hampel filter (3 σ, 50 neighbours on each side); those less than 50 \
         probes apart are one event for their period, which is sought within repetitions. Quantiles \
         are interpolated linearly. Jitter is the difference between the delays of successive probes \
         (RFC 3393).</p>",
    );
}

/// What observing costs.
fn observing(run: &LabRun) -> String {
    let Some(observer) = run.observer else {
        return "What observing costs was not measured in this run.".to_owned();
    };
    let difference = observer.difference_us.map_or_else(String::new, |(mean, interval)| {
        let [mean, low, high] = [mean, interval.low, interval.high].map(digits);
        format!("; those of a pair differ by {mean} µs on average ({low} to {high} with 95 %)")
    });
    format!(
        "Observing costs {} ns for each of the two programs and probe (mean of 100,000 runs). The median \
         end-to-end delay of translation is {} µs with and {} µs without them{difference}, over {} pairs \
         of repetitions.",
        digits(observer.program_ns),
        digits(observer.with_us),
        digits(observer.without_us),
        observer.pairs
    )
}

/// Seconds since 1970 as a date and a time.
fn in_utc(seconds: u64) -> String {
    let text = Timestamp::new(Duration::from_secs(seconds)).to_string();
    let of = |from, to| text.get(from..to).unwrap_or_default();
    let (year, month, day) = (of(0, 4), of(4, 6), of(6, 8));
    let (hour, minute, second) = (of(9, 11), of(11, 13), of(13, 15));
    format!("{year}-{month}-{day} {hour}:{minute}:{second} UTC")
}

fn machine(page: &mut String, run: &LabRun) {
    let earlier = || "Covariates were not recorded.".to_owned();
    let covariates = run.covariates.as_ref().map_or_else(earlier, Covariates::text);
    let steal = run.conditions.iter().map(|it| it.steal_pct);
    let steal: Vec<f64> = steal.collect();
    let worst = steal.iter().copied().fold(0.0, f64::max);
    let experiment = serde_json::to_string_pretty(&run.experiment).unwrap_or_default();
    let _ = write!(
        page,
        "<h2>Machine</h2><p>{}. {} Time taken by the host: at most {worst:.1} % of a condition. Started \
         {}, {:.0} s long.</p>\
         <details><summary>The experiment</summary><pre>{}</pre></details>",
        escape(&run.machine),
        escape(&covariates),
        in_utc(run.started),
        run.seconds,
        escape(&experiment)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3339 §5.8: `1985-04-12T23:20:50.52Z` is 482196050.52 s after 1970.
    #[test]
    fn a_start_is_a_date_and_a_time() {
        assert_eq!(in_utc(482_196_050), "1985-04-12 23:20:50 UTC");
        assert_eq!(in_utc(0), "1970-01-01 00:00:00 UTC");
    }

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!([0, 1, 2].map(|it| counted(it, "relay")), ["0 relays", "1 relay", "2 relays"]);
    }
}
