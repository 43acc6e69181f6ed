//! The policies themselves, with the defaults they share.

use std::ops::Range;

use super::amount::{self, Manner};
use super::matching;
use super::reader::{Fields, Reader, Value, entries};
use crate::policy::{ByVariant, Credit, KeyPart, MatchRule, Mode, Policy, Scope};
use crate::profile::{POLICIES_MAX, Profile};
use balde::{OnFailure, Share};
use balde_core::Limit;

/// The most events that a policy gives tokens back for.
const CREDITS_MAX: usize = 16;

/// The highest admission.
const ADMISSION_MAX: u64 = 1_000_000;

pub(super) fn read_all(
    reader: &mut Reader<'_>,
    profile: &Profile,
    limits: Option<&Value<'_>>,
    defaults: Option<&Value<'_>>,
    policies: Option<&Value<'_>>,
) -> Vec<Policy> {
    let limits = limits.and_then(|value| reader.table(value));
    let defaults = defaults.and_then(|value| Some((reader.table(value)?, value.span())));
    let Some(value) = policies else {
        reader.missing(0..0, "a profile needs at least one [[policy]]");
        return Vec::new();
    };
    let items = reader.array(value);
    if items.len() > POLICIES_MAX {
        reader.problem(
            value.span(),
            format!("a profile has at most {POLICIES_MAX} policies"),
        );
        return Vec::new();
    }
    // Read once by itself, so that what is wrong with it is told even where no policy uses it.
    let shared = defaults.map(|(table, span)| {
        let mut fields = Fields::new(table, "[defaults]", span);
        let common = Common::read(reader, profile, &mut fields);
        fields.finish(reader);
        common
    });
    let shared = shared.unwrap_or_default();
    let named = named_limits(limits);
    for (name, value) in &named {
        // Told here and not again for each policy that refers to it.
        let manner = shared.manner();
        let read = amount::by_variant(reader, value, &profile.variants, |reader, value| {
            amount::limit(reader, value, manner)
        });
        if read.is_none() && name.is_empty() {
            reader.problem(value.span(), "a name is not empty");
        }
    }
    let mut policies: Vec<Policy> = Vec::new();
    for item in items {
        let read = read_one(reader, profile, &shared, &named, item);
        if let Some((policy, span)) = read {
            if policies.iter().any(|other| other.name() == policy.name()) {
                let reason = format!("there is a policy `{}` already", policy.name());
                reader.problem(span, reason);
            } else {
                policies.push(policy);
            }
        }
    }
    policies
}

type Named<'v> = Vec<(&'v str, &'v Value<'v>)>;

fn named_limits<'v>(limits: Option<&'v toml::de::DeTable<'v>>) -> Named<'v> {
    let entries = limits.map(entries).unwrap_or_default();
    entries
        .into_iter()
        .map(|(name, _, value)| (name, value))
        .collect()
}

/// What a policy may say, and [defaults] for all.
#[derive(Clone, Default)]
struct Common {
    scope: Option<Scope>,
    is_stepwise: Option<bool>,
    starts_empty: Option<bool>,
    admission: Option<u64>,
    prices: Option<crate::policy::PriceList>,
    on_failure: Option<OnFailure>,
    is_shadow: Option<bool>,
}

impl Common {
    fn read(reader: &mut Reader<'_>, profile: &Profile, fields: &mut Fields<'_>) -> Self {
        Self {
            scope: fields
                .get("scope")
                .and_then(|value| scope(reader, profile, value)),
            is_stepwise: fields
                .get("refill")
                .and_then(|value| choice(reader, value, ["continuous", "stepwise"])),
            starts_empty: fields
                .get("start")
                .and_then(|value| choice(reader, value, ["full", "empty"])),
            admission: fields
                .get("admission")
                .and_then(|value| reader.number(value, ADMISSION_MAX)),
            prices: fields
                .get("costs")
                .and_then(|value| amount::prices(reader, value)),
            on_failure: fields
                .get("on-failure")
                .and_then(|value| failure(reader, value)),
            is_shadow: fields
                .get("mode")
                .and_then(|value| choice(reader, value, ["enforce", "shadow"])),
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
        }
    }

    fn manner(&self) -> Manner {
        Manner {
            is_stepwise: self.is_stepwise.unwrap_or_default(),
            starts_empty: self.starts_empty.unwrap_or_default(),
        }
    }
}

fn read_one(
    reader: &mut Reader<'_>,
    profile: &Profile,
    shared: &Common,
    named: &Named<'_>,
    value: &Value<'_>,
) -> Option<(Policy, Range<usize>)> {
    let table = reader.table(value)?;
    let mut fields = Fields::new(table, "a policy", value.span());
    let name = fields.required(reader, "name");
    let common = Common::read(reader, profile, &mut fields).or(shared);
    let matched = fields.get("match");
    let rules = matched.map(|value| matching::rules(reader, value, &profile.patterns));
    let rules = rules.unwrap_or_default();
    let limits = read_limits(reader, profile, named, &mut fields, common.manner());
    let credited = fields.get("credits");
    let credits = credited.map(|value| read_credits(reader, profile, value));
    fields.finish(reader);

    let (name, span) = (name.and_then(|value| reader.word(value))?, name?.span());
    let limits = limits?;
    let (_, first) = limits.iter().next()?;
    let mut policy = Policy::new(name, *first).with_limits(limits);
    for rule in rules {
        policy = policy.with_rule(rule);
    }
    for credit in credits.into_iter().flatten() {
        policy = policy.with_credit(credit);
    }
    if let Some(scope) = common.scope {
        check_paths(reader, &scope, policy.rules(), &span);
        policy = policy.with_scope(scope);
    }
    if let Some(prices) = common.prices {
        policy = policy.with_prices(prices);
    }
    if let Some(admission) = common.admission {
        policy = policy.with_admission(admission);
    }
    let smallest = policy
        .limits()
        .iter()
        .map(|(_, limit)| limit.capacity())
        .min();
    if smallest.is_some_and(|smallest| smallest < policy.admission()) {
        let reason = "its admission is above its capacity: it would refuse everything for ever";
        reader.problem(span.clone(), reason);
    }
    if common.is_shadow == Some(true) {
        policy = policy.with_mode(Mode::Shadow);
    }
    let policy = policy.with_on_failure(common.on_failure.unwrap_or(OnFailure::Deny));
    Some((policy, span))
}

/// `limit = "text"`, `limits = "name"` or `limits = { by = … }`.
fn read_limits(
    reader: &mut Reader<'_>,
    profile: &Profile,
    named: &Named<'_>,
    fields: &mut Fields<'_>,
    manner: Manner,
) -> Option<ByVariant<Limit>> {
    let one = fields.get("limit");
    let many = fields.get("limits");
    match (one, many) {
        (Some(one), None) => amount::limit(reader, one, manner).map(ByVariant::One),
        (None, Some(many)) => {
            let table = match many.get_ref().as_str() {
                Some(name) => named
                    .iter()
                    .find(|(other, _)| *other == name)
                    .map(|(_, v)| *v),
                None => Some(many),
            };
            let Some(table) = table else {
                reader.missing(many.span(), "there are no such limits in [limits]");
                return None;
            };
            amount::by_variant(reader, table, &profile.variants, |reader, value| {
                amount::limit(reader, value, manner)
            })
        }
        (Some(_), Some(many)) => {
            reader.problem(many.span(), "a policy has `limit` or `limits`, not both");
            None
        }
        (None, None) => {
            let reason = "a policy needs `limit`, as \"10/s burst 20\", or `limits` by a variant";
            reader.missing(fields.span(), reason);
            None
        }
    }
}

fn read_credits(reader: &mut Reader<'_>, profile: &Profile, value: &Value<'_>) -> Vec<Credit> {
    let Some(table) = reader.table(value) else {
        return Vec::new();
    };
    let mut credits = Vec::new();
    for (event, span, value) in entries(table) {
        if credits.len() == CREDITS_MAX {
            reader.problem(span, format!("a policy has at most {CREDITS_MAX} credits"));
            break;
        }
        let tokens = amount::tokens(reader, value, &profile.variants);
        credits.extend(tokens.map(|tokens| Credit::new(event, tokens)));
    }
    credits
}

fn scope(reader: &mut Reader<'_>, profile: &Profile, value: &Value<'_>) -> Option<Scope> {
    let name = reader.text(value)?;
    let own = profile.scopes.iter().find(|scope| scope.name() == name);
    let scope = own.cloned().or_else(|| match name {
        "everyone" => Some(Scope::everyone()),
        "participant" => Some(Scope::new(name, [KeyPart::Participant])),
        "user" => Some(Scope::new(name, [KeyPart::User])),
        _ => None,
    });
    if scope.is_none() {
        let name = name.escape_debug();
        let reason = format!(
            "there is no scope `{name}`; [scopes] names them, besides everyone, participant and user"
        );
        reader.missing(value.span(), reason);
    }
    scope
}

/// A scope that takes a segment of the path needs rules whose path has it.
fn check_paths(reader: &mut Reader<'_>, scope: &Scope, rules: &[MatchRule], span: &Range<usize>) {
    for part in scope.parts() {
        let KeyPart::Path(name) = part else {
            continue;
        };
        let has = |rule: &MatchRule| {
            rule.path()
                .is_some_and(|path| path.names().any(|n| n == &**name))
        };
        if rules.is_empty() || !rules.iter().all(has) {
            let scope = scope.name();
            let reason = format!("scope `{scope}` needs {{{name}}} in the path of every rule");
            reader.problem(span.clone(), reason);
        }
    }
}

/// Whether a text, or the setting it refers to, is the second of two.
fn choice(reader: &mut Reader<'_>, value: &Value<'_>, [first, second]: [&str; 2]) -> Option<bool> {
    let text = reader.text_or_setting(value)?;
    if *text == *first || *text == *second {
        return Some(*text == *second);
    }
    reader.problem(value.span(), format!("expected {first} or {second}"));
    None
}

/// `deny`, `allow` or `local 25%`.
fn failure(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<OnFailure> {
    let text = reader.text_or_setting(value)?;
    let local = text
        .strip_prefix("local ")
        .and_then(|t| t.strip_suffix('%'));
    let percent = local.and_then(|percent| percent.parse().ok());
    match (&*text, percent) {
        ("deny", _) => Some(OnFailure::Deny),
        ("allow", _) => Some(OnFailure::Allow),
        (_, Some(percent @ 1..=100)) => Some(OnFailure::Local {
            share: Share::percent(percent),
        }),
        _ => {
            reader.problem(
                value.span(),
                "expected deny, allow, or local with a share: `local 25%`",
            );
            None
        }
    }
}
