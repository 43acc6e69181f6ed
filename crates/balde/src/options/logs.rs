//! The section `[logs]`.

use balde_config::{Diagnostics, Section};
use tracing::level_filters::LevelFilter;

use super::variables::{Variables, word};
#[cfg(feature = "logs")]
use crate::telemetry::Logs;
use crate::telemetry::{Denials, LogFormat};

pub(super) const DENIALS: [(&str, Denials); 2] =
    [("summary", Denials::Summary), ("every", Denials::Every)];

const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

const FORMATS: [(&str, LogFormat); 3] = [
    ("auto", LogFormat::Auto),
    ("json", LogFormat::Json),
    ("text", LogFormat::Text),
];

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogsOptions {
    level: Option<LevelFilter>,
    format: Option<LogFormat>,
    denials: Option<Denials>,
}

impl LogsOptions {
    /// Reads `[logs]`. The variables `RL_LOG_LEVEL`, `RL_LOG_FORMAT` and `RL_LOG_DENIALS` take
    /// precedence.
    pub(super) fn read(
        root: Option<&mut Section<'_>>,
        variables: &Variables<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let mut options = Self::default();
        if let Some(mut section) = root.and_then(|root| root.table("logs", diagnostics)) {
            let level = section.choice("level", &LEVELS, diagnostics);
            let format = section.choice("format", &FORMATS, diagnostics);
            let denials = section.choice("denials", &DENIALS, diagnostics);
            section.finish(diagnostics);
            options = Self {
                level: level.map(|level| level.value),
                format: format.map(|format| format.value),
                denials: denials.map(|denials| denials.value),
            };
        }
        let level = word(variables, "RL_LOG_LEVEL", &LEVELS, diagnostics);
        let format = word(variables, "RL_LOG_FORMAT", &FORMATS, diagnostics);
        let denials = word(variables, "RL_LOG_DENIALS", &DENIALS, diagnostics);
        Self {
            level: level.or(options.level),
            format: format.or(options.format),
            denials: denials.or(options.denials),
        }
    }

    /// Returns whether lines are configured that this build cannot write. Which denials are logged
    /// is up to the limiters.
    pub(super) const fn is_missing(&self) -> bool {
        cfg!(not(feature = "logs")) && (self.level.is_some() || self.format.is_some())
    }

    pub(super) fn denials(&self) -> Denials {
        self.denials.unwrap_or_default()
    }

    #[cfg(feature = "logs")]
    pub(super) fn logs(&self) -> Logs {
        let mut logs = Logs::new();
        if let Some(level) = self.level {
            logs = logs.level(level);
        }
        if let Some(format) = self.format {
            logs = logs.format(format);
        }
        logs
    }
}
