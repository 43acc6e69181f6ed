//! Buckets named by the parts of their keys instead of by a request.

use std::borrow::Cow;
use std::fmt;

use crate::policy::{KeyPart, PartSource, Request};

/// Names buckets outside of a request: by the values of key parts, or by a request that would
/// take tokens from them.
///
/// ```
/// use balde_policy::{KeyPart, Subject};
///
/// let alice = Subject::user("alice").with(KeyPart::header("X-Region"), "south");
/// # drop(alice);
/// ```
#[derive(Clone, Default)]
pub struct Subject<'a> {
    pub(super) request: Option<Request<'a>>,
    parts: Vec<(KeyPart, Cow<'a, str>)>,
}

impl<'a> Subject<'a> {
    /// Creates a subject without parts: it names only buckets that all requests share.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the buckets of a participant.
    pub fn participant(participant: impl Into<Cow<'a, str>>) -> Self {
        Self::new().with(KeyPart::Participant, participant)
    }

    /// Names the buckets of a user.
    pub fn user(user: impl Into<Cow<'a, str>>) -> Self {
        Self::new().with(KeyPart::User, user)
    }

    /// Names the buckets that this request takes tokens from, and no others.
    pub fn request(request: Request<'a>) -> Self {
        Self {
            request: Some(request),
            parts: Vec::new(),
        }
    }

    /// Adds a key part with its value.
    pub fn with(mut self, part: KeyPart, value: impl Into<Cow<'a, str>>) -> Self {
        self.parts.push((part, value.into()));
        self
    }
}

impl PartSource for Subject<'_> {
    fn part<'a>(&'a self, part: &'a KeyPart) -> Option<Cow<'a, str>> {
        if let KeyPart::Constant(text) = part {
            return Some(Cow::Borrowed(&**text));
        }
        let is_same = |known: &KeyPart| match (known, part) {
            (KeyPart::Header(known), KeyPart::Header(name)) => known.eq_ignore_ascii_case(name),
            _ => known == part,
        };
        let found = self.parts.iter().find(|(known, _)| is_same(known));
        let value = found.map(|(_, value)| Cow::Borrowed(&**value));
        value.filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be personal data, which does not belong in logs.
        let parts: Vec<&KeyPart> = self.parts.iter().map(|(part, _)| part).collect();
        f.debug_struct("Subject")
            .field("parts", &parts)
            .finish_non_exhaustive()
    }
}
