//! The limiter: one limit over many keys.

use std::fmt;
use std::sync::Arc;

use balde_core::{Command, Limit};

use crate::builder::Builder;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::{BadKey, BuildError, Error};
use crate::joint::Ask;
use crate::store::memory::{MemoryStats, Table};

/// Limits callers, each by its key. Clones share their buckets.
///
/// Keys are bytes: text, an address, a tenant and a route joined by a separator of yours. They are
/// not kept in clear.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use balde::RateLimiter;
///
/// let limiter = RateLimiter::new("10/s burst 20")?;
/// let decision = limiter.check("alice").await;
/// assert!(decision.is_allowed());
/// assert_eq!(decision.remaining(), 19);
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct RateLimiter(Arc<Inner>);

struct Inner {
    name: String,
    clock: Clock,
    table: Table,
}

impl RateLimiter {
    /// A limiter in memory with everything but the limit left at its default.
    pub fn new<L>(limit: L) -> Result<Self, BuildError>
    where
        L: TryInto<Limit>,
        L::Error: Into<BuildError>,
    {
        Self::builder().limit(limit).build()
    }

    /// For everything that [`new`](RateLimiter::new) leaves at its default.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn of_memory(name: String, clock: Clock, table: Table) -> Self {
        Self(Arc::new(Inner { name, clock, table }))
    }

    /// The same questions for callers who have no `await`.
    pub fn blocking(&self) -> Blocking<'_> {
        Blocking(self)
    }

    /// Takes one token.
    #[inline]
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Decision {
        self.decide(key.as_ref(), Command::Take { n: 1 })
    }

    /// Takes `n` tokens, or none.
    #[inline]
    pub async fn check_n(&self, key: impl AsRef<[u8]>, n: u64) -> Decision {
        self.decide(key.as_ref(), Command::Take { n })
    }

    /// Takes as many tokens as there are, at most `n`; [`Decision::moved`] says how many.
    #[inline]
    pub async fn take_up_to(&self, key: impl AsRef<[u8]>, n: u64) -> Decision {
        self.decide(key.as_ref(), Command::TakeUpTo { n })
    }

    /// Looks at a bucket without touching it.
    #[inline]
    pub async fn peek(&self, key: impl AsRef<[u8]>) -> Result<Decision, Error> {
        self.run(key.as_ref(), Command::Peek)
    }

    /// Debits what has already happened, into debt if need be.
    #[inline]
    pub async fn charge(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.run(key.as_ref(), Command::Charge { n })
    }

    /// Gives tokens back, never above capacity.
    #[inline]
    pub async fn credit(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.run(key.as_ref(), Command::Credit { n })
    }

    /// Sets a bucket to the level somebody knows it to have; negative is debt.
    #[inline]
    pub async fn set_level(&self, key: impl AsRef<[u8]>, level: i64) -> Result<Decision, Error> {
        self.run(key.as_ref(), Command::SetLevel { level })
    }

    /// One of several questions for [`check_all`](crate::check_all): one token for `key`.
    pub fn ask<'a>(&'a self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Ask<'a> {
        self.ask_n(key, 1)
    }

    /// One of several questions for [`check_all`](crate::check_all): `n` tokens for `key`.
    pub fn ask_n<'a>(&'a self, key: &'a (impl AsRef<[u8]> + ?Sized), n: u64) -> Ask<'a> {
        Ask::new(self, key.as_ref(), n)
    }

    /// Puts another limit under all buckets at once. Each keeps what it is below full, in tokens,
    /// and none gains or loses a token by the change itself.
    pub fn set_limit<L>(&self, limit: L) -> Result<(), BuildError>
    where
        L: TryInto<Limit>,
        L::Error: Into<BuildError>,
    {
        let limit = limit.try_into().map_err(Into::into)?;
        self.0.table.set_limit(limit, self.now_us());
        Ok(())
    }

    /// The limit now.
    pub fn limit(&self) -> Limit {
        self.0.table.limit()
    }

    /// What the limiter is called.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What the memory store holds and has let go.
    pub fn memory_stats(&self) -> MemoryStats {
        self.0.table.stats()
    }

    /// Forgets every full bucket now. Nothing is lost by it, and it is never needed: the part of
    /// the store that a new key finds crowded is swept before it grows.
    pub fn sweep(&self) {
        self.0.table.sweep(self.now_us());
    }

    pub(crate) fn table(&self) -> &Table {
        &self.0.table
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.0.clock.now_us()
    }

    #[inline]
    fn decide(&self, key: &[u8], command: Command) -> Decision {
        // One call makes the decision where the caller wants it, and the other builds it there
        // from registers: a copy in between would cost a quarter of the check.
        if BadKey::check(key).is_ok()
            && let Some(decision) = self.0.table.try_run(key, command, || self.now_us())
        {
            return Decision::of(decision);
        }
        self.decide_slowly(key, command)
    }

    #[cold]
    #[inline(never)]
    fn decide_slowly(&self, key: &[u8], command: Command) -> Decision {
        let now_us = self.now_us();
        match BadKey::check(key) {
            Ok(key) => Decision::of(self.0.table.run_locked(key, command, now_us)),
            Err(bad) => Decision::of_bad_key(&self.limit(), bad, now_us),
        }
    }

    fn run(&self, key: &[u8], command: Command) -> Result<Decision, Error> {
        let key = BadKey::check(key)?;
        let decision = self.0.table.run(key, command, self.now_us());
        Ok(Decision::of(decision))
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("name", &self.0.name)
            .field("limit", &format_args!("{}", self.limit()))
            .finish_non_exhaustive()
    }
}

/// A [`RateLimiter`] for callers who have no `await`: the same questions, the same buckets.
///
/// ```
/// let limiter = balde::RateLimiter::new("2/min")?;
/// let limiter = limiter.blocking();
/// assert!(limiter.check_n("alice", 2).is_allowed());
/// assert_eq!(limiter.check("alice").retry_after().unwrap().as_secs(), 29);
/// # Ok::<(), balde::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Blocking<'l>(&'l RateLimiter);

impl Blocking<'_> {
    /// Takes one token.
    #[inline]
    pub fn check(self, key: impl AsRef<[u8]>) -> Decision {
        self.0.decide(key.as_ref(), Command::Take { n: 1 })
    }

    /// Takes `n` tokens, or none.
    #[inline]
    pub fn check_n(self, key: impl AsRef<[u8]>, n: u64) -> Decision {
        self.0.decide(key.as_ref(), Command::Take { n })
    }

    /// Takes as many tokens as there are, at most `n`.
    #[inline]
    pub fn take_up_to(self, key: impl AsRef<[u8]>, n: u64) -> Decision {
        self.0.decide(key.as_ref(), Command::TakeUpTo { n })
    }

    /// Looks at a bucket without touching it.
    #[inline]
    pub fn peek(self, key: impl AsRef<[u8]>) -> Result<Decision, Error> {
        self.0.run(key.as_ref(), Command::Peek)
    }

    /// Debits what has already happened, into debt if need be.
    #[inline]
    pub fn charge(self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.0.run(key.as_ref(), Command::Charge { n })
    }

    /// Gives tokens back, never above capacity.
    #[inline]
    pub fn credit(self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.0.run(key.as_ref(), Command::Credit { n })
    }

    /// Sets a bucket to the level somebody knows it to have; negative is debt.
    #[inline]
    pub fn set_level(self, key: impl AsRef<[u8]>, level: i64) -> Result<Decision, Error> {
        self.0.run(key.as_ref(), Command::SetLevel { level })
    }
}
