//! Law 2: the promised time is the time. Not a microsecond too long, which would idle a caller;
//! not one too short, which would send it back twice.

use balde_core::{Command, Decision, Wait};
use proptest::prelude::*;

use crate::cases;
use crate::random::any_scenario;

proptest! {
    #![proptest_config(cases(5_000))]

    #[test]
    fn law_2_waiting_exactly_the_promised_time_passes_and_one_microsecond_less_does_not(
        scenario in any_scenario()
    ) {
        scenario.run(|_, decision| {
            let limit = decision.limit();
            let retry = |us| limit.apply(decision.state(), decision.command(), us);
            match decision.wait() {
                Wait::None => assert!(decision.is_allowed()),
                Wait::Us(us) => {
                    assert!(!decision.is_allowed());
                    let now_us = decision.now_us();
                    assert!(retry(now_us + us).is_allowed(), "{decision:?}");
                    let early = retry(now_us + us - 1);
                    assert!(!early.is_allowed(), "{decision:?}");
                    assert_eq!(early.wait(), Wait::Us(1));
                }
                Wait::Never => {
                    let (Command::Take { n: needed } | Command::TakeIf { needed, .. }) =
                        decision.command()
                    else {
                        panic!("only a take can ask too much: {decision:?}");
                    };
                    assert!(needed > limit.capacity());
                    let full_us = decision.now_us() + decision.full_after_us();
                    assert_eq!(retry(full_us).wait(), Wait::Never);
                }
            }
        });
    }

    /// The same promise for any number of tokens, after any command, in debt too.
    #[test]
    fn law_2_n_tokens_can_be_taken_exactly_when_wait_for_says(
        scenario in any_scenario(),
        n in prop_oneof![0..=5_u64, 0..=1_000_u64, any::<u64>()],
    ) {
        scenario.run(|_, decision| {
            let limit = decision.limit();
            let peek = limit.apply(decision.state(), Command::Peek, decision.now_us());
            let charge = Command::Charge { n: limit.capacity() + 3 };
            let in_debt = limit.apply(decision.state(), charge, decision.now_us());
            for decision in [*decision, peek, in_debt] {
                for n in [n, n % (limit.capacity() + 1), 1, limit.capacity()] {
                    assert_wait_for_is_exact(&decision, n);
                }
            }
        });
    }

    #[test]
    fn law_2_a_bucket_is_full_exactly_when_it_said(scenario in any_scenario()) {
        scenario.run(|_, decision| {
            let peek = |us| decision.limit().apply(decision.state(), Command::Peek, us);
            let full_us = decision.now_us() + decision.full_after_us();
            if decision.full_after_us() == 0 {
                assert_eq!(decision.owed(), 0);
                return;
            }
            assert_eq!(peek(full_us).owed(), 0, "{decision:?}");
            let early = peek(full_us - 1);
            assert_ne!(early.owed(), 0, "{decision:?}");
            assert_eq!(early.full_after_us(), 1);
        });
    }

    /// In debt, a single token is promised as exactly as anywhere else.
    #[test]
    fn law_2_a_way_out_of_debt_is_exact(scenario in any_scenario(), n in 1..=100_u64) {
        scenario.run(|state, decision| {
            let limit = decision.limit();
            let charged = limit.apply(state, Command::Charge { n: limit.capacity() + n }, decision.now_us());
            for command in [Command::Take { n: 0 }, Command::Take { n: 1 }, Command::TakeUpTo { n: 9 }] {
                let refused = limit.apply(charged.state(), command, decision.now_us());
                let Some(us) = refused.retry_after_us() else {
                    // An empty bucket without room for debt still grants a take of nothing.
                    assert!(charged.level() == 0 && command == Command::Take { n: 0 });
                    continue;
                };
                let retry_us = decision.now_us() + us;
                assert!(limit.apply(refused.state(), command, retry_us).is_allowed());
                assert!(!limit.apply(refused.state(), command, retry_us - 1).is_allowed());
            }
        });
    }
}

fn assert_wait_for_is_exact(decision: &Decision, n: u64) {
    let limit = decision.limit();
    let now_us = decision.now_us();
    let take = |us| limit.apply(decision.state(), Command::Take { n }, us);
    match decision.wait_for(n) {
        Wait::None => assert!(take(now_us).is_allowed(), "{n}: {decision:?}"),
        Wait::Us(us) => {
            assert!(take(now_us + us).is_allowed(), "{n}: {decision:?}");
            assert!(!take(now_us + us - 1).is_allowed(), "{n}: {decision:?}");
        }
        Wait::Never => {
            assert!(n > limit.capacity(), "{n}: {decision:?}");
            let full_us = now_us + decision.full_after_us();
            assert!(!take(full_us).is_allowed(), "{n}: {decision:?}");
        }
    }
}
