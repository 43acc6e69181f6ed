//! The whole monitor against a fake or simulated DICT: sources, failed polls, HTTP, metrics, config.

mod config;
mod failed_polls;
#[path = "../support/fake_dict.rs"]
#[expect(dead_code, reason = "only the process tests intercept requests")]
mod fake_dict;
mod gateway_source;
mod http;
#[path = "../../../balde/tests/support/prometheus.rs"]
#[expect(dead_code, reason = "only rules are tested here, not scraped values")]
mod prometheus;
mod prometheus_rules;
mod simulator;
