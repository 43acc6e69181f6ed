//! The memory store of `balde`, compiled once more over loom's atomics, with the stories that
//! loom tells in every order. Nothing but tests.

#[cfg(test)]
#[path = "../../src/store/memory/mod.rs"]
#[expect(dead_code, reason = "only what the stories need is called here")]
#[expect(unused_imports, reason = "the limiter around the store is not here")]
#[expect(unreachable_pub, reason = "public in the crate where these files live")]
mod memory;

#[cfg(all(test, feature = "http"))]
#[path = "../../src/key.rs"]
#[expect(dead_code, reason = "the memory store reads only the words of a key")]
mod key;
