//! Where buckets are kept, and what happens while that store is unavailable: the keys `storage`,
//! `on_failure` and `local_share`.

use std::fmt;

use balde_config::{Diagnostics, Environment, Section, Span};

use crate::env::StorageMode;
use crate::failure::{OnFailure, Share};

/// Where buckets are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageChoice {
    /// In the memory of the process.
    Memory,
    /// In the Redis of `[redis]`, with this failure policy.
    Redis(OnFailure),
}

/// What other crates need to know of a file to read their sections of it: the environment, and
/// where buckets can be kept. Passed to the function of
/// [`Options::read_extended`](super::Options::read_extended).
#[derive(Clone, Copy)]
pub struct SectionContext<'e> {
    pub(super) environment: Environment<'e>,
    /// Overrides where all buckets are kept.
    pub(super) storage: Option<StorageMode>,
    pub(super) has_redis: bool,
}

#[derive(Clone, Copy)]
enum Failure {
    Deny,
    Allow,
    Local,
}

impl<'e> SectionContext<'e> {
    /// The environment variables.
    pub const fn environment(&self) -> Environment<'e> {
        self.environment
    }

    /// Returns whether Redis has an address, or problems of its own that have been reported.
    pub const fn has_redis(&self) -> bool {
        self.has_redis
    }

    /// Takes the keys `storage`, `on_failure` and `local_share`. Problems are reported, among them a
    /// missing failure policy and a missing address of Redis.
    pub fn storage(
        &self,
        section: &mut Section<'_>,
        diagnostics: &mut Diagnostics,
    ) -> StorageChoice {
        let words = [
            ("memory", StorageMode::Memory),
            ("redis", StorageMode::Redis),
        ];
        let storage = section.choice("storage", &words, diagnostics);
        let has_choice = section.contains("on_failure");
        let on_failure = on_failure(section, diagnostics);
        let span = storage.map(|storage| storage.span).or(section.span());
        let written = storage.map_or(StorageMode::Memory, |storage| storage.value);
        if written == StorageMode::Redis && cfg!(not(feature = "redis")) {
            let message = "redis needs the feature \"redis\" of the crate balde";
            diagnostics.at(span, message);
        }
        if self.storage.unwrap_or(written) == StorageMode::Memory {
            return StorageChoice::Memory;
        }
        if !has_choice {
            let name = section.title();
            let message = format!(
                "{name} keeps its buckets in Redis and has to choose what happens while Redis is \
                 unavailable: on_failure = \"deny\", \"allow\" or \"local\""
            );
            diagnostics.at(span, message);
        }
        self.check_address(span, diagnostics);
        StorageChoice::Redis(on_failure.unwrap_or(OnFailure::Deny))
    }

    /// The storage that the environment alone describes: `RL_STORAGE_MODE` and `RL_ON_FAILURE`.
    pub fn storage_from_variables(&self, diagnostics: &mut Diagnostics) -> StorageChoice {
        const VARIABLE: &str = "RL_ON_FAILURE";
        let text = self.environment.read(VARIABLE, diagnostics);
        let on_failure = text.as_deref().map(parse_on_failure);
        if on_failure == Some(None) {
            let message = "unknown choice; set it to deny, allow, or local with a share: local 25%";
            diagnostics.in_variable(VARIABLE, message);
        }
        if self.storage != Some(StorageMode::Redis) {
            return StorageChoice::Memory;
        }
        if on_failure.is_none() {
            diagnostics.in_variable(
                VARIABLE,
                "not set, but RL_STORAGE_MODE=redis requires it; set it to deny, allow or local 25%",
            );
        }
        self.check_address(None, diagnostics);
        StorageChoice::Redis(on_failure.flatten().unwrap_or(OnFailure::Deny))
    }

    fn check_address(&self, span: Option<Span>, diagnostics: &mut Diagnostics) {
        // REDIS_ADDR may be set where the file is used.
        if self.has_redis || self.environment.is_assumed() {
            return;
        }
        match span {
            Some(span) => diagnostics.at(
                span,
                "the buckets are in Redis, but Redis has no address: write [redis] with \
                 address = \"host:port\", or set REDIS_ADDR",
            ),
            None => diagnostics.in_variable(
                "REDIS_ADDR",
                "not set, but RL_STORAGE_MODE=redis requires it; set it to host:port or a URL",
            ),
        }
    }
}

impl fmt::Debug for SectionContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SectionContext")
            .field("storage", &self.storage)
            .field("has_redis", &self.has_redis)
            .finish_non_exhaustive()
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
    let share = text.map(|text| text.map(|text| text.parse::<Share>().ok()));
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

fn parse_on_failure(text: &str) -> Option<OnFailure> {
    let mut words = text.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("deny"), None, None) => Some(OnFailure::Deny),
        (Some("allow"), None, None) => Some(OnFailure::Allow),
        (Some("local"), Some(share), None) => {
            let share = share.parse().ok()?;
            Some(OnFailure::Local { share })
        }
        _ => None,
    }
}
