//! Tokens taken for work whose price is known only afterwards.

mod settlement;
#[cfg(feature = "redis")]
mod taking;

use balde_core::Command;
use smallvec::SmallVec;

use self::settlement::Settlement;
use crate::decision::Decision;
#[cfg(feature = "redis")]
use crate::limiter::Renewed;
use crate::limiter::{HolderId, RateLimiter, Tier, TokenRequest};
use crate::multi::{MultiDecision, check_all, check_all_blocking};

#[cfg(feature = "tower")]
pub(crate) use settlement::settle_in_memory;
pub use settlement::{SETTLE_WITHIN, Settling};

/// Tokens taken for work whose price is known only afterwards.
///
/// Take the minimum price, do the work, then [`settle`](Hold::settle): a higher price is charged,
/// into debt if necessary, and a lower one is credited. A hold is settled once. One that is dropped,
/// because the work was cancelled or panicked, settles itself at the price given by
/// [`if_dropped`](Hold::if_dropped); by default the tokens taken are kept.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use balde::{Hold, RateLimiter};
///
/// let limiter = RateLimiter::new("2/min burst 100")?;
/// let hold = Hold::take(&[limiter.request("alice")]).await.expect("a new bucket is full");
///
/// // The lookup found nothing, and that costs twenty tokens.
/// hold.settle(20).await;
/// assert_eq!(limiter.peek("alice").await?.level(), 80);
/// # Ok(()) }) }
/// ```
///
/// A request that the failure policy allowed while Redis was unavailable took no tokens there, so
/// nothing is settled for it.
#[must_use = "a hold that is dropped settles itself as abandoned work"]
#[derive(Debug)]
pub struct Hold {
    parts: Vec<HeldTokens>,
}

/// The tokens taken from one bucket, or held of it.
#[derive(Debug)]
struct HeldTokens {
    limiter: RateLimiter,
    key: Box<[u8]>,
    decision: Decision,
    taken: u64,
    tier: Option<Tier>,
    if_dropped: u64,
    /// Who holds them in the bucket; `None` if they were taken.
    holder: Option<Holder>,
}

/// Who holds tokens. What is held in Redis is renewed until this is dropped.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only Redis asks who it is")
)]
pub(crate) struct Holder {
    id: HolderId,
    #[cfg(feature = "redis")]
    _renewed: Option<Renewed>,
}

impl Holder {
    #[cfg(feature = "redis")]
    fn new(request: &TokenRequest<'_>, id: HolderId) -> Self {
        let redis = request.limiter.redis();
        Self {
            id,
            _renewed: redis.map(|redis| redis.renewals().begin(request.key, id)),
        }
    }

    #[cfg(not(feature = "redis"))]
    fn new(_request: &TokenRequest<'_>, id: HolderId) -> Self {
        Self { id }
    }
}

impl Hold {
    /// Takes the tokens of all requests or of none, as [`check_all`] does.
    ///
    /// If the future is dropped, nothing stays held: see [`holds`](crate::RateLimiterBuilder::holds).
    pub async fn take(requests: &[TokenRequest<'_>]) -> Result<Self, MultiDecision> {
        let requests = held(requests);
        #[cfg(feature = "redis")]
        if let Some(store) = taking::store(&requests) {
            return taking::take(store, &requests).await;
        }
        Self::new(&requests, check_all(&requests).await)
    }

    /// [`take`](Hold::take) for callers without `await`.
    pub fn take_blocking(requests: &[TokenRequest<'_>]) -> Result<Self, MultiDecision> {
        let requests = held(requests);
        #[cfg(feature = "redis")]
        if let Some(store) = taking::store(&requests) {
            return taking::take_blocking(store, &requests);
        }
        Self::new(&requests, check_all_blocking(&requests))
    }

    /// Creates a hold on tokens that were taken earlier: the `n` of each request, which may be
    /// zero. Settling it charges or credits the difference between the price and `n`.
    pub fn already_taken(requests: &[TokenRequest<'_>]) -> Self {
        let held = |request: &TokenRequest<'_>| {
            let limit = request.limiter.limit();
            let nothing = limit.apply(None, Command::Peek, request.limiter.now_us());
            HeldTokens::new(request, &Decision::of(nothing))
        };
        Self {
            parts: requests.iter().map(held).collect(),
        }
    }

    fn new(requests: &[TokenRequest<'_>], decision: MultiDecision) -> Result<Self, MultiDecision> {
        if !decision.is_allowed() {
            return Err(decision);
        }
        let parts = requests.iter().zip(decision.parts());
        Ok(Self {
            parts: parts
                .map(|(request, decision)| HeldTokens::new(request, decision))
                .collect(),
        })
    }

    /// Creates a hold on tokens that have been taken already.
    #[cfg(feature = "tower")]
    pub(crate) fn of_taken<'a>(
        parts: impl Iterator<Item = (&'a RateLimiter, &'a [u8], u64, &'a Decision)>,
    ) -> Self {
        Self {
            parts: parts
                .map(|(limiter, key, n, decision)| {
                    HeldTokens::new(&limiter.request_n(key, n), decision)
                })
                .collect(),
        }
    }

    /// Sets the price of the work in each bucket if the hold is dropped: `cost_of` is called in the
    /// order of the requests, with the index of the request and the tokens it took.
    pub fn if_dropped(mut self, mut cost_of: impl FnMut(usize, u64) -> u64) -> Self {
        for (index, part) in self.parts.iter_mut().enumerate() {
            part.if_dropped = cost_of(index, part.taken);
        }
        self
    }

    /// Sets the tiers in which the buckets are settled, for keys that have moved to another one
    /// meanwhile: `tier_of` is called with the index of each request. Without a tier, a bucket is
    /// settled in the one of its request.
    pub fn in_tiers(mut self, mut tier_of: impl FnMut(usize) -> Option<Tier>) -> Self {
        for (index, part) in self.parts.iter_mut().enumerate() {
            part.tier = tier_of(index).or(part.tier);
        }
        self
    }

    /// The decision on each request, in their order.
    pub fn decisions(&self) -> impl ExactSizeIterator<Item = &Decision> {
        self.parts.iter().map(|part| &part.decision)
    }

    /// Settles the work at a price of `cost` tokens in each bucket.
    ///
    /// The settlement starts with the call, not with the first poll: it happens even if what this
    /// returns is dropped. Where Redis is unavailable, it is tried again in the background for
    /// [`SETTLE_WITHIN`]; see [`RateLimiter::settled`].
    pub fn settle(self, cost: u64) -> Settling {
        self.settle_each(move |_, _| cost)
    }

    /// [`settle`](Hold::settle) with a price for each bucket: `cost_of` is called in the order of the
    /// requests, with the index of the request and the tokens it took.
    pub fn settle_each(mut self, mut cost_of: impl FnMut(usize, u64) -> u64) -> Settling {
        let parts = std::mem::take(&mut self.parts).into_iter().enumerate();
        let settle = |(index, part): (usize, HeldTokens)| {
            let cost = cost_of(index, part.taken);
            part.settle(cost)
        };
        Settling::new(parts.map(settle).collect())
    }

    /// [`settle`](Hold::settle) for callers without `await`.
    ///
    /// Buckets in memory are settled when this returns. For a bucket in Redis, a thread without a
    /// tokio runtime waits for one attempt; inside a runtime the settlement runs in the background,
    /// and the decision returned for that bucket is the one that took the tokens.
    pub fn settle_blocking(self, cost: u64) -> Vec<Decision> {
        self.settle_each_blocking(move |_, _| cost)
    }

    /// [`settle_blocking`](Hold::settle_blocking) with a price for each bucket: `cost_of` is called
    /// in the order of the requests, with the index of the request and the tokens it took.
    pub fn settle_each_blocking(self, cost_of: impl FnMut(usize, u64) -> u64) -> Vec<Decision> {
        self.settle_each(cost_of).decisions().copied().collect()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        for part in std::mem::take(&mut self.parts) {
            let cost = part.if_dropped;
            let _continues_by_itself = part.settle(cost);
        }
    }
}

impl HeldTokens {
    fn new(request: &TokenRequest<'_>, decision: &Decision) -> Self {
        Self {
            limiter: request.limiter.clone(),
            key: request.key.into(),
            decision: *decision,
            taken: request.n,
            tier: request.tier,
            if_dropped: request.n,
            holder: request
                .holder
                .filter(|_| !decision.is_fallback())
                .map(|id| Holder::new(request, id)),
        }
    }

    fn settle(self, cost: u64) -> Settlement {
        // What was taken and costs just that is settled already.
        if self.decision.is_fallback() || (self.holder.is_none() && self.taken == cost) {
            return Settlement::done(self.decision);
        }
        let settle = Command::Settle {
            held: self.taken,
            price: cost,
        };
        settlement::settle(self, settle)
    }
}

/// The same requests, whose tokens are held if their limiters can.
fn held<'a>(requests: &[TokenRequest<'a>]) -> SmallVec<[TokenRequest<'a>; 4]> {
    let mut held = SmallVec::new();
    for request in requests {
        held.push(request.held());
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, ManualClock};

    fn limiter() -> RateLimiter {
        let clock = Clock::manual(&ManualClock::new());
        let builder = RateLimiter::builder().limit("2/min burst 100");
        builder.clock(clock).build().unwrap()
    }

    fn level(limiter: &RateLimiter) -> i64 {
        limiter.blocking().peek("k").unwrap().level()
    }

    #[test]
    fn a_dropped_hold_keeps_the_tokens_by_default() {
        let limiter = limiter();
        drop(Hold::take_blocking(&[limiter.request_n("k", 3)]).unwrap());
        assert_eq!(level(&limiter), 97);
        let hold = Hold::take_blocking(&[limiter.request_n("k", 3)]).unwrap();
        drop(hold.if_dropped(|_, _| 0));
        assert_eq!(level(&limiter), 97);
        let hold = Hold::take_blocking(&[limiter.request("k")]).unwrap();
        drop(hold.if_dropped(|_, taken| taken + 19));
        assert_eq!(level(&limiter), 77);
    }

    #[test]
    fn a_settled_hold_is_not_settled_again_by_its_drop() {
        let limiter = limiter();
        let hold = Hold::take_blocking(&[limiter.request("k")]).unwrap();
        // The future is dropped before it is polled: the settlement still happens, once.
        drop(hold.if_dropped(|_, _| 50).settle(20));
        assert_eq!(level(&limiter), 80);
    }

    #[test]
    fn a_hold_in_memory_settles_without_awaiting() {
        let limiter = limiter();
        let requests = [limiter.request("k"), limiter.request_n("l", 2)];
        let hold = Hold::take_blocking(&requests).unwrap();
        let settled = hold.settle_each_blocking(|index, taken| taken + 10 * index as u64);
        assert_eq!(settled[0].level(), 99);
        assert_eq!(settled[1].level(), 88);
        let hold = Hold::take_blocking(&requests).unwrap();
        assert_eq!(hold.settle_blocking(0)[0].level(), 99);
        assert_eq!(level(&limiter), 99);
    }

    #[test]
    fn a_price_may_lead_into_debt() {
        let limiter = limiter();
        limiter.blocking().set_level("k", 5).unwrap();
        let hold = Hold::take_blocking(&[limiter.request("k")]).unwrap();
        drop(hold.settle(20));
        assert_eq!(level(&limiter), -15);
        assert!(Hold::take_blocking(&[limiter.request("k")]).is_err());
    }
}
