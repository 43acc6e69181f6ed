//! Log lines about requests without a usable key.

use crate::http::identity::IdentityError;
use crate::limiter::RateLimiter;
use crate::telemetry::LogThrottle;

/// Logs requests without a usable key, at most one line a second of each level.
#[derive(Debug, Default)]
pub(super) struct NoKeyLog {
    /// Apart from the others, so that callers without a key cannot suppress the line about the
    /// service's own mistake.
    missing_peers: LogThrottle,
    missing_keys: LogThrottle,
}

impl NoKeyLog {
    /// `error` is the identity's, or `None` if a rule's own key function returned no key.
    pub(super) fn write(&self, limiter: &RateLimiter, error: Option<IdentityError>) {
        let now_us = limiter.now_us();
        match error {
            Some(error @ IdentityError::UnknownPeer) => {
                if let Some(suppressed) = self.missing_peers.allow(now_us) {
                    tracing::error!(
                        target: "balde",
                        event_type = "no_key",
                        decision = "deny",
                        reason = "no_key",
                        policy = limiter.name(),
                        suppressed,
                        "answered 500, because the service is not set up to identify callers: {error}"
                    );
                }
            }
            error => {
                if let Some(suppressed) = self.missing_keys.allow(now_us) {
                    let why = error.map(|error| error.to_string());
                    let why = why.as_deref();
                    tracing::warn!(
                        target: "balde",
                        event_type = "no_key",
                        decision = "deny",
                        reason = "no_key",
                        policy = limiter.name(),
                        suppressed,
                        "refused a request without a usable key: {}",
                        why.unwrap_or("the key function of the limit returned none")
                    );
                }
            }
        }
    }
}
