//! The layer that writes log lines: its level, its format, and whether a thread waits for the writer.

use std::fmt;
use std::io::{self, IsTerminal as _};

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::registry::LookupSpan;

use super::lines::{LineFormat, LineLayer};
use super::log_format::LogFormat;
use super::log_writer::LogWriter;

/// A `tracing` layer that writes events at INFO and above to standard output, one JSON object per
/// line.
///
/// Every line has `timestamp` (RFC 3339, UTC), `level`, `target` and `message`. Lines of this crate
/// also have `event_type`, and where they are about a decision `decision`, `strategy`,
/// `storage_mode`, `policy`, `latency_ms`, `retry_after_ms`, `remaining` and `key_hash`. All other
/// fields of the event follow. Fields without a value are left out.
///
/// `trace_id` and `span_id` come from the current OpenTelemetry span (feature `otlp`), else from
/// fields of these names in the nearest `tracing` span.
///
/// Lines that cannot be written are lost; this changes no decision. Writing to a full pipe blocks the
/// thread. [`Logs`] has a layer that does not, and lines for people.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let subscriber = tracing_subscriber::registry().with(balde::telemetry::json_logs());
/// # tracing::subscriber::with_default(subscriber, || {
/// let limiter = balde::RateLimiter::new("1/min")?;
/// limiter.blocking().check("alice");
/// limiter.blocking().check("alice"); // writes a line
/// # Ok::<(), balde::BuildError>(()) })?;
/// # Ok::<(), balde::BuildError>(())
/// ```
pub fn json_logs<S>() -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    json_logs_to(io::stdout)
}

/// Like [`json_logs`], but writes to any writer.
pub fn json_logs_to<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    json_logs_at(LevelFilter::INFO, writer)
}

/// Like [`json_logs_to`], for events at the given level and above.
pub fn json_logs_at<S, W>(level: impl Into<LevelFilter>, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let logs = Logs::new().level(level).format(LogFormat::Json);
    logs.layer_to(writer)
}

/// Configures a `tracing` layer that writes log lines: text for people on a terminal, otherwise one
/// JSON object per line, as [`json_logs`](super::json_logs) describes it.
///
/// ```no_run
/// use balde::telemetry::Logs;
/// use tracing::level_filters::LevelFilter;
/// use tracing_subscriber::layer::SubscriberExt;
/// use tracing_subscriber::util::SubscriberInitExt;
///
/// let (layer, guard) = Logs::new().level(LevelFilter::WARN).layer();
/// tracing_subscriber::registry().with(layer).init();
/// // … serve …
/// drop(guard); // writes the remaining lines
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing is written until its layer is added to a subscriber"]
pub struct Logs {
    level: LevelFilter,
    format: LogFormat,
    has_colors: bool,
}

impl Logs {
    /// Lines at INFO and above, with [`LogFormat::Auto`], without colours.
    pub const fn new() -> Self {
        Self {
            level: LevelFilter::INFO,
            format: LogFormat::Auto,
            has_colors: false,
        }
    }

    /// Sets the lowest level that is written.
    pub fn level(self, level: impl Into<LevelFilter>) -> Self {
        Self {
            level: level.into(),
            ..self
        }
    }

    /// Sets the format.
    pub const fn format(self, format: LogFormat) -> Self {
        Self { format, ..self }
    }

    /// Sets whether lines of text have colours, as escape sequences of terminals. JSON never has.
    pub const fn colors(self, has_colors: bool) -> Self {
        Self { has_colors, ..self }
    }

    /// Returns a layer that writes to standard output, and a guard to keep until the program ends.
    ///
    /// Another thread writes ([`LogWriter`]), so that no decision waits for a full pipe. Up to 4 MiB of
    /// lines wait; more are dropped and counted in a line `lines_dropped`. Lines about every denial
    /// ([`Denials::Every`](super::Denials::Every)) wait in the queue of their limiter.
    pub fn layer<S>(self) -> (impl Layer<S>, LogsGuard)
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let writer = LogWriter::stdout();
        let layer = self.layer_to(writer.clone());
        (layer, LogsGuard { writer })
    }

    /// Returns a layer that writes to any writer, on the thread that logs.
    pub fn layer_to<S, W>(self, writer: W) -> impl Layer<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
        W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
    {
        let text = LineFormat::Text {
            has_colors: self.has_colors,
        };
        let format = match self.format {
            LogFormat::Text => text,
            LogFormat::Auto if io::stdout().is_terminal() => text,
            LogFormat::Json | LogFormat::Auto => LineFormat::Json,
        };
        LineLayer { writer, format }.with_filter(self.level)
    }
}

impl Default for Logs {
    fn default() -> Self {
        Self::new()
    }
}

/// Keeps lines from being lost at the end of the program: when it is dropped, it waits until all lines
/// are written, as [`LogWriter::flush_all`] does.
#[must_use = "lines that wait when the program ends are lost without the guard"]
pub struct LogsGuard {
    writer: LogWriter,
}

impl LogsGuard {
    /// Waits until all lines so far are written, as [`LogWriter::flush_all`] does. Returns whether
    /// they are.
    pub fn flush(&self) -> bool {
        self.writer.flush_all()
    }
}

impl Drop for LogsGuard {
    fn drop(&mut self) {
        self.flush();
    }
}

impl fmt::Debug for LogsGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogsGuard").finish_non_exhaustive()
    }
}
