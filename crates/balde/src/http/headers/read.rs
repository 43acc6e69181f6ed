//! Reading the rate-limit header fields of a response, for clients.
//!
//! The fields come from another party: whatever cannot be parsed is treated as absent.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::http::header::RETRY_AFTER;
use ::http::{HeaderMap, HeaderValue};
use sfv::{BareItem, Item, List, ListEntry, Parser};

/// The maximum number of limits that are read from one response.
const LIMITS_MAX: usize = 64;

/// The maximum length of a structured field, all its lines together. A longer one is ignored.
const FIELD_BYTES_MAX: usize = 16_384;

/// The longest duration that is returned, about a hundred years. It can be added to any clock.
const DURATION_MAX: Duration = Duration::from_secs(36_500 * 86_400);

/// From this value on, `X-RateLimit-Reset` is a unix time: as a wait it would be thirty years.
const UNIX_TIME_S: u64 = 1_000_000_000;

/// From this value on, `X-RateLimit-Reset` is a unix time in milliseconds.
const UNIX_TIME_MS: u64 = 1_000_000_000_000;

/// What the header fields of a response say about the server's rate limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// How long to wait before the next request (`Retry-After`). It takes precedence over `limits`.
    pub retry_after: Option<Duration>,
    /// The limits, in the order of the header fields. The one from `X-RateLimit-*` has no name and
    /// comes last.
    pub limits: Vec<LimitStatus>,
}

/// What the header fields of a response say about one limit. Fields that the server did not send
/// are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitStatus {
    /// The name of the limit.
    pub name: Option<String>,
    /// The number of tokens in a full bucket or window.
    pub quota: Option<u64>,
    /// The time in which the whole quota is refilled.
    pub window: Option<Duration>,
    /// The number of tokens left.
    pub remaining: Option<u64>,
    /// The time until more tokens are available.
    pub reset: Option<Duration>,
}

/// Reads `Retry-After`, `RateLimit-Policy`, `RateLimit` and `X-RateLimit-*` from a response.
///
/// `Retry-After` is a number of seconds or a date, which is compared with `now`. An
/// `X-RateLimit-Reset` of 1,000,000,000 or more is a unix time in seconds, from 1,000,000,000,000 on
/// in milliseconds; anything less is seconds from now. A value that cannot be parsed is left out. A
/// structured field with any syntax error is left out as a whole, as RFC 9651 demands. At most 64
/// limits are returned, and no duration exceeds about a hundred years.
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
/// let status = read(&headers, SystemTime::now());
/// assert_eq!(status.retry_after, Some(Duration::from_secs(3)));
/// assert_eq!(status.limits[0].name.as_deref(), Some("per-user"));
/// assert_eq!((status.limits[0].quota, status.limits[0].remaining), (Some(20), Some(0)));
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

/// The longest of several values: waiting too long is always safe.
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
        reset: field("x-ratelimit-reset").map(|reset| reset_after(reset, now)),
    };
    (limit != LimitStatus::default()).then_some(limit)
}

/// Interprets `X-RateLimit-Reset` by its magnitude.
fn reset_after(reset: u64, now: SystemTime) -> Duration {
    let since = match reset {
        ..UNIX_TIME_S => return bounded(reset),
        UNIX_TIME_S..UNIX_TIME_MS => Duration::from_secs(reset),
        UNIX_TIME_MS.. => Duration::from_millis(reset),
    };
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.saturating_sub(now).min(DURATION_MAX)
}

/// The first number of a list, because some servers send `100, 100;w=60`. Fractions are rounded up.
fn leading(text: &str) -> Option<u64> {
    let first = text.split([',', ';']).next()?.trim();
    let Some((whole, fraction)) = first.split_once('.') else {
        return digits(first);
    };
    let rounded = u64::from(digits(fraction)? > 0);
    Some(digits(whole)?.saturating_add(rounded))
}

/// Parses digits only, without a sign. A number that is too large becomes `u64::MAX`.
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

/// The members of a structured list that may span several lines.
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

/// Finds the limit that the item names, or adds it. Earlier drafts wrote names without quotes.
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
