//! A published set of policies, as data.

mod parse;
mod problem;
mod setting;

pub use parse::{PROFILE_BYTES_MAX, WORD_BYTES_MAX};
pub use problem::{PROBLEMS_MAX, Place, Problem, ProfileError};
pub use setting::{Setting, SettingValue};

use crate::policy::{NamedPattern, Pattern, Policy, Scope, Variant};

/// The most policies in a profile.
pub const POLICIES_MAX: usize = 256;

/// Policies that belong together, and the words they use.
///
/// [`Profile::parse`] reads a profile from TOML; docs/profiles.md describes the format.
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
}

impl Profile {
    /// A profile without anything in it yet.
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
        }
    }

    /// The same profile with one more policy, in the place of one that has the same name. A profile
    /// with [`POLICIES_MAX`] policies takes no more.
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

    /// The same profile with one more variant.
    pub fn with_variant(mut self, variant: Variant) -> Self {
        self.variants.push(variant);
        self
    }

    /// What it is called, as `dict-2.12.1`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is, in a few words.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The protocol it is for, where its settings and parts need an adapter, as `dict`.
    pub fn api(&self) -> Option<&str> {
        self.api.as_deref()
    }

    /// What comes before the paths of its rules.
    pub fn base_paths(&self) -> &[Box<str>] {
        &self.base_paths
    }

    /// A raw path without its base path; nothing for a path that is under none of them.
    pub fn without_base<'p>(&self, path: &'p str) -> Option<&'p str> {
        if self.base_paths.is_empty() {
            return Some(path);
        }
        self.base_paths.iter().find_map(|base| {
            let rest = path.strip_prefix(&**base)?;
            rest.starts_with('/').then_some(rest)
        })
    }

    /// Its named patterns.
    pub fn patterns(&self) -> &[NamedPattern] {
        &self.patterns
    }

    /// The pattern of a name.
    pub fn pattern(&self, name: &str) -> Option<&Pattern> {
        let found = self.patterns.iter().find(|(other, _)| **other == *name);
        found.map(|(_, pattern)| pattern)
    }

    /// Its named scopes.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// Its variants.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// The variant of a name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name() == name)
    }

    /// Its settings, by name.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The setting of a name.
    pub fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.name() == name)
    }

    /// Its policies, in the order of the file.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The policy of a name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name() == name)
    }
}
