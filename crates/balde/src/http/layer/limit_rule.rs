//! One limit of a layer: source bucket, how many tokens, at what price.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::request_parts::RequestParts;
use crate::http::outcome::Outcome;
use crate::limiter::RateLimiter;

type Key = Arc<dyn Fn(&RequestParts<'_>) -> Option<Vec<u8>> + Send + Sync>;
type Cost = Arc<dyn Fn(&RequestParts<'_>) -> u64 + Send + Sync>;
type Applies = Arc<dyn Fn(&RequestParts<'_>) -> bool + Send + Sync>;
type Price = Arc<dyn Fn(&Outcome<'_>, u64) -> u64 + Send + Sync>;

/// One limit of a [`RateLimitLayer`](super::RateLimitLayer): source bucket it draws on, how many
/// tokens a request takes, and what it costs in the end.
///
/// ```
/// use balde::RateLimiter;
/// use balde::http::{Outcome, LimitRule};
///
/// // One token to be let in; an answer of 404 costs twenty, one of 5xx nothing.
/// let per_caller = LimitRule::per_caller(RateLimiter::new("2/min burst 100")?)
///     .price(|outcome, taken| match outcome.status().map(|status| status.as_u16()) {
///         Some(404) => 20,
///         Some(500..) => 0,
///         _ => taken,
///     });
/// # drop(per_caller);
/// # Ok::<(), balde::BuildError>(())
/// ```
#[derive(Clone)]
pub struct LimitRule {
    pub(super) limiter: RateLimiter,
    pub(super) source: KeySource,
    pub(super) cost: Option<Cost>,
    pub(super) applies: Option<Applies>,
    pub(super) price: Option<Price>,
}

/// KeySource bucket.
#[derive(Clone)]
pub(super) enum KeySource {
    Scope(KeyScope),
    By(Key),
}

/// KeySource bucket, where that needs nothing but who is asking.
#[derive(Clone, Copy)]
pub(super) enum KeyScope {
    Caller,
    Everyone,
}

impl LimitRule {
    /// A bucket for each caller, as the layer's [`Identity`](crate::http::identity::Identity) tells
    /// them apart.
    pub fn per_caller(limiter: RateLimiter) -> Self {
        Self::new(limiter, KeySource::Scope(KeyScope::Caller))
    }

    /// One bucket for all requests together.
    pub fn global(limiter: RateLimiter) -> Self {
        Self::new(limiter, KeySource::Scope(KeyScope::Global))
    }

    /// A bucket for each key that `key` makes of a request; without one, the layer's
    /// [`OnMissingKey`](super::OnMissingKey) decides.
    ///
    /// ```
    /// use balde::RateLimiter;
    /// use balde::http::LimitRule;
    ///
    /// #[derive(Clone)]
    /// struct Tenant(String); // put into the request by whoever authenticated it
    ///
    /// let per_tenant = LimitRule::per_key(RateLimiter::new("100/s")?, |request| {
    ///     request.extensions().get::<Tenant>().map(|tenant| tenant.0.clone())
    /// });
    /// # drop(per_tenant);
    /// # Ok::<(), balde::BuildError>(())
    /// ```
    pub fn per_key<K: Into<Vec<u8>>>(
        limiter: RateLimiter,
        key: impl Fn(&RequestParts<'_>) -> Option<K> + Send + Sync + 'static,
    ) -> Self {
        let key = move |request: &RequestParts<'_>| key(request).map(Into::into);
        Self::new(limiter, KeySource::Custom(Arc::new(key)))
    }

    fn new(limiter: RateLimiter, source: KeySource) -> Self {
        Self {
            limiter,
            source,
            cost: None,
            applies: None,
            price: None,
        }
    }

    /// How many tokens a request takes to be let in; one, unless told otherwise. A request that
    /// asks for more than the bucket can ever hold is always refused.
    pub fn cost(mut self, cost: impl Fn(&RequestParts<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Which requests this limit is for; all, unless told otherwise.
    pub fn only_if(mut self, applies: impl Fn(&RequestParts<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.applies = Some(Arc::new(applies));
        self
    }

    /// What an admitted request costs in all, by how it ended and what it took. What it costs more
    /// is charged, into debt if need be; what it costs less is given back. Without a price it
    /// costs what it took.
    pub fn price(
        mut self,
        price: impl Fn(&Outcome<'_>, u64) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.price = Some(Arc::new(price));
        self
    }
}

impl LimitRule {
    pub(super) fn priced(&self, outcome: &Outcome<'_>, taken: u64) -> u64 {
        let Some(price) = &self.price else {
            return taken;
        };
        // A price that panics while a request unwinds would take the process down.
        catch_unwind(AssertUnwindSafe(|| price(outcome, taken))).unwrap_or(taken)
    }
}

impl From<RateLimiter> for LimitRule {
    fn from(limiter: RateLimiter) -> Self {
        Self::per_caller(limiter)
    }
}

impl fmt::Debug for LimitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitRule")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
