//! The memory store of `balde`, and the prefetched tokens of `balde-throttle`, compiled once more over loom's atomics, with tests that loom runs in all
//! interleavings with few preemptions. Nothing but tests.

/// Only because checks of the workspace switch all features on.
#[cfg(all(test, feature = "tower"))]
#[path = "../../src/key/mod.rs"]
#[expect(dead_code, unused_imports, reason = "only short keys are needed here")]
#[expect(unreachable_pub, reason = "public in the crate where these files live")]
mod key;

#[cfg(test)]
#[path = "../../src/store/memory/mod.rs"]
#[expect(dead_code, reason = "only what the tests need is called here")]
#[expect(unused_imports, reason = "the limiter around the store is not here")]
#[expect(unreachable_pub, reason = "public in the crate where these files live")]
mod memory;

/// The prefetched tokens of `balde-throttle`.
#[cfg(test)]
#[path = "../../../balde-throttle/src/scheduler/fast_path/mod.rs"]
#[expect(dead_code, reason = "only what the tests need is called here")]
mod fast_path;
