//! The types of keys, told by their shapes.

use super::formats;
use crate::KeyType;

/// The longest key, in characters.
pub const KEY_CHARS_MAX: usize = 77;

/// The type of a key in a message: no two shapes have a text in common. Nothing, if it is no key.
///
/// ```
/// use balde_dict::{KeyType, wire::key_type_of};
///
/// assert_eq!(key_type_of("+5561988880000"), Some(KeyType::Phone));
/// assert_eq!(key_type_of("ana@example.com"), Some(KeyType::Email));
/// assert_eq!(key_type_of("Ana@example.com"), None);
/// ```
pub fn key_type_of(key: &str) -> Option<KeyType> {
    if formats::is_cpf(key) {
        Some(KeyType::Cpf)
    } else if formats::is_cnpj(key) {
        Some(KeyType::Cnpj)
    } else if is_phone(key) {
        Some(KeyType::Phone)
    } else if is_email(key) {
        Some(KeyType::Email)
    } else if formats::is_uuid(key) && !key.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Some(KeyType::Evp)
    } else {
        None
    }
}

/// A key's type as it is kept: the word of the wire.
pub(super) mod key_type_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::KeyType;

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes fields by reference"
    )]
    pub(in crate::wire) fn serialize<S: Serializer>(
        key_type: &KeyType,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(key_type.as_str())
    }

    pub(in crate::wire) fn deserialize<'d, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<KeyType, D::Error> {
        let text = String::deserialize(deserializer)?;
        KeyType::parse(&text).ok_or_else(|| D::Error::custom("no type of keys"))
    }
}

/// `+`, and 2 to 15 digits that do not begin with zero.
fn is_phone(key: &str) -> bool {
    let Some(digits) = key.strip_prefix('+') else {
        return false;
    };
    (2..=15).contains(&digits.len())
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Something before the one `@` and something after it, in lower case, without spaces.
fn is_email(key: &str) -> bool {
    let Some((local, domain)) = key.split_once('@') else {
        return false;
    };
    let is_plain = |c: char| c.is_ascii_graphic() && !c.is_ascii_uppercase() && c != '@';
    key.len() <= KEY_CHARS_MAX
        && !local.is_empty()
        && !domain.is_empty()
        && local.chars().all(is_plain)
        && domain
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_wrong_shape_are_none() {
        for key in [
            "",
            " ",
            "1",
            "1234567890",
            "123456789012",
            "+",
            "+0123",
            "+1",
            "+12345678901234567",
            "5511987654321x",
            "a@",
            "@b",
            "a b@c",
            "a@b@c",
            "A@b",
            "ç@b",
            "123e4567-e89b-12d3-a456-42661417400",
            "123E4567-e89b-12d3-a456-426614174000",
            "\u{0}",
            "../../etc/passwd",
            "%2B5511987654321",
        ] {
            assert_eq!(key_type_of(key), None, "{key:?}");
        }
        let long = format!("{}@b.c", "a".repeat(74));
        assert_eq!(key_type_of(&long), None);
        assert_eq!(key_type_of(&long[1..]), Some(KeyType::Email));
        assert_eq!(key_type_of("11222333000150"), Some(KeyType::Cnpj));
        assert_eq!(
            key_type_of("123e4567-e89b-12d3-a456-426614174000"),
            Some(KeyType::Evp)
        );
    }
}
