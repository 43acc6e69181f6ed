//! A bucket's state as a store keeps it, and its snapshot at one moment.

use crate::Limit;

/// The state of a bucket as a store keeps it: two integers.
///
/// For a token bucket `owed` is its deficit: the number of units that it was below full at `at_us`.
/// For a fixed window it is the number of tokens used in the window that ends at `at_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    owed: u64,
    at_us: u64,
}

impl State {
    /// Creates a state that was read from a store. Any numbers are accepted: more than the limit's
    /// largest debt is clamped when the state is used.
    pub const fn new(owed: u64, at_us: u64) -> Self {
        Self { owed, at_us }
    }

    /// The deficit in units; for a fixed window, the tokens used.
    pub const fn owed(self) -> u64 {
        self.owed
    }

    /// The time as of which `owed` holds; for a fixed window, its end.
    pub const fn at_us(self) -> u64 {
        self.at_us
    }
}

/// A bucket refilled to one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub(crate) owed: u64,
    /// The time as of which `owed` holds: now, or later if the clock stepped back behind the state.
    /// For an open window its end; for a closed one zero.
    pub(crate) at_us: u64,
    pub(crate) now_us: u64,
}

impl Snapshot {
    /// Creates the snapshot of a token bucket with a deficit of `owed` units now. For stores that
    /// keep the time at which a bucket is full instead of a [`State`].
    #[inline]
    pub const fn of_bucket(limit: &Limit, owed: u64, now_us: u64) -> Self {
        let owed_max = limit.owed_max();
        Self {
            owed: if owed < owed_max { owed } else { owed_max },
            at_us: limit.tick(now_us),
            now_us,
        }
    }

    /// Creates the snapshot of a token bucket with a deficit of `owed` units at `at_us`, a time
    /// that the caller's clock has not reached.
    pub const fn of_bucket_at(limit: &Limit, owed: u64, at_us: u64, now_us: u64) -> Self {
        Self {
            at_us,
            ..Self::of_bucket(limit, owed, now_us)
        }
    }

    /// Creates the snapshot of a fixed window with `used` tokens taken, which ends at `end_us`.
    #[inline]
    pub const fn of_window(limit: &Limit, used: u64, end_us: u64, now_us: u64) -> Self {
        let open = used > 0 && end_us > now_us;
        let owed_max = limit.owed_max();
        Self {
            owed: if !open {
                0
            } else if used < owed_max {
                used
            } else {
                owed_max
            },
            at_us: if open { end_us } else { 0 },
            now_us,
        }
    }

    /// The deficit in units; for a fixed window, the tokens used.
    pub const fn owed(&self) -> u64 {
        self.owed
    }
}
