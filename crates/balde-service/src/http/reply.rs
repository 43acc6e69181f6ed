//! The bodies of answers.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde_json::{Value, json};

use crate::decisions::{Answer, CommandError, LimitState, ListedBucket, Verdict};

pub(super) type Reply = Response<Full<Bytes>>;

/// The answer to a command.
pub(super) fn answer(answer: &Answer) -> Reply {
    let document = match answer {
        Answer::One(verdict) => return json(StatusCode::OK, &VerdictBody::new(verdict)),
        Answer::All {
            is_allowed,
            refused,
            verdicts,
        } => json!({
            "allowed": is_allowed,
            "refused": refused,
            "buckets": self::verdicts(verdicts),
        }),
        Answer::Held { id, verdicts } => json!({
            "allowed": true,
            "hold": id,
            "buckets": self::verdicts(verdicts),
        }),
        Answer::Settled { verdicts } => json!({"buckets": self::verdicts(verdicts)}),
        Answer::Done => json!({"done": true}),
        Answer::Buckets(buckets) => {
            let buckets: Vec<Value> = buckets.iter().map(listed).collect();
            json!({ "buckets": buckets })
        }
        Answer::State(limits) => {
            let limits: Vec<Value> = limits.iter().map(limit_state).collect();
            json!({ "limits": limits })
        }
    };
    json(StatusCode::OK, &document)
}

/// Why a command was not run, as a problem document.
pub(super) fn error(error: &CommandError) -> Reply {
    let status = match error {
        CommandError::Forbidden(_) => StatusCode::FORBIDDEN,
        CommandError::UnknownLimit(_)
        | CommandError::UnknownHold
        | CommandError::UnknownTier { .. } => StatusCode::NOT_FOUND,
        CommandError::BadKey(_) | CommandError::Invalid(_) => StatusCode::BAD_REQUEST,
        CommandError::KeyReused | CommandError::NotListed => StatusCode::CONFLICT,
        CommandError::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        CommandError::Full(_) | CommandError::Overloaded | CommandError::Store(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    problem(status, error.code(), &error.to_string())
}

/// A problem document (RFC 9457). `code` is a word for programs.
pub(super) fn problem(status: StatusCode, code: &str, detail: &str) -> Reply {
    let document = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or("Error"),
        "status": status.as_u16(),
        "detail": detail,
        "code": code,
    });
    let mut reply = json(status, &document);
    let headers = reply.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    reply
}

pub(super) fn json(status: StatusCode, document: &impl Serialize) -> Reply {
    // Numbers, texts and lists of them can always be written.
    let body = serde_json::to_vec(document).unwrap_or_default();
    with_type(status, body.into(), "application/json")
}

pub(super) fn with_type(status: StatusCode, body: Bytes, content_type: &'static str) -> Reply {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    reply.headers_mut().insert(CONTENT_TYPE, content_type);
    reply
}

fn verdicts(verdicts: &[Verdict]) -> Vec<VerdictBody> {
    verdicts.iter().map(VerdictBody::new).collect()
}

/// A verdict as JSON. It is written without a tree of values in between, because most answers are one.
#[derive(Serialize)]
struct VerdictBody {
    allowed: bool,
    reason: &'static str,
    level: i64,
    remaining: u64,
    capacity: u64,
    retry_after_us: Option<u64>,
    full_after_us: u64,
    fallback: bool,
}

impl VerdictBody {
    fn new(verdict: &Verdict) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            allowed: verdict.is_allowed,
            reason: verdict.why.as_str(),
            level: verdict.level,
            remaining: verdict.remaining,
            capacity: verdict.limit.capacity(),
            retry_after_us: verdict.retry_after.map(micros),
            full_after_us: micros(verdict.full_after),
            fallback: verdict.is_fallback,
        }
    }
}

/// Keys are bytes; those that are not UTF-8 are shown with replacement characters.
fn listed(bucket: &ListedBucket) -> Value {
    json!({
        "key": String::from_utf8_lossy(&bucket.key),
        "level": bucket.level,
        "capacity": bucket.capacity,
        "full_after_us": u64::try_from(bucket.full_after.as_micros()).unwrap_or(u64::MAX),
    })
}

/// The JSON of a limit.
pub(crate) fn limit_state(limit: &LimitState) -> Value {
    json!({
        "name": limit.name,
        "limit": limit.limit,
        "storage": if limit.is_in_memory { "memory" } else { "redis" },
        "waiting": limit.waiting,
        "keys": limit.keys,
        "leases": limit.leases,
    })
}
