//! A member at work: signs with its key, checks signatures of members, and shares a key with each
//! neighbour.

use super::curve;
use super::hmac::Hmac;
use super::member::{
    MeshCertificate, MeshMembers, MeshNodeKey, MeshPublicKey, SIGNATURE_LEN, sign,
};
use super::{MESH_KEY_LEN, Verdict};
use crate::identity::NodeId;
use crate::layout::{SignatureHeader, SignatureHeaderFields};
use core::fmt;
use core::time::Duration;
use ring::signature::Ed25519KeyPair;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Octets of a signature with the key that made it and its certificate.
pub(crate) const SIGNATURE_BLOCK_LEN: usize =
    SignatureHeader::LEN + MESH_KEY_LEN + 2 * SIGNATURE_LEN;

/// Octets of these that precede the signature, and that it covers.
const SIGNED_LEN: usize = SIGNATURE_BLOCK_LEN - SIGNATURE_LEN;

/// Precedes the keys of two neighbours in what their shared key is derived from.
const AGREEMENT: &[u8] = b"gatewright mesh 1: neighbours";

/// Members whose certificates are known to be good, and neighbours with a shared key, at the most.
const KNOWN_MAX: usize = 1_024;

/// Signatures checked in a second at the most: some tenth of a core.
const CHECKS_PER_SECOND: u32 = 4_000;

/// What a signature is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SignatureScope {
    /// What its origin has said, passed on by others.
    Origin,
    /// A message between neighbours.
    Neighbour,
}

impl SignatureScope {
    const fn number(self) -> u8 {
        match self {
            Self::Origin => 16,
            Self::Neighbour => 17,
        }
    }

    /// Precedes what is signed.
    const fn purpose(self) -> &'static [u8] {
        match self {
            Self::Origin => b"gatewright mesh 1: origin",
            Self::Neighbour => b"gatewright mesh 1: neighbour",
        }
    }
}

/// The own key of a node, and the keys that it has met.
#[derive(Clone)]
pub(crate) struct Membership {
    pair: Arc<Ed25519KeyPair>,
    public: MeshPublicKey,
    certificate: MeshCertificate,
    scalar: [u8; MESH_KEY_LEN],
    members: MeshMembers,
    admitted: BTreeSet<(MeshPublicKey, [u8; SIGNATURE_LEN])>,
    shared: BTreeMap<NodeId, Hmac>,
    second: Duration,
    checks: u32,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the membership of {}", self.public)
    }
}

impl Membership {
    /// The membership of a node; `None` if its key is refused, which no key is.
    pub(super) fn new(key: &MeshNodeKey, members: &MeshMembers) -> Option<Self> {
        Some(Self {
            pair: Arc::new(Ed25519KeyPair::from_seed_unchecked(&key.seed).ok()?),
            public: key.public(),
            certificate: key.certificate.unwrap_or(MeshCertificate::NONE),
            scalar: curve::scalar(&key.seed),
            members: members.clone(),
            admitted: BTreeSet::new(),
            shared: BTreeMap::new(),
            second: Duration::ZERO,
            checks: 0,
        })
    }

    /// Signs octets, and gives the signature with the key and its certificate.
    pub(crate) fn sign(&self, scope: SignatureScope, octets: &[&[u8]]) -> Vec<u8> {
        let mut block = SignatureHeaderFields { scope: scope.number() }.emit().to_vec();
        block.extend(self.public.0);
        block.extend(self.certificate.0);
        let signature = sign(&self.pair, &signed(scope, &block, octets));
        block.extend(signature.unwrap_or([0; SIGNATURE_LEN]));
        block
    }

    /// Checks that a node has signed octets, and may take part: its key.
    pub(super) fn check(
        &mut self,
        now: Duration,
        node: NodeId,
        scope: SignatureScope,
        octets: &[&[u8]],
        block: &[u8],
    ) -> Result<MeshPublicKey, Verdict> {
        let read = || {
            let (head, rest) = SignatureHeader::split(block).ok()?;
            let (public, rest) = head.public_key(rest).ok()?;
            let (certificate, rest) = head.certificate(rest).ok()?;
            let (signature, _) = head.signature(rest).ok()?;
            let public = MeshPublicKey(public.try_into().ok()?);
            let certificate: [u8; SIGNATURE_LEN] = certificate.try_into().ok()?;
            let signature: [u8; SIGNATURE_LEN] = signature.try_into().ok()?;
            let is_its = head.scope() == scope.number() && public.node() == node;
            is_its.then_some((public, certificate, signature))
        };
        let (public, certificate, signature) = read().ok_or(Verdict::Forged)?;
        if !self.is_admitted(now, public, certificate)? {
            return Err(Verdict::Forged);
        }
        self.count(now)?;
        let (head, _) = block.split_at_checked(SIGNED_LEN).unwrap_or_default();
        if public.has_signed(&signed(scope, head, octets), &signature) {
            Ok(public)
        } else {
            Err(Verdict::Forged)
        }
    }

    /// Whether a key may take part; a good certificate is checked once.
    fn is_admitted(
        &mut self,
        now: Duration,
        public: MeshPublicKey,
        certificate: [u8; SIGNATURE_LEN],
    ) -> Result<bool, Verdict> {
        if self.admitted.contains(&(public, certificate)) {
            return Ok(true);
        }
        if !self.members.listed.contains(&public) {
            self.count(now)?;
        }
        if !self.members.has(&public, &MeshCertificate(certificate)) {
            return Ok(false);
        }
        if self.admitted.len() >= KNOWN_MAX {
            self.admitted.pop_first();
        }
        self.admitted.insert((public, certificate));
        Ok(true)
    }

    /// Counts a signature that is to be checked, if it may be.
    fn count(&mut self, now: Duration) -> Result<(), Verdict> {
        if now.saturating_sub(self.second) >= Duration::from_secs(1) {
            (self.second, self.checks) = (now, 0);
        }
        self.checks = self.checks.saturating_add(1);
        if self.checks > CHECKS_PER_SECOND { Err(Verdict::Limited) } else { Ok(()) }
    }

    /// Whether half of the checks in this second are spent.
    pub(super) fn is_scarce(&self, now: Duration) -> bool {
        now.saturating_sub(self.second) < Duration::from_secs(1)
            && self.checks >= CHECKS_PER_SECOND / 2
    }

    /// Learns a neighbour's key, and derives the one that both share.
    pub(super) fn meet(&mut self, public: MeshPublicKey) {
        let node = public.node();
        if self.shared.contains_key(&node) {
            return;
        }
        let coordinate = curve::coordinate(&public.0);
        let secret = coordinate.and_then(|coordinate| curve::agree(&self.scalar, &coordinate));
        let Some(secret) = secret else { return };
        let (low, high) = (self.public.min(public), self.public.max(public));
        let key = Hmac::new(&secret).mac(&[AGREEMENT, &low.0, &high.0]);
        if self.shared.len() >= KNOWN_MAX {
            self.shared.pop_first();
        }
        self.shared.insert(node, Hmac::new(&key));
    }

    /// The key that is shared with a neighbour, if it has been met.
    pub(super) fn shared(&self, node: NodeId) -> Option<&Hmac> {
        self.shared.get(&node)
    }

    /// The node that this is.
    pub(super) fn node(&self) -> NodeId {
        self.public.node()
    }
}

/// What is signed: the purpose, scope, key and certificate, and the octets.
fn signed(scope: SignatureScope, head: &[u8], octets: &[&[u8]]) -> Vec<u8> {
    [scope.purpose(), head, &octets.concat()].concat()
}
