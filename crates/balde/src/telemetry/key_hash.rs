//! Keys as logs and spans show them: a salted hash, never the key.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

const VARIABLE: &str = "RL_LOG_SALT";

/// The hash under which logs and spans show `key`, with `salt` as in `RL_LOG_SALT`: 64 hexadecimal
/// digits. For tools that look for the key of a log line.
///
/// ```
/// let hash = balde::telemetry::key_hash(b"pepper", b"alice");
/// assert!(hash.starts_with("b1b68da447843a65"));
/// ```
pub fn key_hash(salt: &[u8], key: &[u8]) -> String {
    KeyHasher::salted(salt).hash(key).to_string()
}

/// The hash under which the logs and spans of this process show `key`. Without `RL_LOG_SALT`, every process
/// has a random salt of its own.
pub fn process_key_hash(key: &[u8]) -> String {
    KeyHasher::of_process().hash(key).to_string()
}

/// SHA-256 with the salt as prefix, so that the salt itself is not kept.
#[derive(Clone)]
pub(crate) struct KeyHasher(Sha256);

impl KeyHasher {
    pub(crate) fn salted(salt: &[u8]) -> Self {
        Self(Sha256::new_with_prefix(salt))
    }

    /// The hasher with the salt in `RL_LOG_SALT`; without it, with a random salt of this process.
    pub(crate) fn of_process() -> Self {
        static OF_PROCESS: OnceLock<KeyHasher> = OnceLock::new();
        let made = OF_PROCESS.get_or_init(|| match std::env::var(VARIABLE) {
            Ok(salt) if !salt.is_empty() => Self::salted(salt.as_bytes()),
            _ => Self::salted(&random_salt()),
        });
        made.clone()
    }

    /// The hasher with the salt that `lookup` returns; `None` without one.
    pub(crate) fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let salt = lookup(VARIABLE).filter(|salt| !salt.is_empty())?;
        Some(Self::salted(salt.as_bytes()))
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.0.clone().chain_update(key).finalize().into())
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}

/// A key's hash, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash([u8; 32]);

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// 256 bits of the system's randomness, as keyed hashes of constants.
fn random_salt() -> [u8; 32] {
    let mut salt = [0; 32];
    for (number, eight) in salt.chunks_exact_mut(8).enumerate() {
        eight.copy_from_slice(&RandomState::new().hash_one(number).to_le_bytes());
    }
    salt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_hash_of_salt_and_key() {
        // sha256("pepperalice"), by sha256sum.
        let hash = KeyHasher::salted(b"pepper").hash(b"alice").to_string();
        assert_eq!(
            hash,
            "b1b68da447843a6519d8dd7a9c13c90aa1148805cbe55810f86712e6c294ff36"
        );
        assert_ne!(hash, KeyHasher::salted(b"salt").hash(b"alice").to_string());
    }

    #[test]
    fn without_a_salt_the_process_makes_one_and_keeps_it() {
        let [first, second] = [(); 2].map(|()| KeyHasher::of_process().hash(b"alice"));
        assert!(first == second);
        let unsalted = KeyHasher::salted(b"").hash(b"alice");
        assert!(first != unsalted, "there is a salt");
    }

    #[test]
    fn settings_without_a_salt_leave_it_to_the_process() {
        let set = |value: &str| KeyHasher::from_lookup(|_| Some(value.to_owned()));
        assert!(set("").is_none());
        assert!(set("pepper").is_some());
    }
}
