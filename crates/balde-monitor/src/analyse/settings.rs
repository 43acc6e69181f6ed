//! How samples are read.

use std::fmt;

use crate::analyse::Credits;

/// The most horizons.
pub const HORIZONS_MAX: usize = 16;

const MINUTE_US: u64 = 60_000_000;

/// How samples are read: horizons, gaps, clocks, credits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    horizons_us: Vec<u64>,
    gap_us: u64,
    moment_error_us: u64,
    credits: Credits,
}

impl Settings {
    /// The horizons of burn rates, ascending.
    pub fn horizons_us(&self) -> &[u64] {
        &self.horizons_us
    }

    /// Two samples further apart than this have a gap between them, which no rate bridges.
    pub const fn gap_us(&self) -> u64 {
        self.gap_us
    }

    /// How far the time between two samples may be from the time between the moments at which
    /// their levels were true: the other side's clock counts milliseconds, and reads it sometime
    /// while it answers.
    pub const fn moment_error_us(&self) -> u64 {
        self.moment_error_us
    }

    /// Whether credits raise the level.
    pub const fn credits(&self) -> Credits {
        self.credits
    }

    /// The same with other horizons, in any order.
    pub fn with_horizons_us(self, horizons_us: impl Into<Vec<u64>>) -> Result<Self, HorizonsError> {
        let mut horizons_us = horizons_us.into();
        horizons_us.sort_unstable();
        horizons_us.dedup();
        let is_bad = horizons_us.is_empty() || horizons_us.len() > HORIZONS_MAX;
        if is_bad || horizons_us[0] == 0 {
            return Err(HorizonsError);
        }
        Ok(Self {
            horizons_us,
            ..self
        })
    }

    /// The same with another longest distance between samples that belong together.
    pub fn with_gap_us(self, gap_us: u64) -> Self {
        Self { gap_us, ..self }
    }

    /// The same with another error of the time between samples.
    pub fn with_moment_error_us(self, moment_error_us: u64) -> Self {
        Self {
            moment_error_us,
            ..self
        }
    }

    /// The same for a bucket with or without credits.
    pub fn with_credits(self, credits: Credits) -> Self {
        Self { credits, ..self }
    }
}

impl Default for Settings {
    /// Horizons of 1, 5, 15 and 60 minutes, gaps from 15 minutes on, a second of error, no credits.
    fn default() -> Self {
        Self {
            horizons_us: [1, 5, 15, 60].map(|minutes| minutes * MINUTE_US).to_vec(),
            gap_us: 15 * MINUTE_US,
            moment_error_us: 1_000_000,
            credits: Credits::Never,
        }
    }
}

/// There are no horizons, more than [`HORIZONS_MAX`], or one of no length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HorizonsError;

impl fmt::Display for HorizonsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "name 1 to {HORIZONS_MAX} horizons, each longer than zero"
        )
    }
}

impl std::error::Error for HorizonsError {}
