//! How messages are carried.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::delivery::Backoff;

/// The most sinks.
pub const SINKS_MAX: usize = 64;

/// The longest name of a sink, in bytes.
pub const SINK_NAME_MAX: usize = 64;

/// The most messages that may be on their way to one sink at once.
pub const CONCURRENT_MAX: usize = 64;

/// The longest that a shutdown may take.
const FINISH_MAX: Duration = Duration::from_secs(300);

/// How messages are carried, the same for all sinks.
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until dispatcher are made with them"]
pub struct DeliverySettings {
    pub(crate) backoff: Backoff,
    pub(crate) concurrent: usize,
    pub(crate) finish_within: Duration,
}

impl DeliverySettings {
    /// When to try again.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// How many episodes are delivered at once to one sink; four unless told otherwise.
    pub fn concurrent(mut self, episodes: usize) -> Self {
        self.concurrent = episodes;
        self
    }

    /// How long a shutdown waits for what is on its way; fifteen seconds unless told otherwise.
    pub fn finish_within(mut self, deadline: Duration) -> Self {
        self.finish_within = deadline;
        self
    }

    pub(crate) fn check<'a>(
        &self,
        names: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<(), DeliveryError> {
        if !(1..=CONCURRENT_MAX).contains(&self.concurrent) {
            let advice = "1 to 64 episodes can be delivered at once";
            return Err(DeliveryError::Setting { advice });
        }
        if self.finish_within > FINISH_MAX {
            let advice = "a shutdown may wait for five minutes at most";
            return Err(DeliveryError::Setting { advice });
        }
        if names.len() > SINKS_MAX {
            return Err(DeliveryError::TooManySinks { sinks: names.len() });
        }
        let mut seen = BTreeSet::new();
        for name in names {
            let is_bad = name.is_empty() || name.len() > SINK_NAME_MAX;
            if is_bad || name.contains(char::is_control) {
                return Err(DeliveryError::Name { len: name.len() });
            }
            if !seen.insert(name) {
                let name = name.to_owned();
                return Err(DeliveryError::Twice { name });
            }
        }
        Ok(())
    }
}

impl Default for DeliverySettings {
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            concurrent: 4,
            finish_within: Duration::from_secs(15),
        }
    }
}

/// Why there are no dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryError {
    /// A number that makes no sense.
    Setting {
        /// What it must be.
        advice: &'static str,
    },
    /// More sinks than [`SINKS_MAX`].
    TooManySinks {
        /// How many there were.
        sinks: usize,
    },
    /// A name is empty, too long, or holds a control character.
    Name {
        /// Its length in bytes.
        len: usize,
    },
    /// Two sinks have the same name.
    Twice {
        /// Which.
        name: String,
    },
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { advice } => f.write_str(advice),
            Self::TooManySinks { sinks } => {
                write!(f, "there are {sinks} sinks; {SINKS_MAX} is the most")
            }
            Self::Name { len } => write!(
                f,
                "the name of a sink has {len} bytes: it needs 1 to {SINK_NAME_MAX}, without \
                 control characters"
            ),
            Self::Twice { name } => write!(f, "two sinks are called {name}; rename one"),
        }
    }
}

impl std::error::Error for DeliveryError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_refused_with_their_reason() {
        let good = DeliverySettings::default;
        for (settings, names, expected) in [
            (good().concurrent(0), vec!["a"], "1 to 64"),
            (good().concurrent(65), vec!["a"], "1 to 64"),
            (
                good().finish_within(Duration::MAX),
                vec!["a"],
                "five minutes",
            ),
            (good(), vec!["a", "b", "a"], "two sinks are called a"),
            (good(), vec![""], "0 bytes"),
            (good(), vec!["x"; 65], "65 sinks"),
        ] {
            let error = settings.check(names.into_iter()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(good().check(["log", "chat"].into_iter()), Ok(()));
    }
}
