//! The monitor's configuration file.
//!
//! A file is read and validated as a whole before anything is built; every problem is reported with
//! file, line and column. `docs/monitor.toml` is a file with every key. Secrets are not in the file:
//! it names the environment variables that hold them.

mod alerts;
mod participants;
mod plan;
mod sinks;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use balde_config::{ConfigError, Diagnostics, Document, Environment, Section, Source};

use crate::alert::{AlertRules, Routes, StalenessRule};
use crate::analyse::SettingsByPolicy;
use crate::schedule::PollPlan;

pub use participants::{ParticipantConfig, SourceConfig};
pub use plan::{HttpConfig, ScheduleConfig};
pub use sinks::{SinkConfig, SinkKind};

/// A validated configuration file.
#[derive(Clone)]
pub struct Config {
    /// The address to listen on, and who may create and end silences.
    pub http: HttpConfig,
    /// The database of the history.
    pub history: String,
    /// When participants are polled, and how long samples are kept.
    pub plan: PollPlan,
    /// What runs the poll cycles.
    pub schedule: ScheduleConfig,
    /// The participants whose buckets are polled.
    pub participants: Vec<ParticipantConfig>,
    /// When a bucket raises an alert.
    pub rules: AlertRules,
    /// When missing or changed data raises an alert.
    pub staleness: StalenessRule,
    /// How samples are analysed.
    pub analysis: SettingsByPolicy,
    /// Which kinds of sink each severity goes to.
    pub routes: Routes,
    /// The sinks that alerts are sent to.
    pub sinks: Vec<SinkConfig>,
}

impl Config {
    /// Reads a file. Relative paths in it are resolved against its folder.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::from_source(&Source::read(path)?, folder, Environment::of_process())
    }

    /// Parses a text with the environment that `variable` describes; `name` is the file name in
    /// messages. An empty variable counts as unset.
    pub fn parse(
        text: &str,
        name: &str,
        folder: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let lookup = |name: &str| variable(name).map(OsString::from);
        let source = Source::new(name, text);
        Self::from_source(&source, folder, Environment::new(&lookup))
    }

    fn from_source(
        source: &Source,
        folder: &Path,
        environment: Environment<'_>,
    ) -> Result<Self, ConfigError> {
        let resolver = Resolver {
            folder: folder.to_owned(),
            environment,
        };
        Document::read(source, Diagnostics::new(source), |mut root, diagnostics| {
            let http = plan::http(root.table("http", diagnostics), &resolver, diagnostics);
            let history = root.table("history", diagnostics);
            let (history, retention) = plan::history(history, &resolver, diagnostics);
            let (schedule, plan) = plan::schedule(&mut root, retention, diagnostics);
            let participants = participants::read(&mut root, &resolver, diagnostics);
            let alerts = alerts::read(root.table("alerts", diagnostics), diagnostics);
            let routes = alerts::read_routes(root.table("routes", diagnostics), diagnostics);
            let sinks = sinks::read(&mut root, &resolver, diagnostics);
            root.finish(diagnostics);
            Self {
                http,
                history,
                plan,
                schedule,
                participants,
                rules: alerts.rules,
                staleness: alerts.staleness,
                analysis: alerts.analysis,
                routes,
                sinks,
            }
        })
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address of the history may contain a password.
        f.debug_struct("Config")
            .field("http", &self.http)
            .field("participants", &self.participants)
            .field("sinks", &self.sinks)
            .finish_non_exhaustive()
    }
}

/// Resolves what values refer to: files relative to the folder, and environment variables.
struct Resolver<'a> {
    folder: PathBuf,
    environment: Environment<'a>,
}

impl Resolver<'_> {
    /// A path, relative to the folder of the configuration file.
    fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// The value of the environment variable that `key` names; an unset one is reported.
    fn secret(
        &self,
        section: &mut Section<'_>,
        key: &'static str,
        diagnostics: &mut Diagnostics,
    ) -> Option<String> {
        let name = section.string(key, diagnostics)?;
        self.environment.read_named(&name, diagnostics)
    }

    /// A string in the file, or in the environment variable that the file names.
    fn string_or_secret(
        &self,
        section: &mut Section<'_>,
        (key, key_env): (&'static str, &'static str),
        diagnostics: &mut Diagnostics,
    ) -> Option<String> {
        let has_variable = section.get(key_env).is_some();
        let string = section.string(key, diagnostics);
        let secret = self.secret(section, key_env, diagnostics);
        match string {
            Some(string) if has_variable => {
                let message = format!("write either `{key}` or `{key_env}`, not both");
                diagnostics.at(string.span, message);
                None
            }
            Some(string) => Some(string.value.to_owned()),
            None => secret,
        }
    }

    /// The content of the file that `key` names.
    fn bytes(
        &self,
        section: &mut Section<'_>,
        key: &'static str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Vec<u8>> {
        let name = section.string(key, diagnostics)?;
        match std::fs::read(self.path(name.value)) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                diagnostics.at(name.span, format!("cannot read the file: {error}"));
                None
            }
        }
    }
}
