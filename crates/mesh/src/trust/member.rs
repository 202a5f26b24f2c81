//! Members of a mesh with keys of their own (`pki`): who they are, and who has admitted them.

use super::hex::{octets_of, write};
use super::{MESH_KEY_LEN, MeshKeyError};
use crate::identity::NodeId;
use core::fmt;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::collections::BTreeSet;

/// Octets of an Ed25519 signature (RFC 8032 §5.1.6).
pub(super) const SIGNATURE_LEN: usize = 64;

/// Authorities of a mesh at the most.
pub const MESH_AUTHORITIES_MAX: usize = 4;

/// Members that are listed, and members that are revoked, at the most.
pub const MESH_MEMBERS_MAX: usize = 256;

/// Precedes the member's key in what an authority signs.
const ADMISSION: &[u8] = b"gatewright mesh 1: member";

/// What begins the second line of a node's file.
const CERTIFICATE: &str = "certificate ";

/// Public key of a node or of an authority (Ed25519, RFC 8032).
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
pub struct MeshPublicKey(pub [u8; MESH_KEY_LEN]);

impl MeshPublicKey {
    /// Reads a key from its hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        octets_of(text).map(Self)
    }

    /// The node that has the key: 46 bits of the key's SHA-256 as the link-layer address of its mesh
    /// interface, locally administered and of one station (IEEE 802 §8.2).
    pub fn node(&self) -> NodeId {
        const HASH: u64 = 0xfcff_ffff_ffff;
        const LOCAL: u64 = 0x0200_0000_0000;
        NodeId(NodeId::of_key(&self.0).0 & HASH | LOCAL)
    }

    /// Whether a signature of `octets` is this key's.
    pub(super) fn has_signed(&self, octets: &[u8], signature: &[u8; SIGNATURE_LEN]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(octets, signature).is_ok()
    }
}

impl fmt::Display for MeshPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.0, f)
    }
}

impl fmt::Debug for MeshPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Admission of a member: an authority's signature of its key.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct MeshCertificate(pub(super) [u8; SIGNATURE_LEN]);

impl MeshCertificate {
    /// No certificate: the member must be listed.
    pub(super) const NONE: Self = Self([0; SIGNATURE_LEN]);

    /// Reads a certificate from its hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        octets_of(text).map(Self)
    }

    /// Whether it is an authority's for a member.
    pub fn admits(&self, authority: &MeshPublicKey, member: &MeshPublicKey) -> bool {
        authority.has_signed(&[ADMISSION, &member.0].concat(), &self.0)
    }
}

impl fmt::Display for MeshCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.0, f)
    }
}

impl fmt::Debug for MeshCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a certificate")
    }
}

/// Secret key of a node, with its certificate if an authority has given one; or of an authority.
#[derive(Clone, Eq, PartialEq)]
pub struct MeshNodeKey {
    pub(super) seed: [u8; MESH_KEY_LEN],
    public: MeshPublicKey,
    pub(super) certificate: Option<MeshCertificate>,
}

impl fmt::Debug for MeshNodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key of {}", self.public)
    }
}

impl MeshNodeKey {
    /// The key of a seed; `None` if the system's cryptography refuses it, which it does for none.
    pub fn of_seed(seed: [u8; MESH_KEY_LEN]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
        let public = MeshPublicKey(pair.public_key().as_ref().try_into().ok()?);
        Some(Self { seed, public, certificate: None })
    }

    /// Reads a node's file: a line with 32 octets in hexadecimal digits, and perhaps a line
    /// `certificate` with 64. Empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    ///
    /// [`MeshKeyError`], which never quotes a key.
    pub fn parse(text: &str) -> Result<Self, MeshKeyError> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut found: Option<Self> = None;
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            match (&mut found, line.strip_prefix(CERTIFICATE)) {
                (Some(key), Some(digits)) if key.certificate.is_none() => {
                    let read = MeshCertificate::parse(digits.trim());
                    key.certificate = Some(read.ok_or(MeshKeyError::Certificate(number))?);
                }
                (None, None) => {
                    let key = octets_of(line).and_then(Self::of_seed);
                    found = Some(key.ok_or(MeshKeyError::Line(number))?);
                }
                (Some(_), None) => return Err(MeshKeyError::TooMany(1)),
                _ => return Err(MeshKeyError::Certificate(number)),
            }
        }
        found.ok_or(MeshKeyError::None)
    }

    /// The file that [`Self::parse`] reads.
    pub fn text(&self) -> String {
        let seed = self.seed.map(|octet| format!("{octet:02x}")).concat();
        let certificate = self.certificate.map(|of| format!("{CERTIFICATE}{of}\n"));
        format!("# {}\n{seed}\n{}", self.public, certificate.unwrap_or_default())
    }

    /// The public key.
    pub const fn public(&self) -> MeshPublicKey {
        self.public
    }

    /// The certificate of an authority, if there is one.
    pub const fn certificate(&self) -> Option<MeshCertificate> {
        self.certificate
    }

    /// The same key with a certificate.
    #[must_use]
    pub const fn with_certificate(mut self, certificate: MeshCertificate) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// Admits a member, with this key as the authority's.
    pub fn admit(&self, member: &MeshPublicKey) -> Option<MeshCertificate> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&self.seed).ok()?;
        sign(&pair, &[ADMISSION, &member.0].concat()).map(MeshCertificate)
    }
}

/// Signature of octets.
pub(super) fn sign(pair: &Ed25519KeyPair, octets: &[u8]) -> Option<[u8; SIGNATURE_LEN]> {
    pair.sign(octets).as_ref().try_into().ok()
}

/// Who may take part in a mesh of members: whom an authority has admitted, and who is listed; without
/// those who are revoked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MeshMembers {
    /// Authorities whose certificates admit.
    pub authorities: Vec<MeshPublicKey>,
    /// Members without a certificate.
    pub listed: BTreeSet<MeshPublicKey>,
    /// Who has been admitted, and is not any more.
    pub revoked: BTreeSet<MeshPublicKey>,
}

impl MeshMembers {
    /// Reads the file of members: `authority`, `member` or `revoked` and a public key on each line.
    /// Empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    ///
    /// [`MeshKeyError`] if a line is something else, or nobody is admitted.
    pub fn parse(text: &str) -> Result<Self, MeshKeyError> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut members = Self::default();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let wrong = MeshKeyError::Member(number);
            let (word, key) = line.split_once(char::is_whitespace).ok_or(wrong)?;
            let key = MeshPublicKey::parse(key.trim()).ok_or(wrong)?;
            match word {
                "authority" => members.authorities.push(key),
                "member" => drop(members.listed.insert(key)),
                "revoked" => drop(members.revoked.insert(key)),
                _ => return Err(wrong),
            }
        }
        let sizes = [members.listed.len(), members.revoked.len()];
        if members.authorities.len() > MESH_AUTHORITIES_MAX {
            Err(MeshKeyError::TooMany(MESH_AUTHORITIES_MAX))
        } else if sizes.into_iter().any(|size| size > MESH_MEMBERS_MAX) {
            Err(MeshKeyError::TooMany(MESH_MEMBERS_MAX))
        } else if members.authorities.is_empty() && members.listed.is_empty() {
            Err(MeshKeyError::Nobody)
        } else {
            Ok(members)
        }
    }

    /// Whether the node with a key may take part.
    pub fn has_key(&self, own: &MeshNodeKey) -> bool {
        self.has(&own.public, &own.certificate.unwrap_or(MeshCertificate::NONE))
    }

    /// Whether a node may take part.
    pub fn has(&self, member: &MeshPublicKey, certificate: &MeshCertificate) -> bool {
        !self.revoked.contains(member)
            && (self.listed.contains(member)
                || (*certificate != MeshCertificate::NONE
                    && self.authorities.iter().any(|of| certificate.admits(of, member))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(octet: u8) -> MeshNodeKey {
        MeshNodeKey::of_seed([octet; MESH_KEY_LEN]).unwrap()
    }

    /// RFC 8032 §7.1, test 1.
    #[test]
    fn the_public_key_is_the_one_of_rfc_8032() {
        let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        let key = MeshNodeKey::parse(&format!("# mine\n\n{seed}\n")).unwrap();
        let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        assert_eq!(key.public().to_string(), public);
        assert_eq!(MeshPublicKey::parse(public), Some(key.public()));
        assert_eq!(format!("{key:?}"), format!("the key of {public}"));
        let node = key.public().node().0;
        assert_eq!((node >> 48, node >> 40 & 3), (0, 2), "an address of one station");
    }

    #[test]
    fn a_nodes_file_is_read_as_it_was_written() {
        let (node, authority) = (key(1), key(2));
        let with = node.clone().with_certificate(authority.admit(&node.public()).unwrap());
        for key in [&node, &with] {
            assert_eq!(MeshNodeKey::parse(&key.text()).as_ref(), Ok(key));
        }
        let seed = "01".repeat(32);
        for (text, error) in [
            (String::new(), MeshKeyError::None),
            ("certificate 00".to_owned(), MeshKeyError::Certificate(1)),
            (format!("{seed}\n{seed}"), MeshKeyError::TooMany(1)),
            (format!("{seed}\ncertificate {seed}"), MeshKeyError::Certificate(2)),
            (format!("{}\n{}", with.text(), "certificate 00"), MeshKeyError::Certificate(5)),
            ("correct horse".to_owned(), MeshKeyError::Line(1)),
        ] {
            assert_eq!(MeshNodeKey::parse(&text), Err(error), "{text}");
        }
    }

    #[test]
    fn the_file_of_members_is_read_line_by_line() {
        let [a, b, c] = [1, 2, 3].map(|octet| key(octet).public());
        let text = format!("# ours\nauthority {a}\n\nmember  {b}\nrevoked\t{c}\n");
        let members = MeshMembers::parse(&text).unwrap();
        assert_eq!(members.authorities, [a]);
        assert_eq!((members.listed, members.revoked), (BTreeSet::from([b]), BTreeSet::from([c])));
        let many = (0..=MESH_MEMBERS_MAX).map(|number| format!("member {number:064x}\n"));
        let many = many.collect::<Vec<_>>().concat();
        for (text, error) in [
            (String::new(), MeshKeyError::Nobody),
            (format!("revoked {c}"), MeshKeyError::Nobody),
            (format!("member {a}\n{b}"), MeshKeyError::Member(2)),
            (format!("friend {a}"), MeshKeyError::Member(1)),
            ("member 00".to_owned(), MeshKeyError::Member(1)),
            (format!("authority {a}\n").repeat(5), MeshKeyError::TooMany(4)),
            (many, MeshKeyError::TooMany(MESH_MEMBERS_MAX)),
        ] {
            assert_eq!(MeshMembers::parse(&text), Err(error), "{text}");
        }
    }

    #[test]
    fn members_are_admitted_listed_and_revoked() {
        let (node, authority, stranger) = (key(1), key(2), key(3));
        let member = node.public();
        let certificate = authority.admit(&member).unwrap();
        let by = |keys: &[&MeshNodeKey]| keys.iter().map(|key| key.public()).collect::<Vec<_>>();
        let admitting = MeshMembers { authorities: by(&[&authority]), ..MeshMembers::default() };
        assert!(admitting.has(&member, &certificate));
        assert!(!admitting.has(&stranger.public(), &certificate), "another's certificate");
        assert!(!admitting.has(&member, &MeshCertificate::NONE));
        assert!(!admitting.has(&member, &stranger.admit(&member).unwrap()), "nobody's authority");
        let listing = MeshMembers { listed: BTreeSet::from([member]), ..MeshMembers::default() };
        assert!(listing.has(&member, &MeshCertificate::NONE));
        assert!(!listing.has(&stranger.public(), &MeshCertificate::NONE));
        for mut members in [admitting, listing] {
            members.revoked.insert(member);
            assert!(!members.has(&member, &certificate));
        }
    }
}
