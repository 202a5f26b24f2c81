//! Experiments between machines: an agent on each, and a coordinator.
//!
//! - [`AgentChannel`] is their connection: authenticated by a key that all have.
//! - [`serve_agent`] is the agent: it reflects and sends test packets of STAMP, as it was configured.
//! - [`run_between_agents`] coordinates a run, and [`AgentRun`] is what came of it: the results of all
//!   machines, and where they contradict each other.

mod channel;
mod clocks;
mod coordinator;
mod host;
mod message;
mod result;

pub use crate::clock::wall as wall_clock;
pub use channel::{AgentChannel, AgentChannelError};
pub use clocks::ClockComparison;
pub use coordinator::{run_between_agents, way};
pub use host::{AGENT_PORT, AgentCounters, AgentSetup, serve_agent};
pub use message::{
    AgentAnswer, AgentClock, AgentDescription, AgentRequest, AgentSamples, AgentSending,
};
pub use result::{AgentCondition, AgentMachine, AgentRun};
