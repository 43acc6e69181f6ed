//! Values that depend on the caller: a participant's category, a person or a company.

use super::key::PartSource;
use super::{KeyPart, NamedPattern};

/// One `T` for all requests, or one for each value of a variant: limits and credits, for example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByVariant<T> {
    /// The same for all requests.
    One(T),
    /// One for each value of a variant.
    By {
        /// The variant's name, such as `category`.
        variant: Box<str>,
        /// The variant's values, such as `A`, each with its `T`, in the order of the file.
        values: Vec<(Box<str>, T)>,
    },
}

impl<T> ByVariant<T> {
    /// The `T` of a value. With [`One`](ByVariant::One) the value does not matter.
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

    /// The name of the variant; `None` with [`One`](ByVariant::One).
    pub fn variant(&self) -> Option<&str> {
        match self {
            Self::One(_) => None,
            Self::By { variant, .. } => Some(variant),
        }
    }

    /// Every value with its `T`. With [`One`](ByVariant::One) there is a single item without a
    /// value.
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
    /// Creates a credit: `tokens` for each `event`.
    pub fn new(event: impl Into<Box<str>>, tokens: ByVariant<u64>) -> Self {
        Self {
            event: event.into(),
            tokens,
        }
    }

    /// The event's name, such as `payment-order`.
    pub fn event(&self) -> &str {
        &self.event
    }

    /// The tokens that the event gives back.
    pub fn tokens(&self) -> &ByVariant<u64> {
        &self.tokens
    }
}

/// A named choice between several limits or credits, such as a participant's category, and how its
/// value is found for a request.
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
    /// The value is the name of the first pattern that a part of the request matches.
    Matched {
        /// The part of the request.
        part: KeyPart,
        /// Each value with its pattern.
        patterns: Vec<NamedPattern>,
    },
    /// The value is a part of the request itself, if it is one of the listed values.
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
    /// Creates a variant with a name and a source.
    pub fn new(name: impl Into<Box<str>>, source: VariantSource) -> Self {
        Self {
            name: name.into(),
            source,
        }
    }

    /// The variant's name, such as `category`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the variant's value comes from.
    pub fn source(&self) -> &VariantSource {
        &self.source
    }

    /// All values of the variant, in the order of the file.
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

    /// The part of a request that the value comes from.
    pub(crate) fn part(&self) -> &KeyPart {
        match &self.source {
            VariantSource::Assigned { part, .. }
            | VariantSource::Matched { part, .. }
            | VariantSource::Listed { part, .. } => part,
        }
    }

    /// The value that is derived from the parts of a request. `None` if the value is assigned, or
    /// if no value fits.
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
