//! Bodies of refusals.
