//! The sections `[[policy]]`, `[defaults]` and `[limits]`.

use balde::telemetry::Denials;
use balde::{OnFailure, Share};
use balde_config::{Section, Span, Value};
use balde_core::Limit;

use super::amount::{self, LimitDefaults};
use super::matching;
use super::reader::Reader;
use crate::policy::{ByVariant, Credit, KeyPart, MatchRule, Mode, Policy, PriceList, Scope};
use crate::profile::{POLICIES_MAX, Profile};

/// The most events that credit a policy.
const CREDITS_MAX: usize = 16;

/// The highest admission.
const ADMISSION_MAX: u64 = 1_000_000;

pub(super) fn read_all(
    root: &mut Section<'_>,
    profile: &Profile,
    reader: &mut Reader<'_>,
) -> Vec<Policy> {
    let limits = root.table("limits", reader.diagnostics);
    let named_limits = limits.map(|limits| limits.entries()).unwrap_or_default();
    let defaults = match root.table("defaults", reader.diagnostics) {
        Some(mut section) => {
            let keys = SharedKeys::read(&mut section, profile, reader);
            section.finish(reader.diagnostics);
            keys
        }
        None => SharedKeys::default(),
    };
    for value in &named_limits {
        // Checked even where no policy refers to it.
        let limit_defaults = defaults.limit_defaults();
        amount::by_variant(value, &profile.variants, reader, |value, reader| {
            amount::limit(value, limit_defaults, reader)
        });
    }
    if !root.contains("policy") {
        let message = "a profile needs at least one [[policy]]";
        reader.diagnostics.at(None, message);
    }
    let sections = root.tables("policy", reader.diagnostics);
    if sections.len() > POLICIES_MAX {
        let message = format!("a profile has at most {POLICIES_MAX} policies");
        reader
            .diagnostics
            .at(sections[POLICIES_MAX].span(), message);
        return Vec::new();
    }
    let mut policies: Vec<Policy> = Vec::new();
    for mut section in sections {
        let name = section.get("name").and_then(|name| name.as_str());
        let read = read_one(section, profile, &defaults, &named_limits, reader);
        if read.is_none() {
            reader.diagnostics.failed("policy", name);
        }
        if let Some((policy, span)) = read {
            if policies.iter().any(|other| other.name() == policy.name()) {
                let message = format!("there is a policy `{}` already", policy.name());
                reader.diagnostics.at(span, message);
            } else {
                policies.push(policy);
            }
        }
    }
    policies
}

/// The keys that a policy and `[defaults]` have in common.
#[derive(Clone, Default)]
struct SharedKeys {
    scope: Option<Scope>,
    is_stepwise: Option<bool>,
    starts_empty: Option<bool>,
    admission: Option<u64>,
    prices: Option<PriceList>,
    on_failure: Option<OnFailure>,
    is_shadow: Option<bool>,
    lease_share: Option<Share>,
    denials: Option<Denials>,
}

impl SharedKeys {
    fn read(section: &mut Section<'_>, profile: &Profile, reader: &mut Reader<'_>) -> Self {
        Self {
            scope: section
                .get("scope")
                .and_then(|value| scope(&value, profile, reader)),
            is_stepwise: section
                .get("refill")
                .and_then(|value| is_second(&value, ["continuous", "stepwise"], reader)),
            starts_empty: section
                .get("start")
                .and_then(|value| is_second(&value, ["full", "empty"], reader)),
            admission: section
                .get("admission")
                .and_then(|value| reader.integer(&value, ADMISSION_MAX)),
            prices: section
                .get("costs")
                .and_then(|value| amount::prices(&value, reader)),
            on_failure: section
                .get("on_failure")
                .and_then(|value| on_failure(&value, reader)),
            is_shadow: section
                .get("mode")
                .and_then(|value| is_second(&value, ["enforce", "shadow"], reader)),
            lease_share: section
                .get("leases")
                .and_then(|value| lease_share(&value, reader)),
            denials: section
                .get("denials")
                .and_then(|value| is_second(&value, ["summary", "every"], reader))
                .map(|is_every| {
                    if is_every {
                        Denials::Every
                    } else {
                        Denials::Summary
                    }
                }),
        }
    }

    fn or(self, other: &Self) -> Self {
        let other = other.clone();
        Self {
            scope: self.scope.or(other.scope),
            is_stepwise: self.is_stepwise.or(other.is_stepwise),
            starts_empty: self.starts_empty.or(other.starts_empty),
            admission: self.admission.or(other.admission),
            prices: self.prices.or(other.prices),
            on_failure: self.on_failure.or(other.on_failure),
            is_shadow: self.is_shadow.or(other.is_shadow),
            lease_share: self.lease_share.or(other.lease_share),
            denials: self.denials.or(other.denials),
        }
    }

    fn limit_defaults(&self) -> LimitDefaults {
        LimitDefaults {
            is_stepwise: self.is_stepwise.unwrap_or_default(),
            starts_empty: self.starts_empty.unwrap_or_default(),
        }
    }
}

fn read_one(
    mut section: Section<'_>,
    profile: &Profile,
    defaults: &SharedKeys,
    named_limits: &[Value<'_>],
    reader: &mut Reader<'_>,
) -> Option<(Policy, Span)> {
    let name = section.require("name", reader.diagnostics);
    let keys = SharedKeys::read(&mut section, profile, reader).or(defaults);
    let rules = section.get("match");
    let rules = rules.map(|value| matching::rules(&value, &profile.patterns, reader));
    let limits = read_limits(
        &mut section,
        profile,
        named_limits,
        keys.limit_defaults(),
        reader,
    );
    let credits = section.get("credits");
    let credits = credits.map(|value| read_credits(&value, profile, reader));
    section.finish(reader.diagnostics);

    let name = name?;
    let span = name.span();
    let name = reader.name(&name)?;
    let limits = limits?;
    let (_, first) = limits.iter().next()?;
    let mut policy = Policy::new(name, *first).with_limits(limits);
    for rule in rules.into_iter().flatten() {
        policy = policy.with_rule(rule);
    }
    for credit in credits.into_iter().flatten() {
        policy = policy.with_credit(credit);
    }
    if let Some(scope) = keys.scope {
        check_paths(&scope, policy.rules(), span, reader);
        policy = policy.with_scope(scope);
    }
    if let Some(prices) = keys.prices {
        policy = policy.with_prices(prices);
    }
    if let Some(admission) = keys.admission {
        policy = policy.with_admission(admission);
    }
    let smallest = policy
        .limits()
        .iter()
        .map(|(_, limit)| limit.capacity())
        .min();
    if smallest.is_some_and(|smallest| smallest < policy.admission()) {
        let message = "`admission` is above the capacity, so the policy would refuse every request";
        reader.diagnostics.at(span, message);
    }
    if keys.is_shadow == Some(true) {
        policy = policy.with_mode(Mode::Shadow);
    }
    policy.lease_share = keys.lease_share;
    policy.denials = keys.denials;
    let policy = policy.with_on_failure(keys.on_failure.unwrap_or(OnFailure::Deny));
    Some((policy, span))
}

/// `limit = "text"`, `limits = "name"` or `limits = { by = … }`.
fn read_limits(
    section: &mut Section<'_>,
    profile: &Profile,
    named_limits: &[Value<'_>],
    defaults: LimitDefaults,
    reader: &mut Reader<'_>,
) -> Option<ByVariant<Limit>> {
    let one = section.get("limit");
    let many = section.get("limits");
    match (one, many) {
        (Some(one), None) => amount::limit(&one, defaults, reader).map(ByVariant::One),
        (None, Some(many)) => {
            let table = match many.as_str() {
                Some(name) => named_limits.iter().find(|value| value.key() == name),
                None => Some(&many),
            };
            let Some(table) = table else {
                let name = many.as_str().unwrap_or_default().escape_debug();
                let message = format!("there is no [limits.{name}]");
                reader.diagnostics.at(many.span(), message);
                return None;
            };
            amount::by_variant(table, &profile.variants, reader, |value, reader| {
                amount::limit(value, defaults, reader)
            })
        }
        (Some(_), Some(many)) => {
            let message = "write either `limit` or `limits`, not both";
            reader.diagnostics.at(many.span(), message);
            None
        }
        (None, None) => {
            let message =
                "missing key `limit`, such as \"10/s burst 20\", or `limits` by a variant";
            reader.diagnostics.at(section.span(), message);
            None
        }
    }
}

fn read_credits(value: &Value<'_>, profile: &Profile, reader: &mut Reader<'_>) -> Vec<Credit> {
    let Some(section) = value.table(reader.diagnostics) else {
        return Vec::new();
    };
    let mut credits = Vec::new();
    for entry in section.entries() {
        if credits.len() == CREDITS_MAX {
            let message = format!("a policy has at most {CREDITS_MAX} credits");
            reader.diagnostics.at(entry.key_span(), message);
            break;
        }
        let tokens = amount::tokens(&entry, &profile.variants, reader);
        credits.extend(tokens.map(|tokens| Credit::new(entry.key(), tokens)));
    }
    credits
}

fn scope(value: &Value<'_>, profile: &Profile, reader: &mut Reader<'_>) -> Option<Scope> {
    let name = value.string(reader.diagnostics)?.value;
    let defined = profile.scopes.iter().find(|scope| scope.name() == name);
    let scope = defined.cloned().or_else(|| match name {
        "everyone" => Some(Scope::everyone()),
        "participant" => Some(Scope::new(name, [KeyPart::Participant])),
        "user" => Some(Scope::new(name, [KeyPart::User])),
        _ => None,
    });
    if scope.is_none() {
        let message = format!(
            "there is no scope `{}`; define it in [scopes], or use everyone, participant or user",
            name.escape_debug()
        );
        let span = value.span();
        reader.diagnostics.unknown("scope", name, span, message);
    }
    scope
}

/// Checks that a segment of the path which a scope uses is in the path of every rule.
fn check_paths(scope: &Scope, rules: &[MatchRule], span: Span, reader: &mut Reader<'_>) {
    for part in scope.parts() {
        let KeyPart::Path(name) = part else {
            continue;
        };
        let has_segment = |rule: &MatchRule| {
            rule.path()
                .is_some_and(|path| path.names().any(|n| n == &**name))
        };
        if rules.is_empty() || !rules.iter().all(has_segment) {
            let scope = scope.name();
            let message = format!("scope `{scope}` needs {{{name}}} in the path of every rule");
            reader.diagnostics.at(span, message);
        }
    }
}

/// Whether a string, or the setting it refers to, is the second of two words.
fn is_second(
    value: &Value<'_>,
    [first, second]: [&str; 2],
    reader: &mut Reader<'_>,
) -> Option<bool> {
    let text = reader.string(value)?;
    if *text == *first || *text == *second {
        return Some(*text == *second);
    }
    let message = format!("`{}` must be \"{first}\" or \"{second}\"", value.key());
    reader.diagnostics.at(value.span(), message);
    None
}

/// `10%`: how much of each bucket one process may lease.
fn lease_share(value: &Value<'_>, reader: &mut Reader<'_>) -> Option<Share> {
    let text = reader.string(value)?;
    let percent = text.strip_suffix('%').map(str::trim_end);
    let percent = percent.and_then(|percent| percent.parse().ok());
    let share = percent.filter(|percent| (1..=100).contains(percent));
    if share.is_none() {
        let message = "`leases` must be the share of a bucket that one process may take ahead of use: \
                       \"1%\" to \"100%\"";
        reader.diagnostics.at(value.span(), message);
    }
    share.map(Share::percent)
}

/// `deny`, `allow` or `local 25%`.
fn on_failure(value: &Value<'_>, reader: &mut Reader<'_>) -> Option<OnFailure> {
    let text = reader.string(value)?;
    let percent = text
        .strip_prefix("local ")
        .and_then(|share| share.strip_suffix('%'))
        .and_then(|percent| percent.parse().ok());
    match (&*text, percent) {
        ("deny", _) => Some(OnFailure::Deny),
        ("allow", _) => Some(OnFailure::Allow),
        (_, Some(percent @ 1..=100)) => Some(OnFailure::Local {
            share: Share::percent(percent),
        }),
        _ => {
            let message = "`on_failure` must be \"deny\", \"allow\", or \"local\" with a share: \
                           \"local 25%\"";
            reader.diagnostics.at(value.span(), message);
            None
        }
    }
}
