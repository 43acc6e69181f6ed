//! One limit of a layer: its limiter, the key of its bucket, the cost of a request and its price.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::http::identity::assert_prefix;
use crate::http::outcome::Outcome;
use crate::http::pipeline::RequestParts;
use crate::limiter::RateLimiter;

type KeyFn = Arc<dyn Fn(&RequestParts<'_>) -> Option<Vec<u8>> + Send + Sync>;
type CostFn = Arc<dyn Fn(&RequestParts<'_>) -> u64 + Send + Sync>;
type FilterFn = Arc<dyn Fn(&RequestParts<'_>) -> bool + Send + Sync>;
type PriceFn = Arc<dyn Fn(&Outcome<'_>, u64) -> u64 + Send + Sync>;

/// One limit of a [`RateLimitLayer`](super::RateLimitLayer): the limiter, the bucket that a request
/// takes from, how many tokens it takes, and what it costs once its outcome is known.
///
/// ```
/// use balde::RateLimiter;
/// use balde::http::LimitRule;
///
/// // A request takes one token. A 404 costs twenty tokens in total, a 5xx costs nothing.
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
    pub(super) key_source: KeySource,
    pub(super) cost: Option<CostFn>,
    pub(super) filter: Option<FilterFn>,
    pub(super) price: Option<PriceFn>,
}

/// Where the key of a rule's bucket comes from.
#[derive(Clone)]
pub(super) enum KeySource {
    Caller,
    Global,
    /// The caller's IPv6 network, of so many leading bits.
    Ipv6Network(u8),
    Custom(KeyFn),
}

impl LimitRule {
    /// Limits each caller separately. The layer's [`Identity`](crate::http::identity::Identity)
    /// determines who the caller is.
    pub fn per_caller(limiter: RateLimiter) -> Self {
        Self::new(limiter, KeySource::Caller)
    }

    /// Limits all requests together: they share one bucket.
    pub fn global(limiter: RateLimiter) -> Self {
        Self::new(limiter, KeySource::Global)
    }

    /// Limits each IPv6 network of `bits` leading bits as a whole, as a second limit beside
    /// [`per_caller`](LimitRule::per_caller): a caller with a /48 can use 65,536 /64 networks, each
    /// of which counts as a caller. The limit does not apply to callers that are identified by an
    /// IPv4 address, an API key or a user id.
    ///
    /// ```
    /// use balde::RateLimiter;
    /// use balde::http::{LimitRule, RateLimitLayer};
    ///
    /// let per_address = RateLimiter::builder().name("per-address").limit("10/s").build()?;
    /// let per_site = RateLimiter::builder().name("per-site").limit("100/s").build()?;
    /// let layer = RateLimitLayer::new(per_address).and(LimitRule::per_ipv6_network(per_site, 48));
    /// # drop(layer);
    /// # Ok::<(), balde::BuildError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `bits` is not in 1 to 128.
    pub fn per_ipv6_network(limiter: RateLimiter, bits: u8) -> Self {
        assert_prefix(bits);
        Self::new(limiter, KeySource::Ipv6Network(bits))
    }

    /// Limits each key separately; `key` derives it from the request. If `key` returns `None`, the
    /// layer's [`OnMissingKey`](super::OnMissingKey) decides.
    ///
    /// ```
    /// use balde::RateLimiter;
    /// use balde::http::LimitRule;
    ///
    /// #[derive(Clone)]
    /// struct Tenant(String); // inserted by the authentication layer
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

    fn new(limiter: RateLimiter, key_source: KeySource) -> Self {
        Self {
            limiter,
            key_source,
            cost: None,
            filter: None,
            price: None,
        }
    }

    /// Sets how many tokens a request takes before it is forwarded. The default is 1. A request that
    /// needs more tokens than the bucket's capacity is always refused.
    pub fn cost(mut self, cost: impl Fn(&RequestParts<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Applies this limit only to requests for which `filter` returns true. By default it applies to
    /// all requests.
    pub fn only_if(
        mut self,
        filter: impl Fn(&RequestParts<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.filter = Some(Arc::new(filter));
        self
    }

    /// Sets what an admitted request costs in total. `price` receives the outcome and the number of
    /// tokens that were taken at admission. The difference is charged, into debt if necessary, or
    /// refunded. By default a request costs what it took.
    pub fn price(
        mut self,
        price: impl Fn(&Outcome<'_>, u64) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.price = Some(Arc::new(price));
        self
    }
}

impl LimitRule {
    /// What a request with this outcome costs in total.
    pub(super) fn price_of(&self, outcome: &Outcome<'_>, taken: u64) -> u64 {
        let Some(price) = &self.price else {
            return taken;
        };
        // A panic here while the request is already unwinding would abort the process.
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
