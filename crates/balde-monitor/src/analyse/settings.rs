//! Settings of the analysis.

use crate::analyse::Credits;

/// The most look-back windows.
pub const WINDOWS_MAX: usize = 16;

const MINUTE_US: u64 = 60_000_000;

/// Settings of the analysis: look-back windows, gaps, clock error, credits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisSettings {
    windows_us: Vec<u64>,
    gap_max_us: u64,
    timestamp_error_us: u64,
    credits: Credits,
}

impl AnalysisSettings {
    /// The look-back windows of the burn rates, ascending.
    pub fn windows_us(&self) -> &[u64] {
        &self.windows_us
    }

    /// The longest time between two consecutive samples. A longer gap ends every window.
    pub const fn gap_max_us(&self) -> u64 {
        self.gap_max_us
    }

    /// The error of the time between two samples. The server's clock has a resolution of
    /// milliseconds and is read at an unknown moment of the request.
    pub const fn timestamp_error_us(&self) -> u64 {
        self.timestamp_error_us
    }

    /// Whether credits can raise the level.
    pub const fn credits(&self) -> Credits {
        self.credits
    }

    /// Sets the look-back windows, in any order.
    pub fn with_windows_us(self, windows_us: impl Into<Vec<u64>>) -> Result<Self, WindowsError> {
        let mut windows_us = windows_us.into();
        windows_us.sort_unstable();
        windows_us.dedup();
        let is_bad = windows_us.is_empty() || windows_us.len() > WINDOWS_MAX;
        if is_bad || windows_us[0] == 0 {
            return Err(WindowsError);
        }
        Ok(Self { windows_us, ..self })
    }

    /// Sets the longest time between two consecutive samples.
    pub fn with_gap_max_us(self, gap_max_us: u64) -> Self {
        Self { gap_max_us, ..self }
    }

    /// Sets the error of the time between two samples.
    pub fn with_timestamp_error_us(self, timestamp_error_us: u64) -> Self {
        Self {
            timestamp_error_us,
            ..self
        }
    }

    /// Sets whether credits can raise the level.
    pub fn with_credits(self, credits: Credits) -> Self {
        Self { credits, ..self }
    }
}

impl Default for AnalysisSettings {
    /// Windows of 1, 5, 15 and 60 minutes, gaps of up to 15 minutes, an error of one second, no
    /// credits.
    fn default() -> Self {
        Self {
            windows_us: [1, 5, 15, 60].map(|minutes| minutes * MINUTE_US).to_vec(),
            gap_max_us: 15 * MINUTE_US,
            timestamp_error_us: 1_000_000,
            credits: Credits::Never,
        }
    }
}

/// The error returned for no windows, more than [`WINDOWS_MAX`] windows, or a window of length zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("name 1 to {WINDOWS_MAX} windows, each longer than zero")]
pub struct WindowsError;
