//! The end of a certificate's validity (RFC 5280 §4.1.2.5), which the verifier does not tell.

use gatewright_onem2m::Timestamp;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// DER tags (X.690 §8): SEQUENCE, the explicit tag 0 of a version, `UTCTime`, `GeneralizedTime`.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The end of a certificate's validity (notAfter); `None` if it is not DER.
pub(crate) fn not_after(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    if let Some((VERSION, _, after)) = element(rest) {
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

/// The first element of DER: its tag, its content, and what follows it.
fn element(octets: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = octets.split_first_chunk()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        let length = length.iter().try_fold(0_usize, |length, &octet| {
            Some(length.checked_mul(256)?.saturating_add(usize::from(octet)))
        })?;
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
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
