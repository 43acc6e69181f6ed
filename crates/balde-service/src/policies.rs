//! The policy engine: whether a request that a proxy describes is admitted.

use balde::telemetry::Metrics;
use balde::{BuildError, RedisStore, StorageMode};
use balde_policy::{AdmitError, Engine, Mode, Outcome, Profile, Request, Ticket};

use crate::config::PoliciesConfig;

/// The engine of the file's policies. Clones share their buckets.
#[derive(Clone, Debug)]
pub(crate) struct Policies {
    engine: Engine,
}

impl Policies {
    pub(crate) fn new(
        config: &PoliciesConfig,
        store: Option<&RedisStore>,
        metrics: &Metrics,
    ) -> Result<Self, BuildError> {
        let mut builder = Engine::builder(applied(config)).metrics(metrics);
        if let Some(keys_max) = config.keys_max {
            builder = builder.keys_max(keys_max);
        }
        if let Some(store) = store.filter(|_| config.storage == StorageMode::Redis) {
            builder = builder.redis(store);
        }
        Ok(Self {
            engine: builder.build()?,
        })
    }

    /// Enforces other policies from now on. Buckets of policies that both have keep their deficit.
    pub(crate) fn replace(&self, config: &PoliciesConfig) -> Result<(), BuildError> {
        self.engine.replace(applied(config))
    }

    /// Admits a request, or says why not. The path must be in its normal form. `None` if the request
    /// is outside of the profile's base paths.
    pub(crate) async fn admit(&self, request: &Request<'_>) -> Option<Result<Ticket, AdmitError>> {
        let path = request.path_rules.normalized(request.path);
        let path = match path {
            Ok(path) => path,
            Err(error) => return Some(Err(error.into())),
        };
        let path = self.engine.without_base(&path)?;
        Some(self.engine.admit(&Request { path, ..*request }).await)
    }

    /// Settles a request whose end the proxy does not report: at the price of a success.
    pub(crate) async fn settle(ticket: Ticket) {
        ticket.settle(Outcome::Status(200)).await;
    }

    pub(crate) async fn settled(&self) {
        self.engine.settled().await;
    }
}

fn applied(config: &PoliciesConfig) -> Profile {
    let mut profile = config.profile.clone();
    if config.is_shadow {
        for policy in config.profile.policies() {
            profile = profile.with_policy(policy.clone().with_mode(Mode::Shadow));
        }
    }
    profile
}
