//! The parts of X.509 certificates that are needed beside TLS: the subject's ISPB, the RSA key, and
//! whether a certificate has signed itself.

use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;

/// The object identifier of sha256WithRSAEncryption, and its empty parameters.
const SHA256_WITH_RSA: [u8; 13] = [
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b, 0x05, 0x00,
];

/// Returns the ISPB in a certificate's subject, if there is one: an attribute of eight capital letters
/// or digits, at least one of them a digit, optionally prefixed with `ISPB-`.
///
/// Parses the DER only as far as the subject. The TLS handshake has already checked whether the
/// certificate is trusted.
pub(crate) fn subject_ispb(certificate: &[u8]) -> Option<String> {
    let (mut subject, _) = value(from_subject(certificate)?, SEQUENCE)?;
    while let Some((mut set, after)) = value(subject, SET) {
        subject = after;
        while let Some((attribute, next)) = value(set, SEQUENCE) {
            set = next;
            let (_, _, text) = any(attribute)?;
            let (_, text, _) = any(text)?;
            if let Some(ispb) = std::str::from_utf8(text).ok().and_then(ispb_in) {
                return Some(ispb.to_owned());
            }
        }
    }
    None
}

/// Returns a certificate's RSA key as DER, if it has one.
pub(crate) fn rsa_public_key(certificate: &[u8]) -> Option<&[u8]> {
    let (_, after_subject) = value(from_subject(certificate)?, SEQUENCE)?;
    let (key, _) = value(after_subject, SEQUENCE)?;
    let (_, after_algorithm) = value(key, SEQUENCE)?;
    let (bits, _) = value(after_algorithm, BIT_STRING)?;
    // The first byte counts the unused bits of the last.
    let key = bits.strip_prefix(&[0])?;
    let (numbers, _) = value(key, SEQUENCE)?;
    value(numbers, INTEGER)?;
    Some(key)
}

/// Returns true if a time, in milliseconds since the Unix epoch, is within the validity of a
/// certificate. False if the validity cannot be read.
pub(crate) fn is_valid_at(certificate: &[u8], at_ms: i64) -> bool {
    let bounds = || {
        let (validity, _) = value(from_validity(certificate)?, SEQUENCE)?;
        let (tag, not_before, after) = any(validity)?;
        let (end_tag, not_after, _) = any(after)?;
        Some((time(tag, not_before)?, time(end_tag, not_after)?))
    };
    // The last second is part of the validity.
    bounds().is_some_and(|(from, until)| from <= at_ms && at_ms < until + 1_000)
}

/// A time as certificates write it: with two digits of the year up to 2049, with four from then on.
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u16>().ok();
    let (year, rest) = match tag {
        UTC_TIME => {
            let year = number(0..2)?;
            (
                if year < 50 {
                    2_000 + year
                } else {
                    1_900 + year
                },
                2,
            )
        }
        GENERALIZED_TIME => (number(0..4)?, 4),
        _ => return None,
    };
    if text.len() != rest + 11 || !text.ends_with('Z') {
        return None;
    }
    let part = |at: usize| number(rest + at..rest + at + 2);
    let text = format!(
        "{year:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        part(0)?,
        part(2)?,
        part(4)?,
        part(6)?,
        part(8)?
    );
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(time.as_millisecond())
}

/// Returns true if a certificate's own RSA key verifies its signature.
pub(crate) fn is_self_signed(certificate: &[u8]) -> bool {
    let parts = || {
        let (whole, rest) = value(certificate, SEQUENCE)?;
        let (_, after) = value(whole, SEQUENCE)?;
        let to_be_signed = &whole[..whole.len() - after.len()];
        // The signature does not cover the algorithm outside of what is signed.
        let (algorithm, after_algorithm) = value(after, SEQUENCE)?;
        let (bits, end) = value(after_algorithm, BIT_STRING)?;
        let is_whole = algorithm == SHA256_WITH_RSA && end.is_empty() && rest.is_empty();
        let signature = bits.strip_prefix(&[0])?;
        is_whole.then_some((to_be_signed, signature))
    };
    let (Some((to_be_signed, signature)), Some(key)) = (parts(), rsa_public_key(certificate))
    else {
        return false;
    };
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
        .verify(to_be_signed, signature)
        .is_ok()
}

/// The bytes of a certificate from its subject on.
fn from_subject(certificate: &[u8]) -> Option<&[u8]> {
    Some(any(from_validity(certificate)?)?.2)
}

/// The bytes of a certificate from its validity on.
fn from_validity(certificate: &[u8]) -> Option<&[u8]> {
    let (whole, _) = value(certificate, SEQUENCE)?;
    let (to_be_signed, _) = value(whole, SEQUENCE)?;
    let mut rest = to_be_signed;
    if rest.first() == Some(&VERSION) {
        rest = value(rest, VERSION)?.1;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        rest = any(rest)?.2;
    }
    Some(rest)
}

fn ispb_in(text: &str) -> Option<&str> {
    let text = text.strip_prefix("ISPB-").unwrap_or(text);
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let is_capital = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    (text.len() == 8 && has_digit && text.bytes().all(is_capital)).then_some(text)
}

/// Returns the content of the first DER element, if it has this tag, and the bytes after it.
fn value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, inside, after) = any(der)?;
    (found == tag).then_some((inside, after))
}

/// Returns the tag and the content of the first DER element, and the bytes after it.
fn any(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long => {
            let bytes = usize::from(long & 0x7f);
            if !(1..=4).contains(&bytes) || rest.len() < bytes {
                return None;
            }
            let (digits, rest) = rest.split_at(bytes);
            let length = digits
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (length, rest)
        }
    };
    (length <= rest.len()).then(|| (*tag, &rest[..length], &rest[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(common_name: &str) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let name = &mut params.distinguished_name;
        name.push(rcgen::DnType::OrganizationName, "Banco Teste");
        name.push(rcgen::DnType::CommonName, common_name);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_subject_contains_the_ispb() {
        assert_eq!(
            subject_ispb(&certificate("12345678")).as_deref(),
            Some("12345678")
        );
        assert_eq!(
            subject_ispb(&certificate("ISPB-AB345678")).as_deref(),
            Some("AB345678")
        );
        assert_eq!(subject_ispb(&certificate("no ispb")), None);
    }

    #[test]
    fn invalid_certificates_have_no_ispb() {
        let whole = certificate("12345678");
        for end in 0..whole.len() {
            let _does_not_panic = subject_ispb(&whole[..end]);
        }
        assert_eq!(subject_ispb(b""), None);
        assert_eq!(subject_ispb(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
