//! The buckets: the policy engine, and the settings that can be changed while the simulator runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use balde::{BuildError, Clock, RedisStore};
use balde_policy::{
    AssignError, BucketState, ByVariant, Engine, KeyPart, OnMissingPart, Profile, StateError,
    Subject,
};
use parking_lot::RwLock;

use super::runtime_settings::{LimitChange, RuntimeSettings};
use balde_dict::CATEGORY;
use balde_dict::{Category, PAYER_HEADER, Table};

/// The longest that credits are remembered.
const CREDIT_ID_TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The engine with the settings that it follows.
#[derive(Debug)]
pub(crate) struct Buckets {
    table: Arc<Table>,
    engine: Engine,
    default_category: Category,
    runtime: RwLock<Arc<RuntimeSettings>>,
    /// Held while settings are applied, so that older ones do not overwrite newer ones.
    applying: tokio::sync::Mutex<()>,
}

/// Names a bucket outside of any request.
#[derive(Clone, Debug)]
pub(crate) struct BucketName {
    pub(crate) policy: usize,
    pub(crate) participant: String,
    pub(crate) payer: Option<String>,
}

impl Buckets {
    pub(crate) fn new(
        table: Arc<Table>,
        default_category: Category,
        redis: Option<&RedisStore>,
        clock: &Clock,
    ) -> Result<Self, BuildError> {
        let settings = table.settings();
        let ttl = settings.credit_deadline;
        let mut engine = Engine::builder(table.profile().clone())
            .clock(clock.clone())
            .in_flight(settings.in_flight)
            .on_missing_part(OnMissingPart::Skip)
            .refusal_cost(settings.cost_of_429)
            .credit_id_ttl(ttl.clamp(Duration::from_secs(1), CREDIT_ID_TTL_MAX))
            .default_value(CATEGORY, default_category.as_str());
        if let Some(store) = redis {
            engine = engine.redis(store);
        }
        Ok(Self {
            engine: engine.build()?,
            table,
            default_category,
            runtime: RwLock::default(),
            applying: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn runtime(&self) -> Arc<RuntimeSettings> {
        Arc::clone(&self.runtime.read())
    }

    /// A participant's category.
    pub(crate) fn category(&self, participant: &str) -> Category {
        let assigned = self.engine.assigned(CATEGORY, participant);
        let letter = assigned.and_then(|category| category.chars().next());
        let assigned = letter.and_then(Category::new);
        assigned.unwrap_or(self.default_category)
    }

    /// Applies settings that were changed, here or by another simulator.
    pub(crate) async fn follow(&self, new: RuntimeSettings) -> Result<(), AssignError> {
        let _one_at_a_time = self.applying.lock().await;
        let old = self.runtime();
        if old.limits != new.limits {
            let profile = with_limits(self.table.profile(), &new.limits);
            if let Err(error) = self.engine.replace(profile) {
                tracing::error!(%error, "changed limits cannot be enforced");
            }
        }
        let named: BTreeSet<_> = old.categories.keys().chain(new.categories.keys()).collect();
        let mut applied = Ok(());
        for participant in named {
            let category = new.categories.get(participant).map(String::as_str);
            let category = category.unwrap_or(self.default_category.as_str());
            if self.engine.assigned(CATEGORY, participant).as_deref() != Some(category) {
                let assigned = self.engine.assign(CATEGORY, participant, category).await;
                applied = applied.and(assigned);
            }
        }
        *self.runtime.write() = Arc::new(new);
        applied
    }

    /// Reads a bucket; `None` if the policy has no such bucket.
    pub(crate) async fn state(
        &self,
        name: &BucketName,
    ) -> Result<Option<BucketState>, balde::Error> {
        let policy = self.table.policy(name.policy).name();
        found(self.engine.state(policy, &name.subject()).await)
    }

    /// Sets a bucket's level; `None` if the policy has no such bucket.
    pub(crate) async fn set_level(
        &self,
        name: &BucketName,
        level: i64,
    ) -> Result<Option<BucketState>, balde::Error> {
        let policy = self.table.policy(name.policy).name();
        let subject = name.subject();
        found(self.engine.set_level(policy, &subject, level).await)
    }

    /// Whether a policy has a bucket for each participant and payer.
    pub(crate) fn is_per_payer(&self, policy: usize) -> bool {
        let parts = self.table.policy(policy).scope().parts();
        parts
            .iter()
            .any(|part| matches!(part, KeyPart::Header(_) | KeyPart::User))
    }
}

impl BucketName {
    fn subject(&self) -> Subject<'_> {
        let subject = Subject::participant(&*self.participant);
        match &self.payer {
            Some(payer) => subject
                .with(KeyPart::header(PAYER_HEADER), &**payer)
                .with(KeyPart::User, &**payer),
            None => subject,
        }
    }
}

fn found(state: Result<BucketState, StateError>) -> Result<Option<BucketState>, balde::Error> {
    match state {
        Ok(state) => Ok(Some(state)),
        Err(StateError::Store(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// The profile with other limits for some policies, or for some values of their variants.
fn with_limits(profile: &Profile, changes: &[LimitChange]) -> Profile {
    let mut changed = profile.clone();
    for policy in profile.policies() {
        let limit = |value: Option<&str>| {
            let is_this = |change: &&LimitChange| {
                change.policy == policy.name() && change.value.as_deref() == value
            };
            let change = changes.iter().find(is_this);
            change.and_then(|change| change.limit.parse().ok())
        };
        let limits = match policy.limits() {
            ByVariant::One(own) => ByVariant::One(limit(None).unwrap_or(*own)),
            ByVariant::By { variant, values } => {
                let values = values.iter().map(|(value, own)| {
                    let limit = limit(Some(&**value)).unwrap_or(*own);
                    (value.clone(), limit)
                });
                ByVariant::By {
                    variant: variant.clone(),
                    values: values.collect(),
                }
            }
        };
        changed = changed.with_policy(policy.clone().with_limits(limits));
    }
    changed
}
