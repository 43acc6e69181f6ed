//! Rate-limit header fields: written by servers, read by clients.
//!
//! | Field | Contents |
//! |--|--|
//! | `X-RateLimit-Limit`, `-Remaining`, `-Reset` | one limit: the one with the longest wait on refusal, otherwise the one with the fewest tokens left |
//! | `RateLimit-Policy` | every limit: its name, quota `q` and window `w` |
//! | `RateLimit` | every bucket: the remaining tokens `r`, and the seconds `t` until that changes |
//! | `Retry-After` | on refusal, the whole seconds after which the same request passes |
//!
//! `RateLimit-Policy` and `RateLimit` follow draft-ietf-httpapi-ratelimit-headers-11 and are lists
//! of structured fields (RFC 9651). Nothing in this module reads a clock.

mod cache;
mod encode;
mod options;
#[cfg(any(test, feature = "tower"))]
mod prepared;
#[cfg(test)]
mod prepared_tests;
mod read;
#[cfg(any(test, feature = "tower"))]
mod template;
mod times;
mod writer;

pub use cache::CachedHeaders;
pub use options::{HeaderOptions, ResetFormat};
pub use read::{LimitStatus, RateLimitStatus, read};
pub use writer::write_retry_after;

#[cfg(feature = "tower")]
pub(crate) use prepared::PreparedWriter;
#[cfg(feature = "tower")]
pub(crate) use template::FieldValues;
pub(crate) use writer::{longest_wait, retry_after_s};
