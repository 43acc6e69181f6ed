//! The sections of the protocols, and `[dynamic]`.

use balde::options::{SectionContext, StorageChoice};
use balde_config::{Diagnostics, Resolver, Section};

use super::listener::ListenerConfig;
use super::{count, size};

/// JSON over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// The address with TLS and the limits on connections.
    pub listener: ListenerConfig,
    /// The longest body of a request, in bytes.
    pub body_bytes_max: usize,
}

/// The Redis protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RespConfig {
    /// The address with TLS and the limits on connections.
    pub listener: ListenerConfig,
    /// The longest argument of a command, in bytes.
    pub argument_bytes_max: usize,
    /// The most arguments of a command.
    pub arguments_max: usize,
    /// The most bytes of a connection's answers that wait to be written before its next command is
    /// read.
    pub reply_bytes_max: usize,
}

/// Limits that requests bring along: those of `CL.THROTTLE` and overrides of Envoy's descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicConfig {
    /// Where their buckets are kept.
    pub storage: StorageChoice,
    /// The most buckets in memory.
    pub keys_max: usize,
    /// The most different limits.
    pub limits_max: usize,
}

pub(super) fn http(
    root: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<HttpConfig> {
    let mut section = root.table("http", diagnostics)?;
    let listener = ListenerConfig::read(&mut section, "127.0.0.1:8085", resolver, diagnostics);
    let bytes = 256..=16 << 20;
    let body_bytes_max = size(&mut section, "body_size_max", bytes, 64 << 10, diagnostics);
    section.finish(diagnostics);
    Some(HttpConfig {
        listener: listener?,
        body_bytes_max,
    })
}

pub(super) fn resp(
    root: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<RespConfig> {
    let mut section = root.table("resp", diagnostics)?;
    let listener = ListenerConfig::read(&mut section, "127.0.0.1:6380", resolver, diagnostics);
    let most = 8..=100_000;
    let arguments_max = count(&mut section, "arguments_max", most, 1_024, diagnostics);
    let mut sized = |key, range, default| size(&mut section, key, range, default, diagnostics);
    let argument_bytes_max = sized("argument_size_max", 256..=16 << 20, 64 << 10);
    let reply_bytes_max = sized("reply_size_max", 1_024..=64 << 20, 256 << 10);
    section.finish(diagnostics);
    Some(RespConfig {
        listener: listener?,
        argument_bytes_max,
        arguments_max,
        reply_bytes_max,
    })
}

pub(super) fn dynamic(
    root: &mut Section<'_>,
    context: &SectionContext<'_>,
    diagnostics: &mut Diagnostics,
) -> DynamicConfig {
    let mut config = DynamicConfig {
        storage: StorageChoice::Memory,
        keys_max: 1_000_000,
        limits_max: 256,
    };
    if let Some(mut section) = root.table("dynamic", diagnostics) {
        config.storage = context.storage(&mut section, diagnostics);
        let mut counted =
            |key, most, default| count(&mut section, key, 1..=most, default, diagnostics);
        config.keys_max = counted("keys_max", 1 << 30, config.keys_max);
        config.limits_max = counted("limits_max", 4_000, config.limits_max);
        section.finish(diagnostics);
    }
    config
}
