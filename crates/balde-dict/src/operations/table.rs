//! DICT's operations with the policies of a profile.

use balde_config::{ConfigError, Diagnostics};
use balde_policy::{BucketRef, Matcher, Policy, Profile};

use super::call::Call;
use super::patterns::Patterns;
use super::route::{self, PATH_BYTES_MAX, Route};
use super::validate;
use super::{Category, KeyType, PayerKind, RouteError};
use crate::settings::Settings;

/// The event that gives tokens back: the payment system received a payment order.
pub const PAYMENT_ORDER: &str = "payment-order";

/// The variant that is assigned to participants.
pub const CATEGORY: &str = "category";

/// DICT's operations with the policies of a profile.
#[derive(Clone, Debug)]
pub struct Table {
    matcher: Matcher,
    settings: Settings,
    pub(super) patterns: Patterns,
}

impl Table {
    /// Combines a DICT profile with the operations. The error lists everything in the profile that
    /// DICT's operations do not support.
    pub fn new(profile: Profile) -> Result<Self, ConfigError> {
        let mut diagnostics = Diagnostics::new(profile.source());
        let settings = Settings::of(&profile)
            .map_err(|error| diagnostics.extend(error))
            .ok();
        let patterns = Patterns::of(&profile, &mut diagnostics);
        validate::check_policies(&profile, &mut diagnostics);
        if profile.api() != Some("dict") {
            let message = "not a DICT profile: it needs `api = \"dict\"`";
            diagnostics.at(None, message);
        }
        let (Some(settings), Some(patterns)) = (settings, patterns) else {
            return Err(diagnostics.into_error());
        };
        diagnostics.into_result(Self {
            matcher: Matcher::new(profile),
            settings,
            patterns,
        })
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        self.matcher.profile()
    }

    /// The profile's settings, for what no published source specifies.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The policy at this index of the profile.
    pub fn policy(&self, index: usize) -> &Policy {
        &self.profile().policies()[index]
    }

    /// The index of the policy with this name.
    pub fn policy_index(&self, name: &str) -> Option<usize> {
        let policies = self.profile().policies();
        policies.iter().position(|policy| policy.name() == name)
    }

    /// The buckets that a request takes tokens from, for a participant of this category, in the
    /// order of the policies. Policies whose key needs a part that the request lacks are left out.
    pub fn buckets(&self, call: &Call<'_>, category: Category) -> Vec<BucketRef<'_>> {
        let assigned =
            |variant: &str, _: &str| (variant == CATEGORY).then(|| category.as_str().into());
        let found = self.matcher.buckets(&call.request(), &assigned);
        found.into_iter().filter_map(Result::ok).collect()
    }

    /// The type of a decoded key, determined by its pattern.
    pub fn key_type(&self, key: &str) -> Option<KeyType> {
        let patterns = KeyType::ALL.into_iter().zip(&self.patterns.keys);
        let mut fitting = patterns.filter(|(_, pattern)| pattern.matches(key));
        fitting.next().map(|(key_type, _)| key_type)
    }

    /// Whether a payer is a person or a company, determined by the format of its number.
    pub fn payer_kind(&self, payer: &str) -> Option<PayerKind> {
        let [cpf, ..] = &self.patterns.keys;
        if cpf.matches(payer) {
            return Some(PayerKind::Pf);
        }
        let company = &self.patterns.company;
        company.matches(payer).then_some(PayerKind::Pj)
    }

    /// Whether a text has the format of an ISPB, a participant's number.
    pub fn is_ispb(&self, text: &str) -> bool {
        self.patterns.ispb.matches(text)
    }

    /// Whether a text has the format of an `EndToEndId`.
    pub fn is_end_to_end_id(&self, text: &str) -> bool {
        self.patterns.end_to_end_id.matches(text)
    }

    /// Finds the operation of a method and a raw path, base path included.
    pub fn route<'r>(&self, method: &str, path: &'r str) -> Result<Route<'r>, RouteError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(RouteError::PathTooLong);
        }
        let below = self.profile().without_base(path);
        let below = below.ok_or(RouteError::OutsideBase)?;
        let route = route::route(method, below, self.settings.trailing_slash_optional)?;
        let is_in_version = if self.settings.is_version_1 {
            route.operation().is_in_version_1()
        } else {
            route.operation().is_in_version_2()
        };
        if !is_in_version {
            return Err(RouteError::UnknownPath);
        }
        Ok(route)
    }
}
