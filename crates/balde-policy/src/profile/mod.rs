//! A set of policies, as data.

mod parse;
mod setting;
mod warnings;

pub use parse::NAME_BYTES_MAX;
pub use setting::{Setting, SettingValue};

use balde_config::Source;

use crate::policy::{NamedPattern, Pattern, Policy, Scope, Variant};

/// The most policies in a profile.
pub const POLICIES_MAX: usize = 256;

/// A set of policies, with the patterns, scopes, variants and settings that they refer to.
///
/// [`Profile::read`] reads a file, [`Profile::parse`] a text; docs/profiles.md describes the
/// format.
///
/// ```
/// use balde_policy::Profile;
///
/// let profile = Profile::parse(r#"
/// profile = "shop"
///
/// [[policy]]
/// name = "orders"
/// match = ["POST /orders"]
/// limit = "10/s burst 20"
/// "#)?;
/// assert_eq!(profile.policies()[0].name(), "orders");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    name: Box<str>,
    title: Box<str>,
    api: Option<Box<str>>,
    base_paths: Vec<Box<str>>,
    patterns: Vec<NamedPattern>,
    scopes: Vec<Scope>,
    variants: Vec<Variant>,
    settings: Vec<Setting>,
    policies: Vec<Policy>,
    source: Source,
}

impl Profile {
    /// Creates an empty profile.
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            title: "".into(),
            api: None,
            base_paths: Vec::new(),
            patterns: Vec::new(),
            scopes: Vec::new(),
            variants: Vec::new(),
            settings: Vec::new(),
            policies: Vec::new(),
            source: Source::unnamed(""),
        }
    }

    /// Adds a policy, or replaces the one with the same name. A new policy beyond [`POLICIES_MAX`]
    /// is ignored.
    pub fn with_policy(mut self, policy: Policy) -> Self {
        let known = self
            .policies
            .iter()
            .position(|other| other.name() == policy.name());
        match known {
            Some(index) => self.policies[index] = policy,
            None if self.policies.len() < POLICIES_MAX => self.policies.push(policy),
            None => {}
        }
        self
    }

    /// The profile's name, such as `dict-2.12.1`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A short description of the profile.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The API that the profile is for, such as `dict`, if its settings and key parts need an
    /// adapter.
    pub fn api(&self) -> Option<&str> {
        self.api.as_deref()
    }

    /// The prefixes that paths have in front of the paths of the rules, such as `/api/v2`.
    pub fn base_paths(&self) -> &[Box<str>] {
        &self.base_paths
    }

    /// Strips the base path from a raw path; `None` if the path is under none of the base paths.
    pub fn without_base<'p>(&self, path: &'p str) -> Option<&'p str> {
        if self.base_paths.is_empty() {
            return Some(path);
        }
        self.base_paths.iter().find_map(|base| {
            let rest = path.strip_prefix(&**base)?;
            rest.starts_with('/').then_some(rest)
        })
    }

    /// The profile's named patterns.
    pub fn patterns(&self) -> &[NamedPattern] {
        &self.patterns
    }

    /// The pattern with this name.
    pub fn pattern(&self, name: &str) -> Option<&Pattern> {
        let found = self.patterns.iter().find(|(other, _)| **other == *name);
        found.map(|(_, pattern)| pattern)
    }

    /// The profile's named scopes.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// The profile's variants: named choices between several limits or credits.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// The variant with this name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name() == name)
    }

    /// The profile's settings: named values that policies or an adapter refer to.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The setting with this name.
    pub fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.name() == name)
    }

    /// The text that the profile was parsed from, so that an adapter can report problems at their
    /// position; empty for a profile that was built in code.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The profile's policies, in the order of the file.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The policy with this name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name() == name)
    }
}
