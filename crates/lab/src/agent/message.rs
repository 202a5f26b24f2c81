//! What a coordinator asks an agent, and what it answers, as JSON.

use crate::covariates::Covariates;
use crate::stamp::{StampExchange, StampReflectorCounters};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A request of the coordinator.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentRequest {
    /// Who the agent is.
    Describe,
    /// The agent's clock.
    Clock,
    /// A run begins: covariates from now on.
    Begin,
    /// The run's covariates.
    Covariates,
    /// Reflect test packets at the address that the agent was started with.
    Reflect,
    /// End that, and tell the counters.
    StopReflecting,
    /// Send test packets.
    Send(AgentSending),
}

/// Test packets to be sent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSending {
    /// The reflector.
    pub to: SocketAddr,
    /// Whether packets are authenticated by the agents' key.
    pub authenticated: bool,
    /// Packets.
    pub count: u32,
    /// Packets a second.
    pub rate: u32,
    /// Octets of a packet.
    pub octets: u16,
    /// How long the last reflection is waited for, in milliseconds.
    pub wait_ms: u32,
}

/// Packets of one request at the most.
pub(super) const PACKETS_MAX: u32 = 20_000;
/// The longest wait for a reflection.
pub(super) const WAIT_MS_MAX: u32 = 60_000;

/// An answer of the agent.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentAnswer {
    /// Who the agent is.
    Description(AgentDescription),
    /// Its clock.
    Clock(AgentClock),
    /// The run has begun.
    Begun,
    /// Covariates since then.
    Covariates(Covariates),
    /// It reflects at this address.
    Reflects(SocketAddr),
    /// What it has reflected.
    Reflected(StampReflectorCounters),
    /// What came of the packets that it sent.
    Sent(AgentSamples),
    /// Why it does not do what was asked.
    Refused(String),
}

/// Who an agent is.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct AgentDescription {
    /// Processors, kernel and load.
    pub machine: String,
    /// Version of the program.
    pub version: String,
    /// Where it would reflect.
    pub reflects: Option<SocketAddr>,
}

/// Readings of an agent's wall clock, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct AgentClock {
    /// When the request arrived.
    pub received: u64,
    /// Before the answer was sent.
    pub sent: u64,
}

/// What came of an agent's test packets.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct AgentSamples {
    /// Packets sent.
    pub sent: u32,
    /// Further reflections of the same packet.
    pub repeated: u32,
    /// Datagrams that are no reflection of this session.
    pub foreign: u32,
    /// The highest number that the reflector gave, and 1: so many packets reached it at the least, if
    /// it counts.
    pub reached: u32,
    /// Of each packet that came back, in microseconds: receiver's minus sender's clock on the way
    /// there, time in the reflector, sender's minus reflector's clock on the way back.
    pub samples: Vec<(f64, f64, f64)>,
}

impl AgentSamples {
    pub(super) fn of(
        sent: u32,
        exchanges: &[Option<StampExchange>],
        (repeated, foreign): (u32, u32),
    ) -> Self {
        // Nanoseconds: what clocks tell.
        let micros = |seconds: f64| (seconds * 1e9).round() / 1e3;
        let sample = |it: &StampExchange| {
            let there = it.reflected.received.since(it.reflected.sender.sent);
            let back = it.back.since(it.reflected.sent);
            (micros(there), micros(it.inside()), micros(back))
        };
        let there = || exchanges.iter().flatten();
        let reached = there().map(|it| it.reflected.sequence.saturating_add(1)).max();
        let (reached, samples) = (reached.unwrap_or(0), there().map(sample).collect());
        Self { sent, repeated, foreign, reached, samples }
    }
}

impl AgentRequest {
    /// Reads a request; `None` if the octets are none.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        serde_json::from_slice(octets).ok()
    }

    /// Its octets.
    pub fn octets(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl AgentAnswer {
    /// Reads an answer; `None` if the octets are none.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        serde_json::from_slice(octets).ok()
    }

    /// Its octets.
    pub fn octets(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_read_as_they_were_written() {
        let to = "192.0.2.1:862".parse().unwrap();
        let sending =
            AgentSending { to, authenticated: true, count: 1, rate: 2, octets: 112, wait_ms: 3 };
        for request in [AgentRequest::Describe, AgentRequest::Clock, AgentRequest::Send(sending)] {
            let octets = request.octets();
            assert_eq!(AgentRequest::parse(&octets), Some(request));
            for end in 0..octets.len() {
                assert_eq!(AgentRequest::parse(&octets[..end]), None, "cut at {end}");
            }
        }
        let samples = AgentSamples { samples: vec![(1.5, 0.25, -3.0)], ..AgentSamples::default() };
        for answer in [AgentAnswer::Begun, AgentAnswer::Reflects(to), AgentAnswer::Sent(samples)] {
            assert_eq!(AgentAnswer::parse(&answer.octets()), Some(answer));
        }
        assert_eq!(AgentRequest::parse(br#"{"run":"sh"}"#), None, "nothing else can be asked");
    }
}
