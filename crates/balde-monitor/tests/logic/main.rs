//! The parts of the monitor that need neither a clock nor I/O: analysis, alert states, scheduling.

mod alert_stories;
mod alerts;
mod consumption;
mod cron;
mod documents;
mod forecasts;
mod peak;
mod planner;
#[path = "../support/stories.rs"]
#[expect(dead_code, reason = "the benchmark reads more of a story")]
mod stories;
#[path = "../support/week.rs"]
mod week;

/// `cargo bench -p balde-monitor --bench week` does it for a week.
#[test]
fn a_virtual_day_of_polling_leaves_two_thirds_and_sees_what_it_claims() {
    let day = week::Week::of(1, 14);
    println!("{day}");
    day.check();
}
