//! Who may do what: tokens with rights.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use ring::digest::{SHA256, digest};

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Check, check several, wait, peek, and hold.
    Check,
    /// Settle holds, charge and credit.
    Settle,
    /// Change buckets, tiers and blocked keys.
    Admin,
}

impl Right {
    /// The name in the file and in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Settle => "settle",
            Self::Admin => "admin",
        }
    }
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);

    /// The same rights and one more.
    pub const fn with(self, right: Right) -> Self {
        Self(self.0 | 1 << right as u8)
    }

    /// Returns whether the set has a right.
    pub const fn has(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }
}

/// The tokens of a service, and what callers without a token may do.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    anonymous: Rights,
    /// Digests of the secrets, so that a lookup takes the same time whatever part of one is right.
    tokens: BTreeMap<[u8; 32], (String, Rights)>,
}

impl Access {
    /// No tokens; callers have these rights.
    pub const fn new(anonymous: Rights) -> Self {
        Self {
            anonymous,
            tokens: BTreeMap::new(),
        }
    }

    /// Adds a token. Returns false if another token has the same secret.
    pub fn add(&mut self, name: &str, secret: &str, rights: Rights) -> bool {
        let token = (name.to_owned(), rights);
        self.tokens.insert(sha256(secret), token).is_none()
    }

    /// The rights of callers without a token.
    pub const fn anonymous(&self) -> Rights {
        self.anonymous
    }

    /// The rights of whoever knows a secret; `None` if it is no token's.
    pub fn rights_of(&self, secret: &str) -> Option<Rights> {
        self.tokens.get(&sha256(secret)).map(|(_, rights)| *rights)
    }

    /// The rights of the token whose secret has this digest.
    pub(crate) fn rights_of_digest(&self, digest: &[u8; 32]) -> Option<Rights> {
        self.tokens.get(digest).map(|(_, rights)| *rights)
    }

    /// [`rights_of`](Access::rights_of) a secret that is given with the name of its token.
    pub fn rights_of_named(&self, name: &str, secret: &str) -> Option<Rights> {
        let token = self.tokens.get(&sha256(secret));
        token
            .filter(|(known, _)| known == name)
            .map(|(_, rights)| *rights)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.tokens.values().map(|(name, rights)| (name, rights));
        f.debug_struct("Access")
            .field("anonymous", &self.anonymous)
            .field("tokens", &names.collect::<Vec<_>>())
            .finish()
    }
}

/// The rights that are in force, which a reload can change. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct SharedAccess(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    access: RwLock<Access>,
    /// How often it was replaced.
    generation: AtomicU64,
}

impl SharedAccess {
    pub(crate) fn new(access: Access) -> Self {
        Self(Arc::new(Shared {
            access: RwLock::new(access),
            generation: AtomicU64::new(0),
        }))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Access> {
        self.0.access.read()
    }

    pub(crate) fn replace(&self, access: Access) {
        *self.0.access.write() = access;
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// A number that changes with the rights, for connections that remember theirs.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }
}

pub(crate) fn sha256(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_its_rights_and_no_other() {
        let mut access = Access::new(Rights::NONE);
        assert!(access.add("shop", "s3cret", Rights::NONE.with(Right::Check)));
        assert!(!access.add("again", "s3cret", Rights::NONE));
        assert!(access.add("ops", "other", Rights::NONE.with(Right::Admin)));
        let rights = access.rights_of("other").unwrap();
        assert!(
            rights.has(Right::Admin) && !rights.has(Right::Check) && !rights.has(Right::Settle)
        );
        assert_eq!(access.rights_of("s3cre"), None);
        assert_eq!(access.rights_of_named("shop", "other"), None);
        assert!(access.rights_of_named("ops", "other").is_some());
        assert!(!format!("{access:?}").contains("s3cret"));
    }
}
