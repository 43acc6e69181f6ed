//! Requests that have no bucket under a policy that counts them: whose fault that is, and the log.

use std::time::Instant;

use balde::http::{IdentityError, Problem};
use balde::telemetry::LogThrottle;

use crate::engine::NoBucketError;
use crate::policy::{KeyError, KeyPart};

/// A request that lacks a part of a bucket's key.
pub(super) struct NoKey<'a> {
    error: &'a NoBucketError,
    /// The user is missing because the service does not provide the address of its peers.
    is_peer_missing: bool,
}

impl<'a> NoKey<'a> {
    /// `user` is why the request has no user, if it has none.
    pub(super) fn new(error: &'a NoBucketError, user: Option<IdentityError>) -> Self {
        let part = KeyPart::User;
        Self {
            error,
            is_peer_missing: user == Some(IdentityError::UnknownPeer)
                && *error.key_error() == KeyError::Missing { part },
        }
    }

    pub(super) fn problem(&self) -> Problem {
        if self.is_peer_missing {
            Problem::missing_peer()
        } else {
            Problem::missing_key()
        }
    }
}

/// Logs requests without a bucket, at most one line a second of each level.
#[derive(Debug)]
pub(super) struct NoKeyLog {
    started: Instant,
    /// Apart from the others, so that callers without a key cannot suppress the line about the
    /// service's own mistake.
    missing_peers: LogThrottle,
    missing_keys: LogThrottle,
}

impl Default for NoKeyLog {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            missing_peers: LogThrottle::new(),
            missing_keys: LogThrottle::new(),
        }
    }
}

impl NoKeyLog {
    pub(super) fn write(&self, no_key: &NoKey<'_>) {
        let error = no_key.error;
        let now_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        if no_key.is_peer_missing {
            if let Some(suppressed) = self.missing_peers.allow(now_us) {
                tracing::error!(
                    target: "balde",
                    event_type = "no_key",
                    decision = "deny",
                    reason = "no_key",
                    policy = error.policy(),
                    suppressed,
                    "answered 500, because the service is not set up to identify callers: {}",
                    IdentityError::UnknownPeer
                );
            }
        } else if let Some(suppressed) = self.missing_keys.allow(now_us) {
            tracing::warn!(
                target: "balde",
                event_type = "no_key",
                decision = "deny",
                reason = "no_key",
                policy = error.policy(),
                suppressed,
                "refused a request without a usable key: {error}"
            );
        }
    }
}
