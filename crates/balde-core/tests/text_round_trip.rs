//! Limits as text: every limit is written so that it reads back as itself, and no text, however
//! mangled, does worse than be refused.

use std::time::Duration;

use balde_core::{DEBT_DEFAULT, EXACT_MAX, Limit, PERIOD_MAX_US};
use proptest::prelude::*;

const TEXTS: [&str; 8] = [
    "10/s",
    "1_200/min burst 36_000 stepwise",
    "1 per 97 days",
    "0.333333333/s burst 3 empty debt 1",
    "100/min window debt 5",
    "2/min burst 100 stepwise empty debt 300",
    "7/3µs capacity 9 continuous full",
    "18446744073709551615/4503599627370496us burst 99999999999999999999",
];

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 5_000,
        failure_persistence: Some(Box::new(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        )),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_limit_reads_back_as_itself(limit in limits()) {
        let text = limit.to_string();
        prop_assert_eq!(text.parse::<Limit>(), Ok(limit), "{}", text);
    }

    #[test]
    fn what_reads_at_all_reads_back_as_itself(text in mangled()) {
        if let Ok(limit) = text.parse::<Limit>() {
            prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit), "{}", text);
        }
    }

    #[test]
    fn no_text_panics_and_every_refusal_names_a_column_within_it(
        text in prop_oneof![mangled(), any::<String>(), "[0-9_./ a-zµ]{0,40}", "\\PC{0,300}"]
    ) {
        if let Err(error) = text.parse::<Limit>() {
            prop_assert!((1..=text.chars().count() + 1).contains(&error.column()));
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn a_column_counts_characters_and_not_bytes() {
    let error = "10/µs please".parse::<Limit>().unwrap_err();
    assert_eq!(error.column(), 7, "{error}");
}

fn limits() -> impl Strategy<Value = Limit> {
    let size = || prop_oneof![1..=5_u64, 1..=10_000_u64, 1..=EXACT_MAX];
    let unit_us = prop::sample::select(vec![
        1,
        1_000,
        1_000_000,
        60_000_000,
        3_600_000_000,
        86_400_000_000,
        604_800_000_000,
    ]);
    let period = prop_oneof![
        (1..=100_u64, unit_us).prop_map(|(count, unit_us)| count * unit_us),
        1..=PERIOD_MAX_US,
    ];
    let debt = prop_oneof![
        2 => Just(None),
        2 => (0..=10_u64).prop_map(Some),
        1 => Just(Some(DEBT_DEFAULT)),
        1 => (0..=EXACT_MAX).prop_map(Some),
    ];
    let shape = (any::<bool>(), any::<bool>(), any::<bool>());
    (size(), period, prop::option::of(size()), debt, shape).prop_filter_map(
        "is a limit",
        |(tokens, period_us, capacity, debt, (is_window, is_stepwise, is_empty))| {
            let period = Duration::from_micros(period_us);
            let mut limit = if is_window {
                Limit::window(tokens, period).ok()?
            } else {
                Limit::bucket(tokens, period).ok()?
            };
            if let Some(capacity) = capacity {
                limit = limit.with_capacity(capacity).unwrap_or(limit);
            }
            if let Some(debt) = debt {
                limit = limit.with_debt_max(debt).unwrap_or(limit);
            }
            if is_stepwise {
                limit = limit.stepwise();
            }
            if is_empty {
                limit = limit.starting_empty().unwrap_or(limit);
            }
            Some(limit)
        },
    )
}

/// A text that was a limit before a few characters were lost, doubled or replaced.
fn mangled() -> impl Strategy<Value = String> {
    let wound = (any::<prop::sample::Index>(), 0..3_u8, any::<char>());
    let near = prop::sample::select("0159_./ swµburst".chars().collect::<Vec<_>>());
    let wounds = prop::collection::vec((wound, near, any::<bool>()), 0..4);
    (prop::sample::select(TEXTS.to_vec()), wounds).prop_map(|(text, wounds)| {
        let mut chars: Vec<char> = text.chars().collect();
        for ((place, kind, far), near, is_near) in wounds {
            if chars.is_empty() {
                break;
            }
            let at = place.index(chars.len());
            let other = if is_near { near } else { far };
            match kind {
                0 => drop(chars.remove(at)),
                1 => chars.insert(at, other),
                _ => chars[at] = other,
            }
        }
        chars.into_iter().collect()
    })
}
