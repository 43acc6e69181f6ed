//! What the fields say of one limit, as values.

use balde_core::{Command, Strategy, Wait};

use crate::decision::Decision;

/// What the fields say of one limit. Small enough to be carried along until the answer is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldValues {
    pub(super) remaining: u64,
    /// For `X-RateLimit-Reset`.
    pub(super) reset_us: u64,
    /// For the `t` of `RateLimit`.
    pub(super) effective_us: u64,
}

impl FieldValues {
    /// By value, so that nobody needs the decision in memory who does not come here.
    pub(super) fn of(decision: Decision) -> Self {
        Self {
            remaining: decision.remaining(),
            reset_us: reset_us(&decision),
            effective_us: effective_us(&decision),
        }
    }
}

/// Until the window ends, or until the next request of this size would pass.
pub(super) fn reset_us(decision: &Decision) -> u64 {
    let core = decision.core();
    match (decision.wait(), core.limit().strategy()) {
        // At least a second, as Retry-After says.
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
            let next = core.limit().apply(core.state(), again, core.now_us());
            next.retry_after_us().unwrap_or(0)
        }
    }
}

/// The time in which no more than what remains can be used, as `t` is defined: until the same
/// request would pass, where it was refused, so that `t` never promises less than `Retry-After`;
/// else until the bucket is full or the window ends.
pub(super) fn effective_us(decision: &Decision) -> u64 {
    match decision.wait() {
        Wait::Us(us) => us.max(1),
        Wait::None | Wait::Never => decision.core().full_after_us(),
    }
}
