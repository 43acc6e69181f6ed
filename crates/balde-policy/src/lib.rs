#![doc = include_str!("../README.md")]

mod engine;
#[cfg(feature = "http")]
mod http_headers;
#[cfg(feature = "tower")]
mod layer;
mod path;
mod policy;
mod profile;

pub use balde::{Limit, OnFailure};
pub use balde_config::{ConfigError, Diagnostic, Position};
pub use engine::{
    ASSIGNED_MAX, AdmitError, AssignError, BucketRef, BucketState, Credited, Engine, EngineBuilder,
    InFlight, Matcher, NoBucketError, OnMissingPart, Outcome, Refusal, Settlement, StateError,
    Subject, Ticket, Unavailable,
};
#[cfg(feature = "http")]
pub use http_headers::HttpHeaders;
#[cfg(feature = "tower")]
pub use layer::{PolicyLayer, PolicyRules};
pub use path::{DotSegments, PathError, PathRules, Permission};
pub use policy::{
    ADMISSION_DEFAULT, ByVariant, COST_MAX, Condition, Credit, FlagRule, Flags, Headers, KeyError,
    KeyPart, MatchRule, Mode, NamedPattern, PathTemplate, PathTemplateError, Pattern, PatternError,
    Policy, PriceList, Request, Scope, Variant, VariantSource, percent_decoded, query_pairs,
};
pub use profile::{NAME_BYTES_MAX, POLICIES_MAX, Profile, Setting, SettingValue};
