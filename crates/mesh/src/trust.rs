//! Trust in a mesh: who may take part, and how neighbours prove it to each other.
//!
//! With [`MeshTrust::Psk`] every message ends with a MAC of a key that all nodes have, in the way of
//! Babel (RFC 8967): an index that each start of a node draws, a counter, and a challenge to a
//! neighbour whose index is not known. So nothing that was recorded is accepted later, without
//! clocks and without stored state.
//!
//! With [`MeshTrust::Pki`] each node has a key of its own. A message for one neighbour ends with a MAC
//! of a key that only the two share, any other with a signature; what nodes pass on for others has
//! its origin's signature, too.

mod allowance;
mod curve;
mod hex;
mod hmac;
mod member;
mod membership;

use crate::bridge::BridgePort;
use crate::edge::Adjacency;
use crate::identity::NodeId;
use crate::layout::{AuthenticationHeader, AuthenticationHeaderFields};
use allowance::{Allowance, ForeignIndices};
use core::fmt;
use core::time::Duration;
use gatewright_packet::{LinkAddress, LinkIndex};
use hex::octets_of;
use hmac::Hmac;
pub use member::{
    MESH_AUTHORITIES_MAX, MESH_MEMBERS_MAX, MeshCertificate, MeshMembers, MeshNodeKey,
    MeshPublicKey,
};
pub(crate) use membership::{Membership, SIGNATURE_BLOCK_LEN, SignatureScope};
use std::collections::BTreeMap;

/// Octets of a key.
pub const MESH_KEY_LEN: usize = 32;

/// Keys of a mesh at the most: messages are accepted by each, so that keys can be exchanged.
pub const MESH_KEYS_MAX: usize = 4;

/// Octets that authentication by a key of all nodes adds to a message.
pub const AUTHENTICATION_LEN: usize = AuthenticationHeader::LEN + MAC_LEN;

/// HMAC-SHA-256 truncated to 128 bits, with a key of all nodes.
const HMAC_OF_ALL: u8 = 1;
/// The same with a key of two neighbours.
const HMAC_OF_TWO: u8 = 2;
/// Ed25519, with the sender's key.
const SIGNATURE: u8 = 3;
const MAC_LEN: usize = 16;

/// Neighbours whose indices are known at the most: as many as there can be neighbours.
const PEERS_MAX: usize = 512;

/// Time between two challenges to one neighbour at least (RFC 8967 §4.3.1.1).
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(300);

/// How long the answer to a challenge is accepted (RFC 8967 §4.3.1.2).
const CHALLENGE_LIFE: Duration = Duration::from_secs(30);

/// Challenges sent in a second at the most; as many answers to known indices, and as many to others.
const CHALLENGES_PER_SECOND: u32 = 200;

/// Answers to one neighbour's challenges with unknown indices in a second at the most: a neighbour sends a
/// challenge each [`CHALLENGE_INTERVAL`], so more are recorded ones.
const UNKNOWN_ANSWERS_PER_SECOND: u32 = 20;

/// Counters behind the newest that may still arrive: a word.
const WINDOW: u32 = 64;

/// Who may take part in a mesh.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum MeshTrust {
    /// Everybody who can send on a link.
    #[default]
    Open,
    /// Every node that has a key.
    Psk(MeshKeys),
    /// Every node whose own key is admitted; the node's identity follows from its key.
    Pki(Box<(MeshNodeKey, MeshMembers)>),
}

/// Keys that all nodes of a mesh have: the first authenticates what a node sends, each what it
/// receives.
#[derive(Clone, Eq, PartialEq)]
pub struct MeshKeys(Vec<[u8; MESH_KEY_LEN]>);

impl fmt::Debug for MeshKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

/// Why a text has no keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MeshKeyError {
    /// There is none.
    #[error(
        "no key: write one of {MESH_KEY_LEN} octets as hexadecimal digits, as `openssl rand -hex 32` makes it"
    )]
    None,
    /// There are too many.
    #[error("more than {0} keys")]
    TooMany(usize),
    /// A line is no key.
    #[error(
        "line {0} is not {MESH_KEY_LEN} octets in hexadecimal digits, as `openssl rand -hex 32` makes them"
    )]
    Line(usize),
    /// A line is no certificate of the key before it.
    #[error(
        "line {0} is not the one certificate of the key before it: `gatewright mesh key admit` makes it"
    )]
    Certificate(usize),
    /// A line admits nobody and revokes nobody.
    #[error(
        "line {0} is not `authority`, `member` or `revoked` and a public key, as `gatewright mesh key show` prints it"
    )]
    Member(usize),
    /// There is neither an authority nor a member.
    #[error("nobody is admitted: write `authority` or `member` and a public key on a line")]
    Nobody,
}

impl MeshKeys {
    /// Reads keys from a text: one a line; empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    ///
    /// [`MeshKeyError`], which never quotes a key.
    pub fn parse(text: &str) -> Result<Self, MeshKeyError> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut keys = Vec::new();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            if keys.len() >= MESH_KEYS_MAX {
                return Err(MeshKeyError::TooMany(MESH_KEYS_MAX));
            }
            keys.push(octets_of(line).ok_or(MeshKeyError::Line(number))?);
        }
        if keys.is_empty() { Err(MeshKeyError::None) } else { Ok(Self(keys)) }
    }
}

/// Where a message arrives.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Medium {
    /// At a link.
    Link(LinkIndex),
    /// At a bridge port.
    Port(BridgePort),
}

/// The sender of messages that arrive at one medium.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct HeardPeer {
    pub(crate) medium: Medium,
    pub(crate) node: NodeId,
}

impl From<Adjacency> for HeardPeer {
    fn from(Adjacency { link, node }: Adjacency) -> Self {
        Self { medium: Medium::Link(link), node }
    }
}

/// What is authenticated beside a message: who sends it, and to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageEnds {
    /// Link-layer address of the sender.
    pub(crate) from: LinkAddress,
    /// The neighbour that it is for; `None` if it is for all.
    pub(crate) to: Option<NodeId>,
}

/// What a message is to authentication.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MessageRole {
    /// CHALLENGE.
    Challenge,
    /// CHALLENGE REPLY with its nonce.
    Reply(u64),
    /// Any other.
    Ordinary,
}

/// Verdict on a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// It was sent by a node with a key since it was last asked.
    Accepted,
    /// It has no MAC, or a wrong one.
    Forged,
    /// Its counter is not new, or it answers no challenge.
    Replayed,
    /// Its index or its sender's key is not known: if there is a nonce, a challenge with it is to be
    /// sent.
    Unknown(Option<u64>),
    /// Too many signatures were checked in this second.
    Limited,
}

/// What is known of a neighbour's counters.
#[derive(Clone, Debug, Default)]
struct PeerCounters {
    /// Its index, when it has answered a challenge.
    index: Option<u64>,
    /// Other indices with which it has challenged this node.
    foreign: ForeignIndices,
    /// Answers to these challenges.
    answers: Allowance,
    newest: u32,
    /// A bit for each counter up to the newest.
    seen: u64,
    /// Nonce of the challenge that waits for its answer.
    nonce: Option<u64>,
    /// When the last challenge was sent, answered or not: who sends again what was recorded draws no
    /// more of them.
    challenged_at: Option<Duration>,
    heard_at: Duration,
}

impl PeerCounters {
    /// Whether a counter of the known index could still be taken.
    fn is_new(&self, counter: u32) -> bool {
        let behind = self.newest.saturating_sub(counter);
        counter > self.newest || (behind < WINDOW && self.seen >> behind & 1 == 0)
    }

    /// Whether a challenge was sent just now.
    fn is_challenged(&self, now: Duration) -> bool {
        self.challenged_at.is_some_and(|at| now.saturating_sub(at) < CHALLENGE_INTERVAL)
    }

    /// Whether this is the answer to the challenge that waits for it.
    fn awaits(&self, now: Duration, nonce: u64) -> bool {
        let since = self.challenged_at.map_or(Duration::MAX, |at| now.saturating_sub(at));
        self.nonce == Some(nonce) && since <= CHALLENGE_LIFE
    }

    /// Whether a counter of the known index is new (RFC 9467: those that were overtaken may be).
    fn take(&mut self, counter: u32) -> bool {
        if counter > self.newest {
            let ahead = counter - self.newest;
            self.seen = if ahead < WINDOW { self.seen << ahead } else { 0 } | 1;
            self.newest = counter;
            return true;
        }
        let behind = self.newest - counter;
        if behind >= WINDOW {
            return false;
        }
        let new = self.seen >> behind & 1 == 0;
        self.seen |= 1 << behind;
        new
    }
}

/// How messages are authenticated.
#[derive(Clone, Debug)]
enum Scheme {
    /// By keys that all nodes have.
    OfAll(Vec<Hmac>),
    /// By each node's own key.
    OfMembers(Box<Membership>),
}

/// Authentication of one node.
#[derive(Clone, Debug)]
pub(crate) struct Authentication {
    scheme: Scheme,
    secret: Hmac,
    seed: u64,
    drawn: u64,
    index: u64,
    counter: u32,
    peers: BTreeMap<HeardPeer, PeerCounters>,
    challenges: Allowance,
    /// Answers to challenges with known indices, and to others.
    known_answers: Allowance,
    unknown_answers: Allowance,
}

impl Authentication {
    /// Authentication as a mesh wants it, `None` in an open one; `seed` is another one at each start.
    pub(crate) fn new(trust: &MeshTrust, seed: u64) -> Option<Self> {
        // A key for each purpose, so that no MAC tells anything of a nonce.
        let derive = |key: &[u8; MESH_KEY_LEN], purpose: &[u8]| {
            Hmac::new(&Hmac::new(key).mac(&[b"gatewright mesh 1: ", purpose]))
        };
        let (scheme, first) = match trust {
            MeshTrust::Open => return None,
            MeshTrust::Psk(MeshKeys(keys)) => {
                let messages = keys.iter().map(|key| derive(key, b"messages")).collect();
                (Scheme::OfAll(messages), keys.first().copied().unwrap_or_default())
            }
            MeshTrust::Pki(own) => {
                let (key, members) = own.as_ref();
                (Scheme::OfMembers(Box::new(Membership::new(key, members)?)), key.seed)
            }
        };
        let mut this = Self {
            scheme,
            secret: derive(&first, b"nonces"),
            seed,
            drawn: 0,
            index: 0,
            counter: 0,
            peers: BTreeMap::new(),
            challenges: Allowance::default(),
            known_answers: Allowance::default(),
            unknown_answers: Allowance::default(),
        };
        this.index = this.draw();
        Some(this)
    }

    /// The node's membership, if nodes have keys of their own.
    pub(crate) fn membership(&self) -> Option<&Membership> {
        match &self.scheme {
            Scheme::OfAll(_) => None,
            Scheme::OfMembers(membership) => Some(membership),
        }
    }

    /// The identity that follows from the node's own key, if it has one.
    pub(crate) fn node(&self) -> Option<NodeId> {
        self.membership().map(Membership::node)
    }

    /// Octets that are added to a message at the most, its origin's signature among them.
    pub(crate) fn added_max(&self) -> usize {
        match self.scheme {
            Scheme::OfAll(_) => AUTHENTICATION_LEN,
            Scheme::OfMembers(_) => AuthenticationHeader::LEN + 2 * SIGNATURE_BLOCK_LEN,
        }
    }

    /// A number that nobody without a key can tell, another one each time.
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        let mac = self.secret.mac(&[&self.seed.to_be_bytes(), &self.drawn.to_be_bytes()]);
        mac.first_chunk().copied().map_or(0, u64::from_be_bytes)
    }

    /// Appends index, counter and MAC or signature to a message.
    pub(crate) fn seal(&mut self, ends: MessageEnds, role: MessageRole, octets: &mut Vec<u8>) {
        // RFC 8967 §4.1: when the counter is at its end, there is a new index.
        if self.counter == u32::MAX {
            (self.counter, self.index) = (0, self.draw());
        }
        self.counter += 1;
        // A neighbour that is challenged, or has challenged, may not know the own key yet.
        let shared = match (&self.scheme, ends.to) {
            (Scheme::OfMembers(own), Some(to)) if role == MessageRole::Ordinary => own.shared(to),
            _ => None,
        };
        let algorithm = match (&self.scheme, shared) {
            (Scheme::OfAll(_), _) => HMAC_OF_ALL,
            (Scheme::OfMembers(_), Some(_)) => HMAC_OF_TWO,
            (Scheme::OfMembers(_), None) => SIGNATURE,
        };
        let head = AuthenticationHeaderFields {
            algorithm,
            unicast: ends.to.is_some(),
            index: self.index,
            counter: self.counter,
        };
        octets.extend(head.emit());
        let proof = match (&self.scheme, shared) {
            (Scheme::OfAll(keys), _) => {
                keys.first().map(|key| mac(key, ends, octets).to_vec()).unwrap_or_default()
            }
            (Scheme::OfMembers(_), Some(key)) => mac(key, ends, octets).to_vec(),
            (Scheme::OfMembers(own), None) => {
                own.sign(SignatureScope::Neighbour, &[&ends.octets(), octets])
            }
        };
        octets.extend(proof);
    }

    /// Judges a message of `message` octets that `own` has received with `trailer` behind it.
    pub(crate) fn judge(
        &mut self,
        now: Duration,
        at: HeardPeer,
        (from, own): (LinkAddress, NodeId),
        (message, trailer): (&[u8], &[u8]),
        role: MessageRole,
    ) -> Verdict {
        if let Some(verdict) = self.judge_unsigned(now, at, trailer, role) {
            return verdict;
        }
        let head = match self.verified((now, at), from, own, (message, trailer)) {
            Ok(head) => head,
            Err(verdict) => return verdict,
        };
        let known = self.peers.get_mut(&at);
        match (role, known) {
            (MessageRole::Reply(nonce), Some(peer)) if peer.awaits(now, nonce) => {
                peer.nonce = None;
                peer.heard_at = now;
                (peer.index, peer.newest) = (Some(head.index), head.counter);
                // What was sent before it was asked for is not accepted.
                peer.seen = u64::MAX;
                Verdict::Accepted
            }
            (MessageRole::Reply(_), _) => Verdict::Replayed,
            (_, Some(peer)) if peer.index == Some(head.index) => {
                peer.heard_at = now;
                if peer.take(head.counter) { Verdict::Accepted } else { Verdict::Replayed }
            }
            (MessageRole::Challenge, _) => {
                let peer = self.meet(now, at);
                if !peer.foreign.take(now, head.index, head.counter) {
                    return Verdict::Replayed;
                }
                Verdict::Unknown(self.challenge(now, at))
            }
            _ => Verdict::Unknown(self.challenge(now, at)),
        }
    }

    /// The verdict on a signed message that does not depend on its signature, while checks of signatures are
    /// scarce: recorded messages shall not spend the rest.
    fn judge_unsigned(
        &self,
        now: Duration,
        at: HeardPeer,
        trailer: &[u8],
        role: MessageRole,
    ) -> Option<Verdict> {
        let Scheme::OfMembers(membership) = &self.scheme else { return None };
        if !membership.is_scarce(now) {
            return None;
        }
        let head = AuthenticationHeader::split(trailer).ok()?.0.fields();
        let peer = self.peers.get(&at).filter(|_| head.algorithm == SIGNATURE)?;
        let is_old = match role {
            MessageRole::Reply(nonce) => !peer.awaits(now, nonce),
            _ if peer.index == Some(head.index) => !peer.is_new(head.counter),
            MessageRole::Challenge => !peer.foreign.is_new(head.index, head.counter),
            MessageRole::Ordinary => {
                // It could bring nothing but the sender's key.
                let is_met = membership.shared(at.node).is_some();
                return (is_met && peer.is_challenged(now)).then_some(Verdict::Unknown(None));
            }
        };
        is_old.then_some(Verdict::Replayed)
    }

    /// The trailer of a message whose MAC or signature is right.
    fn verified(
        &mut self,
        (now, at): (Duration, HeardPeer),
        from: LinkAddress,
        own: NodeId,
        (message, trailer): (&[u8], &[u8]),
    ) -> Result<AuthenticationHeaderFields, Verdict> {
        let (head, rest) = AuthenticationHeader::split(trailer).map_err(|_| Verdict::Forged)?;
        let fields = head.fields();
        let ends = MessageEnds { from, to: fields.unicast.then_some(own) };
        let head = trailer.get(..AuthenticationHeader::LEN).unwrap_or_default();
        let covered = [message, head].concat();
        let found = || rest.first_chunk::<MAC_LEN>().ok_or(Verdict::Forged);
        let is_right = match (&mut self.scheme, fields.algorithm) {
            (Scheme::OfAll(keys), HMAC_OF_ALL) => {
                let found = found()?;
                keys.iter().any(|key| is_same(&mac(key, ends, &covered), found))
            }
            (Scheme::OfMembers(membership), HMAC_OF_TWO) if fields.unicast => {
                let key = membership.shared(at.node).ok_or(Verdict::Unknown(None))?;
                is_same(&mac(key, ends, &covered), found()?)
            }
            (Scheme::OfMembers(membership), SIGNATURE) => {
                let (scope, signed) = (SignatureScope::Neighbour, [&ends.octets()[..], &covered]);
                let public = membership.check(now, at.node, scope, &signed, rest)?;
                membership.meet(public);
                true
            }
            _ => false,
        };
        if is_right { Ok(fields) } else { Err(Verdict::Forged) }
    }

    /// Judges what an origin has said, by its signature.
    pub(crate) fn judge_origin(
        &mut self,
        now: Duration,
        origin: NodeId,
        said: &[u8],
        block: &[u8],
    ) -> Verdict {
        let Scheme::OfMembers(membership) = &mut self.scheme else { return Verdict::Accepted };
        match membership.check(now, origin, SignatureScope::Origin, &[said], block) {
            Ok(_) => Verdict::Accepted,
            Err(verdict) => verdict,
        }
    }

    /// What is known of a neighbour, which may be new.
    fn meet(&mut self, now: Duration, at: HeardPeer) -> &mut PeerCounters {
        if !self.peers.contains_key(&at) {
            self.make_room();
        }
        let unknown = || PeerCounters { heard_at: now, ..PeerCounters::default() };
        self.peers.entry(at).or_insert_with(unknown)
    }

    /// The nonce of a challenge to a neighbour, unless one was sent just now.
    fn challenge(&mut self, now: Duration, at: HeardPeer) -> Option<u64> {
        if self.meet(now, at).is_challenged(now)
            || !self.challenges.take(now, CHALLENGES_PER_SECOND)
        {
            return None;
        }
        let nonce = self.draw();
        if let Some(peer) = self.peers.get_mut(&at) {
            (peer.nonce, peer.challenged_at) = (Some(nonce), Some(now));
        }
        Some(nonce)
    }

    /// Forgets a neighbour when the table is full: one that has never answered, else the one that
    /// was silent longest.
    fn make_room(&mut self) {
        if self.peers.len() >= PEERS_MAX {
            let oldest =
                self.peers.iter().min_by_key(|(_, peer)| (peer.index.is_some(), peer.heard_at));
            if let Some(oldest) = oldest.map(|(&at, _)| at) {
                self.peers.remove(&oldest);
            }
        }
    }

    /// Whether a challenge with this verdict is answered now. What was recorded can only spend what is kept
    /// for unknown indices.
    pub(crate) fn may_answer(&mut self, now: Duration, at: HeardPeer, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Accepted => self.known_answers.take(now, CHALLENGES_PER_SECOND),
            Verdict::Unknown(_) => {
                self.meet(now, at).answers.take(now, UNKNOWN_ANSWERS_PER_SECOND)
                    && self.unknown_answers.take(now, CHALLENGES_PER_SECOND)
            }
            Verdict::Forged | Verdict::Replayed | Verdict::Limited => false,
        }
    }
}

/// Octets of a message's ends.
const ENDS_LEN: usize = 1 + LinkAddress::WIDTH_MAX + size_of::<u64>();

impl MessageEnds {
    /// The sender's address with its width, and the receiver, as they are authenticated.
    fn octets(self) -> [u8; ENDS_LEN] {
        let mut octets = [0; ENDS_LEN];
        let width = u8::try_from(self.from.width()).unwrap_or(0);
        if let Some((first, rest)) = octets.split_first_mut() {
            *first = width;
            let (address, to) = rest.split_at_mut(LinkAddress::WIDTH_MAX);
            address.iter_mut().zip(self.from.octets()).for_each(|(to, from)| *to = *from);
            let node = self.to.map_or(0, |to| to.0).to_be_bytes();
            to.iter_mut().zip(node).for_each(|(to, from)| *to = from);
        }
        octets
    }
}

/// The MAC of a message with its ends.
fn mac(key: &Hmac, ends: MessageEnds, octets: &[u8]) -> [u8; MAC_LEN] {
    let whole = key.mac(&[&ends.octets(), octets]);
    whole.first_chunk().copied().unwrap_or_default()
}

/// Whether two MACs are the same, in a time that does not depend on where they differ.
fn is_same(a: &[u8; MAC_LEN], b: &[u8; MAC_LEN]) -> bool {
    core::hint::black_box(a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    fn keys(text: &str) -> MeshKeys {
        MeshKeys::parse(text).unwrap()
    }

    fn of_all(text: &str, seed: u64) -> Authentication {
        Authentication::new(&MeshTrust::Psk(keys(text)), seed).unwrap()
    }

    fn address(last: u8) -> LinkAddress {
        LinkAddress::ethernet([2, 0, 0, 0, 0, last])
    }

    fn judge(b: &mut Authentication, octets: &[u8], len: usize, role: MessageRole) -> Verdict {
        let at = HeardPeer { medium: Medium::Link(LinkIndex(0)), node: A };
        b.judge(Duration::from_secs(1), at, (address(1), B), octets.split_at(len), role)
    }

    #[test]
    fn keys_are_lines_of_hexadecimal_digits() {
        let two = format!("# the new one\n{HEX}\n\n  {}\n", HEX.to_uppercase());
        assert_eq!(format!("{:?}", keys(&two)), "2 keys");
        assert_eq!(keys(&two).0[0], core::array::from_fn(|n| u8::try_from(n).unwrap()));
        assert_eq!(MeshKeys::parse("# none\n"), Err(MeshKeyError::None));
        assert_eq!(MeshKeys::parse(&format!("{HEX}\n{HEX}0\n")), Err(MeshKeyError::Line(2)));
        assert_eq!(MeshKeys::parse("correct horse"), Err(MeshKeyError::Line(1)));
        assert_eq!(
            MeshKeys::parse(&format!("{HEX}\n").repeat(5)),
            Err(MeshKeyError::TooMany(MESH_KEYS_MAX))
        );
    }

    /// Sender and receiver as the page has them: challenge, reply, then each counter once.
    #[test]
    fn an_index_is_accepted_when_it_answers_a_challenge() {
        let (mut a, mut b) = (of_all(HEX, 1), of_all(HEX, 2));
        let ends = MessageEnds { from: address(1), to: Some(B) };
        let message = |a: &mut Authentication| {
            let mut octets = b"message".to_vec();
            a.seal(ends, MessageRole::Ordinary, &mut octets);
            octets
        };
        let early = message(&mut a);
        assert_eq!(early.len(), 7 + AUTHENTICATION_LEN);
        let Verdict::Unknown(Some(nonce)) = judge(&mut b, &early, 7, MessageRole::Ordinary) else {
            panic!("no challenge")
        };
        // One challenge each 300 ms.
        assert_eq!(judge(&mut b, &early, 7, MessageRole::Ordinary), Verdict::Unknown(None));
        let reply = message(&mut a);
        assert_eq!(judge(&mut b, &reply, 7, MessageRole::Reply(nonce ^ 1)), Verdict::Replayed);
        assert_eq!(judge(&mut b, &reply, 7, MessageRole::Reply(nonce)), Verdict::Accepted);
        assert_eq!(judge(&mut b, &reply, 7, MessageRole::Reply(nonce)), Verdict::Replayed);
        let (overtaken, next) = (message(&mut a), message(&mut a));
        for (octets, verdict) in [
            (&next, Verdict::Accepted),
            (&overtaken, Verdict::Accepted),
            (&overtaken, Verdict::Replayed),
            (&next, Verdict::Replayed),
            (&reply, Verdict::Replayed),
        ] {
            assert_eq!(judge(&mut b, octets, 7, MessageRole::Ordinary), verdict);
        }
    }

    #[test]
    fn no_octet_can_be_changed_and_no_end() {
        let (mut a, mut b) = (of_all(HEX, 1), of_all(HEX, 2));
        let mut octets = b"message".to_vec();
        a.seal(MessageEnds { from: address(1), to: Some(B) }, MessageRole::Ordinary, &mut octets);
        for at in 0..octets.len() {
            // Reserved bits are covered, too.
            let mut changed = octets.clone();
            changed[at] ^= 1;
            let verdict = judge(&mut b, &changed, 7, MessageRole::Ordinary);
            assert_eq!(verdict, Verdict::Forged, "octet {at}");
        }
        for len in 0..octets.len() {
            let verdict = judge(&mut b, &octets[..len], 7.min(len), MessageRole::Ordinary);
            assert_eq!(verdict, Verdict::Forged, "{len} octets");
        }
        let at = HeardPeer { medium: Medium::Link(LinkIndex(0)), node: A };
        let whole = octets.split_at(7);
        for (from, to) in [(address(2), B), (address(1), A), (LinkAddress::NONE, B)] {
            let verdict = b.judge(Duration::ZERO, at, (from, to), whole, MessageRole::Ordinary);
            assert_eq!(verdict, Verdict::Forged);
        }
    }

    /// The new key is added everywhere before it becomes the first anywhere.
    #[test]
    fn keys_are_exchanged_one_node_after_the_other() {
        let other = HEX.replace("1f", "20");
        let mut old = of_all(&format!("{HEX}\n{other}"), 1);
        let mut new = of_all(&format!("{other}\n{HEX}"), 2);
        let mut only = of_all(HEX, 3);
        let mut octets = b"message".to_vec();
        new.seal(MessageEnds { from: address(1), to: Some(B) }, MessageRole::Ordinary, &mut octets);
        let verdict = judge(&mut old, &octets, 7, MessageRole::Ordinary);
        assert!(matches!(verdict, Verdict::Unknown(Some(_))));
        assert_eq!(judge(&mut only, &octets, 7, MessageRole::Ordinary), Verdict::Forged);
    }

    #[test]
    fn a_spent_counter_draws_another_index() {
        let mut a = of_all(HEX, 1);
        let index = a.index;
        a.counter = u32::MAX;
        let ends = MessageEnds { from: address(1), to: None };
        a.seal(ends, MessageRole::Ordinary, &mut Vec::new());
        assert_eq!(a.counter, 1);
        assert_ne!(a.index, index);
    }
}
