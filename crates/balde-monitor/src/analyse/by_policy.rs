//! The analysis settings of each policy.

use crate::analyse::{AnalysisSettings, Credits};

/// Selects the [`AnalysisSettings`] of a policy: buckets that receive credits need different bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsByPolicy {
    plain: AnalysisSettings,
    credited: AnalysisSettings,
    credited_policies: Vec<String>,
}

impl SettingsByPolicy {
    /// Uses `settings` for all policies, with [`Credits::Possible`] for those whose name contains
    /// one of `credited_policies`.
    pub fn new(settings: &AnalysisSettings, credited_policies: Vec<String>) -> Self {
        Self {
            plain: settings.clone().with_credits(Credits::Never),
            credited: settings.clone().with_credits(Credits::Possible),
            credited_policies,
        }
    }

    /// Uses other settings for the same policies.
    pub fn with_settings(self, settings: &AnalysisSettings) -> Self {
        Self::new(settings, self.credited_policies)
    }

    /// The settings of a policy.
    pub fn settings(&self, policy: &str) -> &AnalysisSettings {
        let is_credited = |name: &String| policy.contains(name.as_str());
        if self.credited_policies.iter().any(is_credited) {
            &self.credited
        } else {
            &self.plain
        }
    }

    /// How far back an analysis needs samples: the longest window plus one gap.
    pub fn lookback_us(&self) -> u64 {
        let longest_us = self.plain.windows_us().last().copied().unwrap_or(0);
        longest_us.saturating_add(self.plain.gap_max_us())
    }
}

impl Default for SettingsByPolicy {
    /// The default settings. DICT credits tokens to its anti-scanning buckets.
    fn default() -> Self {
        Self::new(&AnalysisSettings::default(), vec!["ANTISCAN".to_owned()])
    }
}
