//! Keys whose checks are refused, for a time or until an operator ends that.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::RwLock;

use super::error::CommandError;

/// The blocked keys of this process, by limit and key.
#[derive(Debug)]
pub(super) struct BlockedKeys {
    blocked: RwLock<HashMap<Box<[u8]>, Until>>,
    blocked_max: usize,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    Time(u64),
    Unblocked,
}

impl BlockedKeys {
    pub(super) fn new(blocked_max: usize) -> Self {
        Self {
            blocked: RwLock::default(),
            blocked_max,
        }
    }

    pub(super) fn block(
        &self,
        (limit, key): (&str, &[u8]),
        time: Option<Duration>,
        now_us: u64,
    ) -> Result<(), CommandError> {
        let until = time.map_or(Until::Unblocked, |time| {
            let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            Until::Time(now_us.saturating_add(us))
        });
        let mut blocked = self.blocked.write();
        let id = id(limit, key);
        if blocked.len() >= self.blocked_max && !blocked.contains_key(&id) {
            blocked.retain(|_, until| !until.is_over(now_us));
            if blocked.len() >= self.blocked_max {
                return Err(CommandError::Full("so many blocked keys"));
            }
        }
        blocked.insert(id, until);
        Ok(())
    }

    pub(super) fn unblock(&self, limit: &str, key: &[u8]) {
        self.blocked.write().remove(&id(limit, key));
    }

    /// How long a key is still blocked; `None` if it is not.
    pub(super) fn left(&self, limit: &str, key: &[u8], now_us: u64) -> Option<Left> {
        let blocked = self.blocked.read();
        if blocked.is_empty() {
            return None;
        }
        match blocked.get(&id(limit, key)).copied()? {
            Until::Unblocked => Some(Left::UntilUnblocked),
            Until::Time(until_us) if until_us > now_us => {
                Some(Left::Time(Duration::from_micros(until_us - now_us)))
            }
            Until::Time(_) => None,
        }
    }
}

/// How long a key is still blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Time(Duration),
    UntilUnblocked,
}

impl Until {
    fn is_over(self, now_us: u64) -> bool {
        matches!(self, Self::Time(until_us) if until_us <= now_us)
    }
}

/// The name of a limit cannot contain a zero byte, because it is the key of a TOML table.
fn id(limit: &str, key: &[u8]) -> Box<[u8]> {
    [limit.as_bytes(), b"\0", key].concat().into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_ends_by_itself_or_by_hand() {
        let blocked = BlockedKeys::new(2);
        assert_eq!(blocked.left("a", b"k", 0), None);
        blocked
            .block(("a", b"k"), Some(Duration::from_secs(1)), 0)
            .unwrap();
        blocked.block(("b", b"k"), None, 0).unwrap();
        assert_eq!(
            blocked.left("a", b"k", 400_000),
            Some(Left::Time(Duration::from_millis(600)))
        );
        assert_eq!(blocked.left("b", b"k", 400_000), Some(Left::UntilUnblocked));
        let full = blocked.block(("c", b"k"), None, 999_999);
        assert_eq!(full, Err(CommandError::Full("so many blocked keys")));
        // The first one is over now, and makes room.
        assert_eq!(blocked.left("a", b"k", 1_000_000), None);
        blocked.block(("c", b"k"), None, 1_000_000).unwrap();
        blocked.unblock("b", b"k");
        assert_eq!(blocked.left("b", b"k", 1_000_000), None);
        assert_eq!(
            blocked.left("c", b"k", 1_000_000),
            Some(Left::UntilUnblocked)
        );
    }
}
