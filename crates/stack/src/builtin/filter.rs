//! A packet filter: rules in order, of which the first match decides.

use super::{
    Match,
    fragments::Verdicts,
    headers::{Headers, Visible},
    ip_octets,
};
use crate::{Context, Counter, Handler};
use gatewright_packet::{Batch, Packet};
use gatewright_wire::{Framing, IpProtocol};
use std::{fmt, net::IpAddr, str::FromStr, time::Duration};

/// The decision about a packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verdict {
    /// It is passed on.
    Accept,
    /// It is taken.
    Drop,
}

/// A condition on values of a kind: some values, or all but some.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Among<T> {
    /// Any value, or none.
    #[default]
    Any,
    /// A value that matches one of these.
    In(Vec<T>),
    /// A value that matches none of these.
    NotIn(Vec<T>),
}

/// The addresses that share the leading bits of one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Subnet {
    /// One of them.
    pub address: IpAddr,
    /// The prefix length; more than an address has counts as all.
    pub bits: u8,
}

/// Ports from one to another, both included.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PortRange {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

/// A text that is no [`PortRange`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("ports are written as 5683 or as 1024-65535, the lower one first")]
pub struct PortRangeError;

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse().map_err(|_| PortRangeError);
        let range = Self { first: port(first)?, last: port(last)? };
        if range.first <= range.last { Ok(range) } else { Err(PortRangeError) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// The packets of a rule: those for which all given conditions hold.
///
/// Upper layer and ports are found after all options and extension headers. A condition on ports
/// holds only for packets with ports, negated or not.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selector {
    /// Their source.
    pub source: Among<Subnet>,
    /// Their destination.
    pub destination: Among<Subnet>,
    /// Their upper layer.
    pub protocol: Among<IpProtocol>,
    /// Their source port, of TCP, UDP, UDP-Lite or SCTP.
    pub source_port: Among<PortRange>,
    /// Their destination port.
    pub destination_port: Among<PortRange>,
}

impl From<Match> for Selector {
    fn from(which: Match) -> Self {
        let subnet = |(address, bits)| Subnet { address, bits };
        let port = |port| PortRange { first: port, last: port };
        Self {
            source: which.source.map(subnet).into(),
            destination: which.destination.map(subnet).into(),
            protocol: which.protocol.into(),
            source_port: Among::Any,
            destination_port: which.port.map(port).into(),
        }
    }
}

impl<T> From<Option<T>> for Among<T> {
    fn from(one: Option<T>) -> Self {
        one.map_or(Self::Any, |one| Self::In(vec![one]))
    }
}

/// One rule of a [`Filter`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Its packets.
    pub which: Selector,
    /// The decision about them.
    pub verdict: Verdict,
}

/// The counters of a filter, to be read while it runs.
#[derive(Clone, Debug, Default)]
pub struct FilterCounters {
    /// Packets that each rule decided about, in the order of rules.
    pub rules: Vec<Counter>,
    /// IP packets that no rule matched.
    pub default: Counter,
    /// IP packets that were taken because the headers needed by rules are truncated, more than
    /// eight, or inconsistent.
    pub malformed: Counter,
    /// Later fragments that were taken because no first fragment came before them, or too long ago.
    pub fragments_unknown: Counter,
    /// Fragmented packets whose verdict was forgotten for others', before its time was over.
    pub fragments_forgotten: Counter,
}

impl FilterCounters {
    fn part(&self) -> Self {
        Self {
            rules: self.rules.iter().map(Counter::part).collect(),
            default: self.default.part(),
            malformed: self.malformed.part(),
            fragments_unknown: self.fragments_unknown.part(),
            fragments_forgotten: self.fragments_forgotten.part(),
        }
    }
}

/// Passes or takes packets, by rules in order: the first match decides, and the default if there is
/// none.
///
/// Only the first fragment of a packet has the headers that rules may need. The others share its
/// verdict, which is remembered for a minute, for 1024 packets at the most. A packet is taken if a
/// rule needs a header that was not seen: a later fragment before the first one, and a packet whose
/// headers cannot be read to their end. Frames that carry no IP packet pass, unless an earlier rule
/// without conditions decides otherwise.
///
/// ```
/// use gatewright_stack::builtin::{Among, Filter, Rule, Selector, Subnet, Verdict};
/// use gatewright_wire::IpProtocol;
///
/// // From one subnet CoAP may come, and nothing else from anywhere.
/// let subnet = Subnet { address: "192.0.2.0".parse()?, bits: 24 };
/// let coap = Selector {
///     source: Among::In(vec![subnet]),
///     protocol: Among::In(vec![IpProtocol::UDP]),
///     destination_port: Among::In(vec!["5683-5684".parse()?]),
///     ..Selector::default()
/// };
/// let rules = vec![Rule { which: coap, verdict: Verdict::Accept }];
/// let filter = Filter::new(rules, Verdict::Drop);
/// assert_eq!(filter.counters().default.get(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Filter {
    rules: Vec<Rule>,
    default: Verdict,
    /// Whether a rule needs headers that later fragments do not have.
    asks_for_upper_layer: bool,
    verdicts: Verdicts,
    counters: FilterCounters,
}

/// Whether a rule matches a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fit {
    Yes,
    No,
    /// It depends on a header that the packet does not show.
    Unseen,
}

/// The rule or default that decides about a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum By {
    Rule(usize),
    Default,
}

impl Filter {
    /// A filter of `rules`, the first of which that matches decides.
    pub fn new(rules: Vec<Rule>, default: Verdict) -> Self {
        let counters = FilterCounters {
            rules: rules.iter().map(|_| Counter::default()).collect(),
            ..FilterCounters::default()
        };
        Self::with(rules, default, counters)
    }

    /// A filter that takes the packets that match, and lets all others pass.
    pub fn dropping(which: Match) -> Self {
        let rule = Rule { which: which.into(), verdict: Verdict::Drop };
        Self::new(vec![rule], Verdict::Accept)
    }

    /// Its counters, which continue to count.
    pub fn counters(&self) -> FilterCounters {
        self.counters.clone()
    }

    fn with(rules: Vec<Rule>, default: Verdict, counters: FilterCounters) -> Self {
        let asks_for_upper_layer = rules.iter().any(|rule| rule.which.asks_for_upper_layer());
        let verdicts = Verdicts::default();
        Self { rules, default, asks_for_upper_layer, verdicts, counters }
    }

    /// The decision about a packet.
    fn judge(&mut self, packet: &Packet, framing: Option<Framing>, now: Duration) -> Verdict {
        let Some(headers) = Headers::read(ip_octets(packet, framing)) else {
            return self.judge_other();
        };
        let Some(by) = self.first_fit(&headers).or_else(|| self.of_first(&headers, now)) else {
            let is_fragment = headers.fragment.is_some_and(|fragment| !fragment.is_first);
            let FilterCounters { fragments_unknown, malformed, .. } = &self.counters;
            let counter = if is_fragment { fragments_unknown } else { malformed };
            counter.add(1);
            return Verdict::Drop;
        };
        if let Some(fragment) = headers.fragment.filter(|fragment| fragment.is_first)
            && self.asks_for_upper_layer
            && self.verdicts.remember(fragment.of, by, now)
        {
            self.counters.fragments_forgotten.add(1);
        }
        self.decide(by)
    }

    /// The decision of the first matching rule, or else the default; none if that depends on a
    /// header that the packet does not show.
    fn first_fit(&self, headers: &Headers) -> Option<By> {
        for (index, rule) in self.rules.iter().enumerate() {
            match rule.which.fit(headers) {
                Fit::Yes => return Some(By::Rule(index)),
                Fit::No => {}
                Fit::Unseen => return None,
            }
        }
        Some(By::Default)
    }

    /// The rule that decided about the first fragment of a later fragment's packet.
    fn of_first(&self, headers: &Headers, now: Duration) -> Option<By> {
        let later = headers.fragment.filter(|fragment| !fragment.is_first)?;
        self.verdicts.of(later.of, now)
    }

    /// The decision about a frame without an IP packet.
    fn judge_other(&self) -> Verdict {
        match self.rules.first() {
            Some(rule) if rule.which == Selector::default() => self.decide(By::Rule(0)),
            _ => Verdict::Accept,
        }
    }

    /// Counts the deciding rule and returns its verdict.
    fn decide(&self, by: By) -> Verdict {
        let rule = match by {
            By::Rule(index) => self.counters.rules.get(index).zip(self.rules.get(index)),
            By::Default => None,
        };
        let (counter, verdict) =
            rule.map_or((&self.counters.default, self.default), |(own, rule)| (own, rule.verdict));
        counter.add(1);
        verdict
    }
}

impl Handler for Filter {
    fn handle(&mut self, batch: &mut Batch, context: &mut Context<'_>) {
        let (framing, now) = (context.framing(), context.now());
        batch.retain(|packet| self.judge(packet, framing, now) == Verdict::Accept);
    }

    fn another(&self) -> Option<Box<dyn Handler>> {
        // All fragments of two hosts come to one worker: each has verdicts of its own.
        let (rules, counters) = (self.rules.clone(), self.counters.part());
        Some(Box::new(Self::with(rules, self.default, counters)))
    }
}

impl Selector {
    fn fit(&self, headers: &Headers) -> Fit {
        let ends = self.source.has(|subnet| subnet.contains(headers.from))
            && self.destination.has(|subnet| subnet.contains(headers.to));
        if !ends {
            return Fit::No;
        }
        let protocol = self.protocol.fit(headers.protocol.map(Some), |own, is| *own == is);
        let ports = headers.ports;
        let source = ports.map(|ports| ports.map(|(source, _)| source));
        let destination = ports.map(|ports| ports.map(|(_, destination)| destination));
        protocol
            .and(self.source_port.fit(source, |range, port| range.contains(port)))
            .and(self.destination_port.fit(destination, |range, port| range.contains(port)))
    }

    fn asks_for_upper_layer(&self) -> bool {
        self.protocol != Among::Any
            || self.source_port != Among::Any
            || self.destination_port != Among::Any
    }
}

impl Fit {
    /// Whether both hold.
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Unseen, _) | (_, Self::Unseen) => Self::Unseen,
            (Self::Yes, Self::Yes) => Self::Yes,
        }
    }
}

impl<T> Among<T> {
    /// Whether a value for which `agrees` tells if it agrees with one of ours, is meant.
    fn has(&self, agrees: impl FnMut(&T) -> bool) -> bool {
        match self {
            Self::Any => true,
            Self::In(values) => values.iter().any(agrees),
            Self::NotIn(values) => !values.iter().any(agrees),
        }
    }

    /// Whether what was seen is meant; nothing is, where there is none.
    fn fit<V: Copy>(&self, seen: Visible<Option<V>>, agrees: impl Fn(&T, V) -> bool) -> Fit {
        match (self, seen) {
            (Self::Any, _) => Fit::Yes,
            (_, Visible::Not) => Fit::Unseen,
            (_, Visible::Here(None)) => Fit::No,
            (_, Visible::Here(Some(value))) => {
                if self.has(|own| agrees(own, value)) {
                    Fit::Yes
                } else {
                    Fit::No
                }
            }
        }
    }
}

impl<T> Visible<T> {
    fn map<U>(self, change: impl FnOnce(T) -> U) -> Visible<U> {
        match self {
            Self::Here(value) => Visible::Here(change(value)),
            Self::Not => Visible::Not,
        }
    }
}

impl Subnet {
    /// Whether `ip` is one of its addresses.
    pub fn contains(self, ip: IpAddr) -> bool {
        match (ip, self.address) {
            (IpAddr::V4(ip), IpAddr::V4(own)) => {
                (ip.to_bits() ^ own.to_bits()).leading_zeros() >= u32::from(self.bits.min(32))
            }
            (IpAddr::V6(ip), IpAddr::V6(own)) => {
                (ip.to_bits() ^ own.to_bits()).leading_zeros() >= u32::from(self.bits.min(128))
            }
            _ => false,
        }
    }
}

impl PortRange {
    /// Whether `port` is one of them.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}
