//! What a slot keeps in the low bits of its fingerprint: the tier of its key.

/// The tier of a key: an index into the limits of a limiter. Zero is the limit of keys without a
/// tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TierId(u16);

impl TierId {
    /// The limit of keys without a tier.
    pub(crate) const NONE: Self = Self(0);
    /// The most tiers, besides that of keys without one.
    pub(crate) const MAX: usize = (1 << TIER_BITS) - 1;

    pub(crate) fn new(index: usize) -> Option<Self> {
        let index = u16::try_from(index).ok()?;
        (usize::from(index) <= Self::MAX).then_some(Self(index))
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

const TIER_BITS: u32 = 12;

/// An odd constant spreads tags over all 64 bits.
const STEP: u64 = 0xD6E8_FEB8_6659_FD93;

/// The tier of a slot's key, and a count of how often that has changed, modulo 16.
///
/// The count is for a reader that has read the slot's word under one tier and its tag after two
/// moves: the tier may be the same again, but the tag is not, and with it the offset of the word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tag(u16);

impl Tag {
    pub(super) const MASK: u64 = 0xFFFF;

    pub(super) const fn new(tier: TierId) -> Self {
        Self(tier.0)
    }

    /// The tag in the lower half of a slot's fingerprint.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    pub(super) const fn of_lo(lo: u64) -> Self {
        Self(lo as u16)
    }

    #[inline]
    pub(super) const fn tier(self) -> TierId {
        TierId(self.0 & ((1 << TIER_BITS) - 1))
    }

    /// The tag after a move to another tier.
    pub(super) const fn moved_to(self, tier: TierId) -> Self {
        Self(((self.0 >> TIER_BITS).wrapping_add(1) << TIER_BITS) | tier.0)
    }

    #[inline]
    pub(super) const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// What a word is offset by under this tag; zero for the first.
    #[inline]
    pub(super) const fn offset(self) -> u64 {
        self.bits().wrapping_mul(STEP)
    }
}

#[cfg(all(test, not(balde_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_move_there_and_back_is_another_tag() {
        let gold = TierId::new(TierId::MAX).unwrap();
        assert_eq!(TierId::new(TierId::MAX + 1), None);
        let mut tag = Tag::default();
        let mut seen = vec![tag];
        for _ in 0..15 {
            tag = tag.moved_to(if tag.tier() == gold {
                TierId::NONE
            } else {
                gold
            });
            assert!(!seen.contains(&tag));
            assert_eq!(Tag::of_lo(0xABCD_0000 | tag.bits()), tag);
            seen.push(tag);
        }
        assert_eq!(tag.moved_to(TierId::NONE), Tag::default());
    }
}
