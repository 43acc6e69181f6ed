//! Formats of DICT's identifiers.

use std::borrow::Cow;

/// The longest key, in characters.
pub const KEY_CHARS_MAX: usize = 77;

/// The longest name of an owner, in characters.
const NAME_CHARS_MAX: usize = 150;

/// The longest trade name of a company, in characters.
const TRADE_NAME_CHARS_MAX: usize = 100;

/// Returns true for an ISPB, a participant's identifier: eight letters or digits.
pub fn is_ispb(text: &str) -> bool {
    is_all(text, 8..=8, |byte| byte.is_ascii_alphanumeric())
}

/// An ISPB in capital letters. Its case does not matter, so that one participant has one spelling.
pub fn canonical_ispb(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        Cow::Owned(text.to_ascii_uppercase())
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns true for a CPF or CNPJ as `TaxIdNumber`: 11 or 14 digits.
pub fn is_tax_id(text: &str) -> bool {
    is_cpf(text) || is_company_tax_id(text)
}

/// Returns true for a CPF: 11 digits.
pub fn is_cpf(text: &str) -> bool {
    is_all(text, 11..=11, |byte| byte.is_ascii_digit())
}

/// Returns true for a company's `TaxIdNumber`: 14 digits.
pub fn is_company_tax_id(text: &str) -> bool {
    is_all(text, 14..=14, |byte| byte.is_ascii_digit())
}

/// Returns true for a CNPJ as a key: 14 letters or digits.
pub fn is_cnpj(text: &str) -> bool {
    is_all(text, 14..=14, |byte| byte.is_ascii_alphanumeric())
}

/// Returns true for an `EndToEndId`: `E`, an ISPB, a date and time to the minute, and eleven letters
/// or digits.
pub fn is_end_to_end_id(text: &str) -> bool {
    text.starts_with('E') && has_sender_and_time(text)
}

/// Returns true for the id of a return (`RtrId`, pacs.004): as an `EndToEndId`, but with `D`.
pub fn is_return_id(text: &str) -> bool {
    text.starts_with('D') && has_sender_and_time(text)
}

fn has_sender_and_time(text: &str) -> bool {
    text.len() == 32
        && text.is_ascii()
        && is_ispb(&text[1..9])
        && is_minute(&text[9..21])
        && is_all(&text[21..], 11..=11, |byte| byte.is_ascii_alphanumeric())
}

/// Returns true for the id of a payment transaction: 32 letters, digits or underscores.
pub fn is_transaction_id(text: &str) -> bool {
    is_all(text, 32..=32, is_word)
}

/// Returns true for the id of a transaction in an infraction report, which may be shorter.
pub fn is_reported_transaction_id(text: &str) -> bool {
    is_all(text, 8..=32, is_word)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns true for a UUID of any version, in either case.
pub fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Returns true for a random UUID: version 4.
pub fn is_uuid_v4(text: &str) -> bool {
    let bytes = text.as_bytes();
    is_uuid(text)
        && bytes[14] == b'4'
        && matches!(bytes[19], b'8' | b'9' | b'a' | b'b' | b'A' | b'B')
}

/// Returns true for a content id: 64 hexadecimal digits.
pub fn is_cid(text: &str) -> bool {
    is_all(text, 64..=64, |byte| byte.is_ascii_hexdigit())
}

/// Returns true for the number of a branch: up to four digits.
pub fn is_branch(text: &str) -> bool {
    is_all(text, 1..=4, |byte| byte.is_ascii_digit())
}

/// Returns true for the number of an account: up to twenty letters or digits.
pub fn is_account_number(text: &str) -> bool {
    is_all(text, 1..=20, |byte| byte.is_ascii_alphanumeric())
}

/// Returns true for an amount of money: digits, and up to two decimals.
pub fn is_amount(text: &str) -> bool {
    let (whole, cents) = text.split_once('.').unwrap_or((text, "00"));
    is_all(whole, 1..=16, |byte| byte.is_ascii_digit())
        && is_all(cents, 1..=2, |byte| byte.is_ascii_digit())
}

/// The cents of an amount.
pub fn cents(amount: &str) -> Option<u64> {
    if !is_amount(amount) {
        return None;
    }
    let (whole, cents) = amount.split_once('.').unwrap_or((amount, "0"));
    let scale = if cents.len() == 1 { 10 } else { 1 };
    let whole: u64 = whole.parse().ok()?;
    let cents: u64 = cents.parse().ok()?;
    whole.checked_mul(100)?.checked_add(cents * scale)
}

/// Writes cents as an amount, such as `100.00`.
pub fn amount_text(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// Returns true for a person's name: letters, also accented ones, apostrophes, hyphens and spaces.
pub fn is_person_name(text: &str) -> bool {
    let is_letter = |c: char| {
        c.is_ascii_alphabetic()
            || matches!(c, '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{ff}')
    };
    has_chars(text, NAME_CHARS_MAX) && text.chars().all(|c| is_letter(c) || "' -".contains(c))
}

/// Returns true for a company's name: printable characters of Latin-1.
pub fn is_company_name(text: &str) -> bool {
    has_chars(text, NAME_CHARS_MAX) && text.chars().all(is_latin)
}

/// Returns true for a company's trade name, which does not consist of asterisks only.
pub fn is_trade_name(text: &str) -> bool {
    has_chars(text, TRADE_NAME_CHARS_MAX)
        && text.chars().all(is_latin)
        && text.chars().any(|c| c != '*')
}

/// Returns true for a phone number in contact information.
pub fn is_contact_phone(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or_default();
    is_all(digits, 2..=15, |byte| byte.is_ascii_digit())
}

/// Returns true for an e-mail address in contact information.
pub fn is_contact_email(text: &str) -> bool {
    is_email(text, b".!#$%&'*+/=?^_`{|}~-")
}

/// Returns true for an e-mail address as a key, which has neither `%` nor `&`.
pub fn is_email_key(text: &str) -> bool {
    text.len() <= KEY_CHARS_MAX && is_email(text, b".!#$'*+/=?^_`{|}~-")
}

/// Lower-case letters, digits and `more`, then `@`, then labels that begin and end with a letter or
/// digit.
fn is_email(text: &str, more: &[u8]) -> bool {
    let Some((local, domain)) = text.split_once('@') else {
        return false;
    };
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        is_all(label, 1..=63, |byte| is_plain(byte) || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    !local.is_empty()
        && local
            .bytes()
            .all(|byte| is_plain(byte) || more.contains(&byte))
        && domain.split('.').all(is_label)
}

fn is_latin(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a1}'..='\u{ff}')
}

fn has_chars(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.chars().count())
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
        assert!(is_ispb("12345678") && is_ispb("ab345678") && !is_ispb("ab34567"));
        assert_eq!(canonical_ispb("ab345678"), "AB345678");
        assert!(is_tax_id("12345678901") && is_tax_id("12345678901234") && !is_tax_id("1"));
        assert!(!is_tax_id("12ABC34501DE35") && is_cnpj("12abc34501DE35"));
        assert!(is_uuid("91d65e98-97c0-1b0f-b577-73625da1f9fc") && !is_uuid("91d65e98"));
        assert!(is_uuid_v4("91d65e98-97c0-4b0f-b577-73625da1f9fc"));
        assert!(!is_uuid_v4("91d65e98-97c0-1b0f-b577-73625da1f9fc"));
        assert!(is_person_name("João d'Ávila-Souza") && !is_person_name("João 2"));
        assert!(is_company_name("ACME 2 & Filhos") && !is_company_name("漢字"));
        assert!(is_trade_name("A*") && !is_trade_name("***"));
        assert!(is_email_key("a.b+c@x-y.com.br") && !is_email_key("a%b@x.com"));
        assert!(is_contact_email("a%b@x.com") && !is_contact_email("a@-x.com"));
        assert_eq!(cents("100.5"), Some(10_050));
        assert_eq!(amount_text(10_050), "100.50");
        assert!(is_amount("100.00") && is_amount("5") && !is_amount("-1") && !is_amount("1.234"));
    }
}
