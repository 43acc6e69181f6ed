//! The section `[limits]`: the numbers of each limit, where its buckets are kept, and what happens
//! while that store is unavailable.

use balde_config::{Diagnostics, Section, Span};
use balde_core::Limit;

use super::LIMITS_MAX;
use super::redis::{RedisOptions, SharedStore};
use super::strategy;
use super::variables::Variables;
use crate::env::StorageMode;
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
    storage: StorageMode,
    on_failure: Option<OnFailure>,
    #[cfg_attr(
        not(feature = "redis"),
        expect(
            dead_code,
            reason = "validated without the feature, too, but there is nothing to lease from"
        )
    )]
    has_leases: bool,
    /// Where problems with other sections are reported; `None` for a limit from the environment.
    span: Option<Span>,
}

#[derive(Clone, Copy)]
enum Failure {
    Deny,
    Allow,
    Local,
}

/// Reads `[limits]`.
pub(super) fn read(
    root: &mut Section<'_>,
    variables: &Variables<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<LimitOptions> {
    const NO_LIMIT: &str = "there is no limit; write [limits.NAME] with limit = \"10/s\" in it";
    let Some(limits) = root.get("limits") else {
        diagnostics.at(None, NO_LIMIT);
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
            section.and_then(|section| LimitOptions::read(name, section, variables, diagnostics)),
        );
    }
    options.sort_by(|one, other| one.name.cmp(&other.name));
    options
}

impl LimitOptions {
    fn read(
        name: &str,
        mut section: Section<'_>,
        variables: &Variables<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let limit = strategy::read(&mut section, diagnostics);
        let keys_max = section.integer("keys_max", 1..=KEYS_MAX_MAX as u64, diagnostics);
        let words = [
            ("memory", StorageMode::Memory),
            ("redis", StorageMode::Redis),
        ];
        let storage = section.choice("storage", &words, diagnostics);
        let on_failure = on_failure(&mut section, diagnostics);
        let leases = section.boolean("leases", diagnostics);
        let span = storage.map(|storage| storage.span).or(section.span());
        let storage = storage.map_or(StorageMode::Memory, |storage| storage.value);
        if storage == StorageMode::Redis && cfg!(not(feature = "redis")) {
            let message = "redis needs the feature \"redis\" of the crate balde";
            diagnostics.at(span, message);
        }
        section.finish(diagnostics);
        Some(Self {
            name: name.to_owned(),
            limit: limit?,
            keys_max: keys_max
                .and_then(|keys| usize::try_from(keys.value).ok())
                .unwrap_or(KEYS_MAX_DEFAULT),
            storage: variables.storage.unwrap_or(storage),
            on_failure,
            has_leases: leases.is_some_and(|leases| leases.value),
            span,
        })
    }

    /// The one limit that the environment can describe.
    pub(super) fn from_variables(
        variables: &Variables<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let on_failure = variables
            .environment
            .read("RL_ON_FAILURE", diagnostics)
            .and_then(|text| parse_on_failure(&text, diagnostics));
        let Some(text) = variables.environment.read("RL_LIMIT", diagnostics) else {
            let message = "not set; set it to a limit such as 10/s burst 20";
            diagnostics.in_variable("RL_LIMIT", message);
            return None;
        };
        match text.trim().parse::<Limit>() {
            Ok(limit) => Some(Self {
                name: "default".to_owned(),
                limit,
                keys_max: KEYS_MAX_DEFAULT,
                storage: variables.storage.unwrap_or(StorageMode::Memory),
                on_failure,
                has_leases: false,
                span: None,
            }),
            Err(error) => {
                diagnostics.in_variable("RL_LIMIT", error.to_string());
                None
            }
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_redis(&self) -> bool {
        self.storage == StorageMode::Redis
    }

    /// Checks that a limit in Redis has an address and a failure policy.
    pub(super) fn check_storage(
        &self,
        redis: Option<&RedisOptions>,
        diagnostics: &mut Diagnostics,
    ) {
        if !self.is_redis() {
            return;
        }
        if self.on_failure.is_none() {
            match self.span {
                Some(span) => diagnostics.at(
                    span,
                    format!(
                        "`{}` keeps its buckets in Redis and has to choose what happens while \
                         Redis is unavailable: on_failure = \"deny\", \"allow\" or \"local\"",
                        self.name
                    ),
                ),
                None => diagnostics.in_variable(
                    "RL_ON_FAILURE",
                    "not set, but RL_STORAGE_MODE=redis requires it; set it to deny, allow or \
                     local 25%",
                ),
            }
        }
        if redis.is_none_or(|redis| !redis.has_address()) {
            match self.span {
                Some(span) => diagnostics.at(
                    span,
                    "the buckets are in Redis, but Redis has no address: write [redis] with \
                     addr = \"host:port\", or set REDIS_ADDR",
                ),
                None => diagnostics.in_variable(
                    "REDIS_ADDR",
                    "not set, but RL_STORAGE_MODE=redis requires it; set it to host:port or a URL",
                ),
            }
        }
    }

    #[cfg_attr(
        not(feature = "redis"),
        expect(unused_variables, reason = "there is no store without the feature")
    )]
    pub(super) fn build(&self, store: &SharedStore) -> Result<RateLimiter, BuildError> {
        let builder = RateLimiter::builder()
            .name(&self.name)
            .limit(self.limit)
            .keys_max(self.keys_max);
        #[cfg(feature = "redis")]
        let builder = match (&store.0, self.on_failure) {
            (Some(store), Some(on_failure)) if self.is_redis() => {
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

fn on_failure(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Option<OnFailure> {
    let words = [
        ("deny", Failure::Deny),
        ("allow", Failure::Allow),
        ("local", Failure::Local),
    ];
    let choice = section.choice("on_failure", &words, diagnostics);
    let text = section.string("local_share", diagnostics);
    let share = text.map(|text| text.map(parse_share));
    if let Some(share) = share
        && share.value.is_none()
    {
        let message = "`local_share` must be a part of the limit, such as \"25%\" or \"1/4\"";
        diagnostics.at(share.span, message);
        return None;
    }
    let choice = choice?;
    match (choice.value, share) {
        (Failure::Deny, None) => Some(OnFailure::Deny),
        (Failure::Allow, None) => Some(OnFailure::Allow),
        (Failure::Local, Some(share)) => share.value.map(|share| OnFailure::Local { share }),
        (Failure::Local, None) => {
            let message = "on_failure = \"local\" needs `local_share`, this process's part of the \
                           limit: \"25%\" or \"1/4\"";
            diagnostics.at(choice.span, message);
            None
        }
        (Failure::Deny | Failure::Allow, Some(share)) => {
            let message = "`local_share` is only used with on_failure = \"local\"";
            diagnostics.at(share.span, message);
            None
        }
    }
}

fn parse_on_failure(text: &str, diagnostics: &mut Diagnostics) -> Option<OnFailure> {
    let mut words = text.split_whitespace();
    let choice = match (words.next(), words.next(), words.next()) {
        (Some("deny"), None, None) => Some(OnFailure::Deny),
        (Some("allow"), None, None) => Some(OnFailure::Allow),
        (Some("local"), Some(share), None) => {
            parse_share(share).map(|share| OnFailure::Local { share })
        }
        _ => None,
    };
    if choice.is_none() {
        let message = "unknown choice; set it to deny, allow, or local with a share: local 25%";
        diagnostics.in_variable("RL_ON_FAILURE", message);
    }
    choice
}

fn parse_share(text: &str) -> Option<Share> {
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
