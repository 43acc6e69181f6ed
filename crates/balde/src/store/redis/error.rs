//! Which [`StoreFailure`] an error of the client or the server is.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::failure::StoreFailure;

/// The failure that callers get. The error's text is dropped: it may quote a key, an address or a
/// setting.
pub(super) fn failure_of(error: &RedisError) -> StoreFailure {
    match error.kind() {
        _ if error.is_timeout() => StoreFailure::Timeout,
        ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
            StoreFailure::Unauthorized
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => StoreFailure::ReadOnly,
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::TryAgain
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask,
        ) => StoreFailure::NotReady,
        ErrorKind::Server(_) | ErrorKind::Extension => by_text(error),
        // A reply that is cut off in the middle appears as a parse error.
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound | ErrorKind::Parse => {
            StoreFailure::Disconnected
        }
        _ => StoreFailure::Script,
    }
}

/// Before Redis 7, an error inside a script is wrapped in another error, code included.
fn by_text(error: &RedisError) -> StoreFailure {
    let code = error.code().unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    let says = |word: &str| code == word || detail.contains(&format!("-{word} "));
    if says("OOM") {
        StoreFailure::OutOfMemory
    } else if says("READONLY") || says("NOREPLICAS") {
        StoreFailure::ReadOnly
    } else if says("NOAUTH") || says("WRONGPASS") || says("NOPERM") {
        StoreFailure::Unauthorized
    } else if says("MISCONF") || says("BUSY") {
        StoreFailure::NotReady
    } else {
        StoreFailure::Script
    }
}
