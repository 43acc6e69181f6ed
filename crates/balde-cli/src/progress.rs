//! Lines about work that takes long, so that a service that does not answer yet is not taken for one
//! that hangs.

use std::time::{Duration, Instant};

use crate::output::Output;

/// How often a line is written. Work that is done sooner writes none.
const EVERY: Duration = Duration::from_secs(2);

/// Entries that are being created.
pub(crate) struct Progress {
    last: Instant,
}

impl Progress {
    pub(crate) const fn start(now: Instant) -> Self {
        Self { last: now }
    }

    /// Writes how many entries there are, if the last line is long enough ago.
    pub(crate) fn tell(&mut self, output: Output, done: usize, total: usize) {
        if let Some(line) = self.line(Instant::now(), done, total) {
            output.tell("seeding", line);
        }
    }

    fn line(&mut self, now: Instant, done: usize, total: usize) -> Option<String> {
        if now.duration_since(self.last) < EVERY {
            return None;
        }
        self.last = now;
        let percent = 100 * done / total.max(1);
        Some(format!("{done} of {total} entries created ({percent} %)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_every_two_seconds() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut progress = Progress::start(begin);
        assert_eq!(progress.line(at(1_999), 400, 1_000), None);
        let line = progress.line(at(2_000), 401, 1_000);
        assert_eq!(line.as_deref(), Some("401 of 1000 entries created (40 %)"));
        assert_eq!(progress.line(at(3_999), 800, 1_000), None);
        let line = progress.line(at(4_100), 1_000, 1_000);
        assert_eq!(
            line.as_deref(),
            Some("1000 of 1000 entries created (100 %)")
        );
    }
}
