//! Log lines about requests without a usable key.

use std::fmt::Display;

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
    /// The service does not provide the address of its peers.
    pub(super) fn peer(&self, policy: &str, missing: &dyn Display, now_us: u64) {
        if let Some(suppressed) = self.missing_peers.allow(now_us) {
            tracing::error!(
                target: "balde",
                event_type = "no_key",
                decision = "deny",
                reason = "no_key",
                policy,
                suppressed,
                "answered 500, because the service is not set up to identify callers: {missing}"
            );
        }
    }

    /// The request lacks a part of a key.
    pub(super) fn key(&self, policy: &str, missing: &dyn Display, now_us: u64) {
        if let Some(suppressed) = self.missing_keys.allow(now_us) {
            tracing::warn!(
                target: "balde",
                event_type = "no_key",
                decision = "deny",
                reason = "no_key",
                policy,
                suppressed,
                "refused a request without a usable key: {missing}"
            );
        }
    }
}
