//! Rate limiting over HTTP: who sent a request, which header fields a response carries, what the
//! body of a refusal says, and a tower layer that does all of it.
//!
//! | Module | Contents |
//! |--|--|
//! | [`identity`] | the bucket key of the client that sent a request |
//! | [`headers`] | writing and reading `X-RateLimit-*`, `RateLimit`, `RateLimit-Policy` and `Retry-After` |
//! | [`problem`] | problem documents (RFC 9457) for refused requests |
//!
//! With the feature `tower`, `RateLimitLayer` limits any tower service. With the feature `axum`,
//! `serve` serves an axum app with the addresses of its callers. With the feature `tokio`,
//! `ConnectionSlots` limits the connections of a server.

mod descriptors;
pub mod headers;
pub mod identity;
mod outcome;
pub mod problem;

pub use descriptors::{DescriptorLimits, descriptor_limits};
pub use headers::{CachedHeaders, HeaderOptions, ResetFormat};
pub use identity::{
    ApiKey, ClientKey, ForwardedHeader, Identity, IdentityError, PeerAddr, UserId, is_forwarded,
};
pub use outcome::Outcome;
pub use problem::{Problem, ProblemFormat};

#[cfg(feature = "tokio")]
mod connections;
#[cfg(feature = "tower")]
mod layer;
#[cfg(feature = "tokio")]
mod listen;
#[cfg(feature = "tower")]
mod pipeline;
#[cfg(feature = "axum")]
mod serve;

#[cfg(feature = "tokio")]
pub use connections::{BusyConnection, ConnectionSlots, SlotStream};
#[cfg(feature = "tower")]
pub use layer::{LimitRule, LimitRules, OnMissingKey, RateLimitLayer};
#[cfg(feature = "tokio")]
pub use listen::listen;
#[cfg(feature = "tower")]
pub use pipeline::{
    Admission, Admit, Begun, Deciding, LayerOptions, RateLimit, Refusal, RefusalCause,
    RequestParts, RequestTicket, ResponseBody, ResponseFuture,
};
#[cfg(feature = "axum")]
pub use serve::serve;
