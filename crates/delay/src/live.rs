//! The delay model of a relay that runs, from reads of its sojourn histogram.

use crate::linear::LinearFit;
use crate::node::{NodeLoad, NodeModel};
use crate::queue::{LoadPoint, QueueModel};
use gatewright_histogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// How many at a time are served: c of a queue M/G/c.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServerCount {
    /// So many; what comes meanwhile waits.
    Few(u32),
    /// All at once, as a program's requests that wait for answers from elsewhere.
    Unlimited,
}

/// The model of a relay and what was measured since the last reading.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DelayReading {
    /// Time that it covers.
    pub seconds: f64,
    /// Sojourn times in it.
    pub samples: u64,
    /// What passed in a second.
    pub rate: f64,
    /// a of the service time S(b) = a + c·b, in microseconds.
    pub a_us: f64,
    /// c, in nanoseconds for each octet; `None` where sizes hardly vary or are not known, and where
    /// larger ones took no longer.
    pub c_ns: Option<f64>,
    /// Share of the time in which a server is busy, by the model; with unlimited servers how many
    /// are served at the same time, on average.
    pub load: f64,
    /// The 99th percentile of sojourn times at this load, by the model of the time before, in
    /// microseconds; `None` while that has too few samples, and where it cannot keep up.
    pub predicted_p99_us: Option<f64>,
    /// The measured one.
    pub measured_p99_us: f64,
    /// Whether both differ by more than a factor of two, reading after reading.
    pub drifts: bool,
}

/// Sojourn times of some span of time.
#[derive(Clone, Debug, Default)]
struct SojournSpan {
    times: Histogram,
    seconds: f64,
}

/// The model of a relay, fitted again and again from its histogram.
///
/// It learns from the last five to ten minutes. Each reading is predicted by what was learnt before;
/// one that differs by more than a factor of two is set aside. Five minutes of these in succession are
/// what the model begins anew with.
#[derive(Clone, Debug)]
pub struct LiveModel {
    servers: ServerCount,
    last: Option<(Duration, Histogram)>,
    /// The span that is filled now, and the one before it.
    learnt: [SojournSpan; 2],
    /// Spans in succession that the model did not predict.
    set_aside: SojournSpan,
    reading: Option<DelayReading>,
    /// Readings in succession that speak against `drifts`.
    against: u32,
}

/// Samples of a reading, and of what a prediction is made from: ten are above the 99th percentile.
const SAMPLES_MIN: u64 = 1000;
/// Time after which a reading has what there is, however little.
const READING_MAX: Duration = Duration::from_mins(5);
/// Time after which what was learnt before is forgotten.
const SPAN_SECONDS: f64 = 300.0;
/// Readings in succession after which a drift begins or ends.
const AGAINST_MIN: u32 = 3;
/// Measured to predicted percentile, or the inverse, above which both differ.
const APART: f64 = 2.0;
/// The same below which they agree again.
const TOGETHER: f64 = 1.5;
/// Squared coefficient of variation of sizes from which on they say something about c.
const SIZES_VARY: f64 = 0.01;

impl LiveModel {
    /// A model that has learnt nothing.
    pub fn new(servers: ServerCount) -> Self {
        Self {
            servers,
            last: None,
            learnt: Default::default(),
            set_aside: SojournSpan::default(),
            reading: None,
            against: 0,
        }
    }

    /// The last reading.
    pub const fn reading(&self) -> Option<&DelayReading> {
        self.reading.as_ref()
    }

    /// Takes the histogram as it is at `now`. Returns the reading that this completes: there is one
    /// after a thousand samples, or after five minutes.
    pub fn observe(&mut self, now: Duration, times: &Histogram) -> Option<DelayReading> {
        let Some((at, before)) = &self.last else {
            self.last = Some((now, times.clone()));
            return None;
        };
        let (since, passed) = (times.since(before), now.saturating_sub(*at));
        let samples = since.count();
        if passed.is_zero() || (samples < SAMPLES_MIN && passed < READING_MAX) {
            return None;
        }
        self.last = Some((now, times.clone()));
        let span = SojournSpan { times: since, seconds: passed.as_secs_f64() };
        let predicted = self.learnt().and_then(|learnt| {
            let fitted = Fitted::of(&learnt, self.servers).filter(|_| learnt.has_enough())?;
            fitted.p99(&span)
        });
        let measured = seconds(span.times.quantile(99, 100)?);
        let ratio = predicted.filter(|_| span.has_enough()).map(|predicted| measured / predicted);
        let drifts = self.judge(ratio);
        let drifts = self.learn(&span, ratio, drifts);
        let all = self.learnt()?;
        let fitted = Fitted::of(&all, self.servers)?;
        let reading = DelayReading {
            seconds: span.seconds,
            samples,
            rate: span.rate(),
            a_us: fitted.node.service.intercept * 1e6,
            c_ns: fitted.slope.map(|slope| slope * 1e9),
            load: fitted.load(&span),
            predicted_p99_us: predicted.map(|it| it * 1e6),
            measured_p99_us: measured * 1e6,
            drifts,
        };
        self.reading = Some(reading);
        Some(reading)
    }

    /// Whether the model drifts after a reading with this ratio of measured to predicted.
    fn judge(&mut self, ratio: Option<f64>) -> bool {
        let drifts = self.reading.is_some_and(|it| it.drifts);
        let Some(ratio) = ratio else { return drifts };
        let is_against = if drifts { apart(ratio) < TOGETHER } else { apart(ratio) > APART };
        self.against = if is_against { self.against + 1 } else { 0 };
        if self.against < AGAINST_MIN {
            return drifts;
        }
        self.against = 0;
        !drifts
    }

    /// Learns from a span, or sets it aside; whether the model still drifts then.
    fn learn(&mut self, span: &SojournSpan, ratio: Option<f64>, drifts: bool) -> bool {
        if drifts || ratio.is_some_and(|ratio| apart(ratio) > APART) {
            self.set_aside.add(span);
            if self.set_aside.seconds < SPAN_SECONDS {
                return drifts;
            }
            self.learnt = [std::mem::take(&mut self.set_aside), SojournSpan::default()];
            self.against = 0;
            return false;
        }
        self.set_aside = SojournSpan::default();
        let [now, before] = &mut self.learnt;
        if now.seconds >= SPAN_SECONDS {
            *before = std::mem::take(now);
        }
        now.add(span);
        false
    }

    /// All that it remembers; `None` without a sample.
    fn learnt(&self) -> Option<SojournSpan> {
        let [now, before] = &self.learnt;
        let mut all = before.clone();
        all.add(now);
        (!all.times.is_empty()).then_some(all)
    }
}

impl SojournSpan {
    fn add(&mut self, more: &Self) {
        self.times.merge(&more.times);
        self.seconds += more.seconds;
    }

    fn has_enough(&self) -> bool {
        self.times.count() >= SAMPLES_MIN
    }

    fn rate(&self) -> f64 {
        self.times.sums().count / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Octets on average; 0 where they are not known.
    fn octets(&self) -> f64 {
        let sums = self.times.sums();
        sums.octets / sums.count.max(1.0)
    }

    /// Mean in seconds and squared coefficient of variation of all but the longest hundredth, which
    /// are spikes of the system and no service.
    fn base(&self) -> Option<(f64, f64)> {
        let sums = self.times.sums();
        let kept = sums.count * 0.99;
        // The values of a bucket end with it and begin a sixteenth below.
        let middle = |end: u64| seconds(end) * (1.0 - 1.0 / 32.0);
        let (mut count, mut sum, mut squares, mut all) = (0.0, 0.0, 0.0, 0.0);
        for (end, its) in self.times.buckets() {
            let (value, its) = (middle(end), real(its));
            all += value * its;
            let its = its.min(kept - count).max(0.0);
            count += its;
            sum += value * its;
            squares += value * value * its;
        }
        if count <= 0.0 || sum <= 0.0 || all <= 0.0 {
            return None;
        }
        let mean = sum / count;
        let variation = (squares / count / (mean * mean) - 1.0).max(0.0);
        // The exact sum takes away what buckets round.
        Some((mean * sums.values * 1e-9 / all, variation))
    }

    /// Seconds for each octet, by least squares; `None` where sizes hardly vary, and where larger ones
    /// took no longer: no octet takes less than no time.
    fn slope(&self) -> Option<f64> {
        let sums = self.times.sums();
        let count = sums.count;
        let octets = self.octets();
        let spread = sums.octet_squares / count - octets * octets;
        if octets <= 0.0 || spread < SIZES_VARY * octets * octets {
            return None;
        }
        let slope = (sums.products / count - sums.values / count * octets) / spread * 1e-9;
        (slope >= 0.0).then_some(slope)
    }
}

/// A model of a span.
#[derive(Clone, Copy, Debug)]
struct Fitted {
    node: NodeModel,
    slope: Option<f64>,
    servers: ServerCount,
    /// Octets, rate and 99th percentile of the span that it is fitted from.
    octets: f64,
    rate: f64,
    p99: f64,
}

impl Fitted {
    fn of(span: &SojournSpan, servers: ServerCount) -> Option<Self> {
        let (mean, variation) = span.base()?;
        let (octets, rate) = (span.octets(), span.rate());
        let service = match servers {
            ServerCount::Unlimited => mean,
            ServerCount::Few(count) => QueueModel::FirstInFirstOut.service(&LoadPoint {
                octets,
                rate: rate / f64::from(count.max(1)),
                sojourn: mean,
                service_variation: variation,
                arrival_variation: 1.0,
            })?,
        };
        let slope = span.slope();
        let per_octet = slope.unwrap_or(0.0);
        let fit = LinearFit {
            intercept: per_octet.mul_add(-octets, service),
            slope: per_octet,
            r_squared: 0.0,
            count: usize::try_from(span.times.count()).unwrap_or(usize::MAX),
        };
        let queue = QueueModel::FirstInFirstOut;
        let node = NodeModel { queue, service: fit, setup: None, variation, spread: 1.0 };
        let p99 = seconds(span.times.quantile(99, 100)?);
        let mut fitted = Self { node, slope, servers, octets, rate, p99 };
        // What the percentile has above the wait is the spread of an idle relay.
        let waited = fitted.model_p99(octets, rate)? - service;
        fitted.node.spread = ((p99 - waited) / service).max(1.0);
        Some(fitted)
    }

    fn node_load(&self, octets: f64, rate: f64) -> NodeLoad {
        let rate = match self.servers {
            ServerCount::Few(count) => rate / f64::from(count.max(1)),
            ServerCount::Unlimited => 0.0,
        };
        let service = self.node.service_time(octets);
        let second_moment = rate * service * service * (1.0 + self.node.variation);
        NodeLoad { rate, utilisation: rate * service, second_moment }
    }

    fn model_p99(&self, octets: f64, rate: f64) -> Option<f64> {
        self.node.quantile(octets, &self.node_load(octets, rate), 0.99)
    }

    /// The predicted 99th percentile of another span. By its own load the model gives what was
    /// measured there.
    fn p99(&self, span: &SojournSpan) -> Option<f64> {
        let (there, here) =
            (self.model_p99(span.octets(), span.rate())?, self.model_p99(self.octets, self.rate)?);
        (here > 0.0).then(|| self.p99 * there / here)
    }

    fn load(&self, span: &SojournSpan) -> f64 {
        match self.servers {
            ServerCount::Few(_) => self.node_load(span.octets(), span.rate()).utilisation,
            ServerCount::Unlimited => span.rate() * self.node.service_time(span.octets()),
        }
    }
}

/// By what factor two numbers differ, whichever is the larger one.
fn apart(ratio: f64) -> f64 {
    ratio.max(ratio.recip())
}

fn seconds(nanoseconds: u64) -> f64 {
    real(nanoseconds) * 1e-9
}

#[expect(clippy::cast_precision_loss, reason = "a model needs no 64 bits")]
const fn real(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_histogram::Sample;

    /// Adds the sojourn times of M/M/1, whose quantiles are −ln(1 − p)/(µ − λ), at µ = 1000/s.
    fn add_exponential(times: &mut Histogram, rate: f64, count: u32) {
        for at in 0..count {
            let share = (f64::from(at) + 0.5) / f64::from(count);
            let time = -(1.0 - share).ln() / (1000.0 - rate);
            times.add(Duration::from_secs_f64(time));
        }
    }

    #[test]
    fn m_m_1_is_predicted_at_another_load() {
        let (mut model, mut times) = (LiveModel::new(ServerCount::Few(1)), Histogram::default());
        let mut now = Duration::ZERO;
        let mut look = |model: &mut LiveModel, rate: f64| {
            add_exponential(&mut times, rate, 20_000);
            now += Duration::from_secs_f64(20_000.0 / rate);
            model.observe(now, &times)
        };
        assert_eq!(model.observe(Duration::ZERO, &Histogram::default()), None);
        let first = look(&mut model, 300.0).unwrap();
        assert_eq!((first.samples, first.predicted_p99_us), (20_000, None));
        assert!((first.load - 0.3).abs() < 0.03, "{first:?}");
        assert!((first.a_us - 1000.0).abs() < 60.0 && first.c_ns.is_none(), "{first:?}");
        let second = look(&mut model, 600.0).unwrap();
        // ln(100)/(1000 − 600) s.
        let theory = 100_f64.ln() / 400.0 * 1e6;
        assert!((second.measured_p99_us / theory - 1.0).abs() < 0.07, "{second:?}");
        let predicted = second.predicted_p99_us.unwrap();
        assert!((predicted / theory - 1.0).abs() < 0.15, "{predicted} {theory}");
        assert!(!second.drifts);
    }

    #[test]
    fn the_line_over_sizes_is_found() {
        let mut model = LiveModel::new(ServerCount::Few(2));
        let mut times = Histogram::default();
        assert_eq!(model.observe(Duration::ZERO, &times), None);
        for octets in (100..1500).step_by(100).cycle().take(2800) {
            // 20 µs and 15 ns for each octet.
            times.add(Sample::from(20_000 + 15 * octets).of_octets(octets));
        }
        let reading = model.observe(Duration::from_secs(28), &times).unwrap();
        assert!((reading.c_ns.unwrap() - 15.0).abs() < 0.1, "{reading:?}");
        assert!((reading.a_us - 20.0).abs() < 1.0, "{reading:?}");
        // 100/s of 32 µs on two servers.
        assert!((reading.load - 0.0016).abs() < 1e-4, "{reading:?}");
    }

    /// By chance small ones took longer: then the sizes say nothing, and a is the mean.
    #[test]
    fn no_octet_takes_less_than_no_time() {
        let mut model = LiveModel::new(ServerCount::Unlimited);
        let mut times = Histogram::default();
        assert_eq!(model.observe(Duration::ZERO, &times), None);
        for octets in (100..1500).step_by(100).cycle().take(2800) {
            times.add(Sample::from(40_000 - 15 * octets).of_octets(octets));
        }
        let reading = model.observe(Duration::from_secs(28), &times).unwrap();
        assert_eq!(reading.c_ns, None);
        assert!((reading.a_us - 28.75).abs() < 1.0, "{reading:?}");
    }

    #[test]
    fn too_few_samples_are_no_reading_until_time_is_over() {
        let mut model = LiveModel::new(ServerCount::Few(1));
        let mut times = Histogram::default();
        assert_eq!(model.observe(Duration::ZERO, &times), None);
        times.add(1000_u64);
        assert_eq!(model.observe(Duration::from_secs(10), &times), None);
        let reading = model.observe(READING_MAX, &times).unwrap();
        assert_eq!((reading.samples, reading.predicted_p99_us), (1, None));
        // An idle relay, and a histogram that began anew.
        assert_eq!(model.observe(READING_MAX * 2, &times), None);
        assert_eq!(model.observe(READING_MAX * 3, &Histogram::default()), None);
    }

    #[test]
    fn a_relay_that_becomes_slow_drifts_until_the_model_has_followed() {
        let mut model = LiveModel::new(ServerCount::Unlimited);
        let (mut times, mut now) = (Histogram::default(), Duration::ZERO);
        let mut look = |nanoseconds: u64| {
            times.add(Sample { times: 5000, ..Sample::from(nanoseconds) });
            now += Duration::from_secs(10);
            model.observe(now, &times).map(|it| it.drifts)
        };
        assert_eq!(look(1000), None);
        assert_eq!([look(1000), look(1000)], [Some(false); 2]);
        // One slow reading is none, and neither are two.
        assert_eq!([look(9000), look(1000), look(1000)], [Some(false); 3]);
        assert_eq!(
            [look(90_000), look(90_000), look(90_000)],
            [Some(false), Some(false), Some(true)]
        );
        let until = (1..200).find(|_| look(90_000) == Some(false));
        assert!(until.is_some_and(|readings| (3..70).contains(&readings)), "{until:?}");
    }
}
