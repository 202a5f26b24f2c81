//! Charts as SVG, in colours of the page that they stand in: dark or light.

use std::fmt::Write;

/// How the points of a series are shown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mark {
    /// Dots joined by a line.
    #[default]
    Line,
    /// A line alone.
    Plain,
    /// Dots alone.
    Dots,
}

/// Points of one name and colour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChartSeries {
    /// Name in the legend.
    pub name: String,
    /// How it is shown.
    pub mark: Mark,
    /// Number of its colour.
    pub colour: usize,
    /// x and y.
    pub points: Vec<(f64, f64)>,
    /// x, and an interval of y around the points.
    pub band: Vec<(f64, f64, f64)>,
}

/// A chart of points over two axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabChart {
    /// Title.
    pub title: String,
    /// Quantity and unit of x.
    pub x: String,
    /// Quantity and unit of y.
    pub y: String,
    /// x by its logarithm.
    pub log_x: bool,
    /// y by its logarithm; else from 0.
    pub log_y: bool,
    /// The series.
    pub series: Vec<ChartSeries>,
    /// Intervals of x behind them.
    pub spans: Vec<ChartSpan>,
}

/// A named interval of x, shaded behind the series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChartSpan {
    /// Its text, at the top.
    pub name: String,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}

impl ChartSpan {
    fn draw(&self, svg: &mut String, x: &Axis, y: &Axis) {
        let (from, to) = (x.at(self.from), x.at(self.to));
        let _ = write!(
            svg,
            "<path d=\"M{from:.1} {0:.1}V{1:.1}H{to:.1}V{0:.1}Z\" style=\"fill:{2}\" \
             fill-opacity=\".16\"/><text x=\"{3:.1}\" y=\"{4:.1}\">{5}</text>",
            y.from,
            y.to,
            colour(1),
            from + 3.0,
            y.to + 13.0,
            escape(&self.name)
        );
    }
}

/// A chart of bars, each divided into parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarChart {
    /// Title.
    pub title: String,
    /// Quantity and unit of the bars.
    pub y: String,
    /// Names of the bars.
    pub bars: Vec<String>,
    /// Name of each part, and its value in each bar.
    pub parts: Vec<(String, Vec<f64>)>,
    /// A text above each bar.
    pub notes: Vec<String>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
/// Left, right, top, bottom.
const MARGIN: [f64; 4] = [76.0, 16.0, 40.0, 52.0];
/// Colours that are told apart without red and green (Okabe and Ito); a page may replace them.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#777777"];

/// An axis: where a value is, between two ends.
#[derive(Clone, Copy, Debug)]
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    is_log: bool,
}

impl Axis {
    fn new(
        values: impl Iterator<Item = f64>,
        (from, to): (f64, f64),
        is_log: bool,
        zero: bool,
    ) -> Self {
        let usable = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in usable {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if is_log {
            (low, high) = (low / 1.2, high * 1.2);
        } else {
            let pad = (high - low).abs().max(high.abs() * 0.01).max(1e-9) * 0.06;
            low = if zero && low >= 0.0 { 0.0 } else { low - pad };
            high += pad;
        }
        Self { low, high, from, to, is_log }
    }

    fn at(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(-0.02, 1.02) * (self.to - self.from)
    }

    /// Values with a line: powers of ten with 2 and 5 between them, or some six round numbers.
    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        if self.is_log {
            let mut power = 10.0_f64.powf(self.low.log10().floor());
            let decades = (self.high / self.low).log10();
            let steps: &[f64] = if decades > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            while power <= self.high && ticks.len() < 40 {
                ticks.extend(steps.iter().map(|step| step * power));
                power *= 10.0;
            }
        } else {
            let step = round_up((self.high - self.low) / 6.0);
            let mut tick = (self.low / step).ceil() * step;
            while tick <= self.high && ticks.len() < 40 {
                ticks.push(tick);
                tick += step;
            }
        }
        ticks.retain(|tick| (self.low..=self.high).contains(tick));
        ticks
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10.0_f64.powf(value.max(1e-12).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.iter().map(|step| step * power).find(|step| *step >= value * 0.999).unwrap_or(value)
}

/// A number with the digits that count.
pub(crate) fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        it if it == 0.0 || it >= 100.0 => 0,
        it if it >= 10.0 => 1,
        it if it >= 0.1 => 2,
        it if it >= 0.001 => 4,
        _ => 6,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Text for XML and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn colour(number: usize) -> String {
    let at = number % COLOURS.len();
    format!("var(--c{at}, {})", COLOURS.get(at).copied().unwrap_or("#777777"))
}

/// The beginning of a chart: background, title.
fn head(title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{0}\" style=\"background:var(--paper, #fff);color:var(--ink, #222)\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"currentColor\">\
         <text x=\"{1}\" y=\"20\" font-size=\"15\" font-weight=\"600\">{0}</text>",
        escape(title),
        MARGIN[0]
    )
}

fn frame(svg: &mut String, x: &Axis, y: &Axis, names: (&str, &str), x_ticks: bool) {
    let line = "stroke=\"currentColor\" stroke-opacity";
    for tick in y.ticks() {
        let at = y.at(tick);
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<path d=\"M{:.1} {at:.1}H{:.1}\" {line}=\".14\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            x.from,
            x.to,
            x.from - 6.0,
            at + 4.0,
            digits(tick)
        );
    }
    for tick in x.ticks().into_iter().filter(|_| x_ticks) {
        let at = x.at(tick);
        let _ = write!(
            svg,
            "<path d=\"M{at:.1} {:.1}V{:.1}\" {line}=\".08\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            y.from,
            y.to,
            y.from + 16.0,
            digits(tick)
        );
    }
    let _ = write!(
        svg,
        "<path d=\"M{0:.1} {1:.1}V{2:.1}H{3:.1}\" fill=\"none\" {line}=\".6\"/>\
         <text x=\"{4:.1}\" y=\"{5:.1}\" text-anchor=\"middle\">{6}</text>\
         <text transform=\"translate(18 {7:.1}) rotate(-90)\" text-anchor=\"middle\">{8}</text>",
        x.from,
        y.to,
        y.from,
        x.to,
        f64::midpoint(x.from, x.to),
        HEIGHT - 12.0,
        escape(names.0),
        f64::midpoint(y.from, y.to),
        escape(names.1)
    );
}

/// Names and colours, from the right of the title's line on.
fn legend(svg: &mut String, names: &[(String, usize)]) {
    let (mut x, mut y) = (MARGIN[0], 36.0);
    for (name, number) in names {
        let width = 24.0 + 6.6 * crate::analysis::real(name.chars().count());
        if x + width > WIDTH - MARGIN[1] {
            (x, y) = (MARGIN[0], y + 15.0);
        }
        let _ = write!(
            svg,
            "<rect x=\"{x:.0}\" y=\"{:.0}\" width=\"12\" height=\"8\" style=\"fill:{}\"/>\
             <text x=\"{:.0}\" y=\"{:.0}\">{}</text>",
            y - 8.0,
            colour(*number),
            x + 16.0,
            y,
            escape(name)
        );
        x += width;
    }
}

/// Where the plot begins below the legend.
fn top(names: &[(String, usize)]) -> f64 {
    let mut lines = 1.0;
    let mut x = MARGIN[0];
    for (name, _) in names {
        let width = 24.0 + 6.6 * crate::analysis::real(name.chars().count());
        if x + width > WIDTH - MARGIN[1] {
            (x, lines) = (MARGIN[0], lines + 1.0);
        }
        x += width;
    }
    MARGIN[2] + 8.0 + 15.0 * (lines - 1.0)
}

impl LabChart {
    /// The chart as SVG.
    pub fn svg(&self) -> String {
        let names: Vec<(String, usize)> =
            self.series.iter().map(|it| (it.name.clone(), it.colour)).collect();
        let points = || self.series.iter().flat_map(|series| &series.points);
        let bands = || self.series.iter().flat_map(|series| &series.band);
        let spans = self.spans.iter().flat_map(|it| [it.from, it.to]);
        let xs = points().map(|it| it.0).chain(bands().map(|it| it.0)).chain(spans);
        let ys = points().map(|it| it.1).chain(bands().flat_map(|it| [it.1, it.2]));
        let x = Axis::new(xs, (MARGIN[0], WIDTH - MARGIN[1]), self.log_x, false);
        let y = Axis::new(ys, (HEIGHT - MARGIN[3], top(&names)), self.log_y, true);
        let mut svg = head(&self.title);
        legend(&mut svg, &names);
        self.spans.iter().for_each(|span| span.draw(&mut svg, &x, &y));
        frame(&mut svg, &x, &y, (&self.x, &self.y), true);
        for series in &self.series {
            series.draw(&mut svg, &x, &y);
        }
        svg + "</svg>"
    }

    /// The chart's data as CSV.
    pub fn csv(&self) -> String {
        let mut csv = format!("series,{},{},low,high\n", quoted(&self.x), quoted(&self.y));
        for series in &self.series {
            let name = quoted(&series.name);
            for (at, (x, y)) in series.points.iter().enumerate() {
                let band = series.band.get(at).filter(|band| (band.0 - x).abs() < 1e-9);
                let band = band.map_or(",".to_owned(), |it| format!("{},{}", it.1, it.2));
                let _ = writeln!(csv, "{name},{x},{y},{band}");
            }
        }
        csv
    }
}

/// A field of CSV (RFC 4180 §2).
pub(crate) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

impl ChartSeries {
    fn draw(&self, svg: &mut String, x: &Axis, y: &Axis) {
        let colour = colour(self.colour);
        let place = |(px, py): (f64, f64)| format!("{:.1} {:.1}", x.at(px), y.at(py));
        let points = || self.points.iter().filter(|it| it.0.is_finite() && it.1.is_finite());
        if self.band.len() > 1 {
            let above = self.band.iter().map(|it| place((it.0, it.2)));
            let below = self.band.iter().rev().map(|it| place((it.0, it.1)));
            let path: Vec<String> = above.chain(below).collect();
            let _ = write!(
                svg,
                "<path d=\"M{}Z\" style=\"fill:{colour}\" fill-opacity=\".16\"/>",
                path.join("L")
            );
        }
        if self.mark != Mark::Dots && self.points.len() > 1 {
            let path: Vec<String> = points().map(|&point| place(point)).collect();
            let _ = write!(
                svg,
                "<path d=\"M{}\" style=\"stroke:{colour}\" fill=\"none\" stroke-width=\"1.8\"/>",
                path.join("L")
            );
        }
        if self.mark != Mark::Plain {
            let radius = if self.points.len() > 60 { 1.6 } else { 3.0 };
            let _ = write!(svg, "<g style=\"fill:{colour}\">");
            for &(px, py) in points() {
                let (cx, cy) = (x.at(px), y.at(py));
                let _ = write!(svg, "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"{radius}\"/>");
            }
            svg.push_str("</g>");
        }
    }
}

impl BarChart {
    /// The chart as SVG.
    pub fn svg(&self) -> String {
        let names: Vec<(String, usize)> =
            self.parts.iter().enumerate().map(|(at, part)| (part.0.clone(), at)).collect();
        let part = |bar: usize| self.parts.iter().filter_map(move |part| part.1.get(bar).copied());
        let sums: Vec<f64> =
            (0..self.bars.len()).map(|bar| part(bar).map(|it| it.max(0.0)).sum()).collect();
        let sides = (MARGIN[0], WIDTH - MARGIN[1]);
        let count = crate::analysis::real(self.bars.len().max(1));
        let x = Axis { low: 0.0, high: count, from: sides.0, to: sides.1, is_log: false };
        let all = sums.iter().map(|sum| sum * 1.08);
        let y = Axis::new(all, (HEIGHT - MARGIN[3], top(&names)), false, true);
        let mut svg = head(&self.title);
        legend(&mut svg, &names);
        frame(&mut svg, &x, &y, ("", &self.y), false);
        for (bar, (name, sum)) in self.bars.iter().zip(&sums).enumerate() {
            let (left, width) =
                (x.at(crate::analysis::real(bar) + 0.16), (x.to - x.from) / count * 0.68);
            let mut below = 0.0;
            for (number, value) in part(bar).enumerate() {
                let value = value.max(0.0);
                let (bottom, up) = (y.at(below), y.at(below + value));
                let _ = write!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{up:.1}\" width=\"{width:.1}\" height=\"{:.2}\" \
                     style=\"fill:{}\"/>",
                    (bottom - up).max(0.0),
                    colour(number)
                );
                below += value;
            }
            let middle = left + width / 2.0;
            let note = self.notes.get(bar).map_or("", String::as_str);
            let mut label = |text: &str, below: f64, size: u8| {
                let _ = write!(
                    svg,
                    "<text x=\"{middle:.1}\" y=\"{below:.1}\" text-anchor=\"middle\" \
                     font-size=\"{size}\">{}</text>",
                    escape(text)
                );
            };
            label(note, y.at(*sum) - 5.0, 11);
            // A word a line: bars may be narrow.
            for (word, below) in name.split(' ').zip([16.0, 30.0]) {
                label(word, y.from + below, 12);
            }
        }
        svg + "</svg>"
    }

    /// The chart's data as CSV.
    pub fn csv(&self) -> String {
        let mut csv = "bar".to_owned();
        for (name, _) in &self.parts {
            let _ = write!(csv, ",{}", quoted(name));
        }
        csv.push_str(",note\n");
        for (at, bar) in self.bars.iter().enumerate() {
            csv.push_str(&quoted(bar));
            for (_, values) in &self.parts {
                let _ = write!(csv, ",{}", values.get(at).copied().unwrap_or(0.0));
            }
            let _ = writeln!(csv, ",{}", quoted(self.notes.get(at).map_or("", String::as_str)));
        }
        csv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_inside_the_axis() {
        let axis = |low, high, is_log| Axis { low, high, from: 0.0, to: 1.0, is_log };
        assert_eq!(axis(0.0, 1500.0, false).ticks(), [0.0, 500.0, 1000.0, 1500.0]);
        assert_eq!(axis(3.0, 120.0, true).ticks(), [5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!(axis(0.0, 0.0, false).ticks().len() <= 41);
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let series = ChartSeries { name: "<&\"".to_owned(), ..ChartSeries::default() };
        let chart = LabChart { series: vec![series], ..LabChart::default() };
        let svg = chart.svg();
        assert!(svg.contains("&lt;&amp;&quot;") && !svg.contains("<&"), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }

    #[test]
    fn a_span_is_behind_the_points_and_inside_the_axis() {
        let points = vec![(0.0, 1.0), (2.0, 1.0)];
        let series = vec![ChartSeries { points, ..ChartSeries::default() }];
        let spans = vec![ChartSpan { name: "a<b".to_owned(), from: 1.0, to: 4.0 }];
        let svg = LabChart { series, spans, ..LabChart::default() }.svg();
        let (span, point) = (svg.find("a&lt;b").unwrap(), svg.find("<circle").unwrap());
        assert!(span < point, "{svg}");
        // The axis reaches to the end of the span, which is 4 of x.
        assert!(svg.contains(">4</text>"), "{svg}");
    }

    #[test]
    fn every_point_is_inside_the_picture() {
        for (log_x, log_y) in [(false, false), (true, false), (false, true), (true, true)] {
            let points = vec![(0.0, -3.0), (1.0, 1e9), (1e6, 0.0), (f64::NAN, 1.0)];
            let series = vec![ChartSeries { points, ..ChartSeries::default() }];
            let svg = LabChart { log_x, log_y, series, ..LabChart::default() }.svg();
            for value in svg.split("cx=\"").skip(1).filter_map(|it| it.split('"').next()) {
                let value: f64 = value.parse().unwrap();
                assert!(value.is_nan() || (-100.0..=WIDTH + 100.0).contains(&value), "{value}");
            }
        }
    }

    #[test]
    fn numbers_have_the_digits_that_count() {
        let shown = [0.0, 1234.5, 12.34, 1.5, 0.0123].map(digits);
        assert_eq!(shown, ["0", "1234", "12.3", "1.5", "0.0123"]);
    }
}
