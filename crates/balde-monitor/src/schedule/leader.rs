//! One monitor leads, the others stand by. What a leader does besides polling is the same whoever
//! schedules the polls.

use std::time::Duration;

use crate::cycle::Cycle;
use crate::history::{Leadership, Retention};
use crate::status::Status;

/// How often a monitor that does not lead tries to.
pub const LEADER_RETRY_US: u64 = 5_000_000;

/// How often time alone is looked at: staleness, reminders, silences that end.
const TIMER_CHECK_US: u64 = 10_000_000;

/// How often old rows are looked for.
const RETENTION_US: u64 = 3_600_000_000;

/// How long cycles under way may take once the end has come.
pub(super) const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// When a leader next looks at what time alone brings, and at what is old.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeriodicTasks {
    timer_check_us: u64,
    retention_us: u64,
}

impl PeriodicTasks {
    /// Maintenance at once, reminders after a while.
    pub(super) fn from(now_us: u64) -> Self {
        Self {
            timer_check_us: now_us.saturating_add(TIMER_CHECK_US),
            retention_us: now_us,
        }
    }

    /// To be called with every turn. After the clock was put back, what is to happen by the old one
    /// is too far away.
    pub(super) fn adjust_to_clock(&mut self, now_us: u64) {
        self.timer_check_us = self
            .timer_check_us
            .min(now_us.saturating_add(TIMER_CHECK_US));
        self.retention_us = self.retention_us.min(now_us.saturating_add(RETENTION_US));
    }

    /// Whether it is time to remind; if so, the next time is set.
    pub(super) fn is_timer_check_due(&mut self, now_us: u64) -> bool {
        let is_time = now_us >= self.timer_check_us;
        if is_time {
            self.timer_check_us = now_us.saturating_add(TIMER_CHECK_US);
        }
        is_time
    }

    /// The same for upkeep.
    pub(super) fn is_retention_due(&mut self, now_us: u64) -> bool {
        let is_time = now_us >= self.retention_us;
        if is_time {
            self.retention_us = now_us.saturating_add(RETENTION_US);
        }
        is_time
    }

    /// When to remind next.
    pub(super) const fn timer_check_us(&self) -> u64 {
        self.timer_check_us
    }
}

/// Why a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TermEnd {
    Shutdown,
    LeadershipLost,
}

/// Waits until this monitor leads; nothing when the end came first.
pub(super) async fn acquire_leadership(
    cycle: &Cycle,
    status: &Status,
    shutdown: &mut (impl Future<Output = ()> + Unpin),
) -> Option<Leadership> {
    let time = &cycle.components().time;
    loop {
        status.record_loop_iteration();
        match cycle.components().history.lead().await {
            Ok(Some(leadership)) => {
                tracing::info!(
                    event_type = "leadership_acquired",
                    "this monitor polls from now on"
                );
                status.set_leader(true);
                return Some(leadership);
            }
            Ok(None) => {}
            Err(error) => tracing::error!(
                event_type = "history_error",
                error = %error,
                "whether this monitor leads cannot be found out"
            ),
        }
        tokio::select! {
            () = time.sleep_until(time.now_us().saturating_add(LEADER_RETRY_US)) => {}
            () = &mut *shutdown => return None,
        }
    }
}

/// Takes note that a term is over, whyever.
pub(super) fn step_down(status: &Status, ended: Option<TermEnd>) {
    status.set_leader(false);
    if ended == Some(TermEnd::LeadershipLost) {
        tracing::warn!(event_type = "leadership_lost", "this monitor polls no more");
    }
}

/// Deletes and thins out what is old, in short periodic.
pub(super) async fn enforce_retention(cycle: Cycle, retention: Retention) {
    const PAUSE: Duration = Duration::from_millis(100);
    loop {
        let now_us = cycle.components().time.now_us();
        match cycle
            .components()
            .history
            .maintain(now_us, &retention)
            .await
        {
            Ok(upkeep) => {
                tracing::debug!(?upkeep, "upkeep");
                if !upkeep.has_more {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(event_type = "history_error", error = %error, "upkeep has to wait");
                return;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_put_back_by_a_day_puts_nothing_off_by_one() {
        const DAY_US: u64 = 86_400_000_000;
        let mut periodic = PeriodicTasks::from(DAY_US);
        assert!(periodic.is_retention_due(DAY_US));
        assert!(!periodic.is_retention_due(DAY_US));
        periodic.adjust_to_clock(0);
        assert_eq!(periodic.timer_check_us(), TIMER_CHECK_US);
        assert!(!periodic.is_timer_check_due(TIMER_CHECK_US - 1));
        assert!(periodic.is_timer_check_due(TIMER_CHECK_US));
        assert!(!periodic.is_timer_check_due(TIMER_CHECK_US));
        assert!(periodic.is_retention_due(RETENTION_US));
    }
}
