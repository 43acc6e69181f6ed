//! A DICT simulator for your own machine, with the published rate limits and a simulated directory.
//!
//! | File | Holds |
//! |--|--|
//! | `server` | connections, TLS, graceful shutdown |
//! | `body` | request bodies, within a size limit |
//! | `pipeline` | the processing of a request, from routing to settlement |
//! | `handlers` | one handler for each operation |
//! | `buckets` | the policy engine, and the limits and categories that can be changed |
//! | `lookups`, `orders` | credits for payment orders |
//! | `runtime_settings` | categories, limits and faults that can be changed while it runs |
//! | `inspect`, `refusal_log` | the inspection endpoints, and the refusals that they list |
//! | `participants` | who may speak for whom |
//! | `transcript` | what clients did, and what they missed |
//! | `answer`, `query` | responses, query parameters |

mod answer;
mod body;
mod buckets;
mod builder;
mod handlers;
mod inspect;
mod lookups;
mod orders;
mod participants;
mod pipeline;
mod query;
mod refusal_log;
mod runtime_settings;
mod server;
mod transcript;

use std::fmt;
use std::sync::Arc;

use balde::{Clock, ManualClock};
use balde_policy::Variant;
use parking_lot::Mutex;
use thiserror::Error;

pub use builder::{SimulatorBuildError, SimulatorBuilder};
pub use lookups::LOOKUPS_MAX;
pub use participants::Participants;
pub use server::run;

use crate::directory::{Directory, DirectoryError, RecordStoreError, RedisRecords};
use crate::wire::{
    ApiVersion, Problem, ResponseHead, Signer, Timestamp, Verifier, canonical_ispb, is_ispb,
};
use balde_dict::{Category, Table};
use buckets::Buckets;
use lookups::Lookups;
use refusal_log::RefusalLog;
use runtime_settings::{CATEGORIES_MAX, RuntimeSettings};
use transcript::Transcript;

/// The name of the record with the runtime settings.
const RUNTIME_SETTINGS: &str = "runtime";

/// A simulated DICT. Clones share all state.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use balde_simulator::{self as simulator, Simulator};
/// use tokio::net::TcpListener;
///
/// let simulator = Simulator::builder().build()?;
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// println!("DICT is at http://{}/api/v2/", listener.local_addr()?);
/// // This example shuts down at once; a program waits for a signal.
/// simulator::run(listener, simulator, async {}).await?;
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct Simulator(Arc<Inner>);

struct Inner {
    table: Arc<Table>,
    buckets: Buckets,
    directory: Directory,
    lookups: Lookups,
    refusals: RefusalLog,
    clock: Clock,
    /// The manual clock, if the simulator was built with one.
    manual_clock: Option<ManualClock>,
    shared: Option<RedisRecords>,
    /// The shared runtime settings when they were last read.
    followed: Mutex<Option<String>>,
    signer: Option<Arc<dyn Signer>>,
    verifier: Option<Arc<dyn Verifier>>,
    /// Whether a write without a signature is refused.
    requires_signatures: bool,
    tls: Option<Arc<rustls::ServerConfig>>,
    /// The participants that may speak, if only known ones may.
    participants: Option<Participants>,
    /// The participant of a request that names none and has no certificate.
    default_caller: String,
    version: ApiVersion,
    /// Where the requests of clients are written, if they are.
    transcript: Option<Transcript>,
}

impl Simulator {
    /// Builds a simulator. By default, it has the default profile and keeps its state in memory.
    pub fn builder() -> SimulatorBuilder {
        SimulatorBuilder::new()
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// Returns true if the simulator serves TLS.
    pub fn is_tls(&self) -> bool {
        self.0.tls.is_some()
    }

    /// Assigns a category to a participant, for all simulators that share the state. The
    /// participant's buckets keep their deficit in tokens.
    pub async fn assign(&self, participant: &str, category: Category) -> Result<(), AssignError> {
        if !is_ispb(participant) {
            return Err(AssignError::Participant);
        }
        let variant = self.0.table.profile().variant("category");
        let mut known = variant.into_iter().flat_map(Variant::values);
        if !known.any(|own| own == category.as_str()) {
            return Err(AssignError::Category);
        }
        if self.0.buckets.runtime().categories.len() >= CATEGORIES_MAX {
            return Err(AssignError::TooMany);
        }
        let participant = canonical_ispb(participant);
        let changed = self.change(|runtime| {
            let category = category.as_str().to_owned();
            runtime
                .categories
                .insert(participant.clone().into_owned(), category);
        });
        changed
            .await
            .map_err(|problem| AssignError::Store(problem.to_string()))
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_us(self.0.clock.now_us())
    }

    fn head(now: Timestamp) -> ResponseHead {
        ResponseHead::new(now, fastrand::u128(..).to_be_bytes())
    }

    /// Applies runtime settings that another simulator has changed.
    async fn follow(&self) -> Result<(), FollowError> {
        let Some(shared) = &self.0.shared else {
            return Ok(());
        };
        let text = shared.get_text(RUNTIME_SETTINGS).await?;
        if *self.0.followed.lock() == text {
            return Ok(());
        }
        let runtime = text
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok());
        let followed = self.0.buckets.follow(runtime.unwrap_or_default()).await;
        *self.0.followed.lock() = text;
        Ok(followed?)
    }

    /// Changes the runtime settings, for all simulators that share the state.
    async fn change(&self, change: impl Fn(&mut RuntimeSettings)) -> Result<(), Problem> {
        if self.0.shared.is_some() {
            let changed = self.0.directory.update(RUNTIME_SETTINGS, change).await;
            changed.map_err(DirectoryError::into_problem)?;
            return self
                .follow()
                .await
                .map_err(|error| Problem::unavailable(error.to_string()));
        }
        let mut runtime = (*self.0.buckets.runtime()).clone();
        change(&mut runtime);
        let followed = self.0.buckets.follow(runtime).await;
        followed.map_err(|error| Problem::unavailable(error.to_string()))
    }
}

/// Why the settings that simulators share could not be applied.
#[derive(Debug, Error)]
enum FollowError {
    #[error(transparent)]
    Records(#[from] RecordStoreError),
    #[error(transparent)]
    Buckets(#[from] balde_policy::AssignError),
}

/// Why a category could not be assigned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AssignError {
    /// The participant is not an ISPB of 8 characters.
    #[error("the participant is not an ISPB of 8 characters")]
    Participant,
    /// The profile has no such category.
    #[error("the profile has no such category")]
    Category,
    /// The maximum number of participants have an assigned category already.
    #[error("{CATEGORIES_MAX} participants have an assigned category already")]
    TooMany,
    /// The assignment could not be stored.
    #[error("{0}")]
    Store(String),
}

impl fmt::Debug for Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulator")
            .field("profile", &self.0.table.profile().name())
            .field("directory", &self.0.directory)
            .finish_non_exhaustive()
    }
}
