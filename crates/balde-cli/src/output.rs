//! What a service writes to standard output: its log, and the lines at its start and end. If the log is
//! JSON, these lines are too. All of them go through one bounded queue, for which nobody waits.

use std::fmt::Display;
use std::io::{self, IsTerminal as _};

use balde::telemetry::{LogFormat, LogWriter, Logs};
use tracing::{Dispatch, Level, Metadata};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::alert_lines::{AlertLines, is_alert};
use crate::print::print_line;

/// The log options of every command that runs until a signal.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Log level: error, warn (adds alerts), info (adds refusals) or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: Level,
    /// Format of standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "auto")]
    log_format: Format,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Text on a terminal, else JSON.
    Auto,
    /// Lines for people.
    Text,
    /// One JSON object per line, and nothing else.
    Json,
}

/// The format in use, for lines that are not events of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    is_json: bool,
}

impl Output {
    /// Installs the log.
    pub(crate) fn start(args: &LogArgs) -> Self {
        let output = Self::new(args.log_format);
        let logs = output.logs(args.log_level).layer_to(LogWriter::stdout());
        tracing_subscriber::registry().with(logs).init();
        output
    }

    /// Like [`Output::start`], but in text, alerts are sentences. They are written from INFO, or from
    /// ERROR if that is the level.
    pub(crate) fn start_with_alerts(args: &LogArgs) -> Self {
        let output = Self::new(args.log_format);
        if output.is_json {
            return Self::start(args);
        }
        let level = args.log_level;
        let is_other =
            move |metadata: &Metadata<'_>| !is_alert(metadata) && *metadata.level() <= level;
        let others = filter_fn(is_other).with_max_level_hint(level);
        let alerts_from = if level == Level::ERROR {
            Level::ERROR
        } else {
            Level::INFO
        };
        let alerts =
            filter_fn(move |metadata| is_alert(metadata) && *metadata.level() <= alerts_from)
                .with_max_level_hint(alerts_from);
        let lines = AlertLines::new(has_colors());
        tracing_subscriber::registry()
            .with(
                output
                    .logs(level)
                    .layer_to(LogWriter::stdout())
                    .with_filter(others),
            )
            .with(lines.with_filter(alerts))
            .init();
        output
    }

    fn new(format: Format) -> Self {
        let is_json = match format {
            Format::Auto => !io::stdout().is_terminal(),
            Format::Text => false,
            Format::Json => true,
        };
        Self { is_json }
    }

    fn logs(self, level: Level) -> Logs {
        let format = if self.is_json {
            LogFormat::Json
        } else {
            LogFormat::Text
        };
        Logs::new().level(level).format(format).colors(has_colors())
    }

    pub(crate) const fn is_json(self) -> bool {
        self.is_json
    }

    /// Writes the address of an endpoint, at every log level.
    pub(crate) fn address(self, name: &str, url: impl Display) {
        if self.is_json {
            let url = url.to_string();
            self.always(|| {
                tracing::info!(
                    target: "balde", event_type = "listening", endpoint = name, url,
                    "{name} at {url}"
                );
            });
        } else {
            print_line(format_args!("{name:<10} {url}"));
        }
    }

    /// Writes a line about the service itself, such as a reload, at every log level.
    pub(crate) fn tell(self, event_type: &'static str, message: impl Display) {
        if self.is_json {
            self.always(|| tracing::info!(target: "balde", event_type, "{message}"));
        } else {
            print_line(message);
        }
    }

    /// Runs `log` with a log at INFO. That costs other threads time, and is for rare events.
    fn always(self, log: impl FnOnce()) {
        let logs = self.logs(Level::INFO).layer_to(LogWriter::stdout());
        let dispatch = Dispatch::new(tracing_subscriber::registry().with(logs));
        tracing::dispatcher::with_default(&dispatch, log);
        drop(dispatch);
        // Events below the level of the log are free again.
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Whether standard output is a terminal that shows colours, and `NO_COLOR` does not forbid them.
fn has_colors() -> bool {
    let value = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let term = value("TERM");
    io::stdout().is_terminal()
        && value("NO_COLOR").is_none()
        && term.is_some_and(|term| term != "dumb")
}
