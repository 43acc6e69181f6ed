//! The limits: what each is, where its buckets are, and what happens when these are away.

use std::ops::Range;

use balde_core::{Limit, ParseLimitError};

use super::LIMITS_MAX;
use super::environment::Environment;
use super::fault::Faults;
use super::numbers;
use super::redis::{RedisOptions, Store};
use super::section::{At, Section};
use crate::error::{BuildError, KEYS_MAX_MAX};
use crate::failure::{OnFailure, Share};
use crate::limiter::{KEYS_MAX_DEFAULT, RateLimiter};

/// The longest name of a limit.
const NAME_BYTES_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct LimitOptions {
    name: String,
    limit: Limit,
    keys_max: usize,
    is_redis: bool,
    on_failure: Option<OnFailure>,
    #[cfg_attr(
        not(feature = "redis"),
        expect(
            dead_code,
            reason = "checked all the same, but there is nothing to lease from"
        )
    )]
    has_leases: bool,
    /// What to point at when the parts do not fit together; nothing for the environment.
    span: Option<Range<usize>>,
}

#[derive(Clone, Copy)]
enum Failure {
    Deny,
    Allow,
    Local,
}

/// Reads `[limits]`.
pub(super) fn check(
    root: &mut Section<'_>,
    environment: &Environment<'_>,
    faults: &mut Faults<'_>,
) -> Vec<LimitOptions> {
    let Some(limits) = root.table("limits", faults) else {
        if root.any("limits").is_none() {
            faults.whole_file("there is no limit; write [limits.NAME] with limit = \"10/s\" in it");
        }
        return Vec::new();
    };
    let tables = limits.tables(faults);
    if tables.is_empty() {
        faults.at(
            limits.span(),
            "there is no limit; write [limits.NAME] with limit = \"10/s\" in it",
        );
    }
    if tables.len() > LIMITS_MAX {
        faults.at(
            limits.span(),
            format!("there are more than {LIMITS_MAX} limits"),
        );
        return Vec::new();
    }
    tables
        .into_iter()
        .filter_map(|(name, section)| LimitOptions::check(&name, section, environment, faults))
        .collect()
}

impl LimitOptions {
    fn check(
        name: &At<&str>,
        mut section: Section<'_>,
        environment: &Environment<'_>,
        faults: &mut Faults<'_>,
    ) -> Option<Self> {
        if name.value.is_empty() || name.value.len() > NAME_BYTES_MAX {
            let message = format!("the name of a limit has 1 to {NAME_BYTES_MAX} bytes");
            faults.at(Some(name.span.clone()), message);
        }
        let limit = numbers::check(&mut section, faults);
        let keys_max = section.number("keys_max", (1, KEYS_MAX_MAX as u64), faults);
        let words = [("memory", false), ("redis", true)];
        let storage = section.word("storage", &words, faults);
        let on_failure = on_failure(&mut section, faults);
        let leases = section.flag("leases", faults);
        let span = storage
            .as_ref()
            .map_or(name.span.clone(), |at| at.span.clone());
        let asked = storage.is_some_and(|at| at.value);
        if asked && cfg!(not(feature = "redis")) {
            let message = "redis needs the feature \"redis\" of the crate balde";
            faults.at(Some(span.clone()), message);
        }
        section.finish(faults);
        Some(Self {
            name: name.value.to_owned(),
            limit: limit?,
            keys_max: keys_max
                .and_then(|at| usize::try_from(at.value).ok())
                .unwrap_or(KEYS_MAX_DEFAULT),
            is_redis: environment.is_redis.unwrap_or(asked),
            on_failure,
            has_leases: leases.is_some_and(|at| at.value),
            span: Some(span),
        })
    }

    /// The one limit that the environment can describe.
    pub(super) fn of_environment(
        environment: &Environment<'_>,
        faults: &mut Faults<'_>,
    ) -> Option<Self> {
        let on_failure = environment
            .get("RL_ON_FAILURE", faults)
            .and_then(|text| on_failure_of(&text, faults));
        let Some(text) = environment.get("RL_LIMIT", faults) else {
            faults.in_environment(
                "RL_LIMIT",
                "is not set; set it to a limit, as 10/s burst 20",
            );
            return None;
        };
        match text.trim().parse() {
            Ok(limit) => Some(Self {
                name: "default".to_owned(),
                limit,
                keys_max: KEYS_MAX_DEFAULT,
                is_redis: environment.is_redis.unwrap_or(false),
                on_failure,
                has_leases: false,
                span: None,
            }),
            Err(error) => {
                faults.in_environment("RL_LIMIT", ParseLimitError::to_string(&error));
                None
            }
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn is_redis(&self) -> bool {
        self.is_redis
    }

    /// Whether what is said elsewhere suffices for where the buckets are.
    pub(super) fn check_storage(&self, redis: Option<&RedisOptions>, faults: &mut Faults<'_>) {
        if !self.is_redis {
            return;
        }
        if self.on_failure.is_none() {
            match &self.span {
                Some(span) => faults.at(
                    Some(span.clone()),
                    format!(
                        "the buckets of `{}` are in Redis, so what happens while it is away has to \
                         be chosen: on_failure = \"deny\", \"allow\" or \"local\"",
                        self.name
                    ),
                ),
                None => faults.in_environment(
                    "RL_ON_FAILURE",
                    "is not set, but RL_STORAGE_MODE=redis needs it; set it to deny, allow or \
                     local 25%",
                ),
            }
        }
        if redis.is_none_or(|redis| !redis.has_address()) {
            match &self.span {
                Some(span) => faults.at(
                    Some(span.clone()),
                    "the buckets are in Redis, and nobody says where that is: \
                     write [redis] with addr = \"host:port\", or set REDIS_ADDR",
                ),
                None => faults.in_environment(
                    "REDIS_ADDR",
                    "is not set, but RL_STORAGE_MODE=redis needs it; set it to host:port or a URL",
                ),
            }
        }
    }

    #[cfg_attr(
        not(feature = "redis"),
        expect(unused_variables, reason = "there is no store without the feature")
    )]
    pub(super) fn build(&self, store: &Store) -> Result<RateLimiter, BuildError> {
        let builder = RateLimiter::builder()
            .name(&self.name)
            .limit(self.limit)
            .keys_max(self.keys_max);
        #[cfg(feature = "redis")]
        let builder = match (&store.0, self.on_failure) {
            (Some(store), Some(on_failure)) if self.is_redis => {
                let builder = builder.redis(store, on_failure);
                if self.has_leases {
                    builder.leases(crate::lease::Leases::new())
                } else {
                    builder
                }
            }
            _ => builder,
        };
        builder.build()
    }
}

fn on_failure(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<OnFailure> {
    let words = [
        ("deny", Failure::Deny),
        ("allow", Failure::Allow),
        ("local", Failure::Local),
    ];
    let choice = section.word("on_failure", &words, faults);
    let share = section.text("local_share", faults);
    let parsed = share
        .as_ref()
        .map(|at| (share_of(at.value), at.span.clone()));
    if let Some((None, span)) = &parsed {
        let message = "`local_share` is a part of the limit, as \"25%\" or \"1/4\"";
        faults.at(Some(span.clone()), message);
        return None;
    }
    let choice = choice?;
    match (choice.value, parsed) {
        (Failure::Deny, None) => Some(OnFailure::Deny),
        (Failure::Allow, None) => Some(OnFailure::Allow),
        (Failure::Local, Some((Some(share), _))) => Some(OnFailure::Local { share }),
        (Failure::Local, _) => {
            let message = "on_failure = \"local\" needs `local_share`, this process's part of the \
                           limit: \"25%\" or \"1/4\"";
            faults.at(Some(choice.span), message);
            None
        }
        (Failure::Deny | Failure::Allow, Some((_, span))) => {
            faults.at(
                Some(span),
                "`local_share` goes with on_failure = \"local\" only",
            );
            None
        }
    }
}

fn on_failure_of(text: &str, faults: &mut Faults<'_>) -> Option<OnFailure> {
    let mut words = text.split_whitespace();
    let choice = match (words.next(), words.next(), words.next()) {
        (Some("deny"), None, None) => Some(OnFailure::Deny),
        (Some("allow"), None, None) => Some(OnFailure::Allow),
        (Some("local"), Some(share), None) => {
            share_of(share).map(|share| OnFailure::Local { share })
        }
        _ => None,
    };
    if choice.is_none() {
        let message =
            "this is no choice; set it to deny, allow, or local and a share, as local 25%";
        faults.in_environment("RL_ON_FAILURE", message);
    }
    choice
}

fn share_of(text: &str) -> Option<Share> {
    let text = text.trim();
    if let Some(percent) = text.strip_suffix('%') {
        let percent: u32 = percent.trim().parse().ok()?;
        return (1..=100)
            .contains(&percent)
            .then(|| Share::percent(percent));
    }
    let parts: u32 = text.strip_prefix("1/")?.parse().ok()?;
    (parts > 0).then(|| Share::one_in(parts))
}
