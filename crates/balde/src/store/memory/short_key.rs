//! A key that fits a few registers.
//!
//! Keys are bytes in memory, and a key that was written a moment ago in small pieces cannot be read
//! back in words before all of the pieces have left the processor's store buffer. Of a check that
//! takes some eighty nanoseconds, that wait is a tenth. An address as text is put together in
//! registers, and its fingerprint is taken from there.

/// The most bytes of a short key.
pub(crate) const SHORT_KEY_BYTES_MAX: usize = 23;

/// A key of up to [`SHORT_KEY_BYTES_MAX`] bytes, for which
/// [`Table::short_fingerprint`](super::Table::short_fingerprint) gives what
/// [`Table::fingerprint`](super::Table::fingerprint) gives for its bytes.
#[derive(Clone, Copy)]
pub(crate) struct ShortKey {
    /// The words in little-endian order, zero beyond the length.
    bytes: [[u8; 8]; 3],
    length: u8,
}

impl ShortKey {
    /// The first `length` bytes of these words; the rest of them must be zero.
    #[inline]
    pub(crate) fn of_words(words: [u64; 3], length: u8) -> Self {
        debug_assert!(usize::from(length) <= SHORT_KEY_BYTES_MAX);
        let bytes = words.map(u64::to_le_bytes);
        debug_assert!(
            bytes.as_flattened()[usize::from(length)..]
                .iter()
                .all(|byte| *byte == 0)
        );
        Self { bytes, length }
    }

    #[cfg(feature = "tower")]
    #[inline]
    pub(super) fn words(&self) -> [u64; 3] {
        self.bytes.map(u64::from_le_bytes)
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes.as_flattened()[..usize::from(self.length)]
    }

    #[cfg(feature = "tower")]
    #[inline]
    pub(super) fn length(&self) -> u8 {
        self.length
    }
}
