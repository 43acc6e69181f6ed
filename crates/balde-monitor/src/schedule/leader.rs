//! One monitor leads, the others stand by. What a leader does besides polling is the same whoever
//! schedules the polls.

use std::time::Duration;

use crate::cycle::Cycle;
use crate::history::{Leadership, Retention};
use crate::status::Status;

/// How often a monitor that does not lead tries to.
pub const STANDBY_US: u64 = 5_000_000;

/// How often time alone is looked at: staleness, reminders, silences that end.
const REMIND_US: u64 = 10_000_000;

/// How often old rows are looked for.
const UPKEEP_US: u64 = 3_600_000_000;

/// How long cycles under way may take once the end has come.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// When a leader next looks at what time alone brings, and at what is old.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    remind_us: u64,
    upkeep_us: u64,
}

impl Rounds {
    /// Maintenance at once, reminders after a while.
    pub(super) fn from(now_us: u64) -> Self {
        Self {
            remind_us: now_us.saturating_add(REMIND_US),
            upkeep_us: now_us,
        }
    }

    /// To be called with every turn. After the clock was put back, what is to happen by the old one
    /// is too far away.
    pub(super) fn heal(&mut self, now_us: u64) {
        self.remind_us = self.remind_us.min(now_us.saturating_add(REMIND_US));
        self.upkeep_us = self.upkeep_us.min(now_us.saturating_add(UPKEEP_US));
    }

    /// Whether it is time to remind; if so, the next time is set.
    pub(super) fn is_time_to_remind(&mut self, now_us: u64) -> bool {
        let is_time = now_us >= self.remind_us;
        if is_time {
            self.remind_us = now_us.saturating_add(REMIND_US);
        }
        is_time
    }

    /// The same for upkeep.
    pub(super) fn is_time_for_upkeep(&mut self, now_us: u64) -> bool {
        let is_time = now_us >= self.upkeep_us;
        if is_time {
            self.upkeep_us = now_us.saturating_add(UPKEEP_US);
        }
        is_time
    }

    /// When to remind next.
    pub(super) const fn remind_us(&self) -> u64 {
        self.remind_us
    }
}

/// Why a reign ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Shutdown,
    Deposed,
}

/// Waits until this monitor leads; nothing when the end came first.
pub(super) async fn until_leading(
    cycle: &Cycle,
    status: &Status,
    shutdown: &mut (impl Future<Output = ()> + Unpin),
) -> Option<Leadership> {
    let time = &cycle.parts().time;
    loop {
        status.turned();
        match cycle.parts().history.lead().await {
            Ok(Some(leadership)) => {
                tracing::info!(event_type = "leading", "this monitor polls from now on");
                status.lead(true);
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
            () = time.sleep_until(time.now_us().saturating_add(STANDBY_US)) => {}
            () = &mut *shutdown => return None,
        }
    }
}

/// Takes note that a reign is over, whyever.
pub(super) fn step_down(status: &Status, ended: Option<Ended>) {
    status.lead(false);
    if ended == Some(Ended::Deposed) {
        tracing::warn!(event_type = "deposed", "this monitor polls no more");
    }
}

/// Deletes and thins out what is old, in short rounds.
pub(super) async fn keep_up(cycle: Cycle, retention: Retention) {
    const PAUSE: Duration = Duration::from_millis(100);
    loop {
        let now_us = cycle.parts().time.now_us();
        match cycle.parts().history.maintain(now_us, &retention).await {
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
        let mut rounds = Rounds::from(DAY_US);
        assert!(rounds.is_time_for_upkeep(DAY_US));
        assert!(!rounds.is_time_for_upkeep(DAY_US));
        rounds.heal(0);
        assert_eq!(rounds.remind_us(), REMIND_US);
        assert!(!rounds.is_time_to_remind(REMIND_US - 1));
        assert!(rounds.is_time_to_remind(REMIND_US));
        assert!(!rounds.is_time_to_remind(REMIND_US));
        assert!(rounds.is_time_for_upkeep(UPKEEP_US));
    }
}
