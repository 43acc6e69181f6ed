//! Throttlers from a TOML file and the environment: the sections `[throttlers.NAME]` of an options
//! file of the SDK.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use balde::options::{ConfigError, Limiters, SectionContext, StorageChoice};
use balde::{Options, Share};
use balde_config::{Diagnostics, Environment, Section, Source, Value};

use crate::error::SettingsError;
use crate::health::{Degradation, INTERVAL_MAX};
#[cfg(feature = "prometheus")]
use crate::metrics::ThrottleMetrics;
use crate::rate::Rate;
use crate::settings::Oversize;
use crate::throttler::{Throttler, ThrottlerBuilder};

/// The most throttlers in a file.
const THROTTLERS_MAX: usize = 64;

const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Validated options of throttlers, from which they are built.
///
/// The sections `[throttlers.NAME]` stand in the same file as the limits of [`balde::Options`], and
/// share its `[redis]`, `[metrics]`, `[logs]` and `[tracing]`.
///
/// ```
/// use balde_throttle::ThrottlerOptions;
///
/// let (options, throttlers) = ThrottlerOptions::parse_with(
///     r#"
///     [throttlers.import]
///     rate = "12000/s"
///     partition_rate = "2000/s"
///     "#,
///     "example.toml",
///     |_variable| None,
/// )?;
/// let limiters = options.build()?;
/// let throttlers = throttlers.build(&limiters)?;
/// let import = throttlers.get("import").expect("it is in the file");
/// assert_eq!(import.pace().to_string(), "12000/s burst 1200");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ThrottlerOptions {
    throttlers: Vec<Settings>,
}

/// The settings of one throttler.
#[derive(Clone, Debug)]
struct Settings {
    name: String,
    rate: Rate,
    partition_rate: Rate,
    partitions: BTreeMap<String, Rate>,
    burst: Option<Share>,
    degradation: Degradation,
    oversize: Oversize,
    partitions_max: Option<usize>,
    waiters_max: Option<usize>,
    pause_max: Option<Duration>,
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "Redis without the feature is an error before")
    )]
    storage: StorageChoice,
}

impl ThrottlerOptions {
    /// Reads a file: its throttlers, and the options of the SDK. All problems of both are reported
    /// at once. The environment takes precedence over the file, as
    /// [`Options::read`] has it.
    pub fn read(path: impl AsRef<Path>) -> Result<(Options, Self), ConfigError> {
        Options::read_extended(path, Self::from_root)
    }

    /// Validates a file on a machine that does not have its secrets:
    /// [`Options::check_extended`] says what may be missing.
    pub fn check_without_secrets(path: impl AsRef<Path>) -> Result<(Options, Self), ConfigError> {
        Options::check_extended(path, Self::from_root)
    }

    /// Parses a text like a file, with the environment that `lookup` describes; `name` is the file
    /// name in messages.
    pub fn parse_with(
        text: &str,
        name: &str,
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<(Options, Self), ConfigError> {
        Options::parse_extended(text, name, lookup, Self::from_root)
    }

    /// Reads the environment alone: one throttler called `default`, from `RL_THROTTLE_RATE` and
    /// `RL_THROTTLE_PARTITION_RATE` (as `12000/s`), and optionally `RL_THROTTLE_BURST` (as `10%`).
    /// Its buckets are in memory.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_environment(Environment::of_process())
    }

    /// [`from_env`](ThrottlerOptions::from_env) with the environment that `lookup` describes.
    pub fn from_env_with(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        Self::from_environment(Environment::new(&lookup))
    }

    /// Builds the throttlers. They use the Redis of `limiters` where they keep their buckets there,
    /// and with the feature `prometheus` its metrics.
    #[cfg_attr(
        not(any(feature = "redis", feature = "prometheus")),
        expect(unused_variables, reason = "nothing is shared without these features")
    )]
    pub fn build(&self, limiters: &Limiters) -> Result<Throttlers, SettingsError> {
        #[cfg(feature = "prometheus")]
        let metrics = limiters.metrics().map(ThrottleMetrics::new);
        let mut throttlers = Vec::with_capacity(self.throttlers.len());
        for settings in &self.throttlers {
            let builder = settings.builder();
            #[cfg(feature = "redis")]
            let builder = match settings.storage {
                StorageChoice::Memory => builder,
                StorageChoice::Redis(on_failure) => {
                    match limiters.redis_store().map_err(SettingsError::Store)? {
                        Some(store) => builder.redis(&store, on_failure),
                        None => builder,
                    }
                }
            };
            let throttler = builder.build()?;
            #[cfg(feature = "prometheus")]
            if let Some(metrics) = &metrics {
                metrics.add(&throttler);
            }
            throttlers.push((settings.name.clone(), throttler));
        }
        Ok(Throttlers { throttlers })
    }

    /// The names of the throttlers, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.throttlers.iter().map(|settings| &*settings.name)
    }

    fn from_root(
        root: &mut Section<'_>,
        context: &SectionContext<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let entries = match root.table("throttlers", diagnostics) {
            Some(throttlers) => throttlers.entries(),
            None => Vec::new(),
        };
        if entries.is_empty() && !root.contains("limits") {
            let message = "there is neither a limit nor a throttler; write [limits.NAME] or \
                           [throttlers.NAME]";
            diagnostics.at(None, message);
        }
        let mut throttlers = Vec::new();
        for entry in entries.iter().take(THROTTLERS_MAX) {
            let section = entry.table(diagnostics);
            throttlers
                .extend(section.and_then(|section| {
                    Settings::read(entry.key(), section, context, diagnostics)
                }));
        }
        if let Some(entry) = entries.get(THROTTLERS_MAX) {
            let message = format!("there are more than {THROTTLERS_MAX} throttlers");
            diagnostics.at(entry.key_span(), message);
        }
        throttlers.sort_by(|one, other| one.name.cmp(&other.name));
        Self { throttlers }
    }

    fn from_environment(environment: Environment<'_>) -> Result<Self, ConfigError> {
        let mut diagnostics = Diagnostics::new(&Source::unnamed(""));
        let mut rate = |variable| {
            let text = environment.read(variable, &mut diagnostics);
            let rate = text.as_deref().map(str::parse::<Rate>);
            match rate {
                Some(Ok(rate)) => return Some(rate),
                Some(Err(error)) => diagnostics.in_variable(variable, error.to_string()),
                None => {
                    diagnostics.in_variable(variable, "not set; set it to a rate such as 1000/s");
                }
            }
            None
        };
        let rates = (rate("RL_THROTTLE_RATE"), rate("RL_THROTTLE_PARTITION_RATE"));
        let burst = environment.read("RL_THROTTLE_BURST", &mut diagnostics);
        let burst = burst.and_then(|text| match text.parse::<Share>() {
            Ok(share) => Some(share),
            Err(error) => {
                diagnostics.in_variable("RL_THROTTLE_BURST", error.to_string());
                None
            }
        });
        let throttlers = match rates {
            (Some(rate), Some(partition_rate)) => vec![Settings {
                name: "default".to_owned(),
                rate,
                partition_rate,
                partitions: BTreeMap::new(),
                burst,
                degradation: Degradation::new(),
                oversize: Oversize::default(),
                partitions_max: None,
                waiters_max: None,
                pause_max: None,
                storage: StorageChoice::Memory,
            }],
            _ => Vec::new(),
        };
        diagnostics.into_result(Self { throttlers })
    }
}

/// The throttlers that were built from a file or from the environment.
#[derive(Clone, Debug)]
pub struct Throttlers {
    throttlers: Vec<(String, Throttler)>,
}

impl Throttlers {
    /// The throttler with this name.
    pub fn get(&self, name: &str) -> Option<&Throttler> {
        let mut throttlers = self.iter();
        throttlers.find_map(|(known, throttler)| (known == name).then_some(throttler))
    }

    /// All throttlers, by name in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Throttler)> {
        let throttlers = self.throttlers.iter();
        throttlers.map(|(name, throttler)| (&**name, throttler))
    }
}

impl Settings {
    fn read(
        name: &str,
        mut section: Section<'_>,
        context: &SectionContext<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let global = section.require("rate", diagnostics);
        let global = global.and_then(|value| rate(&value, diagnostics));
        let of_partitions = section.require("partition_rate", diagnostics);
        let of_partitions = of_partitions.and_then(|value| rate(&value, diagnostics));
        let burst = share(&mut section, "burst", diagnostics);
        let words = [("slices", Oversize::Slices), ("refuse", Oversize::Refuse)];
        let oversize = section.choice("oversize", &words, diagnostics);
        let partitions_max = section.integer("partitions_max", 1..=1_000_000, diagnostics);
        let waiters_max = section.integer("waiters_max", 1..=16_000_000, diagnostics);
        let pause = INTERVAL_MIN..=INTERVAL_MAX;
        let pause_max = section.duration("pause_max", pause, diagnostics);
        let storage = context.storage(&mut section, diagnostics);
        if storage != StorageChoice::Memory && cfg!(not(feature = "redis")) {
            let message = "redis needs the feature \"redis\" of the crate balde-throttle";
            diagnostics.at(section.span(), message);
        }
        let partitions = match section.table("partitions", diagnostics) {
            Some(partitions) => partitions.entries(),
            None => Vec::new(),
        };
        let partitions = partitions.iter().filter_map(|value| {
            let rate = rate(value, diagnostics)?;
            Some((value.key().to_owned(), rate))
        });
        let partitions = partitions.collect();
        let degradation = match section.table("degradation", diagnostics) {
            Some(degraded) => degradation(degraded, diagnostics),
            None => Degradation::new(),
        };
        let span = section.span();
        section.finish(diagnostics);
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let settings = Self {
            name: name.to_owned(),
            rate: global?,
            partition_rate: of_partitions?,
            partitions,
            burst,
            degradation,
            oversize: oversize.map_or_else(Oversize::default, |oversize| oversize.value),
            partitions_max: partitions_max.map(|max| number(max.value)),
            waiters_max: waiters_max.map(|max| number(max.value)),
            pause_max: pause_max.map(|max| max.value),
            storage,
        };
        // In memory, so that nothing is connected to.
        match settings.builder().build() {
            Ok(_throttler) => Some(settings),
            Err(error) => {
                diagnostics.at(span, error.to_string());
                None
            }
        }
    }

    /// A builder with everything but the store.
    fn builder(&self) -> ThrottlerBuilder {
        let mut builder = Throttler::builder()
            .name(&self.name)
            .rate(self.rate)
            .partition_rate(self.partition_rate)
            .degradation(self.degradation)
            .oversize(self.oversize);
        for (name, rate) in &self.partitions {
            builder = builder.partition(name.as_str(), *rate);
        }
        if let Some(share) = self.burst {
            builder = builder.burst(share);
        }
        if let Some(max) = self.partitions_max {
            builder = builder.partitions_max(max);
        }
        if let Some(max) = self.waiters_max {
            builder = builder.waiters_max(max);
        }
        if let Some(max) = self.pause_max {
            builder = builder.pause_max(max);
        }
        builder
    }
}

fn degradation(mut section: Section<'_>, diagnostics: &mut Diagnostics) -> Degradation {
    let presets = [
        ("default", Degradation::new()),
        ("strict", Degradation::strict()),
    ];
    let preset = section.choice("preset", &presets, diagnostics);
    let mut degradation = preset.map_or_else(Degradation::new, |preset| preset.value);
    if let Some(ratio) = share(&mut section, "ratio", diagnostics) {
        degradation = degradation.ratio(ratio);
    }
    if let Some(floor) = share(&mut section, "floor", diagnostics) {
        degradation = degradation.floor(floor);
    }
    if let Some(step) = share(&mut section, "step", diagnostics) {
        degradation = degradation.step(step);
    }
    let interval = INTERVAL_MIN..=INTERVAL_MAX;
    if let Some(recovery) = section.duration("recovery", interval.clone(), diagnostics) {
        degradation = degradation.recovery(recovery.value);
    }
    let step_interval = section.duration("step_interval", interval.clone(), diagnostics);
    if let Some(step_interval) = step_interval {
        degradation = degradation.step_interval(step_interval.value);
    }
    if let Some(tolerance) = share(&mut section, "tolerance", diagnostics) {
        degradation = degradation.tolerance(tolerance);
    }
    if let Some(window) = section.duration("window", interval.clone(), diagnostics) {
        degradation = degradation.window(window.value);
    }
    if let Some(open_after) = section.duration("open_after", interval.clone(), diagnostics) {
        degradation = degradation.open_after(open_after.value);
    }
    if let Some(reset) = section.duration("reset", interval, diagnostics) {
        degradation = degradation.reset(reset.value);
    }
    let spacing = Duration::ZERO..=INTERVAL_MAX;
    if let Some(spacing) = section.duration("spacing", spacing, diagnostics) {
        degradation = degradation.spacing(spacing.value);
    }
    if let Some(probes) = section.integer("probes", 1..=1_000, diagnostics) {
        degradation = degradation.probes(u32::try_from(probes.value).unwrap_or(u32::MAX));
    }
    section.finish(diagnostics);
    degradation
}

/// A rate: a string such as "600/min", or an integer, which is tokens per second.
fn rate(value: &Value<'_>, diagnostics: &mut Diagnostics) -> Option<Rate> {
    if value.is_integer() {
        let tokens = value.integer(1..=crate::rate::RATE_MAX, diagnostics)?;
        return Some(Rate::per_second(tokens.value));
    }
    let text = value.string(diagnostics)?;
    match text.value.parse() {
        Ok(rate) => Some(rate),
        Err(error) => {
            diagnostics.at(text.span, format!("`{}`: {error}", value.key()));
            None
        }
    }
}

fn share(
    section: &mut Section<'_>,
    key: &'static str,
    diagnostics: &mut Diagnostics,
) -> Option<Share> {
    let text = section.string(key, diagnostics)?;
    match text.value.parse() {
        Ok(share) => Some(share),
        Err(error) => {
            let error: balde::InvalidShare = error;
            diagnostics.at(text.span, format!("`{key}`: {error}"));
            None
        }
    }
}
