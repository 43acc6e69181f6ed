//! A denial as it waits to be logged: a few words, because each is copied by the decision.

use std::time::Duration;

use balde_core::{Strategy, Wait};

use super::trace_ids::TraceIds;
use super::word_ring::{Append, Words, words_of};
use crate::decision::Decision;
#[cfg(feature = "redis")]
use crate::failure::StoreFailure;
use crate::key::BadKey;

/// The words of every record: the head, the time, the wait and the remaining tokens.
const FIXED_WORDS: usize = 4;

/// Instead of a wait.
const NO_WAIT: u64 = u64::MAX;

/// In the head of a record, from the low bits: how long the decision took, its kind, flags, and the
/// length of the key.
const KIND_SHIFT: u32 = 32;
const WINDOW_BIT: u64 = 1 << 40;
const IDS_BIT: u64 = 1 << 41;
const KEY_SHIFT: u32 = 48;

/// Kinds as numbers. A failure of the store adds its index to the last.
const OVER_LIMIT: u8 = 0;
const OVER_CAPACITY: u8 = 1;
const EMPTY_KEY: u8 = 2;
const LONG_KEY: u8 = 3;
#[cfg(feature = "redis")]
const FALLBACK: u8 = 4;

/// Why a decision was a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DenialKind {
    OverLimit,
    OverCapacity,
    BadKey(BadKey),
    #[cfg(feature = "redis")]
    Fallback(StoreFailure),
}

/// A denial with its key and its ids: borrowed where it is written, owned where it is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DenialRecord<K, T> {
    pub(super) kind: DenialKind,
    pub(super) decided_us: u64,
    pub(super) wait_us: Option<u64>,
    pub(super) remaining: u64,
    pub(super) took: Duration,
    pub(super) is_window: bool,
    /// Empty if the key is bad.
    pub(super) key: K,
    pub(super) ids: Option<T>,
}

#[expect(
    clippy::inline_always,
    reason = "the fields stay in registers; otherwise a record is built in memory for each denial"
)]
impl<'a> DenialRecord<&'a [u8], &'a TraceIds> {
    #[inline(always)]
    pub(super) fn new(
        key: &'a [u8],
        decision: &Decision,
        ids: Option<&'a TraceIds>,
        took: Duration,
        decided_us: u64,
    ) -> Self {
        let wait = decision.wait();
        let kind = DenialKind::of(decision, wait);
        Self {
            kind,
            decided_us,
            wait_us: match wait {
                Wait::Us(us) => Some(us),
                Wait::None | Wait::Never => None,
            },
            remaining: decision.remaining(),
            took,
            is_window: decision.limit().strategy() == Strategy::FixedWindow,
            // A bad key may be of any length, and is not hashed.
            key: match kind {
                DenialKind::BadKey(_) => &[],
                _ => key,
            },
            ids,
        }
    }

    /// How many words the record takes.
    #[inline(always)]
    pub(super) fn words(&self) -> usize {
        let ids = self.ids.map_or(0, |ids| {
            let [trace_id, span_id] = id_bytes(ids);
            1 + words_of(trace_id.len()) + words_of(span_id.len())
        });
        FIXED_WORDS + words_of(self.key.len()) + ids
    }

    #[inline(always)]
    pub(super) fn write(&self, mut to: Append<'_>) {
        // Without the 128 bits of `as_nanos`.
        let took_ns = match self.took.as_secs() {
            0 => self.took.subsec_nanos(),
            _ => u32::try_from(self.took.as_nanos()).unwrap_or(u32::MAX),
        };
        let mut head = u64::from(took_ns)
            | u64::from(self.kind.number()) << KIND_SHIFT
            | (self.key.len() as u64) << KEY_SHIFT;
        if self.is_window {
            head |= WINDOW_BIT;
        }
        if self.ids.is_some() {
            head |= IDS_BIT;
        }
        to.word(head);
        to.word(self.decided_us);
        to.word(match self.kind {
            // There is nothing to wait for.
            DenialKind::BadKey(BadKey::TooLong { bytes }) => bytes as u64,
            _ => self.wait_us.unwrap_or(NO_WAIT),
        });
        to.word(self.remaining);
        to.bytes(self.key);
        if let Some(ids) = self.ids {
            let [trace_id, span_id] = id_bytes(ids);
            to.word(trace_id.len() as u64 | (span_id.len() as u64) << 32);
            to.bytes(trace_id);
            to.bytes(span_id);
        }
        to.end();
    }
}

impl DenialRecord<Vec<u8>, TraceIds> {
    pub(super) fn read(from: &mut Words<'_>) -> Self {
        let head = from.word();
        let decided_us = from.word();
        let wait_us = from.word();
        let remaining = from.word();
        let key = from.bytes(low_bits(head >> KEY_SHIFT, 16));
        let ids = (head & IDS_BIT != 0).then(|| {
            let lengths = from.word();
            let mut id = |length| String::from_utf8(from.bytes(length)).ok();
            let trace_id = id(low_bits(lengths, 32));
            let span_id = id(low_bits(lengths >> 32, 32));
            TraceIds::new(trace_id, span_id)
        });
        let kind = DenialKind::of_number(low_bits(head >> KIND_SHIFT, 8), wait_us);
        let has_wait = wait_us != NO_WAIT && !matches!(kind, DenialKind::BadKey(_));
        Self {
            kind,
            decided_us,
            wait_us: has_wait.then_some(wait_us),
            remaining,
            took: Duration::from_nanos(head & u64::from(u32::MAX)),
            is_window: head & WINDOW_BIT != 0,
            key,
            ids,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 32 bits are left")]
fn low_bits(word: u64, bits: u32) -> usize {
    (word & ((1 << bits) - 1)) as usize
}

/// The trace id and the span id; empty where there is none.
fn id_bytes(ids: &TraceIds) -> [&[u8]; 2] {
    [ids.trace_id(), ids.span_id()].map(|id| id.unwrap_or_default().as_bytes())
}

impl DenialKind {
    #[inline]
    fn of(decision: &Decision, wait: Wait) -> Self {
        #[cfg(feature = "redis")]
        if let Some(failure) = decision.failure() {
            return Self::Fallback(failure);
        }
        match (decision.bad_key(), wait) {
            (Some(bad), _) => Self::BadKey(bad),
            (None, Wait::Never) => Self::OverCapacity,
            _ => Self::OverLimit,
        }
    }

    #[inline]
    fn number(self) -> u8 {
        match self {
            Self::OverLimit => OVER_LIMIT,
            Self::OverCapacity => OVER_CAPACITY,
            Self::BadKey(BadKey::Empty) => EMPTY_KEY,
            Self::BadKey(BadKey::TooLong { .. }) => LONG_KEY,
            #[cfg(feature = "redis")]
            Self::Fallback(failure) => {
                let index = u8::try_from(failure.index()).expect("there are few failures");
                FALLBACK + index
            }
        }
    }

    /// The kind with this number, of a key with so many bytes if that was too long.
    fn of_number(number: usize, key_bytes: u64) -> Self {
        match u8::try_from(number).unwrap_or(OVER_LIMIT) {
            OVER_CAPACITY => Self::OverCapacity,
            EMPTY_KEY => Self::BadKey(BadKey::Empty),
            LONG_KEY => Self::BadKey(BadKey::TooLong {
                bytes: usize::try_from(key_bytes).unwrap_or(usize::MAX),
            }),
            #[cfg(feature = "redis")]
            number @ FALLBACK.. => {
                let index = usize::from(number - FALLBACK);
                Self::Fallback(StoreFailure::ALL[index])
            }
            _ => Self::OverLimit,
        }
    }

    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::OverLimit => "over_limit",
            Self::OverCapacity => "over_capacity",
            Self::BadKey(_) => "bad_key",
            #[cfg(feature = "redis")]
            Self::Fallback(failure) => failure.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::word_ring::WordRing;
    use super::*;

    /// A record that differs with `at`.
    fn record<K, T>(at: u64, kind: DenialKind, key: K, ids: Option<T>) -> DenialRecord<K, T> {
        let is_bad = matches!(kind, DenialKind::BadKey(_));
        DenialRecord {
            kind,
            decided_us: 1_794_700_800_000_001 + at,
            wait_us: (at.is_multiple_of(2) && !is_bad).then_some(at),
            remaining: u64::MAX - at,
            took: Duration::from_nanos(at),
            is_window: at.is_multiple_of(3),
            key,
            ids,
        }
    }

    /// Writes a record and reads it.
    fn write_and_read(written: &DenialRecord<&[u8], &TraceIds>) -> DenialRecord<Vec<u8>, TraceIds> {
        let ring = WordRing::new(1 << 10);
        written.write(ring.append(written.words()).unwrap());
        let mut read = Vec::new();
        ring.take(|words| read.push(DenialRecord::read(words)));
        assert_eq!(read.len(), 1);
        read.remove(0)
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut kinds = vec![
            DenialKind::OverLimit,
            DenialKind::OverCapacity,
            DenialKind::BadKey(BadKey::Empty),
            DenialKind::BadKey(BadKey::TooLong { bytes: 70_000 }),
        ];
        #[cfg(feature = "redis")]
        kinds.extend(StoreFailure::ALL.map(DenialKind::Fallback));
        let long = [b'k'; 4_096];
        let ids = TraceIds::new(Some("4bf92f3577b34da6".into()), Some("00f067aa".into()));
        let ids = [None, Some(ids), Some(TraceIds::new(Some("t".into()), None))];
        for (at, kind) in (0..).zip(kinds) {
            for (ids, length) in ids.iter().zip([4_096, 13, 0]) {
                let key = &long[..length];
                let written = record(at, kind, key, ids.as_ref());
                let expected = record(at, kind, key.to_vec(), ids.clone());
                assert_eq!(write_and_read(&written), expected);
            }
        }
    }

    #[test]
    fn the_longest_duration_stands_for_longer_ones() {
        let written = DenialRecord {
            took: Duration::from_secs(60),
            ..record(0, DenialKind::OverLimit, &b"alice"[..], None)
        };
        let took = write_and_read(&written).took;
        assert_eq!(took, Duration::from_nanos(u32::MAX.into()));
    }
}
