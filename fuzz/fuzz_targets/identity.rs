//! Client identity from forwarded headers.

#![no_main]

#[path = "../../crates/balde/tests/fuzz_bodies/mod.rs"]
mod fuzz_bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::body("identity")(data));
