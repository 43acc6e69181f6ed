//! The load of payers by the hour of the day.

/// The simulated day begins at eight, whatever the real time is.
const BEGINS_MINUTES: u64 = 8 * 60;

/// Look-ups per minute by the hour of the day: few at night, most before lunch and after work.
const BY_HOUR: [u64; 24] = [
    8, 5, 4, 4, 6, 15, 40, 70, 100, 120, 140, 150, 140, 120, 120, 130, 140, 160, 170, 140, 100, 70,
    40, 20,
];

/// Microseconds between two look-ups, `since_us` after the start.
pub(super) fn between_payers_us(since_us: u64) -> u64 {
    const MINUTE_US: u64 = 60_000_000;
    let minutes = BEGINS_MINUTES + since_us / MINUTE_US;
    let hour = usize::try_from(minutes / 60 % 24).unwrap_or(0);
    MINUTE_US / BY_HOUR[hour]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_begins_at_eight_and_the_night_is_quiet() {
        const HOUR_US: u64 = 3_600_000_000;
        assert_eq!(between_payers_us(0), 600_000);
        assert_eq!(between_payers_us(10 * HOUR_US), 60_000_000 / 170);
        assert_eq!(between_payers_us(18 * HOUR_US), 15_000_000);
        assert_eq!(between_payers_us(24 * HOUR_US), between_payers_us(0));
    }
}
