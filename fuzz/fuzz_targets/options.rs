//! Options files.

#![no_main]

#[path = "../../crates/balde/tests/fuzz_bodies/mod.rs"]
mod fuzz_bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::body("options")(data));
