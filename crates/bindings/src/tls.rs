//! Mutual TLS 1.3: a peer shows a certificate and uses only the originators that it authorises.
//!
//! A peer's identifiers are subject alternative names of type URI in its certificate: `m2m:` and
//! the oneM2M identifier in absolute form, `m2m://example.com/id-in/Cmine` for an AE and
//! `m2m://example.com/id-mn` for a CSE, which also authorises the entities registered at it. Only
//! the CSE knows whether it authorises others, such as the AEs that it brought here: the request
//! carries the certificate's identity ([`Request::sponsor`]).

mod der;
mod faults;
mod ocsp;
mod validity;

pub use faults::FileFault;
pub use ocsp::StapleError;

use crate::keyring::Keyring;
use core::time::Duration;
use gatewright_onem2m::{Operation, Request, Timestamp};
use gatewright_part::open_file;
pub(crate) use ocsp::ChecksStaples;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime,
};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore,
    ServerConfig, SignatureScheme,
};
use tokio_rustls::server::TlsStream;

/// Identifiers per certificate.
const NAMES_MAX: usize = 16;

/// Certificate, key and trusted authorities of this CSE, as PEM files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tls {
    /// Its certificate, followed by the intermediate ones.
    pub certificate: PathBuf,
    /// The key of its certificate.
    pub key: PathBuf,
    /// The authorities that sign peers' certificates.
    pub authorities: PathBuf,
    /// The authorities' lists of revoked certificates (RFC 5280 §5), one of each authority that has
    /// issued any. With `None`, no certificate is taken for revoked.
    pub crl: Option<PathBuf>,
    /// The OCSP response (RFC 6960) about its certificate, as DER: a server staples it in each
    /// handshake.
    pub ocsp_response: Option<PathBuf>,
    /// Whether a server must staple such a response. One that it staples is compared in any case.
    pub ocsp_required: bool,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: pem::Error,
    },
    /// There is no certificate in the file.
    #[error("{} holds no certificate", .0.display())]
    Empty(PathBuf),
    /// There is no private key in the file.
    #[error("{} holds no private key (PEM)", .0.display())]
    NoKey(PathBuf),
    /// There is no list of revoked certificates in the file.
    #[error("{} holds no list of revoked certificates (X509 CRL)", .0.display())]
    NoList(PathBuf),
    /// The OCSP response is not about the certificate.
    #[error("{}: {source}", path.display())]
    Staple {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: StapleError,
    },
    /// The OCSP response cannot be read.
    #[error("{}: {source}", path.display())]
    Response {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Certificate and key do not match, or are refused.
    #[error("certificate or key refused: {0}")]
    Refused(#[from] rustls::Error),
    /// The authorities cannot be used.
    #[error("authorities refused: {0}")]
    Authorities(#[from] VerifierBuilderError),
}

impl Tls {
    /// Server configuration; clients without a certificate of the authorities are refused, and so
    /// are revoked ones, which are counted.
    pub(crate) fn server(
        &self,
        revoked: &Arc<RevokedPeers>,
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let authorities = Arc::new(self.authorities()?);
        let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider())
            .with_crls(self.lists()?)
            .build()?;
        let verifier = CountsRevoked { verifier, revoked: Arc::clone(revoked) };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_single_cert_with_ocsp(
                certificates(&self.certificate)?,
                self.key()?,
                self.staple()?,
            )?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Client configuration; it shows its own certificate.
    pub(crate) fn client(&self) -> Result<ClientConfig, TlsError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(self.trusted()?)
            .with_client_auth_cert(certificates(&self.certificate)?, self.key()?)?;
        Ok(config)
    }

    /// Verifier of servers' certificates.
    pub(crate) fn trusted(&self) -> Result<Arc<ChecksStaples>, TlsError> {
        let authorities = Arc::new(self.authorities()?);
        let trusted = WebPkiServerVerifier::builder_with_provider(authorities, provider());
        let verifier = trusted.with_crls(self.lists()?).build()?;
        let authorities = certificates(&self.authorities)?;
        Ok(Arc::new(ChecksStaples { verifier, authorities, required: self.ocsp_required }))
    }

    /// The response to staple; nothing without a file. One that is out of date is stapled, too: peers
    /// judge it by their own clocks, and this one may be wrong.
    fn staple(&self) -> Result<Vec<u8>, TlsError> {
        let Some(path) = &self.ocsp_response else { return Ok(Vec::new()) };
        let refuse = |source| TlsError::Response { path: path.clone(), source };
        let response = read_bounded(path).map_err(refuse)?;
        let mut chain = certificates(&self.certificate)?;
        let certificate = chain.remove(0);
        chain.extend(certificates(&self.authorities)?);
        match ocsp::check(&response, &certificate, &chain, UnixTime::now()) {
            Ok(())
            | Err(
                StapleError::NoIssuer
                | StapleError::Outdated
                | StapleError::Revoked
                | StapleError::Unknown,
            ) => Ok(response),
            Err(source) => Err(TlsError::Staple { path: path.clone(), source }),
        }
    }

    /// The files of certificates, each with the first end of a certificate in it.
    pub(crate) fn ends(&self) -> Result<Vec<(PathBuf, Timestamp)>, TlsError> {
        let mut ends = Vec::new();
        for path in [&self.certificate, &self.authorities] {
            let all = certificates(path)?;
            let first = all.iter().filter_map(validity::not_after).min();
            ends.extend(first.map(|end| (path.clone(), end)));
        }
        Ok(ends)
    }

    /// The lists of revoked certificates.
    fn lists(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
        let Some(path) = &self.crl else { return Ok(Vec::new()) };
        let refuse = |source| TlsError::File { path: path.clone(), source };
        let octets = read_pem(path)?;
        let found = CertificateRevocationListDer::pem_slice_iter(&octets);
        let found: Vec<_> = found.collect::<Result<_, _>>().map_err(refuse)?;
        // Without any list nothing would be compared, and nobody would notice.
        if found.is_empty() { Err(TlsError::NoList(path.clone())) } else { Ok(found) }
    }

    fn authorities(&self) -> Result<RootCertStore, TlsError> {
        store(&self.authorities)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        private_key(&self.key)
    }
}

/// Certificate and key of a listener whose clients need no certificate, and the authorities of those
/// that have one, as PEM files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OpenTls {
    /// Its certificate, followed by the intermediate ones.
    pub certificate: PathBuf,
    /// The key of its certificate.
    pub key: PathBuf,
    /// The authorities that sign clients' certificates; with `None` none is asked for.
    pub authorities: Option<PathBuf>,
}

/// Performs the handshakes of such a listener.
#[derive(Clone)]
pub struct OpenAcceptor(TlsAcceptor);

impl OpenTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// [`TlsError`] with the cause.
    pub fn acceptor(&self) -> Result<OpenAcceptor, TlsError> {
        let builder =
            ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
        let builder = match &self.authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let authorities = Arc::new(store(authorities)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider());
                builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
            }
        };
        let (certificates, key) = (certificates(&self.certificate)?, private_key(&self.key)?);
        let mut config = builder.with_single_cert(certificates, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(OpenAcceptor(TlsAcceptor::from(Arc::new(config))))
    }
}

/// The certificate that a client has shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientCertificate {
    /// Its subject alternative names of type URI.
    pub names: Vec<String>,
    /// The SHA-256 of its octets.
    pub fingerprint: [u8; 32],
}

impl OpenAcceptor {
    /// Performs a handshake; returns the stream and the client's certificate, if it has shown one.
    /// `None` if the handshake fails.
    pub async fn accept(
        &self,
        stream: TcpStream,
    ) -> Option<(TlsStream<TcpStream>, Option<ClientCertificate>)> {
        let handshake = tokio::time::timeout(HANDSHAKE_WITHIN, self.0.accept(stream)).await;
        let stream = handshake.ok()?.ok()?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let shown = match certificate {
            None => None,
            Some(certificate) => {
                let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
                let names = parsed.valid_uri_names().take(NAMES_MAX).map(str::to_owned).collect();
                let hash = ::ring::digest::digest(&::ring::digest::SHA256, certificate);
                // SHA-256 has 32 octets.
                let fingerprint = hash.as_ref().try_into().unwrap_or_default();
                Some(ClientCertificate { names, fingerprint })
            }
        };
        Some((stream, shown))
    }
}

impl core::fmt::Debug for OpenAcceptor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("OpenAcceptor")
    }
}

/// Compares an OCSP response (RFC 6960) with a server's certificate, of which one of `issuers` is the
/// authority's, at this time.
///
/// # Errors
///
/// [`StapleError`] unless the authority says in it that the certificate is good.
pub fn check_staple(
    response: &[u8],
    certificate: &[u8],
    issuers: &[&[u8]],
    now: Timestamp,
) -> Result<(), StapleError> {
    let issuers: Vec<_> = issuers.iter().map(|issuer| CertificateDer::from(*issuer)).collect();
    let now = UnixTime::since_unix_epoch(now.since_epoch());
    ocsp::check(response, &CertificateDer::from(certificate), &issuers, now)
}

fn store(authorities: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        store.add(certificate)?;
    }
    Ok(store)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let refuse = |source| match source {
        pem::Error::NoItemsFound => TlsError::NoKey(path.to_owned()),
        source => TlsError::File { path: path.to_owned(), source },
    };
    PrivateKeyDer::from_pem_slice(&read_pem(path)?).map_err(refuse)
}

/// The octets of a file of certificates, keys or lists.
///
/// # Errors
///
/// [`TlsError::File`] if it cannot be read, or does not end within [`FILE_OCTETS_MAX`], as a device
/// such as `/dev/zero` does.
fn read_pem(path: &Path) -> Result<Vec<u8>, TlsError> {
    let refuse = |source| TlsError::File { path: path.to_owned(), source: pem::Error::Io(source) };
    read_bounded(path).map_err(refuse)
}

/// The octets of a file of at most [`FILE_OCTETS_MAX`].
pub(crate) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    open_file(path)?.take(FILE_OCTETS_MAX + 1).read_to_end(&mut octets)?;
    if u64::try_from(octets.len()).is_ok_and(|len| len <= FILE_OCTETS_MAX) {
        return Ok(octets);
    }
    let why = format!("longer than {} MiB", FILE_OCTETS_MAX >> 20);
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Octets of a file of certificates, keys or lists at most; the largest lists of public authorities
/// have some 10 MiB.
const FILE_OCTETS_MAX: u64 = 64 << 20;

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refuse = |source| TlsError::File { path: path.to_owned(), source };
    let octets = read_pem(path)?;
    let found = CertificateDer::pem_slice_iter(&octets);
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(refuse)?;
    if found.is_empty() { Err(TlsError::Empty(path.to_owned())) } else { Ok(found) }
}

/// Peers whose certificates were refused as revoked.
#[derive(Debug, Default)]
pub(crate) struct RevokedPeers(Mutex<(u64, Option<String>)>);

impl RevokedPeers {
    /// How many, and the names in the last one's certificate.
    pub(crate) fn told(&self) -> (u64, Option<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, certificate: &CertificateDer<'_>) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *told = (told.0.saturating_add(1), Some(names_in(certificate)));
    }
}

/// The names in a certificate, for operators.
fn names_in(certificate: &CertificateDer<'_>) -> String {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return String::new() };
    let names = parsed.valid_uri_names().chain(parsed.valid_dns_names()).take(NAMES_MAX);
    // It is written to terminals and logs.
    let plain = |name: &str| name.chars().filter(|it| !it.is_control()).collect::<String>();
    names.map(plain).collect::<Vec<_>>().join(", ")
}

/// Verifies as another verifier does, and counts revoked certificates.
#[derive(Debug)]
struct CountsRevoked {
    verifier: Arc<dyn ClientCertVerifier>,
    revoked: Arc<RevokedPeers>,
}

impl ClientCertVerifier for CountsRevoked {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.verifier.verify_client_cert(end_entity, intermediates, now);
        if let Err(rustls::Error::InvalidCertificate(CertificateError::Revoked)) = &verified {
            self.revoked.add(end_entity);
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// How connections of one listener start.
#[derive(Clone)]
pub(crate) enum ListenerSecurity {
    /// Without TLS.
    Plain,
    /// With a handshake in which both sides authenticate.
    Tls(Arc<Keyring>),
}

/// How long a TLS handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Performs the handshake and reads the peer's identity from its certificate; `None` if it fails.
pub(crate) async fn meet(
    keyring: &Keyring,
    stream: TcpStream,
    provider: &str,
) -> Option<(TlsStream<TcpStream>, Identity)> {
    let handshake = tokio::time::timeout(HANDSHAKE_WITHIN, keyring.acceptor().accept(stream)).await;
    let stream = handshake.ok()?.ok()?;
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    let identity = Identity::of(certificate, provider).ok()?;
    Some((stream, identity))
}

/// Originators that a peer's certificate authorises.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Identity {
    /// SP-relative: `/id-in/Cmine`, `/id-mn`.
    names: Vec<String>,
}

impl Identity {
    /// The names in a verified certificate; those of other providers are left out.
    ///
    /// # Errors
    ///
    /// If it cannot be parsed.
    pub(crate) fn of(certificate: &CertificateDer<'_>, provider: &str) -> io::Result<Self> {
        let parsed = webpki::EndEntityCert::try_from(certificate).map_err(io::Error::other)?;
        let names = parsed
            .valid_uri_names()
            .filter_map(|uri| uri.strip_prefix("m2m:")?.strip_prefix(provider))
            .filter(|name| name.starts_with('/'))
            .take(NAMES_MAX)
            .map(str::to_owned)
            .collect();
        Ok(Self { names })
    }

    /// Identity of a publisher at a broker, from the `originator` of the topic that the broker
    /// admits it to (TS-0010 §6.4). Identifiers of AEs begin with `C` or `S`, so such a name counts
    /// as an AE's, unless `from` is a CSE of that name.
    pub(crate) fn of_topic(originator: &str, from: &str, (cse, provider): (&str, &str)) -> Self {
        let plain = format!("/{}", originator.replace(':', "/"));
        let from = match from.strip_prefix(provider) {
            Some(rest) if rest.starts_with('/') => rest,
            _ => from,
        };
        let as_cse =
            from.strip_prefix(&plain).is_some_and(|it| it.is_empty() || it.starts_with('/'));
        // Nobody else is this CSE.
        if originator.is_empty() || plain == cse {
            return Self::default();
        }
        // An administrator may be called as it likes.
        let as_own = from == originator || from.strip_prefix(cse) == Some(&plain);
        let is_entity = originator.starts_with(['C', 'S']) || as_own;
        let name =
            if is_entity && !as_cse && is_cse(&plain) { format!("{cse}{plain}") } else { plain };
        Self { names: vec![name] }
    }

    /// Adds a name that is known by other means.
    pub(crate) fn and(mut self, name: Option<String>) -> Self {
        self.names.extend(name);
        self
    }

    /// Compares a request's originator with this peer; a registration without an originator gets
    /// the AE-ID of the certificate. For another originator this peer becomes the request's
    /// sponsor, which the CSE judges, counts and audits.
    pub(crate) fn authenticate(&self, request: &mut Request, (cse, provider): (&str, &str)) {
        if request.from.is_empty() && request.operation == Operation::Create {
            let here = self.names.iter().find_map(|name| name.strip_prefix(cse)?.strip_prefix('/'));
            if let Some(stem) = here {
                stem.clone_into(&mut request.from);
                return;
            }
        }
        let from = match request.from.strip_prefix(provider) {
            Some(rest) if rest.starts_with('/') => rest.to_owned(),
            _ if request.from.starts_with('/') => request.from.clone(),
            _ => format!("{cse}/{}", request.from),
        };
        let speaks_for = |name: &String| {
            from == *name
                || (is_cse(name)
                    && from.strip_prefix(name.as_str()).is_some_and(|it| it.starts_with('/')))
        };
        if self.names.iter().any(speaks_for) {
            return;
        }
        let cse = self.names.iter().find(|name| is_cse(name));
        let sponsor = cse.or(self.names.first()).map(String::as_str);
        request.sponsor = Some(sponsor.unwrap_or_default().into());
    }
}

/// Whether an SP-relative identifier is a CSE's: `/id-mn`, and not `/id-mn/Cx`.
fn is_cse(name: &str) -> bool {
    name.matches('/').count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that never ends is refused, and is not read until the memory is full.
    #[test]
    fn a_file_without_an_end_is_refused() {
        let endless = PathBuf::from("/dev/zero");
        for refused in [certificates(&endless).map(drop), private_key(&endless).map(drop)] {
            let Err(TlsError::File { path, source: pem::Error::Io(source) }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(
                (path, source.to_string().as_str()),
                (endless.clone(), "longer than 64 MiB")
            );
        }
    }

    /// TS-0010 §6.4.2: the originator's identifier, `:` for `/`.
    #[test]
    fn at_a_broker_a_peer_asks_as_its_topic_says() {
        let (passes, mine) = (None, Some("/id-in/Cmine"));
        let cases = [
            ("Cmine", "Cmine", passes),
            ("Cmine", "/id-in/Cmine", passes),
            ("Cmine", "//sp/id-in/Cmine", passes),
            ("id-in:Cmine", "Cmine", passes),
            ("Cmine", "CAdmin", mine),
            ("Cmine", "Cmine2", mine),
            ("Cmine", "/id-in", mine),
            ("Cmine", "/id-mn", mine),
            ("id-mn", "/id-mn", passes),
            ("id-mn", "/id-mn/Cx", passes),
            ("id-mn", "Cx", Some("/id-mn")),
            ("id-mn", "/id-mn2/Cx", Some("/id-mn")),
            ("id-mn:Cx", "/id-mn/Cx", passes),
            ("id-mn:Cx", "/id-mn", Some("/id-mn/Cx")),
            ("boss", "boss", passes),
            ("boss", "/id-in/boss", passes),
            ("boss", "//sp/id-in/boss", passes),
            ("boss", "CAdmin", Some("/boss")),
            ("boss", "boss2", Some("/boss")),
            ("boss", "/id-in", Some("/boss")),
            ("boss:x", "boss:x", Some("/boss/x")),
            ("Cse", "/Cse", passes),
            ("Cse", "/Cse/Cx", passes),
            ("id-in", "CAdmin", Some("")),
            ("id-in", "/id-in", Some("")),
            ("", "CAdmin", Some("")),
        ];
        let own = ("/id-in", "//sp");
        for (originator, from, expected) in cases {
            let mut request = Request::new(Operation::Retrieve, "x", from, "1");
            Identity::of_topic(originator, from, own).authenticate(&mut request, own);
            assert_eq!(request.sponsor.as_deref(), expected, "{from} by {originator}");
        }
    }

    #[test]
    fn a_peer_asks_only_as_itself() {
        let ae = Identity { names: vec!["/id-in/Cmine".to_owned()] };
        let cse = Identity { names: vec!["/id-mn".to_owned()] };
        let nobody = Identity { names: Vec::new() };
        let (passes, refused, nameless) = (None, Some("/id-in/Cmine"), Some(""));
        let brought = Some("/id-mn");
        let cases = [
            (&ae, "Cmine", passes),
            (&ae, "/id-in/Cmine", passes),
            (&ae, "//sp/id-in/Cmine", passes),
            (&ae, "Cmine2", refused),
            (&ae, "CAdmin", refused),
            (&ae, "/id-in", refused),
            (&ae, "/id-in/Cmine/x", refused),
            (&cse, "/id-mn", passes),
            (&cse, "/id-mn/Cx", passes),
            (&cse, "/id-mn2", brought),
            (&cse, "Cx", brought),
            (&nobody, "Cmine", nameless),
            (&nobody, "", nameless),
        ];
        for (identity, from, expected) in cases {
            let mut request = Request::new(Operation::Retrieve, "x", from, "1");
            identity.authenticate(&mut request, ("/id-in", "//sp"));
            assert_eq!(request.sponsor.as_deref(), expected, "{from} by {identity:?}");
        }
        let mut registration = Request::new(Operation::Create, "x", "", "1");
        ae.authenticate(&mut registration, ("/id-in", "//sp"));
        assert_eq!((&*registration.from, registration.sponsor), ("Cmine", None));
    }
}
