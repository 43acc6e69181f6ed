//! The texts that people read: titles and descriptions of events.

mod fields;
mod portuguese;
mod wording;

use jiff::Timestamp;

use crate::alert::WITHOUT_STORAGE;
use crate::alert::{Event, EventKind, ForecastResult, MONITOR, ResolveReason};
use crate::analyse::{Change, Confidence};
use crate::severity::Severity;

pub(crate) use fields::fields;
pub use wording::{Language, Wording};

/// Returns a one-line title, for notifications and lists.
///
/// It starts with the state in capitals, then names the bucket and the tokens left:
/// `CRITICAL: ENTRIES_WRITE of 12345678, 3,600 of 36,000 tokens left (10 %)`.
pub fn title(event: &Event) -> String {
    let subject = title_subject(event);
    match &event.kind {
        EventKind::Raised { to, .. } => format!("{to}: {subject}"),
        EventKind::Lowered { from, to } => format!("NO LONGER {from} ({to} at worst): {subject}"),
        EventKind::Resolved { from, .. } => format!("RESOLVED (was {from}): {subject}"),
        EventKind::Reminder { .. } => format!("STILL {}: {subject}", event.severity),
        EventKind::Predicted { .. } => format!("EMPTY SOON: {subject}"),
        EventKind::ForecastOver {
            result: ForecastResult::CameTrue,
        } => format!("EMPTY AS PREDICTED: {subject}"),
        EventKind::ForecastOver {
            result: ForecastResult::Averted,
        } => format!("NO LONGER EMPTY SOON: {subject}"),
        EventKind::Stale { .. } => format!("NO DATA: {subject}"),
        EventKind::StillStale { .. } => format!("STILL NO DATA: {subject}"),
        EventKind::Fresh { .. } => format!("DATA AGAIN: {subject}"),
        EventKind::Changed(_) => format!("CHANGED: {subject}"),
        EventKind::Acknowledged { by, .. } => format!("ACKNOWLEDGED by {by}: {subject}"),
        EventKind::Unacknowledged { by, .. } => {
            format!("NO LONGER ACKNOWLEDGED, says {by}: {subject}")
        }
        EventKind::Closed { from, by, .. } => format!("CLOSED by {by} (was {from}): {subject}"),
        EventKind::Silenced { by, .. } => format!("SILENCED by {by}: {subject}"),
        EventKind::SilenceEnded { by } => format!("SILENCE ENDED by {by}: {subject}"),
        EventKind::StorageFailed { cause, .. } => {
            format!("MONITOR CANNOT STORE: {cause}")
        }
        EventKind::StorageStillFailing { since_us, cause } => {
            let since = format_time(*since_us);
            format!("MONITOR STILL CANNOT STORE since {since}: {cause}")
        }
        EventKind::StorageRecovered { .. } => "MONITOR STORES AGAIN".to_owned(),
        EventKind::Test { sink } => format!("TEST: an operator checks the sink {sink}"),
        EventKind::TestOver { sink } => format!("TEST OVER: the check of the sink {sink}"),
    }
}

/// Returns the description: what happened to which bucket, when, how many tokens are left, and what
/// to do about it.
pub fn description(event: &Event) -> String {
    let subject = subject(event);
    let left = left(event);
    let at = format_time(event.at_us);
    match &event.kind {
        EventKind::Raised { from, to } => {
            let advice = advice(*to);
            format!("{subject} went from {from} to {to} at {at}. {left} {advice}")
        }
        EventKind::Lowered { from, to } => {
            format!(
                "{subject} is no longer {from}: until {at} it has been {to} at worst, for long enough. \
                 {left}"
            )
        }
        EventKind::Resolved {
            from,
            reason: ResolveReason::Recovered,
        } => format!("{subject} recovered from {from} to NORMAL at {at}. {left}"),
        EventKind::Resolved {
            from,
            reason: ResolveReason::Vanished,
        } => format!(
            "{subject} was {from}. Its policy has not been listed any more since {at}, so the alert \
             is closed."
        ),
        EventKind::Resolved {
            from,
            reason: ResolveReason::NotConfigured,
        } => format!(
            "{subject} was {from}. It is no longer in the monitor's file as of {at}, so the alert is \
             closed; nothing is known about its level."
        ),
        EventKind::Reminder { since_us } => {
            let (severity, since) = (event.severity, format_time(*since_us));
            let advice = advice(severity);
            format!("{subject} has been {severity} since {since}. {left} {advice}")
        }
        EventKind::Predicted {
            empty_at_us,
            confidence,
        } => {
            let empty_at = format_time(*empty_at_us);
            let confidence = match confidence {
                Confidence::Low => "low",
                Confidence::Medium => "medium",
                Confidence::High => "high",
            };
            format!(
                "{subject} will be empty at {empty_at} at the current rate of consumption \
                 (confidence: {confidence}). {left} Slow down the requests under this policy to \
                 prevent that."
            )
        }
        EventKind::ForecastOver {
            result: ForecastResult::CameTrue,
        } => format!("{subject} has been empty since {at}, as predicted. {left}"),
        EventKind::ForecastOver {
            result: ForecastResult::Averted,
        } => format!("{subject} is no longer expected to be empty soon, as of {at}. {left}"),
        EventKind::Stale { newest_us, reason } => {
            let newest = format_time(*newest_us);
            let why = because(reason.as_deref());
            format!("There has been no data about {subject} since {newest}{why}. {STALE_ADVICE}")
        }
        EventKind::StillStale { newest_us, reason } => {
            let newest = format_time(*newest_us);
            let why = because(reason.as_deref());
            format!("There is still no data about {subject} since {newest}{why}. {STALE_ADVICE}")
        }
        EventKind::Fresh { newest_us } => {
            let newest = format_time(*newest_us);
            format!(
                "There has been data about {subject} again since {at}. The newest data before that \
                 was of {newest}."
            )
        }
        EventKind::Changed(change) => {
            format!(
                "Participant {}: {} (seen at {at}).",
                event.participant,
                changed(change)
            )
        }
        EventKind::Acknowledged { .. }
        | EventKind::Unacknowledged { .. }
        | EventKind::Closed { .. }
        | EventKind::Silenced { .. }
        | EventKind::SilenceEnded { .. } => by_operator(event, &subject, &left, &at),
        EventKind::StorageFailed { .. }
        | EventKind::StorageStillFailing { .. }
        | EventKind::StorageRecovered { .. } => storage(&event.kind, &at),
        EventKind::Test { sink } => format!(
            "This is a test. An operator ran `balde monitor --test-sink {sink}` at {at}. Nothing is \
             wrong, and nothing needs to be done."
        ),
        EventKind::TestOver { sink } => {
            format!("The test of the sink {sink} is over as of {at}. Nothing needs to be done.")
        }
    }
}

/// What somebody did about alerts.
fn by_operator(event: &Event, subject: &str, left: &str, at: &str) -> String {
    let place = event.kind.via().map(|via| format!(" in {}", via.name()));
    let place = place.unwrap_or_default();
    // Only a bucket has tokens.
    let left = event.policy.as_ref().map(|_| format!(" {left}"));
    let left = left.unwrap_or_default();
    match &event.kind {
        EventKind::Acknowledged { by, .. } => format!(
            "{by} acknowledged the alert{place} at {at}: {subject}.{left} There are no reminders \
             until it gets worse or is over."
        ),
        EventKind::Unacknowledged { by, .. } => format!(
            "{by} took back the acknowledgement{place} at {at}: {subject}.{left} Reminders are \
             sent again."
        ),
        EventKind::Closed { from, by, .. } => format!(
            "{by} closed the alert{place} at {at}: {subject}, which was {from}.{left} If its cause \
             is still there, the next check raises a new alert."
        ),
        EventKind::Silenced {
            by,
            until_us,
            up_to,
        } => {
            let until = format_time(*until_us);
            format!("{by} silenced alerts up to {up_to} until {until}: {subject}.")
        }
        EventKind::SilenceEnded { by } => format!("{by} ended the silence at {at}: {subject}."),
        _ => String::new(),
    }
}

/// What the monitor says about its own database.
fn storage(kind: &EventKind, at: &str) -> String {
    match kind {
        EventKind::StorageFailed { since_us, cause } => {
            let since = format_time(*since_us);
            format!(
                "The monitor has not been able to store anything since {since}: {cause}. \
                 {WITHOUT_STORAGE} {STORAGE_ADVICE}"
            )
        }
        EventKind::StorageStillFailing { since_us, cause } => {
            let since = format_time(*since_us);
            format!(
                "The monitor still cannot store anything, since {since}: {cause}. \
                 {WITHOUT_STORAGE} {STORAGE_ADVICE}"
            )
        }
        EventKind::StorageRecovered { since_us } => {
            let since = format_time(*since_us);
            format!("The monitor stores again as of {at}. It could not since {since}.")
        }
        _ => String::new(),
    }
}

const STORAGE_ADVICE: &str = "A restart would lose what is in memory. Make the database writable; the \
     monitor recovers by itself.";

const STALE_ADVICE: &str = "Its buckets are not monitored until there is. Check the monitor's log for \
     failed polls, and the connection to DICT or the gateway.";

/// The error of the newest poll. It may come from the server that is polled.
fn because(reason: Option<&str>) -> String {
    const CHARS_MAX: usize = 200;
    let Some(reason) = reason else {
        return String::new();
    };
    let reason: String = reason
        .chars()
        .filter(|c| !c.is_control())
        .take(CHARS_MAX)
        .collect();
    format!(" ({})", reason.trim_end_matches('.'))
}

/// What to do about a bucket of some severity.
const fn advice(severity: Severity) -> &'static str {
    match severity {
        Severity::Normal => "Nothing needs to be done.",
        Severity::Warning => "Check what consumes it.",
        Severity::Critical => "Slow down the requests under this policy.",
        Severity::Exhausted => {
            "Requests under this policy are rejected until it refills. Stop those that can wait."
        }
    }
}

/// Returns the severity after the event: the one it was raised or lowered to, and NORMAL when it is
/// over. [`Event::severity`] is the one by which the event is routed.
pub fn current_severity(event: &Event) -> Severity {
    match &event.kind {
        EventKind::Raised { to, .. } | EventKind::Lowered { to, .. } => *to,
        kind if kind.is_end() => Severity::Normal,
        _ => event.severity,
    }
}

/// Formats a time for people, to the second: `2026-11-15 10:00:00 UTC`.
pub fn format_time(at_us: u64) -> String {
    let text = timestamp(at_us).strftime("%Y-%m-%d %H:%M:%S UTC");
    text.to_string()
}

/// Formats a time for programs (RFC 3339), to the microsecond.
pub(crate) fn rfc3339(at_us: u64) -> String {
    format!("{:.6}", timestamp(at_us))
}

/// Formats a number with a comma between groups of three digits.
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

/// Formats level, capacity and share: `3,600 of 36,000 (10 %)`.
pub(crate) fn tokens(event: &Event) -> Option<String> {
    let (count, percent) = counted(event)?;
    Some(format!("{count}{percent}"))
}

/// Returns `3,600 of 36,000` and ` (10 %)`. The second is empty for a bucket without capacity.
fn counted(event: &Event) -> Option<(String, String)> {
    let level = event.level?;
    let Some(capacity) = event.capacity else {
        return Some((signed(level), String::new()));
    };
    let percent = percent(level, capacity).map(|percent| format!(" ({percent} %)"));
    let count = format!("{} of {}", signed(level), grouped(capacity));
    Some((count, percent.unwrap_or_default()))
}

/// Names the bucket and its state, for a title.
fn title_subject(event: &Event) -> String {
    let who = match &event.policy {
        Some(policy) => format!("{policy} of {}", event.participant),
        None if is_of_all(event) => "every participant".to_owned(),
        None if event.participant == MONITOR => "the monitor's database".to_owned(),
        None => format!("participant {}", event.participant),
    };
    let left = counted(event)
        .map(|(count, percent)| format!(", {count} tokens left{percent}"))
        .unwrap_or_default();
    match &event.kind {
        EventKind::Changed(change) => format!("{who}, {}", changed(change)),
        EventKind::Resolved {
            reason: ResolveReason::Vanished,
            ..
        } => format!("{who} is no longer listed"),
        EventKind::Resolved {
            reason: ResolveReason::NotConfigured,
            ..
        } => format!("{who} is no longer monitored"),
        EventKind::Predicted { empty_at_us, .. } => {
            format!("{who} at {}{left}", format_time(*empty_at_us))
        }
        EventKind::Stale { newest_us, reason } | EventKind::StillStale { newest_us, reason } => {
            let why = because(reason.as_deref());
            format!("{who} since {}{why}", format_time(*newest_us))
        }
        _ => format!("{who}{left}"),
    }
}

/// Names the bucket, for the description.
fn subject(event: &Event) -> String {
    match &event.policy {
        Some(policy) if is_of_all(event) => format!("Bucket {policy} of every participant"),
        Some(policy) => format!("Bucket {policy} of participant {}", event.participant),
        None if is_of_all(event) => "every participant".to_owned(),
        None if event.participant == MONITOR => "the monitor's database".to_owned(),
        None => format!("participant {}", event.participant),
    }
}

/// Whether a silence is limited to no participant.
fn is_of_all(event: &Event) -> bool {
    let is_silence = matches!(
        event.kind,
        EventKind::Silenced { .. } | EventKind::SilenceEnded { .. }
    );
    is_silence && event.participant == MONITOR
}

/// How many tokens are left, as a sentence.
fn left(event: &Event) -> String {
    let left = match (event.level, event.capacity, counted(event)) {
        (Some(level @ ..0), Some(capacity), _) => format!(
            "It is {} tokens in debt (capacity {}).",
            grouped(level.unsigned_abs()),
            grouped(capacity)
        ),
        (_, _, Some((count, percent))) => format!("{count} tokens are left{percent}."),
        _ => "The number of tokens left is unknown.".to_owned(),
    };
    match recovery(event) {
        Some(time) => format!("{left} Without further requests it is full again in {time}."),
        None => left,
    }
}

/// The recovery time in whole units, rounded up; `None` if it is not known or the bucket is full.
pub(crate) fn recovery(event: &Event) -> Option<String> {
    const SECOND_US: u64 = 1_000_000;
    let seconds = event.recovery_us?.div_ceil(SECOND_US);
    match seconds {
        0 => None,
        1..120 => Some(format!("{seconds} s")),
        120..7_200 => Some(format!("{} min", seconds.div_ceil(60))),
        _ => Some(format!("{} h", seconds.div_ceil(3_600))),
    }
}

fn changed(change: &Change) -> String {
    match change {
        Change::Category { from, to } => format!("its category changed from {from} to {to}"),
        Change::Capacity { policy, from, to } => format!(
            "the capacity of {policy} changed from {} to {} tokens",
            grouped(*from),
            grouped(*to)
        ),
        Change::Refill { policy, from, to } => format!(
            "the refill of {policy} changed from {} to {}",
            rate(*from),
            rate(*to)
        ),
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

/// Returns the share of capacity in whole percent, rounded down: never more than is left.
fn percent(level: i64, capacity: u64) -> Option<i128> {
    if capacity == 0 {
        return None;
    }
    Some((i128::from(level) * 100).div_euclid(i128::from(capacity)))
}

/// A time after the last one of the calendar becomes the last one.
fn timestamp(at_us: u64) -> Timestamp {
    let at_us = i64::try_from(at_us).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(at_us).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
