//! How an admitted request ended.

use crate::policy::PriceList;

/// How an admitted request ended. [`Ticket::settle`](crate::Ticket::settle) charges the price of
/// the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It was answered with this HTTP status.
    Status(u16),
    /// It failed without an answer.
    Failed,
    /// It was given up: the client disconnected, a timeout fired or the server shut down.
    Abandoned,
    /// It never reached the server that would have processed it, and costs nothing.
    NotSent,
    /// It was sent, and whether it was processed is not known. It costs the highest price of the
    /// list.
    Unknown,
}

impl PriceList {
    /// What a request with this outcome costs.
    pub fn price(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Status(status) => self.cost(status),
            Outcome::Failed | Outcome::Abandoned => self.unanswered(),
            Outcome::NotSent => 0,
            Outcome::Unknown => self.highest(),
        }
    }
}
