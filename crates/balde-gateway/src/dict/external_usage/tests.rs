//! The estimate beside a model of DICT's bucket, its mirror and somebody else, second by second.

use std::time::Duration;

use balde_core::{Command, State};
use proptest::prelude::*;

use super::*;

const SECOND_US: u64 = 1_000_000;
const MINUTE: u64 = 60;

fn limit(capacity: u64, refill: u64) -> Limit {
    Limit::bucket_of(capacity, refill, Duration::from_secs(MINUTE)).unwrap()
}

/// DICT's bucket, its mirror and somebody else, second by second. Reconciliations are a minute
/// apart.
struct Model {
    limit: Limit,
    external_usage: ExternalUsage,
    dict: Option<State>,
    mirror: Option<State>,
    second: u64,
    /// What the gateway has used.
    own: u64,
    refusals: u64,
    withheld: u64,
}

impl Model {
    fn new(limit: Limit) -> Self {
        let mut model = Self {
            limit,
            external_usage: ExternalUsage::default(),
            dict: None,
            mirror: None,
            second: 0,
            own: 0,
            refusals: 0,
            withheld: 0,
        };
        model.reconcile();
        model
    }

    fn now_us(&self) -> u64 {
        self.second * SECOND_US
    }

    /// A minute in which the gateway wants `own` tokens in each second, and others take as many as
    /// `others` returns for it, if they are there.
    fn minute(&mut self, own: u64, others: impl Fn(u64) -> u64) {
        for _ in 0..MINUTE {
            self.second += 1;
            let taken = Command::TakeUpTo {
                n: others(self.second),
            };
            self.dict = self.limit.apply(self.dict, taken, self.now_us()).state();
            for _ in 0..own {
                if !self.call() {
                    break;
                }
            }
        }
        self.reconcile();
    }

    /// Sends a call, if the mirror admits it.
    fn call(&mut self) -> bool {
        let take = Command::Take { n: 1 };
        let admitted = self.limit.apply(self.mirror, take, self.now_us());
        if !admitted.is_allowed() {
            return false;
        }
        let taken = self.limit.apply(self.dict, take, self.now_us());
        self.dict = taken.state();
        if taken.is_allowed() {
            self.mirror = admitted.state();
            self.own += 1;
        } else {
            self.refusals += 1;
            self.correct(Source::Refusal, 0);
        }
        true
    }

    fn reconcile(&mut self) {
        let peeked = self.limit.apply(self.dict, Command::Peek, self.now_us());
        self.correct(Source::Reconciliation, peeked.level());
    }

    fn correct(&mut self, source: Source, level: i64) {
        let mirrored = self.limit.apply(self.mirror, Command::Peek, self.now_us());
        let seen = Observation {
            source,
            now_us: self.now_us(),
            limit: self.limit,
            level,
            mirrored: mirrored.level(),
            explained: 0,
            doubt: 0,
            spent_before: self.own,
            spent: self.own,
        };
        let next_minute = self.second / MINUTE + 1;
        let schedule = Schedule {
            interval_us: Some(MINUTE * SECOND_US),
            next_us: next_minute * MINUTE * SECOND_US,
            is_last_reconciler: true,
        };
        self.withheld = self.external_usage.observe("1", "p", &seen, &schedule);
        let level = level - signed(self.withheld);
        let set = Command::SetLevel { level };
        self.mirror = self.limit.apply(self.mirror, set, self.now_us()).state();
    }

    fn dict_level(&self) -> i64 {
        let peeked = self.limit.apply(self.dict, Command::Peek, self.now_us());
        peeked.level()
    }
}

proptest! {
    /// Without another spender nothing is withheld, and the gateway uses what DICT has.
    #[test]
    fn alone_nothing_is_withheld(
        capacity in 1_u64..1_000,
        refill in 1_u64..1_000,
        wanted in proptest::collection::vec(0_u64..40, 1..12),
    ) {
        let mut model = Model::new(limit(capacity, refill));
        for wanted in wanted {
            model.minute(wanted, |_| 0);
            prop_assert_eq!((model.withheld, model.refusals), (0, 0));
        }
    }

    /// Beside somebody with steady use, refusals stop after the second reconciliation, and the
    /// gateway uses what is left. The bucket is large enough not to become full between two
    /// reconciliations: from a bucket that was full, others' use cannot be determined exactly.
    #[test]
    fn a_steady_spender_is_withheld_and_the_rest_is_used(
        spare in 0_u64..500,
        per_second in 1_u64..20,
        others in 1_u64..20,
    ) {
        let capacity = 66 * per_second + spare;
        let mut model = Model::new(limit(capacity, 60 * per_second));
        model.minute(40, |_| others);
        model.minute(40, |_| others);
        let (refusals, own) = (model.refusals, model.own);
        let minutes = 10;
        for _ in 0..minutes {
            model.minute(40, |_| others);
        }
        prop_assert_eq!(model.refusals, refusals);
        let left = minutes * 60 * per_second.saturating_sub(others);
        // A reconciliation drops the part of a token, and what is withheld for the last one has not
        // come back yet.
        let used = model.own - own + 66 * others + minutes;
        prop_assert!(used >= left, "{} of {}", used, left);
    }

    /// Once others are gone, what was withheld comes back.
    #[test]
    fn what_was_withheld_comes_back(
        capacity in 100_u64..1_000,
        per_second in 1_u64..10,
        others in 1_u64..20,
        wanted in 0_u64..20,
    ) {
        let mut model = Model::new(limit(capacity, 60 * per_second));
        for _ in 0..3 {
            model.minute(wanted, |_| others);
        }
        let refusals = model.refusals;
        for _ in 0..=INTERVALS {
            model.minute(wanted, |_| 0);
        }
        prop_assert_eq!((model.withheld, model.refusals), (0, refusals));
    }

    /// Whatever others do, DICT refuses at most twice between two reconciliations.
    #[test]
    fn sudden_changes_cause_two_refusals_at_most_in_a_minute(
        capacity in 1_u64..500,
        refill in 1_u64..500,
        wanted in 0_u64..20,
        others in proptest::collection::vec(0_u64..500, 60),
    ) {
        let mut model = Model::new(limit(capacity, refill));
        for _ in 0..10 {
            let before = model.refusals;
            model.minute(wanted, |second| others[usize::try_from(second * 7 % 60).unwrap()]);
            prop_assert!(model.refusals <= before + 2);
            prop_assert!(model.dict_level() >= 0);
        }
    }
}

#[test]
fn where_the_refill_is_unknown_its_steps_are_not_taken_for_others() {
    let limit: Limit = "250/min burst 500".parse().unwrap();
    let schedule = |minute: u64| Schedule {
        interval_us: Some(60 * SECOND_US),
        next_us: (minute + 1) * 60 * SECOND_US,
        is_last_reconciler: true,
    };
    let seen = |minute: u64, mirrored, level| Observation {
        source: Source::Reconciliation,
        now_us: minute * 60 * SECOND_US,
        limit,
        level,
        mirrored,
        explained: 0,
        doubt: 250,
        spent_before: 0,
        spent: 0,
    };
    let others = ExternalUsage::default();
    let observe = |minute, mirrored, level| {
        others.observe("1", "p", &seen(minute, mirrored, level), &schedule(minute))
    };
    assert_eq!(observe(0, 500, 500), 0);
    // A step late, a step early, and again.
    for minute in 1..10 {
        let (mirrored, level) = if minute % 2 == 0 { (0, 250) } else { (250, 0) };
        assert_eq!(observe(minute, mirrored, level), 0);
    }
    // A hundred tokens less each time: no step explains the sum.
    let withheld: Vec<u64> = (10..15).map(|minute| observe(minute, 100, 0)).collect();
    assert!(withheld.is_sorted() && withheld[4] >= 50, "{withheld:?}");
}

#[test]
fn what_calls_in_flight_may_explain_counts_only_beside_others() {
    let limit: Limit = "250/min burst 500".parse().unwrap();
    let usage = ExternalUsage::default();
    let observe = |minute: u64, missing: i64| {
        let seen = Observation {
            source: Source::Reconciliation,
            now_us: minute * 60 * SECOND_US,
            limit,
            level: 400,
            mirrored: 400 + missing,
            explained: 10,
            doubt: 0,
            spent_before: 0,
            spent: 0,
        };
        let schedule = Schedule {
            interval_us: Some(60 * SECOND_US),
            next_us: (minute + 1) * 60 * SECOND_US,
            is_last_reconciler: true,
        };
        usage.observe("1", "p", &seen, &schedule)
    };
    assert_eq!(observe(0, 0), 0);
    // Own calls may have cost all of it.
    assert_eq!(observe(1, 10), 0);
    // Others have used some of it, and perhaps all: it is withheld, and a tenth more.
    assert_eq!(observe(2, 50), 55);
}

#[test]
fn a_refusal_by_another_bucket_is_forgotten_at_the_reconciliation() {
    for is_last_reconciler in [true, false] {
        let limit: Limit = "2/min burst 50".parse().unwrap();
        let usage = ExternalUsage::default();
        let observe = |source, second: u64, mirrored, level| {
            let seen = Observation {
                source,
                now_us: second * SECOND_US,
                limit,
                level,
                mirrored,
                explained: 0,
                doubt: 0,
                spent_before: 0,
                spent: 0,
            };
            let schedule = Schedule {
                interval_us: Some(60 * SECOND_US),
                next_us: (second / 60 + 1) * 60 * SECOND_US,
                is_last_reconciler,
            };
            usage.observe("1", "p", &seen, &schedule)
        };
        assert_eq!(observe(Source::Reconciliation, 0, 50, 50), 0);
        // Two payers were refused by their own buckets, and this one was emptied with theirs.
        observe(Source::Refusal, 10, 50, 0);
        // DICT had its tokens all the time.
        assert_eq!(observe(Source::Reconciliation, 11, 0, 50), 0);
        assert_eq!(observe(Source::Reconciliation, 60, 50, 50), 0);
    }
}

#[test]
fn without_reconciliations_refusals_far_apart_do_not_add_up() {
    let limit: Limit = "60/min burst 60".parse().unwrap();
    let usage = ExternalUsage::default();
    let refused = |second: u64| {
        let seen = Observation {
            source: Source::Refusal,
            now_us: second * SECOND_US,
            limit,
            level: 0,
            mirrored: 10,
            explained: 0,
            doubt: 0,
            spent_before: 0,
            spent: 0,
        };
        let schedule = Schedule {
            interval_us: None,
            next_us: 0,
            is_last_reconciler: true,
        };
        usage.observe("1", "p", &seen, &schedule)
    };
    let in_a_row: Vec<u64> = (0..5).map(refused).collect();
    assert_eq!(in_a_row, [0, 1, 2, 4, 8]);
    let one_a_day: Vec<u64> = (1..20).map(|day| refused(day * 86_400)).collect();
    assert!(
        one_a_day.iter().all(|withheld| *withheld == 0),
        "{one_a_day:?}"
    );
}

#[test]
fn with_other_gateways_only_what_is_missing_now_counts() {
    let limit: Limit = "60/min burst 60".parse().unwrap();
    let schedule = Schedule {
        interval_us: Some(60 * SECOND_US),
        next_us: 120 * SECOND_US,
        is_last_reconciler: false,
    };
    let mut seen = Observation {
        source: Source::Reconciliation,
        now_us: 0,
        limit,
        level: 60,
        mirrored: 60,
        explained: 0,
        doubt: 0,
        spent_before: 0,
        spent: 0,
    };
    let others = ExternalUsage::default();
    others.observe("1", "p", &seen, &schedule);
    (seen.now_us, seen.level, seen.mirrored) = (60 * SECOND_US, 10, 30);
    assert_eq!(others.observe("1", "p", &seen, &schedule), 22);
    // Another gateway may have given back what was withheld, so it counts as gone.
    seen.now_us = 100 * SECOND_US;
    (seen.level, seen.mirrored) = (30, 30);
    assert_eq!(others.observe("1", "p", &seen, &schedule), 9);
}
