//! The buckets: one limiter to each policy and variant, asked before a request is performed and
//! settled by its outcome.
//!
//! In memory a participant that changes its category takes what it is below full along to the
//! limiter of the new one. In Redis all limiters of a policy have one name and so the same buckets,
//! and the store itself converts a bucket that was written under another limit.

use std::sync::Arc;

use balde::{Ask, BuildError, Clock, Decision, Joint, Limit, OnFailure, RateLimiter, RedisStore};
use balde::{Error as BucketError, Reason};
use balde_core::Command;
use balde_core::policy::{Headers, Policy, Request, Rule};
use balde_core::profile::{Draw, Profile};
use parking_lot::RwLock;

use super::runtime::Runtime;

/// The variant whose value is assigned to participants.
pub(crate) const CATEGORY: &str = "category";

/// The limiters and what can be changed about them.
#[derive(Debug)]
pub(crate) struct Buckets {
    profile: Arc<Profile>,
    /// For each policy, in the profile's order, a limiter for each value of its variant.
    limiters: Vec<Vec<(Option<Box<str>>, RateLimiter)>>,
    default_category: Option<Box<str>>,
    is_shared: bool,
    holds_in_flight: bool,
    runtime: RwLock<Arc<Runtime>>,
}

/// A bucket that a request has drawn on and must be settled with.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    policy: usize,
    value: Option<Box<str>>,
    key: Vec<u8>,
    /// The participant whose category chose the limiter, so that it can be chosen again.
    assigned: bool,
}

/// Whether a request may be performed.
#[derive(Debug)]
pub(crate) enum Admission {
    Admitted,
    Refused(Refused),
    /// The store could not be asked.
    Unavailable,
}

/// Which bucket refused.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) policy: String,
    pub(crate) scope: String,
    pub(crate) level: i64,
    pub(crate) retry_after_us: Option<u64>,
}

/// How a bucket stands.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) policy: String,
    pub(crate) scope: String,
    pub(crate) value: Option<String>,
    pub(crate) decision: Decision,
}

impl Buckets {
    pub(crate) fn new(
        profile: Arc<Profile>,
        default_category: Option<Box<str>>,
        holds_in_flight: bool,
        redis: Option<&RedisStore>,
        clock: &Clock,
    ) -> Result<Self, BuildError> {
        let limiter = |policy: &Policy, limit: &Limit| {
            let builder = RateLimiter::builder()
                .name(policy.name())
                .limit(*limit)
                .clock(clock.clone());
            match redis {
                Some(store) => builder.redis(store, OnFailure::Deny).build(),
                None => builder.build(),
            }
        };
        let mut limiters = Vec::new();
        for policy in profile.policies() {
            let mut of_policy = Vec::new();
            for (value, limit) in policy.limits().iter() {
                of_policy.push((value.map(Into::into), limiter(policy, limit)?));
            }
            limiters.push(of_policy);
        }
        Ok(Self {
            profile,
            limiters,
            default_category,
            is_shared: redis.is_some(),
            holds_in_flight,
            runtime: RwLock::default(),
        })
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(crate) fn runtime(&self) -> Arc<Runtime> {
        Arc::clone(&self.runtime.read())
    }

    /// A participant's category, if it has one.
    pub(crate) fn category(&self, participant: &str) -> Option<Box<str>> {
        category_in(&self.runtime.read(), &self.default_category, participant)
    }

    /// What a request draws on.
    pub(crate) fn held(&self, draws: &[Draw<'_>]) -> Vec<Held> {
        let held = |draw: &Draw<'_>| Held {
            policy: self.place(draw.policy()),
            value: draw.value().map(Into::into),
            key: draw.key().to_vec(),
            assigned: draw.policy().limits().variant() == Some(CATEGORY),
        };
        draws.iter().map(held).collect()
    }

    /// Whether a request may be performed; if so, it is held in flight.
    pub(crate) async fn admit(&self, participant: &str, held: &[Held]) -> Admission {
        if self.is_shared {
            let runtime = self.runtime();
            let limiters = self.limiters_of(&runtime, participant, held);
            if !self.holds_in_flight {
                return self.look(held, &limiters).await;
            }
            let asks = self.asks(held, &limiters);
            return self.told(held, &limiters, &balde::check_all(&asks).await);
        }
        // Held until the tokens are taken: a category must not change in between.
        let runtime = self.runtime.read();
        let limiters = self.limiters_of(&runtime, participant, held);
        if !self.holds_in_flight {
            return self.look_here(held, &limiters);
        }
        let asks = self.asks(held, &limiters);
        self.told(held, &limiters, &balde::check_all_blocking(&asks))
    }

    /// Settles what a request was admitted to by its outcome. Every request that was admitted ends
    /// here, once.
    pub(crate) async fn settle(&self, participant: &str, held: &[Held], status: u16) {
        for one in held {
            let policy = &self.profile.policies()[one.policy];
            let command = if self.holds_in_flight {
                policy.settlement(status)
            } else {
                Some(Command::Charge {
                    n: policy.cost(status),
                })
            };
            let Some(command) = command else { continue };
            self.run(participant, one, command).await;
        }
    }

    /// Charges what a refusal costs, where the profile says that it does.
    pub(crate) async fn charge_refusal(&self, participant: &str, held: &[Held]) {
        for one in held {
            let n = self.profile.policies()[one.policy].cost(429);
            if n > 0 {
                self.run(participant, one, Command::Charge { n }).await;
            }
        }
    }

    /// What an event gives back to a bucket, and how the bucket then stands.
    pub(crate) async fn credit(
        &self,
        participant: &str,
        one: &Held,
        event: &str,
    ) -> Result<Option<(String, u64, i64)>, BucketError> {
        let policy = &self.profile.policies()[one.policy];
        let value = self.value_now(participant, one);
        let tokens = policy.credit(event, value.as_deref());
        if tokens == 0 {
            return Ok(None);
        }
        let limiter = self.limiter(one.policy, value.as_deref());
        let Some(limiter) = limiter else {
            return Ok(None);
        };
        let decision = limiter.credit(&one.key, tokens).await?;
        Ok(Some((policy.name().to_owned(), tokens, decision.level())))
    }

    /// How one bucket stands: of a participant, or of a participant and a payer.
    pub(crate) async fn standing(
        &self,
        policy: &Policy,
        participant: &str,
        payer: Option<&str>,
    ) -> Result<Option<Standing>, BucketError> {
        let Some(one) = self.find(policy, participant, payer) else {
            return Ok(None);
        };
        let Some(limiter) = self.limiter(one.policy, one.value.as_deref()) else {
            return Ok(None);
        };
        let decision = limiter.peek(&one.key).await?;
        Ok(Some(Standing {
            policy: policy.name().to_owned(),
            scope: policy.scope().name().to_owned(),
            value: one.value.map(Into::into),
            decision,
        }))
    }

    /// Sets the level of one bucket; nothing, where there is no such bucket.
    pub(crate) async fn set_level(
        &self,
        policy: &Policy,
        participant: &str,
        payer: Option<&str>,
        level: i64,
    ) -> Result<Option<Decision>, BucketError> {
        let Some(one) = self.find(policy, participant, payer) else {
            return Ok(None);
        };
        match self.limiter(one.policy, one.value.as_deref()) {
            Some(limiter) => limiter.set_level(&one.key, level).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether a policy's buckets are of a participant and a payer.
    pub(crate) fn needs_payer(&self, policy: &Policy) -> bool {
        self.find(policy, "00000000", None).is_none()
    }

    /// Follows what was changed, here or by another simulator.
    pub(crate) fn follow(&self, new: Runtime) {
        let mut runtime = self.runtime.write();
        if !self.is_shared {
            self.move_categories(&runtime, &new);
        }
        for (place, policy) in self.profile.policies().iter().enumerate() {
            for (value, limiter) in &self.limiters[place] {
                let change = new.limits.iter().rev().find(|change| {
                    change.policy == policy.name() && change.value.as_deref() == value.as_deref()
                });
                let limit = match change {
                    Some(change) => change.limit.parse().ok(),
                    None => policy.limit(value.as_deref()).copied(),
                };
                if let Some(limit) = limit
                    && limit != limiter.limit()
                {
                    // A limit that exists here exists there, too.
                    let _cannot_fail = limiter.set_limit(limit);
                }
            }
        }
        *runtime = Arc::new(new);
    }

    /// What participants are below full goes along to the limiters of their new categories.
    fn move_categories(&self, old: &Runtime, new: &Runtime) {
        let names = old.categories.keys().chain(new.categories.keys());
        for participant in names {
            let before = category_in(old, &self.default_category, participant);
            let after = category_in(new, &self.default_category, participant);
            if before == after {
                continue;
            }
            for (place, policy) in self.profile.policies().iter().enumerate() {
                if policy.limits().variant() != Some(CATEGORY) {
                    continue;
                }
                let limiters = (
                    self.limiter(place, before.as_deref()),
                    self.limiter(place, after.as_deref()),
                );
                if let (Some(from), Some(to)) = limiters {
                    let Some(key) = key_of(policy, participant, None) else {
                        continue;
                    };
                    move_bucket(from, to, &key);
                }
            }
        }
    }

    fn find(&self, policy: &Policy, participant: &str, payer: Option<&str>) -> Option<Held> {
        let key = key_of(policy, participant, payer)?;
        let value = match policy.limits().variant() {
            None => None,
            Some(CATEGORY) => Some(self.category(participant)?),
            Some(name) => {
                let headers = payer.map(|payer| [("PI-PayerId", payer)]);
                let headers: &[(&str, &str)] = headers.as_ref().map_or(&[], |pair| pair);
                let request = Request {
                    headers: &headers,
                    participant: Some(participant),
                    user: payer,
                    ..Request::new("GET", "/", "")
                };
                let variant = self.profile.variant(name)?;
                Some(variant.value_of(&request, Rule::any())?.into())
            }
        };
        Some(Held {
            policy: self.place(policy),
            assigned: policy.limits().variant() == Some(CATEGORY),
            value,
            key,
        })
    }

    async fn run(&self, participant: &str, one: &Held, command: Command) {
        if self.is_shared {
            let value = self.value_now(participant, one);
            let Some(limiter) = self.limiter(one.policy, value.as_deref()) else {
                return;
            };
            let outcome = match command {
                Command::Charge { n } => limiter.charge(&one.key, n).await,
                Command::Credit { n } => limiter.credit(&one.key, n).await,
                _ => return,
            };
            if let Err(error) = outcome {
                let policy = self.profile.policies()[one.policy].name();
                tracing::warn!(policy, %error, "a request could not be settled");
            }
            return;
        }
        let runtime = self.runtime.read();
        let value = self.value_in(&runtime, participant, one);
        if let Some(limiter) = self.limiter(one.policy, value.as_deref()) {
            // In memory nothing but a bad key can fail, and it was good enough to be admitted.
            let _cannot_fail = match command {
                Command::Charge { n } => limiter.blocking().charge(&one.key, n),
                Command::Credit { n } => limiter.blocking().credit(&one.key, n),
                _ => return,
            };
        }
    }

    fn asks<'a>(&self, held: &'a [Held], limiters: &[Option<&'a RateLimiter>]) -> Vec<Ask<'a>> {
        let ask = |(one, limiter): (&'a Held, &Option<&'a RateLimiter>)| {
            let admission = self.profile.policies()[one.policy].admission();
            (*limiter)
                .filter(|_| admission > 0)
                .map(|limiter| limiter.ask_n(&one.key, admission))
        };
        held.iter().zip(limiters).filter_map(ask).collect()
    }

    fn told(&self, held: &[Held], limiters: &[Option<&RateLimiter>], joint: &Joint) -> Admission {
        let Some(index) = joint.refused_index() else {
            return Admission::Admitted;
        };
        // Policies that admit always were not asked.
        let asked = held.iter().zip(limiters).filter(|(one, limiter)| {
            limiter.is_some() && self.profile.policies()[one.policy].admission() > 0
        });
        match asked.map(|(one, _)| one).nth(index) {
            Some(one) => self.refused(one, &joint.parts()[index]),
            None => Admission::Unavailable,
        }
    }

    /// Whether all buckets would admit a request, without holding it.
    async fn look(&self, held: &[Held], limiters: &[Option<&RateLimiter>]) -> Admission {
        for (one, limiter) in held.iter().zip(limiters) {
            let Some(limiter) = limiter else { continue };
            match limiter.peek(&one.key).await {
                Ok(decision) if self.admits(one, &decision) => {}
                Ok(decision) => return self.refused(one, &decision),
                Err(_) => return Admission::Unavailable,
            }
        }
        Admission::Admitted
    }

    fn look_here(&self, held: &[Held], limiters: &[Option<&RateLimiter>]) -> Admission {
        for (one, limiter) in held.iter().zip(limiters) {
            let Some(limiter) = limiter else { continue };
            match limiter.blocking().peek(&one.key) {
                Ok(decision) if self.admits(one, &decision) => {}
                Ok(decision) => return self.refused(one, &decision),
                Err(_) => return Admission::Unavailable,
            }
        }
        Admission::Admitted
    }

    fn admits(&self, one: &Held, decision: &Decision) -> bool {
        let admission = self.profile.policies()[one.policy].admission();
        admission == 0 || i64::try_from(admission).is_ok_and(|n| decision.level() >= n)
    }

    fn refused(&self, one: &Held, decision: &Decision) -> Admission {
        if matches!(decision.reason(), Reason::StoreUnavailable(_)) {
            return Admission::Unavailable;
        }
        let policy = &self.profile.policies()[one.policy];
        let wait = decision.retry_after().map(|wait| wait.as_micros());
        Admission::Refused(Refused {
            policy: policy.name().to_owned(),
            scope: policy.scope().name().to_owned(),
            level: decision.level(),
            retry_after_us: wait.and_then(|us| u64::try_from(us).ok()),
        })
    }

    fn limiters_of<'a>(
        &'a self,
        runtime: &Runtime,
        participant: &str,
        held: &[Held],
    ) -> Vec<Option<&'a RateLimiter>> {
        let limiter = |one: &Held| {
            let value = self.value_in(runtime, participant, one);
            self.limiter(one.policy, value.as_deref())
        };
        held.iter().map(limiter).collect()
    }

    fn limiter(&self, policy: usize, value: Option<&str>) -> Option<&RateLimiter> {
        let of_policy = &self.limiters[policy];
        let found = of_policy.iter().find(|(own, _)| own.is_none() || own.as_deref() == value);
        found.map(|(_, limiter)| limiter)
    }

    fn value_now(&self, participant: &str, one: &Held) -> Option<Box<str>> {
        self.value_in(&self.runtime.read(), participant, one)
    }

    /// The value of the variant as of now: a category may have changed since the request came in.
    fn value_in(&self, runtime: &Runtime, participant: &str, one: &Held) -> Option<Box<str>> {
        if one.assigned {
            category_in(runtime, &self.default_category, participant)
        } else {
            one.value.clone()
        }
    }

    fn place(&self, policy: &Policy) -> usize {
        let policies = self.profile.policies();
        let place = policies.iter().position(|own| std::ptr::eq(own, policy));
        let by_name = || policies.iter().position(|own| own.name() == policy.name());
        place.or_else(by_name).unwrap_or(0)
    }
}

fn category_in(
    runtime: &Runtime,
    default: &Option<Box<str>>,
    participant: &str,
) -> Option<Box<str>> {
    match runtime.categories.get(participant) {
        Some(category) => Some(category.as_str().into()),
        None => default.clone(),
    }
}

/// The key of a bucket of a participant, or of a participant and a payer, if the policy's buckets
/// are of such.
fn key_of(policy: &Policy, participant: &str, payer: Option<&str>) -> Option<Vec<u8>> {
    let headers = payer.map(|payer| [("PI-PayerId", payer)]);
    let headers: &[(&str, &str)] = headers.as_ref().map_or(&[], |pair| pair);
    let request = Request {
        headers: &headers as &dyn Headers,
        participant: Some(participant),
        user: payer,
        ..Request::new("GET", "/", "")
    };
    let mut key = Vec::new();
    let written = policy.scope().write_key(&request, Rule::any(), &mut key);
    written.is_ok().then_some(key)
}

/// Law 9 for one bucket: what it is below full, in tokens, and a debt stays one and does not grow.
/// Parts of a token are counted against it.
fn move_bucket(from: &RateLimiter, to: &RateLimiter, key: &[u8]) {
    let Ok(found) = from.blocking().peek(key) else {
        return;
    };
    let whole = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    let level = found.level();
    let below_full = whole(from.limit().capacity()) - level;
    let kept = whole(to.limit().capacity()) - below_full;
    // Memory is always there, and the key is good.
    let _set = to.blocking().set_level(key, kept.max(level.min(0)));
    let _full_again = from.blocking().set_level(key, whole(from.limit().capacity()));
}
