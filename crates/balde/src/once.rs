//! Operations that happen once, however often they are asked for.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde_core::Decision;
use parking_lot::Mutex;

/// The longest id of an operation, in bytes.
pub const OP_ID_BYTES_MAX: usize = 128;

/// How long the outcome of an operation is remembered unless told otherwise.
pub(crate) const ONCE_TTL_DEFAULT: Duration = Duration::from_secs(600);

/// Operations that a limiter in memory remembers: some ten megabytes when they are all there.
pub(crate) const ONCE_MAX: usize = 65_536;

/// What names an operation, so that asking for it again does not make it happen again: the id of
/// the request it belongs to, for instance. It belongs to a limiter, a key and a kind of
/// operation: a charge and a credit under one id are two operations.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OpId(Box<[u8]>);

impl OpId {
    /// The id, unless it is empty or longer than [`OP_ID_BYTES_MAX`].
    pub fn new(id: impl AsRef<[u8]>) -> Result<Self, BadOpId> {
        let id = id.as_ref();
        if (1..=OP_ID_BYTES_MAX).contains(&id.len()) {
            Ok(Self(id.into()))
        } else {
            Err(BadOpId { bytes: id.len() })
        }
    }

    /// An id that nobody else has.
    pub fn random() -> Self {
        static PROCESS: OnceLock<[u64; 2]> = OnceLock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Two keyed hashes of nothing are 128 bits of the system's randomness; the number of the
        // process keeps a forked one apart.
        let secrets = PROCESS.get_or_init(|| [(); 2].map(|()| RandomState::new().hash_one(0_u64)));
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut id = Vec::with_capacity(28);
        id.extend(secrets.iter().flat_map(|secret| secret.to_le_bytes()));
        id.extend(process::id().to_le_bytes());
        id.extend(count.to_le_bytes());
        Self(id.into())
    }

    #[cfg(feature = "redis")]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may be somebody's request or payment: not for logs.
        f.debug_struct("OpId").finish_non_exhaustive()
    }
}

/// An id of an operation that is empty or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadOpId {
    bytes: usize,
}

impl fmt::Display for BadOpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the id of an operation has {} bytes; it needs 1 to {OP_ID_BYTES_MAX}",
            self.bytes
        )
    }
}

impl std::error::Error for BadOpId {}

/// What a limiter in memory remembers of operations: up to [`ONCE_MAX`], then the oldest go first.
/// They wait for each other, so that an operation asked for twice at once happens once.
pub(crate) struct Once {
    ttl_us: u64,
    /// Keys and ids may be long; two keyed hashes of them are not.
    secrets: [RandomState; 2],
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    outcomes: HashMap<[u64; 2], Decision>,
    in_order: VecDeque<(u64, [u64; 2])>,
}

impl Once {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self {
            ttl_us: u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX),
            secrets: [RandomState::new(), RandomState::new()],
            done: Mutex::default(),
        }
    }

    /// What `operation` gave, or what it gave before under the same kind, key and id.
    pub(crate) fn run(
        &self,
        kind: u8,
        key: &[u8],
        id: &OpId,
        now_us: u64,
        operation: impl FnOnce() -> Decision,
    ) -> Decision {
        let name = self.secrets.each_ref().map(|s| s.hash_one((kind, key, id)));
        let mut done = self.done.lock();
        done.forget(|until_us, _| until_us <= now_us);
        if let Some(outcome) = done.outcomes.get(&name) {
            return *outcome;
        }
        // Only now is there need of room: the oldest may have been the one that was asked for.
        done.forget(|_, len| len >= ONCE_MAX);
        let outcome = operation();
        done.in_order
            .push_back((now_us.saturating_add(self.ttl_us), name));
        done.outcomes.insert(name, outcome);
        outcome
    }
}

impl Done {
    /// Forgets the oldest for as long as the rule says so of it and of how many there are.
    fn forget(&mut self, rule: impl Fn(u64, usize) -> bool) {
        while let Some((until_us, oldest)) = self.in_order.front().copied()
            && rule(until_us, self.in_order.len())
        {
            self.in_order.pop_front();
            self.outcomes.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use balde_core::{Command, Limit};

    use super::*;

    fn outcome(n: u64) -> Decision {
        let limit: Limit = "10/s".parse().unwrap();
        limit.apply(None, Command::Charge { n }, 0)
    }

    #[test]
    fn an_operation_is_remembered_for_its_time_by_kind_key_and_id() {
        let once = Once::new(Duration::from_secs(1));
        let id = OpId::new("a").unwrap();
        let run = |kind, key: &[u8], id: &OpId, now_us, n| {
            once.run(kind, key, id, now_us, || outcome(n)).moved()
        };
        assert_eq!(run(0, b"k", &id, 0, 1), 1);
        assert_eq!(run(0, b"k", &id, 999_999, 2), 1);
        assert_eq!(run(1, b"k", &id, 5, 2), 2);
        assert_eq!(run(0, b"l", &id, 5, 3), 3);
        assert_eq!(run(0, b"k", &OpId::new("b").unwrap(), 5, 4), 4);
        assert_eq!(run(0, b"k", &id, 1_000_000, 5), 5);
    }

    #[test]
    fn the_oldest_go_first_and_random_ids_differ() {
        let once = Once::new(Duration::from_secs(1));
        for _ in 0..ONCE_MAX + 10 {
            once.run(0, b"k", &OpId::random(), 0, || outcome(1));
        }
        assert_eq!(once.done.lock().outcomes.len(), ONCE_MAX);
        assert_eq!(once.done.lock().in_order.len(), ONCE_MAX);
    }

    #[test]
    fn as_many_as_are_promised_are_remembered() {
        let once = Once::new(Duration::from_secs(1));
        let first = OpId::new("first").unwrap();
        once.run(0, b"k", &first, 0, || outcome(1));
        for _ in 1..ONCE_MAX {
            once.run(0, b"k", &OpId::random(), 0, || outcome(2));
        }
        assert_eq!(once.run(0, b"k", &first, 0, || outcome(3)).moved(), 1);
    }

    #[test]
    fn an_id_has_bytes_but_not_too_many() {
        assert!(OpId::new("").is_err());
        assert!(OpId::new([0; OP_ID_BYTES_MAX]).is_ok());
        let error = OpId::new([0; OP_ID_BYTES_MAX + 1]).unwrap_err();
        assert!(error.to_string().contains("129 bytes"));
    }
}
