//! Why a command could not be run. A refusal is no error.

use balde::{AcquireError, BadKey, Error, InvalidOpId, StoreFailure, TierError};

use crate::access::Right;

/// Why a command could not be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The caller lacks a right.
    #[error("this needs the right \"{}\"; the caller does not have it", .0.as_str())]
    Forbidden(Right),
    /// The file has no such limit.
    #[error("there is no limit {0:?}; write [limits.{0}] in the service's file")]
    UnknownLimit(String),
    /// The key cannot be used.
    #[error(transparent)]
    BadKey(#[from] BadKey),
    /// An argument is not allowed.
    #[error("{0}")]
    Invalid(String),
    /// There is no such hold, or no longer.
    #[error("there is no open hold with this id; it may have been settled or have expired")]
    UnknownHold,
    /// There is no such tier.
    #[error("limit {limit:?} has no tier {tier:?}")]
    UnknownTier {
        /// The limit.
        limit: String,
        /// The tier.
        tier: String,
    },
    /// The buckets of this limit cannot be listed.
    #[error("buckets in memory have no keys, only hashes of them: this needs storage = \"redis\"")]
    NotListed,
    /// The same idempotency key was used for another request.
    #[error("this idempotency key was used for another request")]
    KeyReused,
    /// A maximum of the service is reached.
    #[error("the service has {0} already, the most that its file allows; try again later")]
    Full(&'static str),
    /// Too many decisions are under way.
    #[error("the service is overloaded; try again in a moment")]
    Overloaded,
    /// The caller's deadline has passed.
    #[error("the deadline has passed")]
    DeadlineExceeded,
    /// Redis did not answer, and the command is none that `on_failure` decides.
    #[error("the store is unavailable: {0}")]
    Store(StoreFailure),
}

impl CommandError {
    /// A word for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Forbidden(_) => "forbidden",
            Self::UnknownLimit(_) => "unknown_limit",
            Self::BadKey(_) => "bad_key",
            Self::Invalid(_) => "invalid",
            Self::UnknownHold => "unknown_hold",
            Self::UnknownTier { .. } => "unknown_tier",
            Self::NotListed => "not_listed",
            Self::KeyReused => "idempotency_key_reused",
            Self::Full(_) => "full",
            Self::Overloaded => "overloaded",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Store(_) => "store_unavailable",
        }
    }
}

impl CommandError {
    /// Returns whether the service could not decide, although nothing is wrong with the command.
    pub const fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Full(_) | Self::Overloaded | Self::DeadlineExceeded | Self::Store(_)
        )
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        match error {
            Error::BadKey(bad) => Self::BadKey(bad),
            Error::Store(failure) => Self::Store(failure),
            other => Self::Invalid(other.to_string()),
        }
    }
}

impl From<InvalidOpId> for CommandError {
    fn from(error: InvalidOpId) -> Self {
        Self::Invalid(format!("the idempotency key cannot be used: {error}"))
    }
}

impl CommandError {
    pub(super) fn of_tier(error: TierError, limit: &str) -> Self {
        match error {
            TierError::Unknown { name } => Self::UnknownTier {
                limit: limit.to_owned(),
                tier: name,
            },
            TierError::BadKey(bad) => Self::BadKey(bad),
            TierError::Full => Self::Full("so many keys with a tier"),
            other => Self::Invalid(other.to_string()),
        }
    }

    /// The errors of waiting that are no refusals.
    pub(super) fn of_waiting(error: &AcquireError) -> Option<Self> {
        match error {
            AcquireError::BadKey(bad) => Some(Self::BadKey(*bad)),
            AcquireError::TooManyWaiters { .. } => Some(Self::Full("so many waiting requests")),
            AcquireError::Store(failure) => Some(Self::Store(*failure)),
            _ => None,
        }
    }
}
