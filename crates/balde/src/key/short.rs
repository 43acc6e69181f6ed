//! A short bucket key that stays in registers.
//!
//! A key written to memory in small pieces cannot be read back in 64-bit words until all of its
//! pieces have left the processor's store buffer, which costs about a tenth of a check of eighty
//! nanoseconds. The text of an IPv4 address is therefore put together in registers, and its
//! fingerprint is computed from there.

/// The maximum length of a short key, in bytes.
pub(crate) const SHORT_KEY_BYTES_MAX: usize = 23;

/// A key of up to [`SHORT_KEY_BYTES_MAX`] bytes, held as three words. The memory store computes the
/// same fingerprint from the words as from the bytes.
#[derive(Clone, Copy)]
pub(crate) struct ShortKey {
    /// The words in little-endian order, zero beyond the length.
    bytes: [[u8; 8]; 3],
    length: u8,
}

impl ShortKey {
    /// The first `length` bytes of these words; the rest of them must be zero.
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
