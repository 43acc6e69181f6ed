//! Law 10: what is held is not available to anybody else, is not refilled, and becomes its price.

use balde_core::{Command, Decision, EXACT_MAX, Held, Limit, OnExpiry, Snapshot, State};
use proptest::prelude::*;

use crate::cases;
use crate::model::{Bucket, Tokens, tokens};
use crate::random::{Scenario, any_scenario, forward_scenario};

/// Runs a scenario on a bucket with holds, and shows each decision with what it was made from.
fn run(scenario: &Scenario, mut each: impl FnMut(Snapshot, u64, Command, &Decision)) {
    let limit = scenario.terms.limit();
    let (mut state, mut held): (Option<State>, u64) = (None, 0);
    let mut last: Option<Decision> = None;
    for (step, command) in &scenario.steps {
        let now_us = step.moment(scenario.start_us, &limit, last.as_ref());
        let snapshot = limit.snapshot(state, now_us);
        let decision = limit.decide_held(snapshot, held, *command);
        each(snapshot, held, *command, &decision);
        (state, held) = (decision.state(), decision.held());
        last = Some(decision);
    }
}

/// The level of the bucket itself, whatever is held.
fn level(limit: &Limit, snapshot: Snapshot) -> Decision {
    limit.decide(snapshot, Command::Peek)
}

proptest! {
    #![proptest_config(cases(5_000))]

    /// The rational model, with what is held as a number beside it.
    #[test]
    fn law_10_every_answer_on_a_bucket_with_holds_is_the_models(scenario in any_scenario()) {
        let mut model = Bucket::new(scenario.terms);
        run(&scenario, |_, held, command, found| {
            let now_us = found.now_us();
            let available = model.refilled(now_us).level - tokens(held);
            let asked = match command {
                Command::Take { n: needed }
                | Command::TakeIf { needed, .. }
                | Command::Hold { needed, .. } => Some(tokens(needed)),
                Command::TakeUpTo { n } if n > 0 => Some(tokens(1)),
                _ => None,
            };
            let is_allowed = asked.is_none_or(|needed| available >= needed);
            assert_eq!(found.is_allowed(), is_allowed, "{command:?} {found:?}");
            // What it does to the level is what a command without conditions does.
            let effect = match command {
                _ if !is_allowed => Command::Take { n: u64::MAX },
                Command::Take { n } | Command::TakeIf { n, .. } => Command::Charge { n },
                Command::TakeUpTo { n } => {
                    let whole = available.floor().min(tokens(n)).max(tokens(0));
                    Command::Charge { n: whole.to_integer().try_into().unwrap() }
                }
                Command::Hold { .. } => Command::Charge { n: 0 },
                Command::Settle { price, .. } => Command::Charge { n: price },
                other => other,
            };
            let answer = model.run(effect, now_us);
            let limit = found.limit();
            let after = tokens(limit.capacity())
                - Tokens::new(found.owed().into(), limit.token_units().into());
            assert_eq!(after, answer.after, "{command:?} {found:?}");
            let expected = match command {
                Command::Hold { n, .. } if is_allowed => held.saturating_add(n).min(EXACT_MAX),
                Command::Settle { held: ended, .. } => held.saturating_sub(ended),
                _ => held,
            };
            assert_eq!(found.held(), expected);
        });
    }

    /// Takes and holds leave at least what is held in the bucket.
    #[test]
    fn law_10_nobody_takes_what_another_holds(scenario in forward_scenario()) {
        run(&scenario, |snapshot, held, command, found| {
            let limit = *found.limit();
            let takes = matches!(
                command,
                Command::Take { .. } | Command::TakeUpTo { .. } | Command::Hold { .. }
            );
            let before = level(&limit, snapshot).level();
            let n = match command {
                Command::Hold { n, needed } if n > needed => return,
                Command::Hold { n, .. } => n,
                _ => 0,
            };
            if takes && found.is_allowed() && i128::from(before) >= i128::from(held) {
                let now = limit.snapshot(found.state(), found.now_us());
                let after = level(&limit, now).level();
                assert!(i128::from(after) >= i128::from(held) + i128::from(n), "{found:?}");
            }
        });
    }

    /// A hold that is settled leaves the bucket that a charge of the price at that moment leaves.
    #[test]
    fn law_10_a_settlement_is_a_charge_at_its_moment(
        scenario in forward_scenario(), n in 0..=3_u64, price in 0..=30_u64, later_us in 0..1_u64 << 40,
    ) {
        scenario.run(|state, decision| {
            let (limit, now_us) = (decision.limit(), decision.now_us());
            let hold = Command::Hold { n, needed: n };
            let held = limit.decide_held(limit.snapshot(state, now_us), 0, hold);
            if !held.is_allowed() || (state.is_none() && held.state().is_some()) {
                return;
            }
            let at_us = now_us + later_us;
            let settle = Command::Settle { held: n, price };
            let settled = limit.decide_held(limit.snapshot(held.state(), at_us), n, settle);
            let charged = limit.apply(state, Command::Charge { n: price }, at_us);
            assert_eq!(settled.held(), 0);
            assert_eq!(settled.state(), charged.state());
            assert_eq!(settled.level(), charged.level());
        });
    }

    /// A hold that expires is charged at its time, however late that is noticed.
    #[test]
    fn law_10_an_expired_hold_is_a_charge_at_its_expiry(
        scenario in forward_scenario(), n in 0..=30_u64, until_us in 0..1_u64 << 40, late_us in 0..1_u64 << 40,
    ) {
        scenario.run(|state, decision| {
            let limit = decision.limit();
            let expires_us = decision.now_us() + until_us;
            let held = |on_expiry| Held { tokens: n, expires_us, on_expiry };
            let charged = limit.apply(state, Command::Charge { n }, expires_us);
            let noticed_us = expires_us + late_us;
            let found = limit.expire(state, &held(OnExpiry::Charge));
            assert_eq!(
                limit.apply(found, Command::Peek, noticed_us).level(),
                limit.apply(charged.state(), Command::Peek, noticed_us).level()
            );
            assert_eq!(limit.expire(state, &held(OnExpiry::GiveBack)), state);
        });
    }
}
