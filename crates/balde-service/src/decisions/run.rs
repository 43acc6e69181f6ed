//! What each command does to the limiters.

use std::sync::atomic::Ordering;
use std::time::Duration;

use balde::{
    AcquireError, Decision, Hold, MultiDecision, OpId, RateLimiter, TOKEN_REQUESTS_MAX,
    TokenRequest, Wait, check_all,
};

use super::answer::{Answer, LimitState, Verdict, Why};
use super::command::{Bucket, Command, IfExpired, Tokens};
use super::error::CommandError;
use super::{Caller, Decisions, NamedLimiters};

/// The longest time that a hold can stay open.
const HOLD_TTL_MAX: Duration = Duration::from_secs(3_600);

impl Decisions {
    pub(super) async fn execute(
        &self,
        command: Command<'_>,
        caller: &Caller<'_>,
    ) -> Result<Answer, CommandError> {
        let named = self.named();
        // A request that waits for tokens is counted by its limiter, and is no decision under way.
        if let Command::Wait { tokens, within } = command {
            return self.wait(&named, tokens, within).await;
        }
        let Ok(_permit) = self.0.in_flight.try_acquire() else {
            self.0.overloads.fetch_add(1, Ordering::Relaxed);
            return Err(CommandError::Overloaded);
        };
        match command {
            Command::Check(tokens) => self.check(&named, tokens).await,
            Command::CheckAll(tokens) => self.check_all(&named, tokens).await,
            Command::Hold {
                tokens,
                ttl,
                if_expired,
            } => self.hold(&named, tokens, (ttl, if_expired)).await,
            Command::Settle { hold, price } => self.settle(hold, price).await,
            Command::Charge(tokens) => charge(&named, tokens, caller).await,
            Command::Credit(tokens) => credit(&named, tokens, caller).await,
            Command::Peek(bucket) => self.peek(&named, bucket).await.map(Answer::One),
            Command::Throttle { key, limit, tokens } => {
                let decided = self.0.dynamic.decide(key, limit, tokens).await;
                decided.map(Answer::One)
            }
            Command::State => Ok(Answer::State(self.limit_states(&named))),
            Command::Reset(_)
            | Command::SetLevel { .. }
            | Command::MoveToTier { .. }
            | Command::Block { .. }
            | Command::Unblock(_) => self.administer(&named, command).await,
            Command::Wait { .. } => Err(CommandError::Overloaded),
        }
    }

    async fn check(
        &self,
        named: &NamedLimiters,
        Tokens { bucket, tokens }: Tokens<'_>,
    ) -> Result<Answer, CommandError> {
        let limiter = named.get(bucket.limit)?;
        if let Some(left) = self.blocked(bucket) {
            return Ok(Answer::One(Verdict::blocked(limiter.limit(), left)));
        }
        let decision = limiter.check_n(bucket.key, tokens).await;
        one(&decision)
    }

    async fn check_all(
        &self,
        named: &NamedLimiters,
        tokens: &[Tokens<'_>],
    ) -> Result<Answer, CommandError> {
        let requests = requests(named, tokens)?;
        if let Some(refused) = self.blocked_among(named, tokens).await? {
            return Ok(refused);
        }
        let decided = check_all(&requests).await;
        all(&decided)
    }

    async fn hold(
        &self,
        named: &NamedLimiters,
        tokens: &[Tokens<'_>],
        (ttl, if_expired): (Duration, IfExpired),
    ) -> Result<Answer, CommandError> {
        if ttl.is_zero() || ttl > HOLD_TTL_MAX {
            let message = "a hold stays open for at least 1 ms and at most 1 h";
            return Err(CommandError::Invalid(message.to_owned()));
        }
        let requests = requests(named, tokens)?;
        self.expire_holds();
        self.0.holds.check_room()?;
        if let Some(refused) = self.blocked_among(named, tokens).await? {
            return Ok(refused);
        }
        match Hold::take(&requests).await {
            Err(refused) => all(&refused),
            Ok(hold) => {
                let verdicts = hold.decisions().map(Verdict::new).collect();
                let id = self.0.holds.insert(hold, ttl, if_expired, self.now_us());
                Ok(Answer::Held { id, verdicts })
            }
        }
    }

    async fn settle(&self, id: &str, price: u64) -> Result<Answer, CommandError> {
        let hold = self.0.holds.take(id, self.now_us());
        let hold = hold.ok_or(CommandError::UnknownHold)?;
        let settled = hold.settle(price).await;
        let verdicts = settled.iter().map(Verdict::new).collect();
        Ok(Answer::Settled { verdicts })
    }

    async fn peek(
        &self,
        named: &NamedLimiters,
        bucket: Bucket<'_>,
    ) -> Result<Verdict, CommandError> {
        let limiter = named.get(bucket.limit)?;
        if let Some(left) = self.blocked(bucket) {
            return Ok(Verdict::blocked(limiter.limit(), left));
        }
        Ok(Verdict::of_peek(&limiter.peek(bucket.key).await?))
    }

    async fn wait(
        &self,
        named: &NamedLimiters,
        Tokens { bucket, tokens }: Tokens<'_>,
        within: Duration,
    ) -> Result<Answer, CommandError> {
        let limiter = named.get(bucket.limit)?;
        if let Some(left) = self.blocked(bucket) {
            return Ok(Answer::One(Verdict::blocked(limiter.limit(), left)));
        }
        let within = within.min(self.wait_max());
        let error = match limiter.acquire_within(bucket.key, tokens, within).await {
            Ok(decision) => return one(&decision),
            Err(error) => error,
        };
        if let Some(error) = CommandError::of_waiting(&error) {
            return Err(error);
        }
        let peeked = limiter.peek(bucket.key).await?;
        Ok(Answer::One(refused_wait(&peeked, tokens, &error)))
    }

    async fn administer(
        &self,
        named: &NamedLimiters,
        command: Command<'_>,
    ) -> Result<Answer, CommandError> {
        match command {
            Command::Reset(bucket) => named.get(bucket.limit)?.forget(bucket.key).await?,
            Command::SetLevel { bucket, level } => {
                let limiter = named.get(bucket.limit)?;
                return one(&limiter.set_level(bucket.key, level).await?);
            }
            Command::MoveToTier { bucket, tier } => {
                let limiter = named.get(bucket.limit)?;
                let moved = match tier {
                    Some(tier) => limiter.set_tier(bucket.key, tier).await,
                    None => limiter.clear_tier(bucket.key).await,
                };
                moved.map_err(|error| CommandError::of_tier(error, bucket.limit))?;
            }
            Command::Block { bucket, time } => {
                named.get(bucket.limit)?;
                let blocked = (bucket.limit, bucket.key);
                self.0.blocked.block(blocked, time, self.now_us())?;
            }
            Command::Unblock(bucket) => {
                named.get(bucket.limit)?;
                self.0.blocked.unblock(bucket.limit, bucket.key);
            }
            _ => {}
        }
        Ok(Answer::Done)
    }

    fn blocked(&self, bucket: Bucket<'_>) -> Option<Option<Duration>> {
        let now_us = self.now_us();
        self.0.blocked.left(bucket.limit, bucket.key, now_us)
    }

    /// The refusal of several buckets, if the key of one is blocked. The others are only read.
    async fn blocked_among(
        &self,
        named: &NamedLimiters,
        tokens: &[Tokens<'_>],
    ) -> Result<Option<Answer>, CommandError> {
        let mut buckets = tokens.iter().map(|tokens| tokens.bucket);
        let refused = buckets.position(|bucket| self.blocked(bucket).is_some());
        if refused.is_none() {
            return Ok(None);
        }
        let mut verdicts = Vec::with_capacity(tokens.len());
        for tokens in tokens {
            verdicts.push(self.peek(named, tokens.bucket).await?);
        }
        Ok(Some(Answer::All {
            is_allowed: false,
            refused,
            verdicts,
        }))
    }

    fn limit_states(&self, named: &NamedLimiters) -> Vec<LimitState> {
        let state = |limiter: &RateLimiter| LimitState {
            name: limiter.name().to_owned(),
            limit: limiter.limit().to_string(),
            is_in_memory: limiter.is_in_memory(),
            waiting: limiter.waiting(),
            keys: limiter.memory_stats().keys,
            leases: limiter.lease_stats().keys,
        };
        let limiters = named.limiters.iter();
        limiters.map(state).collect()
    }
}

async fn charge(
    named: &NamedLimiters,
    Tokens { bucket, tokens }: Tokens<'_>,
    caller: &Caller<'_>,
) -> Result<Answer, CommandError> {
    let limiter = named.get(bucket.limit)?;
    let decision = match caller.idempotency_key {
        Some(id) => {
            let id = OpId::new(id)?;
            limiter.charge_once(bucket.key, tokens, &id).await?
        }
        None => limiter.charge(bucket.key, tokens).await?,
    };
    one(&decision)
}

async fn credit(
    named: &NamedLimiters,
    Tokens { bucket, tokens }: Tokens<'_>,
    caller: &Caller<'_>,
) -> Result<Answer, CommandError> {
    let limiter = named.get(bucket.limit)?;
    let decision = match caller.idempotency_key {
        Some(id) => {
            let id = OpId::new(id)?;
            limiter.credit_once(bucket.key, tokens, &id).await?
        }
        None => limiter.credit(bucket.key, tokens).await?,
    };
    one(&decision)
}

fn requests<'t>(
    named: &'t NamedLimiters,
    tokens: &'t [Tokens<'_>],
) -> Result<Vec<TokenRequest<'t>>, CommandError> {
    if tokens.is_empty() || tokens.len() > TOKEN_REQUESTS_MAX {
        let message = format!("a request names 1 to {TOKEN_REQUESTS_MAX} buckets");
        return Err(CommandError::Invalid(message));
    }
    let request = |tokens: &'t Tokens<'_>| {
        let limiter = named.get(tokens.bucket.limit)?;
        Ok(limiter.request_n(tokens.bucket.key, tokens.tokens))
    };
    tokens.iter().map(request).collect()
}

/// The verdict of one bucket; a key that cannot be used is an error.
fn one(decision: &Decision) -> Result<Answer, CommandError> {
    if let balde::Reason::BadKey(bad) = decision.reason() {
        return Err(bad.into());
    }
    Ok(Answer::One(Verdict::new(decision)))
}

fn all(decided: &MultiDecision) -> Result<Answer, CommandError> {
    for decision in decided.parts() {
        one(decision)?;
    }
    Ok(Answer::All {
        is_allowed: decided.is_allowed(),
        refused: decided.refused_index(),
        verdicts: decided.parts().iter().map(Verdict::new).collect(),
    })
}

fn refused_wait(peeked: &Decision, tokens: u64, error: &AcquireError) -> Verdict {
    let why = match error {
        AcquireError::OverCapacity { .. } => Why::OverCapacity,
        _ => Why::OverLimit,
    };
    Verdict {
        is_allowed: false,
        why,
        retry_after: match peeked.wait_for(tokens) {
            Wait::Us(us) => Some(Duration::from_micros(us)),
            Wait::None | Wait::Never => None,
        },
        ..Verdict::new(peeked)
    }
}
