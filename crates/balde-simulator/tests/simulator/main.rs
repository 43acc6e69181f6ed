//! The simulator and the client over HTTP: rate limits, life cycles of records, invalid requests.

mod categories;
mod certify;
mod claims;
mod client;
mod counted;
mod curl;
mod entries;
mod every_operation;
mod faults;
mod hostile;
mod lists;
mod lookups;
mod malformed;
mod manual_case;
mod mutual_tls;
mod profiles;
mod published_api;
mod reports;
mod signatures;
mod test_server;
mod transcript;
mod two_simulators;

#[path = "../../../balde/tests/support/redis_server.rs"]
#[expect(dead_code, reason = "these tests do not break the server")]
mod redis_server;
