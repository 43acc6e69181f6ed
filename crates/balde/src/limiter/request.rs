//! A request for tokens, as a part of a decision over several buckets.

use balde_core::Command;

use super::target::Target;
use super::{RateLimiter, Store};
use crate::decision::Decision;
use crate::error::Error;
use crate::idempotency::OpId;
use crate::store::TierId;
use crate::store::memory::MemoryStep;

/// A request for tokens of one key from one limiter, for [`check_all`](crate::check_all) and
/// [`Hold`](crate::Hold). Created by [`RateLimiter::request`] and [`RateLimiter::request_n`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is decided"]
pub struct TokenRequest<'a> {
    pub(crate) limiter: &'a RateLimiter,
    pub(crate) key: &'a [u8],
    pub(crate) n: u64,
    pub(crate) needed: u64,
    /// Who holds the tokens until they are settled. Otherwise they are taken.
    pub(crate) holder: Option<HolderId>,
    /// The tier of the key, if the request says so.
    pub(crate) tier: Option<Tier>,
}

/// A tier of a limiter, found by its name; see [`RateLimiter::find_tier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tier(pub(super) TierId);

impl Tier {
    pub(crate) const fn id(self) -> TierId {
        self.0
    }
}

/// Who holds tokens: in Redis unique among all processes, in memory always zero.
pub(crate) type HolderId = u64;

impl<'a> TokenRequest<'a> {
    pub(crate) const fn new(limiter: &'a RateLimiter, key: &'a [u8], n: u64) -> Self {
        Self {
            limiter,
            key,
            n,
            needed: n,
            holder: None,
            tier: None,
        }
    }

    /// Sets the tier that the key is in, for a limiter whose
    /// [requests say so](crate::RateLimiterBuilder::tiers_by_request).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use balde::{RateLimiter, check_all};
    ///
    /// let builder = RateLimiter::builder().limit("10/min").tier("gold", "100/min");
    /// let limiter = builder.tiers_by_request().build()?;
    /// let gold = limiter.find_tier("gold")?;
    /// check_all(&[limiter.request_n("alice", 5)]).await;
    /// let peeked = limiter.request("alice").in_tier(gold).peek().await?;
    /// assert_eq!(peeked.level(), 95); // five are gone
    /// # Ok(()) }) }
    /// ```
    pub const fn in_tier(mut self, tier: Tier) -> Self {
        self.tier = Some(tier);
        self
    }

    /// [`RateLimiter::peek`] at the bucket of this request.
    pub async fn peek(&self) -> Result<Decision, Error> {
        self.limiter.run(&self.target(), Command::Peek).await
    }

    /// [`RateLimiter::charge`] for this request, whatever it requests.
    pub async fn charge(&self, n: u64) -> Result<Decision, Error> {
        self.limiter
            .run(&self.target(), Command::Charge { n })
            .await
    }

    /// [`charge`](TokenRequest::charge) for callers without `await`.
    pub fn charge_blocking(&self, n: u64) -> Result<Decision, Error> {
        self.limiter
            .run_blocking(&self.target(), Command::Charge { n })
    }

    /// [`RateLimiter::credit`] for this request, whatever it requests.
    pub async fn credit(&self, n: u64) -> Result<Decision, Error> {
        self.limiter
            .run(&self.target(), Command::Credit { n })
            .await
    }

    /// [`RateLimiter::credit_once`] for this request, whatever it requests.
    pub async fn credit_once(&self, n: u64, id: &OpId) -> Result<Decision, Error> {
        let target = self.target().once(id);
        self.limiter.run(&target, Command::Credit { n }).await
    }

    /// [`RateLimiter::set_level`] for this request, whatever it requests.
    pub async fn set_level(&self, level: i64) -> Result<Decision, Error> {
        self.limiter
            .run(&self.target(), Command::SetLevel { level })
            .await
    }

    /// The bucket of this request, for commands that are not checks.
    pub(crate) fn target(&self) -> Target<'a> {
        Target {
            tier: self.tier_id(),
            ..Target::new(self.key)
        }
    }

    /// A command on the bucket of this request, if it is in memory.
    #[inline]
    pub(crate) fn memory_step(&self, command: Command) -> Option<MemoryStep<'a>> {
        let table = match self.limiter.store() {
            Store::Memory(table, _) => table,
            #[cfg(feature = "redis")]
            Store::Redis(_) => return None,
        };
        let now_us = self.limiter.now_us();
        let step = self.limiter.memory_step(table, self.key, command, now_us);
        let tier = self.tier_id().or(step.tier);
        Some(MemoryStep { tier, ..step })
    }

    pub(crate) fn tier_id(&self) -> Option<TierId> {
        self.tier.map(|tier| tier.0)
    }

    /// Sets how many tokens must be available; by default as many as are requested.
    ///
    /// If more must be available than are requested, the difference is a reserve that this request
    /// leaves to others. If fewer, the bucket may go into debt.
    ///
    /// ```
    /// use balde::{RateLimiter, check_all_blocking};
    ///
    /// let limiter = RateLimiter::new("10/min")?;
    /// let leaves_five = limiter.request_n("alice", 2).needing(7);
    /// assert!(check_all_blocking(&[leaves_five]).is_allowed());
    /// assert!(check_all_blocking(&[leaves_five]).is_allowed());
    /// assert!(!check_all_blocking(&[leaves_five]).is_allowed()); // six are left
    /// # Ok::<(), balde::BuildError>(())
    /// ```
    pub const fn needing(mut self, available: u64) -> Self {
        self.needed = available;
        self
    }

    /// The same request, whose tokens are held until they are settled, if the limiter can.
    pub(crate) fn held(mut self) -> Self {
        self.holder = self.limiter.holder_id();
        self
    }

    pub(crate) const fn command(&self) -> Command {
        let Self { n, needed, .. } = *self;
        match self.holder {
            Some(_) => Command::Hold { n, needed },
            None if needed == n => Command::Take { n },
            None => Command::TakeIf { n, needed },
        }
    }

    /// Returns whether both take from the same bucket.
    pub(crate) fn is_same_bucket(&self, other: &Self) -> bool {
        std::ptr::eq(self.limiter.store(), other.limiter.store()) && self.key == other.key
    }
}

/// A [`TokenRequest`] that borrows nothing.
#[cfg(feature = "redis")]
pub(crate) struct OwnedRequest {
    limiter: RateLimiter,
    key: Vec<u8>,
    n: u64,
    needed: u64,
    holder: Option<HolderId>,
    tier: Option<Tier>,
}

#[cfg(feature = "redis")]
impl OwnedRequest {
    pub(crate) fn new(request: &TokenRequest<'_>) -> Self {
        Self {
            limiter: request.limiter.clone(),
            key: request.key.to_vec(),
            n: request.n,
            needed: request.needed,
            holder: request.holder,
            tier: request.tier,
        }
    }

    pub(crate) fn request(&self) -> TokenRequest<'_> {
        TokenRequest {
            limiter: &self.limiter,
            key: &self.key,
            n: self.n,
            needed: self.needed,
            holder: self.holder,
            tier: self.tier,
        }
    }
}
