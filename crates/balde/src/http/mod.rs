//! What HTTP needs of a limiter: who is asking, and how the answer is told.

pub mod headers;
pub mod identity;
pub mod problem;
