//! Changed options for limiters that are already in use.

use std::collections::BTreeMap;

#[cfg(feature = "redis")]
use super::limits::LimitOptions;
use super::limits::SharedParts;
use super::redis::SharedStore;
use super::{Limiters, Options};
use crate::error::{BuildError, InvalidLimit, TierError};

/// Why changed options cannot be applied to running limiters. The limiters have not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// A setting differs that is fixed when a limiter is built.
    #[error("{what} cannot be changed while the limiters are in use: restart the program")]
    NeedsRestart {
        /// The setting.
        what: String,
    },
    /// A new limiter cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A limiter does not accept its new limit.
    #[error(transparent)]
    Limit(#[from] InvalidLimit),
    /// A limiter does not accept the new limit of a tier.
    #[error(transparent)]
    Tier(#[from] TierError),
}

impl Options {
    /// Applies these options to limiters that were built from `before`. Limits that both have keep
    /// their buckets and get the new numbers, also of their tiers; new limits are built; limits that
    /// are gone are left out of the result. Everything else needs a restart.
    ///
    /// ```
    /// use balde::Options;
    ///
    /// let read = |text| Options::parse_with(text, "example.toml", |_variable| None);
    /// let before = read("[limits.users]\nlimit = \"10/min\"")?;
    /// let running = before.build()?;
    /// running.get("users").unwrap().blocking().check("alice");
    ///
    /// let changed = read("[limits.users]\nlimit = \"100/min\"")?;
    /// let running = changed.reload(&before, &running)?;
    /// assert_eq!(running.get("users").unwrap().blocking().check("alice").remaining(), 98);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reload(&self, before: &Self, running: &Limiters) -> Result<Limiters, ReloadError> {
        self.check_fixed(before)?;
        let store = SharedStore::of_running(running)?;
        let mut shared = SharedParts {
            store: &store,
            #[cfg(feature = "prometheus")]
            metrics: running.metrics.as_ref(),
            log_salt: self.log_salt.as_deref(),
            denials: self.logs.denials(),
            clocks: BTreeMap::new(),
        };
        // Everything that can fail for lack of room or a wrong name comes before the first change.
        let mut limiters = Vec::new();
        for limit in &self.limits {
            limiters.push(match running.get(limit.name()) {
                Some(limiter) => limiter.clone(),
                None => limit.build(&mut shared)?,
            });
        }
        for (limit, limiter) in self.limits.iter().zip(&limiters) {
            limit.apply(limiter)?;
        }
        Ok(Limiters {
            limiters,
            #[cfg(feature = "http")]
            http: self.http.clone(),
            #[cfg(feature = "redis")]
            store: store
                .0
                .filter(|_| self.limits.iter().any(LimitOptions::is_redis)),
            ..running.clone()
        })
    }

    /// Reports the first setting that cannot be changed.
    fn check_fixed(&self, before: &Self) -> Result<(), ReloadError> {
        let restart = |what: String| Err(ReloadError::NeedsRestart { what });
        if self.redis != before.redis {
            return restart("[redis]".to_owned());
        }
        for limit in &self.limits {
            let mut others = before.limits.iter();
            let Some(other) = others.find(|other| other.name() == limit.name()) else {
                continue;
            };
            if !limit.differs_in_numbers_only(other) {
                let name = limit.name();
                return restart(format!(
                    "what [limits.{name}] says besides the limit and the limits of its tiers"
                ));
            }
        }
        Ok(())
    }
}
