//! The state of a bucket at one time, as DICT or a gateway reports it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use balde_core::{EXACT_MAX, PERIOD_MAX_US};

/// The longest name of a participant, a policy or a category, in bytes.
pub const NAME_MAX: usize = 128;

/// The largest capacity, refill, level or debt of a sample, in tokens.
pub const TOKENS_MAX: u64 = EXACT_MAX;

/// The most policies that one poll may list.
pub const POLICIES_MAX: usize = 1_024;

/// The participant and the policy that identify a bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BucketId {
    participant: String,
    policy: String,
}

impl BucketId {
    /// Identifies the bucket of `participant` (an ISPB) under `policy`. Both are parts of event
    /// keys, so neither may be empty or contain a slash or a control character.
    pub fn new(
        participant: impl Into<String>,
        policy: impl Into<String>,
    ) -> Result<Self, SampleError> {
        Ok(Self {
            participant: name("participant", participant.into())?,
            policy: name("policy", policy.into())?,
        })
    }

    /// Returns the participant.
    pub fn participant(&self) -> &str {
        &self.participant
    }

    /// Returns the policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }
}

/// Capacity, refill and period of a bucket, as reported. Whether the refill is continuous or
/// stepwise is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReportedLimit {
    capacity: u64,
    refill_tokens: u64,
    period_us: u64,
}

impl ReportedLimit {
    /// Creates the limit of a bucket of `capacity` tokens that gains `refill_tokens` every
    /// `period_us`. A capacity or a refill of zero is accepted, because a blocked bucket must be
    /// visible.
    pub fn new(capacity: u64, refill_tokens: u64, period_us: u64) -> Result<Self, SampleError> {
        for (field, tokens) in [("capacity", capacity), ("refill", refill_tokens)] {
            if tokens > TOKENS_MAX {
                return Err(SampleError::TooManyTokens { field });
            }
        }
        if period_us == 0 || period_us > PERIOD_MAX_US {
            return Err(SampleError::Period { period_us });
        }
        Ok(Self {
            capacity,
            refill_tokens,
            period_us,
        })
    }

    /// [`new`](ReportedLimit::new) from the numbers of a response, which are signed and have the
    /// period in seconds.
    pub fn per_seconds(
        capacity: i64,
        refill_tokens: i64,
        period_s: i64,
    ) -> Result<Self, SampleError> {
        let positive =
            |field, value| u64::try_from(value).map_err(|_| SampleError::Negative { field, value });
        Self::new(
            positive("capacity", capacity)?,
            positive("refill", refill_tokens)?,
            positive("period", period_s)?.saturating_mul(1_000_000),
        )
    }

    /// Returns the capacity.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the tokens that are refilled in each period.
    pub const fn refill_tokens(&self) -> u64 {
        self.refill_tokens
    }

    /// Returns the period of the refill.
    pub const fn period_us(&self) -> u64 {
        self.period_us
    }

    /// The recovery time: how long until a bucket with this level is full again if nothing more is
    /// consumed, with an even refill. From an empty bucket that is (capacity / refill) × period. Zero
    /// for a full bucket; `None` if it never refills.
    pub fn recovery_us(&self, level: i64) -> Option<u64> {
        let missing = i128::from(self.capacity()) - i128::from(level);
        let missing = u128::try_from(missing).unwrap_or(0);
        if missing == 0 {
            return Some(0);
        }
        let us = missing.saturating_mul(u128::from(self.period_us()));
        let refill = u128::from(self.refill_tokens());
        let us = us
            .checked_add(refill.checked_sub(1)?)?
            .checked_div(refill)?;
        Some(u64::try_from(us).unwrap_or(u64::MAX))
    }
}

/// The state of one bucket at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    bucket: BucketId,
    limit: ReportedLimit,
    level: i64,
    category: Option<String>,
    taken_us: u64,
    answered_us: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_single: bool,
}

impl Sample {
    /// Creates a sample of `level` tokens, negative for debt, taken at `taken_us` of the monitor's
    /// clock. A level above the capacity is accepted.
    pub fn new(
        bucket: BucketId,
        limit: ReportedLimit,
        level: i64,
        taken_us: u64,
    ) -> Result<Self, SampleError> {
        if level.unsigned_abs() > TOKENS_MAX {
            return Err(SampleError::TooManyTokens { field: "level" });
        }
        if taken_us > i64::MAX.unsigned_abs() {
            return Err(SampleError::Time { at_us: taken_us });
        }
        Ok(Self {
            bucket,
            limit,
            level,
            category: None,
            taken_us,
            answered_us: None,
            is_single: false,
        })
    }

    /// Marks a sample that was read by itself: its response says nothing about other policies.
    pub fn read_singly(self) -> Self {
        Self {
            is_single: true,
            ..self
        }
    }

    /// Returns true if the sample was read by itself, and false if a response listed it.
    pub const fn is_single(&self) -> bool {
        self.is_single
    }

    /// Adds the participant's category.
    pub fn with_category(self, category: impl Into<String>) -> Result<Self, SampleError> {
        Ok(Self {
            category: Some(name("category", category.into())?),
            ..self
        })
    }

    /// Adds the time of the response by the clock of the server.
    pub fn answered_at(self, answered_us: u64) -> Result<Self, SampleError> {
        if answered_us > i64::MAX.unsigned_abs() {
            return Err(SampleError::Time { at_us: answered_us });
        }
        Ok(Self {
            answered_us: Some(answered_us),
            ..self
        })
    }

    /// Returns the bucket.
    pub const fn bucket(&self) -> &BucketId {
        &self.bucket
    }

    /// Returns capacity, refill and period at that time.
    pub const fn limit(&self) -> ReportedLimit {
        self.limit
    }

    /// Returns the tokens in the bucket; negative for debt.
    pub const fn level(&self) -> i64 {
        self.level
    }

    /// Returns the participant's category, if it was reported.
    pub fn category(&self) -> Option<&str> {
        self.category.as_deref()
    }

    /// Returns when the sample was taken, by the monitor's clock.
    pub const fn taken_us(&self) -> u64 {
        self.taken_us
    }

    /// Returns when the server responded, by its own clock, if it reported that.
    pub const fn answered_us(&self) -> Option<u64> {
        self.answered_us
    }

    /// Returns the time from this sample to a later one; `None` if the clock was set back.
    ///
    /// It is measured by the server's clock if both samples have its time: refills follow that clock,
    /// and it does not include the latency of responses. Otherwise by the monitor's clock.
    pub fn us_until(&self, later: &Self) -> Option<u64> {
        match (self.answered_us, later.answered_us) {
            (Some(from), Some(to)) => to.checked_sub(from),
            _ => later.taken_us.checked_sub(self.taken_us),
        }
    }
}

/// The samples of all buckets of one participant, from one response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedPoll")]
pub struct Poll {
    samples: Vec<Sample>,
}

/// A deserialized poll that has not been checked.
#[derive(Deserialize)]
struct UncheckedPoll {
    samples: Vec<Sample>,
}

impl TryFrom<UncheckedPoll> for Poll {
    type Error = SampleError;

    fn try_from(unchecked: UncheckedPoll) -> Result<Self, SampleError> {
        Self::new(unchecked.samples)
    }
}

impl Poll {
    /// Checks the samples of one response: at least one, all of one participant and time, and no
    /// policy twice. A response without policies does not mean that all of them were removed.
    pub fn new(samples: Vec<Sample>) -> Result<Self, SampleError> {
        let first = samples.first().ok_or(SampleError::NoPolicies)?;
        if samples.len() > POLICIES_MAX {
            return Err(SampleError::TooManyPolicies {
                policies: samples.len(),
            });
        }
        let mut seen = BTreeSet::new();
        for sample in &samples {
            if sample.bucket.participant != first.bucket.participant
                || sample.taken_us != first.taken_us
            {
                return Err(SampleError::Mixed);
            }
            if !seen.insert(sample.bucket.policy()) {
                return Err(SampleError::DuplicatePolicy {
                    policy: sample.bucket.policy.clone(),
                });
            }
        }
        Ok(Self { samples })
    }

    /// Returns the participant.
    pub fn participant(&self) -> &str {
        self.samples[0].bucket.participant()
    }

    /// Returns when the response arrived.
    pub fn taken_us(&self) -> u64 {
        self.samples[0].taken_us
    }

    /// Returns the samples, in the order of the response.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns true if the poll lists all policies of the participant, and false if it read one.
    pub fn is_list(&self) -> bool {
        !self.samples[0].is_single
    }

    /// Returns the sample of one policy.
    pub fn sample(&self, policy: &str) -> Option<&Sample> {
        self.samples
            .iter()
            .find(|sample| sample.bucket.policy == policy)
    }
}

/// Why a sample or a poll was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// A name is empty, too long, or contains a slash or a control character.
    #[error(
        "the {field} has {len} bytes; it needs 1 to {NAME_MAX}, without slash or control character"
    )]
    Name {
        /// Which name.
        field: &'static str,
        /// Its length in bytes.
        len: usize,
    },
    /// A number that must not be negative is negative.
    #[error("the {field} is {value}; only a level may be negative")]
    Negative {
        /// Which number.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// A number is larger than [`TOKENS_MAX`].
    #[error("the {field} is more than {TOKENS_MAX} tokens")]
    TooManyTokens {
        /// Which number.
        field: &'static str,
    },
    /// The period is zero or too long.
    #[error("the period of {period_us} µs is not between 1 and {PERIOD_MAX_US} µs")]
    Period {
        /// Its value.
        period_us: u64,
    },
    /// A time does not fit into a signed 64-bit number of microseconds.
    #[error("{at_us} µs since 1970 is too far in the future")]
    Time {
        /// Its value.
        at_us: u64,
    },
    /// The response lists no policy.
    #[error("the response lists no policy")]
    NoPolicies,
    /// The response lists more policies than [`POLICIES_MAX`].
    #[error("the response lists {policies} policies; at most {POLICIES_MAX} are allowed")]
    TooManyPolicies {
        /// Their number.
        policies: usize,
    },
    /// The samples are of several participants or times.
    #[error("the samples are not of one participant and one time")]
    Mixed,
    /// A policy is listed twice.
    #[error("policy {policy} is listed twice")]
    DuplicatePolicy {
        /// The policy.
        policy: String,
    },
}

fn name(field: &'static str, text: String) -> Result<String, SampleError> {
    let is_bad = |c: char| c == '/' || c.is_control();
    if text.is_empty() || text.len() > NAME_MAX || text.contains(is_bad) {
        return Err(SampleError::Name {
            field,
            len: text.len(),
        });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(policy: &str, level: i64) -> Sample {
        let limit = ReportedLimit::per_seconds(50, 10, 60).unwrap();
        Sample::new(BucketId::new("12345678", policy).unwrap(), limit, level, 7).unwrap()
    }

    #[test]
    fn debts_blocked_buckets_and_levels_above_capacity_are_samples() {
        assert_eq!(sample("A", -1_000_000).level(), -1_000_000);
        assert_eq!(sample("A", 51).level(), 51);
        assert!(ReportedLimit::per_seconds(0, 0, 60).is_ok());
    }

    #[test]
    fn invalid_samples_are_rejected_with_their_reason() {
        for (error, expected) in [
            (BucketId::new("", "A").unwrap_err(), "participant has 0"),
            (BucketId::new("1", "A/B").unwrap_err(), "policy has 3 bytes"),
            (
                BucketId::new("1", "A".repeat(129)).unwrap_err(),
                "129 bytes",
            ),
            (
                ReportedLimit::per_seconds(-1, 1, 60).unwrap_err(),
                "capacity is -1; only a level",
            ),
            (
                ReportedLimit::per_seconds(1, 1, 0).unwrap_err(),
                "period of 0",
            ),
            (
                ReportedLimit::per_seconds(i64::MAX, 1, 1).unwrap_err(),
                "capacity is more than",
            ),
            (
                ReportedLimit::per_seconds(1, 1, i64::MAX).unwrap_err(),
                "not between",
            ),
            (Poll::new(Vec::new()).unwrap_err(), "no policy"),
            (
                Poll::new(vec![sample("A", 1), sample("A", 2)]).unwrap_err(),
                "A is listed twice",
            ),
        ] {
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_deserialized_poll_is_checked() {
        let poll = Poll::new(vec![sample("A", -1)]).unwrap();
        let text = serde_json::to_string(&poll).unwrap();
        assert_eq!(serde_json::from_str::<Poll>(&text).unwrap(), poll);
        let error = serde_json::from_str::<Poll>(r#"{"samples": []}"#).unwrap_err();
        assert!(error.to_string().contains("no policy"), "{error}");
    }

    #[test]
    fn the_servers_clock_is_used_if_both_samples_have_it() {
        let early = sample("A", 1).answered_at(1_000).unwrap();
        let late = sample("A", 1).answered_at(5_000).unwrap();
        assert_eq!(early.us_until(&late), Some(4_000));
        assert_eq!(late.us_until(&early), None);
        assert_eq!(early.us_until(&sample("A", 1)), Some(0));
    }
}
