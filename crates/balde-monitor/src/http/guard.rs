//! Who may make and end silences.

use std::fmt;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};

/// Who may change something through the API. Reading is for everybody who can connect.
#[derive(Clone)]
pub enum Writers {
    /// Everybody who can connect: for a monitor that listens on this machine only.
    Anybody,
    /// Who has this token: `Authorization: Bearer …`.
    Token(String),
    /// Nobody: for a monitor that listens to the network and has no token.
    Nobody,
}

impl Writers {
    pub(super) fn allow(&self, headers: &HeaderMap) -> bool {
        match self {
            Self::Anybody => true,
            Self::Nobody => false,
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

impl fmt::Debug for Writers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anybody => "Anybody",
            Self::Token(_) => "Token",
            Self::Nobody => "Nobody",
        })
    }
}
