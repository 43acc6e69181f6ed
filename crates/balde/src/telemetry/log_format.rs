//! The formats of log lines.

/// The format of log lines, for `Logs` (feature `logs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// Text if standard output is a terminal, else JSON. The default.
    #[default]
    Auto,
    /// One JSON object per line.
    Json,
    /// One line of text for people: time, level and message, then the fields as `name=value`.
    Text,
}
