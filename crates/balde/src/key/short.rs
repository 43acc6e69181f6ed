//! A key that fits a few registers.
//!
//! A key that was written to memory in small pieces cannot be read back in words before all of the
//! pieces have left the processor's store buffer. That wait is a tenth of a check of some eighty
//! nanoseconds. So an address is formatted in registers, and its fingerprint is taken from there.

/// The most bytes of a short key.
pub(crate) const SHORT_KEY_BYTES_MAX: usize = 23;

/// A key of up to [`SHORT_KEY_BYTES_MAX`] bytes. The memory store computes the same fingerprint from
/// its words as from its bytes.
#[derive(Clone, Copy)]
pub(crate) struct ShortKey {
    /// The words in little-endian order, zero beyond the length.
    bytes: [[u8; 8]; 3],
    length: u8,
}

impl ShortKey {
    /// Creates a key from the first `length` bytes of `words`; the rest of them must be zero.
    #[inline]
    pub(crate) fn from_words(words: [u64; 3], length: u8) -> Self {
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
    pub(crate) fn words(&self) -> [u64; 3] {
        self.bytes.map(u64::from_le_bytes)
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes.as_flattened()[..usize::from(self.length)]
    }

    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn length(&self) -> u8 {
        self.length
    }
}
