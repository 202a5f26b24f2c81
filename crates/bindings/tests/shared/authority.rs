//! Certificates for tests, made anew for each.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]
#![allow(unreachable_pub, reason = "a module of several programs")]

use gatewright_bindings::tls::Tls;
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
    SerialNumber,
};
use std::path::{Path, PathBuf};

/// An authority that writes certificates into a directory.
pub struct Authority {
    pub place: PathBuf,
    pub issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tls-{name}"));
        std::fs::create_dir_all(&place).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let file = place.join("authority.pem");
        std::fs::write(&file, certificate.pem()).unwrap();
        Self { place, issuer: Issuer::new(params, key), file }
    }

    /// A certificate for 127.0.0.1 and these identifiers; its serial number is its name.
    pub fn certify(&self, name: &str, identifiers: &[&str]) -> Tls {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from_slice(name.as_bytes()));
        for identifier in identifiers {
            params.subject_alt_names.push(SanType::URI((*identifier).try_into().unwrap()));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let tls = Tls {
            certificate: self.place.join(format!("{name}.pem")),
            key: self.place.join(format!("{name}.key")),
            authorities: self.file.clone(),
            crl: None,
            ocsp_response: None,
            ocsp_required: false,
        };
        std::fs::write(&tls.certificate, certificate.pem()).unwrap();
        std::fs::write(&tls.key, key.serialize_pem()).unwrap();
        tls
    }
}
