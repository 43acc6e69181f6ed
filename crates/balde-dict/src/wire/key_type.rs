//! Types of Pix keys. No two types share a format, so a key's type follows from its text.

use std::borrow::Cow;
use std::fmt;

use super::formats;

/// The type of a Pix key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyType {
    /// A person's tax number (CPF).
    Cpf,
    /// A company's tax number (CNPJ).
    Cnpj,
    /// A phone number with its country code.
    Phone,
    /// An e-mail address.
    Email,
    /// A random key (EVP).
    Evp,
}

impl KeyType {
    /// Every type.
    pub const ALL: [Self; 5] = [Self::Cpf, Self::Cnpj, Self::Phone, Self::Email, Self::Evp];

    /// The type's name in DICT's messages, which is also the name of its pattern in a profile.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpf => "CPF",
            Self::Cnpj => "CNPJ",
            Self::Phone => "PHONE",
            Self::Email => "EMAIL",
            Self::Evp => "EVP",
        }
    }

    /// Parses the name that DICT's messages use.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the type of a key, or `None` if the text is not a key. No text matches two types.
pub fn key_type_of(key: &str) -> Option<KeyType> {
    if formats::is_cpf(key) {
        Some(KeyType::Cpf)
    } else if formats::is_cnpj(key) {
        Some(KeyType::Cnpj)
    } else if is_phone(key) {
        Some(KeyType::Phone)
    } else if formats::is_email_key(key) {
        Some(KeyType::Email)
    } else if formats::is_uuid(key) && !key.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Some(KeyType::Evp)
    } else {
        None
    }
}

/// `+` and 2 to 15 digits, the first of them not zero.
fn is_phone(key: &str) -> bool {
    let Some(digits) = key.strip_prefix('+') else {
        return false;
    };
    (2..=15).contains(&digits.len())
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A key as it is stored and compared: the case of a CNPJ does not matter.
pub fn canonical_key(key: &str) -> Cow<'_, str> {
    if key.len() == 14 && formats::is_cnpj(key) && key.bytes().any(|byte| byte.is_ascii_lowercase())
    {
        Cow::Owned(key.to_ascii_uppercase())
    } else {
        Cow::Borrowed(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_not_keys_have_no_type() {
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
            "551198765432_x",
            "a@",
            "@b",
            "a b@c",
            "a@b@c",
            "A@b",
            "Ana@example.com",
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
        assert_eq!(key_type_of("+5561988880000"), Some(KeyType::Phone));
        assert_eq!(key_type_of("ana@example.com"), Some(KeyType::Email));
        assert_eq!(
            key_type_of("123e4567-e89b-12d3-a456-426614174000"),
            Some(KeyType::Evp)
        );
    }
}
