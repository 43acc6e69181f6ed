//! How bad a level is: four severities, and the shares of capacity at which they begin.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sample::ReportedLimit;

/// Hundredths of a percent in a whole.
pub const WHOLE_BP: u32 = 10_000;

/// How bad a bucket's level is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// Nothing to tell.
    #[default]
    Normal,
    /// Low.
    Warning,
    /// Nearly empty.
    Critical,
    /// Empty or in debt: requests are refused.
    Exhausted,
}

impl Severity {
    /// All of them, the mildest first.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Warning, Self::Critical, Self::Exhausted];

    /// The severity of a name, in capitals.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|severity| severity.name() == name)
    }

    /// The name users know: in keys, labels and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Exhausted => "EXHAUSTED",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// From which share of capacity left each severity holds, and how much more than that must be left
/// before it is over. EXHAUSTED holds from zero tokens for every policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_field_names, reason = "units come last, in every name")]
pub struct Thresholds {
    warning_bp: u32,
    critical_bp: u32,
    hysteresis_bp: u32,
}

impl Thresholds {
    /// WARNING at or below `warning_bp` hundredths of a percent of capacity left, CRITICAL at or
    /// below `critical_bp`; over when more than `hysteresis_bp` above that is left.
    ///
    /// ```
    /// use balde_monitor::severity::Thresholds;
    ///
    /// assert!(Thresholds::new(2_500, 1_000, 500).is_ok());
    /// // A warning that a full bucket does not end would never end.
    /// let error = Thresholds::new(9_800, 1_000, 500).unwrap_err();
    /// assert!(error.to_string().contains("would never end"));
    /// ```
    pub fn new(
        warning_bp: u32,
        critical_bp: u32,
        hysteresis_bp: u32,
    ) -> Result<Self, ThresholdsError> {
        if critical_bp > warning_bp {
            return Err(ThresholdsError::Order {
                warning_bp,
                critical_bp,
            });
        }
        if warning_bp.saturating_add(hysteresis_bp) >= WHOLE_BP {
            return Err(ThresholdsError::NeverOver {
                warning_bp,
                hysteresis_bp,
            });
        }
        Ok(Self {
            warning_bp,
            critical_bp,
            hysteresis_bp,
        })
    }

    /// How bad `level` is.
    pub fn severity(&self, level: i64, limit: ReportedLimit) -> Severity {
        self.severity_from(level, limit, 0)
    }

    /// How bad `level` still is for an alert that was raised already: the same with every
    /// threshold a band higher, so never milder than [`severity`](Thresholds::severity).
    pub fn severity_with_hysteresis(&self, level: i64, limit: ReportedLimit) -> Severity {
        self.severity_from(level, limit, self.hysteresis_bp)
    }

    /// The highest level in tokens that is at least this bad; nothing for NORMAL.
    pub fn tokens(&self, severity: Severity, limit: ReportedLimit) -> Option<i64> {
        self.tokens_from(severity, limit, 0)
    }

    fn severity_from(&self, level: i64, limit: ReportedLimit, above_bp: u32) -> Severity {
        let holds = |severity: &Severity| {
            self.tokens_from(*severity, limit, above_bp)
                .is_none_or(|tokens| level <= tokens)
        };
        let worst_first = Severity::ALL.into_iter().rev();
        worst_first.into_iter().find(holds).unwrap_or_default()
    }

    fn tokens_from(&self, severity: Severity, limit: ReportedLimit, above_bp: u32) -> Option<i64> {
        let share_bp = match severity {
            Severity::Normal => return None,
            Severity::Warning => self.warning_bp,
            Severity::Critical => self.critical_bp,
            Severity::Exhausted => 0,
        };
        let share = u128::from(limit.capacity()) * u128::from(share_bp + above_bp);
        // At most the capacity, which is far below the largest i64.
        Some(i64::try_from(share / u128::from(WHOLE_BP)).unwrap_or(i64::MAX))
    }
}

impl Default for Thresholds {
    /// WARNING at 25 % left, CRITICAL at 10 %, over at 5 % more.
    fn default() -> Self {
        Self {
            warning_bp: 2_500,
            critical_bp: 1_000,
            hysteresis_bp: 500,
        }
    }
}

/// Why thresholds were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThresholdsError {
    /// CRITICAL would come before WARNING.
    Order {
        /// The WARNING threshold.
        warning_bp: u32,
        /// The CRITICAL threshold.
        critical_bp: u32,
    },
    /// Even a full bucket would not end a warning.
    NeverOver {
        /// The WARNING threshold.
        warning_bp: u32,
        /// The band above it.
        hysteresis_bp: u32,
    },
}

impl fmt::Display for ThresholdsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order {
                warning_bp,
                critical_bp,
            } => write!(
                f,
                "CRITICAL at {critical_bp} basis points comes before WARNING at {warning_bp}; \
                 lower it"
            ),
            Self::NeverOver {
                warning_bp,
                hysteresis_bp,
            } => write!(
                f,
                "WARNING at {warning_bp} basis points with a band of {hysteresis_bp} would never end; \
                 together they must stay below {WHOLE_BP}"
            ),
        }
    }
}

impl std::error::Error for ThresholdsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_never_makes_a_level_milder_and_a_full_bucket_is_normal() {
        let thresholds = Thresholds::default();
        for capacity in 1..=300_u64 {
            let limit = ReportedLimit::new(capacity, 1, 1).unwrap();
            for level in -3..=capacity.cast_signed() {
                let bare = thresholds.severity(level, limit);
                assert!(thresholds.severity_with_hysteresis(level, limit) >= bare);
                assert_eq!(level <= 0, bare == Severity::Exhausted);
            }
            let full = thresholds.severity_with_hysteresis(capacity.cast_signed(), limit);
            assert_eq!(full, Severity::Normal, "{capacity}");
        }
    }

    #[test]
    fn a_bucket_without_capacity_is_exhausted() {
        let limit = ReportedLimit::new(0, 10, 1).unwrap();
        assert_eq!(
            Thresholds::default().severity(0, limit),
            Severity::Exhausted
        );
    }
}
