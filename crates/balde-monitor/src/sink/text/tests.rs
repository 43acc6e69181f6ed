//! Every text, word for word.

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
        recovery_us: None,
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
fn events_about_levels_have_complete_texts() {
    use Severity::{Critical, Exhausted, Normal, Warning};
    let ten_to = TEN_US - 600_000_000;
    let raised = |from, to| EventKind::Raised { from, to };
    for (event, expected_title, expected_text) in [
        (
            event(raised(Normal, Warning), Warning, 9_000),
            "WARNING: ENTRIES_WRITE of 12345678, 9,000 of 36,000 tokens left (25 %)",
            "Bucket ENTRIES_WRITE of participant 12345678 went from NORMAL to WARNING at \
             2026-11-15 10:00:00 UTC. 9,000 of 36,000 tokens are left (25 %). Check what consumes \
             it.",
        ),
        (
            event(raised(Critical, Exhausted), Exhausted, -120),
            "EXHAUSTED: ENTRIES_WRITE of 12345678, -120 of 36,000 tokens left (-1 %)",
            "Bucket ENTRIES_WRITE of participant 12345678 went from CRITICAL to EXHAUSTED at \
             2026-11-15 10:00:00 UTC. It is 120 tokens in debt (capacity 36,000). Requests under \
             this policy are rejected until it refills. Stop those that can wait.",
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
            "NO LONGER EXHAUSTED (CRITICAL at worst): ENTRIES_WRITE of 12345678, 2,000 of 36,000 \
             tokens left (5 %)",
            "Bucket ENTRIES_WRITE of participant 12345678 is no longer EXHAUSTED: until \
             2026-11-15 10:00:00 UTC it has been CRITICAL at worst, for long enough. 2,000 of \
             36,000 tokens are left (5 %).",
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
            "RESOLVED (was WARNING): ENTRIES_WRITE of 12345678, 36,000 of 36,000 tokens left \
             (100 %)",
            "Bucket ENTRIES_WRITE of participant 12345678 recovered from WARNING to NORMAL at \
             2026-11-15 10:00:00 UTC. 36,000 of 36,000 tokens are left (100 %).",
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
            "RESOLVED (was WARNING): ENTRIES_WRITE of 12345678 is no longer listed",
            "Bucket ENTRIES_WRITE of participant 12345678 was WARNING. Its policy has not been \
             listed any more since 2026-11-15 10:00:00 UTC, so the alert is closed.",
        ),
        (
            event(EventKind::Reminder { since_us: ten_to }, Critical, 3_600),
            "STILL CRITICAL: ENTRIES_WRITE of 12345678, 3,600 of 36,000 tokens left (10 %)",
            "Bucket ENTRIES_WRITE of participant 12345678 has been CRITICAL since \
             2026-11-15 09:50:00 UTC. 3,600 of 36,000 tokens are left (10 %). Slow down the \
             requests under this policy.",
        ),
    ] {
        assert_eq!(title(&event), expected_title);
        assert_eq!(description(&event), expected_text);
    }
}

#[test]
fn forecasts_stale_data_and_changes_have_complete_texts() {
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
            "EMPTY SOON: ENTRIES_WRITE of 12345678 at 2026-11-15 10:04:00 UTC, 12,000 of 36,000 \
             tokens left (33 %)",
            "Bucket ENTRIES_WRITE of participant 12345678 will be empty at \
             2026-11-15 10:04:00 UTC at the current rate of consumption (confidence: high). \
             12,000 of 36,000 tokens are left (33 %). Slow down the requests under this policy to \
             prevent that.",
        ),
        (
            event(
                EventKind::ForecastOver {
                    result: ForecastResult::Averted,
                },
                Warning,
                12_000,
            ),
            "NO LONGER EMPTY SOON: ENTRIES_WRITE of 12345678, 12,000 of 36,000 tokens left \
             (33 %)",
            "Bucket ENTRIES_WRITE of participant 12345678 is no longer expected to be empty soon, \
             as of 2026-11-15 10:00:00 UTC. 12,000 of 36,000 tokens are left (33 %).",
        ),
        (
            event(
                EventKind::ForecastOver {
                    result: ForecastResult::CameTrue,
                },
                Warning,
                0,
            ),
            "EMPTY AS PREDICTED: ENTRIES_WRITE of 12345678, 0 of 36,000 tokens left (0 %)",
            "Bucket ENTRIES_WRITE of participant 12345678 has been empty since \
             2026-11-15 10:00:00 UTC, as predicted. 0 of 36,000 tokens are left (0 %).",
        ),
        (
            participant_event(EventKind::Stale {
                newest_us: ten_to,
                reason: Some("DICT does not accept this participant (403).".to_owned()),
            }),
            "NO DATA: participant 12345678 since 2026-11-15 09:50:00 UTC (DICT does not accept this \
             participant (403))",
            "There has been no data about participant 12345678 since 2026-11-15 09:50:00 UTC (DICT \
             does not accept this participant (403)). Its buckets are not monitored until there is. Check the monitor's log for failed polls, \
             and the connection to DICT or the gateway.",
        ),
        (
            participant_event(EventKind::StillStale {
                newest_us: ten_to,
                reason: None,
            }),
            "STILL NO DATA: participant 12345678 since 2026-11-15 09:50:00 UTC",
            "There is still no data about participant 12345678 since 2026-11-15 09:50:00 UTC. Its \
             buckets are not monitored until there is. Check the monitor's log for failed polls, \
             and the connection to DICT or the gateway.",
        ),
        (
            participant_event(EventKind::Fresh { newest_us: ten_to }),
            "DATA AGAIN: participant 12345678",
            "There has been data about participant 12345678 again since 2026-11-15 10:00:00 UTC. \
             The newest data before that was of 2026-11-15 09:50:00 UTC.",
        ),
        (
            participant_event(EventKind::Changed(Change::Refill {
                policy: "X".to_owned(),
                from: (1_200, 60_000_000),
                to: (10, 1_500_000),
            })),
            "CHANGED: participant 12345678, the refill of X changed from 1,200 tokens every 60 s \
             to 10 tokens every 1500000 µs",
            "Participant 12345678: the refill of X changed from 1,200 tokens every 60 s to 10 \
             tokens every 1500000 µs (seen at 2026-11-15 10:00:00 UTC).",
        ),
    ] {
        assert_eq!(title(&event), expected_title);
        assert_eq!(description(&event), expected_text);
    }
}

#[test]
fn numbers_are_grouped_and_times_after_the_calendar_are_its_end() {
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

/// An event of every kind.
fn every_kind() -> Vec<Event> {
    use Severity::{Critical, Exhausted, Normal, Warning};
    let since_us = TEN_US - 600_000_000;
    let newest_us = since_us;
    let resolved = |reason| EventKind::Resolved {
        from: Warning,
        reason,
    };
    let over = |result| EventKind::ForecastOver { result };
    let policy = || "X".to_owned();
    let change = |change| participant_event(EventKind::Changed(change));
    vec![
        event(
            EventKind::Raised {
                from: Normal,
                to: Warning,
            },
            Warning,
            9_000,
        ),
        event(
            EventKind::Raised {
                from: Critical,
                to: Exhausted,
            },
            Exhausted,
            -120,
        ),
        event(
            EventKind::Lowered {
                from: Exhausted,
                to: Critical,
            },
            Exhausted,
            2_000,
        ),
        event(resolved(ResolveReason::Recovered), Critical, 36_000),
        event(resolved(ResolveReason::Vanished), Critical, 1),
        event(resolved(ResolveReason::NotConfigured), Critical, 1),
        event(EventKind::Reminder { since_us }, Critical, 3_600),
        event(
            EventKind::Predicted {
                empty_at_us: TEN_US,
                confidence: Confidence::High,
            },
            Warning,
            12_000,
        ),
        event(over(ForecastResult::CameTrue), Warning, 0),
        event(over(ForecastResult::Averted), Warning, 12_000),
        participant_event(EventKind::Stale {
            newest_us,
            reason: None,
        }),
        participant_event(EventKind::StillStale {
            newest_us,
            reason: Some("403".to_owned()),
        }),
        participant_event(EventKind::Fresh { newest_us }),
        change(Change::Category {
            from: "F".to_owned(),
            to: "E".to_owned(),
        }),
        change(Change::Capacity {
            policy: policy(),
            from: 1_000,
            to: 2_000,
        }),
        change(Change::Refill {
            policy: policy(),
            from: (1_200, 60_000_000),
            to: (10, 1_500_000),
        }),
        change(Change::PolicyAdded { policy: policy() }),
        change(Change::PolicyRemoved { policy: policy() }),
        participant_event(EventKind::StorageFailed {
            since_us,
            cause: "disk full".to_owned(),
        }),
        participant_event(EventKind::StorageStillFailing {
            since_us,
            cause: "disk full".to_owned(),
        }),
        participant_event(EventKind::StorageRecovered { since_us }),
    ]
}

#[test]
fn portuguese_texts_are_complete_and_share_nothing_with_the_english_ones() {
    let wording = Wording::new(Language::Portuguese);
    let raised = &every_kind()[1];
    assert_eq!(
        wording.title(raised),
        "EXHAUSTED: ENTRIES_WRITE de 12345678, restam -120 de 36.000 fichas (-1 %)"
    );
    assert_eq!(
        wording.description(raised),
        "O balde ENTRIES_WRITE do participante 12345678 passou de CRITICAL para EXHAUSTED em \
         15/11/2026 10:00:00 UTC. Está 120 fichas em dívida (capacidade 36.000). Requisições desta \
         política são rejeitadas até que haja fichas. Pare as que podem esperar."
    );
    for event in every_kind() {
        let texts = [wording.title(&event), wording.description(&event)];
        for text in texts {
            let words = text.split(|c: char| !c.is_alphabetic());
            for word in words {
                let english = [
                    "the", "of", "is", "since", "tokens", "left", "bucket", "at", "has",
                ];
                assert!(!english.contains(&word.to_lowercase().as_str()), "{text}");
            }
            assert!(!text.contains("  ") && !text.contains('{'), "{text}");
        }
    }
}

#[test]
fn every_alert_has_its_section_in_both_runbooks() {
    let pages = [
        (
            Wording::default(),
            include_str!("../../../../../docs/runbook.md"),
        ),
        (
            Wording::new(Language::Portuguese),
            include_str!("../../../../../docs/pt-BR/runbook.md"),
        ),
    ];
    for (wording, page) in pages {
        let headings: Vec<String> = page
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .map(str::to_lowercase)
            .collect();
        for event in every_kind() {
            let place = wording.runbook(&event);
            let (_, anchor) = place.split_once('#').unwrap();
            assert!(headings.iter().any(|heading| heading == anchor), "{place}");
        }
    }
    let wording = Wording::default().runbook_url("https://example.com/runbook.html");
    assert_eq!(
        wording.runbook(&every_kind()[0]),
        "https://example.com/runbook.html#dictbucketwarning"
    );
}

#[test]
fn the_dashboard_says_the_same_about_what_works_without_storage() {
    let texts = include_str!("../../../dashboard/texts.js");
    for sentence in [WITHOUT_STORAGE, portuguese::WITHOUT_STORAGE] {
        assert!(texts.contains(sentence), "{sentence}");
    }
}

#[test]
fn an_alert_says_when_the_bucket_is_full_again() {
    let kind = EventKind::Raised {
        from: Severity::Critical,
        to: Severity::Exhausted,
    };
    let mut event = event(kind, Severity::Exhausted, 0);
    // 36,000 tokens at 1,200 a minute, as the source document computes it.
    event.recovery_us = Some(1_800_000_000);
    let english = Wording::default().description(&event);
    assert!(
        english.contains("Without further requests it is full again in 30 min."),
        "{english}"
    );
    let portuguese = Wording::new(Language::Portuguese).description(&event);
    assert!(
        portuguese.contains("Sem novas requisições, volta a ficar cheio em 30 min."),
        "{portuguese}"
    );
    for (us, text) in [
        (1, Some("1 s")),
        (119_000_000, Some("119 s")),
        (120_000_001, Some("3 min")),
        (7_200_000_000, Some("2 h")),
        (0, None),
    ] {
        event.recovery_us = Some(us);
        assert_eq!(recovery(&event).as_deref(), text, "{us}");
    }
    event.recovery_us = None;
    assert_eq!(recovery(&event), None);
}
