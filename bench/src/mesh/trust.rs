//! What authentication costs: messages from one node to another one, with a MAC, with signatures, and
//! without.

use bench::{Bench, Contestant, nanoseconds_each};
use gatewright_mesh::{
    LinkProperties, MeshInput, MeshKeys, MeshMembers, MeshNode, MeshNodeKey, MeshOutput,
    MeshSettings, MeshTrust, NodeId, Profile,
};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_wire::mpls::Label;
use std::cell::RefCell;
use std::time::Duration;

/// Messages of a round, and those of a mesh of members, whose signatures take long.
const MESSAGES: usize = 20_000;
const SIGNED_MESSAGES: usize = 300;
/// Time between two messages: a node checks at most 4,000 signatures a second, and answers at most
/// ten unknown labels.
const PAUSE: Duration = Duration::from_millis(100);
/// A broadcast that hosts send often: an ARP request, padded.
const PACKET: [u8; 60] = [0; 60];
const LINK: LinkIndex = LinkIndex(0);

/// Two nodes that have heard each other.
struct Neighbours {
    nodes: [MeshNode; 2],
    now: Duration,
    messages: usize,
    /// Octets of the last message.
    octets: usize,
}

fn address(node: usize) -> LinkAddress {
    LinkAddress::ethernet([2, 0, 0, 0, 0, u8::from(node == 1)])
}

impl Neighbours {
    fn new(
        messages: usize,
        trust: impl Fn(usize) -> Result<MeshTrust, String>,
    ) -> Result<Self, String> {
        let node = |number: usize| -> Result<MeshNode, String> {
            let id = NodeId(1 + u64::from(number == 1));
            let mut settings = MeshSettings::new(id, 1, Profile::Default);
            settings.trust = trust(number)?;
            let mut node = MeshNode::new(settings);
            let properties =
                LinkProperties { address: address(number), ..LinkProperties::default() };
            node.handle(Duration::ZERO, MeshInput::LinkUp { link: LINK, properties });
            Ok(node)
        };
        let nodes = [node(0)?, node(1)?];
        let mut this = Self { nodes, now: Duration::ZERO, messages, octets: 0 };
        for _ in 0..50 {
            this.now += Duration::from_millis(100);
            for node in &mut this.nodes {
                node.handle(this.now, MeshInput::Tick);
            }
            this.exchange();
        }
        Ok(this)
    }

    /// Delivers what the nodes have sent, until nobody sends any more; the packets delivered.
    fn exchange(&mut self) -> usize {
        let mut delivered = 0;
        loop {
            let mut sent = false;
            for from in 0..2 {
                let [first, second] = &mut self.nodes;
                let (own, other) = if from == 0 { (first, second) } else { (second, first) };
                while let Some(output) = own.poll_output() {
                    if let MeshOutput::Send { octets, .. } = &output {
                        let (from, octets) = (address(from), octets.as_slice());
                        self.octets = octets.len();
                        other.handle(self.now, MeshInput::Received { link: LINK, from, octets });
                        sent = true;
                    }
                    delivered += usize::from(matches!(output, MeshOutput::Deliver { .. }));
                }
            }
            if !sent {
                return delivered;
            }
        }
    }

    /// Messages that the second node has received, and those that it has refused.
    fn received(&self) -> (u64, u64) {
        let counters = self.nodes[1].counters();
        let refused = counters.forged + counters.replayed + counters.unknown_index;
        (counters.received, refused + counters.unsigned + counters.signatures_limited)
    }

    /// Nanoseconds of a message for all: made, sent, received and delivered.
    fn broadcast_ns(&mut self) -> f64 {
        let messages = self.messages;
        nanoseconds_each(messages, || {
            let mut delivered = 0;
            for _ in 0..messages {
                self.now += PAUSE;
                self.nodes[0]
                    .handle(self.now, MeshInput::Broadcast { from: None, packet: &PACKET });
                delivered += self.exchange();
            }
            assert_eq!(delivered, messages, "a message was not accepted");
        })
    }

    /// Nanoseconds of a message for one neighbour: LABEL UNKNOWN, the shortest.
    fn neighbour_ns(&mut self) -> f64 {
        let (label, from) = (Label(99), address(1));
        let (before, refused) = self.received();
        let nanoseconds = nanoseconds_each(MESSAGES, || {
            for _ in 0..MESSAGES {
                self.now += PAUSE;
                let input = MeshInput::UnknownLabel { link: LINK, from, label };
                self.nodes[0].handle(self.now, input);
                self.exchange();
            }
        });
        let count = u64::try_from(MESSAGES).unwrap_or(u64::MAX);
        assert_eq!(self.received(), (before + count, refused), "a message was not accepted");
        nanoseconds
    }

    /// Octets of the two kinds of messages.
    fn lengths(&mut self) -> [f64; 2] {
        let mut length = |input: MeshInput<'_>| {
            self.now += PAUSE;
            self.nodes[0].handle(self.now, input);
            self.exchange();
            u32::try_from(self.octets).map_or(f64::INFINITY, f64::from)
        };
        let (label, from) = (Label(99), address(1));
        [
            length(MeshInput::Broadcast { from: None, packet: &PACKET }),
            length(MeshInput::UnknownLabel { link: LINK, from, label }),
        ]
    }
}

/// What a node of a mesh believes, by the word of its description.
fn trust(word: &str, number: usize) -> Result<MeshTrust, String> {
    if word == "open" {
        return Ok(MeshTrust::Open);
    }
    if word == "psk" {
        let keys = MeshKeys::parse(&"5a".repeat(32)).map_err(|error| error.to_string())?;
        return Ok(MeshTrust::Psk(keys));
    }
    let key = |octet: usize| {
        let octet = u8::try_from(octet).unwrap_or(u8::MAX);
        MeshNodeKey::of_seed([octet; 32]).ok_or("a seed is no key")
    };
    let (own, authority) = (key(number + 1)?, key(100)?);
    let certificate = authority.admit(&own.public()).ok_or("the authority does not sign")?;
    let members = MeshMembers { authorities: vec![authority.public()], ..MeshMembers::default() };
    Ok(MeshTrust::Pki(Box::new((own.with_certificate(certificate), members))))
}

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let of = |word, messages| Neighbours::new(messages, move |number| trust(word, number));
    let mut open = of("open", MESSAGES)?;
    let mut psk = of("psk", MESSAGES)?;
    let mut pki = of("pki", SIGNED_MESSAGES)?;
    for (nodes, keys) in [
        (&mut open, ["broadcast_open_octets", "neighbour_open_octets"]),
        (&mut psk, ["broadcast_psk_octets", "neighbour_psk_octets"]),
        (&mut pki, ["broadcast_pki_octets", "neighbour_pki_octets"]),
    ] {
        for (key, octets) in keys.into_iter().zip(nodes.lengths()) {
            bench.sample(key, "octets", octets);
        }
    }
    let (open, psk, pki) = (RefCell::new(open), RefCell::new(psk), RefCell::new(pki));
    bench.interleave(vec![
        Contestant::new("broadcast_open_ns", "ns", || open.borrow_mut().broadcast_ns()),
        Contestant::new("broadcast_psk_ns", "ns", || psk.borrow_mut().broadcast_ns()),
        Contestant::new("broadcast_pki_ns", "ns", || pki.borrow_mut().broadcast_ns()),
        Contestant::new("neighbour_open_ns", "ns", || open.borrow_mut().neighbour_ns()),
        Contestant::new("neighbour_psk_ns", "ns", || psk.borrow_mut().neighbour_ns()),
        Contestant::new("neighbour_pki_ns", "ns", || pki.borrow_mut().neighbour_ns()),
    ]);
    bench.difference("message_mac_ns", "broadcast_psk_ns", "broadcast_open_ns");
    bench.note(
        "trust: processor time of a message at its sender and its receiver together, and its octets:          a broadcast of 60 octets, and LABEL UNKNOWN for one neighbour; in psk both have a MAC, in          pki the broadcast has two signatures and the other a MAC; message_mac_ns: what psk adds to          the broadcast; no bound",
    );
    Ok(())
}
