//! The environment variables that take precedence over a file.

use balde_config::{Diagnostics, Environment};

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
}
