//! `balde policies [PROFILE]`

mod throttlers;

use std::process::ExitCode;

use balde::Share;
use balde_core::{Limit, Start, Strategy};
use balde_dict::VolumeClass;
use balde_policy::{ByVariant, Policy, PriceList};
use balde_policy::{Profile, SettingValue};
use serde_json::{Map, Value, json};

use crate::print::{write_error, write_output};
use crate::profile;
use crate::table::{aligned, duration, grouped};

/// The interval of the column "Tokens a day".
const DAY_US: u64 = 86_400_000_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name of a profile that ships with balde, or a file
    #[arg(default_value = balde_dict::profiles::DEFAULT)]
    profile: String,
    /// Show only this category's row of policies that vary by category
    #[arg(long, value_name = "LETTER")]
    category: Option<String>,
    /// Show only policies of this class: high, medium, low or antiscan
    #[arg(long, value_name = "CLASS")]
    volume: Option<VolumeClass>,
    /// Another value for a setting of the profile
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print an options file with a throttler that sends at the rates of the policies, for bulk jobs
    #[arg(long, conflicts_with = "json")]
    throttlers: bool,
    /// How much of each rate the throttler uses, such as 50%; the rest is for other traffic
    #[arg(long, requires = "throttlers", default_value = "100%")]
    share: Share,
}

/// Which limits are shown.
#[derive(Clone, Copy)]
struct Selection<'a> {
    category: Option<&'a str>,
    volume: Option<VolumeClass>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let shown = profile::load(&args.profile, &args.settings).and_then(|profile| {
        check_category(&profile, args.category.as_deref())?;
        let selection = Selection {
            category: args.category.as_deref(),
            volume: args.volume,
        };
        if args.throttlers {
            return throttlers::options_file(&profile, selection, args.share);
        }
        Ok(if args.json {
            format!("{:#}\n", as_json(&profile, selection))
        } else {
            as_table(&profile, selection)
        })
    });
    match shown {
        Ok(text) => {
            if let Err(error) = write_output(&text) {
                write_error(&format!("balde policies: {error}\n"));
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        Err(problems) => {
            write_error(&problems);
            ExitCode::FAILURE
        }
    }
}

/// Parses `NAME=VALUE`.
pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn check_category(profile: &Profile, category: Option<&str>) -> Result<(), String> {
    let Some(category) = category else {
        return Ok(());
    };
    let Some(variant) = profile.variant("category") else {
        return Err(format!("profile {} has no categories\n", profile.name()));
    };
    let known: Vec<&str> = variant.values().collect();
    if known.contains(&category) {
        return Ok(());
    }
    let known = known.join(", ");
    Err(format!(
        "profile {} has the categories {known}\n",
        profile.name()
    ))
}

/// The limits of a policy that are printed.
fn limits<'p>(
    policy: &'p Policy,
    selection: Selection<'p>,
) -> impl Iterator<Item = (Option<&'p str>, &'p Limit)> {
    let Selection { category, volume } = selection;
    let varies = policy.limits().variant() == Some("category");
    let limits = policy.limits().iter();
    let limits =
        limits.filter(move |(value, _)| !varies || category.is_none() || *value == category);
    limits.filter(move |(_, limit)| {
        volume.is_none_or(|volume| volume == VolumeClass::new(policy.name(), limit))
    })
}

fn as_table(profile: &Profile, selection: Selection<'_>) -> String {
    let titles = [
        "Policy",
        "Scope",
        "For",
        "Refill",
        "Period",
        "Capacity",
        "From empty",
        "Tokens a day",
        "Volume",
        "Cost",
        "Credit",
    ];
    let is_number = [
        false, false, false, true, true, true, true, true, false, false, false,
    ];
    let mut rows = Vec::new();
    for policy in profile.policies() {
        for (value, limit) in limits(policy, selection) {
            rows.push([
                policy.name().to_owned(),
                policy.scope().name().to_owned(),
                value.unwrap_or("all").to_owned(),
                grouped(limit.refill_tokens()),
                duration(limit.period_us()),
                grouped(limit.capacity()),
                duration(limit.fill_us()),
                grouped(limit.granted_within_us(DAY_US)),
                VolumeClass::new(policy.name(), limit).to_string(),
                costs(policy.prices()),
                credits(policy, value),
            ]);
        }
    }
    let count = profile.policies().len();
    let noun = if count == 1 { "policy" } else { "policies" };
    let (name, title) = (profile.name(), profile.title());
    let head = format!("{name}: {title} ({count} {noun})\n\n");
    head + &aligned(titles, is_number, &rows) + &settings_table(profile)
}

fn settings_table(profile: &Profile) -> String {
    if profile.settings().is_empty() {
        return String::new();
    }
    let rows = profile.settings().iter();
    let rows = rows.map(|setting| [setting.name().to_owned(), shown(setting.value())]);
    let rows: Vec<[String; 2]> = rows.collect();
    format!("\n{}", aligned(["Setting", "Value"], [false; 2], &rows))
}

/// `200:1 404:20 else:0`
fn costs(prices: &PriceList) -> String {
    let mut words = Vec::new();
    let default = prices.default_cost();
    for (status, cost) in prices.statuses() {
        words.push(format!("{status}:{cost}"));
    }
    for (class, cost) in prices.classes() {
        words.push(format!("{class}xx:{cost}"));
    }
    if prices.unanswered() != default {
        words.push(format!("unanswered:{}", prices.unanswered()));
    }
    words.push(format!("else:{default}"));
    words.join(" ")
}

fn credits(policy: &Policy, value: Option<&str>) -> String {
    let credits = policy.credits().iter().map(|credit| {
        let tokens = policy.credit(credit.event(), value);
        format!("{}:{tokens}", credit.event())
    });
    credits.collect::<Vec<_>>().join(" ")
}

fn shown(value: &SettingValue) -> String {
    match value {
        SettingValue::Bool(flag) => flag.to_string(),
        SettingValue::Number(number) => number.to_string(),
        SettingValue::Text(text) => text.to_string(),
        SettingValue::Numbers(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
            numbers.join(",")
        }
    }
}

fn as_json(profile: &Profile, selection: Selection<'_>) -> Value {
    let mut settings = Map::new();
    for setting in profile.settings() {
        let value = match setting.value() {
            SettingValue::Bool(flag) => json!(flag),
            SettingValue::Number(number) => json!(number),
            SettingValue::Text(text) => json!(text),
            SettingValue::Numbers(numbers) => json!(numbers),
        };
        settings.insert(setting.name().to_owned(), value);
    }
    let policies = profile.policies().iter();
    let policies: Vec<Value> = policies
        .filter(|policy| limits(policy, selection).next().is_some())
        .map(|policy| policy_json(policy, selection))
        .collect();
    json!({
        "profile": profile.name(),
        "title": profile.title(),
        "api": profile.api(),
        "base_paths": profile.base_paths(),
        "settings": settings,
        "policies": policies,
    })
}

fn policy_json(policy: &Policy, selection: Selection<'_>) -> Value {
    let parts = policy.scope().parts().iter().map(ToString::to_string);
    let rules = policy.rules().iter().map(ToString::to_string);
    let mut costs = Map::new();
    for (status, cost) in policy.prices().statuses() {
        costs.insert(status.to_string(), json!(cost));
    }
    for (class, cost) in policy.prices().classes() {
        costs.insert(format!("{class}xx"), json!(cost));
    }
    costs.insert("unanswered".to_owned(), json!(policy.prices().unanswered()));
    costs.insert("default".to_owned(), json!(policy.prices().default_cost()));
    let mut credits = Map::new();
    for credit in policy.credits() {
        let tokens = match credit.tokens() {
            ByVariant::One(tokens) => json!(tokens),
            by @ ByVariant::By { .. } => {
                let each = by
                    .iter()
                    .filter_map(|(value, tokens)| Some((value?.to_owned(), json!(tokens))));
                Value::Object(each.collect())
            }
        };
        credits.insert(credit.event().to_owned(), tokens);
    }
    let limits = limits(policy, selection).map(|(value, limit)| limit_json(policy, value, limit));
    json!({
        "name": policy.name(),
        "scope": policy.scope().name(),
        "key": parts.collect::<Vec<_>>(),
        "match": rules.collect::<Vec<_>>(),
        "varies_by": policy.limits().variant(),
        "limits": limits.collect::<Vec<_>>(),
        "admission": policy.admission(),
        "costs": costs,
        "credits": credits,
        "on_failure": policy.on_failure().to_string(),
    })
}

fn limit_json(policy: &Policy, value: Option<&str>, limit: &Limit) -> Value {
    let strategy = match limit.strategy() {
        Strategy::Continuous => "continuous",
        Strategy::Stepwise => "stepwise",
        Strategy::FixedWindow => "window",
    };
    json!({
        "for": value,
        "refill_tokens": limit.refill_tokens(),
        "period_us": limit.period_us(),
        "capacity": limit.capacity(),
        "refill": strategy,
        "start": match limit.start() { Start::Full => "full", Start::Empty => "empty" },
        "from_empty_us": limit.fill_us(),
        "tokens_a_day": limit.granted_within_us(DAY_US),
        "volume": VolumeClass::new(policy.name(), limit).as_str(),
    })
}
