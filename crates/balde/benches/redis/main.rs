//! The Redis store beside redis-benchmark: `cargo bench -p balde --bench redis`.
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

#[cfg(feature = "redis")]
mod callers;
#[cfg(feature = "redis")]
mod peer;
#[cfg(feature = "redis")]
#[expect(dead_code, reason = "nothing is killed or frozen here")]
#[path = "../../tests/support/redis_server.rs"]
mod redis_server;
#[cfg(feature = "redis")]
#[path = "../report/mod.rs"]
mod report;
#[cfg(feature = "redis")]
mod run;
#[cfg(feature = "redis")]
mod server_time;

#[cfg(feature = "redis")]
fn main() {
    run::run(std::env::args().any(|arg| arg == "--quick"));
}

/// The benchmark needs a feature, and asks for it itself.
#[cfg(not(feature = "redis"))]
fn main() {
    let status = std::process::Command::new(env!("CARGO"))
        .args(["bench", "-p", "balde", "--features", "redis"])
        .args(["--bench", "redis", "--"])
        .args(std::env::args().skip(1).filter(|arg| arg != "--bench"))
        .status();
    let is_well = status.expect("cargo runs").success();
    std::process::exit(i32::from(!is_well));
}
