//! How many requests DICT's policies let through in the long run.

use std::fmt;
use std::str::FromStr;

use balde_core::Limit;

const MINUTE_US: u64 = 60_000_000;

/// The class of a policy by the tokens that its bucket regains in a minute.
///
/// Jobs are planned by it: writes of entries and claims are in the class [`High`](VolumeClass::High),
/// and a job may do them all day. Lists are in the class [`Low`](VolumeClass::Low), where a few calls
/// too many are refused for minutes.
///
/// ```
/// use balde_dict::{VolumeClass, profiles};
///
/// let profile = profiles::default();
/// let class = |name: &str| {
///     let policy = profile.policies().iter().find(|policy| policy.name() == name)?;
///     let (_category, limit) = policy.limits().iter().next()?;
///     Some(VolumeClass::new(name, limit))
/// };
/// assert_eq!(class("ENTRIES_WRITE"), Some(VolumeClass::High));
/// assert_eq!(class("CLAIMS_LIST_WITHOUT_ROLE"), Some(VolumeClass::Low));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VolumeClass {
    /// At least 1,000 tokens a minute: the core operations.
    High,
    /// At least 100 tokens a minute: reading single records.
    Medium,
    /// Fewer: lists, files and verifications.
    Low,
    /// Lookups of keys. Their rates depend on the payer and on the participant's category, and a key
    /// that does not exist costs several tokens.
    AntiScan,
}

impl VolumeClass {
    /// All classes, from the highest volume to the lowest, and then lookups.
    pub const ALL: [Self; 4] = [Self::High, Self::Medium, Self::Low, Self::AntiScan];

    /// The class of a policy with this name and limit.
    pub fn new(policy: &str, limit: &Limit) -> Self {
        if policy.contains("ANTISCAN") {
            return Self::AntiScan;
        }
        // The product is below 2^86.
        let in_a_minute = u128::from(limit.refill_tokens()) * u128::from(MINUTE_US)
            / u128::from(limit.period_us());
        match in_a_minute {
            1_000.. => Self::High,
            100..1_000 => Self::Medium,
            0..100 => Self::Low,
        }
    }

    /// `high`, `medium`, `low` or `antiscan`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
            Self::AntiScan => "antiscan",
        }
    }
}

impl fmt::Display for VolumeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The error is a sentence with the four words.
impl FromStr for VolumeClass {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let class = Self::ALL.into_iter().find(|class| class.as_str() == text);
        class.ok_or("write high, medium, low or antiscan")
    }
}
