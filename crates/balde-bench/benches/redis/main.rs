//! The Redis store beside redis-benchmark: `cargo bench -p balde-bench --bench redis`.
//!
//! Everything runs in turn within each round, against one redis-server that is started for it, so
//! that what else the machine does falls on all alike. A figure is the median over the rounds, a
//! ratio the median of the ratios within a round. A timing fails nothing.
//!
//! - *balde*: so many tasks that each take a token and wait for the answer, over two connections.
//! - *on leases*: the same with leases.
//! - *same script*: redis-benchmark on the same number of connections with the same number of calls
//!   under way, running the same script. It cannot send arguments with a zero byte in them, so it
//!   sends others of the same length, and a line before the script puts the real ones in their
//!   place (`peer::constant`). What that line costs is the first table's "take, constant".
//! - *SET*: the same with a SET of 61 bytes, the size of a bucket, instead of the script.
//! - *classic*: the same with the float bucket in a hash (`classic.lua`).
//!
//! `--quick` makes it short, for trying things out, and then writes no report.

mod callers;
mod peer;
#[expect(dead_code, reason = "nothing is killed or frozen here")]
#[path = "../../../balde/tests/support/redis_server.rs"]
mod redis_server;
mod run;
mod server_time;

fn main() {
    run::run(std::env::args().any(|arg| arg == "--quick"));
}
