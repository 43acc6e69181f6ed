//! The monitor's file: read, checked as a whole, and only then built.
//!
//! Whatever is wrong is told at once and all together, with file, line, column and what to do.
//! `docs/monitor.toml` is a file with every key. Secrets are not in the file: it names the variables
//! of the environment that hold them.

mod alerts;
mod participants;
mod plan;
mod sinks;

use std::fmt;
use std::path::{Path, PathBuf};

use balde::options::{Faults, OptionsError, Section, check_document, text_of};

use crate::alert::{AlertRules, Routes, StalenessRule};
use crate::analyse::SettingsByPolicy;
use crate::schedule::PollPlan;

pub use participants::{ParticipantConfig, SourceConfig};
pub use plan::{HttpConfig, ScheduleConfig};
pub use sinks::{SinkConfig, SinkKind};

/// What the file says, checked.
#[derive(Clone)]
pub struct Config {
    /// Where to listen, and who may change something.
    pub http: HttpConfig,
    /// The history's address.
    pub history: String,
    /// When to ask, and how long what is kept.
    pub plan: PollPlan,
    /// Who runs the cycles.
    pub schedule: ScheduleConfig,
    /// Whom to ask about.
    pub participants: Vec<ParticipantConfig>,
    /// How buckets are watched.
    pub rules: AlertRules,
    /// How the data itself is watched.
    pub staleness: StalenessRule,
    /// How samples are read.
    pub analysis: SettingsByPolicy,
    /// Which severity goes where.
    pub routes: Routes,
    /// Where alerts go.
    pub sinks: Vec<SinkConfig>,
}

impl Config {
    /// Reads a file. Paths in it are relative to its folder.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, OptionsError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let folder = path.parent().unwrap_or(Path::new(""));
        let variable = |name: &str| std::env::var(name).ok();
        Self::parse(&text_of(path)?, &name, folder, variable)
    }

    /// The same of a text that is there already; `name` is what messages call it. Variables that are
    /// empty are not set.
    pub fn parse(
        text: &str,
        name: &str,
        folder: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, OptionsError> {
        let reader = Reader {
            folder: folder.to_owned(),
            variable: &|name| variable(name).filter(|value| !value.is_empty()),
        };
        check_document(Faults::new(name, text), |mut root, faults| {
            let http = plan::http(root.table("http", faults), &reader, faults);
            let history = root.table("history", faults);
            let (history, retention) = plan::history(history, &reader, faults);
            let (schedule, plan) = plan::schedule(&mut root, retention, faults);
            let participants = participants::check(&mut root, &reader, faults);
            let alerts = alerts::check(root.table("alerts", faults), faults);
            let routes = alerts::routes(root.table("routes", faults), faults);
            let sinks = sinks::check(&mut root, &reader, faults);
            root.finish(faults);
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
        // The history's address may have a password in it.
        f.debug_struct("Config")
            .field("http", &self.http)
            .field("participants", &self.participants)
            .field("sinks", &self.sinks)
            .finish_non_exhaustive()
    }
}

/// How values find what they point at.
struct Reader<'a> {
    folder: PathBuf,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    /// A path of the file.
    fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// The value of a variable that `key` names; a fault when it is not set.
    fn secret(
        &self,
        section: &mut Section<'_>,
        key: &'static str,
        faults: &mut Faults<'_>,
    ) -> Option<String> {
        let name = section.text(key, faults)?;
        let value = (self.variable)(name.value);
        if value.is_none() {
            let message = format!("the variable {} is not set, or empty", name.value);
            faults.at(Some(name.span), message);
        }
        value
    }

    /// A text in the file, or in a variable that the file names.
    fn text_or_secret(
        &self,
        section: &mut Section<'_>,
        (key, key_env): (&'static str, &'static str),
        faults: &mut Faults<'_>,
    ) -> Option<String> {
        let has_variable = section.any(key_env).is_some();
        let text = section.text(key, faults);
        let secret = self.secret(section, key_env, faults);
        match text {
            Some(text) if has_variable => {
                let message = format!("name either `{key}` or `{key_env}`");
                faults.at(Some(text.span), message);
                None
            }
            Some(text) => Some(text.value.to_owned()),
            None => secret,
        }
    }

    /// The bytes of a file that `key` names.
    fn bytes(
        &self,
        section: &mut Section<'_>,
        key: &'static str,
        faults: &mut Faults<'_>,
    ) -> Option<Vec<u8>> {
        let name = section.text(key, faults)?;
        match std::fs::read(self.path(name.value)) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                faults.at(
                    Some(name.span),
                    format!("this file cannot be read: {error}"),
                );
                None
            }
        }
    }
}
