//! One clock for all processes of a test.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    micros(since.expect("it is later than 1970"))
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("not that far")
}
