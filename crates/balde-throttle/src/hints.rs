//! What a server has said about its own limits, for as long as it applies.

use std::time::Duration;

use crate::micros::whole_us;
use crate::outcome::Report;

/// The pause and the remaining quota that a server has announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerHints {
    paused_until_us: u64,
    quota: Option<Quota>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quota {
    remaining: u64,
    reset_at_us: u64,
}

impl ServerHints {
    pub(crate) const fn is_empty(&self) -> bool {
        self.paused_until_us == 0 && self.quota.is_none()
    }

    pub(crate) const fn is_paused(&self, now_us: u64) -> bool {
        now_us < self.paused_until_us
    }

    /// Applies what a response said. The server may or may not have counted requests that were in
    /// flight when it answered, so their tokens are subtracted from what it has left.
    pub(crate) fn apply(
        &mut self,
        report: &Report,
        in_flight: u64,
        pause_max_us: u64,
        now_us: u64,
    ) {
        let after = |wait: Duration| now_us.saturating_add(whole_us(wait).min(pause_max_us));
        if let Some(wait) = report.retry_after {
            self.paused_until_us = self.paused_until_us.max(after(wait));
        }
        if let Some((remaining, reset)) = report.remaining {
            self.quota = Some(Quota {
                remaining: remaining.saturating_sub(in_flight),
                reset_at_us: after(reset),
            });
        }
    }

    /// When `n` tokens can be taken, or `None` if now. Hints that no longer apply are removed.
    pub(crate) fn wait_until(&mut self, n: u64, now_us: u64) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        if self.paused_until_us > now_us {
            return Some(self.paused_until_us);
        }
        self.paused_until_us = 0;
        match self.quota {
            Some(quota) if quota.reset_at_us <= now_us => {
                self.quota = None;
                None
            }
            Some(quota) if quota.remaining < n => Some(quota.reset_at_us),
            _ => None,
        }
    }

    pub(crate) fn record_taken(&mut self, n: u64) {
        if let Some(quota) = &mut self.quota {
            quota.remaining = quota.remaining.saturating_sub(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_pause_lasts_as_long_as_the_server_asked_and_no_longer_than_pause_max() {
        let mut hints = ServerHints::default();
        let wait = |s| Report::from(Outcome::Pushback).retry_after(Duration::from_secs(s));
        hints.apply(&wait(2), 0, 60 * SECOND, 0);
        hints.apply(&wait(1), 0, 60 * SECOND, 0);
        assert_eq!(hints.wait_until(1, SECOND), Some(2 * SECOND));
        assert_eq!(hints.wait_until(1, 2 * SECOND), None);
        assert!(hints.is_empty());
        hints.apply(&wait(86_400 * 365), 0, 60 * SECOND, 0);
        assert_eq!(hints.wait_until(1, 0), Some(60 * SECOND));
    }

    #[test]
    fn no_more_than_the_servers_remaining_quota_is_taken_before_its_reset() {
        let mut hints = ServerHints::default();
        let left = Report::from(Outcome::Success).remaining(10, Duration::from_secs(5));
        hints.apply(&left, 4, 60 * SECOND, 0);
        assert_eq!(hints.wait_until(6, 0), None);
        hints.record_taken(6);
        assert_eq!(hints.wait_until(1, SECOND), Some(5 * SECOND));
        assert_eq!(hints.wait_until(1, 5 * SECOND), None);
        assert!(hints.is_empty());
    }
}
