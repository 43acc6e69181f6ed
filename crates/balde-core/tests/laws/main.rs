//! The laws of the arithmetic, as property tests over awkward limits, commands and clocks.
//!
//! | Law | File |
//! |--|--|
//! | every answer is the rational model's | `agreement` |
//! | 1 no interval grants more than capacity, refill and credits | `granting` |
//! | 2 the promised time is exact to the microsecond | `waiting` |
//! | 3 remaining is within 0..=capacity, debt comes from a charge | `granting` |
//! | 4 a denied take changes nothing | `keeping` |
//! | 5 a clock that steps back mints nothing, takes nothing, panics nowhere | `clocks` |
//! | 6 a credit stops at capacity and undoes a take | `keeping` |
//! | 7 forgetting a full bucket is invisible | `keeping` |
//! | 9 another limit keeps the deficit and mints nothing | `change` |
//! | 10 available is the level less what is held; a settlement is a charge | `holding` |
//!
//! Law 8 (Rust and Lua agree) belongs to the store that has the Lua. A failing case is printed,
//! shrunk, together with the line that replays it.

mod agreement;
mod change;
mod clocks;
mod granting;
mod holding;
mod keeping;
mod model;
mod random;
mod waiting;

use proptest::test_runner::Config;

fn cases(cases: u32) -> Config {
    Config {
        cases,
        // Next to the tests, so that a found case is committed and runs for ever.
        failure_persistence: Some(Box::new(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        )),
        ..Config::default()
    }
}
