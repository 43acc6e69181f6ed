//! Leadership among the monitors of one database, and the leader's periodic tasks. Shared by both
//! schedulers.

use std::time::Duration;

use crate::cycle::Cycle;
use crate::history::{Leadership, Retention};
use crate::status::Status;

/// How often a standby monitor tries to become the leader.
const LEADER_RETRY_US: u64 = 5_000_000;

/// How often staleness, reminders and the end of silences are evaluated.
const TIMER_CHECK_US: u64 = 10_000_000;

/// How often retention is enforced.
const RETENTION_US: u64 = 3_600_000_000;

/// The longest time that cycles in flight may take after shutdown was requested.
pub(super) const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// When the leader's periodic tasks run next.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeriodicTasks {
    timer_check_us: u64,
    retention_us: u64,
}

impl PeriodicTasks {
    /// Retention is due at once, the timer check after its interval.
    pub(super) fn from(now_us: u64) -> Self {
        Self {
            timer_check_us: now_us.saturating_add(TIMER_CHECK_US),
            retention_us: now_us,
        }
    }

    /// Limits the next runs to one interval from now. Called in every iteration, because after the
    /// clock was set back they would be too far in the future.
    pub(super) fn adjust_to_clock(&mut self, now_us: u64) {
        self.timer_check_us = self
            .timer_check_us
            .min(now_us.saturating_add(TIMER_CHECK_US));
        self.retention_us = self.retention_us.min(now_us.saturating_add(RETENTION_US));
    }

    /// Returns true if the timer check is due, and schedules the next one.
    pub(super) fn is_timer_check_due(&mut self, now_us: u64) -> bool {
        let is_due = now_us >= self.timer_check_us;
        if is_due {
            self.timer_check_us = now_us.saturating_add(TIMER_CHECK_US);
        }
        is_due
    }

    /// Returns true if retention is due, and schedules the next run.
    pub(super) fn is_retention_due(&mut self, now_us: u64) -> bool {
        let is_due = now_us >= self.retention_us;
        if is_due {
            self.retention_us = now_us.saturating_add(RETENTION_US);
        }
        is_due
    }

    /// When the next timer check is due.
    pub(super) const fn timer_check_us(&self) -> u64 {
        self.timer_check_us
    }
}

/// Why a leader's term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TermEnd {
    Shutdown,
    LeadershipLost,
}

/// Waits until this monitor is the leader. Returns `None` if `shutdown` completes first.
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
                    "this monitor is now the leader and starts polling"
                );
                status.set_leader(true);
                return Some(leadership);
            }
            Ok(None) => {}
            // Logged by the storage check, with its cause.
            Err(_) => cycle.components().history.health().suspect(),
        }
        tokio::select! {
            () = time.sleep_until(time.now_us().saturating_add(LEADER_RETRY_US)) => {}
            () = &mut *shutdown => return None,
        }
    }
}

/// Returns true if this monitor may go on leading: it holds the leadership, can take it again, or
/// cannot ask. Nobody else can take it while the database is away. A monitor that alone cannot reach
/// the database goes on besides the new leader until it can ask again: alerts twice, with the same
/// keys, are better than none. While the database is known to be away it is not asked, because the
/// answer would take as long as its timeouts.
pub(super) async fn still_leads(leadership: &mut Leadership, cycle: &Cycle) -> bool {
    let history = &cycle.components().history;
    if history.health().failure().is_some() || leadership.is_held().await {
        return true;
    }
    history.health().suspect();
    match history.lead().await {
        Ok(Some(again)) => {
            *leadership = again;
            true
        }
        Ok(None) => false,
        Err(_) => true,
    }
}

/// Records the end of a leader's term.
pub(super) fn step_down(status: &Status, ended: Option<TermEnd>) {
    status.set_leader(false);
    if ended == Some(TermEnd::LeadershipLost) {
        tracing::warn!(
            event_type = "leadership_lost",
            "this monitor lost the leadership and stops polling"
        );
    }
}

/// Deletes and downsamples old data in short transactions, until none is left.
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
                tracing::debug!(?upkeep, "enforced retention");
                if !upkeep.has_more {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(event_type = "history_error", error = %error, "retention could not be enforced; it is retried within the hour");
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
    fn a_clock_that_is_set_back_by_a_day_does_not_delay_tasks_by_a_day() {
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
