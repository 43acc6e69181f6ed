//! Buckets in Redis, shared by processes.
//!
//! | File | Holds |
//! |--|--|
//! | `config` | the builder, and the checks of its settings |
//! | `link` | one connection that reconnects by itself |
//! | `stream`, `reply_limit` | the bytes of a connection, and the largest reply |
//! | `pacing` | when connections may be opened |
//! | `place` | where connections go, and why one could not be opened |
//! | `call` | one call of the script, its reload and its retries |
//! | `breaker` | the circuit breaker |
//! | `error` | which failure an error of the client or server is |
//! | `key` | the names of buckets, and their slots |
//! | `buckets` | the buckets of one limiter, and its failure policy |
//! | `multi` | several buckets in one call |
//! | `observer` | log events, spans and durations of calls |
//! | `undo` | gives back tokens that no caller got |
//! | `script`, `decide.lua` | the script and its protocol |
//! | `inspect` | reads buckets for tools |
//! | `register`, `register.lua` | small values that processes share |
//! | `stats` | counters |

mod breaker;
mod buckets;
mod call;
mod config;
mod error;
mod inspect;
mod key;
mod link;
mod multi;
mod observer;
mod pacing;
mod place;
mod register;
mod reply_limit;
pub mod script;
mod stats;
mod stream;
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
use self::pacing::ConnectPacer;
use self::place::Place;
use self::stats::{Counts, add_one};
use crate::error::RedisConfigError;
use crate::failure::StoreFailure;

pub(crate) use buckets::{BucketOptions, RedisBuckets};
pub use config::{REDIS_TIMEOUT_MAX, RedisBuilder};
pub use inspect::{BucketScan, StoredBucket};
pub(crate) use multi::{RedisStep, refund, run_all};
pub(crate) use observer::ScriptTimer;
pub use register::{RegisterValues, Registers};
pub use stats::RedisStats;
pub(crate) use undo::undoing;

/// The part of a call's timeout that is left for waking up the caller.
const TIMER_SLACK: Duration = Duration::from_millis(3);

/// Circuit breakers of a Cluster, each for a range of slots: the failure of one primary must not
/// affect the others.
const CLUSTER_PARTS: usize = 32;

/// Probes that time out before a connection that looks alive is replaced. A network that drops
/// packets silently would otherwise keep it until TCP times out, which takes minutes.
const TIMEOUTS_BEFORE_RECONNECT: u32 = 2;

/// The shortest wait before a probe.
const PROBE_WAIT_MIN: Duration = Duration::from_millis(10);

/// Connections to a Redis server or Cluster that limiters keep their buckets in. Clones share the
/// connections; one store per process is enough for all limiters.
///
/// Redis must be version 6.2 or later. Decisions are made on primaries only. A store that is built
/// inside a tokio runtime runs there (the runtime needs I/O and time enabled, as under
/// `#[tokio::main]`); built outside, it starts a runtime with one thread.
///
/// Redis may be unavailable when the program starts and at any later time. Meanwhile
/// [`OnFailure`](crate::OnFailure) decides, in microseconds after the first few calls: a circuit
/// breaker stops calls and probes the server. Decisions come from Redis again within about a second
/// of its return.
///
/// Keys are stored in plain text, as part of the names of Redis keys. Hash keys that readers of the
/// store must not see.
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
    pacer: Arc<ConnectPacer>,
    turn: AtomicUsize,
    breakers: Vec<Breaker>,
    counts: Counts,
    script: call::Script,
    place: Arc<Place>,
    /// Calls that timed out and whose late replies are awaited, to undo them.
    late: AtomicU64,
    handle: Handle,
    /// Only if the store was built outside of a runtime.
    runtime: Option<Runtime>,
}

impl RedisStore {
    /// Creates a store on one server, with default settings.
    pub fn new(address: impl Into<String>) -> Result<Self, RedisConfigError> {
        Self::builder().address(address).build()
    }

    /// Returns a builder, to set a Cluster, TLS, a password, timeouts and more.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::new()
    }

    /// The store's counters, and the state of its circuit breaker.
    pub fn stats(&self) -> RedisStats {
        let sum = |of: fn(&Link) -> u64| self.0.links.iter().map(|link| of(link)).sum();
        RedisStats {
            is_open: self.0.breakers.iter().any(Breaker::is_open),
            connects_total: sum(Link::connects),
            connect_attempts_total: sum(Link::attempts),
            ..self.0.counts.read()
        }
    }

    fn start(target: Target, settings: Settings) -> Result<Self, RedisConfigError> {
        let (handle, runtime) = if let Ok(handle) = Handle::try_current() {
            (handle, None)
        } else {
            let runtime = own_runtime()?;
            (runtime.handle().clone(), Some(runtime))
        };
        let address = match &target {
            Target::Single(server) => server.info.addr().to_string(),
            // The client does not tell its addresses.
            Target::Cluster(_) => "the Cluster".to_owned(),
        };
        let place = Arc::new(Place::new(address));
        let target = Arc::new(target);
        let pacer = Arc::new(ConnectPacer::new(settings.connections));
        let links: Vec<_> = (0..settings.connections)
            .map(|_| {
                let (target, pacer) = (Arc::clone(&target), Arc::clone(&pacer));
                Link::new(target, handle.clone(), pacer, Arc::clone(&place))
            })
            .collect();
        for link in &links {
            link.connect_if_due();
        }
        let parts = if settings.is_cluster {
            CLUSTER_PARTS
        } else {
            1
        };
        Ok(Self(Arc::new(Core {
            settings,
            links,
            pacer,
            turn: AtomicUsize::new(0),
            breakers: (0..parts).map(|_| Breaker::new()).collect(),
            counts: Counts::default(),
            script: call::Script::new(parts),
            place,
            late: AtomicU64::new(0),
            handle,
            runtime,
        })))
    }

    /// Returns a set of registers in this store; see [`Registers`]. Sets with different names share
    /// no registers. Registers with the same `hash_tag` are in one slot of a Cluster.
    pub fn registers(&self, name: &str, hash_tag: impl AsRef<[u8]>) -> Registers {
        Registers::new(self, name, hash_tag.as_ref())
    }

    /// Spawns a background task on the tokio runtime that this store runs on. Can also be called
    /// from threads outside of any runtime.
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

    /// How long to wait for a reply, so that the caller has its decision within the timeout: timers
    /// fire up to a millisecond late, and a woken task waits for its turn.
    pub(crate) fn timeout(&self) -> Duration {
        let timeout = self.0.settings.timeout;
        timeout.saturating_sub(TIMER_SLACK.min(timeout / 10))
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Identifies the buckets that one call can reach: all of one server, or a slot of a Cluster.
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

    /// Starts the task that probes the store until it is available. The task does not keep the store
    /// alive.
    fn start_prober(&self, breaker: usize, bucket: &[u8]) {
        add_one(&self.0.counts.opened);
        let name = key::probe(&self.0.settings.prefix, bucket);
        let weak = Arc::downgrade(&self.0);
        self.0.breakers[breaker].will_probe_in(Duration::ZERO);
        let prober = async move {
            let mut timeouts = 0;
            let mut logged = None;
            for wait in probe_waits() {
                let Some(core) = weak.upgrade() else { return };
                let wait = Self(core).wait_for_probe(breaker, wait);
                tokio::time::sleep(wait).await;
                let Some(core) = weak.upgrade() else { return };
                let store = Self(core);
                match store.probe(&name).await {
                    Ok(()) => {
                        store.0.breakers[breaker].close();
                        observer::breaker_closed(&store.0.place);
                        return;
                    }
                    Err(failure) => {
                        // The first failure may not have known why: a connection takes its time.
                        let cause = store.0.place.cause(failure);
                        if logged.as_ref() != Some(&cause) {
                            store.0.script.log_failure(failure, &store.0.place);
                            logged = Some(cause);
                        }
                        let is_timeout = failure == StoreFailure::Timeout;
                        timeouts = if is_timeout { timeouts + 1 } else { 0 };
                    }
                }
                if timeouts == TIMEOUTS_BEFORE_RECONNECT {
                    timeouts = 0;
                    store.reconnect();
                }
            }
        };
        let task = self.0.handle.spawn(prober);
        self.0.breakers[breaker].keep(task.abort_handle());
    }

    /// How long the prober waits: without a connection, until one may be opened.
    fn wait_for_probe(&self, breaker: usize, wait: Duration) -> Duration {
        let wait = if self.0.links.iter().all(|link| link.is_down()) {
            self.0.pacer.wait().max(PROBE_WAIT_MIN)
        } else {
            wait
        };
        self.0.breakers[breaker].will_probe_in(wait);
        wait
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

/// A reference that does not keep the store alive.
#[cfg(feature = "prometheus")]
pub(crate) struct WeakStore(Weak<Core>);

#[cfg(feature = "prometheus")]
impl WeakStore {
    pub(crate) fn stats(&self) -> Option<RedisStats> {
        self.0.upgrade().map(|core| RedisStore(core).stats())
    }

    /// Identifies the store for as long as this reference exists.
    pub(crate) fn id(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

fn own_runtime() -> Result<Runtime, RedisConfigError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("balde-redis")
        .enable_all()
        .build()
        .map_err(|error| RedisConfigError::Runtime { kind: error.kind() })
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
