//! From verdicts to the answer that Envoy expects.

use std::time::Duration;

use balde::Limit;
use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::google::protobuf::Duration as ProtoDuration;

use crate::decisions::Verdict;

/// What became of a descriptor: the verdicts of its limits, with their names. There are none if the
/// descriptor is not limited.
#[derive(Debug, Default)]
pub(super) struct Outcome<'d> {
    enforced: Vec<(&'d str, Verdict)>,
    /// Those whose refusals do not count.
    shadow: Vec<(&'d str, Verdict)>,
}

impl<'d> Outcome<'d> {
    pub(super) fn add(&mut self, name: &'d str, verdict: Verdict) {
        self.enforced.push((name, verdict));
    }

    pub(super) fn add_shadow(&mut self, name: &'d str, verdict: Verdict) {
        self.shadow.push((name, verdict));
    }

    fn is_over_limit(&self) -> bool {
        let mut enforced = self.enforced.iter();
        enforced.any(|(_, verdict)| !verdict.is_allowed)
    }

    fn status(&self) -> DescriptorStatus {
        let code = if self.is_over_limit() {
            Code::OverLimit
        } else {
            Code::Ok
        };
        let shown = tightest(self.enforced.iter());
        let Some((name, verdict)) = shown.or_else(|| tightest(self.shadow.iter())) else {
            return DescriptorStatus {
                code: code.into(),
                ..DescriptorStatus::default()
            };
        };
        DescriptorStatus {
            code: code.into(),
            current_limit: Some(current_limit(name, &verdict.limit)),
            limit_remaining: u32::try_from(verdict.remaining).unwrap_or(u32::MAX),
            duration_until_reset: Some(proto_duration(verdict.full_after)),
            ..DescriptorStatus::default()
        }
    }
}

/// The limit that has least left: of those that refuse, the one that refuses for longest.
fn tightest<'v, 'd: 'v>(
    verdicts: impl Iterator<Item = &'v (&'d str, Verdict)>,
) -> Option<&'v (&'d str, Verdict)> {
    verdicts.min_by_key(|(_, verdict)| {
        let wait = std::cmp::Reverse(verdict.retry_after);
        (verdict.is_allowed, wait, verdict.remaining)
    })
}

pub(super) fn is_over_limit(response: &RateLimitResponse) -> bool {
    response.overall_code() == Code::OverLimit
}

pub(super) fn response(outcomes: &[Outcome<'_>], has_headers: bool) -> RateLimitResponse {
    let is_over_limit = outcomes.iter().any(Outcome::is_over_limit);
    let overall = if is_over_limit {
        Code::OverLimit
    } else {
        Code::Ok
    };
    RateLimitResponse {
        overall_code: overall.into(),
        statuses: outcomes.iter().map(Outcome::status).collect(),
        response_headers_to_add: if has_headers {
            headers(outcomes)
        } else {
            Vec::new()
        },
        ..RateLimitResponse::default()
    }
}

/// The fields of the tightest limit of all descriptors.
fn headers(outcomes: &[Outcome<'_>]) -> Vec<HeaderValue> {
    let verdicts = outcomes.iter().flat_map(|outcome| &outcome.enforced);
    let Some((_, verdict)) = tightest(verdicts) else {
        return Vec::new();
    };
    let mut fields = vec![
        field("ratelimit-limit", verdict.limit.capacity()),
        field("ratelimit-remaining", verdict.remaining),
        field("ratelimit-reset", seconds_up(verdict.full_after)),
    ];
    if let Some(wait) = verdict.retry_after.filter(|_| !verdict.is_allowed) {
        fields.push(field("retry-after", seconds_up(wait)));
    }
    fields
}

fn field(name: &str, value: u64) -> HeaderValue {
    HeaderValue {
        key: name.to_owned(),
        value: value.to_string(),
        ..HeaderValue::default()
    }
}

fn seconds_up(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn proto_duration(time: Duration) -> ProtoDuration {
    ProtoDuration {
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(time.subsec_nanos()).unwrap_or(0),
    }
}

/// The rate of a limit in one of Envoy's units, if its period is one; otherwise what fits into it at
/// once, without a unit.
fn current_limit(name: &str, limit: &Limit) -> RateLimit {
    const SECOND_US: u64 = 1_000_000;
    let unit = match limit.period_us() {
        SECOND_US => Unit::Second,
        60_000_000 => Unit::Minute,
        3_600_000_000 => Unit::Hour,
        86_400_000_000 => Unit::Day,
        604_800_000_000 => Unit::Week,
        _ => Unit::Unknown,
    };
    let requests = match unit {
        Unit::Unknown => limit.capacity(),
        _ => limit.refill_tokens(),
    };
    RateLimit {
        name: name.to_owned(),
        requests_per_unit: u32::try_from(requests).unwrap_or(u32::MAX),
        unit: unit.into(),
    }
}
