//! What an error of the client or the server means here.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::failure::StoreFailure;

/// The failure that callers are told. The error's text stays here: it may quote a key, an address
/// or what somebody wrote in a setting.
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
        // A server that breaks off in the middle of an answer is seen as one that cannot be parsed.
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound | ErrorKind::Parse => {
            StoreFailure::Disconnected
        }
        _ => StoreFailure::Script,
    }
}

/// Before Redis 7 an error inside a script came wrapped in the script's own, code and all.
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
