//! What people read, word for word.

use super::*;

/// 2026-11-15 10:00:00 UTC.
pub(crate) const TEN_US: u64 = 1_794_736_800_000_000;

pub(crate) fn event(kind: EventKind, severity: Severity, level: i64) -> Event {
    Event {
        key: format!("12345678/ENTRIES_WRITE/7/3/{}", kind.label()),
        episode: "12345678/ENTRIES_WRITE/7/level-2".to_owned(),
        participant: "12345678".to_owned(),
        policy: Some("ENTRIES_WRITE".to_owned()),
        at_us: TEN_US,
        kind,
        severity,
        level: Some(level),
        capacity: Some(36_000),
        silenced_by: None,
    }
}

pub(crate) fn participant_event(kind: EventKind) -> Event {
    Event {
        policy: None,
        level: None,
        capacity: None,
        ..event(kind, Severity::Critical, 0)
    }
}

#[test]
fn what_a_level_does_is_told_in_full() {
    use Severity::{Critical, Exhausted, Normal, Warning};
    let ten_to = TEN_US - 600_000_000;
    let raised = |from, to| EventKind::Raised { from, to };
    for (event, expected_title, expected_text) in [
        (
            event(raised(Normal, Warning), Warning, 9_000),
            "WARNING: 12345678 ENTRIES_WRITE, 9,000 of 36,000 (25 %) tokens left",
            "ENTRIES_WRITE of participant 12345678 went from NORMAL to WARNING at \
             2026-11-15 10:00:00 UTC. 9,000 of 36,000 (25 %) tokens are left.",
        ),
        (
            event(raised(Critical, Exhausted), Exhausted, -120),
            "EXHAUSTED: 12345678 ENTRIES_WRITE, -120 of 36,000 (-1 %) tokens left",
            "ENTRIES_WRITE of participant 12345678 went from CRITICAL to EXHAUSTED at \
             2026-11-15 10:00:00 UTC. It is 120 tokens in debt: -120 of 36,000 (-1 %) tokens \
             are left.",
        ),
        (
            event(
                EventKind::Lowered {
                    from: Exhausted,
                    to: Critical,
                },
                Exhausted,
                2_000,
            ),
            "CRITICAL, was EXHAUSTED: 12345678 ENTRIES_WRITE, 2,000 of 36,000 (5 %) tokens \
             left",
            "ENTRIES_WRITE of participant 12345678 got better, from EXHAUSTED to CRITICAL, at \
             2026-11-15 10:00:00 UTC. 2,000 of 36,000 (5 %) tokens are left.",
        ),
        (
            event(
                EventKind::Resolved {
                    from: Warning,
                    reason: ResolveReason::Recovered,
                },
                Critical,
                36_000,
            ),
            "RESOLVED, was WARNING: 12345678 ENTRIES_WRITE, 36,000 of 36,000 (100 %) tokens \
             left",
            "ENTRIES_WRITE of participant 12345678 is back to NORMAL from WARNING since \
             2026-11-15 10:00:00 UTC. 36,000 of 36,000 (100 %) tokens are left.",
        ),
        (
            event(
                EventKind::Resolved {
                    from: Warning,
                    reason: ResolveReason::Vanished,
                },
                Critical,
                1,
            ),
            "RESOLVED, was WARNING: 12345678 ENTRIES_WRITE is no longer listed",
            "ENTRIES_WRITE of participant 12345678 was WARNING and is no longer listed since \
             2026-11-15 10:00:00 UTC.",
        ),
        (
            event(EventKind::Reminder { since_us: ten_to }, Critical, 3_600),
            "STILL CRITICAL: 12345678 ENTRIES_WRITE, 3,600 of 36,000 (10 %) tokens left",
            "ENTRIES_WRITE of participant 12345678 is CRITICAL since 2026-11-15 09:50:00 UTC. \
             3,600 of 36,000 (10 %) tokens are left.",
        ),
    ] {
        assert_eq!(title(&event), expected_title);
        assert_eq!(description(&event), expected_text);
    }
}

#[test]
fn forecasts_missing_data_and_changes_are_told_in_full() {
    use Severity::Warning;
    let ten_to = TEN_US - 600_000_000;
    for (event, expected_title, expected_text) in [
        (
            event(
                EventKind::Predicted {
                    empty_at_us: TEN_US + 240_000_000,
                    confidence: Confidence::High,
                },
                Warning,
                12_000,
            ),
            "WILL BE EMPTY: 12345678 ENTRIES_WRITE at 2026-11-15 10:04:00 UTC, 12,000 of \
             36,000 (33 %) tokens left",
            "ENTRIES_WRITE of participant 12345678 will be empty at 2026-11-15 10:04:00 UTC \
             at the present rate (confidence: high). 12,000 of 36,000 (33 %) tokens are left.",
        ),
        (
            event(
                EventKind::ForecastOver {
                    result: ForecastResult::Averted,
                },
                Warning,
                12_000,
            ),
            "NO LONGER ABOUT TO BE EMPTY: 12345678 ENTRIES_WRITE, 12,000 of 36,000 (33 %) \
             tokens left",
            "ENTRIES_WRITE of participant 12345678 is no longer about to be empty since \
             2026-11-15 10:00:00 UTC. 12,000 of 36,000 (33 %) tokens are left.",
        ),
        (
            event(
                EventKind::ForecastOver {
                    result: ForecastResult::CameTrue,
                },
                Warning,
                0,
            ),
            "EMPTY AS PREDICTED: 12345678 ENTRIES_WRITE, 0 of 36,000 (0 %) tokens left",
            "ENTRIES_WRITE of participant 12345678 is empty, as was predicted, since \
             2026-11-15 10:00:00 UTC. 0 of 36,000 (0 %) tokens are left.",
        ),
        (
            participant_event(EventKind::Stale { newest_us: ten_to }),
            "NO DATA: participant 12345678 since 2026-11-15 09:50:00 UTC",
            "Nothing was heard about participant 12345678 since 2026-11-15 09:50:00 UTC: its \
             buckets are not watched.",
        ),
        (
            participant_event(EventKind::StillStale { newest_us: ten_to }),
            "STILL NO DATA: participant 12345678 since 2026-11-15 09:50:00 UTC",
            "Still nothing was heard about participant 12345678 since 2026-11-15 09:50:00 UTC: \
             its buckets are not watched.",
        ),
        (
            participant_event(EventKind::Fresh { newest_us: ten_to }),
            "DATA AGAIN: participant 12345678",
            "There is news about participant 12345678 again since 2026-11-15 10:00:00 UTC; \
             there was none since 2026-11-15 09:50:00 UTC.",
        ),
        (
            participant_event(EventKind::Changed(Change::Refill {
                policy: "X".to_owned(),
                from: (1_200, 60_000_000),
                to: (10, 1_500_000),
            })),
            "CHANGED: participant 12345678, refill of X from 1,200 tokens every 60 s to 10 \
             tokens every 1500000 µs",
            "participant 12345678: refill of X from 1,200 tokens every 60 s to 10 tokens every \
             1500000 µs, seen at 2026-11-15 10:00:00 UTC.",
        ),
    ] {
        assert_eq!(title(&event), expected_title);
        assert_eq!(description(&event), expected_text);
    }
}

#[test]
fn numbers_are_grouped_and_moments_beyond_the_calendar_are_its_end() {
    for (number, text) in [
        (0, "0"),
        (999, "999"),
        (1_000, "1,000"),
        (123_456, "123,456"),
        (u64::MAX, "18,446,744,073,709,551,615"),
    ] {
        assert_eq!(grouped(number), text);
    }
    assert_eq!(rfc3339(TEN_US + 1), "2026-11-15T10:00:00.000001Z");
    assert!(
        format_time(u64::MAX).starts_with("9999-12-30"),
        "{}",
        format_time(u64::MAX)
    );
    let blocked = Event {
        capacity: Some(0),
        ..event(EventKind::Reminder { since_us: 0 }, Severity::Exhausted, 0)
    };
    assert_eq!(tokens(&blocked).as_deref(), Some("0 of 0"));
}
