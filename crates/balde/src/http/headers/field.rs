//! Names and numbers as structured fields carry them.

use std::time::Duration;

/// The largest integer of a structured field. Larger numbers are written as this one.
pub const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The most bytes of a limit's name that a field carries. What is longer is cut off.
pub const NAME_BYTES_MAX: usize = 64;

const MICROS: u64 = 1_000_000;

/// `name` as a structured field's string, quotes included. Such strings are printable ASCII, so any
/// other byte is written as `%` and two digits.
pub(super) fn quoted(name: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len() + 2);
    text.push(b'"');
    for &byte in name.as_bytes() {
        let room = NAME_BYTES_MAX + 1 - text.len();
        match byte {
            b'"' | b'\\' if room >= 2 => text.extend([b'\\', byte]),
            b' '..=b'~' if room >= 1 && !matches!(byte, b'"' | b'\\') => text.push(byte),
            0..b' ' | 0x7F.. if room >= 3 => {
                text.extend([b'%', hex(byte >> 4), hex(byte & 15)]);
            }
            _ => break,
        }
    }
    text.push(b'"');
    text
}

/// Adds `number`, or the largest that a field can carry.
pub(super) fn push_integer(text: &mut Vec<u8>, number: u64) {
    let mut number = number.min(INTEGER_MAX);
    let mut digits = [0; 15];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

/// Whole seconds, rounded up.
pub(super) fn seconds_up(us: u64) -> u64 {
    us.div_ceil(MICROS)
}

/// The same of a duration. All that a decision speaks of fits.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn hex(digit: u8) -> u8 {
    match digit {
        0..=9 => b'0' + digit,
        _ => b'A' + digit - 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_digit_by_digit_and_never_too_large() {
        for (number, expected) in [
            (0, "0"),
            (7, "7"),
            (10, "10"),
            (120, "120"),
            (INTEGER_MAX, "999999999999999"),
            (INTEGER_MAX + 1, "999999999999999"),
            (u64::MAX, "999999999999999"),
        ] {
            let mut text = Vec::new();
            push_integer(&mut text, number);
            assert_eq!(text, expected.as_bytes(), "{number}");
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
            assert_eq!(quoted(name), expected.as_bytes(), "{name:?}");
        }
        for long in ["x".repeat(1_000), "\"".repeat(1_000), "é".repeat(1_000)] {
            let text = quoted(&long);
            assert!(text.len() <= NAME_BYTES_MAX + 2);
            assert!(sfv::Parser::new(&text).parse::<sfv::Item>().is_ok());
        }
    }
}
