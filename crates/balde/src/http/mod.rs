//! What HTTP needs of a limiter: who is asking, and how the answer is told.

pub mod headers;
pub mod identity;
pub mod problem;

pub use headers::{HeaderOptions, HeaderWriter, Reset};
pub use identity::{ApiKey, ClientKey, Forwarded, Identity, NoKey, PeerAddr, UserId};
pub use problem::{Problem, ProblemFormat};
