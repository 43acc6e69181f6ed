//! The examples that the documents give, as they give them.

use balde_core::{Command, Decision, Limit, State, Wait};

const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;

/// A moment that no period in these examples divides, as moments are; and one that all do.
const MOMENTS_US: [u64; 2] = [
    1_760_000_123_456_789,
    1_760_000_100_000_000 / MINUTE_US * MINUTE_US,
];

fn limit(text: &str) -> Limit {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// One key under one limit, and the state a store would keep for it.
struct Key {
    limit: Limit,
    state: Option<State>,
}

impl Key {
    fn new(text: &str) -> Self {
        Self {
            limit: limit(text),
            state: None,
        }
    }

    fn run(&mut self, command: Command, now_us: u64) -> Decision {
        let decision = self.limit.apply(self.state, command, now_us);
        self.state = decision.state();
        decision
    }

    fn take(&mut self, n: u64, now_us: u64) -> Decision {
        self.run(Command::Take { n }, now_us)
    }

    fn level(&mut self, now_us: u64) -> i64 {
        self.run(Command::Peek, now_us).level()
    }
}

#[test]
fn of_101_requests_at_once_the_last_is_refused_with_a_wait_of_a_tenth_of_a_second() {
    for now_us in MOMENTS_US {
        let mut key = Key::new("10/s burst 100");
        for request in 1..=100 {
            let decision = key.take(1, now_us);
            assert!(decision.is_allowed(), "request {request}");
            assert_eq!(decision.remaining(), 100 - request);
            assert_eq!(decision.wait(), Wait::None);
        }
        let refused = key.take(1, now_us);
        assert!(!refused.is_allowed());
        assert_eq!(refused.retry_after_us(), Some(100_000));
        assert_eq!(refused.remaining(), 0);
        assert_eq!(refused.full_after_us(), 10 * SECOND_US);

        assert_eq!(key.level(now_us + 5 * SECOND_US), 50);
        assert!(!key.take(51, now_us + 5 * SECOND_US).is_allowed());
        assert!(key.take(50, now_us + 5 * SECOND_US).is_allowed());
    }
}

#[test]
fn more_than_the_bucket_holds_is_never_and_not_later() {
    let mut key = Key::new("10/s burst 100");
    assert_eq!(key.take(101, 0).wait(), Wait::Never);
    assert_eq!(key.take(101, 0).retry_after_us(), None);
    assert!(key.take(100, 0).is_allowed());
}

#[test]
fn a_bucket_of_36000_at_34000_gains_1200_a_minute_and_discards_the_last_400() {
    let start_us = MOMENTS_US[1];
    let mut key = Key::new("1200/min burst 36000 stepwise");
    key.run(Command::SetLevel { level: 34_000 }, start_us);

    assert_eq!(key.level(start_us + MINUTE_US - 1), 34_000);
    assert_eq!(key.level(start_us + MINUTE_US), 35_200);
    assert_eq!(key.level(start_us + 2 * MINUTE_US - 1), 35_200);
    assert_eq!(key.level(start_us + 2 * MINUTE_US), 36_000);
    assert_eq!(key.state, None, "a full bucket leaves nothing behind");
    assert_eq!(key.level(start_us + 3 * MINUTE_US), 36_000);

    // The 400 that did not fit are gone: they do not come back when there is room.
    assert!(key.take(1_200, start_us + 3 * MINUTE_US).is_allowed());
    assert_eq!(key.level(start_us + 4 * MINUTE_US - 1), 34_800);
    assert_eq!(key.level(start_us + 4 * MINUTE_US), 36_000);
}

#[test]
fn a_burst_that_empties_36000_recovers_in_exactly_thirty_minutes() {
    for text in ["1200/min burst 36000", "1200/min burst 36000 stepwise"] {
        let start_us = MOMENTS_US[1];
        let mut key = Key::new(text);
        let burst = key.take(36_000, start_us);
        assert!(burst.is_allowed());
        assert_eq!(burst.full_after_us(), 30 * MINUTE_US, "{text}");
        assert_eq!(key.limit.fill_us(), 30 * MINUTE_US, "{text}");

        let full_us = start_us + 30 * MINUTE_US;
        assert_eq!(
            key.take(36_000, start_us).retry_after_us(),
            Some(30 * MINUTE_US)
        );
        assert!(!key.take(36_000, full_us - 1).is_allowed(), "{text}");
        assert!(key.take(36_000, full_us).is_allowed(), "{text}");
    }
}

#[test]
fn five_tokens_charged_twenty_are_a_debt_of_fifteen_and_480_seconds() {
    for text in ["2/min burst 100", "2/min burst 100 stepwise"] {
        let start_us = MOMENTS_US[1];
        let mut key = Key::new(text);
        key.run(Command::SetLevel { level: 5 }, start_us);
        let charged = key.run(Command::Charge { n: 20 }, start_us);
        assert!(charged.is_allowed(), "what has happened has happened");
        assert_eq!((charged.level_before(), charged.level()), (5, -15));
        assert_eq!((charged.remaining(), charged.moved()), (0, 20));

        let refused = key.take(1, start_us);
        assert_eq!(refused.retry_after_us(), Some(480 * SECOND_US), "{text}");
        let again_us = start_us + 480 * SECOND_US;
        assert!(!key.take(1, again_us - 1).is_allowed(), "{text}");
        assert!(key.take(1, again_us).is_allowed(), "{text}");
        assert_eq!(key.level(again_us), 0);
    }
}

#[test]
fn debt_stops_at_the_largest_debt() {
    let mut key = Key::new("2/min burst 100 debt 300");
    let charged = key.run(Command::Charge { n: 1_000 }, 0);
    assert_eq!((charged.level(), charged.moved()), (-300, 400));
    assert_eq!(key.take(1, 0).retry_after_us(), Some(301 * 30 * SECOND_US));
}

#[test]
fn a_fixed_window_counts_from_a_keys_first_request() {
    for start_us in MOMENTS_US {
        let mut key = Key::new("3/min window");
        // The first request comes whenever it comes, and not on the minute.
        let first_us = start_us + 17 * SECOND_US;
        assert_eq!(key.level(start_us), 3, "a peek opens no window");
        assert_eq!(key.take(1, first_us).full_after_us(), MINUTE_US);
        assert!(key.take(1, first_us + 1).is_allowed());
        assert!(key.take(1, first_us + 59 * SECOND_US).is_allowed());

        let refused = key.take(1, first_us + 59 * SECOND_US);
        assert_eq!(refused.retry_after_us(), Some(SECOND_US));
        assert!(!key.take(1, first_us + MINUTE_US - 1).is_allowed());

        let next = key.take(1, first_us + MINUTE_US);
        assert_eq!((next.is_allowed(), next.remaining()), (true, 2));
        assert_eq!(next.full_after_us(), MINUTE_US);
    }
}

#[test]
fn a_bucket_that_starts_empty_fills_from_its_first_touch() {
    let start_us = MOMENTS_US[0];
    let mut key = Key::new("10/s burst 100 empty");
    assert_eq!(key.take(1, start_us).retry_after_us(), Some(100_000));
    assert!(!key.take(1, start_us + 99_999).is_allowed());
    assert!(key.take(1, start_us + 100_000).is_allowed());
}

#[test]
fn a_window_whose_tokens_were_all_given_back_is_no_window() {
    let mut key = Key::new("3/min window");
    assert_eq!(key.take(2, 1_000).at_us(), 1_000 + MINUTE_US);
    let emptied = key.run(Command::Credit { n: 2 }, 2_000);
    assert_eq!((emptied.at_us(), emptied.state()), (0, None));
    // So the next request is a first request.
    assert_eq!(key.take(1, 3_000).at_us(), 3_000 + MINUTE_US);
}
