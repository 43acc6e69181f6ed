//! Step by step the implementation and the model give the same answer: allowed, levels, remaining,
//! moved, both promised times, and whether there is anything to keep.

use proptest::prelude::*;

use crate::cases;
use crate::model::Bucket;
use crate::random::{any_scenario, forward_scenario};

proptest! {
    #![proptest_config(cases(5_000))]

    #[test]
    fn every_answer_is_the_models(scenario in forward_scenario()) {
        let mut model = Bucket::new(scenario.terms);
        scenario.run(|_, decision| {
            let answer = model.run(decision.command(), decision.now_us());
            model.agrees(&answer, decision);
        });
    }

    #[test]
    fn every_answer_is_the_models_when_clocks_step_back(scenario in any_scenario()) {
        let mut model = Bucket::new(scenario.terms);
        scenario.run(|_, decision| {
            let answer = model.run(decision.command(), decision.now_us());
            model.agrees(&answer, decision);
        });
    }
}
