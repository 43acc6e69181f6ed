//! The section `[limits]`: the numbers of each limit, where its buckets are kept, and what happens
//! while that store is unavailable.

use std::collections::BTreeMap;
use std::time::Duration;

use balde_config::{Diagnostics, Section};
use balde_core::Limit;

use super::logs;
use super::redis::SharedStore;
use super::storage::{SectionContext, StorageChoice};
use super::strategy;
use super::{LIMITS_MAX, Need};
use crate::clock::Clock;
use crate::error::{BuildError, InvalidLimit, KEYS_MAX_MAX, TierError};
use crate::failure::Share;
#[cfg(feature = "redis")]
use crate::lease::Leases;
use crate::limiter::{KEYS_MAX_DEFAULT, ONCE_TTL_MAX, ONCE_TTL_MIN, RateLimiter};
use crate::telemetry::Denials;
#[cfg(feature = "prometheus")]
use crate::telemetry::Metrics;

/// The intervals that [`Clock::cached`] accepts.
const CLOCK_INTERVAL_MIN: Duration = Duration::from_micros(50);
const CLOCK_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// The longest name of a limit.
const NAME_BYTES_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct LimitOptions {
    name: String,
    limit: Limit,
    tiers: Vec<(String, Limit)>,
    keys_max: usize,
    waiters_max: Option<usize>,
    clock: ClockChoice,
    once_ttl: Option<Duration>,
    hash_tag: Option<String>,
    denials: Option<Denials>,
    storage: StorageChoice,
    leases: Option<LeaseOptions>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ClockChoice {
    Precise,
    Wall,
    Cached(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct LeaseOptions {
    share: Option<Share>,
    keys_max: Option<usize>,
}

/// What the limiters of one file share.
pub(super) struct SharedParts<'a> {
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "there is no store without the feature")
    )]
    pub(super) store: &'a SharedStore,
    #[cfg(feature = "prometheus")]
    pub(super) metrics: Option<&'a Metrics>,
    pub(super) log_salt: Option<&'a str>,
    pub(super) denials: Denials,
    /// A cached clock has a thread, so limits with the same interval share one.
    pub(super) clocks: BTreeMap<Duration, Clock>,
}

/// Reads `[limits]`.
pub(super) fn read(
    root: &mut Section<'_>,
    context: &SectionContext<'_>,
    need: Need,
    diagnostics: &mut Diagnostics,
) -> Vec<LimitOptions> {
    const NO_LIMIT: &str = "there is no limit; write [limits.NAME] with limit = \"10/s\" in it";
    let Some(limits) = root.get("limits") else {
        if need == Need::Limits {
            diagnostics.at(None, NO_LIMIT);
        }
        return Vec::new();
    };
    let Some(limits) = limits.table(diagnostics) else {
        return Vec::new();
    };
    let entries = limits.entries();
    if entries.is_empty() {
        diagnostics.at(limits.span(), NO_LIMIT);
    }
    if entries.len() > LIMITS_MAX {
        diagnostics.at(
            limits.span(),
            format!("there are more than {LIMITS_MAX} limits"),
        );
        return Vec::new();
    }
    let mut options = Vec::new();
    for entry in &entries {
        let name = entry.key();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let message = format!("the name of a limit must have 1 to {NAME_BYTES_MAX} bytes");
            diagnostics.at(entry.key_span(), message);
        }
        let section = entry.table(diagnostics);
        options.extend(
            section.and_then(|section| LimitOptions::read(name, section, context, diagnostics)),
        );
    }
    options.sort_by(|one, other| one.name.cmp(&other.name));
    options
}

impl LimitOptions {
    fn read(
        name: &str,
        mut section: Section<'_>,
        context: &SectionContext<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let limit = strategy::read(&mut section, diagnostics);
        let tiers = tiers(&mut section, diagnostics);
        let keys_max = count(&mut section, "keys_max", diagnostics);
        let waiters_max = count(&mut section, "waiters_max", diagnostics);
        let storage = context.storage(&mut section, diagnostics);
        let leases = lease_options(&mut section, diagnostics);
        let clock = clock(&mut section, diagnostics);
        let ttl = ONCE_TTL_MIN..=ONCE_TTL_MAX;
        let once_ttl = section.duration("once_ttl", ttl, diagnostics);
        let hash_tag = section.string("hash_tag", diagnostics);
        let denials = section.choice("denials", &logs::DENIALS, diagnostics);
        section.finish(diagnostics);
        Some(Self {
            name: name.to_owned(),
            limit: limit?,
            tiers,
            keys_max: keys_max.unwrap_or(KEYS_MAX_DEFAULT),
            waiters_max,
            clock,
            once_ttl: once_ttl.map(|ttl| ttl.value),
            hash_tag: hash_tag.map(|tag| tag.value.to_owned()),
            denials: denials.map(|denials| denials.value),
            storage,
            leases,
        })
    }

    /// The one limit that the environment can describe.
    pub(super) fn from_variables(
        context: &SectionContext<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        const VARIABLE: &str = "RL_LIMIT";
        let storage = context.storage_from_variables(diagnostics);
        let Some(text) = context.environment().read(VARIABLE, diagnostics) else {
            let message = "not set; set it to a limit such as 10/s burst 20";
            diagnostics.in_variable(VARIABLE, message);
            return None;
        };
        let limit = text.trim().parse::<Limit>().map_err(InvalidLimit::from);
        match limit.and_then(InvalidLimit::check_window) {
            Ok(limit) => Some(Self {
                name: "default".to_owned(),
                limit,
                tiers: Vec::new(),
                keys_max: KEYS_MAX_DEFAULT,
                waiters_max: None,
                clock: ClockChoice::Precise,
                once_ttl: None,
                hash_tag: None,
                denials: None,
                storage,
                leases: None,
            }),
            Err(error) => {
                let message = match error {
                    // The column is enough: that it cannot be parsed is plain to see.
                    InvalidLimit::Text(error) => error.to_string(),
                    error => error.to_string(),
                };
                diagnostics.in_variable(VARIABLE, message);
                None
            }
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_redis(&self) -> bool {
        self.storage != StorageChoice::Memory
    }

    /// Whether both describe the same limiter, apart from the numbers of its limits.
    pub(super) fn differs_in_numbers_only(&self, other: &Self) -> bool {
        let names = |options: &Self| -> Vec<String> {
            options.tiers.iter().map(|(name, _)| name.clone()).collect()
        };
        let with_same_numbers = Self {
            limit: self.limit,
            tiers: self.tiers.clone(),
            ..other.clone()
        };
        names(self) == names(other) && with_same_numbers == *self
    }

    /// Gives a running limiter the numbers of these options.
    pub(super) fn apply(&self, limiter: &RateLimiter) -> Result<(), TierError> {
        if limiter.limit() != self.limit {
            limiter.set_limit(self.limit)?;
        }
        for (name, limit) in &self.tiers {
            if limiter.tier_limit(name)? != *limit {
                limiter.set_tier_limit(name, *limit)?;
            }
        }
        Ok(())
    }

    pub(super) fn build(&self, shared: &mut SharedParts<'_>) -> Result<RateLimiter, BuildError> {
        let mut builder = RateLimiter::builder()
            .name(&self.name)
            .limit(self.limit)
            .keys_max(self.keys_max)
            .denials(self.denials.unwrap_or(shared.denials));
        for (name, limit) in &self.tiers {
            builder = builder.tier(name, *limit);
        }
        #[cfg(feature = "tokio")]
        if let Some(waiters_max) = self.waiters_max {
            builder = builder.waiters_max(waiters_max);
        }
        builder = match self.clock {
            ClockChoice::Precise => builder,
            ClockChoice::Wall => builder.clock(Clock::wall()),
            ClockChoice::Cached(interval) => {
                let clocks = &mut shared.clocks;
                let clock = clocks.entry(interval);
                builder.clock(clock.or_insert_with(|| Clock::cached(interval)).clone())
            }
        };
        if let Some(ttl) = self.once_ttl {
            builder = builder.once_ttl(ttl);
        }
        if let Some(tag) = &self.hash_tag {
            builder = builder.hash_tag(tag);
        }
        if let Some(salt) = shared.log_salt {
            builder = builder.log_salt(salt);
        }
        #[cfg(feature = "prometheus")]
        if let Some(metrics) = shared.metrics {
            builder = builder.metrics(metrics);
        }
        #[cfg(feature = "redis")]
        if let (Some(store), StorageChoice::Redis(on_failure)) = (&shared.store.0, self.storage) {
            builder = builder.redis(store, on_failure);
            if let Some(leases) = &self.leases {
                builder = builder.leases(leases.leases());
            }
        }
        builder.build()
    }
}

#[cfg(feature = "redis")]
impl LeaseOptions {
    fn leases(self) -> Leases {
        let mut leases = Leases::new();
        if let Some(share) = self.share {
            leases = leases.share(share);
        }
        if let Some(keys_max) = self.keys_max {
            leases = leases.keys_max(keys_max);
        }
        leases
    }
}

/// `leases`, `lease_share` and `lease_keys_max`; `None` without leases.
fn lease_options(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Option<LeaseOptions> {
    let is_on = section.boolean("leases", diagnostics);
    let text = section.string("lease_share", diagnostics);
    let keys_max = count(section, "lease_keys_max", diagnostics);
    let share = text.and_then(|text| match text.value.parse::<Share>() {
        Ok(share) => Some(share),
        Err(error) => {
            diagnostics.at(text.span, format!("`lease_share`: {error}"));
            None
        }
    });
    let options = LeaseOptions { share, keys_max };
    is_on.filter(|is_on| is_on.value).map(|_| options)
}

/// `[limits.NAME.tiers]`: a limit for each name.
fn tiers(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Vec<(String, Limit)> {
    let Some(tiers) = section.get("tiers") else {
        return Vec::new();
    };
    let Some(tiers) = tiers.table(diagnostics) else {
        return Vec::new();
    };
    let entries = tiers.entries();
    let limits = entries.iter().filter_map(|entry| {
        let limit = entry.limit(diagnostics)?;
        Some((entry.key().to_owned(), limit.value))
    });
    limits.collect()
}

fn count(
    section: &mut Section<'_>,
    key: &'static str,
    diagnostics: &mut Diagnostics,
) -> Option<usize> {
    let keys = section.integer(key, 1..=KEYS_MAX_MAX as u64, diagnostics)?;
    usize::try_from(keys.value).ok()
}

/// `clock`: "precise", "wall", or the interval of a cached clock.
fn clock(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> ClockChoice {
    let Some(value) = section.get("clock") else {
        return ClockChoice::Precise;
    };
    match value.as_str() {
        Some("precise") => ClockChoice::Precise,
        Some("wall") => ClockChoice::Wall,
        _ => {
            let range = CLOCK_INTERVAL_MIN..=CLOCK_INTERVAL_MAX;
            let interval = value.duration(range, diagnostics);
            interval.map_or(ClockChoice::Precise, |interval| {
                ClockChoice::Cached(interval.value)
            })
        }
    }
}
