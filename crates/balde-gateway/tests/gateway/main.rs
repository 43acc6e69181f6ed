//! The gateway over real sockets.

mod abuse;
mod backend;
mod byte_log;
mod config;
mod dict;
mod during_reconciliation;
mod forwarding;
mod half_close;
mod hosts;
mod limits;
mod participants;
mod promise;
mod proxy_fields;
mod raw_upstream;
mod reload;
mod retry;
mod rules;
mod running;
mod shared_redis;
mod simulated;
mod slow_clients;
mod smuggling;
mod spellings;
mod state;
mod tls;
mod tunnels;
mod unknown_refill;
mod unsent;

#[path = "../../../balde/tests/support/prometheus.rs"]
#[expect(dead_code, reason = "other tests scrape several targets")]
mod prometheus;
#[path = "../../../balde/tests/support/redis_server.rs"]
#[expect(dead_code, reason = "these tests do not freeze the server")]
mod redis_server;
