//! Policies: a limit with a name, a scope, match rules and a price list.

mod key;
mod key_part;
mod match_rule;
mod path_template;
mod pattern;
mod price;
mod query;
mod request;
mod variant;

pub use key::KeyError;
pub(crate) use key::{Key, MatchedRequest, PartSource};
pub use key_part::{KeyPart, Scope};
pub use match_rule::{Condition, FlagRule, Flags, MatchRule};
pub(crate) use path_template::Segment;
pub use path_template::{PathTemplate, PathTemplateError};
pub use pattern::{NamedPattern, Pattern, PatternError};
pub use price::{COST_MAX, PriceList};
pub use request::{Headers, Request, percent_decoded, query_pairs};
pub use variant::{ByVariant, Credit, Variant, VariantSource};

use balde::telemetry::Denials;
use balde::{OnFailure, Share};
use balde_core::{Command, Limit};

/// The default of [`Policy::admission`]: the tokens that a bucket must hold for a request to be
/// admitted.
pub const ADMISSION_DEFAULT: u64 = 1;

/// A limit with a name, a scope, a match rule and a price list.
///
/// ```
/// use balde_policy::{KeyPart, Policy, PriceList, Scope};
/// use balde_core::Command;
///
/// let prices = PriceList::new(0).with_status(200, 1).with_status(404, 20);
/// let policy = Policy::new("lookups", "2/min burst 100".parse()?)
///     .with_scope(Scope::new("per-payer", [KeyPart::header("PI-PayerId")]))
///     .with_prices(prices);
///
/// // One token was taken when the request came in; the outcome settles the rest.
/// assert_eq!(policy.settlement(404), Some(Command::Charge { n: 19 }));
/// assert_eq!(policy.settlement(200), None);
/// assert_eq!(policy.settlement(500), Some(Command::Credit { n: 1 }));
/// # Ok::<(), balde_core::ParseLimitError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    name: Box<str>,
    scope: Scope,
    rules: Vec<MatchRule>,
    limits: ByVariant<Limit>,
    admission: u64,
    prices: PriceList,
    credits: Vec<Credit>,
    on_failure: OnFailure,
    mode: Mode,
    reserves: Vec<Reserve>,
    pub(crate) lease_share: Option<Share>,
    pub(crate) denials: Option<Denials>,
}

/// A share of a policy's buckets that only one class of callers may use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reserve {
    class: Box<str>,
    percent: u64,
}

impl Policy {
    /// Creates a policy that applies to every request, with one bucket, at one token each.
    pub fn new(name: impl Into<Box<str>>, limit: Limit) -> Self {
        Self {
            name: name.into(),
            scope: Scope::everyone(),
            rules: Vec::new(),
            limits: ByVariant::One(limit),
            admission: ADMISSION_DEFAULT,
            prices: PriceList::new(1),
            credits: Vec::new(),
            on_failure: OnFailure::Deny,
            mode: Mode::Enforce,
            reserves: Vec::new(),
            lease_share: None,
            denials: None,
        }
    }

    /// Replaces the limit by one for each value of a variant.
    pub fn with_limits(self, limits: ByVariant<Limit>) -> Self {
        Self { limits, ..self }
    }

    /// Replaces the scope, which decides which requests share a bucket.
    pub fn with_scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// Adds a rule. The policy applies to requests that match at least one of its rules.
    pub fn with_rule(mut self, rule: MatchRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Replaces the admission cost: the tokens that a bucket must hold for a request to be
    /// admitted, and that are then taken from it.
    pub fn with_admission(self, admission: u64) -> Self {
        Self { admission, ..self }
    }

    /// Replaces the price list.
    pub fn with_prices(self, prices: PriceList) -> Self {
        Self { prices, ..self }
    }

    /// Adds an event that gives tokens back.
    pub fn with_credit(mut self, credit: Credit) -> Self {
        self.credits.push(credit);
        self
    }

    /// Replaces what the policy decides while its store is unavailable.
    pub fn with_on_failure(self, on_failure: OnFailure) -> Self {
        Self { on_failure, ..self }
    }

    /// Replaces the mode.
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Lets each process take up to this share of a busy bucket from Redis ahead of use, and spend it
    /// without a call to Redis; see [`Leases`](balde::Leases).
    ///
    /// It applies to requests that are charged when they are admitted
    /// ([`InFlight::Reserved`](crate::InFlight::Reserved)) and for whose class nothing is reserved.
    /// Buckets in memory need no leases.
    pub fn with_leases(self, share: Share) -> Self {
        Self {
            lease_share: Some(share),
            ..self
        }
    }

    /// Sets which refusals of this policy are logged; by default what
    /// [`EngineBuilder::denials`](crate::EngineBuilder::denials) says.
    pub fn with_denials(self, denials: Denials) -> Self {
        Self {
            denials: Some(denials),
            ..self
        }
    }

    /// Reserves a share of each bucket, in percent of its capacity, for callers of one
    /// [class](Request::class): requests of others are refused while the level is not above it. A
    /// share of 100 or more is lowered to 99. A second share for the same class replaces the first. The shares of several
    /// classes add up, and a class may also use the shares of the classes that were added before it.
    pub fn with_reserve(mut self, class: impl Into<Box<str>>, percent: u64) -> Self {
        let class = class.into();
        self.reserves.retain(|reserve| reserve.class != class);
        self.reserves.push(Reserve {
            class,
            percent: percent.min(99),
        });
        self
    }

    /// The tokens of a bucket with this limit that callers of `class` may not use.
    pub fn reserved_tokens(&self, limit: &Limit, class: Option<&str>) -> u64 {
        let reserves = self.reserves.iter().rev();
        let reserves = reserves.take_while(|reserve| class != Some(&*reserve.class));
        let percent: u64 = reserves.map(|reserve| reserve.percent).sum();
        // Rounded up, and always less than the capacity.
        let tokens = (u128::from(limit.capacity()) * u128::from(percent)).div_ceil(100);
        u64::try_from(tokens)
            .unwrap_or(u64::MAX)
            .min(limit.capacity().saturating_sub(self.admission))
    }

    /// The policy's name, under which it appears in logs and metrics.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scope, which decides which requests share a bucket.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The rules. The policy applies to requests that match at least one; without rules, all.
    pub fn rules(&self) -> &[MatchRule] {
        &self.rules
    }

    /// The rule that a request matches, or `None` if the policy does not apply to the request. For a
    /// policy without rules, which applies to everything, this is [`MatchRule::any`].
    pub fn matching_rule<'p>(&'p self, request: &Request<'_>) -> Option<&'p MatchRule> {
        if self.rules.is_empty() {
            return Some(MatchRule::any());
        }
        self.rules.iter().find(|rule| rule.matches(request))
    }

    /// The limits: one for all requests, or one for each value of a variant.
    pub fn limits(&self) -> &ByVariant<Limit> {
        &self.limits
    }

    /// The limit for a value of the variant, such as `A` or `PF`. A policy with a single limit has
    /// it for every value; a policy with a variant has none for a value that it does not list.
    pub fn limit(&self, value: Option<&str>) -> Option<&Limit> {
        self.limits.get(value)
    }

    /// The index of a variant's value among the limits.
    pub(crate) fn value_index(&self, value: &str) -> Option<usize> {
        let mut limits = self.limits.iter();
        limits.position(|(other, _)| other == Some(value))
    }

    /// The admission cost: the tokens that a bucket must hold for a request to be admitted, and
    /// that are then taken from it. With zero, every request is admitted.
    pub fn admission(&self) -> u64 {
        self.admission
    }

    /// What each outcome costs in total, including the admission cost.
    pub fn prices(&self) -> &PriceList {
        &self.prices
    }

    /// What a response with this status costs in total, including the admission cost.
    pub fn cost(&self, status: u16) -> u64 {
        self.prices.cost(status)
    }

    /// The command that settles a request that took [`admission`](Policy::admission) tokens and was
    /// answered with this status; `None` if the price is exactly what was taken.
    pub fn settlement(&self, status: u16) -> Option<Command> {
        settle(self.admission, self.cost(status))
    }

    /// The events that give tokens back.
    pub fn credits(&self) -> &[Credit] {
        &self.credits
    }

    /// The tokens that an event gives back to a bucket with this value of the variant. Zero for an
    /// event or a value that the policy does not list.
    pub fn credit(&self, event: &str, value: Option<&str>) -> u64 {
        let named = self.credits.iter().find(|credit| credit.event() == event);
        let tokens = named.and_then(|credit| credit.tokens().get(value));
        tokens.copied().unwrap_or(0)
    }

    /// What the policy decides while its store is unavailable.
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// Whether the policy refuses requests or only counts them.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

fn settle(paid: u64, cost: u64) -> Option<Command> {
    match cost.checked_sub(paid) {
        Some(0) => None,
        Some(n) => Some(Command::Charge { n }),
        None => Some(Command::Credit { n: paid - cost }),
    }
}

/// Whether a policy refuses requests or only counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Requests above the limit are refused.
    #[default]
    Enforce,
    /// Requests above the limit are counted and reported, and pass.
    Shadow,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_may_use_its_own_reserve_and_those_before_it() {
        let limit: Limit = "1/min burst 20".parse().unwrap();
        let policy = Policy::new("p", limit)
            .with_reserve("live", 10)
            .with_reserve("own", 50)
            .with_reserve("live", 30)
            .with_reserve("own", 25);
        let reserved = |class| policy.reserved_tokens(&limit, class);
        assert_eq!(reserved(None), 11);
        assert_eq!(reserved(Some("batch")), 11);
        assert_eq!(reserved(Some("live")), 5);
        assert_eq!(reserved(Some("own")), 0);
        let more = policy.clone().with_reserve("more", 99);
        assert_eq!(
            more.reserved_tokens(&limit, None),
            19,
            "one request always fits"
        );
    }
}
