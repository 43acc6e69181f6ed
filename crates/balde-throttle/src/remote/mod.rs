//! Buckets and partition health that several processes share through Redis. Only the calls to the
//! store: the background tasks that make them are in `inner/sync.rs`.

mod health;
mod tokens;

use balde::{BuildError, Clock, OnFailure, RedisStore};

pub(crate) use health::{RemoteHealth, SharedHealth};
pub(crate) use tokens::{FetchRequest, RemoteTokens};

use crate::settings::Settings;

pub(crate) struct Remote {
    pub(crate) store: RedisStore,
    pub(crate) tokens: RemoteTokens,
    pub(crate) health: SharedHealth,
}

impl Remote {
    pub(crate) fn new(
        settings: &Settings,
        clock: &Clock,
        store: RedisStore,
        on_failure: OnFailure,
    ) -> Result<Self, BuildError> {
        Ok(Self {
            tokens: RemoteTokens::new(settings, clock, &store, on_failure)?,
            health: SharedHealth::new(&store, &settings.name),
            store,
        })
    }
}
