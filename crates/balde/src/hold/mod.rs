//! Tokens taken for work whose price is known only afterwards.

mod later;

use crate::decision::Decision;
use crate::joint::{MultiDecision, TokenRequest, check_all, check_all_blocking};
use crate::limiter::RateLimiter;
use later::Difference;

pub use later::{SETTLE_WITHIN, SETTLING_MAX, settled};

/// Tokens taken for work whose price is known only afterwards: take what it costs at least, do the
/// work, then [`settle`](Hold::settle). What it cost more is charged, into debt if need be; what it
/// cost less is given back. This happens once: a hold that is dropped, because the work was
/// cancelled or panicked, settles itself at the price named with [`if_dropped`](Hold::if_dropped),
/// or else keeps what was taken.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use balde::{Hold, RateLimiter};
///
/// let limiter = RateLimiter::new("2/min burst 100")?;
/// let hold = Hold::take(&[limiter.request("alice")]).await.expect("a new bucket is full");
///
/// // The look-up found nothing, and that costs twenty.
/// hold.settle(20).await;
/// assert_eq!(limiter.peek("alice").await?.level(), 80);
/// # Ok(()) }) }
/// ```
///
/// What the failure policy allowed while the shared store was away was not taken from it, and is
/// not settled there either.
#[must_use = "a hold that is dropped settles itself as work that was given up"]
#[derive(Debug)]
pub struct Hold {
    parts: Vec<Held>,
}

/// One bucket's part.
#[derive(Debug)]
struct Held {
    limiter: RateLimiter,
    key: Box<[u8]>,
    decision: Decision,
    taken: u64,
    if_dropped: u64,
}

impl Hold {
    /// Takes from all buckets or from none, as [`check_all`] does.
    pub async fn take(asks: &[TokenRequest<'_>]) -> Result<Self, MultiDecision> {
        Self::of(asks, check_all(asks).await)
    }

    /// [`take`](Hold::take) for callers who have no `await`.
    pub fn take_blocking(asks: &[TokenRequest<'_>]) -> Result<Self, MultiDecision> {
        Self::of(asks, check_all_blocking(asks))
    }

    fn of(asks: &[TokenRequest<'_>], joint: MultiDecision) -> Result<Self, MultiDecision> {
        if !joint.is_allowed() {
            return Err(joint);
        }
        let parts = asks.iter().zip(joint.parts());
        Ok(Self {
            parts: parts
                .map(|(ask, decision)| Held::new(ask.limiter, ask.key, ask.n, decision))
                .collect(),
        })
    }

    /// What is taken already.
    #[cfg(feature = "tower")]
    pub(crate) fn of_taken<'a>(
        parts: impl Iterator<Item = (&'a RateLimiter, &'a [u8], u64, &'a Decision)>,
    ) -> Self {
        Self {
            parts: parts
                .map(|(limiter, key, n, decision)| Held::new(limiter, key, n, decision))
                .collect(),
        }
    }

    /// What the work costs in all if nobody settles: `cost_of` is asked for each bucket in the order
    /// of asking, with the bucket's number and what was taken.
    pub fn if_dropped(mut self, mut cost_of: impl FnMut(usize, u64) -> u64) -> Self {
        for (index, part) in self.parts.iter_mut().enumerate() {
            part.if_dropped = cost_of(index, part.taken);
        }
        self
    }

    /// The decision on each bucket, in the order of asking.
    pub fn decisions(&self) -> impl ExactSizeIterator<Item = &Decision> {
        self.parts.iter().map(|part| &part.decision)
    }

    /// The work is done and cost so much, of each bucket.
    ///
    /// Returns how the buckets stand then. Where the shared store cannot be asked, that is how they
    /// stood before, and it is tried again in the background for [`SETTLE_WITHIN`]; see
    /// [`settled`].
    ///
    /// It counts from the moment of the call, even where the future is dropped before it is ready.
    pub fn settle(self, cost: u64) -> impl Future<Output = Vec<Decision>> + Send {
        self.settle_each(move |_, _| cost)
    }

    /// [`settle`](Hold::settle) with a price for each bucket: `cost_of` is asked in the order of
    /// asking, with the bucket's number and what was taken.
    pub fn settle_each(
        self,
        mut cost_of: impl FnMut(usize, u64) -> u64,
    ) -> impl Future<Output = Vec<Decision>> + Send {
        let taken = self.parts.iter().enumerate();
        let costs: Vec<u64> = taken
            .map(|(index, part)| cost_of(index, part.taken))
            .collect();
        self.settle_at(&costs)
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
    pub fn settle_each_blocking(
        mut self,
        mut cost_of: impl FnMut(usize, u64) -> u64,
    ) -> Vec<Decision> {
        let parts = std::mem::take(&mut self.parts).into_iter().enumerate();
        let settle = |(index, part): (usize, Held)| {
            let (before, cost) = (part.decision, cost_of(index, part.taken));
            part.settle(cost).done().unwrap_or(before)
        };
        parts.map(settle).collect()
    }

    /// The same, and the future borrows nothing.
    pub(crate) fn settle_at(
        mut self,
        costs: &[u64],
    ) -> impl Future<Output = Vec<Decision>> + Send + use<> {
        let parts = std::mem::take(&mut self.parts);
        let settling: Vec<_> = parts
            .into_iter()
            .zip(costs)
            .map(|(part, cost)| (part.decision, part.settle(*cost)))
            .collect();
        async move {
            let mut stand = Vec::with_capacity(settling.len());
            for (before, settling) in settling {
                stand.push(settling.first_try().await.unwrap_or(before));
            }
            stand
        }
    }

    #[cfg(feature = "tower")]
    pub(crate) fn taken(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().map(|part| part.taken)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        for part in std::mem::take(&mut self.parts) {
            let cost = part.if_dropped;
            let _goes_on_by_itself = part.settle(cost);
        }
    }
}

impl Held {
    fn new(limiter: &RateLimiter, key: &[u8], n: u64, decision: &Decision) -> Self {
        Self {
            limiter: limiter.clone(),
            key: key.into(),
            decision: *decision,
            taken: n,
            if_dropped: n,
        }
    }

    fn settle(self, cost: u64) -> later::Settling {
        if self.decision.is_fallback() {
            return later::Settling::nothing();
        }
        match Difference::between(self.taken, cost) {
            None => later::Settling::nothing(),
            Some(difference) => later::settle(self.limiter, self.key, difference),
        }
    }
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
    fn a_dropped_hold_keeps_what_was_taken_unless_told_otherwise() {
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
        // Dropped before it is polled: it counts all the same, and once.
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
