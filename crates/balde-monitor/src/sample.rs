//! A bucket's state at a time, as DICT or a gateway told it.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use balde_core::{EXACT_MAX, PERIOD_MAX_US};

/// The longest name of a participant, a policy or a category, in bytes.
pub const NAME_MAX: usize = 128;

/// The most tokens, owned or owed, that a sample may speak of.
pub const TOKENS_MAX: u64 = EXACT_MAX;

/// The most policies that one answer may list.
pub const POLICIES_MAX: usize = 1_024;

/// Whose bucket, under which policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BucketId {
    participant: String,
    policy: String,
}

impl BucketId {
    /// The bucket of `participant` (an ISPB) under `policy`. Both become part of the keys by which
    /// alerts are told apart, so neither may be empty, hold a slash or a control character.
    pub fn new(
        participant: impl Into<String>,
        policy: impl Into<String>,
    ) -> Result<Self, SampleError> {
        Ok(Self {
            participant: name("participant", participant.into())?,
            policy: name("policy", policy.into())?,
        })
    }

    /// The participant.
    pub fn participant(&self) -> &str {
        &self.participant
    }

    /// The policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }
}

/// Capacity, refill and period as told. Nobody tells whether the refill is continuous or stepwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReportedLimit {
    capacity: u64,
    refill_tokens: u64,
    period_us: u64,
}

impl ReportedLimit {
    /// A bucket of `capacity` tokens that gains `refill_tokens` every `period_us`. A capacity or a
    /// refill of zero is strange and accepted: a blocked bucket is one that must be seen.
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

    /// [`new`](ReportedLimit::new) with the period in seconds and the signs of the wire, on which every
    /// number may be negative.
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

    /// The most the bucket holds.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Tokens that come back in a period.
    pub const fn refill_tokens(&self) -> u64 {
        self.refill_tokens
    }

    /// That period.
    pub const fn period_us(&self) -> u64 {
        self.period_us
    }
}

/// What one bucket was at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    bucket: BucketId,
    limit: ReportedLimit,
    level: i64,
    category: Option<String>,
    taken_us: u64,
    answered_us: Option<u64>,
}

impl Sample {
    /// `level` tokens, negative in debt, as of `taken_us` on the monitor's clock. A level above
    /// capacity is accepted, for nobody promised that a credit stops there.
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
        })
    }

    /// The same, with the participant's category.
    pub fn with_category(self, category: impl Into<String>) -> Result<Self, SampleError> {
        Ok(Self {
            category: Some(name("category", category.into())?),
            ..self
        })
    }

    /// The same, with the response time of the answer, on the clock of whoever answered.
    pub fn answered_at(self, answered_us: u64) -> Result<Self, SampleError> {
        if answered_us > i64::MAX.unsigned_abs() {
            return Err(SampleError::Time { at_us: answered_us });
        }
        Ok(Self {
            answered_us: Some(answered_us),
            ..self
        })
    }

    /// Whose bucket this is.
    pub const fn bucket(&self) -> &BucketId {
        &self.bucket
    }

    /// Capacity, refill and period at that time.
    pub const fn limit(&self) -> ReportedLimit {
        self.limit
    }

    /// Tokens in the bucket; negative is debt.
    pub const fn level(&self) -> i64 {
        self.level
    }

    /// The participant's category, if it was told.
    pub fn category(&self) -> Option<&str> {
        self.category.as_deref()
    }

    /// When the monitor took it.
    pub const fn taken_us(&self) -> u64 {
        self.taken_us
    }

    /// When the other side answered, by its own clock, if it said so.
    pub const fn answered_us(&self) -> Option<u64> {
        self.answered_us
    }

    /// The time from this sample to a later one; nothing when the clock went back. The other
    /// side's clock is asked first: its refill runs by it, and the way back of an answer is not in
    /// it. Offsets between the two clocks cancel, because both ends are read from the same one.
    pub fn us_until(&self, later: &Self) -> Option<u64> {
        match (self.answered_us, later.answered_us) {
            (Some(from), Some(to)) => to.checked_sub(from),
            _ => later.taken_us.checked_sub(self.taken_us),
        }
    }
}

/// All buckets of one participant, as one answer listed them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedPoll")]
pub struct Poll {
    samples: Vec<Sample>,
}

/// What a poll is read from, before it is known to be one.
#[derive(Deserialize)]
struct UncheckedPoll {
    samples: Vec<Sample>,
}

impl TryFrom<UncheckedPoll> for Poll {
    type Error = SampleError;

    fn try_from(told: UncheckedPoll) -> Result<Self, SampleError> {
        Self::new(told.samples)
    }
}

impl Poll {
    /// The samples of one answer: at least one, all of one participant and one moment, no policy
    /// twice. An answer without policies is no news that all of them vanished.
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
                return Err(SampleError::Twice {
                    policy: sample.bucket.policy.clone(),
                });
            }
        }
        Ok(Self { samples })
    }

    /// Whose buckets these are.
    pub fn participant(&self) -> &str {
        self.samples[0].bucket.participant()
    }

    /// When the answer came.
    pub fn taken_us(&self) -> u64 {
        self.samples[0].taken_us
    }

    /// The samples, in the order of the answer.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The sample of one policy.
    pub fn sample(&self, policy: &str) -> Option<&Sample> {
        self.samples
            .iter()
            .find(|sample| sample.bucket.policy == policy)
    }
}

/// Why something told is no sample.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SampleError {
    /// A name is empty, too long, or holds a slash or a control character.
    Name {
        /// Which name.
        field: &'static str,
        /// Its length in bytes.
        len: usize,
    },
    /// A number that cannot be negative is.
    Negative {
        /// Which number.
        field: &'static str,
        /// What it was.
        value: i64,
    },
    /// More tokens than [`TOKENS_MAX`].
    TooManyTokens {
        /// Of what.
        field: &'static str,
    },
    /// The period is zero or too long.
    Period {
        /// What it was.
        period_us: u64,
    },
    /// A time beyond what a signed 64-bit count of microseconds reaches.
    Time {
        /// What it was.
        at_us: u64,
    },
    /// An answer without any policy.
    NoPolicies,
    /// An answer with more policies than [`POLICIES_MAX`].
    TooManyPolicies {
        /// How many there were.
        policies: usize,
    },
    /// Samples of several participants or moments in one answer.
    Mixed,
    /// A policy listed twice.
    Twice {
        /// Which.
        policy: String,
    },
}

impl fmt::Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { field, len } => write!(
                f,
                "the {field} has {len} bytes: it needs 1 to {NAME_MAX}, without slash or control \
                 character"
            ),
            Self::Negative { field, value } => {
                write!(f, "the {field} is {value}; only a level may be negative")
            }
            Self::TooManyTokens { field } => {
                write!(f, "the {field} is beyond {TOKENS_MAX} tokens")
            }
            Self::Period { period_us } => write!(
                f,
                "a period of {period_us} µs is not between 1 and {PERIOD_MAX_US} µs"
            ),
            Self::Time { at_us } => write!(f, "{at_us} µs since 1970 is too far in the future"),
            Self::NoPolicies => f.write_str("the answer lists no policy"),
            Self::TooManyPolicies { policies } => write!(
                f,
                "the answer lists {policies} policies; {POLICIES_MAX} is the most"
            ),
            Self::Mixed => f.write_str("the samples are not of one participant and one moment"),
            Self::Twice { policy } => write!(f, "policy {policy} is listed twice"),
        }
    }
}

impl std::error::Error for SampleError {}

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
    fn what_no_bucket_can_be_is_refused_with_its_reason() {
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
                "capacity is beyond",
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
    fn a_poll_that_was_written_down_is_checked_again_when_it_is_read() {
        let poll = Poll::new(vec![sample("A", -1)]).unwrap();
        let text = serde_json::to_string(&poll).unwrap();
        assert_eq!(serde_json::from_str::<Poll>(&text).unwrap(), poll);
        let error = serde_json::from_str::<Poll>(r#"{"samples": []}"#).unwrap_err();
        assert!(error.to_string().contains("no policy"), "{error}");
    }

    #[test]
    fn the_other_sides_clock_counts_where_both_samples_have_it() {
        let early = sample("A", 1).answered_at(1_000).unwrap();
        let late = sample("A", 1).answered_at(5_000).unwrap();
        assert_eq!(early.us_until(&late), Some(4_000));
        assert_eq!(late.us_until(&early), None);
        assert_eq!(early.us_until(&sample("A", 1)), Some(0));
    }
}
