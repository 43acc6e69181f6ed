//! The inspection endpoints below `/sim/`: bucket levels, runtime settings, the clock and payment
//! orders. They use JSON and cost no tokens.

use std::net::IpAddr;
use std::time::Duration;

use balde::Limit;
use balde_policy::BucketState;
use bytes::Bytes;
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::answer::Answer;
use super::body::is_json;
use super::buckets::BucketName;
use super::query::Query;
use super::runtime_settings::{FAULT_LATENCY_MAX_MS, Fault, RESTRICTIONS_MAX, Restriction};
use super::transcript::Transcript;
use super::{AssignError, Simulator};
use crate::wire::{Problem, Timestamp, canonical_ispb, canonical_key, is_ispb, status_of};
use balde_dict::{Category, Operation};

/// The endpoints that `GET /sim/` lists.
const ENDPOINTS: [(&str, &str); 16] = [
    (
        "GET /sim/buckets?participant=&payer=&policy=",
        "levels of a participant's and its payers' buckets",
    ),
    (
        "PUT /sim/buckets",
        "set a level: {\"policy\", \"participant\", \"payer\"?, \"level\"}",
    ),
    (
        "GET /sim/participants?participant=",
        "a participant's category",
    ),
    (
        "PUT /sim/participants",
        "assign a category: {\"participant\", \"category\"}",
    ),
    (
        "PUT /sim/limits",
        "change a limit: {\"policy\", \"variant\"?, \"limit\": \"2/min burst 100\"}",
    ),
    ("GET /sim/clock", "the current time"),
    (
        "POST /sim/clock",
        "advance a virtual clock: {\"advance_ms\"}",
    ),
    ("GET /sim/faults", "the injected faults"),
    (
        "PUT /sim/faults",
        "inject a fault: {\"operation\" or \"*\", \"status\"?, \"type\"?, \"latency_ms\"?, \"percent\"?}",
    ),
    ("DELETE /sim/faults?operation=", "remove faults"),
    (
        "POST /sim/payment-orders",
        "send a payment order, as SPI does: {\"end_to_end_id\", \"payer\", \"participant\", \
         \"initiator\"?, \"credited_participant\"?, \"payee_tax_id\"?, \"amount\"?, \"settled\"?, \
         \"message\"?, \"purpose\"?}",
    ),
    ("GET /sim/restrictions", "the restricted keys and persons"),
    (
        "PUT /sim/restrictions",
        "restrict a key or a person: {\"key\" or \"tax_id\", \"restriction\": \"BLOCKED\", \"FRAUD\" or null}",
    ),
    (
        "GET /sim/transcript",
        "what clients did and missed so far, with --transcript",
    ),
    (
        "GET /sim/refusals?limit=",
        "the latest refusals and the buckets that refused",
    ),
    ("GET /sim/cids/files/{id}", "a CID set file"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetLevel {
    policy: String,
    participant: String,
    payer: Option<String>,
    level: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetCategory {
    participant: String,
    category: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetLimit {
    policy: String,
    variant: Option<String>,
    limit: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    advance_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetFault {
    operation: String,
    status: Option<u16>,
    #[serde(rename = "type")]
    error_type: Option<String>,
    #[serde(default)]
    latency_ms: u64,
    percent: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetRestriction {
    key: Option<String>,
    tax_id: Option<String>,
    restriction: Option<Restriction>,
}

impl Simulator {
    /// Answers a request to an inspection endpoint.
    pub(super) async fn inspect(&self, parts: &Parts, body: &Bytes) -> Answer {
        if let Err(problem) = check_origin(parts) {
            return error(&problem);
        }
        let path = parts.uri.path().trim_end_matches('/');
        let query = Query::new(parts.uri.query().unwrap_or_default());
        let result = match (parts.method.as_str(), path) {
            ("GET", "/sim") => Ok(self.index()),
            ("GET", "/sim/buckets") => self.show_buckets(&query).await,
            ("PUT" | "POST", "/sim/buckets") => self.set_bucket(body).await,
            ("GET", "/sim/participants") => self.show_participants(&query).await,
            ("PUT" | "POST", "/sim/participants") => self.set_category(body).await,
            ("PUT" | "POST", "/sim/limits") => self.set_limit(body).await,
            ("GET", "/sim/clock") => Ok(self.show_clock()),
            ("PUT" | "POST", "/sim/clock") => self.advance(body),
            ("GET", "/sim/faults") => Ok(json!({ "faults": self.0.buckets.runtime().faults })),
            ("PUT" | "POST", "/sim/faults") => self.set_fault(body).await,
            ("DELETE", "/sim/faults") => self.clear_faults(&query).await,
            ("GET", "/sim/restrictions") => {
                Ok(json!({ "restrictions": self.0.buckets.runtime().restrictions }))
            }
            ("PUT" | "POST", "/sim/restrictions") => self.set_restriction(body).await,
            ("POST", "/sim/payment-orders") => match read(body) {
                Ok(order) => self.order(&order).await.map(|credited| json!(credited)),
                Err(problem) => Err(problem),
            },
            ("GET", "/sim/transcript") => {
                let summary = self.0.transcript.as_ref().map(Transcript::summary);
                let detail = "The simulator was started without --transcript";
                summary.ok_or_else(|| Problem::not_found(detail))
            }
            ("GET", "/sim/refusals") => Ok(self.show_refusals(&query)),
            ("GET", path) if path.starts_with("/sim/cids/files/") => {
                return self.cid_file(&path["/sim/cids/files/".len()..]).await;
            }
            _ => Err(Problem::not_found("no such endpoint; GET /sim/ lists them")),
        };
        match result {
            Ok(body) => Answer::json(200, &body),
            Err(problem) => error(&problem),
        }
    }

    fn index(&self) -> Value {
        let endpoints: serde_json::Map<_, _> = ENDPOINTS
            .iter()
            .map(|(endpoint, what)| ((*endpoint).to_owned(), json!(what)))
            .collect();
        json!({
            "profile": self.0.table.profile().name(),
            "base_paths": self.0.table.profile().base_paths().iter().map(|path| &**path).collect::<Vec<_>>(),
            "storage": if self.0.shared.is_some() { "redis" } else { "memory" },
            "clock": if self.0.manual_clock.is_some() { "virtual" } else { "real" },
            "endpoints": endpoints,
        })
    }

    async fn show_buckets(&self, query: &Query<'_>) -> Result<Value, Problem> {
        self.followed().await?;
        let participant = query.text("participant");
        let participant =
            participant.ok_or_else(|| Problem::bad_request("participant is missing"))?;
        let payer = query.text("payer");
        let policies = self.0.table.profile().policies();
        let wanted = match query.text("policy") {
            Some(policy) => vec![self.policy(&policy)?],
            None => (0..policies.len()).collect(),
        };
        let is_single = wanted.len() == 1;
        let mut shown = Vec::new();
        for policy in wanted {
            if !is_single && payer.is_none() && self.0.buckets.is_per_payer(policy) {
                continue;
            }
            let bucket = self.bucket(policy, &participant, payer.as_deref())?;
            let state = self.0.buckets.state(&bucket).await.map_err(unavailable)?;
            shown.extend(state.map(|state| self.show(&bucket, &state)));
        }
        Ok(json!({
            "category": self.0.buckets.category(&participant).as_str(),
            "buckets": shown,
        }))
    }

    fn show(&self, bucket: &BucketName, state: &BucketState) -> Value {
        let policy = self.0.table.policy(bucket.policy);
        let limit = state.limit();
        let level = state.level();
        let payer = bucket
            .payer
            .as_ref()
            .filter(|_| self.0.buckets.is_per_payer(bucket.policy));
        json!({
            "policy": policy.name(),
            "scope": policy.scope().name(),
            "participant": bucket.participant,
            "payer": payer,
            "level": level,
            "debt": level.min(0).unsigned_abs(),
            "capacity": limit.capacity(),
            "refill_tokens": limit.refill_tokens(),
            "refill_period_ms": limit.period_us() / 1_000,
            "limit": limit.to_string(),
            "next_token_ms": state.next_token_after().map(|wait| wait.as_micros().div_ceil(1_000)),
            "full_after_ms": state.full_after().as_micros().div_ceil(1_000),
            "admits": state.is_admitting(),
        })
    }

    async fn set_bucket(&self, body: &Bytes) -> Result<Value, Problem> {
        self.followed().await?;
        let wanted: SetLevel = read(body)?;
        let policy = self.policy(&wanted.policy)?;
        let bucket = self.bucket(policy, &wanted.participant, wanted.payer.as_deref())?;
        let set = self.0.buckets.set_level(&bucket, wanted.level).await;
        let state = set.map_err(unavailable)?;
        let state = state.ok_or_else(|| Problem::not_found("no such bucket"))?;
        Ok(self.show(&bucket, &state))
    }

    async fn show_participants(&self, query: &Query<'_>) -> Result<Value, Problem> {
        self.followed().await?;
        Ok(match query.text("participant") {
            Some(participant) => json!({
                "category": self.0.buckets.category(&participant).as_str(),
                "participant": participant,
            }),
            None => json!({ "assigned": self.0.buckets.runtime().categories }),
        })
    }

    async fn set_category(&self, body: &Bytes) -> Result<Value, Problem> {
        let wanted: SetCategory = read(body)?;
        let mut letters = wanted.category.chars();
        let letter = letters.next().filter(|_| letters.next().is_none());
        let category = letter
            .and_then(Category::new)
            .ok_or_else(|| Problem::bad_request("a category must be one letter"))?;
        match self.assign(&wanted.participant, category).await {
            Ok(()) => {}
            Err(AssignError::Store(why)) => return Err(Problem::unavailable(why)),
            Err(error) => return Err(Problem::bad_request(error.to_string())),
        }
        Ok(json!({ "participant": wanted.participant, "category": category.as_str() }))
    }

    async fn set_limit(&self, body: &Bytes) -> Result<Value, Problem> {
        let wanted: SetLimit = read(body)?;
        let policy = self.0.table.policy(self.policy(&wanted.policy)?);
        let limit: Limit = wanted
            .limit
            .parse()
            .map_err(|error| Problem::bad_request(format!("limit: {error}")))?;
        let mut values = policy.limits().iter().map(|(value, _)| value);
        if !values.any(|value| value == wanted.variant.as_deref()) {
            let all: Vec<_> = policy
                .limits()
                .iter()
                .filter_map(|(value, _)| value)
                .collect();
            let detail = format!("variant must be one of: {}", all.join(", "));
            return Err(Problem::bad_request(if all.is_empty() {
                "this policy has no variants".to_owned()
            } else {
                detail
            }));
        }
        let variant = wanted.variant.as_deref();
        self.change(|runtime| runtime.set_limit(policy.name(), variant, &limit))
            .await?;
        Ok(json!({ "policy": policy.name(), "variant": variant, "limit": limit.to_string() }))
    }

    fn show_clock(&self) -> Value {
        let now_us = self.0.clock.now_us();
        json!({
            "now": Timestamp::from_us(now_us).to_string(),
            "now_us": now_us,
            "virtual": self.0.manual_clock.is_some(),
        })
    }

    fn advance(&self, body: &Bytes) -> Result<Value, Problem> {
        let wanted: Advance = read(body)?;
        let conflict = |detail: &str| Problem::new(409, "ResourceConflict").with_detail(detail);
        let Some(manual) = &self.0.manual_clock else {
            return Err(conflict(if self.0.shared.is_some() {
                "a virtual clock is not possible over Redis, where all simulators use the server's clock"
            } else {
                "the simulator was not started with a virtual clock"
            }));
        };
        manual.advance(Duration::from_millis(wanted.advance_ms));
        Ok(self.show_clock())
    }

    async fn set_fault(&self, body: &Bytes) -> Result<Value, Problem> {
        let wanted: SetFault = read(body)?;
        if wanted.operation != "*" && Operation::parse(&wanted.operation).is_none() {
            return Err(Problem::bad_request(
                "operation must be one of DICT's, such as getEntry, or *",
            ));
        }
        if wanted
            .status
            .is_some_and(|status| !(400..=599).contains(&status))
        {
            return Err(Problem::bad_request("status must be 400 to 599"));
        }
        if wanted.latency_ms > FAULT_LATENCY_MAX_MS {
            return Err(Problem::bad_request("latency_ms must be at most 60000"));
        }
        let percent = wanted.percent.unwrap_or(100);
        if !(1..=100).contains(&percent) {
            return Err(Problem::bad_request("percent must be 1 to 100"));
        }
        let error_type = wanted.error_type;
        let known = error_type.as_deref().map(status_of);
        if known == Some(None) {
            let detail = "type must be one of DICT's error types, such as EntryBlocked";
            return Err(Problem::bad_request(detail));
        }
        let status = wanted.status.or_else(|| known.flatten());
        let fault = Fault {
            status,
            error_type,
            latency_ms: wanted.latency_ms,
            percent,
        };
        self.change(|runtime| {
            let operation = Operation::parse(&wanted.operation);
            let name: &str = match operation {
                Some(operation) => operation.as_str(),
                None => &wanted.operation,
            };
            runtime.faults.insert(name.to_owned(), fault.clone());
        })
        .await?;
        Ok(json!({ "faults": self.0.buckets.runtime().faults }))
    }

    async fn set_restriction(&self, body: &Bytes) -> Result<Value, Problem> {
        let wanted: SetRestriction = read(body)?;
        let name = match (&wanted.key, &wanted.tax_id) {
            (Some(key), None) => format!("key:{}", canonical_key(key)),
            (None, Some(tax_id)) => format!("tax:{tax_id}"),
            _ => return Err(Problem::bad_request("write either key or tax_id")),
        };
        if self.0.buckets.runtime().restrictions.len() >= RESTRICTIONS_MAX {
            return Err(Problem::bad_request("there are too many restrictions"));
        }
        self.change(|runtime| {
            match wanted.restriction {
                Some(restriction) => runtime.restrictions.insert(name.clone(), restriction),
                None => runtime.restrictions.remove(&name),
            };
        })
        .await?;
        Ok(json!({ "restrictions": self.0.buckets.runtime().restrictions }))
    }

    async fn clear_faults(&self, query: &Query<'_>) -> Result<Value, Problem> {
        let operation = query.text("operation");
        self.change(|runtime| match &operation {
            Some(operation) => {
                runtime.faults.remove(operation);
            }
            None => runtime.faults.clear(),
        })
        .await?;
        Ok(json!({ "faults": self.0.buckets.runtime().faults }))
    }

    fn show_refusals(&self, query: &Query<'_>) -> Value {
        let limit = query.text("limit").and_then(|limit| limit.parse().ok());
        let (count, latest) = self.0.refusals.latest(limit.unwrap_or(100));
        json!({ "count": count, "refusals": latest })
    }

    async fn cid_file(&self, id: &str) -> Answer {
        let not_found = || error(&Problem::not_found("no such file"));
        let Ok(id) = id.parse() else {
            return not_found();
        };
        match self.0.directory.cid_file_content(id).await {
            Ok(Some(file)) => Answer::text(file.content.clone()),
            Ok(None) => not_found(),
            Err(failure) => error(&Problem::unavailable(failure.to_string())),
        }
    }

    async fn followed(&self) -> Result<(), Problem> {
        let followed = self.follow().await;
        followed.map_err(|error| Problem::unavailable(error.to_string()))
    }

    fn policy(&self, name: &str) -> Result<usize, Problem> {
        let index = self.0.table.policy_index(name);
        index.ok_or_else(|| Problem::not_found("the profile has no such policy"))
    }

    fn bucket(
        &self,
        policy: usize,
        participant: &str,
        payer: Option<&str>,
    ) -> Result<BucketName, Problem> {
        if !is_ispb(participant) {
            return Err(Problem::bad_request(
                "participant must be an ISPB of 8 characters",
            ));
        }
        let kind = payer.map(|payer| self.0.table.payer_kind(payer));
        let payer = match (payer, kind) {
            (Some(payer), Some(Some(_))) => Some(payer.to_owned()),
            (Some(_), _) => {
                return Err(Problem::bad_request("payer must be a CPF or CNPJ"));
            }
            (None, _) if self.0.buckets.is_per_payer(policy) => {
                return Err(Problem::bad_request(
                    "payer is missing: this policy has a bucket for each payer",
                ));
            }
            (None, _) => None,
        };
        Ok(BucketName {
            policy,
            participant: canonical_ispb(participant).into_owned(),
            payer,
        })
    }
}

/// Refuses what a web page could make a browser send: a body that is not declared as JSON, and a
/// request of a page that this address has not served. A page of another site may resolve its own name
/// to this address, so that only numeric addresses and `localhost` count as the same site.
fn check_origin(parts: &Parts) -> Result<(), Problem> {
    let is_write = matches!(parts.method.as_str(), "PUT" | "POST");
    if is_write && !is_json(&parts.headers) {
        let detail = "the Content-Type of a request must be application/json";
        return Err(Problem::new(415, "BadRequest").with_detail(detail));
    }
    for origin in parts.headers.get_all(ORIGIN) {
        let host = parts.headers.get(HOST);
        let host = host.and_then(|host| host.to_str().ok());
        let origin = origin.to_str().ok().and_then(|origin| {
            let authority = origin.strip_prefix("http://");
            authority.or_else(|| origin.strip_prefix("https://"))
        });
        let is_same = origin.is_some_and(|origin| Some(origin) == host && is_numeric(origin));
        if !is_same {
            let detail = "the Origin is another site's; web pages may not use these endpoints";
            return Err(Problem::forbidden(detail));
        }
    }
    Ok(())
}

/// Returns true if the host of an authority is an IP address or `localhost`.
fn is_numeric(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else {
        return false;
    };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok()
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem::bad_request(format!("JSON: {error}")))
}

fn unavailable(error: impl std::fmt::Display) -> Problem {
    Problem::unavailable(error.to_string())
}

/// The inspection endpoints report errors as JSON too.
fn error(problem: &Problem) -> Answer {
    let body = json!({ "error": problem.error_type(), "detail": problem.detail() });
    Answer::json(problem.status(), &body)
}
