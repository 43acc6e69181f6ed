//! The simulator over real HTTP: its rules, its life cycles, and what it makes of bad requests.

mod categories;
mod claims;
mod client;
mod curl;
mod entries;
mod every_operation;
mod faults;
mod lists;
mod lookups;
mod malformed;
mod manual_case;
mod mutual_tls;
mod reports;
mod test_server;
mod two_simulators;

#[path = "../../../balde/tests/support/redis_server.rs"]
#[expect(dead_code, reason = "these stories need no broken server")]
mod redis_server;
