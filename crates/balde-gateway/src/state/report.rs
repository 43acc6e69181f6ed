//! What the state endpoint reports on buckets.

use balde_dict::{PAYER_HEADER, Table};
use balde_policy::{BucketState, KeyPart, Mode, Policy, Profile, StateError, Subject};
use serde_json::{Map, Value, json};

use super::StateEndpoint;
use crate::dict::{CATEGORY, Dict};
use crate::limits::Limits;
use crate::metrics::REFUSAL_MINUTES;

/// Whose buckets are asked for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) participant: Option<String>,
    pub(super) payer: Option<String>,
    pub(super) user: Option<String>,
}

pub(super) async fn states(
    endpoint: &StateEndpoint,
    limits: &Limits,
    dict: Option<&Dict>,
    asked: &Asked,
) -> Result<Value, StateError> {
    let engine = limits.engine();
    let now_us = endpoint.clock.now_us();
    let mut subject = Subject::new();
    if let Some(participant) = &asked.participant {
        subject = subject.with(KeyPart::Participant, participant);
    }
    if let Some(payer) = &asked.payer {
        subject = subject
            .with(KeyPart::header(PAYER_HEADER), payer)
            .with(KeyPart::User, payer);
    }
    if let Some(user) = &asked.user {
        subject = subject.with(KeyPart::User, user);
    }
    let states = engine.states(&subject).await?;
    // A payer's report has the payer's buckets only: the participant's have a report of their own.
    let is_shown = |policy: &Policy| {
        let mut parts = policy.scope().parts().iter();
        asked.payer.is_none() || parts.any(|part| *part != KeyPart::Participant)
    };
    let participant = asked.participant.as_deref();
    let policies: Vec<Value> = states
        .iter()
        .filter(|state| is_shown(state.policy()))
        .map(|state| bucket(endpoint, dict, participant, state, now_us))
        .collect();
    let mut report = Map::new();
    report.insert("answered_us".to_owned(), json!(now_us));
    report.insert("profile".to_owned(), json!(engine.profile().name()));
    report.insert("policies".to_owned(), json!(policies));
    let refusals = refusals(endpoint, &engine.profile(), participant, now_us);
    report.insert("refusals".to_owned(), json!(refusals));
    report.insert("refusals_minutes".to_owned(), json!(REFUSAL_MINUTES));
    report.insert("waiting".to_owned(), json!(limits.waiting()));
    if let (Some(dict), Some(participant)) = (dict, participant) {
        if let Some(category) = engine.assigned(CATEGORY, participant) {
            report.insert("category".to_owned(), json!(category));
        }
        let counts = dict.duties.of(participant, now_us);
        let lookups_min = dict.config().worst_payer_lookups;
        report.insert(
            "duties".to_owned(),
            json!({
                "hours": 24,
                "lookups": counts.lookups,
                "not_found": counts.not_found,
                "refused": counts.refused,
                "orders": counts.orders,
                "not_found_permille": counts.not_found_permille(),
                "lookups_per_order_permille": counts.lookups_per_order_permille(),
                "worst_payer_lookups": lookups_min,
                "worst_payers": dict.duties.worst(participant, lookups_min, now_us),
            }),
        );
        if let Some(payer) = &asked.payer {
            report.insert("payer_kind".to_owned(), json!(kind(&dict.table, payer)));
        }
    }
    Ok(Value::Object(report))
}

/// The policies that refused requests of a participant, or without one of anybody, within the last
/// minutes. Those of payers and users are included: their buckets are not in the report.
fn refusals(
    endpoint: &StateEndpoint,
    profile: &Profile,
    participant: Option<&str>,
    now_us: u64,
) -> Vec<Value> {
    let policies = profile.policies().iter().filter_map(|policy| {
        let name = policy.name();
        let refusals = endpoint.counters.recent_refusals(participant, name, now_us);
        (refusals > 0).then(|| {
            json!({
                "policy": name,
                "scope": policy.scope().name(),
                "refusals": refusals,
            })
        })
    });
    policies.collect()
}

fn kind(table: &Table, payer: &str) -> Option<&'static str> {
    table.payer_kind(payer).map(balde_dict::PayerKind::as_str)
}

fn bucket(
    endpoint: &StateEndpoint,
    dict: Option<&Dict>,
    participant: Option<&str>,
    state: &BucketState,
    now_us: u64,
) -> Value {
    let policy = state.policy();
    let of_dict = dict.and_then(|dict| dict.limit_of(policy.name(), state.value()));
    let withheld = of_dict.map_or(0, |limit| limit.uncertain_refill());
    // In front of DICT: as DICT would report it, as far as that is known. Held back are tokens that
    // may not be there yet.
    let limit = of_dict.map_or(*state.limit(), |limit| limit.of_dict);
    let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    let level = state.level().saturating_add(signed(withheld));
    let for_others = dict.zip(participant).map_or(0, |(dict, participant)| {
        let name = policy.name();
        let spent = dict.spent_by(participant, name);
        dict.external_usage
            .withheld(participant, name, level, spent)
    });
    let level = level.saturating_add(signed(for_others));
    let drift = dict.zip(participant).and_then(|(dict, participant)| {
        let name = (participant.to_owned(), policy.name().to_owned());
        dict.drift.lock().get(&name).copied()
    });
    let full_after = u64::try_from(state.full_after().as_millis()).unwrap_or(u64::MAX);
    json!({
        "policy": policy.name(),
        "scope": policy.scope().name(),
        "for": state.value(),
        "level": level,
        "certain_level": state.level(),
        "in_flight": state.held(),
        "capacity": limit.capacity(),
        "refill_tokens": limit.refill_tokens(),
        "period_us": limit.period_us(),
        "full_after_ms": full_after,
        "is_admitting": state.is_admitting(),
        "is_shadow": policy.mode() == Mode::Shadow,
        "refusals": endpoint.counters.recent_refusals(participant, policy.name(), now_us),
        "refusals_minutes": REFUSAL_MINUTES,
        "drift": drift,
        "withheld_for_others": for_others,
    })
}
