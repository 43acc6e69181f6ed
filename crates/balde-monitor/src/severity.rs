//! The four severities, and the thresholds between them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sample::ReportedLimit;

/// 100 % in basis points (hundredths of a percent).
pub const WHOLE_BP: u32 = 10_000;

/// How critical the level of a bucket is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// Enough tokens are left.
    #[default]
    Normal,
    /// The level is low.
    Warning,
    /// The bucket is nearly empty.
    Critical,
    /// The bucket is empty or in debt, and requests are rejected.
    Exhausted,
}

impl Severity {
    /// All severities, the mildest first.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Warning, Self::Critical, Self::Exhausted];

    /// Parses a name in capitals.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|severity| severity.name() == name)
    }

    /// Returns the name in capitals, as in keys, labels and messages.
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

/// The share of capacity left at which each severity begins, and the hysteresis above it that ends
/// it. EXHAUSTED begins at zero tokens for every policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_field_names, reason = "units come last, in every name")]
pub struct Thresholds {
    warning_bp: u32,
    critical_bp: u32,
    exhausted_bp: u32,
    hysteresis_bp: u32,
}

impl Thresholds {
    /// WARNING begins at `warning_bp` basis points of capacity left and CRITICAL at `critical_bp`.
    /// Each ends when more than `hysteresis_bp` above its threshold is left.
    ///
    /// ```
    /// use balde_monitor::severity::Thresholds;
    ///
    /// assert!(Thresholds::new(2_500, 1_000, 500).is_ok());
    /// // Even a full bucket would not end this warning.
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
            return Err(ThresholdsError::NeverEnds {
                warning_bp,
                hysteresis_bp,
            });
        }
        Ok(Self {
            warning_bp,
            critical_bp,
            exhausted_bp: 0,
            hysteresis_bp,
        })
    }

    /// The remaining share of capacity at which WARNING begins, in basis points.
    pub const fn warning_bp(&self) -> u32 {
        self.warning_bp
    }

    /// The remaining share of capacity at which CRITICAL begins, in basis points.
    pub const fn critical_bp(&self) -> u32 {
        self.critical_bp
    }

    /// EXHAUSTED begins at `exhausted_bp` basis points of capacity left instead of zero tokens.
    pub fn with_exhausted(self, exhausted_bp: u32) -> Result<Self, ThresholdsError> {
        if exhausted_bp > self.critical_bp {
            return Err(ThresholdsError::ExhaustedOrder {
                critical_bp: self.critical_bp,
                exhausted_bp,
            });
        }
        Ok(Self {
            exhausted_bp,
            ..self
        })
    }

    /// Returns the severity of `level`.
    pub fn severity(&self, level: i64, limit: ReportedLimit) -> Severity {
        self.severity_from(level, limit, 0)
    }

    /// Returns the severity of `level` for an alert that is open: with every threshold raised by the
    /// hysteresis, so never milder than [`severity`](Thresholds::severity).
    pub fn severity_with_hysteresis(&self, level: i64, limit: ReportedLimit) -> Severity {
        self.severity_from(level, limit, self.hysteresis_bp)
    }

    /// Returns the highest level, in tokens, of a severity; `None` for NORMAL.
    pub fn tokens(&self, severity: Severity, limit: ReportedLimit) -> Option<i64> {
        self.tokens_from(severity, limit, 0)
    }

    fn severity_from(&self, level: i64, limit: ReportedLimit, above_bp: u32) -> Severity {
        let applies = |severity: &Severity| {
            self.tokens_from(*severity, limit, above_bp)
                .is_none_or(|tokens| level <= tokens)
        };
        let worst_first = Severity::ALL.into_iter().rev();
        worst_first.into_iter().find(applies).unwrap_or_default()
    }

    fn tokens_from(&self, severity: Severity, limit: ReportedLimit, above_bp: u32) -> Option<i64> {
        let share_bp = match severity {
            Severity::Normal => return None,
            Severity::Warning => self.warning_bp,
            Severity::Critical => self.critical_bp,
            Severity::Exhausted => self.exhausted_bp,
        };
        let share = u128::from(limit.capacity()) * u128::from(share_bp + above_bp);
        // The result is at most the capacity, which fits into an i64.
        Some(i64::try_from(share / u128::from(WHOLE_BP)).unwrap_or(i64::MAX))
    }
}

impl Default for Thresholds {
    /// WARNING at 25 % left, CRITICAL at 10 %, with a hysteresis of 5 %.
    fn default() -> Self {
        Self {
            warning_bp: 2_500,
            critical_bp: 1_000,
            exhausted_bp: 0,
            hysteresis_bp: 500,
        }
    }
}

/// Why thresholds were rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThresholdsError {
    /// The CRITICAL threshold is above the WARNING threshold.
    #[error(
        "CRITICAL at {} comes before WARNING at {}; lower it",
        percent(*.critical_bp),
        percent(*.warning_bp)
    )]
    Order {
        /// The WARNING threshold.
        warning_bp: u32,
        /// The CRITICAL threshold.
        critical_bp: u32,
    },
    /// The EXHAUSTED threshold is above the CRITICAL threshold.
    #[error(
        "EXHAUSTED at {} comes before CRITICAL at {}; lower it",
        percent(*.exhausted_bp),
        percent(*.critical_bp)
    )]
    ExhaustedOrder {
        /// The CRITICAL threshold.
        critical_bp: u32,
        /// The EXHAUSTED threshold.
        exhausted_bp: u32,
    },
    /// Even a full bucket would not end a warning.
    #[error(
        "WARNING at {} with a band of {} above it would never end; together they must be below 100 %",
        percent(*.warning_bp),
        percent(*.hysteresis_bp)
    )]
    NeverEnds {
        /// The WARNING threshold.
        warning_bp: u32,
        /// The hysteresis above it.
        hysteresis_bp: u32,
    },
}

/// Basis points as people write them: `10 %`, `2.5 %`.
fn percent(bp: u32) -> String {
    let (whole, rest) = (bp / 100, bp % 100);
    let rest = format!("{rest:02}");
    match rest.trim_end_matches('0') {
        "" => format!("{whole} %"),
        rest => format!("{whole}.{rest} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hysteresis_never_makes_a_level_milder_and_a_full_bucket_is_normal() {
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
    fn exhausted_may_begin_above_zero_and_errors_name_percent() {
        let limit = ReportedLimit::new(1_000, 1, 1).unwrap();
        let thresholds = Thresholds::default().with_exhausted(250).unwrap();
        assert_eq!(thresholds.severity(25, limit), Severity::Exhausted);
        assert_eq!(thresholds.severity(26, limit), Severity::Critical);
        let error = Thresholds::default().with_exhausted(1_250).unwrap_err();
        let text = "EXHAUSTED at 12.5 % comes before CRITICAL at 10 %; lower it";
        assert_eq!(error.to_string(), text);
        let error = Thresholds::new(500, 1_000, 500).unwrap_err();
        let text = "CRITICAL at 10 % comes before WARNING at 5 %; lower it";
        assert_eq!(error.to_string(), text);
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
