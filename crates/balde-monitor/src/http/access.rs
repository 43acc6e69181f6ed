//! Who may make and end silences.

use std::fmt;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};

/// Who may change something through the API. Reading is for everybody who can connect.
#[derive(Clone)]
pub enum WriteAccess {
    /// Everybody who can connect: for a monitor that listens on this machine only.
    Anyone,
    /// Who has this token: `Authorization: Bearer …`.
    Token(String),
    /// Nobody: for a monitor that listens to the network and has no token.
    Denied,
}

impl WriteAccess {
    pub(super) fn allow(&self, headers: &HeaderMap) -> bool {
        match self {
            Self::Anyone => true,
            Self::Denied => false,
            Self::Token(token) => {
                let told = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
                let told = told.and_then(|value| value.strip_prefix(b"Bearer "));
                // By digest, so that the time it takes tells nothing about the token.
                let digest = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
                told.is_some_and(|told| digest(told).as_ref() == digest(token.as_bytes()).as_ref())
            }
        }
    }
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
