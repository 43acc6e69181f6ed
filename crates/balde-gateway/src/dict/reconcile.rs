//! Reconciliation: DICT's own levels, limits and categories correct the mirror.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use balde_core::Limit;
use balde_dict::wire::{BucketState, BucketStates};
use balde_dict::{Category, PARTICIPANT_HEADER};
use balde_net::shutdown_begun;
use balde_policy::{Outcome, Policy, Subject};
use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Limited};
use tokio::sync::watch;
use tokio::time::Instant;

use super::call::{CallFacts, DictCall};
use super::external_usage::Schedule;
use super::level::Before;
use super::reconciled::Reconciliations;
use super::redis_lock::{HELD_MAX, NotLocked};
use super::{CATEGORY, Dict, is_listed};
use crate::body::RequestBody;
use crate::config::RECONCILIATION_CLASS;
use crate::limits::Limits;
use crate::upstream::{SendError, Sending, Upstream};

/// The policy that counts reconciliations.
const OWN_POLICY: &str = "POLICIES_LIST";

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

/// Why a participant's buckets were not reconciled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("the gateway's own limit of POLICIES_LIST is reached")]
    OwnLimit,
    #[error("another gateway has been reconciling the same buckets for {} s", HELD_MAX.as_secs())]
    HeldByAnother,
    #[error("Redis does not answer")]
    Redis,
    #[error("it took longer than {} s", HELD_MAX.as_secs())]
    TooLong,
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
                    () = shutdown_begun(&mut shutdown) => return,
                }
            };
            next = next.min(Instant::now() + every);
            let mut is_triggered = false;
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = self.trigger.notified() => is_triggered = true,
                () = shutdown_begun(&mut shutdown) => return,
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
            let budget = limits.engine().state(OWN_POLICY, &subject).await;
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
        let config = self.config();
        let interval_us = micros(config.reconcile.unwrap_or_default());
        for participant in &config.participants {
            let next_us = self.clock.now_us().saturating_add(interval_us);
            self.reconciled.of(participant).set_next(next_us);
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
                self.reconciled.of(participant).set_accepted();
                counters.reconciled.fetch_add(1, Ordering::Relaxed);
                let now_us = self.clock.now_us();
                counters.reconciled_us.store(now_us, Ordering::Relaxed);
            }
            Err(error) => {
                if let ReconcileError::Status(status) = error {
                    self.reconciled.of(participant).set_refused(status);
                }
                counters.not_reconciled.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    event_type = "reconciliation_failed",
                    participant,
                    "the mirrored buckets are not corrected: {error}"
                );
            }
        }
    }

    /// Looks whether another gateway has corrected a participant's buckets after this one.
    pub(super) async fn look_who_reconciled(&self, participant: &str) {
        if let Some(shared) = &self.shared {
            let last = shared.last(participant).await;
            let is_own = last.is_ok_and(|last| shared.is_own(&last));
            self.reconciled
                .of(participant)
                .set_corrected_by_another(!is_own);
        }
    }

    /// When a participant's buckets are reconciled.
    pub(super) fn schedule(&self, participant: &str) -> Schedule {
        Schedule {
            interval_us: self.config().reconcile.map(micros),
            next_us: self.reconciled.of(participant).next_us(),
            is_last_reconciler: !self.reconciled.of(participant).is_corrected_by_another(),
        }
    }

    /// Corrects the mirror of a participant's buckets by what DICT reports.
    async fn reconcile(
        self: &Arc<Self>,
        limits: &Limits,
        upstream: &Upstream<RequestBody>,
        participant: &str,
    ) -> Result<(), ReconcileError> {
        let reconciliations = self.reconciled.of(participant);
        let _only_one = reconciliations.lock().await;
        let lock =
            match &self.shared {
                None => None,
                Some(shared) => Some(shared.lock(participant).await.map_err(
                    |error| match error {
                        NotLocked::Held => ReconcileError::HeldByAnother,
                        NotLocked::Unavailable => ReconcileError::Redis,
                    },
                )?),
            };
        self.look_who_reconciled(participant).await;
        let correcting = self.correct_all(limits, upstream, participant, &reconciliations);
        let corrected = tokio::time::timeout(HELD_MAX, correcting).await;
        if let Some(lock) = lock {
            lock.release().await;
        }
        corrected.unwrap_or(Err(ReconcileError::TooLong))
    }

    async fn correct_all(
        self: &Arc<Self>,
        limits: &Limits,
        upstream: &Upstream<RequestBody>,
        participant: &str,
        reconciliations: &Reconciliations,
    ) -> Result<(), ReconcileError> {
        // A correction is a difference to the levels that are read now.
        let correction = reconciliations.correct().await;
        let before = self.before(limits, participant, is_listed).await;
        let states = self.fetch_states(limits, upstream, participant, "").await?;
        let answered_us = self.clock.now_us();
        correction.answered(answered_us).await;
        if let Some(shared) = &self.shared {
            let noting = shared.note_answer(participant, answered_us);
            noting.await.map_err(|_| ReconcileError::Redis)?;
        }
        self.apply_category(limits, participant, &states).await;
        self.apply_limits(limits, participant, &states);
        for state in states.policies.iter().filter(|one| one.name != OWN_POLICY) {
            self.apply_level(limits, participant, state, &before).await;
        }
        drop(correction);
        if let Some(own) = states.policies.iter().find(|one| one.name == OWN_POLICY) {
            self.reconcile_own(limits, upstream, participant, own, &before)
                .await;
        }
        Ok(())
    }

    /// Corrects the bucket of listBucketStates itself. Its level may have been reported before or after
    /// that call was counted, so it is fetched by getBucketState, which another bucket counts. If that
    /// fails, the call counts once more.
    async fn reconcile_own(
        self: &Arc<Self>,
        limits: &Limits,
        upstream: &Upstream<RequestBody>,
        participant: &str,
        listed: &BucketState,
        before_list: &Before,
    ) {
        let is_own = |policy: &Policy| policy.name() == OWN_POLICY;
        let before = self.before(limits, participant, is_own).await;
        let fetched = self.fetch_states(limits, upstream, participant, OWN_POLICY);
        let fetched = fetched.await.ok();
        let mut states = fetched.iter().flat_map(|states| &states.policies);
        let own = states.find(|one| one.name == OWN_POLICY);
        let (state, before) = own.map_or((listed, before_list), |own| (own, &before));
        self.apply_level(limits, participant, state, before).await;
    }

    /// Fetches the states of a participant's buckets, or of one policy's, by the budget that all its
    /// calls share.
    async fn fetch_states(
        self: &Arc<Self>,
        limits: &Limits,
        upstream: &Upstream<RequestBody>,
        participant: &str,
        policy: &str,
    ) -> Result<BucketStates, ReconcileError> {
        let path = format!("{}policies/{policy}", self.config().base_path);
        let headers = [(PARTICIPANT_HEADER, participant)];
        let headers = headers.as_slice();
        let incoming = balde_dict::Incoming::new("", &headers);
        let route = self.table.route("GET", &path);
        let route = route.map_err(|error| ReconcileError::Answer(error.to_string()))?;
        let call = self.table.resolve(&route, &incoming);
        let mut request = call.request();
        // Clients that list policies, too, must not keep the gateway from it.
        request.class = Some(RECONCILIATION_CLASS);
        let ticket = limits.engine().admit(&request).await;
        let ticket = ticket.map_err(|_| ReconcileError::OwnLimit)?;
        let facts = CallFacts {
            operation: route.operation(),
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
        let mut call = DictCall::new(self, ticket, facts);
        let request = states_request(upstream, &path, participant);
        call.sending();
        let sending = Sending::default();
        let sent = upstream.send(&mut Some(request), &sending).await;
        let outcome = match &sent {
            Ok(response) => Outcome::Status(response.status().as_u16()),
            Err(_) if !sending.is_written() => Outcome::NotSent,
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
        states.map_err(|error| ReconcileError::Answer(error.to_string()))
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
        // Until the end, since another participant may be reconciled at the same time.
        let mut enforced = self.announced.lock();
        let mut announced = enforced.clone();
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
        match self.enforce(limits, &announced) {
            Ok(()) => *enforced = announced,
            Err(error) => tracing::error!(%error, "limits that DICT states cannot be applied"),
        }
    }
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

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
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
