//! What a key, a payer and a participant are.

use std::fmt;

/// The type of a key, which follows from its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyType {
    /// A person's tax number.
    Cpf,
    /// A company's tax number.
    Cnpj,
    /// A phone number with its country.
    Phone,
    /// An e-mail address.
    Email,
    /// A random key.
    Evp,
}

impl KeyType {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Cpf, Self::Cnpj, Self::Phone, Self::Email, Self::Evp];

    /// As DICT writes it, which is also the name of its pattern in a profile.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpf => "CPF",
            Self::Cnpj => "CNPJ",
            Self::Phone => "PHONE",
            Self::Email => "EMAIL",
            Self::Evp => "EVP",
        }
    }

    /// Reads what DICT writes.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a payer is a person or a company.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayerKind {
    /// A person: 11 digits.
    Pf,
    /// A company: 14 characters.
    Pj,
}

impl PayerKind {
    /// As profiles write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pf => "PF",
            Self::Pj => "PJ",
        }
    }
}

/// A participant's category: one letter, which the central bank assigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Category(u8);

impl Category {
    /// The largest participants.
    pub const A: Self = Self(b'A');
    /// The smallest participants.
    pub const H: Self = Self(b'H');

    /// A category by its letter, `A` to `Z`. Which of them exist is the profile's to say.
    pub const fn new(letter: char) -> Option<Self> {
        if letter.is_ascii_uppercase() {
            Some(Self(letter as u8))
        } else {
            None
        }
    }

    /// Its letter.
    pub const fn letter(self) -> char {
        self.0 as char
    }

    /// Its letter as text, as profiles write it.
    pub fn as_str(&self) -> &str {
        let letter = std::slice::from_ref(&self.0);
        std::str::from_utf8(letter).unwrap_or("?")
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
