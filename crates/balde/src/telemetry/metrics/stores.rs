//! What shared stores know by themselves, each store once however many limiters use it.

use parking_lot::Mutex;

use crate::failure::StoreFailure;
use crate::limiter::RateLimiter;
use crate::store::redis::{RedisStats, Shared, WeakStore};

#[derive(Default)]
pub(super) struct Stores(Mutex<Book>);

#[derive(Default)]
struct Book {
    sources: Vec<Source>,
    /// What stores that are gone had counted.
    gone: StoreReading,
}

struct Source {
    store: WeakStore,
    last: StoreReading,
}

/// All stores together.
#[derive(Clone, Copy, Default)]
pub(super) struct StoreReading {
    pub(super) open: u64,
    pub(super) opened: u64,
    pub(super) calls: u64,
    pub(super) connects: u64,
    pub(super) reloads: u64,
    pub(super) failures: [u64; StoreFailure::ALL.len()],
}

impl Stores {
    pub(super) fn attach(&self, limiter: &RateLimiter) {
        let Some(store) = limiter.shared().map(Shared::store) else {
            return;
        };
        let store = store.downgrade();
        let mut book = self.0.lock();
        if book
            .sources
            .iter()
            .all(|known| !known.store.is_same(&store))
        {
            book.read();
            book.sources.push(Source {
                store,
                last: StoreReading::default(),
            });
        }
    }

    pub(super) fn read(&self) -> StoreReading {
        self.0.lock().read()
    }
}

impl Book {
    fn read(&mut self) -> StoreReading {
        let gone = &mut self.gone;
        self.sources.retain_mut(|source| {
            let stats = source.store.stats();
            if let Some(stats) = &stats {
                source.last = StoreReading::of(stats);
            } else {
                source.last.open = 0;
                *gone = gone.plus(source.last);
            }
            stats.is_some()
        });
        let sources = self.sources.iter();
        sources.fold(self.gone, |sum, source| sum.plus(source.last))
    }
}

impl StoreReading {
    fn of(stats: &RedisStats) -> Self {
        Self {
            open: u64::from(stats.is_open),
            opened: stats.opened_total,
            calls: stats.calls_total,
            connects: stats.connects_total,
            reloads: stats.reloads_total,
            failures: StoreFailure::ALL.map(|failure| stats.failures(failure)),
        }
    }

    fn plus(self, other: Self) -> Self {
        let mut failures = self.failures;
        for (sum, more) in failures.iter_mut().zip(other.failures) {
            *sum += more;
        }
        Self {
            open: self.open + other.open,
            opened: self.opened + other.opened,
            calls: self.calls + other.calls,
            connects: self.connects + other.connects,
            reloads: self.reloads + other.reloads,
            failures,
        }
    }
}
