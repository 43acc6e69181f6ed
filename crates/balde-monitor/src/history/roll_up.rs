//! The widths of roll-ups.

/// The width of a roll-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Hour,
    Day,
}

impl Width {
    pub(super) const ALL: [Self; 2] = [Self::Hour, Self::Day];

    pub(super) const fn s(self) -> u64 {
        match self {
            Self::Hour => 3_600,
            Self::Day => 86_400,
        }
    }

    pub(super) const fn us(self) -> u64 {
        self.s() * 1_000_000
    }

    /// Returns the start of the hour or day that contains `at_us`.
    pub(super) const fn start_us(self, at_us: u64) -> u64 {
        at_us - at_us % self.us()
    }
}
