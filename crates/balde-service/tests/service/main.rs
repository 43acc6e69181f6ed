//! The service over its protocols.
