//! The end of a certificate's validity (RFC 5280 §4.1.2.5), which the verifier does not tell.

use super::der::{EXPLICIT_0, GENERALIZED_TIME, SEQUENCE, UTC_TIME, element};
use gatewright_onem2m::Timestamp;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The end of a certificate's validity (notAfter); `None` if it is not DER.
pub(crate) fn not_after(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    if let Some((EXPLICIT_0, _, after)) = element(rest) {
        rest = after;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (tag, validity, _) = element(rest)?;
    let (_, _, after) = element(validity).filter(|_| tag == SEQUENCE)?;
    let (tag, time, _) = element(after)?;
    let digits = core::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    // "Where YY is greater than or equal to 50, the year SHALL be interpreted as 19YY" (§4.1.2.5.1).
    let century = match tag {
        UTC_TIME if digits.get(..2)? >= "50" => "19",
        UTC_TIME => "20",
        GENERALIZED_TIME => "",
        _ => return None,
    };
    let whole = format!("{century}{digits}");
    let (date, time) = whole.split_at_checked(8)?;
    Timestamp::parse(&format!("{date}T{time}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    /// RFC 5280 has dates through 2049 as `UTCTime` and later ones as `GeneralizedTime`.
    #[test]
    fn both_forms_of_time_are_read() {
        for (year, expected) in [
            (2026, "20260430T000000"),
            (2049, "20490430T000000"),
            (2050, "20500430T000000"),
            (1999, "19990430T000000"),
        ] {
            let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
            params.not_before = date_time_ymd(1990, 1, 1);
            params.not_after = date_time_ymd(year, 4, 30);
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(not_after(certificate.der()), Timestamp::parse(expected), "{year}");
        }
    }

    #[test]
    fn what_is_cut_or_garbled_has_no_end() {
        let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let whole = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let octets: &[u8] = whole.der();
        for length in 0..octets.len() {
            assert_eq!(not_after(&CertificateDer::from(&octets[..length])), None, "{length}");
        }
        for at in 0..octets.len() {
            let mut garbled = octets.to_vec();
            garbled[at] = 0xff;
            // It ends, whatever it says.
            let _ = not_after(&CertificateDer::from(garbled));
        }
    }
}
