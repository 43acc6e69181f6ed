//! The fields that tell callers how they stand, written and read.
