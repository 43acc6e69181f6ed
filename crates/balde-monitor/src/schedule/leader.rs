//! One monitor leads, the others stand by. What a leader does besides polling is the same whoever
//! schedules the polls.

use std::time::Duration;

use crate::cycle::Cycle;
use crate::history::{Leadership, Retention};
use crate::status::Status;

/// How often a monitor that does not lead tries to.
pub const STANDBY_US: u64 = 5_000_000;

/// How often time alone is looked at: staleness, reminders, silences that end.
pub(super) const REMIND_US: u64 = 10_000_000;

/// How often old rows are looked for.
pub(super) const UPKEEP_US: u64 = 3_600_000_000;

/// How long cycles under way may take once the end has come.
pub(super) const GRACE: Duration = Duration::from_secs(10);

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
                if !upkeep.is_more {
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
