//! What a person reads: plain, short and complete.

use jiff::Timestamp;

use crate::alert::{Event, EventKind, ForecastResult, ResolveReason};
use crate::analyse::{Change, Confidence};
use crate::severity::Severity;

/// What happened, in a few words: for titles, and for screens on which nothing else fits.
pub fn title(event: &Event) -> String {
    let about = about(event);
    match &event.kind {
        EventKind::Raised { to, .. } => format!("{to}: {about}"),
        EventKind::Lowered { from, to } => format!("{to}, was {from}: {about}"),
        EventKind::Resolved { from, .. } => format!("RESOLVED, was {from}: {about}"),
        EventKind::Reminder { .. } => format!("STILL {}: {about}", event.severity),
        EventKind::Predicted { .. } => format!("WILL BE EMPTY: {about}"),
        EventKind::ForecastOver {
            result: ForecastResult::CameTrue,
        } => format!("EMPTY AS PREDICTED: {about}"),
        EventKind::ForecastOver {
            result: ForecastResult::Averted,
        } => format!("NO LONGER ABOUT TO BE EMPTY: {about}"),
        EventKind::Stale { .. } => format!("NO DATA: {about}"),
        EventKind::StillStale { .. } => format!("STILL NO DATA: {about}"),
        EventKind::Fresh { .. } => format!("DATA AGAIN: {about}"),
        EventKind::Changed(_) => format!("CHANGED: {about}"),
    }
}

/// The whole of it in a description or two: whose bucket, how much is left, since when, when it will
/// be empty, what ended.
pub fn description(event: &Event) -> String {
    let subject = subject(event);
    let left = left(event);
    let at = format_time(event.at_us);
    match &event.kind {
        EventKind::Raised { from, to } => {
            format!("{subject} went from {from} to {to} at {at}. {left}")
        }
        EventKind::Lowered { from, to } => {
            format!("{subject} got better, from {from} to {to}, at {at}. {left}")
        }
        EventKind::Resolved {
            from,
            reason: ResolveReason::Recovered,
        } => format!("{subject} is back to NORMAL from {from} since {at}. {left}"),
        EventKind::Resolved {
            from,
            reason: ResolveReason::Vanished,
        } => format!("{subject} was {from} and is no longer listed since {at}."),
        EventKind::Reminder { since_us } => {
            let since = format_time(*since_us);
            format!("{subject} is {} since {since}. {left}", event.severity)
        }
        EventKind::Predicted {
            empty_at_us,
            confidence,
        } => {
            let empty_at = format_time(*empty_at_us);
            let sure = match confidence {
                Confidence::Low => "low",
                Confidence::Medium => "medium",
                Confidence::High => "high",
            };
            format!(
                "{subject} will be empty at {empty_at} at the present rate (confidence: {sure}). \
                 {left}"
            )
        }
        EventKind::ForecastOver {
            result: ForecastResult::CameTrue,
        } => format!("{subject} is empty, as was predicted, since {at}. {left}"),
        EventKind::ForecastOver {
            result: ForecastResult::Averted,
        } => format!("{subject} is no longer about to be empty since {at}. {left}"),
        EventKind::Stale { newest_us } => {
            let newest = format_time(*newest_us);
            format!(
                "Nothing was heard about {subject} since {newest}: its buckets are not watched."
            )
        }
        EventKind::StillStale { newest_us } => {
            let newest = format_time(*newest_us);
            format!(
                "Still nothing was heard about {subject} since {newest}: its buckets are not \
                 watched."
            )
        }
        EventKind::Fresh { newest_us } => {
            let newest = format_time(*newest_us);
            format!(
                "There is news about {subject} again since {at}; there was none since {newest}."
            )
        }
        EventKind::Changed(change) => format!("{subject}: {}, seen at {at}.", changed(change)),
    }
}

/// How bad it is now: what it was raised or lowered to, and NORMAL when it is over. Unlike
/// [`Event::severity`], which says whom the event concerns.
pub fn current_severity(event: &Event) -> Severity {
    match &event.kind {
        EventKind::Raised { to, .. } | EventKind::Lowered { to, .. } => *to,
        EventKind::Resolved { .. } | EventKind::ForecastOver { .. } | EventKind::Fresh { .. } => {
            Severity::Normal
        }
        _ => event.severity,
    }
}

/// A moment as people write it, to the second: `2026-11-15 10:00:00 UTC`.
pub fn format_time(at_us: u64) -> String {
    let text = timestamp(at_us).strftime("%Y-%m-%d %H:%M:%S UTC");
    text.to_string()
}

/// A moment as machines read it (RFC 3339), to the microsecond.
pub(crate) fn rfc3339(at_us: u64) -> String {
    format!("{:.6}", timestamp(at_us))
}

/// Whole numbers with a comma between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How much is left, without a description around it: `3,600 of 36,000 (10 %)`.
pub(crate) fn tokens(event: &Event) -> Option<String> {
    let level = event.level?;
    let Some(capacity) = event.capacity else {
        return Some(signed(level));
    };
    let tokens = format!("{} of {}", signed(level), grouped(capacity));
    Some(match percent(level, capacity) {
        Some(percent) => format!("{tokens} ({percent} %)"),
        None => tokens,
    })
}

/// Whose bucket and, in a word or two, how it stands.
fn about(event: &Event) -> String {
    let who = match &event.policy {
        Some(policy) => format!("{} {policy}", event.participant),
        None => format!("participant {}", event.participant),
    };
    match (&event.kind, tokens(event)) {
        (EventKind::Changed(change), _) => format!("{who}, {}", changed(change)),
        (
            EventKind::Resolved {
                reason: ResolveReason::Vanished,
                ..
            },
            _,
        ) => format!("{who} is no longer listed"),
        (EventKind::Predicted { empty_at_us, .. }, Some(tokens)) => {
            format!(
                "{who} at {}, {tokens} tokens left",
                format_time(*empty_at_us)
            )
        }
        (EventKind::Predicted { empty_at_us, .. }, None) => {
            format!("{who} at {}", format_time(*empty_at_us))
        }
        (EventKind::Stale { newest_us } | EventKind::StillStale { newest_us }, _) => {
            format!("{who} since {}", format_time(*newest_us))
        }
        (_, Some(tokens)) => format!("{who}, {tokens} tokens left"),
        (_, None) => who,
    }
}

fn subject(event: &Event) -> String {
    match &event.policy {
        Some(policy) => format!("{policy} of participant {}", event.participant),
        None => format!("participant {}", event.participant),
    }
}

fn left(event: &Event) -> String {
    match (event.level, tokens(event)) {
        (Some(level @ ..0), Some(tokens)) => format!(
            "It is {} tokens in debt: {tokens} tokens are left.",
            grouped(level.unsigned_abs())
        ),
        (Some(_), Some(tokens)) => format!("{tokens} tokens are left."),
        _ => "How many tokens are left is not known.".to_owned(),
    }
}

fn changed(change: &Change) -> String {
    match change {
        Change::Category { from, to } => format!("category from {from} to {to}"),
        Change::Capacity { policy, from, to } => format!(
            "capacity of {policy} from {} to {} tokens",
            grouped(*from),
            grouped(*to)
        ),
        Change::Refill { policy, from, to } => {
            format!("refill of {policy} from {} to {}", rate(*from), rate(*to))
        }
        Change::PolicyAdded { policy } => format!("policy {policy} is new"),
        Change::PolicyRemoved { policy } => format!("policy {policy} is no longer listed"),
    }
}

fn rate((tokens, period_us): (u64, u64)) -> String {
    let tokens = grouped(tokens);
    if period_us.is_multiple_of(1_000_000) {
        format!("{tokens} tokens every {} s", period_us / 1_000_000)
    } else {
        format!("{tokens} tokens every {period_us} µs")
    }
}

fn signed(level: i64) -> String {
    let sign = if level < 0 { "-" } else { "" };
    format!("{sign}{}", grouped(level.unsigned_abs()))
}

/// Whole percents of capacity, rounded down, so that what is shown is never more than is left.
fn percent(level: i64, capacity: u64) -> Option<i128> {
    if capacity == 0 {
        return None;
    }
    Some((i128::from(level) * 100).div_euclid(i128::from(capacity)))
}

/// A moment beyond the calendar's end is its end.
fn timestamp(at_us: u64) -> Timestamp {
    let at_us = i64::try_from(at_us).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(at_us).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
