//! Laws 4, 6 and 7: what must not change a bucket does not.

use balde_core::{Command, Start, State};
use proptest::prelude::*;

use crate::cases;
use crate::random::{any_scenario, command, forward_scenario};

proptest! {
    #![proptest_config(cases(5_000))]

    /// A refused request leaves the bucket as if it had never been made. (The first touch of a
    /// bucket that starts empty is what starts it, so there must be a state before.)
    #[test]
    fn law_4_a_denied_take_changes_nothing(scenario in any_scenario(), later_us in 0..1_u64 << 50) {
        scenario.run(|state, decision| {
            if decision.is_allowed() {
                return;
            }
            assert_eq!(decision.owed(), decision.owed_before());
            assert_eq!(decision.moved(), 0);
            let limit = decision.limit();
            if state.is_none() && limit.start() == Start::Empty {
                return;
            }
            for later_us in [0, 1, later_us] {
                let at_us = decision.now_us() + later_us;
                let after_refusal = limit.apply(decision.state(), Command::Peek, at_us);
                let untouched = limit.apply(state, Command::Peek, at_us);
                assert_eq!(after_refusal, untouched);
            }
        });
    }

    #[test]
    fn law_6_a_credit_never_exceeds_capacity(scenario in any_scenario(), n in 0..=u64::MAX) {
        scenario.run(|state, decision| {
            let limit = decision.limit();
            let credited = limit.apply(state, Command::Credit { n }, decision.now_us());
            assert!(credited.is_allowed());
            assert!(credited.level() <= limit.capacity().cast_signed());
            assert!(credited.owed() <= credited.owed_before());
            assert!(credited.moved() <= n);
        });
    }

    /// Also for a take of what there is, and for a charge that did not meet the largest debt.
    #[test]
    fn law_6_a_credit_undoes_a_take_at_the_same_instant(scenario in any_scenario()) {
        scenario.run(|state, decision| {
            let limit = decision.limit();
            let now_us = decision.now_us();
            let n = match decision.command() {
                Command::Take { n } if decision.is_allowed() => n,
                Command::TakeUpTo { .. } => decision.moved(),
                Command::Charge { n } if n == decision.moved() => n,
                _ => return,
            };
            let untouched = limit.apply(state, Command::Peek, now_us);
            let credited = limit.apply(decision.state(), Command::Credit { n }, now_us);
            assert_eq!(credited.state(), untouched.state());
            assert_eq!(credited.owed(), decision.owed_before());
        });
    }

    /// A state that has become full, and no state at all, answer alike from then on.
    #[test]
    fn law_7_forgetting_a_full_bucket_is_invisible(
        (scenario, command) in forward_scenario()
            .prop_filter("full", |scenario| scenario.terms.start == Start::Full)
            .prop_flat_map(|scenario| (Just(scenario.clone()), command(scenario.terms))),
        later_us in 0..1_u64 << 50,
    ) {
        scenario.run(|_, decision| {
            let limit = decision.limit();
            let kept = State::new(decision.owed(), decision.at_us());
            assert_eq!(decision.state(), (decision.owed() > 0).then_some(kept));
            for later_us in [0, 1, later_us] {
                let at_us = decision.now_us() + decision.full_after_us() + later_us;
                assert_eq!(
                    limit.apply(Some(kept), command, at_us),
                    limit.apply(None, command, at_us),
                );
            }
        });
    }

    /// A bucket that starts empty is not as good as new when it is full, so it is never forgotten.
    #[test]
    fn law_7_a_bucket_that_starts_empty_is_always_kept(
        scenario in any_scenario().prop_filter("empty", |scenario| scenario.terms.start == Start::Empty)
    ) {
        scenario.run(|_, decision| assert!(decision.state().is_some()));
    }
}
