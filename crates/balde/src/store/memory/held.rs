//! Tokens that are held of buckets in memory, beside the buckets.

use std::collections::HashMap;

use super::fingerprint::Fingerprint;
use super::sync::Mutex;

/// How many tokens are held, by key. It is read and written while the shard of the key is locked.
pub(super) struct HeldTokens(Mutex<HashMap<Fingerprint, u64>>);

impl HeldTokens {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    pub(super) fn of(&self, key: Fingerprint) -> u64 {
        self.0.lock().get(&key).copied().unwrap_or(0)
    }

    pub(super) fn set(&self, key: Fingerprint, held: u64) {
        let mut tokens = self.0.lock();
        if held == 0 {
            tokens.remove(&key);
        } else {
            tokens.insert(key, held);
        }
    }
}
