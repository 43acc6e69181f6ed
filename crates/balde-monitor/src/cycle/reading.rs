//! How the samples of which policy are read.

use crate::analyse::{Credits, Settings};

/// How samples are read: buckets that payments give tokens back to otherwise than the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    plain: Settings,
    credited: Settings,
    credited_policies: Vec<String>,
}

impl Reading {
    /// All by `settings`; those whose policy's name contains one of `credited_policies` with
    /// credits possible.
    pub fn new(settings: &Settings, credited_policies: Vec<String>) -> Self {
        Self {
            plain: settings.clone().with_credits(Credits::Never),
            credited: settings.clone().with_credits(Credits::Possible),
            credited_policies,
        }
    }

    /// The settings for a policy.
    pub fn settings(&self, policy: &str) -> &Settings {
        let is_credited = |name: &String| policy.contains(name.as_str());
        if self.credited_policies.iter().any(is_credited) {
            &self.credited
        } else {
            &self.plain
        }
    }

    /// How far back samples matter: the longest horizon, and a sample before it.
    pub fn look_back_us(&self) -> u64 {
        let longest_us = self.plain.horizons_us().last().copied().unwrap_or(0);
        longest_us.saturating_add(self.plain.gap_us())
    }
}

impl Default for Reading {
    /// The default settings; DICT gives tokens back to the buckets against scanning.
    fn default() -> Self {
        Self::new(&Settings::default(), vec!["ANTISCAN".to_owned()])
    }
}
