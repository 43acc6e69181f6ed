//! The throttler beside the leaky-bucket crate: `cargo bench -p balde-throttle --bench throttle`.
//!
//! All candidates run in turn within each round, so that other load on the machine affects them alike. A
//! figure is the median over the rounds, a ratio the median of the ratios within a round. No timing makes
//! the benchmark fail.
//!
//! - *leaky-bucket* is fair, its default, as a throttler has to be; *unfair* is its mode without an order.
//!   It has one bucket and no partitions.
//! - *by name* looks the partition up with every call, *by handle* does not.
//!
//! `--quick` runs a short version that writes no report.

mod run;

fn main() {
    run::run(std::env::args().any(|arg| arg == "--quick"));
}
