//! Encoding names and numbers as structured fields (RFC 9651).

use std::time::Duration;

use ::http::HeaderValue;

use crate::hex;

/// The largest integer that a structured field can hold. Larger numbers are written as this one.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The maximum length of a name in a field, in bytes. Longer names are truncated.
const NAME_BYTES_MAX: usize = 64;

const MICROS: u64 = 1_000_000;

/// Encodes `name` as a structured field string, quotes included. Such strings hold printable ASCII
/// only, so any other byte is written as `%` and two hexadecimal digits.
pub(super) fn quoted_string(name: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len() + 2);
    text.push(b'"');
    for &byte in name.as_bytes() {
        let room = NAME_BYTES_MAX + 1 - text.len();
        match byte {
            b'"' | b'\\' if room >= 2 => text.extend([b'\\', byte]),
            b' '..=b'~' if room >= 1 && !matches!(byte, b'"' | b'\\') => text.push(byte),
            0..b' ' | 0x7F.. if room >= 3 => {
                text.push(b'%');
                text.extend(hex::upper(byte));
            }
            _ => break,
        }
    }
    text.push(b'"');
    text
}

/// A buffer for the value of a field. The value for a single limit fits without an allocation.
#[derive(Clone, Debug)]
pub(super) struct FieldBuffer {
    inline: [u8; INLINE_BYTES],
    length: usize,
    /// The whole value, once it no longer fits `inline`.
    heap: Vec<u8>,
}

const INLINE_BYTES: usize = 128;

impl FieldBuffer {
    pub(super) const fn new() -> Self {
        Self {
            inline: [0; INLINE_BYTES],
            length: 0,
            heap: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, more: &[u8]) {
        let end = self.length + more.len();
        if let (true, Some(room)) = (self.heap.is_empty(), self.inline.get_mut(self.length..end)) {
            room.copy_from_slice(more);
        } else {
            if self.heap.is_empty() {
                self.heap.extend_from_slice(&self.inline[..self.length]);
            }
            self.heap.extend_from_slice(more);
        }
        self.length = end;
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        if self.heap.is_empty() {
            &self.inline[..self.length]
        } else {
            &self.heap
        }
    }
}

/// Appends `number`, capped at [`INTEGER_MAX`].
pub(super) fn push_integer(text: &mut FieldBuffer, number: u64) {
    with_digits(number, |digits| text.push(digits));
}

/// Encodes `number`, capped at [`INTEGER_MAX`], as a whole header value. Small numbers, which most
/// are, take no allocation.
pub(super) fn integer(number: u64) -> HeaderValue {
    match small_text(number) {
        Some(digits) => HeaderValue::from_static(digits),
        // One allocation, where `HeaderValue::from` makes two.
        None => with_digits(number, header_value),
    }
}

/// The decimal digits of `number`, capped at [`INTEGER_MAX`].
fn with_digits<T>(number: u64, digits: impl FnOnce(&[u8]) -> T) -> T {
    if let Some(text) = small_text(number) {
        return digits(text.as_bytes());
    }
    let mut number = number.min(INTEGER_MAX);
    let mut text = [0; 15];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            return digits(&text[at..]);
        }
    }
}

#[inline]
fn small_text(number: u64) -> Option<&'static str> {
    let small = usize::try_from(number).ok()?;
    let digits = match small {
        0..10 => 1,
        10..100 => 2,
        100..1_000 => 3,
        1_000..SMALL_COUNT => SMALL_DIGITS,
        _ => return None,
    };
    let end = (small + 1) * SMALL_DIGITS;
    SMALL.get(end - digits..end)
}

const SMALL_COUNT: usize = 4_000;
const SMALL_DIGITS: usize = 4;

/// The numbers below four thousand, one after another, with leading zeros.
static SMALL: &str = {
    static BYTES: [u8; SMALL_COUNT * SMALL_DIGITS] = small();
    match str::from_utf8(&BYTES) {
        Ok(text) => text,
        Err(_) => panic!("digits are text"),
    }
};

const fn small() -> [u8; SMALL_COUNT * SMALL_DIGITS] {
    let mut all = [b'0'; SMALL_COUNT * SMALL_DIGITS];
    let mut at = SMALL_DIGITS;
    while at < all.len() {
        // Adds one to the previous number: trailing nines become zeros and carry.
        let mut digit = SMALL_DIGITS;
        let mut carry = 1;
        while digit > 0 {
            digit -= 1;
            let raised = all[at - SMALL_DIGITS + digit] + carry;
            carry = if raised > b'9' { 1 } else { 0 };
            all[at + digit] = if raised > b'9' { b'0' } else { raised };
        }
        at += SMALL_DIGITS;
    }
    all
}

/// Converts microseconds to whole seconds, rounded up.
pub(super) fn seconds_up(us: u64) -> u64 {
    us.div_ceil(MICROS)
}

/// The duration in microseconds. All durations of a decision fit.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn header_value(text: &[u8]) -> HeaderValue {
    // Names are encoded as printable ASCII and the rest is digits and punctuation, so this is valid.
    HeaderValue::from_bytes(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_outgrows_its_room_is_whole() {
        let (mut text, mut whole) = (FieldBuffer::new(), Vec::new());
        for length in 0..40 {
            let more = vec![b'a' + u8::try_from(length % 26).unwrap(); length];
            text.push(&more);
            whole.extend_from_slice(&more);
            assert_eq!(text.as_bytes(), whole);
        }
    }

    #[test]
    fn a_number_is_the_same_with_and_without_an_allocation() {
        for number in (0..12_000).chain([INTEGER_MAX]) {
            assert_eq!(integer(number), number.to_string());
        }
        assert_eq!(integer(u64::MAX), INTEGER_MAX.to_string());
    }

    #[test]
    fn numbers_are_written_digit_by_digit_and_never_too_large() {
        for (number, expected) in [
            (0, "0"),
            (7, "7"),
            (10, "10"),
            (120, "120"),
            (3_999, "3999"),
            (4_000, "4000"),
            (12_345, "12345"),
            (INTEGER_MAX, "999999999999999"),
            (INTEGER_MAX + 1, "999999999999999"),
            (u64::MAX, "999999999999999"),
        ] {
            let mut text = FieldBuffer::new();
            push_integer(&mut text, number);
            assert_eq!(text.as_bytes(), expected.as_bytes(), "{number}");
        }
    }

    #[test]
    fn names_of_every_kind_become_strings_of_printable_ascii() {
        for (name, expected) in [
            ("", r#""""#),
            ("per-user", r#""per-user""#),
            (r#"a "b" \c"#, r#""a \"b\" \\c""#),
            ("né", r#""n%C3%A9""#),
            ("a\r\nSet-Cookie: x", r#""a%0D%0ASet-Cookie: x""#),
            ("\u{7f}", r#""%7F""#),
        ] {
            assert_eq!(quoted_string(name), expected.as_bytes(), "{name:?}");
        }
        for long in ["x".repeat(1_000), "\"".repeat(1_000), "é".repeat(1_000)] {
            let text = quoted_string(&long);
            assert!(text.len() <= NAME_BYTES_MAX + 2);
            assert!(sfv::Parser::new(&text).parse::<sfv::Item>().is_ok());
        }
    }
}
