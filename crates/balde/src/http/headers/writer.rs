//! Writing header fields for decisions.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::http::header::RETRY_AFTER;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use balde_core::{Limit, Wait};

use super::encode::{
    FieldBuffer, header_value, integer, micros, push_integer, quoted_string, seconds_up,
};
use super::options::{HeaderOptions, ResetFormat};
use super::times::{effective_us, reset_us};
use crate::decision::Decision;

pub(super) const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

impl HeaderOptions {
    /// Writes the header fields for these decisions, each with the name of its policy. Fields that
    /// `headers` already contains are replaced. `now` is only used for [`ResetFormat::UnixTime`].
    ///
    /// If there is no bucket behind a decision (the store is unavailable and
    /// [`OnFailure`](crate::OnFailure) decided without one, or the key was invalid), the limit
    /// appears in `RateLimit-Policy` only.
    pub fn write(&self, headers: &mut HeaderMap, decisions: &[(&str, &Decision)], now: SystemTime) {
        if self.is_empty() {
            return write_wait(headers, decisions.iter().map(|(_, one)| *one));
        }
        let limits = decisions.iter().map(|(name, one)| (*name, *one.limit()));
        let all: Vec<Decision> = decisions.iter().map(|(_, one)| **one).collect();
        let indices: Vec<usize> = (0..all.len()).collect();
        HeaderWriter::new(*self, limits).write(headers, &indices, &all, now);
    }
}

/// Writes `Retry-After`: `wait` in whole seconds, rounded up, at least 1.
///
/// [`HeaderOptions::write`] already does this for decisions that refuse.
pub fn write_retry_after(headers: &mut HeaderMap, wait: Duration) {
    headers.insert(RETRY_AFTER, integer(retry_after_s(wait)));
}

/// Writes the header fields for decisions on these limits, field by field.
#[derive(Clone, Debug)]
pub(super) struct HeaderWriter {
    pub(super) options: HeaderOptions,
    pub(super) limits: Vec<EncodedLimit>,
    /// The value of `RateLimit-Policy`.
    pub(super) policy: HeaderValue,
}

/// One limit with its encoded parts.
#[derive(Clone, Debug)]
pub(super) struct EncodedLimit {
    /// A structured field string, quotes included.
    pub(super) name: Vec<u8>,
    pub(super) limit: Limit,
    pub(super) capacity: HeaderValue,
}

impl HeaderWriter {
    pub(super) fn new<'a>(
        options: HeaderOptions,
        limits: impl IntoIterator<Item = (&'a str, Limit)>,
    ) -> Self {
        let mut encoded: Vec<EncodedLimit> = Vec::new();
        for (name, limit) in limits {
            encoded.push(EncodedLimit {
                name: unique_name(name, &encoded),
                limit,
                capacity: integer(limit.capacity()),
            });
        }
        let policy = policy_value(encoded.iter().map(|one| (&*one.name, &one.limit)));
        Self {
            options,
            limits: encoded,
            policy,
        }
    }

    /// Writes the fields for one decision on each of some limits, which are given by their indices.
    pub(super) fn write(
        &self,
        headers: &mut HeaderMap,
        limits: &[usize],
        decisions: &[Decision],
        now: SystemTime,
    ) {
        // Grows the map once instead of several times. If that fails, the insertions grow it.
        let _reserved = headers.try_reserve(6);
        write_wait(headers, decisions.iter());
        if self.options.has_x() {
            self.write_x(headers, limits, decisions, now);
        }
        if self.options.has_ietf() && !decisions.is_empty() {
            self.write_ietf(headers, limits, decisions);
        }
    }

    fn write_x(
        &self,
        headers: &mut HeaderMap,
        limits: &[usize],
        decisions: &[Decision],
        now: SystemTime,
    ) {
        let Some(index) = most_restrictive(decisions) else {
            return;
        };
        let decision = &decisions[index];
        let encoded = &self.limits[limits[index]];
        let capacity = if encoded.limit.capacity() == decision.limit().capacity() {
            encoded.capacity.clone()
        } else {
            integer(decision.limit().capacity())
        };
        let reset = self.reset_s(reset_us(decision), now);
        headers.insert(X_LIMIT, capacity);
        headers.insert(X_REMAINING, integer(decision.remaining()));
        headers.insert(X_RESET, integer(reset));
    }

    /// The value of `X-RateLimit-Reset`.
    pub(super) fn reset_s(&self, reset_us: u64, now: SystemTime) -> u64 {
        match self.options.reset_format() {
            ResetFormat::Seconds => seconds_up(reset_us),
            ResetFormat::UnixTime => {
                let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
                seconds_up(micros(since).saturating_add(reset_us))
            }
        }
    }

    fn write_ietf(&self, headers: &mut HeaderMap, limits: &[usize], decisions: &[Decision]) {
        let pairs = || {
            limits
                .iter()
                .map(|limit| &self.limits[*limit])
                .zip(decisions)
        };
        // The limit was replaced, or a local share of it applies while the store is unavailable.
        let is_changed = pairs().any(|(encoded, decision)| encoded.limit != *decision.limit());
        let policy = if is_changed || limits.len() != self.limits.len() {
            policy_value(pairs().map(|(encoded, decision)| (&*encoded.name, decision.limit())))
        } else {
            self.policy.clone()
        };
        headers.insert(RATE_LIMIT_POLICY, policy);
        let mut text = FieldBuffer::new();
        for (encoded, decision) in pairs().filter(|(_, decision)| decision.has_bucket()) {
            begin_member(&mut text, &encoded.name);
            text.push(b";r=");
            push_integer(&mut text, decision.remaining());
            text.push(b";t=");
            push_integer(&mut text, seconds_up(effective_us(decision)));
        }
        if text.as_bytes().is_empty() {
            headers.remove(RATE_LIMIT);
        } else {
            headers.insert(RATE_LIMIT, header_value(text.as_bytes()));
        }
    }
}

/// Writes `Retry-After` if one of these decisions refuses.
fn write_wait<'a>(headers: &mut HeaderMap, decisions: impl Iterator<Item = &'a Decision> + Clone) {
    if decisions.clone().any(|one| !one.is_allowed())
        && let Some(wait) = longest_wait(decisions)
    {
        write_retry_after(headers, wait);
    }
}

/// How long until all of these decisions would allow the same request. `None` if they all allow it
/// already, or if one of them never will.
pub(crate) fn longest_wait<'a>(
    decisions: impl IntoIterator<Item = &'a Decision>,
) -> Option<Duration> {
    let mut longest_us = None;
    for decision in decisions {
        match decision.wait() {
            Wait::None => {}
            Wait::Us(us) => longest_us = longest_us.max(Some(us)),
            Wait::Never => return None,
        }
    }
    longest_us.map(Duration::from_micros)
}

/// The value of `Retry-After`: whole seconds, rounded up so that the wait suffices, at least 1.
pub(crate) fn retry_after_s(wait: Duration) -> u64 {
    seconds_up(micros(wait)).max(1)
}

/// The index of the decision that `X-RateLimit-*` reports: the refusal with the longest wait,
/// otherwise the bucket with the fewest tokens left. `None` if there is no bucket behind it.
fn most_restrictive(decisions: &[Decision]) -> Option<usize> {
    let all = || decisions.iter().enumerate();
    let refused = all().filter(|(_, decision)| !decision.is_allowed());
    let (index, decision) = match refused.max_by_key(|(_, decision)| wait_us(decision.wait())) {
        Some(refused) => refused,
        None => all()
            .filter(|(_, decision)| decision.has_bucket())
            .min_by_key(|(_, decision)| decision.remaining())?,
    };
    decision.has_bucket().then_some(index)
}

fn wait_us(wait: Wait) -> u64 {
    match wait {
        Wait::None => 0,
        Wait::Us(us) => us,
        Wait::Never => u64::MAX,
    }
}

/// The value of `RateLimit-Policy`.
pub(super) fn policy_value<'a>(limits: impl Iterator<Item = (&'a [u8], &'a Limit)>) -> HeaderValue {
    let mut text = FieldBuffer::new();
    for (name, limit) in limits {
        begin_member(&mut text, name);
        text.push(b";q=");
        push_integer(&mut text, limit.capacity());
        text.push(b";w=");
        push_integer(&mut text, seconds_up(limit.fill_us()));
    }
    header_value(text.as_bytes())
}

fn begin_member(text: &mut FieldBuffer, name: &[u8]) {
    if !text.as_bytes().is_empty() {
        text.push(b", ");
    }
    text.push(name);
}

/// A name may appear only once in the field, so the second `default` becomes `default-2`.
fn unique_name(name: &str, taken: &[EncodedLimit]) -> Vec<u8> {
    let is_taken = |text: &[u8]| taken.iter().any(|one| one.name == text);
    let text = quoted_string(name);
    if !is_taken(&text) {
        return text;
    }
    let stem = &text[..text.len() - 1];
    // There are more candidates than taken names, so one of them is free.
    let mut suffixes = 2..taken.len() as u64 + 3;
    let numbered = suffixes.find_map(|number| {
        let text = [stem, format!("-{number}\"").as_bytes()].concat();
        (!is_taken(&text)).then_some(text)
    });
    numbered.unwrap_or(text)
}
