//! The sections `[policies]` and `[limiting]`, and `[proxy]`, which asks them.

use balde::StorageMode;
use balde_config::{Diagnostics, Located, Resolver, Section, Source};
use balde_policy::Profile;

use super::listener::ListenerConfig;

/// The most that `keys_max` may be.
const KEYS_MAX_MAX: u64 = 1 << 30;

/// The policies that decide on requests of proxies.
#[derive(Clone, Debug)]
pub struct PoliciesConfig {
    /// The policies of the section `[policies]` or of the file that `profile` names.
    pub profile: Profile,
    /// Where their buckets are kept.
    pub storage: StorageMode,
    /// The most buckets in memory, for each policy; `None` for the default of the SDK.
    pub keys_max: Option<usize>,
    /// Whether all policies count without refusing.
    pub is_shadow: bool,
}

/// The questions of proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfig {
    /// The address with TLS and the limits on connections.
    pub listener: ListenerConfig,
}

/// What of `[limiting]` is not the profile itself.
struct Limiting {
    /// Whether the section names a profile, which may have problems of its own.
    is_named: bool,
    profile: Option<Profile>,
    storage: StorageMode,
    keys_max: Option<usize>,
    is_shadow: bool,
}

/// Reads the policies. `has_redis` says whether Redis has an address, or problems of its own.
pub(super) fn read(
    root: &mut Section<'_>,
    has_redis: bool,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<PoliciesConfig> {
    let inline = root.table("policies", diagnostics);
    let limiting = root.table("limiting", diagnostics);
    let limiting =
        limiting.map(|section| limiting_section(section, has_redis, resolver, diagnostics));
    let is_named = limiting.as_ref().is_some_and(|limiting| limiting.is_named);
    let profile = match inline {
        Some(inline) => {
            if is_named {
                let message = "write either `profile` in [limiting] or [policies], not both";
                diagnostics.at(inline.span(), message);
            }
            let source = diagnostics.source().clone();
            Some(Profile::from_section(
                inline,
                "service",
                &source,
                diagnostics,
            ))
        }
        None => limiting
            .as_ref()
            .and_then(|limiting| limiting.profile.clone()),
    };
    let limiting = limiting.unwrap_or(Limiting {
        is_named: false,
        profile: None,
        storage: StorageMode::Memory,
        keys_max: None,
        is_shadow: false,
    });
    Some(PoliciesConfig {
        profile: profile?,
        storage: limiting.storage,
        keys_max: limiting.keys_max,
        is_shadow: limiting.is_shadow,
    })
}

fn limiting_section(
    mut section: Section<'_>,
    has_redis: bool,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Limiting {
    let named = section.string("profile", diagnostics);
    let words = [
        ("memory", StorageMode::Memory),
        ("redis", StorageMode::Redis),
    ];
    let storage = section.choice("storage", &words, diagnostics);
    let keys_max = section.integer("keys_max", 1..=KEYS_MAX_MAX, diagnostics);
    let shadow = section.boolean("shadow", diagnostics);
    if let Some(storage) = storage
        && storage.value == StorageMode::Redis
        && !has_redis
    {
        let message = "storage in Redis needs `addr` in [redis], or REDIS_ADDR";
        diagnostics.at(storage.span, message);
    }
    section.finish(diagnostics);
    Limiting {
        is_named: named.is_some(),
        profile: named.and_then(|named| profile(named, resolver, diagnostics)),
        storage: storage.map_or(StorageMode::Memory, |storage| storage.value),
        keys_max: keys_max.and_then(|keys_max| usize::try_from(keys_max.value).ok()),
        is_shadow: shadow.is_some_and(|shadow| shadow.value),
    }
}

fn profile(
    named: Located<&str>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Profile> {
    let source = Source::read(resolver.path(named.value));
    match source.and_then(|source| Profile::from_source(&source, &[])) {
        Ok(profile) => Some(profile),
        Err(error) => {
            // The problems are in another file: each is shown with its own place.
            for problem in error.diagnostics() {
                diagnostics.at(named.span, problem.to_string());
            }
            None
        }
    }
}

/// Reads `[proxy]`. It needs policies, and proxies that are trusted.
pub(super) fn proxy(
    root: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<ProxyConfig> {
    let mut section = root.table("proxy", diagnostics)?;
    let span = section.span();
    let listener = ListenerConfig::read(&mut section, "127.0.0.1:8082", resolver, diagnostics);
    section.finish(diagnostics);
    if !root.contains("policies") && !root.contains("limiting") {
        let message = "[proxy] asks policies, and there are none; write [[policies.policy]], or \
                       `profile` in [limiting]";
        diagnostics.at(span, message);
    }
    let identity = root.table("identity", diagnostics);
    if !identity.is_some_and(|identity| identity.contains("trusted_proxies")) {
        let message = "[proxy] answers trusted proxies only; write their addresses into \
                       `trusted_proxies` of [identity], such as [\"127.0.0.1\"]";
        diagnostics.at(span, message);
    }
    Some(ProxyConfig {
        listener: listener?,
    })
}
