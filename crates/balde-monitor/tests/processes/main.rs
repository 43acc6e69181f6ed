//! The monitor as whole processes that are killed: 200 times while buckets rise and fall, and one of
//! two that share a database.
//!
//! Each process is this test again, told by its environment that it is a monitor. All go by one
//! clock that is the world's, made faster: a number that every process works out for itself.

mod crash;
#[expect(dead_code, reason = "it answers well here")]
#[path = "../support/fake_dict.rs"]
mod fake_dict;
#[path = "../support/postgres.rs"]
#[expect(dead_code, reason = "nothing is stopped or restarted here")]
mod postgres;
mod receiver;
mod two_monitors;
mod worker;
