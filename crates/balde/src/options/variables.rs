//! The environment variables that take precedence over a file.

use balde_config::{Diagnostics, Environment};

use super::storage::SectionContext;
use crate::env::StorageMode;

pub(super) struct Variables<'e> {
    pub(super) environment: Environment<'e>,
    /// Overrides where every limit keeps its buckets.
    pub(super) storage: Option<StorageMode>,
    pub(super) redis_addr: Option<String>,
    pub(super) redis_password: Option<String>,
    pub(super) log_salt: Option<String>,
}

impl<'e> Variables<'e> {
    pub(super) fn read(environment: Environment<'e>, diagnostics: &mut Diagnostics) -> Self {
        let storage = environment.read(StorageMode::VARIABLE, diagnostics);
        let storage = storage.and_then(|value| {
            StorageMode::parse(&value)
                .map_err(|advice| diagnostics.in_variable(StorageMode::VARIABLE, advice))
                .ok()
        });
        Self {
            environment,
            storage,
            redis_addr: environment.read("REDIS_ADDR", diagnostics),
            redis_password: environment.read("REDIS_PASSWORD", diagnostics),
            log_salt: environment.read("RL_LOG_SALT", diagnostics),
        }
    }

    pub(super) fn context(&self, has_redis: bool) -> SectionContext<'e> {
        SectionContext {
            environment: self.environment,
            storage: self.storage,
            has_redis,
        }
    }
}

/// The value of a variable that is one of `words`; a value that is none of them is reported.
pub(super) fn word<T: Copy>(
    variables: &Variables<'_>,
    variable: &str,
    words: &[(&str, T)],
    diagnostics: &mut Diagnostics,
) -> Option<T> {
    let value = variables.environment.read(variable, diagnostics)?;
    let found = words.iter().find(|(word, _)| *word == value.trim());
    if found.is_none() {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let (last, first) = names.split_last().expect("there is a word");
        let message = format!("unknown value; set it to {} or {last}", first.join(", "));
        diagnostics.in_variable(variable, message);
    }
    found.map(|(_, meaning)| *meaning)
}
