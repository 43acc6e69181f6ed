//! One token bucket: a limit, and its state by the arithmetic of `balde-core`.

use balde_core::{Command, Decision, Limit, State, Wait};

/// A bucket that starts empty, so that its first second grants no more than the rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    limit: Limit,
    state: Option<State>,
}

impl Bucket {
    pub(crate) fn new(limit: Limit, now_us: u64) -> Self {
        let state = limit.apply(None, Command::Peek, now_us).state();
        Self { limit, state }
    }

    pub(crate) const fn burst(&self) -> u64 {
        self.limit.capacity()
    }

    /// How long until the bucket has `n` tokens, or `None` if it has them. `u64::MAX` for more than the
    /// burst.
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
        self.state = self.limit.change_to(&limit, self.state, now_us);
        self.limit = limit;
    }

    #[inline]
    fn decide(&self, command: Command, now_us: u64) -> Decision {
        self.limit.apply(self.state, command, now_us)
    }
}
