//! What HTTP needs of a limiter: who is asking, and how the answer is told.

pub mod headers;
pub mod identity;
pub mod problem;

pub use headers::{HeaderOptions, HeaderWriter, ResetFormat};
pub use identity::{ApiKey, ClientKey, ForwardedHeader, Identity, IdentityError, PeerAddr, UserId};
pub use problem::{Problem, ProblemFormat};

#[cfg(feature = "tower")]
mod layer;

#[cfg(feature = "tower")]
pub use layer::{
    RequestParts, RefusalCause, Outcome, RateLimit, RateLimitLayer, Refusal, ResponseBody, ResponseFuture, LimitRule,
    OnMissingKey,
};
