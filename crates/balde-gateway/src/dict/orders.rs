//! Which lookups payment orders give tokens back for.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::Mutex;

/// The most lookups that are remembered; the oldest are forgotten first.
const LOOKUPS_MAX: usize = 500_000;

/// Lookups that payment orders may give tokens back for, in memory. An order without a lookup that is
/// known here gives nothing back: the mirror then has fewer tokens than DICT, not more.
pub(crate) struct Lookups {
    secret: RandomState,
    deadline_us: u64,
    is_once: bool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    lookups: HashMap<u64, Lookup>,
    in_order: VecDeque<u64>,
}

struct Lookup {
    /// The raw path segment of the key, which decides the buckets.
    key: Box<str>,
    at_us: u64,
    is_credited: bool,
}

/// Whether an order gives tokens back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It does, for the lookup of this key, which ended at this time.
    Lookup { key: Box<str>, at_us: u64 },
    /// There was no lookup with this participant, payer and `EndToEndId`.
    NoLookup,
    /// The lookup was too long ago.
    TooLate,
    /// It gave tokens back before.
    Before,
}

/// Identifies a lookup, and the order that follows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderId<'o> {
    pub(crate) participant: &'o str,
    pub(crate) payer: &'o str,
    pub(crate) end_to_end_id: &'o str,
}

impl Lookups {
    pub(crate) fn new(deadline: std::time::Duration, is_once: bool) -> Self {
        Self {
            secret: RandomState::new(),
            deadline_us: u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX),
            is_once,
            known: Mutex::default(),
        }
    }

    fn hash(&self, id: OrderId<'_>) -> u64 {
        self.secret
            .hash_one((id.participant, id.payer, id.end_to_end_id))
    }

    /// Remembers a lookup.
    pub(crate) fn note(&self, id: OrderId<'_>, key: &str, at_us: u64) {
        let hash = self.hash(id);
        let mut known = self.known.lock();
        if let Some(lookup) = known.lookups.get_mut(&hash) {
            lookup.at_us = at_us;
            lookup.key = key.into();
            return;
        }
        if known.in_order.len() >= LOOKUPS_MAX
            && let Some(oldest) = known.in_order.pop_front()
        {
            known.lookups.remove(&oldest);
        }
        known.in_order.push_back(hash);
        let lookup = Lookup {
            key: key.into(),
            at_us,
            is_credited: false,
        };
        known.lookups.insert(hash, lookup);
    }

    /// Claims the tokens of a lookup, so that they are given back once.
    pub(crate) fn claim(&self, id: OrderId<'_>, now_us: u64) -> Claim {
        let mut known = self.known.lock();
        let Some(lookup) = known.lookups.get_mut(&self.hash(id)) else {
            return Claim::NoLookup;
        };
        if now_us.saturating_sub(lookup.at_us) > self.deadline_us {
            return Claim::TooLate;
        }
        if lookup.is_credited && self.is_once {
            return Claim::Before;
        }
        lookup.is_credited = true;
        Claim::Lookup {
            key: lookup.key.clone(),
            at_us: lookup.at_us,
        }
    }

    /// Releases a claim whose tokens could not be given back.
    pub(crate) fn release(&self, id: OrderId<'_>) {
        if let Some(lookup) = self.known.lock().lookups.get_mut(&self.hash(id)) {
            lookup.is_credited = false;
        }
    }
}

impl std::fmt::Debug for Lookups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookups").finish_non_exhaustive()
    }
}
