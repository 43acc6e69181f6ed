//! The whole monitor against a fake or simulated DICT: sources, failed polls, HTTP, metrics, config.

mod config;
mod failed_polls;
#[path = "../support/fake_dict.rs"]
#[expect(dead_code, reason = "only the process tests intercept requests")]
mod fake_dict;
mod gateway_source;
mod http;
#[path = "../support/postgres.rs"]
#[expect(dead_code, reason = "only the process tests stop the server")]
mod postgres;
#[path = "../../../balde/tests/support/prometheus.rs"]
#[expect(dead_code, reason = "only rules are tested here, not scraped values")]
mod prometheus;
mod prometheus_rules;
mod simulator;
#[path = "../support/week.rs"]
mod week;

/// `cargo bench -p balde-monitor --bench week` does it for a week, with fewer rushes.
#[tokio::test]
async fn a_virtual_hour_of_polling_leaves_two_thirds_and_sees_what_it_claims() {
    for is_stepwise in [false, true] {
        let plan = week::Plan {
            hours: 1,
            seed: 14,
            rush_in: 3,
            is_stepwise,
        };
        let week = week::Week::of(plan).await;
        println!("{week}");
        week.check();
    }
}
