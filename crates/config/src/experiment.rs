//! A delay experiment of the lab: from TOML to a typed [`Experiment`], or to findings.

use crate::codes;
use gatewright_diagnostic::{Code, Diagnostic, SourceId, Span};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use toml::Spanned;

/// A relay whose delay is measured.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayKind {
    /// The kernel routes, by routes that OLSR has found.
    Kernel,
    /// A process relays UDP datagrams between two sockets: address translation.
    TranslateUdp,
    /// A process relays a TCP stream between two sockets.
    TranslateTcp,
    /// The program socat does that, as in the paper.
    SocatTcp,
    /// Address translation that encrypts by AES-128-CTR with portable code.
    EncryptPortable,
    /// The same, with the processor's AES instructions where it has them.
    EncryptHardware,
    /// Our stack routes, on packet sockets.
    GraphPacketSocket,
    /// The same, with a handler that counts IPv4 packets.
    GraphPacketSocketHandler,
    /// Our stack routes, on AF_XDP.
    GraphXdp,
    /// The same, with a handler that counts IPv4 packets.
    GraphXdpHandler,
    /// The driver of the link forwards, by our XDP program.
    DriverXdp,
    /// The kernel switches labels on a path that our mesh has found.
    MeshLabel,
    /// Our UDP gateway translates addresses in the data plane, on AF_XDP, polling.
    GatewayXdp,
    /// Our data plane makes oneM2M requests of a device's reports (IEEE 11073), on AF_XDP, polling.
    InterworkXdp,
    /// Our control plane stores these readings and sends them from its outbox: the durable way.
    InterworkDurable,
    /// A gateway program relays UDP datagrams, run by our loops.
    ProgramNative,
    /// The same program, built as C.
    ProgramC,
    /// The same program, built as Java.
    ProgramJava,
    /// A process relays UDP datagrams after a known time of computing: the lab's own check.
    Spin,
}

impl RelayKind {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 19] = [
        Self::Kernel,
        Self::TranslateUdp,
        Self::TranslateTcp,
        Self::SocatTcp,
        Self::EncryptPortable,
        Self::EncryptHardware,
        Self::GraphPacketSocket,
        Self::GraphPacketSocketHandler,
        Self::GraphXdp,
        Self::GraphXdpHandler,
        Self::DriverXdp,
        Self::MeshLabel,
        Self::GatewayXdp,
        Self::InterworkXdp,
        Self::InterworkDurable,
        Self::ProgramNative,
        Self::ProgramC,
        Self::ProgramJava,
        Self::Spin,
    ];

    /// The name in experiments and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::TranslateUdp => "translate-udp",
            Self::TranslateTcp => "translate-tcp",
            Self::SocatTcp => "socat-tcp",
            Self::EncryptPortable => "encrypt-portable",
            Self::EncryptHardware => "encrypt-hardware",
            Self::GraphPacketSocket => "graph-packet-socket",
            Self::GraphPacketSocketHandler => "graph-packet-socket-handler",
            Self::GraphXdp => "graph-xdp",
            Self::GraphXdpHandler => "graph-xdp-handler",
            Self::DriverXdp => "driver-xdp",
            Self::MeshLabel => "mesh-label",
            Self::GatewayXdp => "gateway-xdp",
            Self::InterworkXdp => "interwork-xdp",
            Self::InterworkDurable => "interwork-durable",
            Self::ProgramNative => "program-native",
            Self::ProgramC => "program-c",
            Self::ProgramJava => "program-java",
            Self::Spin => "spin",
        }
    }

    /// The relay of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The gaps between the packets of the sender.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// All equal.
    #[default]
    Periodic,
    /// Exponentially distributed: a Poisson process.
    Poisson,
}

/// One condition.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Centre {
    /// Octets of payload of a packet.
    pub octets: u16,
    /// Packets a second.
    pub rate: u32,
    /// Share of the relay's processor that another process takes, in percent.
    #[serde(default)]
    pub load_pct: u8,
    /// Packets sent at once, at the same rate: so many in a row, and then a pause.
    #[serde(default = "one")]
    pub batch: u16,
    /// Whether the processors are kept from sleeping, by computing that gives way to everything.
    #[serde(default)]
    pub awake: bool,
    /// Frequency of the processors in MHz; 0 is what the system chooses.
    #[serde(default)]
    pub frequency_mhz: u32,
}

impl Centre {
    /// A condition in which the system does what it likes: packets one by one, no other load.
    pub const fn plain(octets: u16, rate: u32) -> Self {
        Self { octets, rate, load_pct: 0, batch: 1, awake: false, frequency_mhz: 0 }
    }

    /// Whether it differs from another one in nothing but size and rate.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        *self == Self { octets: self.octets, rate: self.rate, ..*other }
    }
}

/// Values that replace those of the centre, one after the other.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vary {
    /// Octets of payload.
    pub octets: Vec<u16>,
    /// Packets a second.
    pub rate: Vec<u32>,
    /// Share of the relay's processor that another process takes, in percent.
    pub load_pct: Vec<u8>,
    /// Packets sent at once.
    pub batch: Vec<u16>,
    /// Whether the processors are kept from sleeping.
    pub awake: Vec<bool>,
    /// Frequency of the processors in MHz.
    pub frequency_mhz: Vec<u32>,
}

impl Vary {
    /// Number of values of each key.
    const fn counts(&self) -> [usize; 6] {
        let Self { octets, rate, load_pct, batch, awake, frequency_mhz } = self;
        [octets.len(), rate.len(), load_pct.len(), batch.len(), awake.len(), frequency_mhz.len()]
    }
}

/// The links on both sides of the relay.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(from = "LinkForm")]
pub struct LinkShape {
    /// Capacity in megabits a second; 0 is unlimited.
    pub capacity_mbps: f64,
    /// Latency of every frame, in microseconds.
    pub latency_us: u32,
    /// Greatest additional latency, uniformly distributed, in microseconds.
    pub jitter_us: u32,
    /// Frames that are lost, in percent.
    pub loss_pct: f64,
}

/// A kind of link whose shape is known.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
enum LinkKind {
    #[serde(rename = "802.11n")]
    Wlan,
    #[serde(rename = "802.15.4")]
    Wpan,
    #[serde(rename = "ethernet")]
    Ethernet,
}

impl LinkKind {
    const fn shape(self) -> LinkShape {
        let (capacity_mbps, latency_us, jitter_us) = match self {
            // What a small cell of one stream at 20 MHz carries, and its medium access.
            Self::Wlan => (20.0, 300, 200),
            // 2.4 GHz; from no to seven backoffs of 320 µs before a frame (IEEE 802.15.4 §6.2.5), and
            // its acknowledgement.
            Self::Wpan => (0.25, 700, 2240),
            // 100BASE-TX, and the store and forward of a switch at rest.
            Self::Ethernet => (100.0, 10, 0),
        };
        LinkShape { capacity_mbps, latency_us, jitter_us, loss_pct: 0.0 }
    }
}

/// A shape as it is written: that of a kind of link, and what differs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkForm {
    like: Option<LinkKind>,
    capacity_mbps: Option<f64>,
    latency_us: Option<u32>,
    jitter_us: Option<u32>,
    loss_pct: Option<f64>,
}

impl From<LinkForm> for LinkShape {
    fn from(form: LinkForm) -> Self {
        let plain = Self { capacity_mbps: 0.0, latency_us: 0, jitter_us: 0, loss_pct: 0.0 };
        let like = form.like.map_or(plain, LinkKind::shape);
        Self {
            capacity_mbps: form.capacity_mbps.unwrap_or(like.capacity_mbps),
            latency_us: form.latency_us.unwrap_or(like.latency_us),
            jitter_us: form.jitter_us.unwrap_or(like.jitter_us),
            loss_pct: form.loss_pct.unwrap_or(like.loss_pct),
        }
    }
}

/// The node under test.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeShape {
    /// The relay does its work so many times, which is the work of a processor that many times
    /// slower.
    pub slowdown: u32,
    /// Share of a processor that the relay may take, in percent of each tenth of a second; 100 is all
    /// of it. It makes bursts, no slower processor.
    pub quota_pct: u8,
    /// Relays in line.
    pub relays: u8,
}

impl Default for NodeShape {
    fn default() -> Self {
        Self { slowdown: 1, quota_pct: 100, relays: 1 }
    }
}

/// A delay experiment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Title of the report.
    pub title: String,
    /// Relays that are compared.
    pub relays: Vec<RelayKind>,
    /// The condition from which one value at a time departs.
    pub centre: Centre,
    /// The departures.
    #[serde(default)]
    pub vary: Vary,
    /// All combinations of the varied values in place of one departure at a time.
    #[serde(default)]
    pub factorial: bool,
    /// Seconds of a repetition of a condition.
    #[serde(default = "seconds")]
    pub seconds: f64,
    /// Repetitions of each condition, interleaved.
    #[serde(default = "repeats")]
    pub repeats: u32,
    /// Repetitions at the most, where the first ones differ too much.
    #[serde(default = "repeats_max")]
    pub repeats_max: u32,
    /// Coefficient of variation of the repetitions' medians below which a condition is steady, in
    /// percent.
    #[serde(default = "steady_pct")]
    pub steady_pct: f64,
    /// Gaps between packets.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Seed of everything random.
    #[serde(default = "seed")]
    pub seed: u64,
    /// Links between the hosts; without it they are plain virtual cables.
    #[serde(default)]
    pub link: Option<LinkShape>,
    /// The node.
    #[serde(default)]
    pub node: NodeShape,
}

const fn one() -> u16 {
    1
}

const fn seconds() -> f64 {
    1.0
}

const fn repeats() -> u32 {
    3
}

const fn repeats_max() -> u32 {
    5
}

const fn steady_pct() -> f64 {
    5.0
}

const fn seed() -> u64 {
    1
}

/// Octets of payload: the packet's identity at the least, an Ethernet frame at the most.
const OCTETS: RangeInclusive<u64> = 16..=1472;
/// Packets a second.
const RATES: RangeInclusive<u64> = 1..=100_000;
/// Packets sent at once.
const BATCHES: RangeInclusive<u16> = 1..=64;
/// Frequencies of processors in MHz.
const FREQUENCIES: RangeInclusive<u32> = 0..=10_000;
/// Combinations of all values at the most.
const CONDITIONS_MAX: usize = 4096;
/// Values of one key at the most.
const VALUES_MAX: usize = 64;

/// Changes a condition in one value.
type Departure = Box<dyn Fn(Centre) -> Centre>;

impl Experiment {
    /// Its conditions: the centre, and each departure from it once.
    pub fn conditions(&self) -> Vec<Centre> {
        let depart = |from: &[Centre], departures: &[Departure]| -> Vec<Centre> {
            from.iter().flat_map(|it| departures.iter().map(|depart| depart(*it))).collect()
        };
        let departures = self.departures();
        let mut all = vec![self.centre];
        if self.factorial {
            for departures in departures.iter().filter(|it| !it.is_empty()) {
                all = depart(&all, departures);
            }
            all.push(self.centre);
        } else {
            all.extend(departures.iter().flat_map(|it| depart(&[self.centre], it)));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What changes a condition to one of the values that are varied, key by key.
    fn departures(&self) -> [Vec<Departure>; 6] {
        fn each<T: Copy + 'static>(values: &[T], set: fn(Centre, T) -> Centre) -> Vec<Departure> {
            let departure = |&value: &T| -> Departure { Box::new(move |it| set(it, value)) };
            values.iter().map(departure).collect()
        }
        let Vary { octets, rate, load_pct, batch, awake, frequency_mhz } = &self.vary;
        [
            each(octets, |it, octets| Centre { octets, ..it }),
            each(rate, |it, rate| Centre { rate, ..it }),
            each(load_pct, |it, load_pct| Centre { load_pct, ..it }),
            each(batch, |it, batch| Centre { batch, ..it }),
            each(awake, |it, awake| Centre { awake, ..it }),
            each(frequency_mhz, |it, frequency_mhz| Centre { frequency_mhz, ..it }),
        ]
    }

    /// Time of a repetition.
    pub fn repetition(&self) -> Duration {
        Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::ZERO)
    }
}

/// Reads an experiment; `source` is its id in the caller's
/// [`Sources`](gatewright_diagnostic::Sources).
///
/// # Errors
///
/// Findings: the first about the form of the text, or all about its values.
pub fn parse_experiment(source: SourceId, text: &str) -> Result<Experiment, Vec<Diagnostic>> {
    read_experiment(source, text, wrong_values)
}

/// Reads an experiment of either kind; `wrong_values` tells its keys whose values are out of range, each
/// with what is needed.
pub(crate) fn read_experiment<T: DeserializeOwned>(
    source: SourceId,
    text: &str,
    wrong_values: fn(&T) -> Vec<(&'static str, String)>,
) -> Result<T, Vec<Diagnostic>> {
    let span = |range: Range<usize>| Span::new(source, range.start, range.end);
    if text.len() > crate::TEXT_LEN_MAX {
        let message = format!("an experiment of more than {} octets", crate::TEXT_LEN_MAX);
        return Err(vec![Diagnostic::error(&codes::TOO_MANY, span(0..0), message)]);
    }
    let experiment: Spanned<T> = toml::from_str(text).map_err(|error| {
        let range = error.span().unwrap_or(0..0);
        vec![Diagnostic::error(code_of(error.message()), span(range), error.message())]
    })?;
    let experiment = experiment.into_inner();
    let findings: Vec<Diagnostic> = wrong_values(&experiment)
        .into_iter()
        .map(|(key, message)| {
            let at = key_range(text, key);
            let name = key.rsplit('.').next().unwrap_or(key);
            Diagnostic::error(&codes::OUT_OF_RANGE, span(at), format!("`{name}`: {message}"))
        })
        .collect();
    if findings.is_empty() { Ok(experiment) } else { Err(findings) }
}

/// Keys whose values are out of range, each with the range.
fn wrong_values(experiment: &Experiment) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    let mut check = |key, good: bool, range: &str| {
        if !good {
            wrong.push((key, format!("{range} is needed")));
        }
    };
    let Experiment { relays, centre, vary, seconds, repeats, repeats_max, .. } = experiment;
    check("relays", !relays.is_empty(), "at least one relay");
    let range = "16 to 1472 octets";
    check("centre.octets", OCTETS.contains(&centre.octets.into()), range);
    check("vary.octets", vary.octets.iter().all(|&it| OCTETS.contains(&it.into())), range);
    let range = "1 to 100000 packets a second";
    check("centre.rate", RATES.contains(&centre.rate.into()), range);
    check("vary.rate", vary.rate.iter().all(|&it| RATES.contains(&it.into())), range);
    let range = "0 to 100 percent";
    check("centre.load_pct", centre.load_pct <= 100, range);
    check("vary.load_pct", vary.load_pct.iter().all(|&it| it <= 100), range);
    let range = "1 to 64 packets at once";
    check("centre.batch", BATCHES.contains(&centre.batch), range);
    check("vary.batch", vary.batch.iter().all(|it| BATCHES.contains(it)), range);
    let range = "0 to 10000 MHz";
    check("centre.frequency_mhz", FREQUENCIES.contains(&centre.frequency_mhz), range);
    check(
        "vary.frequency_mhz",
        vary.frequency_mhz.iter().all(|it| FREQUENCIES.contains(it)),
        range,
    );
    let counts = vary.counts();
    check("vary", counts.iter().all(|it| *it <= VALUES_MAX), "a list of at most 64 values");
    let combinations = counts.iter().fold(1_usize, |all, &it| all.saturating_mul(it.max(1)));
    let fits = !experiment.factorial || combinations <= CONDITIONS_MAX;
    check("factorial", fits, "at most 4096 combinations");
    check("seconds", (0.05..=3600.0).contains(seconds), "a time of 0.05 to 3600 seconds");
    check("repeats", (1..=1000).contains(repeats), "1 to 1000 repetitions");
    check("repeats_max", repeats_max >= repeats, "at least as many as `repeats`");
    check("steady_pct", (0.1..=1000.0).contains(&experiment.steady_pct), "0.1 to 1000 percent");
    let NodeShape { slowdown, quota_pct, relays } = experiment.node;
    check("slowdown", (1..=1000).contains(&slowdown), "1 to 1000");
    check("quota_pct", (1..=100).contains(&quota_pct), "1 to 100 percent of a processor");
    check("node.relays", (1..=8).contains(&relays), "1 to 8 relays in line");
    if let Some(link) = experiment.link {
        check("capacity_mbps", (0.0..=100_000.0).contains(&link.capacity_mbps), "0 to 100000");
        check("loss_pct", (0.0..=100.0).contains(&link.loss_pct), "0 to 100 percent");
        check("latency_us", link.latency_us <= 10_000_000, "at most 10 seconds");
        check("jitter_us", link.jitter_us <= 10_000_000, "at most 10 seconds");
    }
    wrong
}

/// The code of an error of the deserialiser, by the beginning of its message.
fn code_of(message: &str) -> &'static Code {
    let known = [
        ("unknown field", &codes::UNKNOWN_KEY),
        ("unknown variant", &codes::NOT_A_CHOICE),
        ("missing field", &codes::MISSING_KEY),
        ("invalid type", &codes::WRONG_TYPE),
        ("invalid value", &codes::OUT_OF_RANGE),
    ];
    known.iter().find(|(begin, _)| message.starts_with(begin)).map_or(&codes::SYNTAX, |it| it.1)
}

/// Where the first line with `key`, or with a key of a table (`table.key`), has it; the beginning of the
/// text if it stands nowhere.
fn key_range(text: &str, key: &str) -> Range<usize> {
    if let Some((table, key)) = key.split_once('.') {
        let start = key_range(text, table).end;
        let range = key_range(text.get(start..).unwrap_or_default(), key);
        return start + range.start..start + range.end;
    }
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        let rest = bare.strip_prefix(key).map(str::trim_start);
        if rest.is_some_and(|rest| rest.starts_with('=')) || bare.starts_with(&format!("[{key}]")) {
            return at + indent..at + indent + key.len();
        }
        at += line.len();
    }
    0..0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "title = 't'\nrelays = ['kernel', 'translate-udp']\n\
        [centre]\noctets = 1000\nrate = 200\n[vary]\noctets = [100, 1000]\nload_pct = [50]\n";

    #[test]
    fn one_departure_at_a_time() {
        let experiment = parse_experiment(SourceId::default(), SMALL).unwrap();
        let conditions = experiment.conditions();
        let condition = |octets, load_pct| Centre { load_pct, ..Centre::plain(octets, 200) };
        assert_eq!(conditions, [condition(100, 0), condition(1000, 0), condition(1000, 50)]);
        let factorial = Experiment { factorial: true, ..experiment };
        assert_eq!(factorial.conditions().len(), 3, "two sizes at 50 %, and the centre");
    }

    #[test]
    fn what_the_processors_do_is_a_condition() {
        let text = SMALL.replace("load_pct = [50]", "awake = [false, true]\nbatch = [1, 4]");
        let experiment = parse_experiment(SourceId::default(), &text).unwrap();
        assert_eq!(
            experiment.centre,
            Centre::plain(1000, 200),
            "else the system does what it likes"
        );
        let plain = experiment.centre;
        let (awake, batch) = (Centre { awake: true, ..plain }, Centre { batch: 4, ..plain });
        assert_eq!(experiment.conditions(), [Centre::plain(100, 200), plain, awake, batch]);
        assert!(plain.is_like(&Centre::plain(100, 800)) && !plain.is_like(&awake));
        let factorial = Experiment { factorial: true, ..experiment };
        assert_eq!(factorial.conditions().len(), 8);
    }

    #[test]
    fn every_relay_has_its_name() {
        for kind in RelayKind::ALL {
            assert_eq!(RelayKind::named(kind.name()), Some(kind));
            let text = SMALL.replace("'kernel'", &format!("'{}'", kind.name()));
            assert_eq!(parse_experiment(SourceId::default(), &text).unwrap().relays[0], kind);
        }
    }

    #[test]
    fn a_link_is_like_a_kind_of_link_but_for_what_is_written() {
        let shape = |text: &str| {
            let text = format!("{SMALL}[link]\n{text}\n");
            parse_experiment(SourceId::default(), &text).map(|it| it.link.unwrap())
        };
        let wlan = shape("like = '802.11n'").unwrap();
        assert_eq!((wlan.capacity_mbps, wlan.latency_us, wlan.jitter_us), (20.0, 300, 200));
        let lossy = shape("like = '802.15.4'\nloss_pct = 2.0").unwrap();
        assert_eq!((lossy.capacity_mbps, lossy.loss_pct), (0.25, 2.0));
        let own = shape("capacity_mbps = 5").unwrap();
        assert_eq!((own.capacity_mbps, own.latency_us), (5.0, 0));
        assert_eq!(shape("like = 'ethernet'").unwrap().latency_us, 10);
        assert_eq!(shape("like = 'wet string'").unwrap_err()[0].code.number, 106);
        // What is written as a result is read back as it was.
        let text = serde_json::to_string(&lossy).unwrap();
        assert_eq!(serde_json::from_str::<LinkShape>(&text).unwrap(), lossy);
    }

    #[test]
    fn a_wrong_text_is_found_at_its_place() {
        for (from, to, code, at) in [
            ("rate =", "pace =", 101, "pace"),
            ("'kernel'", "'kernal'", 106, "'kernal'"),
            ("rate = 200", "rate = '200'", 103, "'200'"),
            ("rate = 200", "rate = 0", 105, "rate"),
            ("octets = 1000", "octets = 9", 105, "octets"),
            ("rate = 200", "rate = 200\nbatch = 0", 105, "batch"),
            ("octets = [100, 1000]", "octets = [100, 9]", 105, "octets = [100, 9]"),
            ("load_pct = [50]", "load_pct = [101]", 105, "load_pct = [101]"),
            ("[centre]", "[node]\nquota_pct = 0\n[centre]", 105, "quota_pct"),
            ("[centre]", "[node]\nrelays = 9\n[centre]", 105, "relays = 9"),
            ("[centre]", "[centre", 100, ""),
        ] {
            let text = SMALL.replace(from, to);
            let findings = parse_experiment(SourceId::default(), &text).unwrap_err();
            let finding = &findings[0];
            assert_eq!(finding.code.number, code, "{to}: {}", finding.message);
            let span = finding.primary.span;
            assert!(text[span.start..].starts_with(at), "{to}: at {}", &text[span.start..]);
        }
        let two = SMALL.replace("rate = 200", "rate = 0\nload_pct = 101");
        assert_eq!(parse_experiment(SourceId::default(), &two).unwrap_err().len(), 2);
    }
}
