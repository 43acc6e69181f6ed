//! Formats of DICT's identifiers.

/// Returns true for an ISPB, a participant's identifier: eight digits or capital letters.
pub fn is_ispb(text: &str) -> bool {
    is_all(text, 8..=8, |byte| {
        byte.is_ascii_digit() || byte.is_ascii_uppercase()
    })
}

/// Returns true for a CPF or CNPJ: 11 digits, or 14 digits and capital letters.
pub(crate) fn is_tax_id(text: &str) -> bool {
    is_cpf(text) || is_cnpj(text)
}

pub(crate) fn is_cpf(text: &str) -> bool {
    is_all(text, 11..=11, |byte| byte.is_ascii_digit())
}

pub(crate) fn is_cnpj(text: &str) -> bool {
    is_all(text, 14..=14, |byte| {
        byte.is_ascii_digit() || byte.is_ascii_uppercase()
    })
}

/// Returns true for an `EndToEndId`: `E`, an ISPB, a date and time to the minute, and eleven letters
/// or digits.
pub(crate) fn is_end_to_end_id(text: &str) -> bool {
    text.len() == 32
        && text.is_ascii()
        && text.starts_with('E')
        && is_ispb(&text[1..9])
        && is_minute(&text[9..21])
        && is_all(&text[21..], 11..=11, |byte| byte.is_ascii_alphanumeric())
}

/// Returns true for the id of a payment transaction: an `EndToEndId` or the id of a refund.
pub(crate) fn is_transaction_id(text: &str) -> bool {
    is_all(text, 8..=32, |byte| {
        byte.is_ascii_alphanumeric() || byte == b'_'
    })
}

pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Returns true for a content id: 64 hexadecimal digits.
pub(crate) fn is_cid(text: &str) -> bool {
    is_all(text, 64..=64, |byte| byte.is_ascii_hexdigit())
}

pub(crate) fn is_branch(text: &str) -> bool {
    is_all(text, 1..=4, |byte| byte.is_ascii_digit())
}

pub(crate) fn is_account_number(text: &str) -> bool {
    is_all(text, 1..=20, |byte| byte.is_ascii_digit())
}

pub(crate) fn is_account_type(text: &str) -> bool {
    is_all(text, 4..=4, |byte| byte.is_ascii_uppercase())
}

/// Returns true for an amount of money: digits, and up to two decimals.
pub(crate) fn is_amount(text: &str) -> bool {
    let (whole, cents) = text.split_once('.').unwrap_or((text, "00"));
    is_all(whole, 1..=16, |byte| byte.is_ascii_digit())
        && is_all(cents, 1..=2, |byte| byte.is_ascii_digit())
}

/// Returns true for a name of 1 to 100 characters without control characters.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=100).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

fn is_minute(text: &str) -> bool {
    let number = |range: std::ops::Range<usize>| text[range].parse::<u32>().unwrap_or(u32::MAX);
    is_all(text, 12..=12, |byte| byte.is_ascii_digit())
        && (1..=12).contains(&number(4..6))
        && (1..=31).contains(&number(6..8))
        && number(8..10) < 24
        && number(10..12) < 60
}

fn is_all(
    text: &str,
    length: std::ops::RangeInclusive<usize>,
    is_valid: impl Fn(u8) -> bool,
) -> bool {
    length.contains(&text.len()) && text.bytes().all(is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_to_end_ids() {
        assert!(is_end_to_end_id("E1234567820201231235901234567890"));
        assert!(is_end_to_end_id(
            "E1234567820201231235aBcdefghiJK1"
                .replace('a', "9")
                .as_str()
        ));
        for text in [
            "e1234567820201231235901234567890",
            "E1234567820201331235901234567890",
            "E1234567820201231245901234567890",
            "E123456782020123123590123456789",
            "E1234567820201231235901234567 90",
            "D1234567820201231235901234567890",
            "E1234567820201231235901234567é0",
        ] {
            assert!(!is_end_to_end_id(text), "{text}");
        }
    }

    #[test]
    fn other_formats() {
        assert!(is_ispb("12345678") && is_ispb("AB345678") && !is_ispb("ab345678"));
        assert!(is_tax_id("12345678901") && is_tax_id("12ABC34501DE35") && !is_tax_id("1"));
        assert!(is_uuid("91d65e98-97c0-4b0f-b577-73625da1f9fc") && !is_uuid("91d65e98"));
        assert!(is_amount("100.00") && is_amount("5") && !is_amount("-1") && !is_amount("1.234"));
    }
}
