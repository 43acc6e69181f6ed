//! Path templates: `/entries/{Key}/statistics`.

use std::fmt;

/// The most segments of a template.
const SEGMENTS_MAX: usize = 32;

/// A path with placeholders: `{name}` matches one segment that is not empty, and `{*}` at the end
/// matches the rest of the path. A slash at the end is significant.
///
/// ```
/// use balde_policy::PathTemplate;
///
/// let template = PathTemplate::new("/entries/{Key}/statistics")?;
/// assert!(template.matches("/entries/%2B5511987654321/statistics"));
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

    /// Whether a raw path, percent-encoded as it was received, matches.
    pub fn matches(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else {
            return false;
        };
        let mut found = path.split('/');
        for segment in &self.segments {
            let fits = found.next().is_some_and(|text| segment.fits(text));
            if !fits {
                return false;
            }
        }
        self.is_open || found.next().is_none()
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
        Ok(Self::Literal(text.into()))
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
        })
    }
}

impl std::error::Error for PathTemplateError {}
