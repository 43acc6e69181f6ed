//! The fields that tell callers how they stand, written by servers and read by clients.
//!
//! | Field | Says |
//! |--|--|
//! | `X-RateLimit-Limit`, `-Remaining`, `-Reset` | one limit: the one that refuses longest, else the one with least left |
//! | `RateLimit-Policy` | every limit: its name, quota `q` and window `w` |
//! | `RateLimit` | every bucket: what remains (`r`), and the seconds `t` until that changes |
//! | `Retry-After` | on refusal, the whole seconds after which the same request passes |
//!
//! `RateLimit-Policy` and `RateLimit` follow draft-ietf-httpapi-ratelimit-headers-11 and are lists
//! of RFC 9651. Nothing here reads a clock.

mod encode;
mod values;
mod template;
mod read;
mod write;

pub use encode::{INTEGER_MAX, NAME_BYTES_MAX};
#[cfg(feature = "tower")]
pub(crate) use values::FieldValues;
pub use read::{DURATION_MAX, FIELD_BYTES_MAX, LIMITS_MAX, RateLimitStatus, LimitStatus, read};
pub(crate) use write::retry_after_s;
pub use write::{HeaderOptions, HeaderWriter, ResetFormat};
