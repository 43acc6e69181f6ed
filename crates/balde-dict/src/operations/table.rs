//! DICT's operations with the policies of a profile.

use balde_policy::{BucketRef, Matcher, Pattern, Policy, Problem, Profile, ProfileError};

use super::call::Call;
use super::route::{self, PATH_BYTES_MAX, Route};
use super::validate;
use super::{Category, KeyType, PayerKind, RouteError};
use crate::settings::Settings;

/// The event that gives tokens back: the payment system received a payment order.
pub const PAYMENT_ORDER: &str = "payment-order";

/// The variant that is assigned to participants.
pub(crate) const CATEGORY: &str = "category";

/// DICT's operations with the policies of a profile.
#[derive(Clone, Debug)]
pub struct Table {
    matcher: Matcher,
    settings: Settings,
    pub(super) patterns: Patterns,
}

#[derive(Clone, Debug)]
pub(super) struct Patterns {
    pub(super) keys: [Pattern; 5],
    pub(super) ispb: Pattern,
    pub(super) end_to_end_id: Pattern,
}

impl Table {
    /// Puts a DICT profile together with the operations, or returns everything that does not fit.
    pub fn new(profile: Profile) -> Result<Self, ProfileError> {
        let mut problems = Vec::new();
        let settings = match Settings::of(&profile) {
            Ok(settings) => Some(settings),
            Err(error) => {
                problems.extend_from_slice(error.problems());
                None
            }
        };
        let patterns = Patterns::of(&profile, &mut problems);
        validate::check_policies(&profile, &mut problems);
        if profile.api() != Some("dict") {
            problems.push(Problem::new(
                None,
                "not a DICT profile: it needs `api = \"dict\"`",
            ));
        }
        match (ProfileError::of(problems), settings, patterns) {
            (None, Some(settings), Some(patterns)) => Ok(Self {
                matcher: Matcher::new(profile),
                settings,
                patterns,
            }),
            (Some(error), ..) => Err(error),
            (None, ..) => unreachable!("whatever is missing was added to the problems"),
        }
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        self.matcher.profile()
    }

    /// The profile's answers to open questions.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A policy by its index in the profile.
    pub fn policy(&self, index: usize) -> &Policy {
        &self.profile().policies()[index]
    }

    /// The index of a policy by its name.
    pub fn policy_index(&self, name: &str) -> Option<usize> {
        let policies = self.profile().policies();
        policies.iter().position(|policy| policy.name() == name)
    }

    /// The buckets that count a request, for a participant of this category, in the order of the
    /// policies. Policies that lack a part of the request are left out.
    pub fn buckets(&self, call: &Call<'_>, category: Category) -> Vec<BucketRef<'_>> {
        let assigned =
            |variant: &str, _: &str| (variant == CATEGORY).then(|| category.as_str().into());
        let found = self.matcher.buckets(&call.request(), &assigned);
        found.into_iter().filter_map(Result::ok).collect()
    }

    /// The type of a decoded key, by its pattern.
    pub fn key_type(&self, key: &str) -> Option<KeyType> {
        let patterns = KeyType::ALL.into_iter().zip(&self.patterns.keys);
        let mut fitting = patterns.filter(|(_, pattern)| pattern.matches(key));
        fitting.next().map(|(key_type, _)| key_type)
    }

    /// Whether a payer is a person or a company, by its form.
    pub fn payer_kind(&self, payer: &str) -> Option<PayerKind> {
        let [cpf, cnpj, ..] = &self.patterns.keys;
        if cpf.matches(payer) {
            return Some(PayerKind::Pf);
        }
        cnpj.matches(payer).then_some(PayerKind::Pj)
    }

    /// Whether a text has the form of a participant's number.
    pub fn is_ispb(&self, text: &str) -> bool {
        self.patterns.ispb.matches(text)
    }

    /// Whether a text has the form of an `EndToEndId`.
    pub fn is_end_to_end_id(&self, text: &str) -> bool {
        self.patterns.end_to_end_id.matches(text)
    }

    /// The operation of a method and a raw path, base path included.
    pub fn route<'r>(&self, method: &str, path: &'r str) -> Result<Route<'r>, RouteError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(RouteError::PathTooLong);
        }
        let below = self.profile().without_base(path);
        let below = below.ok_or(RouteError::OutsideBase)?;
        route::route(method, below, self.settings.trailing_slash_optional)
    }
}
