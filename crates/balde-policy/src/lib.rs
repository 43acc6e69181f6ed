//! Rate-limit policies as data, and the engine that enforces them.
//!
//! A [`Policy`] is a limit with a name, a scope, match rules and a price list. A [`Profile`] is a
//! set of policies read from a TOML file.

mod policy;
mod profile;

pub use balde_config::{ConfigError, Diagnostic, Position};
pub use policy::{
    ADMISSION_DEFAULT, ByVariant, COST_MAX, Condition, Credit, FlagRule, Flags, Headers, KeyError,
    KeyPart, MatchRule, Mode, NamedPattern, PathTemplate, PathTemplateError, Pattern, PatternError,
    Policy, PriceList, Request, Scope, Variant, VariantSource, percent_decoded, query_pairs,
    write_key_part,
};
pub use profile::{Draw, DrawError, NAME_BYTES_MAX, POLICIES_MAX, Profile, Setting, SettingValue};
