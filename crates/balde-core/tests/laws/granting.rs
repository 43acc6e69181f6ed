//! Laws 1 and 3: how much may go out, and between what bounds a bucket stands.

use balde_core::{Command, Decision, Start, Strategy};
use num_traits::{Signed, Zero};
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use crate::cases;
use crate::model::{Terms, Tokens, tokens};
use crate::random::{any_scenario, forward_scenario};

proptest! {
    #![proptest_config(cases(5_000))]

    /// Law 1, over every interval that begins and ends at a command. In [a, b], with both ends
    /// in it, a bucket grants at most
    ///
    /// - continuous: capacity + (b − a) × tokens / period,
    /// - stepwise: capacity + tokens × the period boundaries in (a, b], which are at most
    ///   ⌊(b − a) / period⌋ + 1,
    /// - window: capacity × (1 + ⌈(b − a) / period⌉): the window that is open at a, and those that
    ///   can open after it has closed,
    ///
    /// plus what was given back in it. Raising the level by hand is giving back.
    #[test]
    fn law_1_no_interval_grants_more_than_capacity_refill_and_credits(scenario in forward_scenario()) {
        let terms = scenario.terms;
        // When, and what was granted less what was given back.
        let mut flow = Vec::new();
        scenario.run(|_, decision| {
            flow.push((decision.now_us(), granted(decision) - given_back(decision)));
        });
        for (first, (from_us, _)) in flow.iter().enumerate() {
            let mut sum = Tokens::zero();
            for (to_us, net) in &flow[first..] {
                sum += net;
                prop_assert!(
                    sum <= grant_max(&terms, *from_us, *to_us),
                    "{sum} net tokens went out in {from_us}..={to_us}"
                );
            }
        }
    }

    /// Law 1 for a bucket that starts empty: from its first moment it grants no more than the
    /// refill and the credits, without the capacity.
    #[test]
    fn law_1_a_bucket_that_starts_empty_grants_only_its_refill(
        scenario in forward_scenario().prop_filter("empty", |scenario| scenario.terms.start == Start::Empty)
    ) {
        let mut sum = Tokens::zero();
        scenario.run(|_, decision| {
            sum += granted(decision) - given_back(decision);
            let refill = scenario.terms.refill(scenario.start_us, decision.now_us());
            assert!(sum <= refill, "{sum} net tokens, {refill} came");
        });
    }

    #[test]
    fn law_3_remaining_is_within_capacity_and_debt_comes_from_a_charge(scenario in any_scenario()) {
        scenario.run(|_, decision| {
            let level = decision.level();
            assert!(decision.remaining() <= scenario.terms.capacity);
            assert_eq!(decision.remaining().cast_signed(), level.max(0));
            assert!(level >= -scenario.terms.debt_max.cast_signed());
            assert!(decision.level_before() >= -scenario.terms.debt_max.cast_signed());
            if level < decision.level_before().min(0) {
                let is_debit = match decision.command() {
                    Command::Charge { .. } => true,
                    Command::TakeIf { n, needed } => n > needed,
                    Command::SetLevel { level } => level < 0,
                    _ => false,
                };
                assert!(is_debit, "{decision:?}");
            }
        });
    }
}

fn granted(decision: &Decision) -> Tokens {
    match decision.command() {
        Command::Take { n } if decision.is_allowed() => tokens(n),
        // What is taken beyond the level it needs is a charge.
        Command::TakeIf { n, needed } if decision.is_allowed() => tokens(n.min(needed)),
        Command::TakeUpTo { .. } => tokens(decision.moved()),
        _ => Tokens::zero(),
    }
}

/// What a credit or a level set by hand put in: exactly, so a fraction counts.
fn given_back(decision: &Decision) -> Tokens {
    let units = |owed: u64| Tokens::new(owed.into(), decision.limit().token_units().into());
    let raised = units(decision.owed_before()) - units(decision.owed());
    if raised.is_positive() {
        raised
    } else {
        Tokens::zero()
    }
}

fn grant_max(terms: &Terms, from_us: u64, to_us: u64) -> Tokens {
    let capacity = tokens(terms.capacity);
    match terms.strategy {
        Strategy::FixedWindow => capacity * tokens(1 + (to_us - from_us).div_ceil(terms.period_us)),
        _ => capacity + terms.refill(from_us, to_us),
    }
}
