//! Stapled OCSP responses (RFC 6960): what the authority of a server's certificate says of it, sent by
//! the server in its handshake (RFC 6066 §8, RFC 8446 §4.4.2.1).

use super::der::{
    BIT_STRING, BOOLEAN, ENUMERATED, EXPLICIT_0, EXPLICIT_1, EXPLICIT_2, Elements,
    GENERALIZED_TIME, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, element,
    generalized_time, written,
};
use core::time::Duration;
use gatewright_onem2m::Timestamp;
use ring::digest;
use std::sync::Arc;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, SignatureScheme, crypto::ring as algorithms,
};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// Why a response does not vouch for a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StapleError {
    /// There is none, and the description requires one.
    #[error("the server staples no OCSP response to its certificate, and `ocsp_required` is set")]
    Missing,
    /// It is not DER of RFC 6960 §4.2.1, or has a critical extension.
    #[error("it is not an OCSP response (RFC 6960 §4.2.1)")]
    Malformed,
    /// The responder could not answer (RFC 6960 §4.2.1, OCSPResponseStatus).
    #[error("the responder has answered with the error {0} (RFC 6960 §4.2.1)")]
    Unsuccessful(u8),
    /// No certificate at hand has issued this one, so that nothing can be compared.
    #[error("the certificate of the authority is neither in the chain nor among the authorities")]
    NoIssuer,
    /// It is about other certificates.
    #[error("it is about another certificate")]
    Other,
    /// The signature is not the authority's, nor that of a responder that it has appointed.
    #[error("neither the certificate's authority nor a responder of it has signed it")]
    Signature,
    /// Its time is over, or has not begun.
    #[error("it is not valid at this time")]
    Outdated,
    /// The certificate is revoked.
    #[error("the certificate is revoked")]
    Revoked,
    /// The responder does not know the certificate.
    #[error("the responder does not know the certificate")]
    Unknown,
}

/// Difference of clocks that is no fault.
const CLOCKS_DIFFER: Duration = Duration::from_mins(5);
/// How long a response counts that does not say when the next one comes (RFC 6960 §4.2.2.1).
const WITHOUT_NEXT: Duration = Duration::from_hours(24);
/// Octets of a response that are looked at; OpenSSL's have some 2,000.
pub(super) const RESPONSE_OCTETS_MAX: usize = 64 << 10;

/// `id-pkix-ocsp-basic` (RFC 6960 §4.2.1).
const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
/// `id-kp-OCSPSigning` (RFC 6960 §4.2.2.2).
const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];
/// Hash algorithms of a `CertID` (RFC 8017 §A.2.4).
const HASHES: [(&[u8], &digest::Algorithm); 4] = [
    (&[0x2b, 0x0e, 3, 2, 0x1a], &digest::SHA1_FOR_LEGACY_USE_ONLY),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1], &digest::SHA256),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2], &digest::SHA384),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3], &digest::SHA512),
];

/// Compares a response with a certificate, of which one of `issuers` is the authority's.
///
/// # Errors
///
/// [`StapleError`] unless the authority says that the certificate is good.
pub(super) fn check(
    response: &[u8],
    certificate: &CertificateDer<'_>,
    issuers: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(), StapleError> {
    let response = BasicResponse::parse(response)?;
    let certificate = EndEntityCert::try_from(certificate).map_err(|_| StapleError::NoIssuer)?;
    let anchors = issuers.iter().filter_map(|issuer| anchor_from_trusted_cert(issuer).ok());
    let issuer = anchors
        .filter(|anchor| anchor.subject.as_ref() == certificate.issuer())
        .find(|anchor| is_issued_by(&certificate, anchor, KeyUsage::server_auth(), now))
        .ok_or(StapleError::NoIssuer)?;
    response.is_signed_by(&issuer, now)?;
    response.about(&issuer, certificate.serial())?.judge(now)
}

/// Whether the authority has issued the certificate for this usage.
fn is_issued_by(
    certificate: &EndEntityCert<'_>,
    authority: &TrustAnchor<'_>,
    usage: KeyUsage,
    now: UnixTime,
) -> bool {
    let all = algorithms::default_provider().signature_verification_algorithms.all;
    let anchors = core::slice::from_ref(authority);
    certificate.verify_for_usage(all, anchors, &[], now, usage, None, None).is_ok()
}

/// Whether the holder of a key, the content of a `SubjectPublicKeyInfo`, has signed a message with
/// an algorithm, the content of an `AlgorithmIdentifier`.
fn is_signed(key: &[u8], algorithm: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let mut key = Elements(key);
    let parts = key.take(SEQUENCE).zip(key.take(BIT_STRING).and_then(whole_octets));
    let Some((of_key, key)) = parts else { return false };
    let all = algorithms::default_provider().signature_verification_algorithms.all;
    all.iter()
        .filter(|known| known.signature_alg_id().as_ref() == algorithm)
        .filter(|known| known.public_key_alg_id().as_ref() == of_key)
        .any(|known| known.verify_signature(key, message, signature).is_ok())
}

/// The octets of a bit string that has whole ones (X.690 §8.6.2).
const fn whole_octets(bits: &[u8]) -> Option<&[u8]> {
    match bits.split_first() {
        Some((0, octets)) => Some(octets),
        _ => None,
    }
}

/// A `BasicOCSPResponse` (RFC 6960 §4.2.1).
struct BasicResponse<'octets> {
    /// `tbsResponseData`, as it is signed.
    signed: &'octets [u8],
    /// Its `responses`.
    answers: &'octets [u8],
    algorithm: &'octets [u8],
    signature: &'octets [u8],
    /// Certificates of responders.
    certificates: &'octets [u8],
}

impl<'octets> BasicResponse<'octets> {
    fn parse(octets: &'octets [u8]) -> Result<Self, StapleError> {
        if octets.len() > RESPONSE_OCTETS_MAX {
            return Err(StapleError::Malformed);
        }
        let parts = Elements(octets).last(SEQUENCE).ok_or(StapleError::Malformed)?;
        let mut parts = Elements(parts);
        match parts.take(ENUMERATED) {
            Some([0]) => Self::basic(parts).ok_or(StapleError::Malformed),
            Some(&[status]) => Err(StapleError::Unsuccessful(status)),
            _ => Err(StapleError::Malformed),
        }
    }

    fn basic(mut parts: Elements<'octets>) -> Option<Self> {
        let mut octets = Elements(Elements(parts.last(EXPLICIT_0)?).last(SEQUENCE)?);
        octets.take(OBJECT_IDENTIFIER).filter(|kind| *kind == BASIC)?;
        let mut basic = Elements(Elements(octets.last(OCTET_STRING)?).last(SEQUENCE)?);
        let signed = basic.whole()?;
        let algorithm = basic.take(SEQUENCE)?;
        let signature = basic.take(BIT_STRING).and_then(whole_octets)?;
        let certificates = match basic.last_or_none(EXPLICIT_0)? {
            [] => &[],
            some => Elements(some).last(SEQUENCE)?,
        };
        let mut data = Elements(Elements(signed).last(SEQUENCE)?);
        // The version; the responder by name or by key, which its signature shows; the time.
        let _version = data.take(EXPLICIT_0);
        data.take(EXPLICIT_1).or_else(|| data.take(EXPLICIT_2))?;
        data.take(GENERALIZED_TIME)?;
        let answers = data.take(SEQUENCE)?;
        has_no_critical(data.last_or_none(EXPLICIT_1)?)?;
        Some(Self { signed, answers, algorithm, signature, certificates })
    }

    /// RFC 6960 §4.2.2.2: the authority itself, or a responder that it has issued a certificate for
    /// just that.
    fn is_signed_by(&self, issuer: &TrustAnchor<'_>, now: UnixTime) -> Result<(), StapleError> {
        let by = |key: &[u8]| is_signed(key, self.algorithm, self.signed, self.signature);
        if by(issuer.subject_public_key_info.as_ref()) {
            return Ok(());
        }
        let mut others = Elements(self.certificates);
        while let Some(certificate) = others.whole() {
            let certificate = CertificateDer::from(certificate);
            let Ok(parsed) = EndEntityCert::try_from(&certificate) else { continue };
            let key = parsed.subject_public_key_info();
            let appointed = KeyUsage::required(OCSP_SIGNING);
            if Elements(key.as_ref()).take(SEQUENCE).is_some_and(by)
                && is_issued_by(&parsed, issuer, appointed, now)
            {
                return Ok(());
            }
        }
        Err(StapleError::Signature)
    }

    /// What it says of the issuer's certificate with this number.
    fn about(
        &self,
        issuer: &TrustAnchor<'_>,
        serial: &[u8],
    ) -> Result<SingleResponse, StapleError> {
        let mut answers = Elements(self.answers);
        while let Some(answer) = answers.take(SEQUENCE) {
            let mut answer = Elements(answer);
            let name = answer.take(SEQUENCE).ok_or(StapleError::Malformed)?;
            if is_named(name, issuer, serial).ok_or(StapleError::Malformed)? {
                return SingleResponse::parse(answer).ok_or(StapleError::Malformed);
            }
        }
        Err(StapleError::Other)
    }
}

/// Whether a `CertID` (RFC 6960 §4.1.1) is that of the issuer's certificate with this number.
fn is_named(name: &[u8], issuer: &TrustAnchor<'_>, serial: &[u8]) -> Option<bool> {
    let mut name = Elements(name);
    let hash = Elements(name.take(SEQUENCE)?).take(OBJECT_IDENTIFIER)?;
    let [of_name, of_key] = [name.take(OCTET_STRING)?, name.take(OCTET_STRING)?];
    let number = name.take(INTEGER)?;
    let Some((_, hash)) = HASHES.iter().find(|known| known.0 == hash) else { return Some(false) };
    let mut key = Elements(issuer.subject_public_key_info.as_ref());
    key.take(SEQUENCE)?;
    let key = key.take(BIT_STRING).and_then(whole_octets)?;
    let subject = written(SEQUENCE, issuer.subject.as_ref());
    Some(
        digest::digest(hash, &subject).as_ref() == of_name
            && digest::digest(hash, key).as_ref() == of_key
            && number == serial,
    )
}

/// A `SingleResponse` (RFC 6960 §4.2.1) without the name of its certificate.
struct SingleResponse {
    /// Tag of the choice `CertStatus`.
    status: u8,
    this_update: Timestamp,
    next_update: Option<Timestamp>,
}

/// Tags of `CertStatus`.
const GOOD: u8 = 0x80;
const REVOKED: u8 = 0xa1;

impl SingleResponse {
    fn parse(mut parts: Elements<'_>) -> Option<Self> {
        let (status, _, rest) = element(parts.0)?;
        parts.0 = rest;
        let this_update = generalized_time(parts.take(GENERALIZED_TIME)?)?;
        let next_update = match parts.take(EXPLICIT_0) {
            Some(time) => Some(generalized_time(Elements(time).last(GENERALIZED_TIME)?)?),
            None => None,
        };
        has_no_critical(parts.last_or_none(EXPLICIT_1)?)?;
        Some(Self { status, this_update, next_update })
    }

    /// RFC 6960 §3.2, 5 and 6: whether it counts at this time; then what it says. What was revoked
    /// stays so.
    fn judge(&self, now: UnixTime) -> Result<(), StapleError> {
        let now = Duration::from_secs(now.as_secs());
        let until = match self.next_update {
            Some(next) => next.since_epoch(),
            None => self.this_update.since_epoch().saturating_add(WITHOUT_NEXT),
        };
        let begun = self.this_update.since_epoch() <= now.saturating_add(CLOCKS_DIFFER);
        match self.status {
            REVOKED => Err(StapleError::Revoked),
            _ if !begun || until.saturating_add(CLOCKS_DIFFER) < now => Err(StapleError::Outdated),
            GOOD => Ok(()),
            _ => Err(StapleError::Unknown),
        }
    }
}

/// `None` if any of these extensions, `[1]` of either part, is critical: this file knows none.
fn has_no_critical(extensions: &[u8]) -> Option<()> {
    if extensions.is_empty() {
        return Some(());
    }
    let mut all = Elements(Elements(extensions).last(SEQUENCE)?);
    while !all.0.is_empty() {
        let mut extension = Elements(all.take(SEQUENCE)?);
        extension.take(OBJECT_IDENTIFIER)?;
        if extension.take(BOOLEAN).is_some_and(|critical| critical != [0]) {
            return None;
        }
    }
    Some(())
}

/// Verifies servers' certificates, and the responses that are stapled to them.
#[derive(Debug)]
pub(crate) struct ChecksStaples {
    pub(super) verifier: Arc<WebPkiServerVerifier>,
    pub(super) authorities: Vec<CertificateDer<'static>>,
    /// Whether a server must staple one.
    pub(super) required: bool,
}

impl ServerCertVerifier for ChecksStaples {
    /// RFC 6066 §8: a client "MUST check the OCSP response and abort the handshake if the response is
    /// not satisfactory with `bad_certificate_status_response(113)`".
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )?;
        if ocsp_response.is_empty() {
            let missing = || Error::General(StapleError::Missing.to_string());
            return if self.required { Err(missing()) } else { Ok(verified) };
        }
        let authorities = self.authorities.iter().map(|it| CertificateDer::from(it.as_ref()));
        let given = intermediates.iter().map(|it| CertificateDer::from(it.as_ref()));
        let issuers: Vec<_> = given.chain(authorities).collect();
        match check(ocsp_response, end_entity, &issuers, now) {
            Ok(()) => Ok(verified),
            Err(StapleError::Revoked) => Err(CertificateError::Revoked.into()),
            Err(_) => Err(CertificateError::InvalidOcspResponse.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl ocsp` has made these at this time, valid for seven days, of the certificate with the
    /// number 0x80AB12.
    const MADE: u64 = 1_795_543_749;
    const DAY: u64 = 86_400;
    const AUTHORITY: &[u8] = include_bytes!("../../tests/ocsp/authority.crt");
    const CERTIFICATE: &[u8] = include_bytes!("../../tests/ocsp/server.crt");
    const GOOD: &[u8] = include_bytes!("../../tests/ocsp/good.der");

    /// What a response says of the certificate, so many seconds after it was made.
    fn said(response: &[u8], after: u64) -> Result<(), StapleError> {
        let now = Timestamp::new(Duration::from_secs(MADE + after));
        crate::tls::check_staple(response, CERTIFICATE, &[CERTIFICATE, AUTHORITY], now)
    }

    /// RFC 6960 §3.2 and §4.2.2.2: whose response, about what, signed by whom.
    #[test]
    fn responses_of_openssl_are_read() {
        let cases: [(&str, &[u8], _); 8] = [
            ("of the authority", GOOD, Ok(())),
            ("by SHA-256", include_bytes!("../../tests/ocsp/sha256.der"), Ok(())),
            ("of a responder", include_bytes!("../../tests/ocsp/delegated.der"), Ok(())),
            (
                "of another holder of a certificate",
                include_bytes!("../../tests/ocsp/unappointed.der"),
                Err(StapleError::Signature),
            ),
            (
                "of a certificate that is revoked",
                include_bytes!("../../tests/ocsp/revoked.der"),
                Err(StapleError::Revoked),
            ),
            (
                "of one that the responder does not know",
                include_bytes!("../../tests/ocsp/unknown.der"),
                Err(StapleError::Unknown),
            ),
            (
                "about another one",
                include_bytes!("../../tests/ocsp/other.der"),
                Err(StapleError::Other),
            ),
            // RFC 6960 §4.2.1: 6 is *unauthorized*; it is DER of five octets.
            ("an error", &[0x30, 3, 0x0a, 1, 6], Err(StapleError::Unsuccessful(6))),
        ];
        for (what, response, expected) in cases {
            assert_eq!(said(response, 60), expected, "{what}");
        }
        let authority = CertificateDer::from(CERTIFICATE);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(MADE));
        let alone = check(GOOD, &authority, core::slice::from_ref(&authority), now);
        assert_eq!(alone, Err(StapleError::NoIssuer));
    }

    /// RFC 6960 §3.2 (5) and (6), with clocks that differ by five minutes.
    #[test]
    fn a_response_has_its_time() {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(MADE - 400));
        let issuers = [CertificateDer::from(AUTHORITY)];
        let early = check(GOOD, &CertificateDer::from(CERTIFICATE), &issuers, now);
        // The authority itself is a few seconds older than the response.
        assert!(matches!(early, Err(StapleError::Outdated | StapleError::NoIssuer)), "{early:?}");
        assert_eq!(said(GOOD, 7 * DAY), Ok(()));
        assert_eq!(said(GOOD, 7 * DAY + 240), Ok(()));
        assert_eq!(said(GOOD, 7 * DAY + 400), Err(StapleError::Outdated));
        // What was revoked stays so.
        let revoked = include_bytes!("../../tests/ocsp/revoked.der");
        assert_eq!(said(revoked, 400 * DAY), Err(StapleError::Revoked));
    }

    /// No octet of what is signed, nor of what says so, may be another; nothing cut is read.
    #[test]
    fn what_is_cut_or_changed_vouches_for_nothing() {
        for length in 0..GOOD.len() {
            assert!(said(&GOOD[..length], 60).is_err(), "{length}");
        }
        let signed = BasicResponse::parse(GOOD).unwrap().signed;
        let start = GOOD.windows(signed.len()).position(|window| window == signed).unwrap();
        for at in 0..GOOD.len() {
            for bit in [1, 0x80] {
                let mut changed = GOOD.to_vec();
                changed[at] ^= bit;
                // Behind it are the signature and certificates of which none is needed.
                let held = said(&changed, 60);
                assert!(held.is_err() || at > start + signed.len(), "{at}");
            }
        }
    }
}
