//! What a long job needs beside its throttler: how far it is, and how to go on after it was killed.

mod checkpoint;
mod progress;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use progress::{Progress, ProgressReport};
