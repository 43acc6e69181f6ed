//! Which policies apply to a request: the rules of a profile, indexed by path once.

use std::convert::Infallible;

use balde::Limit;
use smallvec::SmallVec;

use crate::policy::{
    Key, KeyError, MatchRule, MatchedRequest, PartSource, Policy, Request, Segment, VariantSource,
};
use crate::profile::Profile;

/// A profile whose rules are indexed by path, so that a request is compared only with the rules
/// that its path fits.
///
/// Paths are compared in their [normal form](crate::PathRules::normalized). A request with the method
/// `HEAD` also matches rules for `GET`, unless it matches a rule that is for `HEAD` and not for `GET`.
///
/// A matcher needs no store and no clock; an [`Engine`](crate::Engine) has one.
///
/// ```
/// use balde_policy::{Matcher, Profile, Request};
///
/// let profile = Profile::parse(r#"
/// profile = "shop"
///
/// [[policy]]
/// name = "orders"
/// match = ["POST /orders"]
/// limit = "10/s burst 20"
/// "#)?;
/// let matcher = Matcher::new(profile);
/// for bucket in matcher.buckets(&Request::new("POST", "/orders", ""), &|_, _| None) {
///     assert_eq!(bucket?.policy().name(), "orders");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Matcher {
    profile: Profile,
    /// Rules without a path.
    anywhere: Vec<RuleRef>,
    /// A tree of path segments; the first node is the root.
    nodes: Vec<Node>,
}

/// A rule, by its policy's index and its index there. Ordered as the profile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RuleRef {
    policy: u16,
    rule: u16,
}

#[derive(Clone, Debug, Default)]
struct Node {
    literals: Vec<(Box<str>, usize)>,
    hole: Option<usize>,
    /// Rules whose path ends here.
    ends: Vec<RuleRef>,
    /// Rules whose path is anything from here on.
    opens: Vec<RuleRef>,
}

type Found = SmallVec<[RuleRef; 8]>;

impl Matcher {
    /// Indexes the rules of a profile.
    pub fn new(profile: Profile) -> Self {
        let mut matcher = Self {
            profile,
            anywhere: Vec::new(),
            nodes: vec![Node::default()],
        };
        for policy in 0..matcher.profile.policies().len() {
            let rules = matcher.profile.policies()[policy].rules().len();
            // A policy without rules applies to everything.
            for rule in 0..rules.max(1) {
                matcher.add(policy, rule);
            }
        }
        matcher
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The buckets that a request takes tokens from, one for each policy that applies to it, in the
    /// order of the policies. The request's path must not include the
    /// [base path](Profile::without_base).
    ///
    /// An item is an error if a policy applies to the request but has no bucket for it; the caller
    /// decides how to treat that. `assigned` returns the value of an assigned variant; it is called
    /// with the variant's name and the subject. A path that servers read in different ways is compared
    /// as it is; [`Engine::admit`](crate::Engine::admit) refuses it.
    pub fn buckets<'p>(
        &'p self,
        request: &Request<'_>,
        assigned: &dyn Fn(&str, &str) -> Option<Box<str>>,
    ) -> Vec<Result<BucketRef<'p>, NoBucketError>> {
        let found = request.with_normal_path(|request| self.buckets_of(request, assigned));
        found.unwrap_or_else(|_| self.buckets_of(request, assigned))
    }

    fn buckets_of<'p>(
        &'p self,
        request: &Request<'_>,
        assigned: &dyn Fn(&str, &str) -> Option<Box<str>>,
    ) -> Vec<Result<BucketRef<'p>, NoBucketError>> {
        let mut buckets = Vec::new();
        let Ok(()) = self.for_each_match(request, |index, policy, rule| {
            let source = MatchedRequest { request, rule };
            let lookup = |variant: &str, subject: &str| {
                let value = assigned(variant, subject)?;
                policy.value_index(&value)
            };
            let located = self.locate(index, &source, &lookup);
            buckets.push(located.map(|located| BucketRef {
                policy,
                value: located.value,
                key: located.key,
            }));
            Ok::<(), Infallible>(())
        });
        buckets
    }

    /// Calls `visit` with each policy that applies to a request, whose path is in its normal form, and
    /// the first of its rules that matches.
    #[inline]
    pub(super) fn for_each_match<'p, E>(
        &'p self,
        request: &Request<'_>,
        mut visit: impl FnMut(usize, &'p Policy, &'p MatchRule) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut found = Found::from_slice(&self.anywhere);
        if let Some(path) = request.path.strip_prefix('/') {
            self.walk(0, Some(path), &mut found);
        }
        found.sort_unstable();
        let is_head = request.method.eq_ignore_ascii_case("HEAD");
        let is_get_left_out = is_head
            && found.iter().any(|reference| {
                let rule = self.rule(*reference);
                rule.is_for_head_only() && rule.matches_details(request)
            });
        let mut last = None;
        for reference in found {
            if last == Some(reference.policy) {
                continue;
            }
            let rule = self.rule(reference);
            let is_method = if is_get_left_out {
                rule.methods().is_empty() || rule.names_method(request.method)
            } else {
                rule.matches_method(request.method)
            };
            if is_method && rule.matches_details(request) {
                last = Some(reference.policy);
                let index = usize::from(reference.policy);
                visit(index, &self.profile.policies()[index], rule)?;
            }
        }
        Ok(())
    }

    fn rule(&self, reference: RuleRef) -> &MatchRule {
        let policy = &self.profile.policies()[usize::from(reference.policy)];
        let rule = policy.rules().get(usize::from(reference.rule));
        rule.unwrap_or_else(|| MatchRule::any())
    }

    /// The bucket of a policy for a request or subject.
    #[inline]
    pub(super) fn locate(
        &self,
        index: usize,
        source: &impl PartSource,
        assigned: &dyn Fn(&str, &str) -> Option<usize>,
    ) -> Result<Located, NoBucketError> {
        let policy = &self.profile.policies()[index];
        let located = self.try_locate(policy, source, assigned);
        located.map_err(|error| NoBucketError::new(policy, error))
    }

    fn try_locate(
        &self,
        policy: &Policy,
        source: &impl PartSource,
        assigned: &dyn Fn(&str, &str) -> Option<usize>,
    ) -> Result<Located, KeyError> {
        let mut located = Located {
            value: 0,
            subject: None,
            key: Key::new(),
        };
        if let Some(name) = policy.limits().variant() {
            let variant = self.profile.variant(name);
            if let Some(variant) = variant
                && source.is_ambiguous(variant.part())
            {
                let part = variant.part().clone();
                return Err(KeyError::Ambiguous { part });
            }
            let index = match variant.map(|variant| (variant, variant.source())) {
                Some((_, VariantSource::Assigned { part, .. })) => {
                    let missing = || KeyError::Missing { part: part.clone() };
                    let subject = source.part(part).ok_or_else(missing)?;
                    let index = assigned(name, &subject);
                    located.subject = Some(SmallVec::from_slice(subject.as_bytes()));
                    index
                }
                Some((variant, _)) => variant
                    .value_of(source)
                    .and_then(|value| policy.value_index(value)),
                None => None,
            };
            let none = || KeyError::NoVariant {
                variant: name.into(),
            };
            located.value = index.ok_or_else(none)?;
        }
        policy.scope().write_key(source, &mut located.key)?;
        Ok(located)
    }

    fn walk(&self, node: usize, rest: Option<&str>, found: &mut Found) {
        let node = &self.nodes[node];
        found.extend_from_slice(&node.opens);
        let Some(rest) = rest else {
            found.extend_from_slice(&node.ends);
            // A rule may end with a slash that the path does not have.
            for (_, next) in node.literals.iter().filter(|(text, _)| text.is_empty()) {
                found.extend_from_slice(&self.nodes[*next].ends);
            }
            return;
        };
        // A path may end with a slash that the rule does not have.
        if rest.is_empty() {
            found.extend_from_slice(&node.ends);
        }
        let (segment, rest) = match rest.split_once('/') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (rest, None),
        };
        for (literal, next) in &node.literals {
            if **literal == *segment {
                self.walk(*next, rest, found);
            }
        }
        if let Some(hole) = node.hole
            && !segment.is_empty()
        {
            self.walk(hole, rest, found);
        }
    }

    fn add(&mut self, policy: usize, rule: usize) {
        let reference = RuleRef {
            policy: u16::try_from(policy).expect("a profile has at most 256 policies"),
            rule: u16::try_from(rule).unwrap_or(u16::MAX),
        };
        let rules = self.profile.policies()[policy].rules();
        let Some(path) = rules.get(rule).and_then(MatchRule::path) else {
            self.anywhere.push(reference);
            return;
        };
        let mut at = 0;
        for segment in path.segments() {
            let known = match segment {
                Segment::Hole(_) => self.nodes[at].hole,
                Segment::Literal(text) => {
                    let mut literals = self.nodes[at].literals.iter();
                    literals
                        .find(|(other, _)| other == text)
                        .map(|(_, next)| *next)
                }
            };
            at = known.unwrap_or_else(|| {
                let next = self.nodes.len();
                match segment {
                    Segment::Hole(_) => self.nodes[at].hole = Some(next),
                    Segment::Literal(text) => self.nodes[at].literals.push((text.clone(), next)),
                }
                self.nodes.push(Node::default());
                next
            });
        }
        if path.is_open() {
            self.nodes[at].opens.push(reference);
        } else {
            self.nodes[at].ends.push(reference);
        }
    }
}

/// The place of a bucket within a policy.
#[derive(Clone, Debug)]
pub(super) struct Located {
    /// The index of the variant's value among the policy's limits; zero without variants.
    pub(super) value: usize,
    /// The subject that an assigned variant was looked up for.
    pub(super) subject: Option<SmallVec<[u8; 16]>>,
    pub(super) key: Key,
}

/// One bucket that a request takes tokens from.
#[derive(Clone, Debug)]
pub struct BucketRef<'p> {
    policy: &'p Policy,
    value: usize,
    key: Key,
}

impl<'p> BucketRef<'p> {
    /// The policy that applies to the request.
    pub fn policy(&self) -> &'p Policy {
        self.policy
    }

    /// The value of the variant that the limit depends on; `None` if the policy has a single limit.
    pub fn value(&self) -> Option<&'p str> {
        self.policy.limits().iter().nth(self.value)?.0
    }

    /// The limit of the bucket.
    pub fn limit(&self) -> &'p Limit {
        let limit = self.policy.limits().iter().nth(self.value);
        limit
            .map(|(_, limit)| limit)
            .expect("the index was found among the policy's limits")
    }

    /// The bucket's key within the policy.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

/// Why a policy that applies to a request has no bucket for it: a part of the key or the value of a
/// variant is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy}: {source}")]
pub struct NoBucketError {
    policy: Box<str>,
    source: KeyError,
}

impl NoBucketError {
    pub(super) fn new(policy: &Policy, source: KeyError) -> Self {
        Self {
            policy: policy.name().into(),
            source,
        }
    }

    /// The name of the policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// What is missing.
    pub fn key_error(&self) -> &KeyError {
        &self.source
    }
}
