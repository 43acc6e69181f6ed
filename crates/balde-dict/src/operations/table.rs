//! Operations and policies together.

use balde_config::{ConfigError, Diagnostics};
use balde_core::Limit;
use balde_policy::{ByVariant, MatchRule, Pattern, Policy, Profile};

use super::call::Draw;
use super::compile;
use super::route::{self, PATH_BYTES_MAX, Route};
use super::{Category, KeyType, PayerKind, RouteError};
use crate::settings::Settings;

/// The event that gives tokens back.
const PAYMENT_ORDER: &str = "payment-order";

/// DICT's operations with the policies of a profile.
#[derive(Clone, Debug)]
pub struct Table {
    profile: Profile,
    settings: Settings,
    pub(super) patterns: Patterns,
    /// By operation: the rules that its method and path fit.
    pub(super) candidates: Vec<Vec<Candidate>>,
}

/// A rule of a policy, for requests of one operation.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) policy: usize,
    pub(super) details: Details,
}

/// What has to hold besides method and path.
#[derive(Clone, Debug)]
pub(super) enum Details {
    Nothing,
    /// The key has one of these types.
    KeyTypes(u8),
    MatchRule(Box<MatchRule>),
}

#[derive(Clone, Debug)]
pub(super) struct Patterns {
    pub(super) keys: [Pattern; 5],
    pub(super) ispb: Pattern,
    pub(super) end_to_end_id: Pattern,
}

impl Table {
    /// Combines a DICT profile with the operations. The error has everything that does not fit.
    pub fn new(profile: Profile) -> Result<Self, ConfigError> {
        let mut diagnostics = Diagnostics::new(profile.source());
        let settings = Settings::of(&profile)
            .map_err(|error| diagnostics.extend(error))
            .ok();
        let patterns = Patterns::of(&profile, &mut diagnostics);
        let candidates = compile::candidates(&profile, &mut diagnostics);
        if profile.api() != Some("dict") {
            let message = "not a DICT profile: it needs `api = \"dict\"`";
            diagnostics.at(None, message);
        }
        let (Some(settings), Some(patterns)) = (settings, patterns) else {
            return Err(diagnostics.into_error());
        };
        diagnostics.into_result(Self {
            profile,
            settings,
            patterns,
            candidates,
        })
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The profile's answers to open questions.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A policy by its index in the profile.
    pub fn policy(&self, index: usize) -> &Policy {
        &self.profile.policies()[index]
    }

    /// The index of a policy by its name.
    pub fn policy_index(&self, name: &str) -> Option<usize> {
        let policies = self.profile.policies();
        policies.iter().position(|policy| policy.name() == name)
    }

    /// The limit of a bucket, for a participant of this category. Nothing when the profile does not
    /// have the category.
    pub fn limit(&self, draw: &Draw, category: Category) -> Option<&Limit> {
        self.limit_of(draw.policy(), category, draw.payer_kind())
    }

    /// The limit of a policy for a participant of this category and, where it counts payers, one of
    /// this kind.
    pub fn limit_of(
        &self,
        policy: usize,
        category: Category,
        payer: Option<PayerKind>,
    ) -> Option<&Limit> {
        let limits = self.policy(policy).limits();
        limits.get(value_of(limits, &category, payer))
    }

    /// The tokens that a payment order gives back to a bucket.
    pub fn credit(&self, draw: &Draw, category: Category) -> u64 {
        self.credit_of(draw.policy(), category, draw.payer_kind())
    }

    /// The tokens that a payment order gives back under a policy.
    pub fn credit_of(&self, policy: usize, category: Category, payer: Option<PayerKind>) -> u64 {
        let mut credits = self.policy(policy).credits().iter();
        let credit = credits.find(|credit| credit.event() == PAYMENT_ORDER);
        let tokens = credit.and_then(|credit| {
            let tokens = credit.tokens();
            tokens.get(value_of(tokens, &category, payer))
        });
        tokens.copied().unwrap_or(0)
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
        let below = self.profile.without_base(path);
        let below = below.ok_or(RouteError::OutsideBase)?;
        route::route(method, below, self.settings.trailing_slash_optional)
    }
}

fn value_of<'c, T>(
    amounts: &ByVariant<T>,
    category: &'c Category,
    payer: Option<PayerKind>,
) -> Option<&'c str> {
    match amounts.variant()? {
        "category" => Some(category.as_str()),
        _ => payer.map(PayerKind::as_str),
    }
}
