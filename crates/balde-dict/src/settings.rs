//! The settings of a DICT profile.

use std::time::Duration;

use balde_config::{ConfigError, Diagnostics};
use balde_policy::{FlagRule, InFlight, Profile, Setting, SettingValue};

/// The longest deadline for credits: thirty days.
const CREDIT_DEADLINE_MAX: u64 = 30 * 24 * 3_600;

/// The most statuses that orders give tokens back for.
const CREDIT_STATUSES_MAX: usize = 16;

/// The settings of a profile for what no published source specifies about DICT. The profile's
/// policies already follow the settings for refill, start, prices and role filters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate setting with a name in the file"
)]
pub struct Settings {
    /// Whether all tokens of a period are refilled at once, when the period ends.
    pub is_stepwise: bool,
    /// Whether buckets are empty before their first request.
    pub starts_empty: bool,
    /// What a refused request costs.
    pub cost_of_429: u64,
    /// What a lookup costs whose status is neither 200 nor 404.
    pub cost_of_other_lookups: u64,
    /// When calls in flight are charged.
    pub in_flight: InFlight,
    /// Which query parameters make a list one that is filtered by role.
    pub role_filter: FlagRule,
    /// Whether each `EndToEndId` gives tokens back only once.
    pub credit_once: bool,
    /// How long after its lookup a payment order still gives tokens back.
    pub credit_deadline: Duration,
    /// The statuses of a lookup for which a payment order gives tokens back.
    pub credit_statuses: Vec<u16>,
    /// Whether a 429 response has `Retry-After`.
    pub retry_after_on_429: bool,
    /// Whether a slash at the end of a path may be added or left out.
    pub trailing_slash_optional: bool,
}

impl Settings {
    /// Reads the settings of a DICT profile, or returns everything that is wrong with them.
    ///
    /// ```
    /// use balde_dict::{Settings, profiles};
    ///
    /// let settings = Settings::of(&profiles::default())?;
    /// assert_eq!(settings.credit_deadline.as_secs(), 12 * 3_600);
    /// # Ok::<(), balde_dict::ConfigError>(())
    /// ```
    pub fn of(profile: &Profile) -> Result<Self, ConfigError> {
        let mut reader = Reader {
            profile,
            known: Vec::new(),
            diagnostics: Diagnostics::new(profile.source()),
        };
        let settings = Self {
            is_stepwise: reader.choice("refill", ["continuous", "stepwise"]) == 1,
            starts_empty: reader.choice("start", ["full", "empty"]) == 1,
            cost_of_429: reader.number("cost-of-429", 0, balde_policy::COST_MAX),
            cost_of_other_lookups: reader.number(
                "cost-of-other-lookups",
                0,
                balde_policy::COST_MAX,
            ),
            in_flight: match reader.choice("in-flight", ["reserved", "after-response"]) {
                1 => InFlight::AfterResponse,
                _ => InFlight::Reserved,
            },
            role_filter: match reader.choice(
                "role-filter",
                ["exactly-one-true", "any-true", "any-present"],
            ) {
                1 => FlagRule::AnyTrue,
                2 => FlagRule::AnyPresent,
                _ => FlagRule::ExactlyOneTrue,
            },
            credit_once: reader.flag("credit-once", true),
            credit_deadline: Duration::from_secs(reader.number(
                "credit-deadline-seconds",
                43_200,
                CREDIT_DEADLINE_MAX,
            )),
            credit_statuses: reader.statuses("credit-statuses"),
            retry_after_on_429: reader.flag("retry-after-on-429", true),
            trailing_slash_optional: reader.choice("trailing-slash", ["exact", "optional"]) == 1,
        };
        if reader.flag("credit-above-capacity", false) {
            let reason = "buckets never hold more than their capacity here; only false is possible";
            reader.problem("credit-above-capacity", reason);
        }
        reader.unknown();
        reader.diagnostics.into_result(settings)
    }
}

/// Reads settings by name. A missing setting has the documented default.
struct Reader<'p> {
    profile: &'p Profile,
    known: Vec<&'static str>,
    diagnostics: Diagnostics,
}

impl<'p> Reader<'p> {
    fn value(&mut self, name: &'static str) -> Option<&'p SettingValue> {
        self.known.push(name);
        self.profile.setting(name).map(Setting::value)
    }

    fn problem(&mut self, name: &str, reason: &str) {
        let span = self.profile.setting(name).and_then(Setting::span);
        let message = format!("setting `{name}`: {reason}");
        self.diagnostics.at(span, message);
    }

    /// Which of some words it is; the first is the default.
    fn choice<const N: usize>(&mut self, name: &'static str, words: [&str; N]) -> usize {
        let found = match self.value(name) {
            None => Some(0),
            Some(SettingValue::Text(text)) => words.iter().position(|word| *word == &**text),
            Some(_) => None,
        };
        if found.is_none() {
            self.problem(name, &format!("expected {}", words.join(" or ")));
        }
        found.unwrap_or(0)
    }

    fn flag(&mut self, name: &'static str, default: bool) -> bool {
        match self.value(name) {
            None => default,
            Some(SettingValue::Bool(flag)) => *flag,
            Some(_) => {
                self.problem(name, "expected true or false");
                default
            }
        }
    }

    fn number(&mut self, name: &'static str, default: u64, most: u64) -> u64 {
        match self.value(name) {
            None => default,
            Some(SettingValue::Number(number)) if *number <= most => *number,
            Some(_) => {
                self.problem(name, &format!("expected a whole number from 0 to {most}"));
                default
            }
        }
    }

    fn statuses(&mut self, name: &'static str) -> Vec<u16> {
        let numbers = match self.value(name) {
            None => return vec![200],
            Some(SettingValue::Numbers(numbers)) => numbers.as_slice(),
            Some(_) => &[0],
        };
        let statuses = numbers.iter().filter_map(|number| {
            let status = u16::try_from(*number).ok()?;
            (100..600).contains(&status).then_some(status)
        });
        let statuses: Vec<u16> = statuses.collect();
        if statuses.len() != numbers.len() || statuses.len() > CREDIT_STATUSES_MAX {
            self.problem(
                name,
                "expected a list of statuses from 100 to 599, at most 16",
            );
        }
        statuses
    }

    fn unknown(&mut self) {
        for setting in self.profile.settings() {
            if !self.known.contains(&setting.name()) {
                let reason = format!(
                    "DICT has none of that name; it has {}",
                    self.known.join(", ")
                );
                self.problem(setting.name(), &reason);
            }
        }
    }
}
