//! Kinds of payers and categories of participants.

use std::fmt;

/// Whether a payer is a person or a company.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayerKind {
    /// A person: 11 digits.
    Pf,
    /// A company: 14 characters.
    Pj,
}

impl PayerKind {
    /// The name of the kind in profiles.
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

    /// Returns the category with this letter, `A` to `Z`. The profile defines which categories
    /// exist.
    pub const fn new(letter: char) -> Option<Self> {
        if letter.is_ascii_uppercase() {
            Some(Self(letter as u8))
        } else {
            None
        }
    }

    /// The letter.
    pub const fn letter(self) -> char {
        self.0 as char
    }

    /// The letter as a string, as in profiles.
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
