//! Law 9: another limit under a live bucket keeps the deficit in tokens and mints nothing.

use balde_core::{Command, Limit, State};
use num_traits::{Signed, Zero};
use proptest::prelude::*;

use crate::cases;
use crate::model::{Bucket, Tokens, tokens};
use crate::random::{Scenario, any_scenario, command, terms};

proptest! {
    #![proptest_config(cases(5_000))]

    /// What is missing stays missing, up to what the new limit can be missing; a fraction the new
    /// units cannot express goes against the bucket, and is less than one unit.
    #[test]
    fn law_9_the_deficit_in_tokens_is_kept(scenario in any_scenario(), new in terms()) {
        let new_limit = new.limit();
        scenario.run(|_, decision| {
            let old = decision.limit();
            let now_us = decision.now_us();
            let Some(state) = decision.state() else {
                assert_eq!(old.change_to(&new_limit, None, now_us), None);
                return;
            };
            let changed = old.change_to(&new_limit, Some(state), now_us);
            if old == &new_limit {
                assert_eq!(changed, Some(state));
                return;
            }
            let was = old.apply(Some(state), Command::Peek, now_us).owed();
            let was = missing(old, was);
            let is = missing(&new_limit, changed.map_or(0, State::owed));

            let debt = (&was - tokens(old.capacity())).max(Tokens::zero());
            let most = tokens(new.capacity) + debt.clone().min(tokens(new.debt_max));
            let due = was.min(most);
            assert!(is >= due, "minted {}", &due - &is);
            assert!(&is - &due < new.grain(), "took {}", &is - &due);

            // No debt where there was none, and none that grew.
            let debt_now = (is - tokens(new.capacity)).max(Tokens::zero());
            assert!(debt_now.is_zero() || debt.is_positive());
            assert!(debt_now < debt + new.grain());
        });
    }

    /// And in all that follows, under one limit after the other, the model says the same.
    #[test]
    fn law_9_a_bucket_lives_on_under_another_limit_as_the_model_does(
        chapters in prop::collection::vec(
            any_scenario().prop_flat_map(|scenario| (Just(scenario.clone()), command(scenario.terms))),
            2..5,
        )
    ) {
        let mut model = Bucket::new(chapters[0].0.terms);
        let mut limit = chapters[0].0.terms.limit();
        let mut state = None;
        let mut now_us = chapters[0].0.start_us;
        for (Scenario { terms, steps, .. }, opening) in &chapters {
            let next = terms.limit();
            state = limit.change_to(&next, state, now_us);
            model.change_to(*terms, now_us);
            limit = next;

            let mut decision = limit.apply(state, *opening, now_us);
            let answer = model.run(*opening, now_us);
            model.agrees(&answer, &decision);
            state = decision.state();
            for (step, command) in steps.iter().take(6) {
                now_us = step.moment(now_us, &limit, Some(&decision));
                decision = limit.apply(state, *command, now_us);
                let answer = model.run(*command, now_us);
                model.agrees(&answer, &decision);
                state = decision.state();
            }
        }
    }
}

fn missing(limit: &Limit, owed: u64) -> Tokens {
    Tokens::new(owed.into(), limit.token_units().into())
}
