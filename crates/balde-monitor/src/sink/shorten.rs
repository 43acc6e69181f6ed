//! Texts and keys within the maximum lengths of receivers.

use ring::digest;

use super::hex::hex;

/// Cuts a text between characters; a text that was cut ends with an ellipsis.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(chars_max - 1).collect();
    format!("{kept}…")
}

/// Returns the key, or its SHA-256 if it is too long: two keys never become the same one.
pub(super) fn short_key(key: &str, chars_max: usize) -> String {
    if key.chars().count() <= chars_max {
        return key.to_owned();
    }
    format!("sha256-{}", fingerprint(key))
}

/// Returns the SHA-256 of a text in hexadecimal digits.
pub(super) fn fingerprint(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}
