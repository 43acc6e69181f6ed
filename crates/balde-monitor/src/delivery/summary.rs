//! The result of one pass over the outbox.

/// What one pass over the outbox did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliverySummary {
    /// Messages that were delivered.
    pub delivered: u64,
    /// Messages that were not delivered, and will be retried.
    pub failed: u64,
    /// Sinks that did not finish within the time limit.
    pub unfinished: u64,
}
