//! Why a sink could not be made.

/// Why a sink could not be made from its settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// A URL is invalid, or has a scheme that this sink does not support.
    #[error("{advice}")]
    Url {
        /// What it must be.
        advice: &'static str,
    },
    /// A secret is missing or malformed.
    #[error("{advice}")]
    Secret {
        /// Which secret, and what it must be.
        advice: &'static str,
    },
    /// The TLS configuration is invalid.
    #[error("invalid TLS configuration: {reason}")]
    Tls {
        /// What is wrong.
        reason: String,
    },
    /// The template of a body is invalid.
    #[error("{reason}")]
    Template {
        /// What is wrong, and where.
        reason: String,
    },
    /// A timeout or a name is out of range.
    #[error("{advice}")]
    Setting {
        /// Which setting, and what it must be.
        advice: &'static str,
    },
}
