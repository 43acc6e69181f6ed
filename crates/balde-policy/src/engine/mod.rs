//! The engine that enforces a profile: admit, settle, credit.

mod admission;
mod assignment;
mod builder;
mod credit;
mod error;
mod matching;
mod outcome;
mod ruleset;
mod state;
mod subject;
mod ticket;

use std::fmt;
use std::sync::Arc;

use balde::BuildError;
use parking_lot::RwLock;

#[cfg(feature = "tower")]
pub(crate) use admission::Admission;
pub use assignment::{ASSIGNED_MAX, AssignError};
pub use builder::{EngineBuilder, InFlight, OnMissingPart};
pub use credit::Credited;
pub use error::{AdmitError, Refusal, Unavailable};
pub use matching::{BucketRef, Matcher, NoBucketError};
pub use outcome::Outcome;
pub use state::{BucketState, StateError};
pub use subject::Subject;
pub use ticket::{Settlement, Ticket};

use self::assignment::Assignments;
use self::builder::Options;
use self::ruleset::Ruleset;
use crate::profile::Profile;

/// Enforces a [`Profile`]: admits requests, settles them by their outcome, gives tokens back for
/// events. Clones share their buckets.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use balde_policy::{AdmitError, Engine, Outcome, Profile, Request};
///
/// let profile = Profile::parse(r#"
/// profile = "shop"
///
/// [[policy]]
/// name = "searches"
/// match = ["GET /search"]
/// scope = "user"
/// limit = "2/min burst 20"
/// costs = { 404 = 20, default = 1 }
/// "#)?;
/// let engine = Engine::builder(profile).build()?;
///
/// let mut request = Request::new("GET", "/search", "q=shoes");
/// request.user = Some("alice");
/// let ticket = engine.admit(&request).await?;
/// // A search without a result costs twenty.
/// ticket.settle(Outcome::Status(404)).await;
///
/// match engine.admit(&request).await {
///     Err(AdmitError::Refused(refusal)) => assert_eq!(refusal.policy().name(), "searches"),
///     other => panic!("{other:?}"),
/// }
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    options: Options,
    state: RwLock<State>,
}

struct State {
    rules: Arc<Ruleset>,
    assignments: Assignments,
}

impl State {
    fn new(rules: Arc<Ruleset>) -> Self {
        Self {
            rules,
            assignments: Assignments::default(),
        }
    }
}

impl Inner {
    fn new(options: Options, state: State) -> Self {
        Self {
            options,
            state: RwLock::new(state),
        }
    }
}

impl Engine {
    /// Builds an engine for a profile.
    pub fn builder(profile: Profile) -> EngineBuilder {
        EngineBuilder::new(profile)
    }

    /// The profile that is enforced now.
    pub fn profile(&self) -> Profile {
        self.0.state.read().rules.profile().clone()
    }

    /// Enforces another profile from now on.
    ///
    /// Buckets of policies that both profiles have keep their deficit, in tokens, under the new
    /// limit; buckets of removed policies are no longer used. Requests in flight are settled at the
    /// prices under which they were admitted. If the new profile cannot be enforced, the old one
    /// stays in force.
    pub fn replace(&self, profile: Profile) -> Result<(), BuildError> {
        // Builds every limiter first, so that nothing can fail afterwards.
        let mut rules = Ruleset::new(profile, &self.0.options)?;
        let mut state = self.0.state.write();
        rules.adopt(&state.rules, &self.0.options)?;
        state.rules = Arc::new(rules);
        Ok(())
    }

    /// Waits until every settlement in Redis has been made or given up, and returns tokens on lease.
    /// Call it before the process ends, after the last request.
    pub async fn settled(&self) {
        let rules = Arc::clone(&self.0.state.read().rules);
        for limiter in rules.all_limiters() {
            limiter.settled().await;
            #[cfg(feature = "redis")]
            limiter.release_leases().await;
        }
    }

    /// Counters and gauges of a policy's [leases](crate::Policy::with_leases); `None` if the profile has no
    /// such policy.
    #[cfg(feature = "redis")]
    pub fn lease_stats(&self, policy: &str) -> Option<balde::LeaseStats> {
        let rules = Arc::clone(&self.0.state.read().rules);
        let index = rules.index(policy)?;
        Some(rules.limiter(index).limiter.lease_stats())
    }

    /// How many requests a policy in shadow mode would have refused; `None` if the profile has no
    /// such policy.
    pub fn shadow_refusals(&self, policy: &str) -> Option<u64> {
        let rules = Arc::clone(&self.0.state.read().rules);
        let index = rules.index(policy)?;
        Some(rules.limiter(index).shadow_refusals())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.read();
        f.debug_struct("Engine")
            .field("profile", &state.rules.profile().name())
            .finish_non_exhaustive()
    }
}
