//! Hexadecimal digits.

/// A byte as two lowercase digits, as hashes are written.
#[cfg(feature = "http")]
pub(crate) const fn lower(byte: u8) -> [u8; 2] {
    digits(byte, b"0123456789abcdef")
}

/// A byte as two uppercase digits, as percent-encoding writes them.
#[cfg(any(feature = "http", feature = "redis"))]
pub(crate) const fn upper(byte: u8) -> [u8; 2] {
    digits(byte, b"0123456789ABCDEF")
}

#[cfg(any(feature = "http", feature = "redis"))]
const fn digits(byte: u8, alphabet: &[u8; 16]) -> [u8; 2] {
    [
        alphabet[(byte >> 4) as usize],
        alphabet[(byte & 15) as usize],
    ]
}
