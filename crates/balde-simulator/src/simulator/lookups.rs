//! Which lookups may be credited: a payment order gives tokens back for a lookup by the same
//! participant, for the same payer, under the same `EndToEndId`, in time, and once.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::directory::{RecordStoreError, RedisRecords};
use crate::wire::Timestamp;

/// The most lookups that are remembered in this process; the oldest are forgotten first.
pub const LOOKUPS_MAX: usize = 500_000;

/// Identifies a lookup: its participant, its payer and its `EndToEndId`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupId<'l> {
    pub(crate) participant: &'l str,
    pub(crate) payer: &'l str,
    pub(crate) end_to_end_id: &'l str,
}

/// A lookup for which a payment order may be credited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lookup {
    /// The Pix key of the lookup, which decides the buckets.
    pub(crate) key: Box<str>,
    /// The time of the lookup.
    pub(crate) at: Timestamp,
}

/// Whether a lookup may be credited, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// It may: this is the lookup.
    Yes(Lookup),
    /// There was no such lookup.
    NoLookup,
    /// It was too long ago.
    TooLate,
    /// It was credited before.
    Before,
}

/// The lookups that are remembered.
#[derive(Debug)]
pub(crate) struct Lookups {
    store: LookupStore,
    deadline_ms: u64,
    is_once: bool,
}

#[derive(Debug)]
enum LookupStore {
    Memory(Box<MemoryLookups>),
    Redis(RedisRecords),
}

struct MemoryLookups {
    /// Payers are not stored in plain text; two keyed hashes take their place.
    secrets: [RandomState; 2],
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    lookups: HashMap<u128, (Lookup, bool)>,
    in_order: VecDeque<u128>,
}

impl Lookups {
    pub(crate) fn new(shared: Option<RedisRecords>, deadline_s: u64, is_once: bool) -> Self {
        let memory = || MemoryLookups {
            secrets: [RandomState::new(), RandomState::new()],
            known: Mutex::default(),
        };
        Self {
            store: shared.map_or_else(
                || LookupStore::Memory(Box::new(memory())),
                LookupStore::Redis,
            ),
            deadline_ms: deadline_s.saturating_mul(1_000),
            is_once,
        }
    }

    /// Remembers a lookup.
    pub(crate) async fn note(
        &self,
        id: LookupId<'_>,
        key: &str,
        at: Timestamp,
    ) -> Result<(), RecordStoreError> {
        match &self.store {
            LookupStore::Memory(memory) => {
                memory.note(id, key, at);
                Ok(())
            }
            LookupStore::Redis(texts) => {
                let lookup = Lookup {
                    key: key.into(),
                    at,
                };
                let text = serde_json::to_string(&lookup).unwrap_or_default();
                let seconds = self.seconds();
                texts.set_text(&id.name("lookup"), &text, seconds).await
            }
        }
    }

    /// Claims the credit of a lookup, so that it is given only once.
    pub(crate) async fn claim(
        &self,
        id: LookupId<'_>,
        now: Timestamp,
    ) -> Result<Claimed, RecordStoreError> {
        match &self.store {
            LookupStore::Memory(memory) => {
                Ok(memory.claim(id, now, self.deadline_ms, self.is_once))
            }
            LookupStore::Redis(texts) => {
                let text = texts.get_text(&id.name("lookup")).await?;
                let lookup = text.and_then(|text| serde_json::from_str::<Lookup>(&text).ok());
                let Some(lookup) = lookup else {
                    return Ok(Claimed::NoLookup);
                };
                if self.is_late(&lookup, now) {
                    return Ok(Claimed::TooLate);
                }
                let name = id.name("credited");
                if self.is_once && !texts.create_marker(&name, self.seconds()).await? {
                    return Ok(Claimed::Before);
                }
                Ok(Claimed::Yes(lookup))
            }
        }
    }

    /// Releases a claim, because the credit could not be given.
    pub(crate) async fn give_back(&self, id: LookupId<'_>) -> Result<(), RecordStoreError> {
        match &self.store {
            LookupStore::Memory(memory) => {
                if let Some((_, is_credited)) =
                    memory.known.lock().lookups.get_mut(&memory.hash(id))
                {
                    *is_credited = false;
                }
                Ok(())
            }
            LookupStore::Redis(texts) => texts.delete_text(&id.name("credited")).await,
        }
    }

    fn is_late(&self, lookup: &Lookup, now: Timestamp) -> bool {
        is_late(lookup, now, self.deadline_ms)
    }

    /// How long Redis keeps a lookup: until it cannot be credited any more.
    fn seconds(&self) -> u64 {
        self.deadline_ms / 1_000 + 60
    }
}

fn is_late(lookup: &Lookup, now: Timestamp, deadline_ms: u64) -> bool {
    now.ms().saturating_sub(lookup.at.ms()) > deadline_ms
}

impl LookupId<'_> {
    fn name(self, what: &str) -> String {
        format!(
            "{what}:{}:{}:{}",
            self.participant, self.payer, self.end_to_end_id
        )
    }
}

impl MemoryLookups {
    fn hash(&self, id: LookupId<'_>) -> u128 {
        let hash =
            |secret: &RandomState| secret.hash_one((id.participant, id.payer, id.end_to_end_id));
        u128::from(hash(&self.secrets[0])) << 64 | u128::from(hash(&self.secrets[1]))
    }

    fn note(&self, id: LookupId<'_>, key: &str, at: Timestamp) {
        let hash = self.hash(id);
        let mut known = self.known.lock();
        if let Some((lookup, _)) = known.lookups.get_mut(&hash) {
            // Whether it was credited stays; the key is that of the latest lookup.
            lookup.at = at;
            if *lookup.key != *key {
                lookup.key = key.into();
            }
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
            at,
        };
        known.lookups.insert(hash, (lookup, false));
    }

    fn claim(&self, id: LookupId<'_>, now: Timestamp, deadline_ms: u64, is_once: bool) -> Claimed {
        let mut known = self.known.lock();
        let Some((lookup, is_credited)) = known.lookups.get_mut(&self.hash(id)) else {
            return Claimed::NoLookup;
        };
        if is_late(lookup, now, deadline_ms) {
            return Claimed::TooLate;
        }
        if *is_credited && is_once {
            return Claimed::Before;
        }
        *is_credited = true;
        Claimed::Yes(lookup.clone())
    }
}

impl fmt::Debug for MemoryLookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLookups")
            .field("lookups", &self.known.lock().lookups.len())
            .finish_non_exhaustive()
    }
}
