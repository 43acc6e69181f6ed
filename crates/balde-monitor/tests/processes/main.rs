//! The monitor as processes that are killed: 200 times while a bucket rises and falls, and one of two
//! that share a database. And the monitor while its database fails.
//!
//! Each process is this test binary again, with environment variables that make it a monitor. All
//! use the system clock, accelerated by a common factor.

mod crash;
#[expect(dead_code, reason = "the category never changes here")]
#[path = "../support/fake_dict.rs"]
mod fake_dict;
mod few_descriptors;
#[path = "../support/postgres.rs"]
#[expect(dead_code, reason = "the tests of history need more of it")]
mod postgres;
mod receiver;
mod storage_faults;
mod two_monitors;
mod worker;
