//! The counters of shared stores, each store once however many limiters use it.

use parking_lot::Mutex;

use crate::failure::StoreFailure;

/// Reads the counters of a store; `None` once the store is gone.
type Read = Box<dyn Fn() -> Option<StoreReading> + Send + Sync>;

#[derive(Default)]
pub(super) struct Stores(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    sources: Vec<Source>,
    /// The counts of stores that are gone. A counter must not go down with them.
    gone: StoreReading,
}

struct Source {
    id: usize,
    read: Read,
    last: StoreReading,
}

/// The counters of a store, or of all stores together.
#[derive(Clone, Copy, Default)]
pub(crate) struct StoreReading {
    pub(crate) open: u64,
    pub(crate) opened: u64,
    pub(crate) calls: u64,
    pub(crate) connects: u64,
    pub(crate) reloads: u64,
    pub(crate) failures: [u64; StoreFailure::ALL.len()],
}

impl Stores {
    /// Registers a store, unless one with this `id` is registered already.
    #[cfg(feature = "redis")]
    pub(super) fn add(&self, id: usize, read: Read) {
        let mut registered = self.0.lock();
        if registered.sources.iter().all(|known| known.id != id) {
            registered.read();
            registered.sources.push(Source {
                id,
                read,
                last: StoreReading::default(),
            });
        }
    }

    pub(super) fn read(&self) -> StoreReading {
        self.0.lock().read()
    }
}

impl Registered {
    fn read(&mut self) -> StoreReading {
        let gone = &mut self.gone;
        self.sources.retain_mut(|source| {
            let reading = (source.read)();
            if let Some(reading) = reading {
                source.last = reading;
            } else {
                source.last.open = 0;
                *gone = gone.plus(source.last);
            }
            reading.is_some()
        });
        let sources = self.sources.iter();
        sources.fold(self.gone, |sum, source| sum.plus(source.last))
    }
}

impl StoreReading {
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
