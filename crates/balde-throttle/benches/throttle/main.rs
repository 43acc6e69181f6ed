//! The throttler beside the leaky-bucket crate: `cargo bench -p balde-throttle --bench throttle`.
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

mod run;

fn main() {
    run::run(std::env::args().any(|arg| arg == "--quick"));
}
