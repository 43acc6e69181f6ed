//! How samples are read.

use std::fmt;

use crate::analyse::Credits;

/// The most windows.
pub const WINDOWS_MAX: usize = 16;

const MINUTE_US: u64 = 60_000_000;

/// How samples are read: windows, gaps, clocks, credits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisSettings {
    windows_us: Vec<u64>,
    gap_max_us: u64,
    timestamp_error_us: u64,
    credits: Credits,
}

impl AnalysisSettings {
    /// The windows of burn rates, ascending.
    pub fn windows_us(&self) -> &[u64] {
        &self.windows_us
    }

    /// Two samples further apart than this have a gap between them, which no rate bridges.
    pub const fn gap_max_us(&self) -> u64 {
        self.gap_max_us
    }

    /// How far the time between two samples may be from the time between the moments at which
    /// their levels were true: the other side's clock counts milliseconds, and reads it sometime
    /// while it answers.
    pub const fn timestamp_error_us(&self) -> u64 {
        self.timestamp_error_us
    }

    /// Whether credits raise the level.
    pub const fn credits(&self) -> Credits {
        self.credits
    }

    /// The same with other windows, in any order.
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

    /// The same with another longest distance between samples that belong together.
    pub fn with_gap_max_us(self, gap_max_us: u64) -> Self {
        Self { gap_max_us, ..self }
    }

    /// The same with another error of the time between samples.
    pub fn with_timestamp_error_us(self, timestamp_error_us: u64) -> Self {
        Self {
            timestamp_error_us,
            ..self
        }
    }

    /// The same for a bucket with or without credits.
    pub fn with_credits(self, credits: Credits) -> Self {
        Self { credits, ..self }
    }
}

impl Default for AnalysisSettings {
    /// Horizons of 1, 5, 15 and 60 minutes, gaps from 15 minutes on, a second of error, no credits.
    fn default() -> Self {
        Self {
            windows_us: [1, 5, 15, 60].map(|minutes| minutes * MINUTE_US).to_vec(),
            gap_max_us: 15 * MINUTE_US,
            timestamp_error_us: 1_000_000,
            credits: Credits::Never,
        }
    }
}

/// There are no windows, more than [`WINDOWS_MAX`], or one of no length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowsError;

impl fmt::Display for WindowsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name 1 to {WINDOWS_MAX} windows, each longer than zero")
    }
}

impl std::error::Error for WindowsError {}
