//! What each command does to the limiters.

use std::sync::atomic::Ordering;
use std::time::Duration;

use balde::{
    AcquireError, BadKey, Decision, Hold, KEY_BYTES_MAX, Limit, MultiDecision, OpId, RateLimiter,
    TOKEN_REQUESTS_MAX, TokenRequest, Wait, check_all,
};

use super::answer::{Answer, LimitState, Verdict, Why};
use super::command::{Bucket, Command, IfExpired, LimitRef, Tokens};
use super::dynamic::DYNAMIC_NAME;
use super::error::CommandError;
use super::{Caller, Decisions, NamedLimiters, listing};

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
            Command::Check(tokens) => {
                let answer = self.check(&named, tokens).await;
                self.count(&[tokens], &answer);
                answer
            }
            Command::CheckAll(tokens) => {
                let answer = self.check_all(&named, tokens).await;
                self.count(tokens, &answer);
                answer
            }
            Command::Hold {
                tokens,
                ttl,
                if_expired,
            } => self.hold(&named, tokens, (ttl, if_expired)).await,
            Command::Settle { hold, price } => self.settle(hold, price).await,
            Command::Charge(tokens) => self.charge(&named, tokens, caller).await,
            Command::Credit(tokens) => self.credit(&named, tokens, caller).await,
            Command::Peek(bucket) => self.peek(&named, bucket).await.map(Answer::One),
            Command::State => Ok(Answer::State(limit_states(&named))),
            Command::Buckets { limit, order, most } => {
                let limiter = named.get(limit)?;
                let listed = listing::list(limiter, self.redis(), order, most).await;
                listed.map(Answer::Buckets)
            }
            Command::Reset(_)
            | Command::SetLevel { .. }
            | Command::MoveToTier { .. }
            | Command::Block { .. }
            | Command::Unblock(_)
            | Command::Wait { .. } => self.administer(&named, command).await,
        }
    }

    /// Counts a decision for the keys that are asked for most.
    fn count(&self, all: &[Tokens<'_>], answer: &Result<Answer, CommandError>) {
        let (Some(top), Ok(answer)) = (&self.0.top_keys, answer) else {
            return;
        };
        let verdicts = match answer {
            Answer::One(verdict) => std::slice::from_ref(verdict),
            Answer::All { verdicts, .. } => verdicts,
            _ => return,
        };
        let now_us = self.now_us();
        for (tokens, verdict) in all.iter().zip(verdicts) {
            let limit = match tokens.bucket.limit {
                LimitRef::Named(name) => name,
                LimitRef::Given(_) => DYNAMIC_NAME,
            };
            top.count(limit, tokens.bucket.key, !verdict.is_allowed, now_us);
        }
    }

    async fn check(
        &self,
        named: &NamedLimiters,
        tokens: Tokens<'_>,
    ) -> Result<Answer, CommandError> {
        let bucket = tokens.bucket;
        if let Some(blocked) = self.blocked(named, bucket)? {
            return Ok(Answer::One(blocked));
        }
        match bucket.limit {
            // Of the calls for one bucket, only this one uses leases.
            LimitRef::Named(name) => {
                let limiter = named.get(name)?;
                one(&limiter.check_n(bucket.key, tokens.tokens).await)
            }
            LimitRef::Given(_) => {
                let request = self.request(named, &tokens)?;
                one(&check_all(&[request]).await.parts()[0])
            }
        }
    }

    async fn check_all(
        &self,
        named: &NamedLimiters,
        tokens: &[Tokens<'_>],
    ) -> Result<Answer, CommandError> {
        let requests = self.requests(named, tokens)?;
        if let Some(refused) = self.blocked_among(named, tokens).await? {
            return Ok(refused);
        }
        all(&check_all(&requests).await)
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
        let requests = self.requests(named, tokens)?;
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

    async fn charge(
        &self,
        named: &NamedLimiters,
        tokens: Tokens<'_>,
        caller: &Caller<'_>,
    ) -> Result<Answer, CommandError> {
        let n = tokens.tokens;
        let decision = match (caller.idempotency_key, tokens.bucket.limit) {
            (Some(id), LimitRef::Named(name)) => {
                let limiter = named.get(name)?;
                let id = OpId::new(id)?;
                limiter.charge_once(tokens.bucket.key, n, &id).await?
            }
            (Some(_), LimitRef::Given(_)) => {
                let message = "a charge with an idempotency key needs a limit of the file";
                return Err(CommandError::Invalid(message.to_owned()));
            }
            (None, _) => self.request(named, &tokens)?.charge(n).await?,
        };
        one(&decision)
    }

    async fn credit(
        &self,
        named: &NamedLimiters,
        tokens: Tokens<'_>,
        caller: &Caller<'_>,
    ) -> Result<Answer, CommandError> {
        let n = tokens.tokens;
        let request = self.request(named, &tokens)?;
        let decision = match caller.idempotency_key {
            Some(id) => request.credit_once(n, &OpId::new(id)?).await?,
            None => request.credit(n).await?,
        };
        one(&decision)
    }

    async fn peek(
        &self,
        named: &NamedLimiters,
        bucket: Bucket<'_>,
    ) -> Result<Verdict, CommandError> {
        if let Some(blocked) = self.blocked(named, bucket)? {
            return Ok(blocked);
        }
        let tokens = Tokens { bucket, tokens: 1 };
        let request = self.request(named, &tokens)?;
        Ok(Verdict::of_peek(&request.peek().await?))
    }

    async fn wait(
        &self,
        named: &NamedLimiters,
        Tokens { bucket, tokens }: Tokens<'_>,
        within: Duration,
    ) -> Result<Answer, CommandError> {
        let (limiter, _) = of_file(named, bucket)?;
        if let Some(blocked) = self.blocked(named, bucket)? {
            return Ok(Answer::One(blocked));
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
            Command::Reset(bucket) => of_file(named, bucket)?.0.forget(bucket.key).await?,
            Command::SetLevel { bucket, level } => {
                let (limiter, _) = of_file(named, bucket)?;
                return one(&limiter.set_level(bucket.key, level).await?);
            }
            Command::MoveToTier { bucket, tier } => {
                let (limiter, name) = of_file(named, bucket)?;
                let moved = match tier {
                    Some(tier) => limiter.set_tier(bucket.key, tier).await,
                    None => limiter.clear_tier(bucket.key).await,
                };
                moved.map_err(|error| CommandError::of_tier(error, name))?;
            }
            Command::Block { bucket, time } => {
                let (_, name) = of_file(named, bucket)?;
                match bucket.key.len() {
                    0 => return Err(BadKey::Empty.into()),
                    bytes if bytes > KEY_BYTES_MAX => {
                        return Err(BadKey::TooLong { bytes }.into());
                    }
                    _ => {}
                }
                let blocked = (name, bucket.key);
                self.0.blocked.block(blocked, time, self.now_us())?;
            }
            Command::Unblock(bucket) => {
                let (_, name) = of_file(named, bucket)?;
                self.0.blocked.unblock(name, bucket.key);
            }
            _ => {}
        }
        Ok(Answer::Done)
    }

    /// The refusal of a key that an operator has blocked.
    fn blocked(
        &self,
        named: &NamedLimiters,
        bucket: Bucket<'_>,
    ) -> Result<Option<Verdict>, CommandError> {
        let LimitRef::Named(name) = bucket.limit else {
            return Ok(None);
        };
        let limit: Limit = named.get(name)?.limit();
        let left = self.0.blocked.left(name, bucket.key, self.now_us());
        Ok(left.map(|left| Verdict::blocked(limit, left)))
    }

    /// The refusal of several buckets, if the key of one is blocked. The others are only read.
    async fn blocked_among(
        &self,
        named: &NamedLimiters,
        tokens: &[Tokens<'_>],
    ) -> Result<Option<Answer>, CommandError> {
        let mut refused = None;
        for (index, tokens) in tokens.iter().enumerate() {
            if self.blocked(named, tokens.bucket)?.is_some() {
                refused.get_or_insert(index);
            }
        }
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

    fn request<'t>(
        &'t self,
        named: &'t NamedLimiters,
        tokens: &Tokens<'t>,
    ) -> Result<TokenRequest<'t>, CommandError> {
        let Bucket { limit, key } = tokens.bucket;
        match limit {
            LimitRef::Named(name) => Ok(named.get(name)?.request_n(key, tokens.tokens)),
            LimitRef::Given(limit) => self.0.dynamic.request(key, limit, tokens.tokens),
        }
    }

    fn requests<'t>(
        &'t self,
        named: &'t NamedLimiters,
        tokens: &[Tokens<'t>],
    ) -> Result<Vec<TokenRequest<'t>>, CommandError> {
        if tokens.is_empty() || tokens.len() > TOKEN_REQUESTS_MAX {
            let message = format!("a request names 1 to {TOKEN_REQUESTS_MAX} buckets");
            return Err(CommandError::Invalid(message));
        }
        let requests = tokens.iter().map(|tokens| self.request(named, tokens));
        requests.collect()
    }
}

/// The limiter of a bucket whose limit is one of the file, with its name.
fn of_file<'t>(
    named: &'t NamedLimiters,
    bucket: Bucket<'t>,
) -> Result<(&'t RateLimiter, &'t str), CommandError> {
    match bucket.limit {
        LimitRef::Named(name) => Ok((named.get(name)?, name)),
        LimitRef::Given(_) => {
            let message = "this needs a limit of the file";
            Err(CommandError::Invalid(message.to_owned()))
        }
    }
}

pub(super) fn limit_states(named: &NamedLimiters) -> Vec<LimitState> {
    let state = |limiter: &RateLimiter| LimitState {
        name: limiter.name().to_owned(),
        limit: limiter.limit().to_string(),
        is_in_memory: limiter.is_in_memory(),
        waiting: limiter.waiting(),
        keys: limiter.memory_stats().keys,
        leases: limiter.lease_stats().keys,
    };
    named.limiters.iter().map(state).collect()
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
