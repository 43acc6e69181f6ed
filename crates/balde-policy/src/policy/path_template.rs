//! Path templates: `/entries/{Key}/statistics`.

use std::fmt;

use crate::path::{PathError, PathRules, spelled_literal};

/// The most segments of a template.
const SEGMENTS_MAX: usize = 32;

/// A path with placeholders: `{name}` matches one segment that is not empty, and `{*}` at the end
/// matches the rest of the path. A slash at the end makes no difference, because many servers treat
/// `/search` and `/search/` as one. Letter case makes one.
///
/// Templates are compared with paths in their [normal form](crate::PathRules::normalized). Characters
/// of a template may be percent-encoded or not.
///
/// ```
/// use balde_policy::PathTemplate;
///
/// let template = PathTemplate::new("/entries/{Key}/statistics")?;
/// assert!(template.matches("/entries/%2B5511987654321/statistics"));
/// assert!(template.matches("/entries/a/statistics/"));
/// assert!(!template.matches("/entries//statistics"));
/// assert_eq!(template.segment("/entries/a%40b/statistics", "Key"), Some("a%40b"));
/// # Ok::<(), balde_policy::PathTemplateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTemplate {
    text: Box<str>,
    segments: Vec<Segment>,
    is_open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Literal(Box<str>),
    Hole(Box<str>),
}

impl PathTemplate {
    /// Parses a template.
    pub fn new(text: &str) -> Result<Self, PathTemplateError> {
        let path = text.strip_prefix('/').ok_or(PathTemplateError::NoSlash)?;
        let (path, is_open) = match path.strip_suffix("{*}") {
            Some("") => ("", true),
            Some(before) => match before.strip_suffix('/') {
                Some(before) => (before, true),
                None => return Err(PathTemplateError::Braces),
            },
            None => (path, false),
        };
        let mut segments = Vec::new();
        if !(is_open && path.is_empty()) {
            for segment in path.split('/') {
                segments.push(Segment::new(segment)?);
            }
        }
        if segments.len() > SEGMENTS_MAX {
            return Err(PathTemplateError::TooManySegments);
        }
        let is_empty = |segment: &Segment| *segment == Segment::Literal("".into());
        let last = segments.len().saturating_sub(usize::from(!is_open));
        if segments[..last].iter().any(is_empty) {
            return Err(PathTemplateError::RepeatedSlash);
        }
        for (index, segment) in segments.iter().enumerate() {
            if let Segment::Hole(name) = segment
                && !name.is_empty()
                && segments[..index].contains(segment)
            {
                return Err(PathTemplateError::RepeatedName);
            }
        }
        Ok(Self {
            text: text.into(),
            segments,
            is_open,
        })
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a path in its normal form matches.
    pub fn matches(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else {
            return false;
        };
        let mut found = path.split('/');
        let mut segments = self.segments.iter().peekable();
        while let Some(segment) = segments.next() {
            let is_fitting = match found.next() {
                Some(text) => segment.fits(text),
                // A template may end with a slash that the path does not have.
                None => !self.is_open && segments.peek().is_none() && segment.fits(""),
            };
            if !is_fitting {
                return false;
            }
        }
        self.is_open || matches!((found.next(), found.next()), (None | Some(""), None))
    }

    /// Why paths match the template only with other [rules](crate::PathRules) than the default; `None`
    /// if the template can match.
    pub fn never_matches(&self) -> Option<&'static str> {
        let path = self.text.strip_suffix("{*}").unwrap_or(&self.text);
        let mut literals = path[1..].split('/').filter(|text| !text.starts_with('{'));
        literals.find_map(
            |literal| match PathRules::default().normalized(&format!("/{literal}")) {
                Ok(_) => None,
                Err(PathError::EscapedSlash) => {
                    Some("requests with an encoded slash are refused by default")
                }
                Err(_) => Some("requests that are encoded twice are refused by default"),
            },
        )
    }

    /// The segment of a matching path that the placeholder `name` matches, still percent-encoded.
    pub fn segment<'p>(&self, path: &'p str, name: &str) -> Option<&'p str> {
        let is_called =
            |segment: &Segment| matches!(segment, Segment::Hole(hole) if **hole == *name);
        let index = self.segments.iter().position(is_called)?;
        path.strip_prefix('/')?.split('/').nth(index)
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether the template ends in `{*}`.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// The names of the placeholders.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Hole(name) if !name.is_empty() => Some(&**name),
            _ => None,
        })
    }
}

impl Segment {
    fn new(text: &str) -> Result<Self, PathTemplateError> {
        if let Some(name) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
            let is_name = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            return if is_name {
                Ok(Self::Hole(name.into()))
            } else {
                Err(PathTemplateError::Braces)
            };
        }
        if text.contains(['{', '}']) {
            return Err(PathTemplateError::Braces);
        }
        let is_odd = |c: char| c == '?' || c == '#' || c.is_whitespace() || c.is_control();
        if text.contains(is_odd) {
            return Err(PathTemplateError::Character);
        }
        if text.contains('*') {
            return Err(PathTemplateError::Star);
        }
        match PathRules::default().normalized(&format!("/{text}")) {
            // With other rules there are such paths.
            Ok(_) | Err(PathError::EscapedSlash | PathError::DoubleEncoding) => {}
            Err(PathError::DotSegment | PathError::AboveRoot) => {
                return Err(PathTemplateError::DotSegment);
            }
            Err(PathError::Parameter) => return Err(PathTemplateError::Parameter),
            Err(_) => return Err(PathTemplateError::Spelling),
        }
        let literal = spelled_literal(text).unwrap_or_else(|| text.to_owned());
        Ok(Self::Literal(literal.into()))
    }

    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => **literal == *text,
            Self::Hole(_) => !text.is_empty(),
        }
    }
}

/// Why a text is not a path template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathTemplateError {
    /// The path does not begin with a slash.
    NoSlash,
    /// Braces that are not a whole segment, or `{*}` before the end.
    Braces,
    /// A character that a path cannot have.
    Character,
    /// Two placeholders have the same name.
    RepeatedName,
    /// More segments than a template may have.
    TooManySegments,
    /// A star that is not `{*}`: no wildcard, although it looks like one.
    Star,
    /// Two slashes in a row, which no path in its normal form has.
    RepeatedSlash,
    /// A segment `.` or `..`, which no path in its normal form has.
    DotSegment,
    /// A spelling that is always refused, such as a backslash or a `%` without two hexadecimal digits.
    Spelling,
    /// A parameter after `;`, which no path in its normal form has.
    Parameter,
}

impl fmt::Display for PathTemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSlash => "a path begins with `/`",
            Self::Braces => {
                "braces enclose a whole segment, as in `/users/{id}`; `{*}` at the end matches the rest"
            }
            Self::Character => "a path has no `?`, no `#` and no spaces",
            Self::RepeatedName => "two segments have the same name",
            Self::TooManySegments => "a path has at most 32 segments",
            Self::Star => {
                "`*` is no wildcard here, and the rule would match nothing: write `{*}` as the last \
                 segment for the rest of the path, as in `/search/{*}`, which matches `/search`, too; \
                 `{name}` for any one segment; or `%2A` for the character itself"
            }
            Self::RepeatedSlash => {
                "repeated slashes of a request are merged, so the rule would match nothing: write one \
                 slash"
            }
            Self::DotSegment => {
                "the segments `.` and `..` of a request are resolved, or the request is refused, so \
                 the rule would match nothing: write the path without them"
            }
            Self::Spelling => {
                "requests with a backslash, a broken `%` or bytes that are not UTF-8 are refused, so \
                 the rule would match nothing: write the path as clients send it"
            }
            Self::Parameter => {
                "requests are compared without `;` and what follows it, so the rule would match \
                 nothing: write the path without it"
            }
        })
    }
}

impl std::error::Error for PathTemplateError {}
