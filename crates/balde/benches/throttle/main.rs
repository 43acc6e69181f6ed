//! The throttler beside the leaky-bucket crate: `cargo bench -p balde --bench throttle`.
//!
//! Everything runs in turn within each round, so that what else the machine does falls on all alike. A
//! figure is the median over the rounds, a ratio the median of the ratios within a round. A timing
//! fails nothing.
//!
//! - *leaky-bucket* is fair, as it is unless told otherwise, and as a throttler has to be; *unfair* is
//!   its mode without an order. It has one bucket and no partitions.
//! - *by name* looks the partition up with every call, *by handle* does not.
//!
//! `--quick` makes it short, for trying things out, and then writes no report.

#[cfg(feature = "throttle")]
mod run;

#[cfg(feature = "throttle")]
fn main() {
    run::run(std::env::args().any(|arg| arg == "--quick"));
}

/// The benchmark needs a feature, and asks for it itself.
#[cfg(not(feature = "throttle"))]
fn main() {
    let status = std::process::Command::new(env!("CARGO"))
        .args(["bench", "-p", "balde", "--features", "throttle"])
        .args(["--bench", "throttle", "--"])
        .args(std::env::args().skip(1).filter(|arg| arg != "--bench"))
        .status();
    let is_well = status.expect("cargo runs").success();
    std::process::exit(i32::from(!is_well));
}
