//! How the samples of which policy are read.

use crate::analyse::{AnalysisSettings, Credits};

/// How samples are read: buckets that payments give tokens back to otherwise than the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsByPolicy {
    plain: AnalysisSettings,
    credited: AnalysisSettings,
    credited_policies: Vec<String>,
}

impl SettingsByPolicy {
    /// All by `settings`; those whose policy's name contains one of `credited_policies` with
    /// credits possible.
    pub fn new(settings: &AnalysisSettings, credited_policies: Vec<String>) -> Self {
        Self {
            plain: settings.clone().with_credits(Credits::Never),
            credited: settings.clone().with_credits(Credits::Possible),
            credited_policies,
        }
    }

    /// The settings for a policy.
    pub fn settings(&self, policy: &str) -> &AnalysisSettings {
        let is_credited = |name: &String| policy.contains(name.as_str());
        if self.credited_policies.iter().any(is_credited) {
            &self.credited
        } else {
            &self.plain
        }
    }

    /// How far back samples matter: the longest window, and a sample before it.
    pub fn lookback_us(&self) -> u64 {
        let longest_us = self.plain.windows_us().last().copied().unwrap_or(0);
        longest_us.saturating_add(self.plain.gap_max_us())
    }
}

impl Default for SettingsByPolicy {
    /// The default settings; DICT gives tokens back to the buckets against scanning.
    fn default() -> Self {
        Self::new(&AnalysisSettings::default(), vec!["ANTISCAN".to_owned()])
    }
}
