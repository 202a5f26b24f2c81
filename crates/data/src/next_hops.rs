//! Next hops that share the flows of a route: each flow goes to the one where it and those before it
//! keep their bounds, or is refused.
//!
//! A handler does it, between the network layer and the link. The route leads to the first next hop;
//! packets to the route's destinations that go there get the next hop of their flow. A flow has its
//! next hop until it has been silent for two minutes, or nobody tells that one's link-layer address:
//! then the next hop is left out for a while, and its flows go to another one.

use crate::udp_gateway::{ClientAdmission, ClientFlow, FlowBalance};
use gatewright_packet::{Batch, LinkIndex, NextHop};
use gatewright_stack::{Context, Counter, FlowKey, Handler, LostNeighbours, builtin::Subnet};
use std::{collections::BTreeMap, net::IpAddr, time::Duration};

/// A flow that has been silent for so long has ended, as for a NAT (RFC 4787 §4.3).
const SILENT_FOR: Duration = Duration::from_mins(2);

/// Time between two looks for flows that have ended: one costs a step for each flow.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Gives packets the next hop of their flow, and takes those of refused flows.
pub(crate) struct NextHopBalance {
    /// The destinations of the route.
    to: Subnet,
    /// The next hop of the route.
    asked: IpAddr,
    admission: ClientAdmission,
    flows: BTreeMap<FlowKey, FlowPlace>,
    /// The link of the next hops, once a packet has gone there.
    link: Option<LinkIndex>,
    /// The losses of neighbours seen so far, and when that was; `None` before the first look.
    seen: Option<(u64, Duration)>,
}

struct FlowPlace {
    flow: ClientFlow,
    next_hop: IpAddr,
    until: Duration,
}

impl NextHopBalance {
    /// Next hops without flows; `None` without a next hop.
    pub(crate) fn new(to: Subnet, balance: FlowBalance, counters: Vec<Counter>) -> Option<Self> {
        let asked = balance.relays.first()?.address.ip();
        let admission = ClientAdmission::new(balance, counters);
        let flows = BTreeMap::new();
        Some(Self { to, asked, admission, flows, link: None, seen: None })
    }

    /// Ends the flows that have been silent for too long.
    fn end_silent(&mut self, now: Duration) {
        let Self { admission, flows, .. } = self;
        let mut next = Duration::MAX;
        flows.retain(|_, place| {
            let goes_on = place.until > now;
            if goes_on {
                next = next.min(place.until);
            } else {
                admission.end(&place.flow, now);
            }
            goes_on
        });
        admission.set_next_end(next.max(now + LOOK_EVERY));
    }

    /// The next hop of a packet's flow, which begins with it if it is new; `None` if it is refused.
    fn next_hop(&mut self, flow: FlowKey, now: Duration) -> Option<IpAddr> {
        let until = now + SILENT_FOR;
        if let Some(place) = self.flows.get_mut(&flow) {
            if !self.admission.leaves(&place.flow) {
                place.until = until;
                self.admission.sent(&place.flow, now);
                return Some(place.next_hop);
            }
            self.admission.end(&place.flow, now);
            self.flows.remove(&flow);
        }
        let (admitted, to) = self.admission.admit(flow.source(), now, until)?;
        let next_hop = to.ip();
        self.flows.insert(flow, FlowPlace { flow: admitted, next_hop, until });
        Some(next_hop)
    }

    /// Leaves out the next hops that were lost since the last look.
    fn leave_out(&mut self, lost: &LostNeighbours, now: Duration) {
        let Some((losses, seen)) = self.seen.replace((lost.losses(), now)) else { return };
        let Some(link) = self.link.filter(|_| losses != lost.losses()) else { return };
        let relays = self.admission.addresses();
        let is_lost = |ip| lost.lost_at(link, ip).is_some_and(|at| at >= seen);
        let gone = relays.filter(|(_, to)| is_lost(to.ip())).map(|(relay, _)| relay);
        for relay in gone.collect::<Vec<_>>() {
            self.admission.failed(relay, true, now);
        }
    }

    fn pass(&mut self, batch: &mut Batch, now: Duration) {
        if self.admission.is_due(now) {
            self.end_silent(now);
        }
        batch.retain(|packet| {
            if packet.meta().next_hop != NextHop::Neighbour(self.asked) {
                return true;
            }
            let flow = FlowKey::of(packet.network_octets());
            let Some(flow) = flow.filter(|flow| self.to.contains(flow.destination())) else {
                return true;
            };
            self.link = Some(packet.meta().egress);
            let Some(next_hop) = self.next_hop(flow, now) else { return false };
            packet.meta_mut().next_hop = NextHop::Neighbour(next_hop);
            true
        });
    }
}

impl Handler for NextHopBalance {
    fn handle(&mut self, batch: &mut Batch, context: &mut Context<'_>) {
        if let Some(lost) = context.lost_neighbours() {
            self.leave_out(lost, context.now());
        }
        self.pass(batch, context.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp_gateway::{FlowRelay, balance_items};
    use gatewright_delay::{FlowKind, LinearFit, NodeModel, PathPolicy, QueueModel};
    use gatewright_packet::{CHUNK_SIZE, Pool};
    use gatewright_wire::{IpProtocol, ipv4::Ipv4Fields};
    use std::net::{Ipv4Addr, SocketAddr};

    /// M/M/1 with 1,000 packets a second keeps 6 ms for 95 % of the packets up to a load of 0.52, by
    /// hand in `gatewright-delay`'s admission: 52 flows of 10 packets a second.
    const EACH: u16 = 52;
    const KIND: FlowKind = FlowKind { rate: 10.0, octets: 100.0, bound_us: 6000.0, quantile: 0.95 };
    const HOPS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

    struct Bench {
        handler: NextHopBalance,
        counters: Vec<Counter>,
        pool: Pool,
    }

    impl Bench {
        fn new() -> Self {
            let service = LinearFit { intercept: 1e-3, slope: 0.0, r_squared: 1.0, count: 4 };
            let queue = QueueModel::FirstInFirstOut;
            let model = NodeModel { queue, service, setup: None, variation: 1.0, spread: 1.0 };
            let relay = |hop: Ipv4Addr| FlowRelay {
                address: SocketAddr::new(hop.into(), 0),
                model,
                hops: 1,
                is_live: false,
                path: None,
            };
            let policy = PathPolicy::LeastLoad;
            let relays = HOPS.map(relay).to_vec();
            let balance =
                FlowBalance { policy, kind: KIND, flows_max: 1000, flows_per_client: None, relays };
            let to = Subnet { address: [198, 51, 100, 0].into(), bits: 24 };
            let counters: Vec<_> =
                (0..balance_items(HOPS.len())).map(|_| Counter::default()).collect();
            let handler = NextHopBalance::new(to, balance, counters.clone()).unwrap();
            Self { handler, counters, pool: Pool::new(256, CHUNK_SIZE).unwrap() }
        }

        /// Sends a datagram from each port; the next hop that each had, if it was not taken.
        fn send(
            &mut self,
            now: u64,
            ports: impl IntoIterator<Item = u16>,
            (to, by): ([u8; 4], Ipv4Addr),
        ) -> Vec<Option<IpAddr>> {
            let mut next_hops = Vec::new();
            for port in ports {
                let mut ip = Ipv4Fields::new(IpProtocol::UDP, [10, 0, 0, 1].into(), to.into(), 28)
                    .emit_with_checksum()
                    .to_vec();
                ip.extend_from_slice(&port.to_be_bytes());
                ip.extend_from_slice(&[0x16, 0x33, 0, 8, 0, 0]);
                let mut packet = self.pool.packet_of(&ip).unwrap();
                packet.meta_mut().next_hop = NextHop::Neighbour(by.into());
                let mut batch = Batch::default();
                batch.push(packet).unwrap();
                self.handler.pass(&mut batch, Duration::from_secs(now));
                next_hops.push(batch.iter().next().and_then(
                    |packet| match packet.meta().next_hop {
                        NextHop::Neighbour(hop) => Some(hop),
                        _ => None,
                    },
                ));
            }
            next_hops
        }

        fn flows(&mut self, now: u64, ports: std::ops::Range<u16>) -> Vec<Option<IpAddr>> {
            self.send(now, ports, ([198, 51, 100, 9], HOPS[0]))
        }
    }

    fn share(sent: &[Option<IpAddr>], hop: Ipv4Addr) -> usize {
        sent.iter().filter(|its| **its == Some(hop.into())).count()
    }

    #[test]
    fn flows_keep_their_next_hop_and_what_would_be_late_is_taken() {
        let mut bench = Bench::new();
        let first = bench.flows(0, 0..2 * EACH);
        assert_eq!(HOPS.map(|hop| share(&first, hop)), [usize::from(EACH); 2]);
        assert_eq!(bench.flows(1, 2 * EACH..2 * EACH + 3), [None; 3]);
        assert_eq!(bench.flows(2, 0..2 * EACH), first, "each has the place that it had");
        let counts: Vec<u64> = bench.counters.iter().map(Counter::get).collect();
        // No path, full, client, overload, late, disturbs; then nine items of each next hop, of which
        // the first is the admitted.
        let each = [52, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(counts, [&[0, 0, 0, 0, 3, 0][..], &each, &each].concat());
    }

    #[test]
    fn a_silent_flow_ends_and_its_place_is_another_s() {
        let mut bench = Bench::new();
        let first = bench.flows(0, 0..2 * EACH);
        // Every flow but the last one goes on.
        bench.flows(100, 0..2 * EACH - 1);
        assert_eq!(bench.flows(119, 500..501), [None]);
        let place = bench.flows(121, 500..501);
        assert_eq!(place, first[first.len() - 1..], "the place of the one that ended");
        assert_eq!(bench.flows(122, 501..502), [None]);
    }

    /// A lost next hop has no flows for a second; then one flow tries it, and more do when nothing
    /// was lost for as long as a trial takes.
    #[test]
    fn a_lost_next_hop_s_flows_go_to_another_one_until_it_is_back() {
        let mut bench = Bench::new();
        let first = bench.flows(0, 0..20);
        assert_eq!(HOPS.map(|hop| share(&first, hop)), [10, 10]);
        let mut lost = LostNeighbours::default();
        bench.handler.leave_out(&lost, Duration::ZERO);
        let mut lose = |bench: &mut Bench, now| {
            let link = bench.handler.link.unwrap();
            lost.note(link, HOPS[1].into(), Duration::from_secs(now));
            bench.handler.leave_out(&lost, Duration::from_secs(now));
        };
        lose(&mut bench, 10);
        assert_eq!(HOPS.map(|hop| share(&bench.flows(10, 0..20), hop)), [20, 0]);
        // New ones may go to it after a second: the first one does, the next ones do not.
        let tries = bench.flows(11, 20..24);
        assert_eq!(HOPS.map(|hop| share(&tries, hop)), [3, 1]);
        lose(&mut bench, 14);
        assert_eq!(HOPS.map(|hop| share(&bench.flows(14, 0..24), hop)), [24, 0]);
        // The failed trial has doubled the time.
        assert_eq!(HOPS.map(|hop| share(&bench.flows(15, 24..26), hop)), [2, 0]);
        let tries = bench.flows(16, 26..28);
        assert_eq!(HOPS.map(|hop| share(&tries, hop)), [1, 1]);
        bench.flows(21, 26..28);
        assert_eq!(HOPS.map(|hop| share(&bench.flows(21, 28..38), hop)), [0, 10]);
        let counts: Vec<u64> = bench.counters.iter().map(Counter::get).collect();
        let its = &counts[15..20];
        assert_eq!(its, [22, 11, 2, 1, 1], "admitted, ended, unreachable, left out, back");
    }

    #[test]
    fn other_routes_and_other_destinations_are_left_alone() {
        let mut bench = Bench::new();
        let elsewhere = bench.send(0, [1, 2, 3], ([203, 0, 113, 1], HOPS[0]));
        assert_eq!(elsewhere, [Some(HOPS[0].into()); 3]);
        let other = Ipv4Addr::new(192, 0, 2, 77);
        let by_another = bench.send(0, [1, 2, 3], ([198, 51, 100, 9], other));
        assert_eq!(by_another, [Some(other.into()); 3]);
        assert!(bench.counters.iter().all(|count| count.get() == 0));
    }
}
