//! Rate-limit policies as data, and the engine that enforces them.
//!
//! A [`policy::Policy`] is a limit with a name, a scope, match rules and a price list. A
//! [`profile::Profile`] is a set of policies read from a TOML file.

pub mod policy;
pub mod profile;
