//! One token bucket: a limit, and its state by the arithmetic of `balde-core`.

use balde_core::{Command, Decision, Limit, State, Wait};

/// A bucket that starts empty, so that its first second grants no more than the rate.
///
/// A request for more than the burst has to save up for it: while it is first in line, the bucket is
/// [stretched](Bucket::stretch) to hold as many tokens. So the tokens of a request are always taken
/// when it is granted, and what is granted in any interval is at most the refill and one burst, or one
/// such request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    limit: Limit,
    /// The limit with room for the request that is first in line.
    stretched: Limit,
    state: Option<State>,
}

impl Bucket {
    pub(crate) fn new(limit: Limit, now_us: u64) -> Self {
        let state = limit.apply(None, Command::Peek, now_us).state();
        Self {
            limit,
            stretched: limit,
            state,
        }
    }

    pub(crate) const fn burst(&self) -> u64 {
        self.limit.capacity()
    }

    /// Makes room for a request of `n` tokens, and no more than that or the burst. The level stays, as
    /// far as there is room for it. Returns false if so many cannot be counted exactly.
    #[inline]
    pub(crate) fn stretch(&mut self, n: u64, now_us: u64) -> bool {
        if n.max(self.burst()) == self.stretched.capacity() {
            return true;
        }
        self.stretch_to(n.max(self.burst()), now_us)
    }

    /// [`stretch`](Bucket::stretch) that only adds room.
    #[inline]
    pub(crate) fn stretch_up(&mut self, n: u64, now_us: u64) {
        if n > self.stretched.capacity() {
            self.stretch_to(n, now_us);
        }
    }

    #[cold]
    fn stretch_to(&mut self, capacity: u64, now_us: u64) -> bool {
        let old = self.stretched;
        let Some(new) = with_capacity(&self.limit, capacity) else {
            return false;
        };
        let state = old.apply(self.state, Command::Peek, now_us).state();
        self.state = old.resize_to(&new, state);
        self.stretched = new;
        true
    }

    /// How long until the bucket has `n` tokens, or `None` if it has them. `u64::MAX` for more than
    /// there is room for.
    #[inline]
    pub(crate) fn wait_us(&self, n: u64, now_us: u64) -> Option<u64> {
        match self.decide(Command::Take { n }, now_us).wait() {
            Wait::None => None,
            Wait::Us(us) => Some(us.max(1)),
            Wait::Never => Some(u64::MAX),
        }
    }

    /// Takes `n` tokens, or none.
    #[inline]
    pub(crate) fn take(&mut self, n: u64, now_us: u64) -> bool {
        let decision = self.decide(Command::Take { n }, now_us);
        self.state = decision.state();
        decision.is_allowed()
    }

    /// Debits tokens that were granted earlier, into debt if necessary.
    pub(crate) fn charge(&mut self, n: u64, now_us: u64) {
        self.state = self.decide(Command::Charge { n }, now_us).state();
    }

    /// Gives tokens back, never above the burst.
    pub(crate) fn credit(&mut self, n: u64, now_us: u64) {
        self.state = self.decide(Command::Credit { n }, now_us).state();
    }

    /// Whole tokens in the bucket.
    pub(crate) fn level(&self, now_us: u64) -> u64 {
        self.decide(Command::Peek, now_us).remaining()
    }

    /// Changes the limit. The bucket keeps its deficit, and no tokens are added.
    pub(crate) fn change(&mut self, limit: Limit, now_us: u64) {
        let was_stretched = self.stretched.capacity() > self.burst();
        let room = self.stretched.capacity().max(limit.capacity());
        let new = was_stretched
            .then(|| with_capacity(&limit, room))
            .flatten()
            .unwrap_or(limit);
        self.state = self.stretched.change_to(&new, self.state, now_us);
        self.limit = limit;
        self.stretched = new;
    }

    #[inline]
    fn decide(&self, command: Command, now_us: u64) -> Decision {
        self.stretched.apply(self.state, command, now_us)
    }
}

fn with_capacity(limit: &Limit, capacity: u64) -> Option<Limit> {
    if capacity == limit.capacity() {
        return Some(*limit);
    }
    limit.with_capacity(capacity).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn bucket() -> Bucket {
        let limit: Limit = "300/s burst 30 empty".parse().unwrap();
        Bucket::new(limit, 0)
    }

    #[test]
    fn a_stretched_bucket_saves_up_and_forgets_what_is_more_than_the_burst() {
        let mut bucket = bucket();
        assert_eq!(bucket.wait_us(50, 0), Some(u64::MAX));
        assert!(bucket.stretch(50, SECOND));
        // It held no more than the burst before.
        assert_eq!(bucket.level(SECOND), 30);
        assert_eq!(bucket.wait_us(50, SECOND), Some(66_667));
        assert!(bucket.take(50, SECOND + 66_667));
        assert_eq!(bucket.level(SECOND + 66_667), 0);
        assert_eq!(bucket.level(9 * SECOND), 50);
        assert!(bucket.stretch(1, 9 * SECOND));
        assert_eq!((bucket.level(9 * SECOND), bucket.burst()), (30, 30));
        assert!(!bucket.stretch(u64::MAX, 9 * SECOND));
    }

    #[test]
    fn a_slower_rate_keeps_what_was_saved() {
        let mut bucket = bucket();
        assert!(bucket.stretch(50, 0));
        assert_eq!(bucket.level(SECOND / 10), 30);
        bucket.change("150/s burst 15 empty".parse().unwrap(), SECOND / 10);
        assert_eq!(bucket.level(SECOND / 10), 30);
        assert_eq!(bucket.wait_us(50, SECOND / 10), Some(133_334));
        assert_eq!(bucket.burst(), 15);
    }
}
