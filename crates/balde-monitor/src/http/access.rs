//! Who may create and end silences.

use std::fmt;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};

/// Who may write through the API. Every client that can connect may read.
#[derive(Clone)]
pub enum WriteAccess {
    /// Every client that can connect: for a monitor that listens on a loopback address only.
    Anyone,
    /// Clients that send this token: `Authorization: Bearer …`.
    Token(String),
    /// No client: for a monitor that listens on the network and has no token.
    Denied,
}

impl WriteAccess {
    /// The name in the status; the dashboard shows what a user needs to make changes.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Anyone => "anyone",
            Self::Token(_) => "token",
            Self::Denied => "denied",
        }
    }

    pub(super) fn allow(&self, headers: &HeaderMap) -> bool {
        match self {
            Self::Anyone => true,
            Self::Denied => false,
            Self::Token(token) => {
                let sent = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
                // The name of a scheme is case-insensitive (RFC 9110, section 11.1).
                let sent = sent.and_then(|value| value.split_at_checked("Bearer ".len()));
                let sent = sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
                let sent = sent.map(|(_, token)| token.trim_ascii());
                sent.is_some_and(|sent| is_same(sent, token.as_bytes()))
            }
        }
    }
}

/// Compares in constant time: digests of one length, and every byte of them. The duration reveals
/// neither how much of a guess is right nor how long the token is.
fn is_same(sent: &[u8], token: &[u8]) -> bool {
    let digest = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
    let (sent, token) = (digest(sent), digest(token));
    let bytes = sent.as_ref().iter().zip(token.as_ref());
    let difference = bytes.fold(0, |all, (one, other)| all | (one ^ other));
    std::hint::black_box(difference) == 0
}

impl fmt::Debug for WriteAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anyone => "Anyone",
            Self::Token(_) => "Token",
            Self::Denied => "Denied",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_accepted() {
        let access = WriteAccess::Token("secret".to_owned());
        let allows = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            access.allow(&headers)
        };
        assert!(allows("Bearer secret") && allows("bearer secret") && allows("Bearer  secret "));
        for wrong in [
            "Bearer ",
            "Bearer",
            "secret",
            "Bearer secre",
            "Bearer secrets",
            "Bearer Secret",
            "Basic secret",
            "Bearer tecret",
        ] {
            assert!(!allows(wrong), "{wrong}");
        }
        assert!(!access.allow(&HeaderMap::new()));
    }
}
