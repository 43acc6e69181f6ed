//! Operation ids, and the log of operations that makes each of them happen once.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde_core::Decision;
use parking_lot::Mutex;

/// The longest [`OpId`], in bytes.
pub const OP_ID_BYTES_MAX: usize = 128;

/// How long an operation is remembered by default.
pub(crate) const ONCE_TTL_DEFAULT: Duration = Duration::from_secs(600);

/// The most operations that a limiter in memory remembers: about ten megabytes.
pub(crate) const ONCE_MAX: usize = 65_536;

/// The id of an operation, so that a retry does not make it happen twice: the id of the request that
/// it belongs to, for instance. Ids are scoped to a limiter, a key and a kind of operation: a charge
/// and a credit with one id are two operations.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OpId(Box<[u8]>);

impl OpId {
    /// Creates an id. Fails if it is empty or longer than [`OP_ID_BYTES_MAX`].
    pub fn new(id: impl AsRef<[u8]>) -> Result<Self, InvalidOpId> {
        let id = id.as_ref();
        if (1..=OP_ID_BYTES_MAX).contains(&id.len()) {
            Ok(Self(id.into()))
        } else {
            Err(InvalidOpId { bytes: id.len() })
        }
    }

    /// Creates a random id.
    pub fn random() -> Self {
        static PROCESS: OnceLock<[u64; 2]> = OnceLock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Two keyed hashes of a constant are 128 bits of the system's randomness; the process id
        // keeps a forked process apart.
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
        // An id may identify a request or a payment, so it is not shown in logs.
        f.debug_struct("OpId").finish_non_exhaustive()
    }
}

/// The error of [`OpId::new`]: the id is empty or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidOpId {
    bytes: usize,
}

impl fmt::Display for InvalidOpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an operation id must have 1 to {OP_ID_BYTES_MAX} bytes, not {} bytes",
            self.bytes
        )
    }
}

impl std::error::Error for InvalidOpId {}

/// The operations that a limiter in memory remembers: up to [`ONCE_MAX`], then the oldest is dropped.
/// They run one at a time, so that two concurrent calls with one id run the operation once.
pub(crate) struct OperationLog {
    ttl_us: u64,
    /// Operations are stored under two keyed hashes, because keys and ids may be long.
    secrets: [RandomState; 2],
    done: Mutex<Operations>,
}

#[derive(Default)]
struct Operations {
    decisions: HashMap<[u64; 2], Decision>,
    in_order: VecDeque<(u64, [u64; 2])>,
}

impl OperationLog {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self {
            ttl_us: u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX),
            secrets: [RandomState::new(), RandomState::new()],
            done: Mutex::default(),
        }
    }

    /// Runs `operation`, or returns the decision that it returned before with this kind, key and id.
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
        if let Some(decision) = done.decisions.get(&name) {
            return *decision;
        }
        // Only a new operation needs room: the oldest one might have been the one wanted.
        done.forget(|_, len| len >= ONCE_MAX);
        let decision = operation();
        done.in_order
            .push_back((now_us.saturating_add(self.ttl_us), name));
        done.decisions.insert(name, decision);
        decision
    }
}

impl Operations {
    /// Drops the oldest while `is_over` returns true for its expiry and the number of operations.
    fn forget(&mut self, is_over: impl Fn(u64, usize) -> bool) {
        while let Some((until_us, oldest)) = self.in_order.front().copied()
            && is_over(until_us, self.in_order.len())
        {
            self.in_order.pop_front();
            self.decisions.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use balde_core::{Command, Limit};

    use super::*;

    fn decision(n: u64) -> Decision {
        let limit: Limit = "10/s".parse().unwrap();
        limit.apply(None, Command::Charge { n }, 0)
    }

    #[test]
    fn an_operation_is_remembered_for_its_time_by_kind_key_and_id() {
        let once = OperationLog::new(Duration::from_secs(1));
        let id = OpId::new("a").unwrap();
        let run = |kind, key: &[u8], id: &OpId, now_us, n| {
            once.run(kind, key, id, now_us, || decision(n)).moved()
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
        let once = OperationLog::new(Duration::from_secs(1));
        for _ in 0..ONCE_MAX + 10 {
            once.run(0, b"k", &OpId::random(), 0, || decision(1));
        }
        assert_eq!(once.done.lock().decisions.len(), ONCE_MAX);
        assert_eq!(once.done.lock().in_order.len(), ONCE_MAX);
    }

    #[test]
    fn the_last_once_max_operations_are_remembered() {
        let once = OperationLog::new(Duration::from_secs(1));
        let first = OpId::new("first").unwrap();
        once.run(0, b"k", &first, 0, || decision(1));
        for _ in 1..ONCE_MAX {
            once.run(0, b"k", &OpId::random(), 0, || decision(2));
        }
        assert_eq!(once.run(0, b"k", &first, 0, || decision(3)).moved(), 1);
    }

    #[test]
    fn an_id_has_bytes_but_not_too_many() {
        assert!(OpId::new("").is_err());
        assert!(OpId::new([0; OP_ID_BYTES_MAX]).is_ok());
        let error = OpId::new([0; OP_ID_BYTES_MAX + 1]).unwrap_err();
        assert!(error.to_string().contains("129 bytes"));
    }
}
