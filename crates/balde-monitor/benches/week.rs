//! A week of polling in virtual time: the 31 buckets of a participant of category F, each with
//! random traffic that empties it now and then, seen through the monitor's schedule.
//!
//! `cargo bench -p balde-monitor --bench week -- [DAYS] [SEED]` prints how far the monitor's calls
//! lowered DICT's own limits of them, how many rows a day are stored, and which times at WARNING or
//! worse nobody saw. It fails if a limit fell below two thirds, or if a time that is longer than the
//! reported coverage was missed.

#[path = "../tests/support/week.rs"]
mod week;

fn main() {
    let numbers: Vec<u64> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    let days = numbers.first().copied().unwrap_or(7);
    let seed = numbers.get(1).copied().unwrap_or(14);
    let week = week::Week::of(days, seed);
    println!("{days} days, seed {seed}: {week}");
    week.check();
}
