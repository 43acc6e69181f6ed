//! Numbers that depend on who is counted: a participant's category, a person or a company.

use super::{NamedShape, Part, Request, Rule};

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

/// How the value of a variant is found for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantRule {
    name: Box<str>,
    source: VariantSource,
}

/// Where a variant's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariantSource {
    /// Somebody assigns it, request by request; it cannot be read from the request.
    Assigned {
        /// The values there are.
        values: Vec<Box<str>>,
    },
    /// A part of the request has the shape that belongs to the value.
    Shaped {
        /// The part to look at.
        part: Part,
        /// Each value with its shape. The first that fits counts.
        shapes: Vec<NamedShape>,
    },
    /// A part of the request is the value.
    Written {
        /// The part to look at.
        part: Part,
        /// The values there are.
        values: Vec<Box<str>>,
        /// What counts when the part is missing or is none of the values.
        otherwise: Option<Box<str>>,
    },
}

impl VariantRule {
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
        let (plain, shaped) = match &self.source {
            VariantSource::Assigned { values } | VariantSource::Written { values, .. } => {
                (values.as_slice(), [].as_slice())
            }
            VariantSource::Shaped { shapes, .. } => ([].as_slice(), shapes.as_slice()),
        };
        let shaped = shaped.iter().map(|(name, _)| name);
        plain.iter().chain(shaped).map(|name| &**name)
    }

    /// The value that the request itself tells. Nothing where it is assigned, or where nothing
    /// fits.
    pub fn value_of(&self, request: &Request<'_>, rule: &Rule) -> Option<&str> {
        match &self.source {
            VariantSource::Assigned { .. } => None,
            VariantSource::Shaped { part, shapes } => {
                let text = part.value(request, rule)?;
                let fits = |(_, shape): &&NamedShape| shape.matches(&text);
                shapes.iter().find(fits).map(|(name, _)| &**name)
            }
            VariantSource::Written {
                part,
                values,
                otherwise,
            } => {
                let text = part.value(request, rule);
                let known = text.and_then(|text| values.iter().find(|value| ***value == *text));
                known.or(otherwise.as_ref()).map(|value| &**value)
            }
        }
    }
}
