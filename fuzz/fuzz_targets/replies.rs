//! Replies of a Redis server, and values that somebody else has stored.

#![no_main]

#[path = "../../crates/balde/tests/fuzz_bodies/mod.rs"]
mod fuzz_bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::body("replies")(data));
