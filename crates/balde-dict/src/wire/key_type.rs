//! The types of keys, told by their shapes.

use super::formats;
use super::words::KeyType;

/// The longest key, in characters.
pub const KEY_CHARS_MAX: usize = 77;

impl KeyType {
    /// The type of a key: no two shapes have a text in common. Nothing, if it is no key.
    ///
    /// ```
    /// use balde_dict::wire::KeyType;
    ///
    /// assert_eq!(KeyType::of("+5561988880000"), Some(KeyType::Phone));
    /// assert_eq!(KeyType::of("ana@example.com"), Some(KeyType::Email));
    /// assert_eq!(KeyType::of("Ana@example.com"), None);
    /// ```
    pub fn of(key: &str) -> Option<Self> {
        if formats::is_cpf(key) {
            Some(Self::Cpf)
        } else if formats::is_cnpj(key) {
            Some(Self::Cnpj)
        } else if is_phone(key) {
            Some(Self::Phone)
        } else if is_email(key) {
            Some(Self::Email)
        } else if formats::is_uuid(key) && !key.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Some(Self::Evp)
        } else {
            None
        }
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
        && local.chars().chain(domain.chars()).all(is_plain)
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
            assert_eq!(KeyType::of(key), None, "{key:?}");
        }
        let long = format!("{}@b.c", "a".repeat(74));
        assert_eq!(KeyType::of(&long), None);
        assert_eq!(KeyType::of(&long[1..]), Some(KeyType::Email));
        assert_eq!(KeyType::of("11222333000150"), Some(KeyType::Cnpj));
        assert_eq!(
            KeyType::of("123e4567-e89b-12d3-a456-426614174000"),
            Some(KeyType::Evp)
        );
    }
}
