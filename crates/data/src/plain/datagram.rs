//! Datagrams and captured packets, orders to the UDP layer, and the parameters of applications.

use super::{Plain, plain_enum, plain_struct, taken};
use crate::report_forwarder::ReportForwarderSetup;
use crate::udp_gateway::{FlowBalance, FlowRelay, MergeLimit, Series, UdpGatewaySetup, UdpTarget};
use gatewright_delay::{FlowKind, LinearFit, NodeModel, PathPolicy, QueueModel, SetupTime};
use gatewright_stack::{
    Form, FoundApplication, PacketOctets, RemoteDatagram, SocketOrder, builtin::CapturedPacket,
};
use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
};

impl Plain for SocketAddr {
    fn put(&self, to: &mut Vec<u8>) {
        self.ip().put(to);
        self.port().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(Self::new(IpAddr::take(from)?, u16::take(from)?))
    }
}

plain_enum!(Form { 0 => Plain, 1 => Prefixed });
plain_enum!(MergeLimit { 0 => Octets(most), 1 => PathMtu });
plain_enum!(Series { 0 => Plain, 1 => Merge(form, limit), 2 => Split });
plain_struct!(UdpGatewaySetup { listen, target, series, clients_max });
plain_enum!(UdpTarget { 0 => Server(server), 1 => Balance(balance) });
plain_struct!(FlowBalance { policy, kind, flows_max, flows_per_client, relays });
plain_struct!(FlowRelay { address, model, hops, is_live, path });
plain_enum!(PathPolicy { 0 => LeastLoad, 1 => Weighted, 2 => MinHop });
plain_struct!(FlowKind { rate, octets, bound_us, quantile });
plain_struct!(NodeModel { queue, service, setup, variation, spread });
plain_enum!(QueueModel { 0 => FirstInFirstOut, 1 => ProcessorSharing });
plain_struct!(LinearFit { intercept, slope, r_squared, count });
plain_struct!(SetupTime { longest, time_constant });
plain_struct!(ReportForwarderSetup { listen, cse });
plain_struct!(FoundApplication { id, parameters, locals, precedes });
plain_struct!(CapturedPacket { capture, octets, framing, at, side, link });

plain_enum!(SocketOrder {
    0 => Open { socket, local },
    1 => Close { socket },
    2 => Start(application),
    3 => Stop { application },
    4 => Join { socket, group, link },
    5 => Leave { socket, group, link },
});

/// The parameters of an application, from which the data plane's process builds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApplicationSetup {
    UdpGateway(UdpGatewaySetup),
    ReportForwarder(ReportForwarderSetup),
}

plain_enum!(ApplicationSetup { 0 => UdpGateway(setup), 1 => ReportForwarder(setup) });

/// Octets of a message, all at once.
fn put_octets(octets: &[u8], to: &mut Vec<u8>) {
    octets.len().put(to);
    to.extend_from_slice(octets);
}

fn take_octets(from: &mut &[u8]) -> Option<Vec<u8>> {
    let len = usize::take(from)?;
    let (octets, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(octets.to_vec())
}

impl Plain for PacketOctets {
    fn put(&self, to: &mut Vec<u8>) {
        put_octets(self.octets(), to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        take_octets(from).map(Self::Copied)
    }
}

/// The errors that ICMP reports about a datagram.
const REFUSALS: [ErrorKind; 3] =
    [ErrorKind::ConnectionRefused, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];

impl Plain for RemoteDatagram {
    fn put(&self, to: &mut Vec<u8>) {
        self.socket.put(to);
        self.peer.put(to);
        self.multicast.put(to);
        match &self.content {
            Ok(octets) => {
                to.push(0);
                put_octets(octets, to);
            }
            Err(kind) => {
                let number = (1..).zip(REFUSALS).find(|(_, known)| known == kind);
                to.push(number.map_or(u8::MAX, |(number, _)| number));
            }
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (socket, peer) = (u32::take(from)?, SocketAddr::take(from)?);
        let multicast = Plain::take(from)?;
        let content = match usize::from(u8::take(from)?).checked_sub(1) {
            None => Ok(take_octets(from)?),
            Some(place) => Err(REFUSALS.get(place).copied().unwrap_or(ErrorKind::Other)),
        };
        Some(Self { socket, peer, content, multicast })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_packet::LinkIndex;
    use gatewright_stack::Side;
    use gatewright_wire::Framing;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn datagrams_and_orders_come_back_from_their_octets() {
        let peer: SocketAddr = "[2001:db8::7]:5683".parse().unwrap();
        let link = LinkIndex(3);
        for content in [Ok(vec![1, 2, 3]), Ok(Vec::new()), Err(ErrorKind::HostUnreachable)] {
            let multicast = Some((1, Some(link)));
            let datagram = RemoteDatagram { socket: 7, peer, content, multicast };
            assert_eq!(RemoteDatagram::of(&datagram.octets()), Some(datagram));
        }
        let series = Series::Merge(Form::Prefixed, MergeLimit::Octets(1400));
        let setup = UdpGatewaySetup { listen: peer, target: peer.into(), series, clients_max: 9 };
        let service = LinearFit { intercept: 1e-3, slope: 4e-10, r_squared: 0.98, count: 4 };
        let waking = Some(SetupTime { longest: 5e-5, time_constant: 0.1 });
        let queue = QueueModel::ProcessorSharing;
        let model = NodeModel { queue, service, setup: waking, variation: 0.4, spread: 1.3 };
        let balance = FlowBalance {
            policy: PathPolicy::Weighted,
            kind: FlowKind { rate: 10.0, octets: 400.0, bound_us: 6000.0, quantile: 0.95 },
            flows_max: 100,
            flows_per_client: None,
            relays: vec![FlowRelay { address: peer, model, hops: 3, is_live: true, path: None }; 2],
        };
        let balanced = UdpGatewaySetup { target: UdpTarget::Balance(balance), ..setup.clone() };
        let forwarder = ReportForwarderSetup { listen: peer, cse: peer };
        for setup in [
            ApplicationSetup::UdpGateway(setup.clone()),
            ApplicationSetup::UdpGateway(balanced),
            ApplicationSetup::ReportForwarder(forwarder),
        ] {
            assert_eq!(ApplicationSetup::of(&setup.octets()), Some(setup));
        }
        let (parameters, locals) = (ApplicationSetup::UdpGateway(setup).octets(), vec![peer, peer]);
        let start = FoundApplication { id: 4, parameters, locals, precedes: true };
        let group = "ff02::1".parse().unwrap();
        for order in [
            SocketOrder::Open { socket: 1, local: peer },
            SocketOrder::Close { socket: 1 },
            SocketOrder::Start(start),
            SocketOrder::Stop { application: 4 },
            SocketOrder::Join { socket: 1, group, link },
            SocketOrder::Leave { socket: 1, group, link },
        ] {
            assert_eq!(SocketOrder::of(&order.octets()), Some(order));
        }
    }

    #[test]
    fn a_captured_packet_comes_back_from_its_octets() {
        let packet = CapturedPacket {
            capture: 1 << 40,
            octets: PacketOctets::Copied(vec![9; 60]),
            framing: Framing::Ip,
            at: Duration::from_nanos(1_500_000_001),
            side: Side::Transmit,
            link: LinkIndex::NONE,
        };
        let back = CapturedPacket::of(&packet.octets()).unwrap();
        assert_eq!(format!("{back:?}"), format!("{packet:?}"));
    }

    proptest! {
        /// Octets of another process are a value or refused; nothing else happens.
        #[test]
        fn any_octets_are_a_value_or_refused(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            let _value = RemoteDatagram::of(&octets);
            let _value = SocketOrder::of(&octets);
            let _value = CapturedPacket::of(&octets);
            let _value = ApplicationSetup::of(&octets);
        }
    }
}
