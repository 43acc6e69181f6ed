//! Hexadecimal digits.

use std::fmt::Write as _;

/// Formats bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}
