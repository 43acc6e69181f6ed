//! Reading: what a server says about its limits, for clients who want to keep them.
//!
//! Everything here was written by somebody else. What cannot be read is as good as absent.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::http::header::RETRY_AFTER;
use ::http::{HeaderMap, HeaderValue};
use sfv::{BareItem, Item, List, ListEntry, Parser};

/// The most limits that are read from one response.
pub const LIMITS_MAX: usize = 64;

/// The most bytes that are read of one field, all its lines together. A longer one is ignored.
pub const FIELD_BYTES_MAX: usize = 16_384;

/// The longest time that is reported, about a hundred years: a client can add it to any clock.
pub const DURATION_MAX: Duration = Duration::from_secs(36_500 * 86_400);

/// From here on an `X-RateLimit-Reset` is a time of day: thirty years would be no reset.
const UNIX_TIME_S: u64 = 1_000_000_000;

/// And from here on it counts milliseconds.
const UNIX_TIME_MS: u64 = 1_000_000_000_000;

/// What a server said about its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// How long to wait before asking again. It takes precedence over everything below.
    pub retry_after: Option<Duration>,
    /// Every limit that was told of, in order; the one of `X-RateLimit-*` is last and has no name.
    pub limits: Vec<LimitStatus>,
}

/// One limit, as far as it was told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitStatus {
    /// What it is called.
    pub name: Option<String>,
    /// The tokens in a full bucket or window.
    pub quota: Option<u64>,
    /// The time in which so many come back.
    pub window: Option<Duration>,
    /// The tokens that are left.
    pub remaining: Option<u64>,
    /// The time until there are more.
    pub reset: Option<Duration>,
}

/// Reads `Retry-After`, `RateLimit-Policy`, `RateLimit` and `X-RateLimit-*`.
///
/// `Retry-After` is seconds or a date; `now` is what the date is measured against. An
/// `X-RateLimit-Reset` of a thousand million or more is a time since 1970, in milliseconds from a
/// million million on; anything less is seconds from now. Whatever cannot be read is left out, and
/// so is a structured field with any fault in it, as its standard demands.
///
/// ```
/// use balde::http::headers::read;
/// use http::HeaderMap;
/// use std::time::{Duration, SystemTime};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("retry-after", "3".parse()?);
/// headers.insert("ratelimit-policy", r#""per-user";q=20;w=2"#.parse()?);
/// headers.insert("ratelimit", r#""per-user";r=0;t=3"#.parse()?);
///
/// let reported = read(&headers, SystemTime::now());
/// assert_eq!(reported.retry_after, Some(Duration::from_secs(3)));
/// assert_eq!(reported.limits[0].name.as_deref(), Some("per-user"));
/// assert_eq!((reported.limits[0].quota, reported.limits[0].remaining), (Some(20), Some(0)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn read(headers: &HeaderMap, now: SystemTime) -> RateLimitStatus {
    let mut limits = Vec::new();
    for item in items(headers, "ratelimit-policy") {
        if let Some(limit) = named(&mut limits, &item) {
            limit.quota = limit.quota.or(number(&item, "q"));
            limit.window = limit.window.or(seconds(&item, "w"));
        }
    }
    for item in items(headers, "ratelimit") {
        if let Some(limit) = named(&mut limits, &item) {
            limit.remaining = limit.remaining.or(number(&item, "r"));
            limit.reset = limit.reset.or(seconds(&item, "t"));
        }
    }
    limits.extend(x_fields(headers, now));
    RateLimitStatus {
        retry_after: retry_after(headers, now),
        limits,
    }
}

/// Where there are several, the longest: who waits too long is never refused for it.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let lines = headers.get_all(RETRY_AFTER).iter().take(LIMITS_MAX);
    lines
        .filter_map(|line| {
            let text = short_text(line)?;
            if let Some(seconds) = digits(text) {
                return Some(bounded(seconds));
            }
            let date = httpdate::parse_http_date(text).ok()?;
            let wait = date.duration_since(now).unwrap_or_default();
            Some(wait.min(DURATION_MAX))
        })
        .max()
}

fn x_fields(headers: &HeaderMap, now: SystemTime) -> Option<LimitStatus> {
    let field = |name: &str| headers.get(name).and_then(short_text).and_then(leading);
    let limit = LimitStatus {
        name: None,
        quota: field("x-ratelimit-limit"),
        window: None,
        remaining: field("x-ratelimit-remaining"),
        reset: field("x-ratelimit-reset").map(|reset| until(reset, now)),
    };
    (limit != LimitStatus::default()).then_some(limit)
}

/// A time by its magnitude.
fn until(reset: u64, now: SystemTime) -> Duration {
    let since = match reset {
        ..UNIX_TIME_S => return bounded(reset),
        UNIX_TIME_S..UNIX_TIME_MS => Duration::from_secs(reset),
        UNIX_TIME_MS.. => Duration::from_millis(reset),
    };
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.saturating_sub(now).min(DURATION_MAX)
}

/// The first number: some servers say `100, 100;w=60`. Fractions are rounded up.
fn leading(text: &str) -> Option<u64> {
    let first = text.split([',', ';']).next()?.trim();
    let Some((whole, fraction)) = first.split_once('.') else {
        return digits(first);
    };
    let rounded = u64::from(digits(fraction)? > 0);
    Some(digits(whole)?.saturating_add(rounded))
}

/// Digits and nothing else; a sign, say, is none. What is too large is the largest.
fn digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

fn short_text(value: &HeaderValue) -> Option<&str> {
    const NUMBER_BYTES_MAX: usize = 128;
    let text = value.to_str().ok()?.trim();
    (text.len() <= NUMBER_BYTES_MAX).then_some(text)
}

/// The members of a list that is spread over any number of lines.
fn items(headers: &HeaderMap, name: &str) -> Vec<Item> {
    let lines = || headers.get_all(name).iter();
    let bytes: usize = lines().map(|line| line.len().saturating_add(2)).sum();
    if bytes == 0 || bytes > FIELD_BYTES_MAX {
        return Vec::new();
    }
    let mut text = Vec::with_capacity(bytes);
    for line in lines() {
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(line.as_bytes());
    }
    let list: List = Parser::new(&text).parse().unwrap_or_default();
    let items = list.into_iter().filter_map(|entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    });
    items.take(LIMITS_MAX).collect()
}

/// The limit that the item names: the one that is there already, or a new one. Drafts before the
/// current one wrote names without quotes.
fn named<'a>(limits: &'a mut Vec<LimitStatus>, item: &Item) -> Option<&'a mut LimitStatus> {
    let name = match &item.bare_item {
        BareItem::String(name) => name.as_str(),
        BareItem::Token(name) => name.as_str(),
        _ => return None,
    };
    let known = limits
        .iter()
        .position(|one| one.name.as_deref() == Some(name));
    if known.is_none() && limits.len() == LIMITS_MAX {
        return None;
    }
    let index = known.unwrap_or_else(|| {
        limits.push(LimitStatus {
            name: Some(name.to_owned()),
            ..LimitStatus::default()
        });
        limits.len() - 1
    });
    limits.get_mut(index)
}

fn number(item: &Item, key: &str) -> Option<u64> {
    match item.params.get(key)? {
        BareItem::Integer(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn seconds(item: &Item, key: &str) -> Option<Duration> {
    number(item, key).map(bounded)
}

fn bounded(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(DURATION_MAX)
}
