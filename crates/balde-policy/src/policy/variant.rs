//! Numbers that depend on who is counted: a participant's category, a person or a company.

use super::key::PartSource;
use super::{KeyPart, NamedPattern};

/// One value for all, or one for each value of a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByVariant<T> {
    /// The same for all.
    One(T),
    /// One for each value.
    By {
        /// The variant's name, as `category`.
        variant: Box<str>,
        /// Its values, as `A`, and what each has, in the order of the file.
        values: Vec<(Box<str>, T)>,
    },
}

impl<T> ByVariant<T> {
    /// What a value has. Where all have the same, the value does not matter.
    pub fn get(&self, value: Option<&str>) -> Option<&T> {
        match self {
            Self::One(one) => Some(one),
            Self::By { values, .. } => {
                let value = value?;
                let found = values.iter().find(|(name, _)| **name == *value);
                found.map(|(_, has)| has)
            }
        }
    }

    /// The variant this depends on.
    pub fn variant(&self) -> Option<&str> {
        match self {
            Self::One(_) => None,
            Self::By { variant, .. } => Some(variant),
        }
    }

    /// Every value with what it has; nothing for a value where all have the same.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, &T)> {
        let (one, by) = match self {
            Self::One(one) => (Some((None, one)), [].as_slice()),
            Self::By { values, .. } => (None, values.as_slice()),
        };
        let by = by.iter().map(|(name, has)| (Some(&**name), has));
        one.into_iter().chain(by)
    }
}

/// An event that gives tokens back, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credit {
    event: Box<str>,
    tokens: ByVariant<u64>,
}

impl Credit {
    /// Tokens for an event.
    pub fn new(event: impl Into<Box<str>>, tokens: ByVariant<u64>) -> Self {
        Self {
            event: event.into(),
            tokens,
        }
    }

    /// The event's name, as `payment-order`.
    pub fn event(&self) -> &str {
        &self.event
    }

    /// The tokens it gives back.
    pub fn tokens(&self) -> &ByVariant<u64> {
        &self.tokens
    }
}

/// A named choice between several limits or credits, such as a participant's category, and how
/// the value of it is found for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    name: Box<str>,
    source: VariantSource,
}

/// Where a variant's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariantSource {
    /// The value is assigned to each subject with
    /// [`Engine::assign`](crate::Engine::assign), as a participant's category is.
    Assigned {
        /// The part of the request that names the subject.
        part: KeyPart,
        /// The possible values.
        values: Vec<Box<str>>,
    },
    /// The value whose pattern a part of the request matches.
    Matched {
        /// The part of the request.
        part: KeyPart,
        /// Each value with its pattern. The first match counts.
        patterns: Vec<NamedPattern>,
    },
    /// The value is a part of the request.
    Listed {
        /// The part of the request.
        part: KeyPart,
        /// The possible values.
        values: Vec<Box<str>>,
        /// The value to use if the part is missing or is none of the values.
        otherwise: Option<Box<str>>,
    },
}

impl Variant {
    /// A variant with a name and a source.
    pub fn new(name: impl Into<Box<str>>, source: VariantSource) -> Self {
        Self {
            name: name.into(),
            source,
        }
    }

    /// Its name, as `category`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its value comes from.
    pub fn source(&self) -> &VariantSource {
        &self.source
    }

    /// All its values, in the order of the file.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        let (plain, patterned) = match &self.source {
            VariantSource::Assigned { values, .. } | VariantSource::Listed { values, .. } => {
                (values.as_slice(), [].as_slice())
            }
            VariantSource::Matched { patterns, .. } => ([].as_slice(), patterns.as_slice()),
        };
        let patterned = patterned.iter().map(|(name, _)| name);
        plain.iter().chain(patterned).map(|name| &**name)
    }

    /// The value that follows from the parts of a request. Nothing if the value is assigned, or if
    /// no value fits.
    pub(crate) fn value_of(&self, source: &impl PartSource) -> Option<&str> {
        match &self.source {
            VariantSource::Assigned { .. } => None,
            VariantSource::Matched { part, patterns } => {
                let text = source.part(part)?;
                let fits = |(_, pattern): &&NamedPattern| pattern.matches(&text);
                patterns.iter().find(fits).map(|(name, _)| &**name)
            }
            VariantSource::Listed {
                part,
                values,
                otherwise,
            } => {
                let text = source.part(part);
                let known = text.and_then(|text| values.iter().find(|value| ***value == *text));
                known.or(otherwise.as_ref()).map(|value| &**value)
            }
        }
    }
}
