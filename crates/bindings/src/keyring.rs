//! TLS certificates that can be replaced while connections stay: each new handshake, incoming or
//! outgoing, uses the latest ones.

use crate::tls::{ChecksStaples, RevokedPeers, Tls, TlsError, provider, read_bounded};
use core::hash::{Hash, Hasher};
use core::sync::atomic::{AtomicU64, Ordering};
use gatewright_onem2m::Timestamp;
use std::collections::hash_map::DefaultHasher;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
};

/// The current certificates, shared by all listeners and connections of one part.
#[derive(Debug)]
pub(crate) struct Keyring {
    keys: RwLock<Arc<Keys>>,
    /// Revoked certificates refused by earlier keys.
    revoked_before: AtomicU64,
}

/// Content of the certificate files when they were read.
#[derive(Debug)]
pub(crate) struct Keys {
    print: u64,
    server: Arc<ServerConfig>,
    client: ClientConfig,
    trusted: Arc<ChecksStaples>,
    revoked: Arc<RevokedPeers>,
    /// The files of certificates, each with the first end of a certificate in it.
    ends: Vec<(PathBuf, Timestamp)>,
}

impl Keys {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// [`TlsError`] with the cause.
    pub(crate) fn read(tls: &Tls) -> Result<Arc<Self>, TlsError> {
        let revoked = Arc::new(RevokedPeers::default());
        let (server, client) = (tls.server(&revoked)?, tls.client()?);
        let (trusted, ends) = (tls.trusted()?, tls.ends()?);
        Ok(Arc::new(Self { print: print(tls), server, client, trusted, revoked, ends }))
    }
}

/// A hash of the files' content.
fn print(tls: &Tls) -> u64 {
    let mut hasher = DefaultHasher::new();
    let files = [&tls.certificate, &tls.key, &tls.authorities];
    for path in files.into_iter().chain(&tls.crl).chain(&tls.ocsp_response) {
        // One that cannot be read is found out by whoever reads it.
        read_bounded(path).unwrap_or_default().hash(&mut hasher);
    }
    tls.ocsp_required.hash(&mut hasher);
    hasher.finish()
}

impl Keyring {
    pub(crate) fn new(keys: Arc<Keys>) -> Arc<Self> {
        Arc::new(Self { keys: RwLock::new(keys), revoked_before: AtomicU64::new(0) })
    }

    /// Whether the files of `tls` still hold what was read.
    pub(crate) fn is_of(&self, tls: &Tls) -> bool {
        self.keys().print == print(tls)
    }

    /// Replaces the certificates; returns the previous ones.
    pub(crate) fn set(&self, keys: Arc<Keys>) -> Arc<Keys> {
        let mut present = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let before = core::mem::replace(&mut *present, keys);
        self.revoked_before.fetch_add(before.revoked.told().0, Ordering::Relaxed);
        before
    }

    /// Revoked certificates that were refused, and the names in the last one that the present keys
    /// refused.
    pub(crate) fn revoked(&self) -> (u64, Option<String>) {
        let (count, last) = self.keys().revoked.told();
        (count.saturating_add(self.revoked_before.load(Ordering::Relaxed)), last)
    }

    /// The files of certificates, each with the first end of a certificate in it.
    pub(crate) fn ends(&self) -> Vec<(PathBuf, Timestamp)> {
        self.keys().ends.clone()
    }

    /// Acceptor for incoming connections.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.keys().server))
    }

    /// Client configuration that follows later replacements.
    pub(crate) fn client(self: &Arc<Self>) -> Result<ClientConfig, TlsError> {
        let keyring = || Arc::new(Follows(Arc::clone(self)));
        Ok(ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(keyring())
            .with_client_cert_resolver(keyring()))
    }

    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Uses the keyring's current certificates.
#[derive(Debug)]
struct Follows(Arc<Keyring>);

impl ResolvesClientCert for Follows {
    fn resolve(
        &self,
        root_hint_subjects: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.0.keys().client.client_auth_cert_resolver.resolve(root_hint_subjects, schemes)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ServerCertVerifier for Follows {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let trusted = &self.0.keys().trusted;
        trusted.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.keys().trusted.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.keys().trusted.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.keys().trusted.supported_verify_schemes()
    }
}
