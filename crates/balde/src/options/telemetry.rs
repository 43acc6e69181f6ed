//! Installs the subscriber that `[logs]` and `[tracing]` describe.

use tracing::subscriber::{SetGlobalDefaultError, set_global_default};
use tracing_subscriber::layer::SubscriberExt as _;

use super::Options;
use crate::error::BuildError;
use crate::telemetry::{Logs, LogsGuard};
#[cfg(feature = "otlp")]
use crate::telemetry::{Otlp, OtlpError, OtlpGuard};

impl Options {
    /// Installs the subscriber that `[logs]` and `[tracing]` describe, for the whole process: log
    /// lines on standard output and, with the feature `otlp`, spans to the collector. Call it once,
    /// early in `main`, and keep the guard until the program ends.
    ///
    /// A program with a subscriber of its own adds the layers of [`logs`](Options::logs) and `otlp`
    /// to it instead.
    ///
    /// ```no_run
    /// let options = balde::Options::read("limits.toml")?;
    /// let _telemetry = options.init_telemetry()?;
    /// let limiters = options.build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn init_telemetry(&self) -> Result<TelemetryGuard, TelemetryError> {
        self.check_features().map_err(TelemetryError::Feature)?;
        let (lines, logs) = self.logs().layer();
        let registry = tracing_subscriber::registry().with(lines);
        #[cfg(feature = "otlp")]
        let (registry, spans) = match self.otlp().map(Otlp::layer).transpose()? {
            Some((layer, guard)) => (registry.with(Some(layer)), Some(guard)),
            None => (registry.with(None), None),
        };
        set_global_default(registry)?;
        Ok(TelemetryGuard {
            #[cfg(feature = "otlp")]
            _spans: spans,
            _logs: logs,
        })
    }

    /// Level and format of log lines, from `[logs]`.
    pub fn logs(&self) -> Logs {
        self.logs.logs()
    }

    /// The export of spans, from `[tracing]`; `None` if it is off.
    #[cfg(feature = "otlp")]
    pub fn otlp(&self) -> Option<Otlp> {
        self.tracing
            .as_ref()
            .map(super::tracing::TracingOptions::otlp)
    }
}

/// Keeps log lines and spans flowing. When it is dropped, it writes and sends what remains.
#[derive(Debug)]
#[must_use = "what remains at the end of the program is lost without the guard"]
pub struct TelemetryGuard {
    #[cfg(feature = "otlp")]
    _spans: Option<OtlpGuard>,
    _logs: LogsGuard,
}

/// Why the subscriber was not installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The program has installed a subscriber already.
    #[error(
        "the program has a tracing subscriber already; add the layers of Options::logs and \
         Options::otlp to it"
    )]
    Installed(#[from] SetGlobalDefaultError),
    /// Spans cannot be exported.
    #[cfg(feature = "otlp")]
    #[error(transparent)]
    Otlp(#[from] OtlpError),
    /// A section needs a feature that this build lacks.
    #[error(transparent)]
    Feature(BuildError),
}
