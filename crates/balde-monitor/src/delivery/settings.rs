//! The settings of deliveries, and why they may be rejected.

use std::collections::BTreeSet;
use std::time::Duration;

use balde::Backoff;

use crate::sink::Wording;

/// The most sinks.
pub const SINKS_MAX: usize = 64;

/// The longest name of a sink, in bytes.
pub const SINK_NAME_MAX: usize = 64;

/// The most messages that may be in flight to one sink.
pub const CONCURRENT_MAX: usize = 64;

/// The longest that a shutdown may wait.
const SHUTDOWN_TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// The settings of deliveries, the same for all sinks.
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until a dispatcher is made with them"]
pub struct DeliverySettings {
    pub(super) backoff: Backoff,
    pub(super) concurrent: usize,
    pub(super) shutdown_timeout: Duration,
    pub(super) wording: Wording,
}

impl DeliverySettings {
    /// Sets the backoff of retries. By default it doubles from one second to five minutes.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets how many messages may be in flight to one sink, each of another episode. By default 4.
    pub fn concurrent(mut self, messages: usize) -> Self {
        self.concurrent = messages;
        self
    }

    /// Sets how long a shutdown waits for messages in flight. By default 15 seconds.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Sets the language of texts and the address of the runbook.
    pub fn wording(mut self, wording: Wording) -> Self {
        self.wording = wording;
        self
    }

    pub(super) fn check<'a>(
        &self,
        names: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<(), DeliveryError> {
        if !(1..=CONCURRENT_MAX).contains(&self.concurrent) {
            let advice = "1 to 64 messages may be in flight to one sink";
            return Err(DeliveryError::Setting { advice });
        }
        if self.shutdown_timeout > SHUTDOWN_TIMEOUT_MAX {
            let advice = "the shutdown timeout may be five minutes at most";
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
                return Err(DeliveryError::DuplicateName { name });
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
            shutdown_timeout: Duration::from_secs(15),
            wording: Wording::default(),
        }
    }
}

/// Why a dispatcher could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// A setting is out of range.
    #[error("{advice}")]
    Setting {
        /// The range.
        advice: &'static str,
    },
    /// There are more sinks than [`SINKS_MAX`].
    #[error("there are {sinks} sinks; at most {SINKS_MAX} are allowed")]
    TooManySinks {
        /// The number of sinks.
        sinks: usize,
    },
    /// A name is empty, too long, or holds a control character.
    #[error(
        "the name of a sink has {len} bytes; it needs 1 to {SINK_NAME_MAX}, without control \
         characters"
    )]
    Name {
        /// Its length in bytes.
        len: usize,
    },
    /// Two sinks have the same name.
    #[error("two sinks are called {name}; rename one")]
    DuplicateName {
        /// The name.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_rejected_with_their_reason() {
        let good = DeliverySettings::default;
        for (settings, names, expected) in [
            (good().concurrent(0), vec!["a"], "1 to 64"),
            (good().concurrent(65), vec!["a"], "1 to 64"),
            (
                good().shutdown_timeout(Duration::MAX),
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
