//! Keys as 112-bit fingerprints, keyed with secrets of this process.
//!
//! A table of fingerprints needs no key text, no allocation and no comparison of strings; in
//! exchange, two keys with one fingerprint would share a bucket. So it must not be possible to
//! find two such keys. The hash is the multilinear family: each 64-bit word of the key is
//! multiplied by a secret 128-bit number, the products are added modulo 2^128 and the
//! upper 64 bits are kept. That family is strongly universal (Lemire and Kaser, "Strongly
//! universal string hashing is fast"): any two different keys have the same fingerprint with
//! probability 2^-64 over the choice of the secrets. Two lanes with independent secrets would make it
//! 2^-128; the low 16 bits of the second are left to the [tag](super::tag) of the slot, which leaves
//! 2^-112. Fingerprints never leave the process, so an attacker has nothing to learn the secrets
//! from. A general keyed hash of 128 bits (`SipHash`-1-3) would do as well and take three times as
//! long, which is most of the price of a check.

use std::hash::BuildHasher;

#[cfg(not(balde_loom))]
use std::collections::hash_map::RandomState;

use super::tag::Tag;
#[cfg(feature = "tower")]
use crate::key::ShortKey;

/// Loom replays each test and needs it to be deterministic.
#[cfg(balde_loom)]
type RandomState = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// Keys up to this length, whole words and the tail, take the fast path.
const SHORT_BYTES_MAX: usize = 64;
const WORDS_MAX: usize = SHORT_BYTES_MAX / 8 + 1;

/// The fingerprint of a key. `hi` is never zero: zero marks an empty slot. The low 16 bits of `lo` are
/// zero: a slot keeps its tag there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    pub(super) hi: u64,
    pub(super) lo: u64,
}

impl Fingerprint {
    #[inline]
    pub(super) fn new(hi: u64, lo: u64) -> Self {
        Self {
            hi: hi.max(1),
            lo: lo & !Tag::MASK,
        }
    }

    /// The hash that decides the shard and the slot. The halves are sums of products, so that
    /// consecutive keys have evenly spaced halves; the product of the halves has no such pattern.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        let product = u128::from(self.hi) * u128::from(self.lo);
        high(product) ^ low(product)
    }
}

/// The secrets.
pub(super) struct Fingerprints {
    offsets: [u128; 2],
    multipliers: [[u128; 2]; WORDS_MAX],
    long: [RandomState; 2],
}

impl Fingerprints {
    pub(super) fn new() -> Self {
        // The standard library seeds this from the system's random source; its SipHash spreads
        // that seed over as many words as are needed here.
        let source = RandomState::default();
        let mut drawn = 0_u64;
        let mut draw = || {
            drawn += 2;
            let [hi, lo] = [drawn, drawn + 1].map(|n| u128::from(source.hash_one(n)));
            hi << 64 | lo
        };
        Self {
            offsets: [draw(), draw()],
            multipliers: std::array::from_fn(|_| [draw(), draw()]),
            long: [RandomState::default(), RandomState::default()],
        }
    }

    #[inline]
    pub(super) fn of(&self, key: &[u8]) -> Fingerprint {
        let [hi, lo] = if key.len() <= SHORT_BYTES_MAX {
            self.short(key)
        } else {
            self.long.each_ref().map(|secret| secret.hash_one(key))
        };
        Fingerprint::new(hi, lo)
    }

    /// The fingerprint of a key that is in registers.
    #[cfg(feature = "tower")]
    #[inline]
    pub(super) fn of_short(&self, key: &ShortKey) -> Fingerprint {
        let [first, second, third] = key.words();
        let length = u64::from(key.length());
        let last = length << 56;
        let [hi, lo] = match length {
            0..8 => self.sum([first | last]),
            8..16 => self.sum([first, second | last]),
            _ => self.sum([first, second, third | last]),
        };
        Fingerprint::new(hi, lo)
    }

    #[inline]
    fn short(&self, key: &[u8]) -> [u64; 2] {
        let (words, tail) = key.as_chunks::<8>();
        // The length in the top byte of the last word distinguishes keys that differ in trailing
        // zeros; the tail has at most seven bytes, so that byte is free.
        let last = tail_word(key, tail) | (key.len() as u64) << 56;
        let word = |at: usize| u64::from_le_bytes(words[at]);
        // Common lengths are unrolled: the latency from the key to the slot dominates a check, and
        // these sums have short dependency chains.
        match words.len() {
            0 => self.sum([last]),
            1 => self.sum([word(0), last]),
            2 => self.sum([word(0), word(1), last]),
            3 => self.sum([word(0), word(1), word(2), last]),
            4 => self.sum([word(0), word(1), word(2), word(3), last]),
            _ => {
                let mut all = [0; WORDS_MAX];
                for (at, word) in words.iter().enumerate() {
                    all[at] = u64::from_le_bytes(*word);
                }
                all[words.len()] = last;
                self.sum(all)
            }
        }
    }

    /// Words that are zero add nothing, so a key may be followed by any number of them.
    #[inline]
    fn sum<const N: usize>(&self, words: [u64; N]) -> [u64; 2] {
        // Not `map`, which is not inlined.
        let lane = |lane: usize| {
            let product = |at: usize| {
                let multiplier: u128 = self.multipliers[at][lane];
                multiplier.wrapping_mul(u128::from(words[at]))
            };
            let mut even = self.offsets[lane];
            let mut odd = 0_u128;
            for at in 0..N {
                if at % 2 == 0 {
                    even = even.wrapping_add(product(at));
                } else {
                    odd = odd.wrapping_add(product(at));
                }
            }
            high(even.wrapping_add(odd))
        };
        [lane(0), lane(1)]
    }
}

/// The up to seven bytes after the last whole word, as the low bytes of a word.
#[inline]
fn tail_word(key: &[u8], tail: &[u8]) -> u64 {
    if tail.is_empty() {
        return 0;
    }
    // Rereading the last eight bytes and shifting is quicker than copying a few of them.
    if let Some(last) = key.last_chunk::<8>() {
        return u64::from_le_bytes(*last) >> (64 - 8 * tail.len());
    }
    let mut bytes = [0; 8];
    bytes[..tail.len()].copy_from_slice(tail);
    u64::from_le_bytes(bytes)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
fn low(sum: u128) -> u64 {
    sum as u64
}

#[inline]
fn high(sum: u128) -> u64 {
    (sum >> 64) as u64
}

#[cfg(all(test, not(balde_loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn similar_keys_have_different_fingerprints() {
        let secrets = Fingerprints::new();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for len in 0..200 {
            keys.push(vec![0; len]);
            keys.push(vec![b'a'; len + 1]);
            let mut key = vec![0; len + 1];
            key[len] = 1;
            keys.push(key);
        }
        for n in 0..50_000_u64 {
            keys.push(n.to_le_bytes().to_vec());
            keys.push(format!("user-{n}").into_bytes());
        }
        let distinct: HashSet<_> = keys.iter().collect();
        let seen: HashSet<_> = keys
            .iter()
            .map(|key| secrets.of(key))
            .map(|f| (f.hi, f.lo))
            .collect();
        assert_eq!(seen.len(), distinct.len());
    }

    #[cfg(feature = "tower")]
    #[test]
    fn a_short_key_has_the_fingerprint_of_its_bytes() {
        use crate::key::SHORT_KEY_BYTES_MAX;

        let secrets = Fingerprints::new();
        for length in 0..=SHORT_KEY_BYTES_MAX {
            for seed in 0..=255_u8 {
                let mut bytes = [0; 24];
                for (at, byte) in bytes[..length].iter_mut().enumerate() {
                    *byte = seed
                        .wrapping_mul(37)
                        .wrapping_add(u8::try_from(at).unwrap());
                }
                let words =
                    [0, 8, 16].map(|at| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap()));
                let key = ShortKey::from_words(words, u8::try_from(length).unwrap());
                assert_eq!(key.as_bytes(), &bytes[..length]);
                assert_eq!(secrets.of_short(&key), secrets.of(&bytes[..length]));
            }
        }
    }

    #[test]
    fn the_secrets_differ_from_one_store_to_the_next() {
        let key = b"the same key in two processes";
        assert_ne!(Fingerprints::new().of(key), Fingerprints::new().of(key));
    }

    #[test]
    fn every_byte_of_a_key_counts_in_both_halves() {
        let secrets = Fingerprints::new();
        for len in 1..=130 {
            let key = vec![7; len];
            let base = secrets.of(&key);
            for at in 0..len {
                let mut other = key.clone();
                other[at] ^= 1;
                let changed = secrets.of(&other);
                assert_ne!(changed.hi, base.hi, "length {len}, byte {at}");
                assert_ne!(changed.lo, base.lo, "length {len}, byte {at}");
            }
        }
    }

    #[test]
    fn keys_spread_evenly_over_shards_and_slots() {
        let secrets = Fingerprints::new();
        let mut counts = [[0_u32; 64]; 2];
        for n in 0..64_000 {
            let hash = secrets.of(format!("tenant-{n:010}").as_bytes()).hash();
            for (half, bits) in counts.iter_mut().zip([hash, hash << 32]) {
                half[usize::try_from(bits >> 58).unwrap()] += 1;
            }
        }
        // A thousand each, give or take seven standard deviations.
        for count in counts.iter().flatten() {
            assert!((780..1220).contains(count), "{counts:?}");
        }
    }
}
