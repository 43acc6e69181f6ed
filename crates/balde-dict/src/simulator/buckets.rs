//! The buckets: one limiter to each policy and variant, asked before a request is performed and
//! settled by its outcome.
//!
//! In memory a participant that changes its category takes what it is below full along to the
//! limiter of the new one. In Redis all limiters of a policy have one name and so the same buckets,
//! and the store itself converts a bucket that was written under another limit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use balde::{
    BuildError, Clock, Decision, Limit, MultiDecision, OnFailure, RateLimiter, Reason, TokenRequest,
};
use balde::{Error as BucketError, OpId, RedisStore};
use balde_core::Command;
use balde_policy::Policy;
use parking_lot::RwLock;

use super::runtime_settings::RuntimeSettings;
use super::standing::Bucket;
use crate::{Category, Draw, InFlight, PayerKind, Table};

/// The longest that limiters remember what happened once.
const ONCE_TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The limiters, and what can be changed about them.
#[derive(Debug)]
pub(crate) struct Buckets {
    pub(super) table: Arc<Table>,
    /// In the order of the profile's policies.
    pub(super) policies: Vec<OfPolicy>,
    default_category: Category,
    is_shared: bool,
    runtime: RwLock<Arc<RuntimeSettings>>,
}

/// The limiters of one policy.
#[derive(Debug)]
pub(super) struct OfPolicy {
    pub(super) by: By,
    limiters: Vec<(Option<Box<str>>, RateLimiter)>,
}

/// What chooses among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Nothing,
    Category,
    Payer,
}

/// Whether a request may be performed.
#[derive(Debug)]
pub(crate) enum Admission {
    Admitted,
    Refused(Refused),
    /// The store could not be asked.
    Unavailable,
}

/// Which bucket refused, and how it stands.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) policy: usize,
    pub(crate) level: i64,
    pub(crate) retry_after_us: Option<u64>,
}

impl Buckets {
    pub(crate) fn new(
        table: Arc<Table>,
        default_category: Category,
        redis: Option<&RedisStore>,
        clock: &Clock,
    ) -> Result<Self, BuildError> {
        let deadline = table.settings().credit_deadline;
        let once_ttl = deadline.clamp(Duration::from_secs(1), ONCE_TTL_MAX);
        let limiter = |policy: &Policy, limit: &Limit| {
            let builder = RateLimiter::builder()
                .name(policy.name())
                .limit(*limit)
                .once_ttl(once_ttl)
                .clock(clock.clone());
            match redis {
                Some(store) => builder.redis(store, OnFailure::Deny).build(),
                None => builder.build(),
            }
        };
        let mut policies = Vec::new();
        for policy in table.profile().policies() {
            let mut limiters = Vec::new();
            for (value, limit) in policy.limits().iter() {
                limiters.push((value.map(Into::into), limiter(policy, limit)?));
            }
            let by = match policy.limits().variant() {
                None => By::Nothing,
                Some("category") => By::Category,
                Some(_) => By::Payer,
            };
            policies.push(OfPolicy { by, limiters });
        }
        Ok(Self {
            table,
            policies,
            default_category,
            is_shared: redis.is_some(),
            runtime: RwLock::default(),
        })
    }

    pub(crate) fn runtime(&self) -> Arc<RuntimeSettings> {
        Arc::clone(&self.runtime.read())
    }

    /// A participant's category.
    pub(crate) fn category(&self, participant: &str) -> Category {
        self.category_in(&self.runtime.read(), participant)
    }

    /// Whether a request may be performed; if so, it counts as being in flight.
    pub(crate) async fn admit(&self, participant: &str, draws: &[Draw]) -> Admission {
        let is_reserved = self.table.settings().in_flight == InFlight::Reserved;
        if self.is_shared {
            let category = self.category(participant);
            if !is_reserved {
                return self.look(category, draws).await;
            }
            let asks = self.asks(category, draws);
            return self.told(draws, &balde::check_all(&asks).await);
        }
        // Held until the tokens are taken: a category must not change in between.
        let runtime = self.runtime.read();
        let category = self.category_in(&runtime, participant);
        if !is_reserved {
            return self.look_here(category, draws);
        }
        let asks = self.asks(category, draws);
        self.told(draws, &balde::check_all_blocking(&asks))
    }

    /// Settles what a request was admitted to by its outcome. Every request that was admitted ends
    /// here, once.
    pub(crate) async fn settle(&self, participant: &str, draws: &[Draw], status: u16) {
        let is_reserved = self.table.settings().in_flight == InFlight::Reserved;
        for draw in draws {
            let policy = self.table.policy(draw.policy());
            let command = match policy.cost(status) {
                _ if is_reserved => policy.settlement(status),
                0 => None,
                n => Some(Command::Charge { n }),
            };
            if let Some(command) = command {
                self.run(participant, draw, command).await;
            }
        }
    }

    /// Charges what a refusal costs, where the profile says that it does.
    pub(crate) async fn charge_refusal(&self, participant: &str, draws: &[Draw]) {
        let n = self.table.settings().cost_of_429;
        if n == 0 {
            return;
        }
        for draw in draws {
            self.run(participant, draw, Command::Charge { n }).await;
        }
    }

    /// Gives a bucket back what a payment order is worth to it; nothing, where that is nothing.
    /// Where an order counts once, its name makes sure of it even if this is tried again.
    pub(crate) async fn credit(
        &self,
        participant: &str,
        draw: &Draw,
        order: &OpId,
    ) -> Result<Option<(u64, Decision)>, BucketError> {
        let category = self.category(participant);
        let tokens = self.table.credit(draw, category);
        let limiter = self.limiter(draw.policy(), category, draw.payer_kind());
        match limiter.filter(|_| tokens > 0) {
            Some(limiter) => {
                let decision = if self.table.settings().credit_once {
                    limiter.credit_once(draw.key(), tokens, order).await?
                } else {
                    limiter.credit(draw.key(), tokens).await?
                };
                Ok(Some((tokens, decision)))
            }
            None => Ok(None),
        }
    }

    /// Follows what was changed, here or by another simulator.
    pub(crate) fn follow(&self, new: RuntimeSettings) {
        let mut runtime = self.runtime.write();
        if !self.is_shared {
            self.move_participants(&runtime, &new);
        }
        for (policy, of_policy) in self.table.profile().policies().iter().zip(&self.policies) {
            for (value, limiter) in &of_policy.limiters {
                let is_this = |change: &&super::runtime_settings::LimitChange| {
                    change.policy == policy.name() && change.value.as_deref() == value.as_deref()
                };
                let limit = match new.limits.iter().find(is_this) {
                    Some(change) => change.limit.parse().ok(),
                    None => policy.limit(value.as_deref()).copied(),
                };
                if let Some(limit) = limit.filter(|limit| *limit != limiter.limit()) {
                    // A limit that exists can be kept here, too.
                    let _cannot_fail = limiter.set_limit(limit);
                }
            }
        }
        *runtime = Arc::new(new);
    }

    /// What participants are below full goes along to the limiters of their new categories.
    fn move_participants(&self, old: &RuntimeSettings, new: &RuntimeSettings) {
        let named: BTreeSet<_> = old.categories.keys().chain(new.categories.keys()).collect();
        for participant in named {
            let before = self.category_in(old, participant);
            let after = self.category_in(new, participant);
            if before == after {
                continue;
            }
            for (policy, of_policy) in self.policies.iter().enumerate() {
                if of_policy.by != By::Category {
                    continue;
                }
                let bucket = Bucket {
                    policy,
                    participant: participant.clone(),
                    payer: None,
                };
                if let (Some(from), Some(to), Some(key)) = (
                    self.limiter(policy, before, None),
                    self.limiter(policy, after, None),
                    self.key_of(&bucket),
                ) {
                    move_bucket(from, to, &key);
                }
            }
        }
    }

    async fn run(&self, participant: &str, draw: &Draw, command: Command) {
        if !self.is_shared {
            let runtime = self.runtime.read();
            let category = self.category_in(&runtime, participant);
            if let Some(limiter) = self.limiter(draw.policy(), category, draw.payer_kind()) {
                // In memory only a bad key can fail, and this one was good enough to be admitted.
                let _cannot_fail = match command {
                    Command::Charge { n } => limiter.blocking().charge(draw.key(), n),
                    Command::Credit { n } => limiter.blocking().credit(draw.key(), n),
                    _ => return,
                };
            }
            return;
        }
        let category = self.category(participant);
        let Some(limiter) = self.limiter(draw.policy(), category, draw.payer_kind()) else {
            return;
        };
        let outcome = match command {
            Command::Charge { n } => limiter.charge(draw.key(), n).await,
            Command::Credit { n } => limiter.credit(draw.key(), n).await,
            _ => return,
        };
        if let Err(error) = outcome {
            let policy = self.table.policy(draw.policy()).name();
            tracing::warn!(policy, %error, "a request could not be settled");
        }
    }

    /// Policies that admit always are not asked.
    fn is_asked(&self, draw: &Draw) -> bool {
        self.table.policy(draw.policy()).admission() > 0
    }

    fn asks<'a>(&'a self, category: Category, draws: &'a [Draw]) -> Vec<TokenRequest<'a>> {
        let asked = draws.iter().filter(|draw| self.is_asked(draw));
        let ask = |draw: &'a Draw| {
            let limiter = self.limiter(draw.policy(), category, draw.payer_kind())?;
            let admission = self.table.policy(draw.policy()).admission();
            Some(limiter.request_n(draw.key(), admission))
        };
        asked.filter_map(ask).collect()
    }

    fn told(&self, draws: &[Draw], joint: &MultiDecision) -> Admission {
        let Some(index) = joint.refused_index() else {
            return Admission::Admitted;
        };
        match draws.iter().filter(|draw| self.is_asked(draw)).nth(index) {
            Some(draw) => refused(draw, &joint.parts()[index]),
            None => Admission::Unavailable,
        }
    }

    /// Whether all buckets would admit a request, without counting it as being in flight.
    async fn look(&self, category: Category, draws: &[Draw]) -> Admission {
        for draw in draws {
            let Some(limiter) = self.limiter(draw.policy(), category, draw.payer_kind()) else {
                continue;
            };
            match limiter.peek(draw.key()).await {
                Ok(decision) if self.admits(draw, &decision) => {}
                Ok(decision) => return self.refused_by_look(draw, limiter, &decision),
                Err(_) => return Admission::Unavailable,
            }
        }
        Admission::Admitted
    }

    fn look_here(&self, category: Category, draws: &[Draw]) -> Admission {
        for draw in draws {
            let Some(limiter) = self.limiter(draw.policy(), category, draw.payer_kind()) else {
                continue;
            };
            match limiter.blocking().peek(draw.key()) {
                Ok(decision) if self.admits(draw, &decision) => {}
                Ok(decision) => return self.refused_by_look(draw, limiter, &decision),
                Err(_) => return Admission::Unavailable,
            }
        }
        Admission::Admitted
    }

    fn admits(&self, draw: &Draw, decision: &Decision) -> bool {
        let admission = self.table.policy(draw.policy()).admission();
        admission == 0 || i64::try_from(admission).is_ok_and(|n| decision.level() >= n)
    }

    fn refused_by_look(&self, draw: &Draw, limiter: &RateLimiter, seen: &Decision) -> Admission {
        // A look passes always, so how long to wait has to be worked out: whole tokens that are
        // missing, at the pace at which they come back.
        let limit = limiter.limit();
        let admission = self.table.policy(draw.policy()).admission();
        let missing = i64::try_from(admission).unwrap_or(i64::MAX) - seen.level();
        let units = missing.unsigned_abs().saturating_mul(limit.token_units());
        Admission::Refused(Refused {
            policy: draw.policy(),
            level: seen.level(),
            retry_after_us: Some(units.div_ceil(limit.refill_units().max(1))),
        })
    }

    pub(super) fn limiter(
        &self,
        policy: usize,
        category: Category,
        payer: Option<PayerKind>,
    ) -> Option<&RateLimiter> {
        let of_policy = &self.policies[policy];
        let value = match of_policy.by {
            By::Nothing => return of_policy.limiters.first().map(|(_, limiter)| limiter),
            By::Category => category.as_str(),
            By::Payer => payer?.as_str(),
        };
        let found = of_policy
            .limiters
            .iter()
            .find(|(own, _)| own.as_deref() == Some(value));
        found.map(|(_, limiter)| limiter)
    }

    fn category_in(&self, runtime: &RuntimeSettings, participant: &str) -> Category {
        let assigned = runtime.categories.get(participant);
        let letter = assigned.and_then(|category| category.chars().next());
        let assigned = letter.and_then(Category::new);
        assigned.unwrap_or(self.default_category)
    }
}

fn refused(draw: &Draw, decision: &Decision) -> Admission {
    if matches!(decision.reason(), Reason::StoreUnavailable(_)) {
        return Admission::Unavailable;
    }
    let wait = decision.retry_after().map(|wait| wait.as_micros());
    Admission::Refused(Refused {
        policy: draw.policy(),
        level: decision.level(),
        retry_after_us: wait.and_then(|us| u64::try_from(us).ok()),
    })
}

/// Law 9 for one bucket: what it is below full stays, in tokens; a debt stays one and does not
/// grow. Parts of a token are counted against it.
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
    let _full_again = from
        .blocking()
        .set_level(key, whole(from.limit().capacity()));
}
