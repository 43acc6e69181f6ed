//! TLS: the cryptography provider, and the participant that a client certificate names.

use rustls::crypto::{CryptoProvider, ring};

/// Installs ring as the process's cryptography provider for rustls, unless one is installed already.
pub(crate) fn install_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        let _installed_concurrently = ring::default_provider().install_default();
    }
}

/// Returns the ISPB in a certificate's subject, if there is one: an attribute of eight capital letters
/// or digits, at least one of them a digit, optionally prefixed with `ISPB-`.
///
/// Parses the DER only as far as the subject. The TLS handshake has already checked whether the
/// certificate is trusted.
pub fn certificate_ispb(certificate: &[u8]) -> Option<String> {
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const VERSION: u8 = 0xa0;

    let (whole, _) = value(certificate, SEQUENCE)?;
    let (to_be_signed, _) = value(whole, SEQUENCE)?;
    let mut rest = to_be_signed;
    if rest.first() == Some(&VERSION) {
        rest = value(rest, VERSION)?.1;
    }
    // Serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        rest = any(rest)?.2;
    }
    let (mut subject, _) = value(rest, SEQUENCE)?;
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

fn ispb_in(text: &str) -> Option<&str> {
    let text = text.strip_prefix("ISPB-").unwrap_or(text);
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    (has_digit && crate::wire::is_ispb(text)).then_some(text)
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
            certificate_ispb(&certificate("12345678")).as_deref(),
            Some("12345678")
        );
        assert_eq!(
            certificate_ispb(&certificate("ISPB-AB345678")).as_deref(),
            Some("AB345678")
        );
        assert_eq!(certificate_ispb(&certificate("no ispb")), None);
    }

    #[test]
    fn invalid_certificates_have_no_ispb() {
        let whole = certificate("12345678");
        for end in 0..whole.len() {
            let _does_not_panic = certificate_ispb(&whole[..end]);
        }
        assert_eq!(certificate_ispb(b""), None);
        assert_eq!(
            certificate_ispb(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]),
            None
        );
    }
}
