//! The systems that are compared: the single plane by its ways in and out, and the dual one.

use super::dual::{self, Converter};
use super::network::{self, Many, Network, OneByOne, now};
use super::plane::SinglePlane;
use super::{DEVICES, devices, own_stack, text};
use crate::gateway::bpf::AttachedProgram;
use crate::gateway::live::source_port;
use crate::gateway::relays::Relay;
use crate::gateway::world::{GATEWAY_CPU, LOCAL, REMOTE, SENDER_CPU, SENDER_IP, TestHosts};
use gatewright_health::code::SystemId;
use gatewright_health::specialisation::OXIMETER;
use std::net::SocketAddrV4;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A system, with its name in the keys of figures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum System {
    /// The paper's S1: the kernel's sockets, a call for each datagram.
    RecvFrom,
    /// The same by 64 datagrams a call.
    RecvMmsg,
    /// The paper's S2: the same loop on a stack past the kernel.
    OwnStack,
    /// Two planes; the worker converts.
    Worker,
    /// Two planes; the link's driver converts.
    Dual,
}

impl System {
    pub(super) const ALL: [Self; 5] =
        [Self::RecvFrom, Self::RecvMmsg, Self::OwnStack, Self::Worker, Self::Dual];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::RecvFrom => "recvfrom",
            Self::RecvMmsg => "recvmmsg",
            Self::OwnStack => "own_stack",
            Self::Worker => "worker",
            Self::Dual => "dual",
        }
    }

    /// The plain relay that goes the same way: what it reaches is the floor.
    pub(super) const fn relay(self) -> Option<Relay> {
        match self {
            Self::RecvFrom => Some(Relay::Blocking),
            Self::RecvMmsg => Some(Relay::Many),
            _ => None,
        }
    }

    /// The processors from which it is sent reports. All have two: what converts in the driver does so where
    /// the generator is, so it has one on both; each other has the gateway on the second.
    pub(super) const fn sent_from(self) -> &'static [usize] {
        match self {
            Self::Dual => &[SENDER_CPU, GATEWAY_CPU],
            _ => &[SENDER_CPU],
        }
    }

    /// What it needs of the gateway's link while it runs.
    pub(super) fn open(self, world: &TestHosts) -> Result<Option<AttachedProgram>, String> {
        match self {
            Self::RecvFrom | Self::RecvMmsg => world.open_to_kernel().map(Some),
            Self::OwnStack | Self::Worker | Self::Dual => Ok(None),
        }
    }

    /// Serves the devices of the generator, whose reports are `report`, until `stop`; each control message
    /// is so much more work.
    pub(super) fn work(
        self,
        report: &[u8],
        control_work: Duration,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let plane = || populated().map(|plane| plane.with_control_work(control_work));
        let control = || SinglePlane::new().with_control_work(control_work);
        match self {
            Self::RecvFrom => {
                by_sockets(&mut OneByOne::new(LOCAL, REMOTE).map_err(text)?, plane()?, stop)
            }
            Self::RecvMmsg => {
                by_sockets(&mut Many::new(LOCAL, REMOTE).map_err(text)?, plane()?, stop)
            }
            Self::OwnStack => own_stack::work(plane()?, stop),
            Self::Worker => dual::work(Converter::Worker, report, control(), stop),
            Self::Dual => dual::work(Converter::Driver, report, control(), stop),
        }
    }
}

fn by_sockets(
    network: &mut dyn Network,
    mut plane: SinglePlane,
    stop: &AtomicBool,
) -> Result<(), String> {
    network::run(network, &mut plane, stop).map_err(text)?;
    let counters = plane.counters();
    if counters.forwarded == 0 { Err(format!("nothing forwarded: {counters:?}")) } else { Ok(()) }
}

/// A plane at which every device of the generator is associated.
pub(super) fn populated() -> Result<SinglePlane, String> {
    let mut plane = SinglePlane::new();
    for nth in 0..DEVICES {
        let from = SocketAddrV4::new(SENDER_IP, source_port(nth));
        let id = SystemId(u64::from(nth).to_be_bytes());
        devices::associate(&mut plane, &OXIMETER, id, from, now())?;
    }
    Ok(plane)
}
