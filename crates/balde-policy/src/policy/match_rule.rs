//! Which requests a policy applies to.

use std::borrow::Cow;
use std::fmt;

use super::key::{MatchedRequest, PartSource as _};
use super::{KeyPart, NamedPattern, PathTemplate, Request, percent_decoded};

/// Selects the requests that a policy applies to: those that match the methods, the path and every
/// condition.
///
/// ```
/// use balde_policy::{Condition, Request, MatchRule, PathTemplate};
///
/// let rule = MatchRule::new(["GET"], PathTemplate::new("/search/")?)
///     .with_query("cursor", Condition::Absent);
/// assert!(rule.matches(&Request::new("GET", "/search/", "q=shoes")));
/// assert!(!rule.matches(&Request::new("GET", "/search/", "q=shoes&cursor=9")));
/// # Ok::<(), balde_policy::PathTemplateError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchRule {
    methods: Vec<Box<str>>,
    path: Option<PathTemplate>,
    query: Vec<(Box<str>, Condition)>,
    headers: Vec<(Box<str>, Condition)>,
    values: Vec<(Box<str>, Condition)>,
    flags: Vec<Flags>,
    patterns: Option<(KeyPart, Vec<NamedPattern>)>,
}

impl MatchRule {
    /// The rule that every request matches.
    pub fn any() -> &'static Self {
        static ANY: MatchRule = MatchRule {
            methods: Vec::new(),
            path: None,
            query: Vec::new(),
            headers: Vec::new(),
            values: Vec::new(),
            flags: Vec::new(),
            patterns: None,
        };
        &ANY
    }

    /// Matches requests with one of these methods (any, if there are none) and a path that matches
    /// the template. `GET` also matches `HEAD`; see [`Matcher`](crate::Matcher) for the exception.
    pub fn new<M: Into<Box<str>>>(
        methods: impl IntoIterator<Item = M>,
        path: PathTemplate,
    ) -> Self {
        Self {
            methods: methods.into_iter().map(Into::into).collect(),
            path: Some(path),
            ..Self::default()
        }
    }

    /// Adds a condition on a query parameter. Servers read a parameter that is repeated with different
    /// values in different ways, so the rule matches if the condition holds for any of the values.
    pub fn with_query(mut self, name: impl Into<Box<str>>, condition: Condition) -> Self {
        self.query.push((name.into(), condition));
        self
    }

    /// Adds a condition on a header. A header that is repeated with different values meets every
    /// condition, so that a second value does not escape the rule.
    pub fn with_header(mut self, name: impl Into<Box<str>>, condition: Condition) -> Self {
        self.headers.push((name.into(), condition));
        self
    }

    /// Adds a condition on a [named value](Request::values) of the request.
    pub fn with_value(mut self, name: impl Into<Box<str>>, condition: Condition) -> Self {
        self.values.push((name.into(), condition));
        self
    }

    /// Adds a condition on query parameters that filter a list.
    pub fn with_flags(mut self, flags: Flags) -> Self {
        self.flags.push(flags);
        self
    }

    /// Requires a part of the request to match one of these patterns.
    pub fn with_patterns(self, part: KeyPart, patterns: Vec<NamedPattern>) -> Self {
        Self {
            patterns: Some((part, patterns)),
            ..self
        }
    }

    /// The methods; empty if the rule matches any method.
    pub fn methods(&self) -> &[Box<str>] {
        &self.methods
    }

    /// The path template; `None` if the rule matches any path.
    pub fn path(&self) -> Option<&PathTemplate> {
        self.path.as_ref()
    }

    /// The part of the request that must match one of these named patterns, if there is such a
    /// condition.
    pub fn patterns(&self) -> Option<(&KeyPart, &[NamedPattern])> {
        let (part, patterns) = self.patterns.as_ref()?;
        Some((part, patterns))
    }

    /// Whether a request, with its path in [normal form](crate::PathRules::normalized), matches.
    pub fn matches(&self, request: &Request<'_>) -> bool {
        self.matches_route(request.method, request.path) && self.matches_details(request)
    }

    /// Whether a method and a path in its normal form match.
    pub fn matches_route(&self, method: &str, path: &str) -> bool {
        self.matches_method(method) && self.path.as_ref().is_none_or(|form| form.matches(path))
    }

    pub(crate) fn matches_method(&self, method: &str) -> bool {
        self.methods.is_empty()
            || self.names_method(method)
            || (method.eq_ignore_ascii_case("HEAD") && self.names_method("GET"))
    }

    /// Whether the rule names a method itself.
    pub(crate) fn names_method(&self, method: &str) -> bool {
        // Methods are case-sensitive, but not every server knows.
        self.methods.iter().any(|m| m.eq_ignore_ascii_case(method))
    }

    /// Whether the rule is about `GET` and does not name `HEAD`.
    pub(crate) fn is_for_get_only(&self) -> bool {
        self.names_method("GET") && !self.names_method("HEAD")
    }

    /// Whether the rule is about `HEAD` and not about `GET`.
    pub(crate) fn is_for_head_only(&self) -> bool {
        self.names_method("HEAD") && !self.names_method("GET")
    }

    /// Whether a request meets all the rule's conditions on query, headers, values, flags and patterns.
    /// Method and path are not compared; [`matches_route`](MatchRule::matches_route) does that.
    pub fn matches_details(&self, request: &Request<'_>) -> bool {
        let query = self.query.iter();
        let headers = self.headers.iter();
        query.clone().all(|(name, condition)| {
            let readings = request.query_readings(name);
            readings.any(|value| condition.holds(value))
        }) && headers.clone().all(|(name, condition)| {
            condition.holds(request.headers.value_of(name)) || request.headers.values_differ(name)
        }) && (self.values.iter()).all(|(name, condition)| condition.holds(request.value(name)))
            && self.flags.iter().all(|flags| flags.hold(request))
            && self.patterns.as_ref().is_none_or(|(part, patterns)| {
                let source = MatchedRequest {
                    request,
                    rule: self,
                };
                let value = part.value(request, self);
                value.is_some_and(|text| patterns.iter().any(|(_, pattern)| pattern.matches(&text)))
                    || source.is_ambiguous(part)
            })
    }

    /// The path segment that the template's placeholder `name` matches, decoded. `None` if there is
    /// no such segment or it cannot be decoded.
    pub fn segment<'r>(&self, request: &Request<'r>, name: &str) -> Option<Cow<'r, str>> {
        percent_decoded(self.path.as_ref()?.segment(request.path, name)?)
    }
}

/// Readable form: `GET /claims/ filtered by IsDonor, IsClaimer`.
impl fmt::Display for MatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for method in &self.methods {
            write!(f, "{between}{method}")?;
            between = ",";
        }
        let path = self.path.as_ref().map_or("/{*}", PathTemplate::as_str);
        let space = if self.methods.is_empty() { "" } else { " " };
        write!(f, "{space}{path}")?;
        for (name, condition) in &self.query {
            write!(f, " with query {name} {condition}")?;
        }
        for (name, condition) in &self.headers {
            write!(f, " with header {name} {condition}")?;
        }
        for (name, condition) in &self.values {
            write!(f, " with value {name} {condition}")?;
        }
        for flags in &self.flags {
            let not = if flags.is_filtered { "" } else { "not " };
            write!(f, " {not}filtered by {}", flags.names.join(", "))?;
        }
        if let Some((part, patterns)) = &self.patterns {
            let names: Vec<&str> = patterns.iter().map(|(name, _)| &**name).collect();
            write!(f, " where {part} is {}", names.join(" or "))?;
        }
        Ok(())
    }
}

/// A condition on the value of a header, a query parameter or a named value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Present, with any value that is not empty.
    Present,
    /// Absent, or empty.
    Absent,
    /// Equal to this text.
    Is(Box<str>),
    /// Not equal to this text; also if it is absent.
    IsNot(Box<str>),
}

impl Condition {
    /// Parses `*` (present), `!*` (absent), `text` (is) or `!text` (is not).
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "!" => None,
            "*" => Some(Self::Present),
            "!*" => Some(Self::Absent),
            _ => Some(match text.strip_prefix('!') {
                Some(text) => Self::IsNot(text.into()),
                None => Self::Is(text.into()),
            }),
        }
    }

    /// Whether a value, or its absence, meets the condition.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let value = value.filter(|value| !value.is_empty());
        match self {
            Self::Present => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Is(text) => value == Some(text),
            Self::IsNot(text) => value != Some(text),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("present"),
            Self::Absent => f.write_str("absent"),
            Self::Is(text) => write!(f, "= {text}"),
            Self::IsNot(text) => write!(f, "!= {text}"),
        }
    }
}

/// Query parameters that are `true` or `false` and together filter a list, such as `IsDonor` and
/// `IsClaimer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// The names of the parameters.
    pub names: Vec<Box<str>>,
    /// Which of their values make the list a filtered one.
    pub rule: FlagRule,
    /// True to match requests for filtered lists, false to match all others.
    pub is_filtered: bool,
}

/// Which values of [`Flags`] make a list a filtered one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlagRule {
    /// Exactly one of them is true.
    #[default]
    ExactlyOneTrue,
    /// At least one of them is true.
    AnyTrue,
    /// At least one of them is present, true or false.
    AnyPresent,
}

impl FlagRule {
    /// Parses `exactly_one_true`, `any_true` or `any_present`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "exactly_one_true" => Some(Self::ExactlyOneTrue),
            "any_true" => Some(Self::AnyTrue),
            "any_present" => Some(Self::AnyPresent),
            _ => None,
        }
    }
}

impl Flags {
    /// Whether a request meets the condition.
    /// A request with a parameter that servers read in different ways does.
    pub fn hold(&self, request: &Request<'_>) -> bool {
        let mut readings = self.names.iter().map(|name| request.query_readings(name));
        if readings.any(|readings| readings.is_ambiguous()) {
            return true;
        }
        let values = self
            .names
            .iter()
            .filter_map(|name| request.query_first(name));
        let (mut present, mut set) = (0_u32, 0_u32);
        for value in values.filter(|value| !value.is_empty()) {
            present += 1;
            set += u32::from(value.eq_ignore_ascii_case("true"));
        }
        let is_filtered = match self.rule {
            FlagRule::ExactlyOneTrue => set == 1,
            FlagRule::AnyTrue => set > 0,
            FlagRule::AnyPresent => present > 0,
        };
        is_filtered == self.is_filtered
    }
}
