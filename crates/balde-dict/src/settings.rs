//! The settings of a DICT profile.

use std::time::Duration;

use balde_config::{ConfigError, Diagnostics, parse_duration};
use balde_policy::{FlagRule, InFlight, Profile, Setting, SettingValue};

/// The longest deadline for credits: thirty days.
const CREDIT_DEADLINE_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

const HALF_DAY: Duration = Duration::from_secs(12 * 3_600);

/// The most statuses that orders give tokens back for.
const CREDIT_STATUSES_MAX: usize = 16;

/// The longest time that a file of content ids may take: one day.
const CID_FILE_DELAY_MAX: Duration = Duration::from_secs(24 * 3_600);

/// From when the periods of a claim run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimPeriodStart {
    /// From createClaim.
    Creation,
    /// From acknowledgeClaim.
    Acknowledgement,
}

/// Which policies count the funds-recovery operations, which no published policy names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FundsRecoveryPolicy {
    /// None: the operations are not limited.
    Uncounted,
    /// The policies that read and write infraction reports.
    InfractionReports,
    /// The policies that read and write refunds.
    Refunds,
}

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
    /// How far the periods of a stepwise refill begin before those of UTC, in seconds: the offset of
    /// the time zone whose midnight begins a day.
    pub refill_offset_s: i64,
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
    /// Whether the messages and operations are those of version 1 of the API.
    pub is_version_1: bool,
    /// Whether deprecated operations are served instead of answered with 410.
    pub serve_deprecated: bool,
    /// Which policies count the funds-recovery operations.
    pub funds_recovery_policy: FundsRecoveryPolicy,
    /// Whether the caller is inferred where a request need not name it.
    pub infer_participant: bool,
    /// From when the periods of a claim run.
    pub claim_period_start: ClaimPeriodStart,
    /// The error type of a reason that the table of a claim does not have.
    pub claim_reason_error: &'static str,
    /// Whether cancelling a confirmed claim restores the donor's entry.
    pub restore_entry_of_cancelled_claim: bool,
    /// Whether repeated writes to a funds recovery are answered as the first time.
    pub repeat_funds_recoveries: bool,
    /// Whether a funds recovery can be cancelled while it is refunded.
    pub cancel_while_refunding: bool,
    /// Whether the counterparties of a funds recovery receive its events too.
    pub notify_counterparties: bool,
    /// The status of cancelFundsRecovery for an unknown id.
    pub unknown_recovery_status: u16,
    /// The status of getBucketState for an unknown policy.
    pub unknown_policy_status: u16,
    /// Whether the statistics of a key without entry are zeros instead of a 404.
    pub statistics_of_unregistered_keys: bool,
    /// How long a file of content ids takes to be written.
    pub cid_file_delay: Duration,
    /// How long a company's entry may be cached.
    pub cache_max_age: Duration,
    /// Whether problem documents have a correlation id.
    pub problem_correlation_id: bool,
    /// Whether the reports of a funds recovery contain the creator's contact.
    pub recovery_report_contact: bool,
    /// Whether the signatures of answers contain the signer's certificate.
    pub answer_signature_certificate: bool,
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
            refill_offset_s: reader.time_zone("refill_time_zone"),
            starts_empty: reader.choice("start", ["full", "empty"]) == 1,
            cost_of_429: reader.number("cost_of_429", 0, balde_policy::COST_MAX),
            cost_of_other_lookups: reader.number(
                "cost_of_other_lookups",
                0,
                balde_policy::COST_MAX,
            ),
            in_flight: match reader.choice("in_flight", ["held", "after_response"]) {
                1 => InFlight::AfterResponse,
                _ => InFlight::Reserved,
            },
            role_filter: match reader.choice(
                "role_filter",
                ["exactly_one_true", "any_true", "any_present"],
            ) {
                1 => FlagRule::AnyTrue,
                2 => FlagRule::AnyPresent,
                _ => FlagRule::ExactlyOneTrue,
            },
            credit_once: reader.flag("credit_once", true),
            credit_deadline: reader.duration("credit_deadline", HALF_DAY, CREDIT_DEADLINE_MAX),
            credit_statuses: reader.statuses("credit_statuses"),
            retry_after_on_429: reader.flag("retry_after_on_429", true),
            trailing_slash_optional: reader.choice("trailing_slash", ["exact", "optional"]) == 1,
            is_version_1: reader.choice("api_version", ["2", "1"]) == 1,
            serve_deprecated: reader.choice("deprecated_operations", ["gone", "served"]) == 1,
            funds_recovery_policy: match reader.choice(
                "funds_recovery_policy",
                ["none", "infraction-reports", "refunds"],
            ) {
                1 => FundsRecoveryPolicy::InfractionReports,
                2 => FundsRecoveryPolicy::Refunds,
                _ => FundsRecoveryPolicy::Uncounted,
            },
            infer_participant: reader.choice("participant_when_absent", ["infer", "refuse"]) == 0,
            claim_period_start: match reader.choice("claim_period_start", ["create", "acknowledge"])
            {
                1 => ClaimPeriodStart::Acknowledgement,
                _ => ClaimPeriodStart::Creation,
            },
            claim_reason_error: match reader.choice(
                "claim_reason_error",
                ["InvalidReason", "ClaimOperationInvalid"],
            ) {
                1 => "ClaimOperationInvalid",
                _ => "InvalidReason",
            },
            restore_entry_of_cancelled_claim: reader
                .choice("cancelled_claim_entry", ["gone", "restored"])
                == 1,
            repeat_funds_recoveries: reader
                .choice("funds_recovery_repeats", ["refused", "same-answer"])
                == 1,
            cancel_while_refunding: reader.flag("cancel_while_refunding", false),
            notify_counterparties: reader.choice("event_recipients", ["creator", "all-parties"])
                == 1,
            unknown_recovery_status: reader.status_of_unknown("unknown_funds_recovery_status"),
            unknown_policy_status: reader.status_of_unknown("unknown_policy_status"),
            statistics_of_unregistered_keys: reader
                .choice("unregistered_key_statistics", ["not-found", "zeros"])
                == 1,
            cid_file_delay: reader.duration("cid_file_delay", Duration::ZERO, CID_FILE_DELAY_MAX),
            cache_max_age: reader.duration("cache_max_age", Duration::from_secs(180), HALF_DAY * 2),
            problem_correlation_id: reader.flag("problem_correlation_id", true),
            recovery_report_contact: reader.choice("recovery_report_contact", ["shown", "hidden"])
                == 0,
            answer_signature_certificate: reader
                .choice("answer_signature_key_info", ["certificate", "none"])
                == 0,
        };
        if reader.flag("credit_above_capacity", false) {
            let reason = "buckets never hold more than their capacity here; only false is possible";
            reader.problem("credit_above_capacity", reason);
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

    fn duration(&mut self, name: &'static str, default: Duration, most: Duration) -> Duration {
        let duration = match self.value(name) {
            None => Some(default),
            Some(SettingValue::Text(text)) => parse_duration(text).ok(),
            Some(_) => None,
        };
        duration.filter(|own| *own <= most).unwrap_or_else(|| {
            let reason = format!("expected a duration of at most {most:?}, such as \"30 s\"");
            self.problem(name, &reason);
            default
        })
    }

    /// The offset of a time zone: by name, or such as `-03:00`.
    fn time_zone(&mut self, name: &'static str) -> i64 {
        let text = match self.value(name) {
            None => return 0,
            Some(SettingValue::Text(text)) => &**text,
            Some(_) => "",
        };
        let offset = match text {
            "UTC" => Some(0),
            // Brazil has had no summer time since 2019.
            "America/Sao_Paulo" => Some(-3 * 3_600),
            text => fixed_offset_s(text),
        };
        if offset.is_none() {
            let reason = "expected UTC, America/Sao_Paulo or an offset such as -03:00";
            self.problem(name, reason);
        }
        offset.unwrap_or(0)
    }

    /// 404, or 400 where that is the declared one.
    fn status_of_unknown(&mut self, name: &'static str) -> u16 {
        match self.number(name, 404, 599) {
            400 => 400,
            404 => 404,
            _ => {
                self.problem(name, "expected 404 or 400");
                404
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

/// The seconds of an offset such as `-03:00`, at most 14 hours either way.
fn fixed_offset_s(text: &str) -> Option<i64> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str, most: i64| {
        let is_two = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<i64>().ok().filter(|_| is_two);
        number.filter(|number| *number <= most)
    };
    Some(sign * (number(hours, 14)? * 3_600 + number(minutes, 59)? * 60))
}
