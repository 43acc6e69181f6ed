//! Reconciliation: DICT's own levels, limits and categories correct the mirror.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use balde_core::Limit;
use balde_dict::wire::{BucketState, BucketStates};
use balde_dict::{Category, Operation, PARTICIPANT_HEADER};
use balde_policy::{Outcome, Subject};
use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Limited};
use tokio::sync::watch;
use tokio::time::Instant;

use super::call::{CallFacts, DictCall};
use super::spent::TokensByPolicy;
use super::{CATEGORY, Dict, is_listed};
use crate::body::RequestBody;
use crate::limits::Limits;
use crate::shutdown;
use crate::upstream::{SendError, Upstream};

/// The longest response that is read, in bytes.
const STATES_BYTES_MAX: usize = 1 << 20;

/// How soon a gateway notices that it has to reconcile after a reload.
const RELOADED: Duration = Duration::from_secs(1);

/// Reconciliations that refusals of DICT ask for leave this share of `POLICIES_LIST` to others, in
/// percent.
const TRIGGERED_LEAVE_PERCENT: u64 = 50;

/// The difference between the mirror and DICT that a reconciliation found, in tokens: positive if DICT
/// had fewer.
pub(crate) type Drift = BTreeMap<(String, String), i64>;

/// What was known of a participant's buckets before DICT was asked for theirs.
#[derive(Debug)]
struct Before {
    at: Instant,
    tokens: TokensByPolicy,
    /// The levels of buckets in Redis.
    levels: HashMap<String, Reading>,
}

/// A bucket in Redis, as it was read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    level: i64,
    capacity: u64,
    /// The highest prices of the calls in flight that are in the level, or more.
    held: u64,
}

/// Why a participant's buckets were not reconciled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("the gateway's own limit of POLICIES_LIST is reached")]
    OwnLimit,
    #[error("{0}")]
    Send(SendError),
    #[error("DICT answered with status {0}")]
    Status(u16),
    #[error("DICT's answer cannot be read: {0}")]
    Answer(String),
}

impl Dict {
    /// Reconciles all participants regularly, and soon after DICT refused a request.
    pub(crate) async fn reconcile_until(
        self: Arc<Self>,
        limits: impl Fn() -> Option<Arc<Limits>>,
        upstream: impl Fn() -> Option<Arc<Upstream<RequestBody>>>,
        mut shutdown: watch::Receiver<bool>,
    ) {
        let mut next = Instant::now();
        loop {
            // A reload may change it.
            let Some(every) = self.config().reconcile else {
                tokio::select! {
                    () = tokio::time::sleep(RELOADED) => continue,
                    () = shutdown::begun(&mut shutdown) => return,
                }
            };
            next = next.min(Instant::now() + every);
            let mut is_triggered = false;
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = self.trigger.notified() => is_triggered = true,
                () = shutdown::begun(&mut shutdown) => return,
            }
            let (Some(limits), Some(upstream)) = (limits(), upstream()) else {
                next = Instant::now() + every;
                continue;
            };
            if is_triggered {
                self.reconcile_triggered(&limits, &upstream).await;
            } else {
                next = Instant::now() + every;
                self.reconcile_all(&limits, &upstream).await;
            }
        }
    }

    /// Reconciles the participants that DICT refused, as far as the budget allows.
    async fn reconcile_triggered(
        self: &Arc<Self>,
        limits: &Limits,
        upstream: &Upstream<RequestBody>,
    ) {
        let refused: Vec<String> = self.refused.lock().keys().cloned().collect();
        for participant in refused {
            let subject = Subject::participant(&*participant);
            let budget = limits.engine().state("POLICIES_LIST", &subject).await;
            let is_left = budget.is_ok_and(|budget| {
                let capacity = budget.limit().capacity();
                let leave = i64::try_from(capacity * TRIGGERED_LEAVE_PERCENT / 100);
                leave.is_ok_and(|leave| budget.level() > leave)
            });
            if is_left {
                self.reconcile_and_count(limits, upstream, &participant)
                    .await;
            }
        }
    }

    /// Reconciles all participants once.
    pub(crate) async fn reconcile_all(
        self: &Arc<Self>,
        limits: &Limits,
        upstream: &Upstream<RequestBody>,
    ) {
        for participant in &self.config().participants {
            self.reconcile_and_count(limits, upstream, participant)
                .await;
        }
    }

    async fn reconcile_and_count(
        self: &Arc<Self>,
        limits: &Limits,
        upstream: &Upstream<RequestBody>,
        participant: &str,
    ) {
        let reconciled = self.reconcile(limits, upstream, participant).await;
        let counters = &self.counters;
        match reconciled {
            Ok(()) => {
                self.refused.lock().remove(participant);
                counters.reconciled.fetch_add(1, Ordering::Relaxed);
                let now_us = self.clock.now_us();
                counters.reconciled_us.store(now_us, Ordering::Relaxed);
            }
            Err(error) => {
                counters.not_reconciled.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    event_type = "reconciliation_failed",
                    participant,
                    "the mirrored buckets are not corrected: {error}"
                );
            }
        }
    }

    /// Fetches the states of a participant's buckets, by the budget that all its calls share, and
    /// corrects the mirror.
    async fn reconcile(
        self: &Arc<Self>,
        limits: &Limits,
        upstream: &Upstream<RequestBody>,
        participant: &str,
    ) -> Result<(), ReconcileError> {
        let path = format!("{}policies/", self.config().base_path);
        let headers = [(PARTICIPANT_HEADER, participant)];
        let headers = headers.as_slice();
        let incoming = balde_dict::Incoming::new("", &headers);
        let route = self.table.route("GET", &path);
        let route = route.map_err(|error| ReconcileError::Answer(error.to_string()))?;
        let call = self.table.resolve(&route, &incoming);
        let before = self.before(limits, participant).await;
        let held = self.hold(limits, &call.request(), participant);
        let held = held.map_err(|_| ReconcileError::OwnLimit)?;
        let ticket = limits.engine().admit(&call.request()).await;
        let ticket = ticket.map_err(|_| ReconcileError::OwnLimit)?;
        let facts = CallFacts {
            operation: Operation::ListBucketStates,
            policies: ticket
                .decisions()
                .map(|(name, _)| name.to_owned())
                .collect(),
            participant: participant.to_owned(),
            payer: None,
            end_to_end_id: None,
            key: None,
            order: None,
        };
        let mut call = DictCall::new(self, ticket, facts, held);
        let request = states_request(upstream, &path, participant);
        call.sending();
        let sent = upstream.send(request).await;
        let outcome = match &sent {
            Ok(response) => Outcome::Status(response.status().as_u16()),
            Err(SendError::NotSent(_)) => Outcome::NotSent,
            Err(_) => Outcome::Unknown,
        };
        call.settle(outcome).await;
        let response = sent.map_err(ReconcileError::Send)?;
        if response.status() != 200 {
            return Err(ReconcileError::Status(response.status().as_u16()));
        }
        let body = Limited::new(response.into_body(), STATES_BYTES_MAX);
        let body = body.collect().await;
        let body = body.map_err(|error| ReconcileError::Answer(error.to_string()))?;
        let body: Bytes = body.to_bytes();
        let states = BucketStates::read(&body);
        let states = states.map_err(|error| ReconcileError::Answer(error.to_string()))?;
        self.apply_category(limits, participant, &states).await;
        self.apply_limits(limits, participant, &states);
        for state in &states.policies {
            self.apply_level(limits, participant, state, &before).await;
        }
        Ok(())
    }

    /// Reads what a reconciliation compares DICT's levels with.
    async fn before(&self, limits: &Limits, participant: &str) -> Before {
        let at = Instant::now();
        let tokens = self.spent.of(participant);
        let mut levels = HashMap::new();
        if self.is_redis {
            let subject = Subject::participant(participant);
            for policy in self.table.profile().policies() {
                let name = policy.name();
                if !is_listed(policy) {
                    continue;
                }
                if let Ok(found) = limits.engine().state(name, &subject).await {
                    let reading = Reading {
                        level: found.level(),
                        capacity: found.limit().capacity(),
                        held: 0,
                    };
                    levels.insert(name.to_owned(), reading);
                }
            }
            // Calls that began meanwhile may be in the levels, too.
            for (name, now) in self.spent.of(participant) {
                if let Some(reading) = levels.get_mut(&name) {
                    let earlier = tokens.get(&name).copied().unwrap_or_default();
                    reading.held = now.held_since(&earlier);
                }
            }
        }
        Before { at, tokens, levels }
    }

    /// The category that DICT states applies from now on.
    async fn apply_category(&self, limits: &Limits, participant: &str, states: &BucketStates) {
        let Some(category) = states.category.as_deref() else {
            return;
        };
        let engine = limits.engine();
        let known = engine.assigned(CATEGORY, participant);
        if known.as_deref() == Some(category) {
            return;
        }
        match engine.assign(CATEGORY, participant, category).await {
            Ok(()) => tracing::warn!(
                event_type = "category_changed",
                participant,
                category,
                "DICT states category {category} for participant {participant}"
            ),
            Err(error) => tracing::warn!(
                event_type = "category_unknown",
                participant,
                category,
                "DICT states category {category}, which cannot be applied: {error}"
            ),
        }
    }

    /// Limits that DICT states, and that differ from the profile's, apply from now on.
    fn apply_limits(&self, limits: &Limits, participant: &str, states: &BucketStates) {
        let mut announced = self.announced.lock().clone();
        let mut has_changed = false;
        let category = limits.engine().assigned(CATEGORY, participant);
        for state in &states.policies {
            let Some(policy) = self.table.profile().policy(&state.name) else {
                continue;
            };
            let value = match policy.limits().variant() {
                None => None,
                Some(CATEGORY) => category.as_deref().map(str::to_owned),
                Some(_) => continue,
            };
            let Some(stated) = stated_limit(state) else {
                continue;
            };
            let name = (state.name.clone(), value);
            let current = self.limits.lock().get(&name).map(|limit| limit.of_dict);
            let Some(current) = current else { continue };
            let is_same = current.capacity() == stated.capacity()
                && current.refill_tokens() == stated.refill_tokens()
                && current.period_us() == stated.period_us();
            if is_same {
                continue;
            }
            let stated = match current.strategy() {
                balde_core::Strategy::Stepwise => stated.stepwise(),
                _ => stated,
            };
            tracing::warn!(
                event_type = "limit_changed",
                participant,
                policy = state.name,
                "DICT states the limit {stated} instead of {current}"
            );
            announced.insert(name, stated);
            has_changed = true;
        }
        if !has_changed {
            return;
        }
        match self.enforce(limits, announced) {
            Ok(()) => {}
            Err(error) => tracing::error!(%error, "limits that DICT states cannot be applied"),
        }
    }

    /// Corrects a mirrored bucket to what is certainly there: DICT's level, less what the mirror
    /// withholds, less what DICT may not have counted.
    ///
    /// In memory the bucket is read before the sums of tokens, and changed by a difference. So a call
    /// that ends meanwhile counts at least once: in the sums, or in the bucket.
    async fn apply_level(
        &self,
        limits: &Limits,
        participant: &str,
        state: &BucketState,
        before: &Before,
    ) {
        let policy = self.table.profile().policy(&state.name);
        if !policy.is_some_and(is_listed) {
            return;
        }
        let subject = Subject::participant(participant);
        let engine = limits.engine();
        let Ok(found) = engine.state(&state.name, &subject).await else {
            return;
        };
        let Some(limit) = self.limit_of(&state.name, found.value()) else {
            return;
        };
        let withheld = i64::try_from(limit.withheld()).unwrap_or(i64::MAX);
        let expected = found.level().saturating_add(withheld);
        let drift = expected.saturating_sub(state.available_tokens);
        let certain = state.available_tokens.saturating_sub(withheld);
        let by = if self.is_redis {
            let Some(reading) = before.levels.get(&state.name) else {
                return;
            };
            let others = self.held_by_others_max(engine, &state.name, participant);
            let passed = before.at.elapsed();
            certain.saturating_sub(reading.level_at_most(&found, others, passed))
        } else {
            let spent =
                |tokens: &TokensByPolicy| tokens.get(&state.name).map_or(0, |own| own.spent);
            let since = spent(&self.spent.of(participant)) - spent(&before.tokens);
            let since = i64::try_from(since).unwrap_or(i64::MAX);
            let level = found.level().saturating_add(since);
            match certain.saturating_sub(level) {
                0 => 0,
                by => by.saturating_sub(part_of_a_token(&found)),
            }
        };
        if by != 0 {
            let adjusted = engine.adjust_level(&state.name, &subject, by).await;
            if let Err(error) = adjusted {
                tracing::warn!(policy = state.name, %error, "a bucket could not be corrected");
            }
        }
        self.note_drift(participant, state, drift);
    }

    fn note_drift(&self, participant: &str, state: &BucketState, drift: i64) {
        let name = (participant.to_owned(), state.name.clone());
        self.drift.lock().insert(name, drift);
        let bound = state
            .capacity
            .saturating_mul(i64::try_from(self.config().drift_percent).unwrap_or(0))
            / 100;
        if drift.abs() > bound {
            tracing::warn!(
                event_type = "drift",
                participant,
                policy = state.name,
                drift,
                level = state.available_tokens,
                "DICT's bucket differs from the mirrored one by {drift} tokens; does somebody else \
                 use the same quota?"
            );
        }
    }
}

impl Reading {
    /// The most that the bucket would have had when DICT reported its level, if DICT had counted none
    /// of the calls in flight by then. What DICT has less or more is corrected by a difference, so
    /// calls that began or ended since the reading count in the bucket as always.
    fn level_at_most(
        &self,
        now: &balde_policy::BucketState,
        held_by_others: u64,
        passed: Duration,
    ) -> i64 {
        let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        let limit = now.limit();
        let level = if limit.capacity() == self.capacity {
            self.level
        } else {
            // Another limit keeps the deficit, as far as it can have it.
            let grown = signed(limit.capacity()).saturating_sub(signed(self.capacity));
            self.level.saturating_add(grown).max(now.level())
        };
        let refilled = u128::from(limit.refill_tokens()) * passed.as_micros();
        let refilled = refilled.div_ceil(u128::from(limit.period_us()));
        let refilled = u64::try_from(refilled).unwrap_or(u64::MAX);
        // Levels are whole tokens: there may be a part of one more.
        level
            .saturating_add(1)
            .saturating_add(signed(self.held))
            .saturating_add(signed(held_by_others))
            .saturating_add(signed(refilled))
    }
}

/// One token if a bucket has a part of one more than its level says, else zero. DICT states whole
/// tokens. A corrected bucket must not have the next one earlier than DICT's.
pub(super) fn part_of_a_token(state: &balde_policy::BucketState) -> i64 {
    let limit = state.limit();
    let whole_us = limit.period_us().div_ceil(limit.refill_tokens());
    let next = state.next_token_after();
    next.map_or(0, |wait| i64::from(wait.as_micros() < whole_us.into()))
}

fn states_request(
    upstream: &Upstream<RequestBody>,
    path: &str,
    participant: &str,
) -> Request<RequestBody> {
    let config = upstream.config();
    let uri = format!("{}://{}{path}", config.scheme, config.authority);
    Request::builder()
        .method(Method::GET)
        .uri(uri)
        .header(HOST, config.authority.as_str())
        .header(ACCEPT, "application/xml, application/problem+xml")
        .header(PARTICIPANT_HEADER, participant)
        .body(RequestBody::empty())
        .expect("a path of the configuration and an ISPB make a request")
}

/// The limit that DICT states, if its numbers are valid.
fn stated_limit(state: &BucketState) -> Option<Limit> {
    let capacity = u64::try_from(state.capacity).ok()?;
    let refill = u64::try_from(state.refill_tokens).ok()?;
    let period = u64::try_from(state.refill_period_sec).ok()?;
    Limit::bucket_of(capacity, refill, Duration::from_secs(period)).ok()
}

/// The category with this letter, if the profile has it.
pub(super) fn known_category(table: &balde_dict::Table, category: Category) -> String {
    let variant = table.profile().variant(CATEGORY);
    let values: Vec<&str> = variant.map_or_else(Vec::new, |variant| variant.values().collect());
    if values.contains(&category.as_str()) {
        return category.as_str().to_owned();
    }
    // The last is the smallest.
    values.last().map_or("", |last| last).to_owned()
}
