//! The section `[paths]`: which spellings of requests are accepted.

use balde_config::{Diagnostics, Section};
use balde_policy::{DotSegments, PathRules, Permission};

/// Which spellings of requests are accepted, and in which they are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathsConfig {
    /// Which spellings of paths are accepted.
    pub rules: PathRules,
    /// In which spelling paths are forwarded.
    pub forwarded: ForwardedPath,
    /// What happens to requests with a header field that overrides the method.
    pub method_override: MethodOverride,
}

/// In which spelling a path is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedPath {
    /// In its normal form, so that the upstream reads what the gateway has counted.
    Normalized,
    /// As it was received. Dot segments are refused then.
    Received,
}

/// What happens to requests with `X-HTTP-Method-Override` or a similar field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodOverride {
    /// They are refused, unless the field names the request's own method.
    Refuse,
    /// They are counted by the request's own method and forwarded.
    Keep,
}

impl Default for PathsConfig {
    fn default() -> Self {
        Self {
            rules: PathRules::default().dot_segments(DotSegments::Resolve),
            forwarded: ForwardedPath::Normalized,
            method_override: MethodOverride::Refuse,
        }
    }
}

pub(super) fn read(section: Option<Section<'_>>, diagnostics: &mut Diagnostics) -> PathsConfig {
    let mut config = PathsConfig::default();
    let Some(mut section) = section else {
        return config;
    };
    let words = [
        ("normalized", ForwardedPath::Normalized),
        ("received", ForwardedPath::Received),
    ];
    section.renamed(&[("forwarded", "send")]);
    if let Some(forwarded) = section.choice("send", &words, diagnostics) {
        config.forwarded = forwarded.value;
    }
    if config.forwarded == ForwardedPath::Received {
        config.rules = config.rules.dot_segments(DotSegments::Refuse);
    }
    let words = [("refuse", Permission::Refuse), ("keep", Permission::Keep)];
    if let Some(slashes) = section.choice("escaped_slashes", &words, diagnostics) {
        config.rules = config.rules.escaped_slashes(slashes.value);
    }
    if let Some(parameters) = section.choice("parameters", &words, diagnostics) {
        config.rules = config.rules.parameters(parameters.value);
    }
    if let Some(encoding) = section.choice("double_encoding", &words, diagnostics) {
        config.rules = config.rules.double_encoding(encoding.value);
    }
    let words = [
        ("refuse", MethodOverride::Refuse),
        ("keep", MethodOverride::Keep),
    ];
    if let Some(overriding) = section.choice("method_override", &words, diagnostics) {
        config.method_override = overriding.value;
    }
    section.finish(diagnostics);
    config
}
