//! The times that header fields report about one decision.

use balde_core::{Command, Strategy, Wait};

use crate::decision::Decision;

/// `X-RateLimit-Reset`: the time until the window ends, or until the next request of this size would
/// pass.
pub(super) fn reset_us(decision: &Decision) -> u64 {
    let core = decision.core();
    match (decision.wait(), core.limit().strategy()) {
        // Rounds up to at least one second, as Retry-After does.
        (Wait::Us(us), _) => us.max(1),
        (Wait::Never, _) | (_, Strategy::FixedWindow) => core.full_after_us(),
        (Wait::None, _) => {
            let again = match core.command() {
                same @ (Command::Take { .. } | Command::TakeUpTo { .. }) => same,
                _ => Command::Take { n: 1 },
            };
            if let Command::Take { n } = again
                && core.has_room_for(n)
            {
                return 0;
            }
            core.then(again).retry_after_us().unwrap_or(0)
        }
    }
}

/// The `t` of `RateLimit`: the time in which no more than the remaining tokens can be used.
///
/// On refusal it is the time until the same request would pass, so that it is never shorter than
/// `Retry-After`; otherwise the time until the bucket is full or the window ends.
pub(super) fn effective_us(decision: &Decision) -> u64 {
    match decision.wait() {
        Wait::Us(us) => us.max(1),
        Wait::None | Wait::Never => decision.core().full_after_us(),
    }
}
