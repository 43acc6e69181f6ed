//! Law 5: a clock that steps backwards mints nothing, takes nothing, panics nowhere.
//!
//! What a bucket knows of time is its state. A full bucket that was forgotten knows none, which is
//! why the second law here keeps the states that a store may drop: a clock that steps behind the
//! moment at which a bucket was full, seen and forgotten could be granted that refill again.

use balde_core::{Command, State, Strategy};
use num_traits::Zero;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use crate::cases;
use crate::model::{Tokens, tokens};
use crate::random::{any_scenario, command, terms};

proptest! {
    #![proptest_config(cases(5_000))]

    /// Behind its state, a bucket is what it was: every command does what it did at that moment.
    #[test]
    fn law_5_a_clock_behind_the_state_neither_mints_nor_takes(
        (scenario, command) in any_scenario()
            .prop_flat_map(|scenario| (Just(scenario.clone()), command(scenario.terms))),
        back_us in 0..1_u64 << 52,
    ) {
        scenario.run(|_, decision| {
            let limit = decision.limit();
            let now_us = decision.now_us();
            let Some(state) = decision.state() else { return };
            for back_us in [1, back_us] {
                let then = limit.apply(Some(state), command, now_us.saturating_sub(back_us));
                let now = limit.apply(Some(state), command, now_us);
                if limit.strategy() != Strategy::FixedWindow && state.at_us() < now_us {
                    // A state from before a step back; the clock may still be ahead of it.
                    assert!(then.owed_before() >= now.owed_before());
                    continue;
                }
                assert_eq!(then.owed_before(), decision.owed());
                assert_eq!(then.is_allowed(), now.is_allowed());
                assert_eq!(then.owed(), now.owed());
                assert_eq!(then.moved(), now.moved());
                if then.owed() > 0 && now.owed_before() > 0 {
                    assert_eq!(then.state(), now.state());
                }
            }
        });
    }

    /// However the clock jumps, all that is ever granted is capacity and the refill up to the
    /// latest moment seen, counted once.
    #[test]
    fn law_5_a_jumping_clock_grants_no_time_twice(
        scenario in any_scenario()
            .prop_filter("bucket", |scenario| scenario.terms.strategy != Strategy::FixedWindow)
    ) {
        let terms = scenario.terms;
        let limit = terms.limit();
        let (mut state, mut last) = (None, None);
        let mut latest_us = 0;
        let mut sum = Tokens::zero();
        for (step, command) in &scenario.steps {
            let now_us = step.moment(scenario.start_us, &limit, last.as_ref());
            let command = match *command {
                Command::Take { n } | Command::TakeUpTo { n } => Command::TakeUpTo { n },
                _ => Command::Peek,
            };
            let decision = limit.apply(state, command, now_us);
            state = Some(State::new(decision.owed(), decision.at_us()));
            last = Some(decision);
            latest_us = latest_us.max(now_us);
            sum += tokens(decision.moved());
            let bound = tokens(terms.capacity) + terms.refill(scenario.start_us, latest_us);
            prop_assert!(sum <= bound, "{} tokens, {} at most", sum, bound);
        }
    }

    /// Any state a store could hold, any moment a clock could show, under this limit or another.
    #[test]
    fn law_5_no_state_and_no_moment_panics(
        (terms, command) in terms().prop_flat_map(|terms| (Just(terms), command(terms))),
        other in terms(),
        owed in any::<u64>(),
        at_us in any::<u64>(),
        now_us in prop_oneof![any::<u64>(), Just(0), Just(u64::MAX)],
    ) {
        let limit = terms.limit();
        let state = Some(State::new(owed, at_us));
        let decision = limit.apply(state, command, now_us);
        prop_assert!(decision.owed() <= limit.owed_max());
        prop_assert!(decision.level() >= -terms.debt_max.cast_signed());
        prop_assert!(decision.remaining() <= terms.capacity);
        let _ = (decision.wait(), decision.full_after(), decision.moved());

        let other = other.limit();
        let changed = limit.change_to(&other, state, now_us);
        // The same limit leaves even a strange state alone: it is clamped when it is used.
        prop_assert!(
            limit == other || changed.is_none_or(|state| state.owed() <= other.owed_max())
        );
        let _ = other.apply(changed, command, now_us).wait();
    }
}
