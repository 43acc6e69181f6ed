//! Signatures, by which a receiver knows that a message is genuine and recent.

use ring::hmac;

use super::hex::hex;
use super::secret::Secret;

/// The header with the time of the attempt, in seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "x-balde-timestamp";

/// The header with the signature.
pub const SIGNATURE_HEADER: &str = "x-balde-signature";

/// Returns `v1=` and the HMAC-SHA256 of timestamp, a full stop and body, in hexadecimal digits.
///
/// ```
/// use balde_monitor::sink::{Secret, sign};
///
/// let secret = Secret::new("It is a secret to everybody");
/// let signature = sign(&secret, 1_792_000_000, b"{}");
/// assert_eq!(signature.len(), "v1=".len() + 64);
/// assert_ne!(signature, sign(&secret, 1_792_000_001, b"{}"));
/// ```
pub fn sign(secret: &Secret, timestamp_s: u64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.reveal().as_bytes());
    let mut signing = hmac::Context::with_key(&key);
    signing.update(timestamp_s.to_string().as_bytes());
    signing.update(b".");
    signing.update(body);
    format!("v1={}", hex(signing.sign().as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected value was computed with another implementation:
    /// `printf '1792000000.{"a":1}' | openssl dgst -sha256 -hmac key`.
    #[test]
    fn a_signature_equals_that_of_openssl() {
        let signature = sign(&Secret::new("key"), 1_792_000_000, br#"{"a":1}"#);
        assert_eq!(
            signature,
            "v1=54513e689a5828cbddbd26eef2a390496638791ddce0c2d2f10b2ea6296d70e4"
        );
    }
}
