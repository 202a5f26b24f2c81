//! The standard assembly: the Internet protocol suite over any number of links.

use crate::{
    ArpLayer, At, Binding, DhcpLayer, EdgeTarget, EthernetLayer, IcmpError, Icmpv4Layer,
    Icmpv6Layer, IgmpLayer, Ipv4Layer, Ipv6Layer, LabelLayer, LabelledLink, Layer, LinkNeighbours,
    LinkTag, MldLayer, NdpLayer, NeighbourLimits, NodeIndex, Plan, RawIpLayer, Side, Sockets,
    UdpLayer, UdpSockets, VirtualLink, VirtualLinkCounters, VlanLayer, VlanMember, Wake,
    handoff::HandoffLayer, icmpv4::error_positions, random::Random,
};
use gatewright_packet::LinkIndex;
use gatewright_wire::{
    EtherType, Framing, IpProtocol, Port, icmpv4::Icmpv4Type, icmpv6::Icmpv6Type,
};
use std::{fmt, sync::Arc};

/// A link of the suite, with the choice of its link layer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SuiteLink {
    /// A device with Ethernet frames.
    Ethernet(LinkIndex),
    /// A device whose frames are IP packets.
    RawIp(LinkIndex),
    /// A link without a device: frames of another of the links.
    Virtual(VirtualLink),
}

/// Layers of both families with the plan that joins them; further layers can be added, and
/// bindings replaced, before the plan is wired.
pub struct Suite {
    /// The layers' places and ways.
    pub plan: Plan,
    /// The layers, in the plan's order.
    pub layers: Vec<Box<dyn Layer>>,
    /// The neighbour caches of each link with link-layer addresses, which the owner of the graph may
    /// read and set.
    pub neighbours: Vec<LinkNeighbours>,
    /// For each link, the layer to which packets are pushed down.
    pub bottoms: Vec<(LinkIndex, NodeIndex)>,
    /// The counters of each virtual link.
    pub virtual_links: Vec<(VirtualLink, VirtualLinkCounters)>,
    /// The network layer of IPv4: sockets transmit by it.
    pub ipv4: NodeIndex,
    /// ICMP for IPv4.
    pub icmpv4: NodeIndex,
    /// The network layer of IPv6.
    pub ipv6: NodeIndex,
    /// ICMP for IPv6.
    pub icmpv6: NodeIndex,
    /// UDP over both.
    pub udp: NodeIndex,
    /// Opens UDP sockets for applications, from any thread.
    pub sockets: Sockets,
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.layers.iter().map(|layer| layer.name())).finish()
    }
}

impl Suite {
    /// Makes it the suite of a worker that only forwards, of the same plan and in the same order:
    /// packets that are not transit leave its graph as [`HandedOver`](crate::HandedOver).
    pub(crate) fn transit_only(mut self, random: u64) -> Self {
        let mut random = Random::new(random);
        let is_bottom = |node| self.bottoms.iter().any(|&(_, bottom)| bottom == node);
        let nodes: Vec<_> = self.plan.layers().map(|(node, name, _)| (node, name)).collect();
        for ((node, name), layer) in nodes.into_iter().zip(&mut self.layers) {
            if is_bottom(node) {
                continue;
            }
            *layer = match node {
                _ if node == self.ipv4 => Box::new(Ipv4Layer::transit_only(random.draw())),
                _ if node == self.ipv6 => Box::new(Ipv6Layer::transit_only(0)),
                _ => Box::new(HandoffLayer { name }),
            };
        }
        self
    }
}

/// The suite over `links` for a further worker: it forwards transit, and leaves all else to the
/// first worker's full suite.
pub fn assemble_transit(links: &[SuiteLink], random: u64) -> Suite {
    assemble(links, Arc::new(Nobody), random).transit_only(!random)
}

/// The waker of a suite without one.
struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

/// The suite over `links`. Sockets `wake` the owner of the graph; `random` makes secret values
/// unpredictable.
pub fn assemble(links: &[SuiteLink], wake: Arc<dyn Wake>, random: u64) -> Suite {
    assemble_within(links, wake, random, NeighbourLimits::default())
}

/// As [`assemble`], with limits on the neighbours of each link and family.
pub fn assemble_within(
    links: &[SuiteLink],
    wake: Arc<dyn Wake>,
    random: u64,
    limits: NeighbourLimits,
) -> Suite {
    assemble_labelled(links, wake, random, limits, None)
}

/// As [`assemble_within`], with label switching over the Ethernet links, if `labelled` is given.
pub fn assemble_labelled(
    links: &[SuiteLink],
    wake: Arc<dyn Wake>,
    random: u64,
    limits: NeighbourLimits,
    labelled: Option<LabelledLink>,
) -> Suite {
    let mut random = Random::new(random);
    let mut builder = Builder { limits, ..Builder::default() };
    builder.links(links, &mut random);
    if let Some(labelled) = labelled {
        builder.labels(labelled, links, &mut random);
    }
    let (ipv4, icmpv4) = builder.ipv4(&mut random);
    let (ipv6, icmpv6) = builder.ipv6(&mut random);
    let (udp, sockets) =
        builder.udp([(EtherType::IPV4, ipv4, icmpv4), (EtherType::IPV6, ipv6, icmpv6)], wake);
    builder.dhcp(udp, ipv4, &mut random);
    let Builder { plan, layers, neighbours, bottoms, virtual_links, limits: _ } = builder;
    Suite {
        plan,
        layers,
        neighbours,
        bottoms,
        virtual_links,
        ipv4,
        icmpv4,
        ipv6,
        icmpv6,
        udp,
        sockets,
    }
}

#[derive(Default)]
struct Builder {
    plan: Plan,
    layers: Vec<Box<dyn Layer>>,
    neighbours: Vec<LinkNeighbours>,
    bottoms: Vec<(LinkIndex, NodeIndex)>,
    virtual_links: Vec<(VirtualLink, VirtualLinkCounters)>,
    limits: NeighbourLimits,
}

impl Builder {
    fn add(&mut self, layer: impl Layer + 'static, link: Option<LinkIndex>) -> NodeIndex {
        let node = self.plan.add(layer.name(), link);
        self.layers.push(Box::new(layer));
        node
    }

    /// From `from`, packets at `at` go up to `to`.
    fn up(&mut self, from: NodeIndex, at: At, link: Option<LinkIndex>, to: NodeIndex) {
        let (side, to) = (Side::Receive, EdgeTarget::Layer(to));
        self.plan.bind(Binding { from: Some(from), at, side, link, to });
    }

    /// From `from`, packets at `at` go down to `to`.
    fn down(&mut self, from: NodeIndex, at: At, link: Option<LinkIndex>, to: NodeIndex) {
        let (side, to) = (Side::Transmit, EdgeTarget::Layer(to));
        self.plan.bind(Binding { from: Some(from), at, side, link, to });
    }

    /// The one link whose packets come up from the link layer `bottom` of `link`, if it is one:
    /// several VLANs share one layer, and so one way up.
    fn one_link(&self, link: LinkIndex, bottom: NodeIndex) -> Option<LinkIndex> {
        self.plan.link_of(bottom).filter(|of| *of == link)
    }

    /// Link layers.
    fn links(&mut self, links: &[SuiteLink], random: &mut Random) {
        for &link in links {
            match link {
                SuiteLink::Ethernet(link) => {
                    let neighbours = LinkNeighbours::new(link, random.draw(), self.limits);
                    self.ethernet(neighbours, links, random);
                }
                SuiteLink::RawIp(link) => {
                    self.plan.set_framing(link, Framing::Ip);
                    self.on_device(link, RawIpLayer::new(link));
                }
                // The link below builds it.
                SuiteLink::Virtual(_) => {}
            }
        }
    }

    /// Puts a link layer on the device of its link.
    fn on_device(&mut self, link: LinkIndex, layer: impl Layer + 'static) -> NodeIndex {
        let layer = self.add(layer, Some(link));
        for (from, side, to) in [
            (None, Side::Receive, EdgeTarget::Layer(layer)),
            (Some(layer), Side::Transmit, EdgeTarget::Device(link)),
        ] {
            self.plan.bind(Binding { from, at: At::Frame, side, link: Some(link), to });
        }
        self.bottoms.push((link, layer));
        layer
    }

    /// Whether the link has link-layer addresses, which have to be resolved.
    fn resolves(&self, link: LinkIndex) -> bool {
        self.neighbours.iter().any(|of| of.link == link)
    }

    fn ethernet(&mut self, own: LinkNeighbours, links: &[SuiteLink], random: &mut Random) {
        let link = own.link;
        let ethernet = self.on_device(link, EthernetLayer::new(own.clone()));
        let link_only = Some(link);
        self.neighbours.push(own);
        let mut members = Vec::new();
        for found in links {
            if let SuiteLink::Virtual(of) = *found
                && of.below == link
            {
                let neighbours = LinkNeighbours::new(of.link, random.draw(), self.limits);
                let counters = VirtualLinkCounters::default();
                self.plan.add_virtual(of);
                self.virtual_links.push((of, counters.clone()));
                match of.tag {
                    LinkTag::Vlan(tag) => members.push(VlanMember { tag, neighbours, counters }),
                }
            }
        }
        if members.is_empty() {
            return;
        }
        let caches: Vec<_> = members.iter().map(|member| member.neighbours.clone()).collect();
        let vlan = self.add(VlanLayer::new(link, members), link_only);
        self.up(ethernet, At::EtherType(EtherType::VLAN), link_only, vlan);
        self.down(vlan, At::EtherType(EtherType::VLAN), link_only, ethernet);
        self.bottoms.extend(caches.iter().map(|cache| (cache.link, vlan)));
        self.neighbours.extend(caches);
    }

    /// Label switching over the Ethernet links.
    fn labels(&mut self, own: LabelledLink, links: &[SuiteLink], random: &mut Random) {
        let link = own.link;
        let neighbours = LinkNeighbours::new(link, random.draw(), self.limits);
        let label = self.add(LabelLayer::new(own, neighbours.clone()), Some(link));
        let mpls = At::EtherType(EtherType::MPLS);
        let is_ethernet = |of| links.contains(&SuiteLink::Ethernet(of));
        for (of, bottom) in self.bottoms.clone().into_iter().filter(|(of, _)| is_ethernet(*of)) {
            self.up(bottom, mpls, Some(of), label);
            self.down(label, mpls, Some(of), bottom);
        }
        // What comes back from the handlers of labels, and all labels while there are any.
        self.up(label, At::ANY_LABEL, None, label);
        self.bottoms.push((link, label));
        self.neighbours.push(neighbours);
    }

    /// IPv4 with ARP, ICMP and IGMP; the network layer and ICMP.
    fn ipv4(&mut self, random: &mut Random) -> (NodeIndex, NodeIndex) {
        let family = EtherType::IPV4;
        let arp = self.add(ArpLayer::new(&self.neighbours, random.draw()), None);
        let ipv4 = self.add(Ipv4Layer::new(random.draw()), None);
        let icmpv4 = self.add(Icmpv4Layer::new(random.draw()), None);
        for (link, bottom) in self.bottoms.clone() {
            let of_link = self.one_link(link, bottom);
            self.up(bottom, At::EtherType(family), of_link, ipv4);
            self.down(ipv4, At::EtherType(family), Some(link), bottom);
            if self.resolves(link) {
                self.up(bottom, At::EtherType(EtherType::ARP), of_link, arp);
                self.down(bottom, At::Unresolved(family), None, arp);
                self.down(arp, At::EtherType(EtherType::ARP), Some(link), bottom);
                self.down(arp, At::Unresolved(family), Some(link), bottom);
            }
        }
        let igmp = self.add(IgmpLayer::new(random.draw()), None);
        self.up(ipv4, At::IpProtocol(IpProtocol::IGMP), None, igmp);
        self.down(igmp, At::Local(family), None, ipv4);
        self.up(ipv4, At::IpProtocol(IpProtocol::ICMPV4), None, icmpv4);
        self.down(icmpv4, At::Local(family), None, ipv4);
        for at in error_positions(family) {
            self.up(ipv4, at, None, icmpv4);
            self.up(arp, at, None, icmpv4);
        }
        (ipv4, icmpv4)
    }

    /// IPv6 with ICMP, neighbour discovery and MLD; the network layer and ICMP.
    fn ipv6(&mut self, random: &mut Random) -> (NodeIndex, NodeIndex) {
        let family = EtherType::IPV6;
        let identification = u32::try_from(random.draw() >> 32).unwrap_or_default();
        let ipv6 = self.add(Ipv6Layer::new(identification), None);
        let icmpv6 = self.add(Icmpv6Layer::new(random.draw()), None);
        let ndp = self.add(NdpLayer::new(&self.neighbours, random.draw()), None);
        for (link, bottom) in self.bottoms.clone() {
            let of_link = self.one_link(link, bottom);
            self.up(bottom, At::EtherType(family), of_link, ipv6);
            self.down(ipv6, At::EtherType(family), Some(link), bottom);
            if self.resolves(link) {
                self.down(bottom, At::Unresolved(family), None, ndp);
                self.down(ndp, At::Unresolved(family), Some(link), bottom);
            }
        }
        for kind in NDP_TYPES {
            self.up(icmpv6, At::Icmpv6Type(kind.0), None, ndp);
        }
        self.down(ndp, At::Local(family), None, ipv6);
        let mld = self.add(MldLayer::new(random.draw()), None);
        for kind in MLD_TYPES {
            self.up(icmpv6, At::Icmpv6Type(kind.0), None, mld);
        }
        self.down(mld, At::Local(family), None, ipv6);
        self.up(ipv6, At::IpProtocol(IpProtocol::ICMPV6), None, icmpv6);
        self.down(icmpv6, At::Local(family), None, ipv6);
        let redirect = At::Error(family, IcmpError::Redirect);
        for at in error_positions(family).filter(|at| *at != redirect) {
            self.up(ipv6, at, None, icmpv6);
            self.up(ndp, at, None, icmpv6);
        }
        self.up(ipv6, redirect, None, ndp);
        (ipv6, icmpv6)
    }

    /// UDP with its sockets, over network layers each with its ICMP.
    fn udp(
        &mut self,
        families: [(EtherType, NodeIndex, NodeIndex); 2],
        wake: Arc<dyn Wake>,
    ) -> (NodeIndex, Sockets) {
        let (sockets, end) = Sockets::new(wake);
        let udp = self.add(UdpLayer, None);
        let layer = self.add(UdpSockets::new(end), None);
        self.up(udp, At::UdpPort(ANY_PORT), None, layer);
        for (family, network, icmp) in families {
            self.up(network, At::IpProtocol(IpProtocol::UDP), None, udp);
            self.down(layer, At::Local(family), None, network);
            self.up(layer, At::Error(family, IcmpError::PortUnreachable), None, icmp);
            let unreachable = if family == EtherType::IPV4 {
                At::Icmpv4Type(Icmpv4Type::DESTINATION_UNREACHABLE.0)
            } else {
                At::Icmpv6Type(Icmpv6Type::DESTINATION_UNREACHABLE.0)
            };
            self.up(icmp, unreachable, None, layer);
        }
        (udp, sockets)
    }

    /// The DHCP client, which runs where an interface asks for it.
    fn dhcp(&mut self, udp: NodeIndex, ipv4: NodeIndex, random: &mut Random) {
        let dhcp = self.add(DhcpLayer::new(random.draw()), None);
        self.up(udp, At::UdpPort(Port::DHCP_CLIENT.0), None, dhcp);
        self.down(dhcp, At::Local(EtherType::IPV4), None, ipv4);
    }
}

/// The position of all unbound ports.
const ANY_PORT: u16 = 0;

/// The messages of neighbour discovery (RFC 4861 §4).
const NDP_TYPES: [Icmpv6Type; 5] = [
    Icmpv6Type::ROUTER_SOLICITATION,
    Icmpv6Type::ROUTER_ADVERTISEMENT,
    Icmpv6Type::NEIGHBOR_SOLICITATION,
    Icmpv6Type::NEIGHBOR_ADVERTISEMENT,
    Icmpv6Type::REDIRECT,
];

/// The messages of multicast listener discovery (RFC 2710 §3.1, RFC 3810 §5).
const MLD_TYPES: [Icmpv6Type; 4] = [
    Icmpv6Type::MULTICAST_LISTENER_QUERY,
    Icmpv6Type::MULTICAST_LISTENER_REPORT,
    Icmpv6Type::MULTICAST_LISTENER_DONE,
    Icmpv6Type::MULTICAST_LISTENER_REPORT_V2,
];
