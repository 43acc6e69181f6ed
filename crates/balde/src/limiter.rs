//! The limiter: one limit over many keys.

mod deciding;

use std::fmt;
use std::sync::Arc;

use balde_core::{Command, Limit};

use crate::blocking::Blocking;
use crate::builder::RateLimiterBuilder;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::{BuildError, Error};
use crate::joint::TokenRequest;
#[cfg(feature = "redis")]
use crate::lease::LeaseStats;
use crate::once::{Once, OpId};
use crate::store::memory::{MemoryStats, Table};
#[cfg(feature = "redis")]
use crate::store::redis::Shared;
use crate::telemetry::Watch;

/// Limits callers, each by its key. Clones share their buckets.
///
/// Keys are bytes: text, an address, a tenant and a route joined by a separator of yours. They are
/// not kept in clear in memory; in Redis they are.
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
    place: Place,
    watch: Watch,
}

/// Where the buckets are.
#[cfg_attr(
    feature = "redis",
    expect(
        clippy::large_enum_variant,
        reason = "there is one to a limiter, and the table must be no further away than it"
    )
)]
pub(crate) enum Place {
    Memory(Table, Once),
    #[cfg(feature = "redis")]
    Redis(Box<Shared>),
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
    pub fn builder() -> RateLimiterBuilder {
        RateLimiterBuilder::new()
    }

    pub(crate) fn new_in(name: String, clock: Clock, place: Place, watch: Watch) -> Self {
        Self(Arc::new(Inner {
            name,
            clock,
            place,
            watch,
        }))
    }

    /// The same questions for callers who have no `await`. Where the buckets are in Redis they hold
    /// up the thread for a round trip, so they are not for async code; called there all the same,
    /// they do not panic, and on a runtime of one thread they end in a timeout.
    pub fn blocking(&self) -> Blocking<'_> {
        Blocking::new(self)
    }

    /// Takes one token.
    #[inline]
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Decision {
        self.decide(key.as_ref(), Command::Take { n: 1 }).await
    }

    /// Takes `n` tokens, or none.
    #[inline]
    pub async fn check_n(&self, key: impl AsRef<[u8]>, n: u64) -> Decision {
        self.decide(key.as_ref(), Command::Take { n }).await
    }

    /// Takes as many tokens as there are, at most `n`; [`Decision::moved`] says how many.
    #[inline]
    pub async fn take_up_to(&self, key: impl AsRef<[u8]>, n: u64) -> Decision {
        self.decide(key.as_ref(), Command::TakeUpTo { n }).await
    }

    /// Looks at a bucket without touching it.
    #[inline]
    pub async fn peek(&self, key: impl AsRef<[u8]>) -> Result<Decision, Error> {
        self.run(key.as_ref(), Command::Peek, None).await
    }

    /// Debits what has already happened, into debt if need be. Where a connection breaks meanwhile
    /// it is sent again, and still happens once.
    #[inline]
    pub async fn charge(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.run(key.as_ref(), Command::Charge { n }, None).await
    }

    /// Gives tokens back, never above capacity.
    #[inline]
    pub async fn credit(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.run(key.as_ref(), Command::Credit { n }, None).await
    }

    /// [`charge`](RateLimiter::charge) that happens once, however often it is asked for under this id:
    /// later askers get the first one's answer, whatever they ask to be charged. It is remembered
    /// for [`RateLimiterBuilder::once_ttl`].
    #[inline]
    pub async fn charge_once(
        &self,
        key: impl AsRef<[u8]>,
        n: u64,
        id: &OpId,
    ) -> Result<Decision, Error> {
        self.run(key.as_ref(), Command::Charge { n }, Some(id))
            .await
    }

    /// [`credit`](RateLimiter::credit) that happens once, however often it is asked for under this id:
    /// later askers get the first one's answer, whatever they ask to be credited. It is remembered
    /// for [`RateLimiterBuilder::once_ttl`].
    #[inline]
    pub async fn credit_once(
        &self,
        key: impl AsRef<[u8]>,
        n: u64,
        id: &OpId,
    ) -> Result<Decision, Error> {
        self.run(key.as_ref(), Command::Credit { n }, Some(id))
            .await
    }

    /// Sets a bucket to the level somebody knows it to have; negative is debt.
    #[inline]
    pub async fn set_level(&self, key: impl AsRef<[u8]>, level: i64) -> Result<Decision, Error> {
        self.run(key.as_ref(), Command::SetLevel { level }, None)
            .await
    }

    /// One of several questions for [`check_all`](crate::check_all): one token for `key`.
    pub fn request<'a>(&'a self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> TokenRequest<'a> {
        self.request_n(key, 1)
    }

    /// One of several questions for [`check_all`](crate::check_all): `n` tokens for `key`.
    pub fn request_n<'a>(
        &'a self,
        key: &'a (impl AsRef<[u8]> + ?Sized),
        n: u64,
    ) -> TokenRequest<'a> {
        TokenRequest::new(self, key.as_ref(), n)
    }

    /// Puts another limit under all buckets. Each keeps what it is below full, in tokens, within what
    /// the new limit allows: one that held less than the new capacity takes away is empty then, and
    /// does not get that back if the capacity grows again. In Redis this is worked out when a bucket
    /// is next written, and until then it goes on filling at the old rate; other processes need the
    /// new limit, too.
    pub fn set_limit<L>(&self, limit: L) -> Result<(), BuildError>
    where
        L: TryInto<Limit>,
        L::Error: Into<BuildError>,
    {
        let limit = limit.try_into().map_err(Into::into)?;
        match &self.0.place {
            Place::Memory(table, _) => table.set_limit(limit, || self.now_us()),
            #[cfg(feature = "redis")]
            Place::Redis(shared) => shared.set_limit(limit)?,
        }
        Ok(())
    }

    /// The limit now.
    pub fn limit(&self) -> Limit {
        match &self.0.place {
            Place::Memory(table, _) => table.limit(),
            #[cfg(feature = "redis")]
            Place::Redis(shared) => shared.limit(),
        }
    }

    /// What the limiter is called.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What the memory store holds and has let go; nothing, where the buckets are in Redis.
    pub fn memory_stats(&self) -> MemoryStats {
        match &self.0.place {
            Place::Memory(table, _) => table.stats(),
            #[cfg(feature = "redis")]
            Place::Redis(_) => MemoryStats::default(),
        }
    }

    /// Forgets every full bucket now. Nothing is lost by it, and it is never needed: the part of
    /// the memory store that a new key finds crowded is swept before it grows, and Redis forgets by
    /// itself.
    pub fn sweep(&self) {
        match &self.0.place {
            Place::Memory(table, _) => table.sweep(self.now_us()),
            #[cfg(feature = "redis")]
            Place::Redis(_) => {}
        }
    }

    /// What is held on lease; nothing, where there are no leases.
    #[cfg(feature = "redis")]
    pub fn lease_stats(&self) -> LeaseStats {
        let lessee = self.shared().and_then(Shared::lessee);
        lessee.map_or_else(LeaseStats::default, |lessee| lessee.stats(&self.limit()))
    }

    /// Gives back all that is held on lease: for a process that ends. What is not given back is
    /// lost to everybody until the bucket has refilled.
    #[cfg(feature = "redis")]
    pub async fn release_leases(&self) {
        if let Some(shared) = self.shared()
            && let Some(lessee) = shared.lessee()
        {
            lessee.release(shared).await;
        }
    }

    #[cfg(any(feature = "redis", feature = "prometheus"))]
    pub(crate) fn downgrade(&self) -> WeakLimiter {
        WeakLimiter(Arc::downgrade(&self.0))
    }

    pub(crate) fn place(&self) -> &Place {
        &self.0.place
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.0.watch
    }

    #[cfg(feature = "redis")]
    pub(crate) fn shared(&self) -> Option<&Shared> {
        match &self.0.place {
            Place::Memory(..) => None,
            Place::Redis(shared) => Some(shared),
        }
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.0.clock.now_us()
    }
}

/// A limiter that is not kept alive.
#[cfg(any(feature = "redis", feature = "prometheus"))]
pub(crate) struct WeakLimiter(std::sync::Weak<Inner>);

#[cfg(any(feature = "redis", feature = "prometheus"))]
impl WeakLimiter {
    pub(crate) fn upgrade(&self) -> Option<RateLimiter> {
        self.0.upgrade().map(RateLimiter)
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
