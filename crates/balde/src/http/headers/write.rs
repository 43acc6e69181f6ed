//! Writing: what a decision means for the one who asked.

use std::time::{SystemTime, UNIX_EPOCH};

use ::http::header::RETRY_AFTER;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use balde_core::{Limit, Wait};

use super::field::{Text, integer, micros, push_integer, quoted, seconds_up};
use super::numbers::{Numbers, effective_us, reset_us};
use super::prepared::Prepared;
use crate::decision::Decision;

pub(super) const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const STANDING: HeaderName = HeaderName::from_static("ratelimit");

/// How `X-RateLimit-Reset` tells a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reset {
    /// Seconds from now.
    #[default]
    Seconds,
    /// Seconds since 1970, for clients that expect a time of day.
    UnixTime,
}

/// Which fields are written, and how.
///
/// ```
/// use balde::RateLimiter;
/// use balde::http::HeaderOptions;
/// use http::HeaderMap;
/// use std::time::SystemTime;
///
/// let limiter = RateLimiter::builder().name("per-user").limit("10/s burst 20").build()?;
/// let decision = limiter.blocking().check("alice");
///
/// let mut headers = HeaderMap::new();
/// let parts = [("per-user", &decision)];
/// HeaderOptions::default().write(&mut headers, &parts, SystemTime::now());
/// assert_eq!(headers["x-ratelimit-limit"], "20");
/// assert_eq!(headers["x-ratelimit-remaining"], "19");
/// assert_eq!(headers["ratelimit-policy"], r#""per-user";q=20;w=2"#);
/// assert_eq!(headers["ratelimit"], r#""per-user";r=19;t=1"#);
/// # Ok::<(), balde::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOptions {
    reset: Reset,
    has_x: bool,
    has_ietf: bool,
}

impl Default for HeaderOptions {
    fn default() -> Self {
        Self {
            reset: Reset::Seconds,
            has_x: true,
            has_ietf: true,
        }
    }
}

impl HeaderOptions {
    /// How `X-RateLimit-Reset` tells a time; [`Reset::Seconds`] unless told otherwise.
    pub const fn reset(mut self, reset: Reset) -> Self {
        self.reset = reset;
        self
    }

    /// Leaves `X-RateLimit-*` out.
    pub const fn without_x_fields(mut self) -> Self {
        self.has_x = false;
        self
    }

    /// Leaves `RateLimit-Policy` and `RateLimit` out.
    pub const fn without_ietf_fields(mut self) -> Self {
        self.has_ietf = false;
        self
    }

    /// Whether only refusals are told anything.
    pub(crate) const fn are_none(self) -> bool {
        !self.has_x && !self.has_ietf
    }

    pub(super) const fn has_x(self) -> bool {
        self.has_x
    }

    pub(super) const fn has_ietf(self) -> bool {
        self.has_ietf
    }

    /// Writes what these decisions, each with its limit's name, say. Fields that are there already
    /// are replaced.
    ///
    /// Where nobody knows how the caller stands (the store is away and
    /// [`OnFailure`](crate::OnFailure) decided without a bucket, or the key was bad), the limit is
    /// in `RateLimit-Policy` and nowhere else: no number is invented.
    pub fn write(&self, headers: &mut HeaderMap, parts: &[(&str, &Decision)], now: SystemTime) {
        let limits = parts.iter().map(|(name, part)| (*name, *part.limit()));
        let decisions: Vec<Decision> = parts.iter().map(|(_, part)| **part).collect();
        HeaderWriter::new(*self, limits).write_each(headers, &decisions, now);
    }

    /// [`write`](HeaderOptions::write) made ready for limits that are known beforehand: what does
    /// not change from request to request is written once.
    pub fn writer<'a>(&self, limits: impl IntoIterator<Item = (&'a str, Limit)>) -> HeaderWriter {
        HeaderWriter::new(*self, limits).prepared()
    }
}

/// Writes the fields of decisions by certain limits; made by [`HeaderOptions::writer`].
#[derive(Clone, Debug)]
pub struct HeaderWriter {
    options: HeaderOptions,
    limits: Vec<Ready>,
    policy: HeaderValue,
    /// Where there is one limit, and something to tell.
    prepared: Option<Prepared>,
}

/// What of a limit does not change.
#[derive(Clone, Debug)]
struct Ready {
    /// As a structured field's string, quotes included.
    name: Vec<u8>,
    limit: Limit,
    capacity: HeaderValue,
}

impl HeaderWriter {
    fn new<'a>(options: HeaderOptions, limits: impl IntoIterator<Item = (&'a str, Limit)>) -> Self {
        let mut ready: Vec<Ready> = Vec::new();
        for (name, limit) in limits {
            ready.push(Ready {
                name: unique(name, &ready),
                limit,
                capacity: integer(limit.capacity()),
            });
        }
        let policy = policy(ready.iter().map(|one| (&*one.name, &one.limit)));
        Self {
            options,
            limits: ready,
            policy,
            prepared: None,
        }
    }

    /// Makes ready what pays only for one who writes often.
    fn prepared(self) -> Self {
        let prepared = match &*self.limits {
            [only] if !self.options.are_none() => Some(Prepared::new(
                self.options,
                &only.name,
                &only.capacity,
                &self.policy,
            )),
            _ => None,
        };
        Self { prepared, ..self }
    }

    /// Writes what these decisions say, one for each limit and in the same order. Fields that are
    /// there already are replaced. [`HeaderOptions::write`] tells what is left out.
    pub fn write(&self, headers: &mut HeaderMap, decisions: &[Decision], now: SystemTime) {
        if let [only] = decisions
            && let Some(numbers) = self.numbers(only)
        {
            self.write_numbers(headers, &numbers, now);
        } else {
            self.write_each(headers, decisions, now);
        }
    }

    /// What [`write_numbers`](HeaderWriter::write_numbers) needs of the decision by the only limit;
    /// nothing where there is more to say than that: of a refusal, of several limits, of a limit
    /// that was changed meanwhile, or where nobody knows how the caller stands.
    #[inline]
    pub(crate) fn numbers(&self, decision: &Decision) -> Option<Numbers> {
        let [only] = &*self.limits else {
            return None;
        };
        let is_usual = self.prepared.is_some()
            && decision.is_allowed()
            && decision.has_bucket()
            && only.limit == *decision.limit();
        is_usual.then(|| Numbers::of(*decision))
    }

    /// What [`write`](HeaderWriter::write) does, of a decision that [`numbers`](HeaderWriter::numbers)
    /// has put into numbers.
    pub(crate) fn write_numbers(
        &self,
        headers: &mut HeaderMap,
        numbers: &Numbers,
        now: SystemTime,
    ) {
        if let Some(prepared) = &self.prepared {
            prepared.write(headers, numbers, self.reset_s(numbers.reset_us, now));
        }
    }

    /// Any decisions by any limits, field by field.
    fn write_each(&self, headers: &mut HeaderMap, decisions: &[Decision], now: SystemTime) {
        // One growth instead of several; without room the insertions find their own.
        let _room = headers.try_reserve(6);
        if decisions.iter().any(|one| !one.is_allowed())
            && let Some(seconds) = retry_after_s(decisions)
        {
            headers.insert(RETRY_AFTER, integer(seconds));
        }
        if self.options.has_x {
            self.write_x(headers, decisions, now);
        }
        if self.options.has_ietf && !self.limits.is_empty() {
            self.write_ietf(headers, decisions);
        }
    }

    fn write_x(&self, headers: &mut HeaderMap, decisions: &[Decision], now: SystemTime) {
        let Some(index) = spokesman(decisions) else {
            return;
        };
        let decision = &decisions[index];
        let capacity = match self.limits.get(index) {
            Some(ready) if ready.limit.capacity() == decision.limit().capacity() => {
                ready.capacity.clone()
            }
            _ => integer(decision.limit().capacity()),
        };
        let reset = self.reset_s(reset_us(decision), now);
        headers.insert(X_LIMIT, capacity);
        headers.insert(X_REMAINING, integer(decision.remaining()));
        headers.insert(X_RESET, integer(reset));
    }

    fn reset_s(&self, reset_us: u64, now: SystemTime) -> u64 {
        match self.options.reset {
            Reset::Seconds => seconds_up(reset_us),
            Reset::UnixTime => {
                let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
                seconds_up(micros(since).saturating_add(reset_us))
            }
        }
    }

    /// Whether what is written depends on the time of day.
    #[cfg(feature = "tower")]
    pub(crate) fn needs_time(&self) -> bool {
        self.options.has_x && self.options.reset == Reset::UnixTime
    }

    fn write_ietf(&self, headers: &mut HeaderMap, decisions: &[Decision]) {
        let parts = || self.limits.iter().zip(decisions);
        // A limit that was changed meanwhile, or a local share of it while the store is away.
        let is_changed = parts().any(|(ready, part)| ready.limit != *part.limit());
        let policy = if is_changed {
            policy(parts().map(|(ready, part)| (&*ready.name, part.limit())))
        } else {
            self.policy.clone()
        };
        headers.insert(POLICY, policy);
        let mut text = Text::new();
        for (ready, part) in parts().filter(|(_, part)| part.has_bucket()) {
            begin_member(&mut text, &ready.name);
            text.push(b";r=");
            push_integer(&mut text, part.remaining());
            text.push(b";t=");
            push_integer(&mut text, seconds_up(effective_us(part)));
        }
        if text.as_bytes().is_empty() {
            headers.remove(STANDING);
        } else {
            headers.insert(STANDING, value(text.as_bytes()));
        }
    }
}

/// The whole seconds after which the same request would pass, as far as these limits go: rounded
/// up, so that they suffice, and at least one. Nothing where it passed, and nothing where one of
/// them will never let it pass.
pub(crate) fn retry_after_s(decisions: &[Decision]) -> Option<u64> {
    let mut longest_us = None;
    for decision in decisions {
        match decision.wait() {
            Wait::None => {}
            Wait::Us(us) => longest_us = longest_us.max(Some(us)),
            Wait::Never => return None,
        }
    }
    longest_us.map(|us| seconds_up(us).max(1))
}

/// The one that `X-RateLimit-*` speaks of: what refuses longest, else what has least left. Nobody,
/// where that is something nobody knows.
fn spokesman(decisions: &[Decision]) -> Option<usize> {
    let all = || decisions.iter().enumerate();
    let refused = all().filter(|(_, part)| !part.is_allowed());
    let (index, part) = match refused.max_by_key(|(_, part)| longest(part.wait())) {
        Some(refused) => refused,
        None => all()
            .filter(|(_, part)| part.has_bucket())
            .min_by_key(|(_, part)| part.remaining())?,
    };
    part.has_bucket().then_some(index)
}

fn longest(wait: Wait) -> u64 {
    match wait {
        Wait::None => 0,
        Wait::Us(us) => us,
        Wait::Never => u64::MAX,
    }
}

fn policy<'a>(limits: impl Iterator<Item = (&'a [u8], &'a Limit)>) -> HeaderValue {
    let mut text = Text::new();
    for (name, limit) in limits {
        begin_member(&mut text, name);
        text.push(b";q=");
        push_integer(&mut text, limit.capacity());
        text.push(b";w=");
        push_integer(&mut text, seconds_up(limit.fill_us()));
    }
    value(text.as_bytes())
}

fn begin_member(text: &mut Text, name: &[u8]) {
    if !text.as_bytes().is_empty() {
        text.push(b", ");
    }
    text.push(name);
}

/// The field may not say one name twice, so the second `default` is `default-2`.
fn unique(name: &str, taken: &[Ready]) -> Vec<u8> {
    let is_taken = |text: &[u8]| taken.iter().any(|one| one.name == text);
    let text = quoted(name);
    if !is_taken(&text) {
        return text;
    }
    let stem = &text[..text.len() - 1];
    // One of so many is free.
    let mut numbers = 2..taken.len() as u64 + 3;
    let numbered = numbers.find_map(|number| {
        let text = [stem, format!("-{number}\"").as_bytes()].concat();
        (!is_taken(&text)).then_some(text)
    });
    numbered.unwrap_or(text)
}

pub(super) fn value(text: &[u8]) -> HeaderValue {
    // Names are quoted into printable ASCII, and the rest is digits and punctuation.
    HeaderValue::from_bytes(text).unwrap_or(HeaderValue::from_static(""))
}
