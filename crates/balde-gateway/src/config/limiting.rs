//! The sections `[limiting]` and `[policies]`.

use std::fmt;
use std::time::Duration;

use balde::options::ServiceOptions;
use balde::telemetry::Denials;
use balde::{Holds, OnExpiry, StorageMode};
use balde_config::{Diagnostics, Located, Section, Source, Value};
use balde_dict::{Table, profiles};
use balde_policy::Profile;
use http::HeaderName;

use super::Resolver;
use super::dict::DictConfig;
use super::routes::CallerClass;

/// The header with which callers ask to wait, if the file names no other.
const WAIT_HEADER: &str = "balde-wait-ms";

/// The most that `keys_max` may be.
const KEYS_MAX_MAX: u64 = 1 << 30;

/// Which policies are enforced, and where their buckets are kept.
#[derive(Clone)]
pub struct LimitingConfig {
    /// The policies; `None` if nothing is limited.
    pub profile: Option<Profile>,
    /// Which policies only count.
    pub shadow: Shadow,
    /// Where the buckets are kept.
    pub storage: StorageMode,
    /// Shares of buckets that only one class of callers may use.
    pub reserves: Vec<Reserve>,
    /// The header in which callers say how long they wait for tokens, in milliseconds.
    pub wait_header: HeaderName,
    /// The most requests that wait for tokens.
    pub waiters_max: usize,
    /// The most buckets in memory, for each policy; `None` for the default of the SDK.
    pub keys_max: Option<usize>,
    /// The share of these places, in percent, beyond which one caller gets another place only while
    /// fewer than half of all places are taken.
    pub waiting_share_percent: usize,
    /// Which refusals are logged.
    pub denials: Denials,
    /// What becomes of what a gateway held of buckets in Redis, after it was killed.
    pub holds: Holds,
}

impl fmt::Debug for LimitingConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address of Redis may contain a password.
        f.debug_struct("LimitingConfig")
            .field("profile", &self.profile.as_ref().map(Profile::name))
            .field("shadow", &self.shadow)
            .finish_non_exhaustive()
    }
}

/// Which policies count requests without refusing them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shadow {
    /// All.
    All,
    /// Those with these names, and those that the profile itself puts into shadow mode.
    Some(Vec<String>),
}

/// A share of a policy's buckets that only one class of callers may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The name of the policy.
    pub policy: String,
    /// The index of the class.
    pub class: usize,
    /// The share of the capacity, in percent.
    pub percent: u64,
}

pub(super) fn read(
    root: &mut Section<'_>,
    service: &ServiceOptions,
    dict: Option<&Located<DictConfig>>,
    classes: &[CallerClass],
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> LimitingConfig {
    let mut config = LimitingConfig {
        profile: None,
        shadow: Shadow::Some(Vec::new()),
        storage: StorageMode::Memory,
        reserves: Vec::new(),
        wait_header: HeaderName::from_static(WAIT_HEADER),
        waiters_max: 1_000,
        keys_max: None,
        waiting_share_percent: 10,
        denials: Denials::Summary,
        holds: Holds::new(),
    };
    let mut named = None;
    let mut storage = service.storage();
    let mut shadow = None;
    let mut reserves = Vec::new();
    let inline = root.table("policies", diagnostics);
    if let Some(mut section) = root.table("limiting", diagnostics) {
        named = section.string("profile", diagnostics);
        let settings = section.table("settings", diagnostics);
        let overrides = settings.map(|settings| overrides(&settings, diagnostics));
        let overrides = overrides.unwrap_or_default();
        let words = [
            ("memory", StorageMode::Memory),
            ("redis", StorageMode::Redis),
        ];
        let given = section.choice("storage", &words, diagnostics);
        storage = storage.or(given.map(|given| given.value));
        shadow = section.get("shadow");
        if let Some(name) = read_wait_header(&mut section, diagnostics) {
            config.wait_header = name;
        }
        section.renamed(&[("waiting_max", "waiters_max")]);
        let waiters_max = &mut config.waiters_max;
        section.set_count("waiters_max", 0..=1_000_000, waiters_max, diagnostics);
        let keys_max = section.integer("keys_max", 1..=KEYS_MAX_MAX, diagnostics);
        config.keys_max = keys_max.and_then(|keys_max| usize::try_from(keys_max.value).ok());
        if let Some(share) = section.percent("waiting_share", 1..=100, diagnostics) {
            config.waiting_share_percent = usize::try_from(share.value).unwrap_or(100);
        }
        let words = [("summary", Denials::Summary), ("every", Denials::Every)];
        if let Some(denials) = section.choice("denials", &words, diagnostics) {
            config.denials = denials.value;
        }
        config.holds = read_holds(&mut section, diagnostics);
        reserves = section.tables("reserve", diagnostics);
        if let Some(named) = named {
            config.profile = profile(named, &overrides, resolver, diagnostics);
        } else if section.contains("settings") {
            let message = "`settings` needs `profile`; policies in this file have their own \
                           [policies.settings]";
            diagnostics.at(section.span(), message);
        }
        section.finish(diagnostics);
    }
    if let Some(inline) = inline {
        let span = inline.span();
        if named.is_some() {
            let message = "write either `profile` in [limiting] or [policies], not both";
            diagnostics.at(span, message);
        }
        let source = diagnostics.source().clone();
        let read = Profile::from_section(inline, "gateway", &source, diagnostics);
        config.profile = Some(read);
    }
    if storage == Some(StorageMode::Redis) {
        config.storage = StorageMode::Redis;
        let is_assumed = resolver.environment().is_assumed();
        if service.redis().is_none() && !service.is_redis_invalid() && !is_assumed {
            let message = "storage in Redis needs `addr` in [redis], or REDIS_ADDR";
            diagnostics.at(None, message);
        }
    }
    if dict.is_some() && config.profile.is_none() && named.is_none() {
        config.profile = Some(profiles::default());
    }
    let Some(profile) = &config.profile else {
        return config;
    };
    if let Some(shadow) = shadow {
        config.shadow = read_shadow(&shadow, profile, diagnostics);
    }
    for section in reserves {
        config
            .reserves
            .extend(reserve(section, profile, classes, diagnostics));
    }
    config
}

/// A profile by its name, or from a file.
fn profile(
    named: Located<&str>,
    overrides: &[(String, String)],
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Profile> {
    let overrides: Vec<(&str, &str)> = overrides
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let source = match profiles::text(named.value) {
        Some(text) => Ok(Source::new(named.value, text)),
        None => Source::read(resolver.path(named.value)),
    };
    let read = source.and_then(|source| Profile::from_source(&source, &overrides));
    let read = read.and_then(|profile| match profile.api() {
        Some("dict") => Table::new(profile).map(|table| table.profile().clone()),
        _ => Ok(profile),
    });
    match read {
        Ok(profile) => Some(profile),
        Err(error) => {
            // The problems are in another file: each is shown with its own place.
            for problem in error.diagnostics() {
                diagnostics.at(named.span, problem.to_string());
            }
            None
        }
    }
}

/// `{ refill = "stepwise", cost_of_429 = 1 }` as texts.
fn overrides(section: &Section<'_>, diagnostics: &mut Diagnostics) -> Vec<(String, String)> {
    let entries = section.entries();
    let overrides = entries.iter().filter_map(|entry| {
        let text = if entry.is_integer() {
            entry.integer(0..=u64::MAX, diagnostics)?.value.to_string()
        } else if entry.is_boolean() {
            entry.boolean(diagnostics)?.value.to_string()
        } else {
            entry.string(diagnostics)?.value.to_owned()
        };
        Some((entry.key().to_owned(), text))
    });
    overrides.collect()
}

fn read_wait_header(
    section: &mut Section<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<HeaderName> {
    let header = section.string("wait_header", diagnostics)?;
    let name = HeaderName::from_bytes(header.value.as_bytes());
    if name.is_err() {
        diagnostics.at(header.span, "`wait_header` must be the name of a header");
    }
    name.ok()
}

fn read_holds(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Holds {
    let mut holds = Holds::new();
    let range = Duration::from_secs(1)..=Duration::from_secs(86_400);
    if let Some(ttl) = section.duration("hold_ttl", range, diagnostics) {
        holds = holds.ttl(ttl.value);
    }
    let words = [
        ("charge", OnExpiry::Charge),
        ("give_back", OnExpiry::GiveBack),
    ];
    if let Some(expired) = section.choice("expired_holds", &words, diagnostics) {
        holds = holds.on_expiry(expired.value);
    }
    holds
}

fn read_shadow(value: &Value<'_>, profile: &Profile, diagnostics: &mut Diagnostics) -> Shadow {
    if value.is_boolean() {
        let all = value.boolean(diagnostics);
        if all.is_some_and(|all| all.value) {
            return Shadow::All;
        }
        return Shadow::Some(Vec::new());
    }
    let mut names = Vec::new();
    for name in value.strings(diagnostics) {
        if known_policy(name, profile, diagnostics) {
            names.push(name.value.to_owned());
        }
    }
    Shadow::Some(names)
}

fn reserve(
    mut section: Section<'_>,
    profile: &Profile,
    classes: &[CallerClass],
    diagnostics: &mut Diagnostics,
) -> Option<Reserve> {
    let policy = section.require("policy", diagnostics);
    let policy = policy.and_then(|policy| policy.string(diagnostics));
    let class = section.require("class", diagnostics);
    let class = class.and_then(|class| class.string(diagnostics));
    let share = section.require("share", diagnostics);
    let share = share.and_then(|share| share.percent(1..=99, diagnostics));
    section.renamed(&[("percent", "share")]);
    section.finish(diagnostics);
    let (policy, class) = (policy?, class?);
    let is_known = known_policy(policy, profile, diagnostics);
    let found = classes.iter().position(|known| known.name == class.value);
    if found.is_none() {
        let name = class.value.escape_debug();
        let message = format!("there is no class `{name}`; write [[class]] with this `name`");
        diagnostics.unknown("class", class.value, class.span, message);
    }
    Some(Reserve {
        policy: is_known.then(|| policy.value.to_owned())?,
        class: found?,
        percent: share?.value,
    })
}

fn known_policy(name: Located<&str>, profile: &Profile, diagnostics: &mut Diagnostics) -> bool {
    let is_known = profile.policy(name.value).is_some();
    if !is_known {
        let message = format!(
            "profile {} has no policy `{}`",
            profile.name(),
            name.value.escape_debug()
        );
        diagnostics.unknown("policy", name.value, name.span, message);
    }
    is_known
}
