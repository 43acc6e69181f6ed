//! The monitor's configuration file.
//!
//! A file is read and validated as a whole before anything is built; every problem is reported with
//! file, line and column. `docs/monitor.toml` is a file with every key. Secrets are not in the file:
//! it names the environment variables or the files that hold them.

mod access;
mod alerts;
mod analysis;
mod participants;
mod plan;
mod receivers;
mod sink_config;
mod sinks;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use balde_config::{ConfigError, Diagnostics, Document, Environment, Located, Section, Source};

use crate::alert::{AlertRules, Routes, StalenessRule};
use crate::analyse::SettingsByPolicy;
use crate::schedule::PollPlan;
use crate::sink::Wording;

pub use participants::{ParticipantConfig, SourceConfig};
pub use plan::{HttpConfig, ScheduleConfig};
pub use sink_config::{SinkConfig, SinkKind};

/// A validated configuration file.
#[derive(Clone)]
pub struct Config {
    /// The address to listen on, and who may read and change what.
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
    /// The language of alerts, and the runbook that they link to.
    pub wording: Wording,
    /// The sinks that alerts are sent to.
    pub sinks: Vec<SinkConfig>,
}

impl Config {
    /// Reads a file. Relative paths in it are resolved against its folder.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let environment = Environment::of_process();
        Self::from_source(
            &Source::read(path)?,
            folder_of(path),
            environment,
            Secrets::Read,
        )
    }

    /// Validates a file on a machine that does not have its secrets: environment variables, secret
    /// files and client certificates that are missing are no errors. A configuration that was read
    /// like this cannot be run.
    pub fn check_without_secrets(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let environment = Environment::of_process();
        Self::from_source(
            &Source::read(path)?,
            folder_of(path),
            environment,
            Secrets::Assumed,
        )
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
        Self::from_source(&source, folder, Environment::new(&lookup), Secrets::Read)
    }

    fn from_source(
        source: &Source,
        folder: &Path,
        environment: Environment<'_>,
        secrets: Secrets,
    ) -> Result<Self, ConfigError> {
        let resolver = Resolver {
            inner: balde_config::Resolver::new(folder, environment),
            secrets,
        };
        Document::read(source, Diagnostics::new(source), |mut root, diagnostics| {
            let http = plan::http(root.table("http", diagnostics), &resolver, diagnostics);
            let history = root.table("history", diagnostics);
            let (history, retention) = plan::history(history, &resolver, diagnostics);
            let (schedule, plan) = plan::schedule(&mut root, retention, &resolver, diagnostics);
            let participants = participants::read(&mut root, &resolver, diagnostics);
            let policies = participants::policies(&participants);
            let analysis = analysis::read(root.table("analysis", diagnostics), diagnostics);
            let alerts = root.table("alerts", diagnostics);
            let alerts = alerts::read(alerts, &analysis, policies.as_deref(), diagnostics);
            let routes = alerts::read_routes(root.table("severities", diagnostics), diagnostics);
            let sinks = sinks::read(&mut root, &resolver, diagnostics);
            root.renamed(&[("routes", "severities")]);
            root.finish(diagnostics);
            let wording = match &http.public_url {
                Some(url) => alerts.wording.public_url(url),
                None => alerts.wording,
            };
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
                wording,
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

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Whether secrets are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Secrets {
    Read,
    /// Placeholders stand for secrets, for a machine that does not have them.
    Assumed,
}

/// The longest file that holds a secret.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Resolves what values refer to. Secrets may be in files, too, or be assumed.
struct Resolver<'a> {
    inner: balde_config::Resolver<'a>,
    secrets: Secrets,
}

impl Resolver<'_> {
    /// A path, relative to the folder of the configuration file.
    fn path(&self, text: &str) -> PathBuf {
        self.inner.path(text)
    }

    /// The secret that an environment variable or a file holds, whichever key is in the file.
    fn secret(
        &self,
        section: &mut Section<'_>,
        (key_env, key_file): (&'static str, &'static str),
        diagnostics: &mut Diagnostics,
    ) -> Option<String> {
        let variable = section.string(key_env, diagnostics);
        let file = section.string(key_file, diagnostics);
        match (variable, file) {
            (Some(_), Some(file)) => {
                let message = format!("write either `{key_env}` or `{key_file}`, not both");
                diagnostics.at(file.span, message);
                None
            }
            (None, None) => None,
            _ if self.secrets == Secrets::Assumed => Some(placeholder(key_env).to_owned()),
            (Some(name), None) => self.inner.environment().read_named(&name, diagnostics),
            (None, Some(file)) => match self.secret_in_file(file.value) {
                Ok(secret) => Some(secret),
                Err(reason) => {
                    diagnostics.at(file.span, reason);
                    None
                }
            },
        }
    }

    /// The value of the environment variable that the file names.
    fn variable(&self, name: &Located<&str>, diagnostics: &mut Diagnostics) -> Option<String> {
        match self.secrets {
            Secrets::Read => self.inner.environment().read_named(name, diagnostics),
            Secrets::Assumed => Some(placeholder("").to_owned()),
        }
    }

    /// The content of a file without the line break at its end. A relative path is looked up among
    /// the credentials that systemd passes to the service first.
    fn secret_in_file(&self, path: &str) -> Result<String, String> {
        let path = self.inner.credential_path(path);
        let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
        let length = std::fs::metadata(&path).map_err(failed)?.len();
        if length > SECRET_BYTES_MAX {
            return Err(format!(
                "{} has more than {SECRET_BYTES_MAX} bytes",
                path.display()
            ));
        }
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        let secret = text.trim_end_matches(['\r', '\n']);
        if secret.trim().is_empty() {
            return Err(format!("{} is empty", path.display()));
        }
        Ok(secret.to_owned())
    }

    /// A string in the file, or in the environment variable or the file that the file names.
    fn string_or_secret(
        &self,
        section: &mut Section<'_>,
        (key, key_env, key_file): (&'static str, &'static str, &'static str),
        diagnostics: &mut Diagnostics,
    ) -> Option<String> {
        let has_secret = section.get(key_env).is_some() || section.get(key_file).is_some();
        let string = section.string(key, diagnostics);
        let secret = self.secret(section, (key_env, key_file), diagnostics);
        match string {
            Some(string) if has_secret => {
                let message = format!("write one of `{key}`, `{key_env}` and `{key_file}`");
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
        match self.secrets {
            Secrets::Read => self.inner.bytes(section, key, diagnostics),
            Secrets::Assumed => {
                let name = section.string(key, diagnostics)?;
                std::fs::read(self.path(name.value)).ok()
            }
        }
    }
}

/// A value that passes the checks of the secret that a key names.
fn placeholder(key_env: &str) -> &'static str {
    match key_env {
        "address_env" => "postgres://localhost/balde",
        "url_env" | "proxy_env" => "https://localhost/",
        _ => "0123456789abcdef0123456789abcdef",
    }
}
