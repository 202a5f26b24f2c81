//! Counters of a host's ICMP messages, by IP version and type.
//!
//! They are those of the table `icmpMsgStatsTable` (RFC 4293 §5): messages received, and messages
//! sent. The host's own are meant, echo and errors as well as discovery, not those that it forwards.
//! Messages that a rate limit held back have a count of their own; the MIB has none for them.

use gatewright_tables::{
    CounterName, CounterOwner, CounterSlot, CounterSlots, CounterSums, CountersFull, records::Name,
};
use gatewright_wire::{
    icmpv4::{Icmpv4Type, unreachable},
    icmpv6::Icmpv6Type,
};

/// An ICMP message's type, of either IP version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum IcmpType {
    /// ICMP (RFC 792), with its code: *fragmentation needed* is one of *destination unreachable*.
    V4(Icmpv4Type, u8),
    /// ICMPv6 (RFC 4443).
    V6(Icmpv6Type),
}

/// The outcome of an ICMP message of this host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum IcmpFate {
    /// It was received, and its checksum is right.
    Received,
    /// It was passed to the network layer.
    Sent,
    /// It was not sent because of the rate limit (RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f)).
    RateLimited,
}

impl IcmpFate {
    const ALL: [Self; 3] = [Self::Received, Self::Sent, Self::RateLimited];

    /// The first word of a counter's name, short: a name holds 35 octets.
    const fn name(self) -> &'static str {
        match self {
            Self::Received => "in",
            Self::Sent => "out",
            Self::RateLimited => "held",
        }
    }
}

/// The counts of one row: a type, for ICMP of IPv4 *fragmentation needed* apart from the other
/// codes of its type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IcmpCounts {
    /// The IP version, 4 or 6.
    pub ip_version: u8,
    /// The number of the type; none for all types without a row of their own.
    pub kind: Option<u8>,
    /// The name, in words joined by hyphens.
    pub message: &'static str,
    /// Messages received (`icmpMsgStatsInPkts`), without those of a wrong checksum.
    pub received: u64,
    /// Messages sent (`icmpMsgStatsOutPkts`).
    pub sent: u64,
    /// Messages that the rate limit held back.
    pub rate_limited: u64,
}

impl IcmpCounts {
    /// The rows in which something was counted, over all workers.
    pub fn of(sums: &CounterSums) -> Vec<Self> {
        let of_version = |(ip_version, rows): (u8, &'static [MessageCounter])| {
            let count = move |fate, row: &MessageCounter| {
                let owner = CounterOwner::Icmp(ip_version.into());
                sums.get(owner, &item(fate, row)).unwrap_or(0)
            };
            rows.iter().map(move |row| Self {
                ip_version,
                kind: row.kind,
                message: row.message,
                received: count(IcmpFate::Received, row),
                sent: count(IcmpFate::Sent, row),
                rate_limited: count(IcmpFate::RateLimited, row),
            })
        };
        let rows = VERSIONS.into_iter().flat_map(of_version);
        rows.filter(|row| row.received + row.sent + row.rate_limited > 0).collect()
    }
}

/// The counters of one graph, which its one worker increments.
#[derive(Debug)]
pub(crate) struct IcmpCounters {
    /// Those of each row of [`VERSIONS`], in the order of [`IcmpFate::ALL`].
    rows: [Vec<[CounterSlot; 3]>; 2],
}

impl Default for IcmpCounters {
    /// Counters without a name.
    fn default() -> Self {
        let rows =
            |(_, rows): (u8, &[MessageCounter])| rows.iter().map(|_| Default::default()).collect();
        Self { rows: VERSIONS.map(rows) }
    }
}

impl IcmpCounters {
    /// Counters of `worker` in a table.
    ///
    /// # Errors
    ///
    /// [`CountersFull`] if the table has no room.
    pub(crate) fn named(slots: &CounterSlots, worker: u16) -> Result<Self, CountersFull> {
        let mut this = Self::default();
        for ((version, rows), own) in VERSIONS.into_iter().zip(&mut this.rows) {
            let owner = CounterOwner::Icmp(version.into());
            let of = Name::new("icmp").unwrap_or_default();
            for (row, counters) in rows.iter().zip(own) {
                for (fate, counter) in IcmpFate::ALL.into_iter().zip(counters) {
                    // Every item is short enough.
                    let item = Name::new(&item(fate, row)).unwrap_or_default();
                    *counter = slots.named(&CounterName { worker, owner, of, link: None, item })?;
                }
            }
        }
        Ok(this)
    }

    /// Counts one message.
    pub(crate) fn add(&self, fate: IcmpFate, of: IcmpType) {
        let [v4, v6] = &self.rows;
        let (table, rows, kind, code) = match of {
            IcmpType::V4(kind, code) => (V4, v4, kind.0, Some(code)),
            IcmpType::V6(kind) => (V6, v6, kind.0, None),
        };
        let is_its = |row: &MessageCounter| match row.kind {
            Some(known) => known == kind && (row.code.is_none() || row.code == code),
            None => true,
        };
        let row = table.iter().position(is_its).and_then(|row| rows.get(row));
        let Some([received, sent, rate_limited]) = row else { return };
        match fate {
            IcmpFate::Received => received,
            IcmpFate::Sent => sent,
            IcmpFate::RateLimited => rate_limited,
        }
        .add(1);
    }
}

/// The type that is counted, none for all others, and the code if it has a counter of its own.
struct MessageCounter {
    kind: Option<u8>,
    code: Option<u8>,
    message: &'static str,
}

const fn v4(kind: Icmpv4Type, message: &'static str) -> MessageCounter {
    MessageCounter { kind: Some(kind.0), code: None, message }
}

const fn v6(kind: Icmpv6Type, message: &'static str) -> MessageCounter {
    MessageCounter { kind: Some(kind.0), code: None, message }
}

/// All types that no other row has.
const OTHER: MessageCounter = MessageCounter { kind: None, code: None, message: "other" };

/// The rows of ICMP; a packet is counted in the first that fits.
const V4: &[MessageCounter] = &[
    v4(Icmpv4Type::ECHO_REPLY, "echo-reply"),
    MessageCounter {
        kind: Some(Icmpv4Type::DESTINATION_UNREACHABLE.0),
        code: Some(unreachable::FRAGMENTATION_NEEDED),
        message: "fragmentation-needed",
    },
    v4(Icmpv4Type::DESTINATION_UNREACHABLE, "destination-unreachable"),
    v4(Icmpv4Type::SOURCE_QUENCH, "source-quench"),
    v4(Icmpv4Type::REDIRECT, "redirect"),
    v4(Icmpv4Type::ECHO_REQUEST, "echo-request"),
    v4(Icmpv4Type::ROUTER_ADVERTISEMENT, "router-advertisement"),
    v4(Icmpv4Type::ROUTER_SOLICITATION, "router-solicitation"),
    v4(Icmpv4Type::TIME_EXCEEDED, "time-exceeded"),
    v4(Icmpv4Type::PARAMETER_PROBLEM, "parameter-problem"),
    v4(Icmpv4Type::TIMESTAMP, "timestamp"),
    v4(Icmpv4Type::TIMESTAMP_REPLY, "timestamp-reply"),
    OTHER,
];

/// The rows of ICMPv6.
const V6: &[MessageCounter] = &[
    v6(Icmpv6Type::DESTINATION_UNREACHABLE, "destination-unreachable"),
    v6(Icmpv6Type::PACKET_TOO_BIG, "packet-too-big"),
    v6(Icmpv6Type::TIME_EXCEEDED, "time-exceeded"),
    v6(Icmpv6Type::PARAMETER_PROBLEM, "parameter-problem"),
    v6(Icmpv6Type::ECHO_REQUEST, "echo-request"),
    v6(Icmpv6Type::ECHO_REPLY, "echo-reply"),
    v6(Icmpv6Type::MULTICAST_LISTENER_QUERY, "multicast-listener-query"),
    v6(Icmpv6Type::MULTICAST_LISTENER_REPORT, "multicast-listener-report"),
    v6(Icmpv6Type::MULTICAST_LISTENER_DONE, "multicast-listener-done"),
    v6(Icmpv6Type::ROUTER_SOLICITATION, "router-solicitation"),
    v6(Icmpv6Type::ROUTER_ADVERTISEMENT, "router-advertisement"),
    v6(Icmpv6Type::NEIGHBOR_SOLICITATION, "neighbor-solicitation"),
    v6(Icmpv6Type::NEIGHBOR_ADVERTISEMENT, "neighbor-advertisement"),
    v6(Icmpv6Type::REDIRECT, "redirect"),
    v6(Icmpv6Type::MULTICAST_LISTENER_REPORT_V2, "multicast-listener-report-v2"),
    OTHER,
];

/// Both IP versions with their rows.
const VERSIONS: [(u8, &[MessageCounter]); 2] = [(4, V4), (6, V6)];

/// The name of a row's counter in the table of counters.
fn item(fate: IcmpFate, row: &MessageCounter) -> String {
    format!("{} {}", fate.name(), row.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that is too long would be cut to none, and shared by several counters.
    #[test]
    fn each_counter_has_a_name_of_its_own() {
        for (version, rows) in VERSIONS {
            let mut names: Vec<_> = rows
                .iter()
                .flat_map(|row| IcmpFate::ALL.map(|fate| item(fate, row)))
                .map(|item| Name::new(&item).unwrap_or_else(|| panic!("{item} is too long")))
                .map(|name| name.as_str().to_owned())
                .collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "IPv{version}");
        }
    }

    #[test]
    fn a_code_with_a_row_of_its_own_is_counted_there() {
        let counters = IcmpCounters::default();
        let unreachable = Icmpv4Type::DESTINATION_UNREACHABLE;
        for code in [0, 1, 3, 4] {
            counters.add(IcmpFate::Sent, IcmpType::V4(unreachable, code));
        }
        counters.add(IcmpFate::Received, IcmpType::V4(Icmpv4Type(200), 4));
        let [v4, _] = &counters.rows;
        let count = |message| {
            let row = V4.iter().position(|row| row.message == message).unwrap();
            v4[row].each_ref().map(CounterSlot::get)
        };
        assert_eq!(count("fragmentation-needed"), [0, 1, 0]);
        assert_eq!(count("destination-unreachable"), [0, 3, 0]);
        assert_eq!(count("other"), [1, 0, 0]);
    }
}
