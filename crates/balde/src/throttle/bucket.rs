//! One bucket: the core's arithmetic, and the limit it goes by now.

use balde_core::{Command, Decision, Limit, State, Wait};

/// Buckets start empty, so that the first second brings no more than the rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    limit: Limit,
    state: Option<State>,
}

impl Bucket {
    pub(super) fn new(limit: Limit, now_us: u64) -> Self {
        let state = limit.apply(None, Command::Peek, now_us).state();
        Self { limit, state }
    }

    pub(super) const fn burst(&self) -> u64 {
        self.limit.capacity()
    }

    /// How long until `n` tokens are there; nothing if they are. Callers ask for no more than the
    /// burst; more would be for ever.
    #[inline]
    pub(super) fn wait_us(&self, n: u64, now_us: u64) -> Option<u64> {
        match self.request(Command::Take { n }, now_us).wait() {
            Wait::None => None,
            Wait::Us(us) => Some(us.max(1)),
            Wait::Never => Some(u64::MAX),
        }
    }

    /// Takes `n` tokens, or none.
    #[inline]
    pub(super) fn take(&mut self, n: u64, now_us: u64) -> bool {
        let decision = self.request(Command::Take { n }, now_us);
        self.state = decision.state();
        decision.is_allowed()
    }

    /// Debits what has been given away already.
    pub(super) fn charge(&mut self, n: u64, now_us: u64) {
        self.state = self.request(Command::Charge { n }, now_us).state();
    }

    /// Gives tokens back, never above the burst.
    pub(super) fn credit(&mut self, n: u64, now_us: u64) {
        self.state = self.request(Command::Credit { n }, now_us).state();
    }

    /// Whole tokens in the bucket.
    pub(super) fn level(&self, now_us: u64) -> u64 {
        self.request(Command::Peek, now_us).remaining()
    }

    /// Another pace: what the bucket is below full stays, and nothing is minted.
    pub(super) fn change(&mut self, limit: Limit, now_us: u64) {
        self.state = self.limit.change_to(&limit, self.state, now_us);
        self.limit = limit;
    }

    #[inline]
    fn request(&self, command: Command, now_us: u64) -> Decision {
        self.limit.apply(self.state, command, now_us)
    }
}
