//! Who is the gateway, and how each is set to work.

use super::live::Payload;
use super::ours::{self, GatewaySamples, LOOK};
use super::relays::Relay;
use super::testpmd::{self, Testpmd};
use super::world::{LOCAL, Load, REMOTE, Rate, TestHosts, To};
use gatewright_link::{Backend, Mode};
use gatewright_planes::{MergeLimit, Series};
use gatewright_stack::Form;
use std::sync::atomic::{AtomicBool, Ordering};

/// How our links exchange frames, and what they then call it.
pub(crate) type Links = (Backend, Mode);
pub(crate) const XDP: Links = (Backend::Xdp, Mode::XdpCopy);
pub(crate) const PACKET_SOCKET: Links = (Backend::PacketSocket, Mode::PacketSocket);

/// The UDP gateway as the paper has it: datagrams joined end to end.
pub(crate) const MERGED_400: Series = Series::Merge(Form::Plain, MergeLimit::Octets(400));
pub(crate) const MERGED: Series = Series::Merge(Form::Plain, MergeLimit::PathMtu);
/// Each datagram behind its length, so that the receiver can take them apart.
pub(crate) const PREFIXED: Series = Series::Merge(Form::Prefixed, MergeLimit::PathMtu);

/// What datagrams are full of.
const FILLING: u8 = 0x5a;

/// Who is the gateway.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum System {
    /// Nobody: a cable from the sender to the receiver.
    Direct,
    /// Relays with the kernel's sockets.
    Sockets(Relay),
    /// The kernel routes.
    Kernel,
    /// Gatewright's UDP gateway.
    Gateway(Series, Links),
    /// Gatewright's router.
    Router(Links),
    /// DPDK's test application, which exchanges link-layer addresses and looks at nothing else.
    Testpmd,
}

impl System {
    /// Where the sender's datagrams go.
    pub(crate) fn to(self) -> To {
        match self {
            Self::Direct => To::Direct,
            Self::Sockets(_) | Self::Gateway(..) | Self::Testpmd => To::Relay,
            Self::Kernel | Self::Router(_) => To::Receiver,
        }
    }

    fn load(self, payload: &[u8]) -> Load<'_> {
        let is_prefixed = matches!(self, Self::Gateway(PREFIXED, _));
        let read = if is_prefixed { Payload::Prefixed } else { Payload::Whole };
        Load { to: self.to(), payload, read }
    }

    /// What comes through, and what was seen inside if it is ours.
    pub(crate) fn flood(
        self,
        world: &TestHosts,
        payload: usize,
    ) -> Result<(Rate, Option<GatewaySamples>), String> {
        let payload = vec![FILLING; payload];
        let load = self.load(&payload);
        let testpmd = self == Self::Testpmd;
        let testpmd = testpmd.then(|| Testpmd::start(world, testpmd::AF_XDP)).transpose()?;
        let result = self.set_up(world, || world.flood(load, |stop| self.work(stop)))?;
        testpmd.map_or(Ok(()), Testpmd::finish)?;
        Ok(result)
    }

    /// What was sent and what arrived in windows at a pace.
    pub(crate) fn paced(
        self,
        world: &TestHosts,
        payload: usize,
        gap_ns: u64,
        windows: usize,
    ) -> Result<Vec<super::world::PacedWindow>, String> {
        let payload = vec![FILLING; payload];
        let load = self.load(&payload);
        self.set_up(world, || world.paced(load, gap_ns, windows, |stop| self.work(stop)))
    }

    /// Sets the gateway's kernel up for this system while `work` is done.
    fn set_up<T>(
        self,
        world: &TestHosts,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        // AF_XDP opens the cable's end by itself.
        let opens = matches!(self, Self::Gateway(_, XDP) | Self::Router(XDP) | Self::Testpmd);
        let _open = (!opens).then(|| world.open_to_kernel()).transpose()?;
        if self != Self::Kernel {
            return work();
        }
        world.forwarding(true)?;
        let done = work();
        world.forwarding(false)?;
        done
    }

    /// Works as the gateway until `stop`; what was seen inside if it is ours.
    fn work(self, stop: &AtomicBool) -> Result<Option<GatewaySamples>, String> {
        match self {
            Self::Sockets(relay) => {
                let relayed = relay.run(LOCAL, REMOTE, stop).map_err(|error| error.to_string())?;
                if relayed == 0 { Err("it relayed nothing".to_owned()) } else { Ok(None) }
            }
            Self::Gateway(series, links) => {
                ours::gateway(links, None, Some(series), stop).map(Some)
            }
            Self::Router(links) => ours::gateway(links, None, None, stop).map(Some),
            Self::Direct | Self::Kernel | Self::Testpmd => {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(LOOK);
                }
                Ok(None)
            }
        }
    }
}
