//! Buckets in Redis, shared by processes.
//!
//! | File | Holds |
//! |--|--|
//! | `config` | what is to be known before connecting, and what can be wrong with it |
//! | `link` | one connection that comes back by itself |
//! | `call` | one call of the script, its reload and what may be repeated |
//! | `breaker` | when to stop asking, and how to begin again |
//! | `fault` | what an error means |
//! | `key` | what a bucket is called, and which slot that is |
//! | `shared` | one limiter's buckets, and its failure policy |
//! | `together` | several of them in one call |
//! | `undo` | giving back what was taken for nobody |
//! | `script`, `decide.lua` | the script and its protocol |
//! | `register`, `register.lua` | small values that processes share |
//! | `stats` | counters |

mod breaker;
mod call;
mod config;
mod fault;
mod key;
mod link;
mod register;
pub mod script;
mod shared;
mod stats;
mod together;
mod undo;

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "prometheus")]
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};

use self::breaker::{Breaker, probe_waits};
use self::link::{Link, Target};
use self::stats::{Counts, add_one};
use crate::error::BuildError;
use crate::log;

pub use config::{REDIS_TIMEOUT_MAX, RedisBuilder};
pub use register::{RegisterValues, Registers};
pub(crate) use shared::{Policy, Shared};
pub use stats::RedisStats;
pub(crate) use together::{Together, give_back, run_together};

/// What is left of a call's time for waking up.
const TIMER_SLACK: Duration = Duration::from_millis(3);

/// Parts of a Cluster's slots that fail apart: one primary away must not cost the others.
const CLUSTER_PARTS: usize = 32;

/// Looks in vain before a connection that seems to live is taken for dead. A link that swallows
/// everything would otherwise be trusted until TCP gives up, which takes minutes.
const LOOKS_BEFORE_RECONNECT: usize = 2;

/// A Redis server or Cluster that limiters share. Clones share connections; one per process is
/// enough for all limiters.
///
/// It needs Redis 6.2 or later, and decides on primaries only. Built inside a tokio runtime, it
/// lives there (with I/O and time enabled, as they are under `#[tokio::main]`); built outside, it
/// brings a small runtime of its own. It need not be there when the program starts and may go away
/// at any time: [`OnFailure`](crate::OnFailure) answers meanwhile, in microseconds after the first
/// few calls, and within a second of its return decisions come from it again. (After a link that
/// swallowed everything without a word, about a second: a handshake begun inside has to end first.)
///
/// Keys are stored in clear, as part of the name of a bucket's key. Hash what must not be read by
/// whoever can read the store.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use balde::{OnFailure, RateLimiter, RedisStore};
///
/// let store = RedisStore::new("redis://127.0.0.1:6379")?;
/// let limiter = RateLimiter::builder()
///     .name("per-user")
///     .limit("10/s burst 20")
///     .redis(&store, OnFailure::Allow)
///     .build()?;
/// assert!(limiter.check("alice").await.is_allowed());
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<Core>);

struct Settings {
    prefix: String,
    timeout: Duration,
    connections: usize,
    is_cluster: bool,
}

struct Core {
    settings: Settings,
    links: Vec<Arc<Link>>,
    turn: AtomicUsize,
    breakers: Vec<Breaker>,
    counts: Counts,
    script: call::Script,
    /// Calls whose late answers somebody waits for.
    late: AtomicU64,
    handle: Handle,
    /// Only where the store was built outside of a runtime.
    runtime: Option<Runtime>,
}

impl RedisStore {
    /// A store on one server, with everything else left at its default.
    pub fn new(address: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder().address(address).build()
    }

    /// For everything that [`new`](RedisStore::new) leaves at its default.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::new()
    }

    /// What the store has been through.
    pub fn stats(&self) -> RedisStats {
        let connects = self.0.links.iter().map(|link| link.connects()).sum();
        let is_open = self.0.breakers.iter().any(Breaker::is_open);
        self.0.counts.read(is_open, connects)
    }

    fn start(target: Target, settings: Settings) -> Result<Self, BuildError> {
        let (handle, runtime) = if let Ok(handle) = Handle::try_current() {
            (handle, None)
        } else {
            let runtime = own_runtime()?;
            (runtime.handle().clone(), Some(runtime))
        };
        let target = Arc::new(target);
        let links: Vec<_> = (0..settings.connections)
            .map(|_| Link::new(Arc::clone(&target), handle.clone()))
            .collect();
        for link in &links {
            link.connect();
        }
        let parts = if settings.is_cluster {
            CLUSTER_PARTS
        } else {
            1
        };
        Ok(Self(Arc::new(Core {
            settings,
            links,
            turn: AtomicUsize::new(0),
            breakers: (0..parts).map(|_| Breaker::new()).collect(),
            counts: Counts::default(),
            script: call::Script::new(),
            late: AtomicU64::new(0),
            handle,
            runtime,
        })))
    }

    /// Registers of this store: see [`Registers`]. Those of one `name` are apart from those of
    /// another; those of one `hash_tag` are in one slot of a Cluster.
    pub fn registers(&self, name: &str, hash_tag: impl AsRef<[u8]>) -> Registers {
        Registers::new(self, name, hash_tag.as_ref())
    }

    /// Spawns a background task on the tokio runtime that this store runs on. It works from threads
    /// that are in no runtime, too.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.handle.spawn(task);
    }

    #[cfg(feature = "prometheus")]
    pub(crate) fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.0))
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0.handle
    }

    /// How long to wait for an answer, so that the caller has its own within the timeout: timers
    /// fire up to a millisecond late, and a woken task waits for its turn.
    pub(crate) fn timeout(&self) -> Duration {
        let timeout = self.0.settings.timeout;
        timeout.saturating_sub(TIMER_SLACK.min(timeout / 10))
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Which buckets one call can reach together: all of one server, a slot of a Cluster.
    fn reach(&self, bucket: &[u8]) -> u16 {
        if self.0.settings.is_cluster {
            key::slot(bucket)
        } else {
            0
        }
    }

    fn breaker(&self, bucket: &[u8]) -> usize {
        usize::from(self.reach(bucket)) * self.0.breakers.len() / usize::from(key::SLOTS)
    }

    fn count_fallback(&self) {
        add_one(&self.0.counts.fallbacks);
    }

    /// Sends somebody to look until the store is back. It holds no share in the store, so the last
    /// clone of it can go at any time.
    fn send_prober(&self, breaker: usize, bucket: &[u8]) {
        add_one(&self.0.counts.opened);
        let name = key::probe(&self.0.settings.prefix, bucket);
        let weak = Arc::downgrade(&self.0);
        self.0.breakers[breaker].will_probe_in(Duration::ZERO);
        let prober = async move {
            for (looks, wait) in probe_waits().enumerate() {
                match weak.upgrade() {
                    Some(core) => core.breakers[breaker].will_probe_in(wait),
                    None => return,
                }
                tokio::time::sleep(wait).await;
                let Some(core) = weak.upgrade() else { return };
                let store = Self(core);
                if store.look(&name).await.is_ok() {
                    store.0.breakers[breaker].close();
                    log::breaker_closed();
                    return;
                }
                if looks % LOOKS_BEFORE_RECONNECT == LOOKS_BEFORE_RECONNECT - 1 {
                    store.reconnect();
                }
            }
        };
        let task = self.0.handle.spawn(prober);
        self.0.breakers[breaker].keep(task.abort_handle());
    }

    fn reconnect(&self) {
        for link in &self.0.links {
            if let Some((number, _)) = link.ready() {
                link.lost(number);
            }
        }
    }

    fn next_turn(&self) -> usize {
        self.0.turn.fetch_add(1, Ordering::Relaxed)
    }
}

/// A store that is not kept alive.
#[cfg(feature = "prometheus")]
pub(crate) struct WeakStore(Weak<Core>);

#[cfg(feature = "prometheus")]
impl WeakStore {
    pub(crate) fn stats(&self) -> Option<RedisStats> {
        self.0.upgrade().map(|core| RedisStore(core).stats())
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

fn own_runtime() -> Result<Runtime, BuildError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("balde-redis")
        .enable_all()
        .build()
        .map_err(|error| BuildError::Runtime { kind: error.kind() })
}

impl Drop for Core {
    fn drop(&mut self) {
        for link in &self.links {
            link.stop();
        }
        // Waiting for a runtime to end is not allowed inside another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.0.settings.prefix)
            .field("is_cluster", &self.0.settings.is_cluster)
            .field("timeout", &self.0.settings.timeout)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
