//! Faults of certificate and key files, found by loading them as a start does.

use super::{OpenTls, Tls, TlsError, certificates, private_key, store};
use crate::keyring::Keys;
use std::path::Path;

/// A file that cannot be used: the name of the key that names it, in the table of the certificate,
/// and the cause.
pub type FileFault = (&'static str, TlsError);

impl Tls {
    /// Loads every file, connects nothing, and returns what a start would be refused for.
    pub(crate) fn faults(&self) -> Vec<FileFault> {
        let mut faults = own_faults(&self.certificate, &self.key);
        faults.extend(fault(AUTHORITIES, self.authorities()));
        faults.extend(fault(CRL, self.lists()));
        if faults.is_empty() {
            // Each file is what it should be: this compares them with one another.
            faults.extend(Keys::read(self).err().map(|error| (key_of(&error), error)));
        }
        faults
    }
}

impl OpenTls {
    /// Loads every file, connects nothing, and returns what a start would be refused for.
    pub fn faults(&self) -> Vec<FileFault> {
        let mut faults = own_faults(&self.certificate, &self.key);
        let authorities = self.authorities.as_deref();
        faults.extend(authorities.and_then(|file| fault(AUTHORITIES, store(file))));
        if faults.is_empty() {
            faults.extend(self.acceptor().err().map(|error| (key_of(&error), error)));
        }
        faults
    }
}

fn own_faults(certificate: &Path, key: &Path) -> Vec<FileFault> {
    let certificate = fault(CERTIFICATE, certificates(certificate));
    certificate.into_iter().chain(fault(KEY, private_key(key))).collect()
}

fn fault<T>(key: &'static str, loaded: Result<T, TlsError>) -> Option<FileFault> {
    loaded.err().map(|error| (key, error))
}

/// The key at fault where files that can each be read do not go together.
const fn key_of(error: &TlsError) -> &'static str {
    match error {
        TlsError::Staple { .. } | TlsError::Response { .. } => OCSP_RESPONSE,
        TlsError::Authorities(_) => AUTHORITIES,
        TlsError::NoList(_) => CRL,
        TlsError::NoKey(_) | TlsError::Refused(_) => KEY,
        TlsError::File { .. } | TlsError::Empty(_) => CERTIFICATE,
    }
}

const CERTIFICATE: &str = "certificate";
const KEY: &str = "key";
const AUTHORITIES: &str = "authorities";
const CRL: &str = "crl";
const OCSP_RESPONSE: &str = "ocsp_response";
