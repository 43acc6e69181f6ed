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
        _ => StoreFailure::Rejected,
    }
}

/// Before Redis 7, an error inside a script is wrapped in another error, code included.
fn by_text(error: &RedisError) -> StoreFailure {
    let code = error.code().unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    by_words(code, detail)
}

fn by_words(code: &str, detail: &str) -> StoreFailure {
    let says = |word: &str| code == word || detail.contains(&format!("-{word} "));
    // An error of a running script names its line. Everything else comes from the server itself.
    let is_of_script = detail.contains("user_script");
    if says("OOM") {
        StoreFailure::OutOfMemory
    } else if says("READONLY") || says("NOREPLICAS") {
        StoreFailure::ReadOnly
    } else if says("NOAUTH") || says("WRONGPASS") || says("NOPERM") {
        StoreFailure::Unauthorized
    } else if says("MISCONF") || says("BUSY") {
        StoreFailure::NotReady
    } else if says("FOREIGN") || says("WRONGTYPE") || is_of_script && detail.contains("WRONGTYPE ")
    {
        StoreFailure::ForeignValue
    } else if is_of_script {
        StoreFailure::Script
    } else {
        StoreFailure::Rejected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_script_are_told_from_errors_of_the_server() {
        for (code, detail, expected) in [
            (
                "ERR",
                "max number of clients reached",
                StoreFailure::Rejected,
            ),
            ("ERR", "unknown command 'EVALSHA'", StoreFailure::Rejected),
            ("ERR", "", StoreFailure::Rejected),
            ("", "", StoreFailure::Rejected),
            (
                "FOREIGN",
                "bucket 1 holds what is not a bucket",
                StoreFailure::ForeignValue,
            ),
            // Redis 7 keeps the code of an error inside a script.
            (
                "WRONGTYPE",
                "Operation against a key holding the wrong kind of value script: 5f, on \
                 @user_script:195.",
                StoreFailure::ForeignValue,
            ),
            // Redis 6.2 wraps it.
            (
                "ERR",
                "Error running script (call to f_5f): @user_script:195: WRONGTYPE Operation \
                 against a key holding the wrong kind of value",
                StoreFailure::ForeignValue,
            ),
            (
                "ERR",
                "Error running script (call to f_5f): @user_script:12: -OOM command not allowed",
                StoreFailure::OutOfMemory,
            ),
            (
                "ERR",
                "Error running script (call to f_5f): @user_script:9: user_script:9: attempt to \
                 index a nil value",
                StoreFailure::Script,
            ),
            (
                "ERR",
                "user_script:9: attempt to index a nil value script: 5f, on @user_script:9.",
                StoreFailure::Script,
            ),
        ] {
            assert_eq!(by_words(code, detail), expected, "{code} {detail}");
        }
    }
}
