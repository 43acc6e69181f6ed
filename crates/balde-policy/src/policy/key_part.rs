//! The parts of a request that make a bucket's key.

use std::borrow::Cow;
use std::fmt;

use super::key::{Key, PartSource, write_key_part};
use super::{KeyError, MatchRule, Request};

/// A part of a request that goes into a bucket's key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyPart {
    /// The institution or tenant that sent the request: [`Request::participant`].
    Participant,
    /// The user that the request belongs to: [`Request::user`].
    User,
    /// Another value that the caller of the engine has determined for the request:
    /// [`Request::values`].
    Value(Box<str>),
    /// A header's value.
    Header(Box<str>),
    /// A query parameter's first value, decoded.
    Query(Box<str>),
    /// The segment of the path that a rule's template names, decoded.
    Path(Box<str>),
    /// A fixed text.
    Constant(Box<str>),
}

impl KeyPart {
    /// The value of the header with this name.
    pub fn header(name: impl Into<Box<str>>) -> Self {
        Self::Header(name.into())
    }

    /// The first value of the query parameter with this name.
    pub fn query(name: impl Into<Box<str>>) -> Self {
        Self::Query(name.into())
    }

    /// The path segment that a rule's template names `{name}`.
    pub fn path(name: impl Into<Box<str>>) -> Self {
        Self::Path(name.into())
    }

    /// The value with this name in [`Request::values`].
    pub fn named(name: impl Into<Box<str>>) -> Self {
        Self::Value(name.into())
    }

    /// Parses `participant`, `user`, `value:NAME`, `header:NAME`, `query:NAME`, `path:NAME` or
    /// `const:TEXT`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "participant" => return Some(Self::Participant),
            "user" => return Some(Self::User),
            _ => {}
        }
        let (kind, name) = text.split_once(':')?;
        if name.is_empty() || name.chars().any(char::is_control) {
            return None;
        }
        match kind {
            "value" => Some(Self::Value(name.into())),
            "header" => Some(Self::Header(name.into())),
            "query" => Some(Self::Query(name.into())),
            "path" => Some(Self::Path(name.into())),
            "const" => Some(Self::Constant(name.into())),
            _ => None,
        }
    }

    /// The request's value for this part; `None` if it is missing or empty. Path segments are found
    /// through the template of the rule that matched.
    pub fn value<'r>(&'r self, request: &Request<'r>, rule: &MatchRule) -> Option<Cow<'r, str>> {
        let value = match self {
            Self::Participant => request.participant.map(Cow::Borrowed),
            Self::User => request.user.map(Cow::Borrowed),
            Self::Value(name) => request.value(name).map(Cow::Borrowed),
            Self::Header(name) => request.headers.value_of(name).map(Cow::Borrowed),
            Self::Query(name) => request.query_first(name),
            Self::Path(name) => rule.segment(request, name),
            Self::Constant(text) => Some(Cow::Borrowed(&**text)),
        };
        value.filter(|value| !value.is_empty())
    }
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Participant => f.write_str("participant"),
            Self::User => f.write_str("user"),
            Self::Value(name) => write!(f, "value:{name}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Path(name) => write!(f, "path:{name}"),
            Self::Constant(text) => write!(f, "const:{text}"),
        }
    }
}

/// Which requests share a bucket: those with equal values of these key parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    name: Box<str>,
    parts: Vec<KeyPart>,
}

impl Scope {
    /// Creates a scope from its name and the parts that make a bucket's key, in their order.
    pub fn new(name: impl Into<Box<str>>, parts: impl IntoIterator<Item = KeyPart>) -> Self {
        Self {
            name: name.into(),
            parts: parts.into_iter().collect(),
        }
    }

    /// The scope in which all requests share one bucket.
    pub fn everyone() -> Self {
        Self {
            name: "everyone".into(),
            parts: vec![KeyPart::Constant("everyone".into())],
        }
    }

    /// The scope's name, such as `per-user`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parts that make a bucket's key.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// Appends the key of a bucket to `key`. Different parts never make the same key.
    pub(crate) fn write_key(
        &self,
        source: &impl PartSource,
        key: &mut Key,
    ) -> Result<(), KeyError> {
        for (index, part) in self.parts.iter().enumerate() {
            if source.is_ambiguous(part) {
                return Err(KeyError::Ambiguous { part: part.clone() });
            }
            let missing = || KeyError::Missing { part: part.clone() };
            let value = source.part(part).ok_or_else(missing)?;
            if index > 0 {
                key.push(b'/');
            }
            write_key_part(key, &value)?;
        }
        Ok(())
    }
}
