//! What polling can miss.

/// What can be missed of a bucket between two samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// The policy.
    pub policy: String,
    /// The longest time between two samples of the bucket. It has been at WARNING or worse for at
    /// most this long without being seen.
    pub interval_us: u64,
    /// How long the bucket is certain to stay at WARNING or worse after it was emptied; `None` if it
    /// does not refill.
    pub unnoticed_us: Option<u64>,
}

impl Coverage {
    /// Returns true if the bucket cannot be emptied and recover between two samples.
    pub fn is_complete(&self) -> bool {
        self.unnoticed_us.is_none_or(|us| self.interval_us <= us)
    }
}
