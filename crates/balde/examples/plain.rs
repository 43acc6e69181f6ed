//! A program without any async: `cargo run -p balde --example plain`.
//!
//! It checks fifteen times in a row, then does what a polite caller does: it waits for
//! `retry_after`, and is allowed.

use std::thread;

use balde::RateLimiter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = RateLimiter::new("5/s burst 10")?;
    let limiter = limiter.blocking();

    for request in 1..=15 {
        let decision = limiter.check("alice");
        match decision.retry_after() {
            None => println!("request {request}: ok, {} left", decision.remaining()),
            Some(wait) => {
                println!("request {request}: refused, wait {wait:?}");
                thread::sleep(wait);
                assert!(
                    limiter.check("alice").is_allowed(),
                    "the wait was long enough"
                );
                println!("request {request}: ok after waiting");
            }
        }
    }
    Ok(())
}
