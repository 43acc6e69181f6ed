//! A week of polling in virtual time against the simulator: the buckets of a participant of
//! category A, each with random traffic that empties it now and then, seen through the monitor's
//! schedule.
//!
//! `cargo bench -p balde-monitor --bench week -- [DAYS] [SEED]` prints how far the monitor's calls
//! lowered DICT's own limits of them, how many rows a day are stored, and which times at WARNING or
//! worse nobody saw. It fails if a limit fell below two thirds, or if a time that is longer than the
//! reported coverage was missed. Buckets refill continuously first, then, in a second run, stepwise.

#[path = "../tests/support/week.rs"]
mod week;

use week::{Plan, Week};

fn main() {
    let numbers: Vec<u64> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    let days = numbers.first().copied().unwrap_or(7);
    let seed = numbers.get(1).copied().unwrap_or(14);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    for is_stepwise in [false, true] {
        let plan = Plan {
            hours: days * 24,
            seed,
            rush_in: 20,
            is_stepwise,
        };
        let week = runtime.block_on(Week::of(plan));
        let refill = if is_stepwise {
            "stepwise"
        } else {
            "continuous"
        };
        println!("{days} days, seed {seed}, {refill} refill: {week}");
        week.check();
    }
}
