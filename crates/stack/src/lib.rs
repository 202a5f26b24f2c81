//! The layer graph and the layers of the Internet protocol suite.
//!
//! A gateway is a [`Graph`]: [`Layer`]s joined by edges. A link gives it a batch of frames; each
//! layer strips its header in place and pushes the packets on by a typed position ([`At`]): an
//! EtherType, an IP protocol, a port. [`Handler`]s are attached at positions, before, instead of,
//! after, or as a tap on the layer there. Packets that leave the graph are returned per link. The
//! graph opens no device, reads no clock and draws no randomness: all three are arguments.
//!
//! ```text
//!            receive                                   transmit
//!  link ──frame──▶ Ethernet ──ether:ipv4──▶ IPv4 ──down──▶ Ethernet ──frame──▶ link
//!                     │                      │ │
//!                     └──ether:arp──▶ ARP    │ └──error──▶ ICMPv4 ──▶ (IPv4, transmit)
//!                                            └──ip:udp──▶ UDP ──udp:5683──▶ socket
//! ```
#![forbid(unsafe_code)]

mod application;
mod arp;
mod bucket;
pub mod builtin;
mod counters;
mod destination;
mod dhcp;
mod ethernet;
mod flow;
mod graph;
mod groups;
mod handler;
mod handoff;
mod hop_counters;
mod host;
mod icmp_counters;
mod icmpv4;
mod icmpv6;
mod igmp;
mod ipv4;
mod ipv6;
mod label;
mod layer;
mod link_layer;
mod lost;
mod membership;
mod merge;
mod mld;
mod ndp;
mod neighbour;
mod octets;
mod paths;
mod position;
mod random;
mod raw_ip;
mod reassembly;
mod redirect;
mod refused;
mod remote;
mod socket;
mod station;
mod suite;
mod trace;
mod udp;
mod virtual_link;
mod vlan;
mod wiring;

pub use application::{
    ApplicationSockets, Datagram, Origin, SendError, SocketApplication, SocketIndex,
};
pub use arp::ArpLayer;
pub use bucket::{Bucket, DriverBucket};
pub use counters::{Counter, Drops, Reason};
pub use dhcp::DhcpLayer;
pub use ethernet::EthernetLayer;
pub use flow::{FlowKey, flow_of};
pub use gatewright_edge::Wake;
pub use graph::{Exit, Graph, GraphTimes, MeasureClock, SAMPLE_EVERY, Swap, TimeSum};
pub use groups::{GROUPS_MAX, Groups};
pub use handler::{Attachment, AttachmentId, Context, Handler, Place, tap};
pub use handoff::{HandedOver, KeptNeighbours, UsedNeighbours};
pub use hop_counters::HOP_PACKETS;
pub use host::{
    Address, AddressState, Advertise, Event, HopShare, Host, HostError, Interface, Lease,
    ROUTE_HOPS_MAX, Route, RouteFollower, RouterPreference, View, WeightedHop,
};
pub use icmp_counters::IcmpCounts;
pub use icmpv4::Icmpv4Layer;
pub use icmpv6::Icmpv6Layer;
pub use igmp::IgmpLayer;
pub use ipv4::Ipv4Layer;
pub use ipv6::Ipv6Layer;
pub use label::{LabelCounts, LabelLayer, LabelledLink};
pub use layer::{EVENTS_FULL, GROUPS_FULL, Layer, Out, QUEUE_FULL, UNCLAIMED};
pub use lost::LostNeighbours;
pub use merge::{CutShort, Form, Merger, split};
pub use mld::MldLayer;
pub use ndp::NdpLayer;
pub use neighbour::{
    Advertised, LinkNeighbours, NEIGHBOUR_EVICTED, NEIGHBOURS_FULL, NeighbourLimits,
    NeighbourOutput, NeighbourState, Neighbours, RESOLUTION_LIMITED, SharedNeighbours,
    WAITING_FULL, WAITING_MAX, WAITING_PER_NEIGHBOUR_MAX,
};
pub use octets::PacketOctets;
pub use paths::{Learnt, PATH_MTU_FOR, PATHS_MAX, PATHS_OF_SUBNET_MAX, Paths};
pub use position::{At, AtError, IcmpError, Side, ip_protocol, ip_protocol_names};
pub use raw_ip::RawIpLayer;
pub use remote::{
    FoundApplication, ORDERED_WITHIN, OrderReply, RemoteDatagram, RemoteSockets, SocketOrder,
};
pub use socket::{RunningApplication, SOCKET_QUEUE_MAX, SOCKETS_MAX, Sockets, UdpSocket};
pub use suite::{Suite, SuiteLink, assemble, assemble_labelled, assemble_transit, assemble_within};
pub use trace::{Reassembling, ReassemblyState, Trace, TraceOutcome, TraceStep};
pub use udp::{UdpLayer, UdpSockets};
pub use virtual_link::{LinkTag, VirtualLink, VirtualLinkCounters};
pub use vlan::{VlanLayer, VlanMember, VlanTag};
pub use wiring::{Binding, EdgeTarget, NodeIndex, Plan, WAY_PACKETS, Wiring, WiringError};
