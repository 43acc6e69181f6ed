//! Who is asking, and what they are told.

use ::http::HeaderName;

use super::fault::Faults;
use super::section::Section;
use crate::http::{ForwardedHeader, HeaderOptions, Identity, ResetFormat};

#[derive(Clone, Debug)]
pub(super) struct HttpOptions {
    identity: Identity,
    headers: HeaderOptions,
}

impl HttpOptions {
    /// Reads `[identity]` and `[headers]`.
    pub(super) fn check(root: &mut Section<'_>, faults: &mut Faults<'_>) -> Self {
        let identity = match root.table("identity", faults) {
            Some(section) => identity(section, faults),
            None => Identity::new(),
        };
        let headers = match root.table("headers", faults) {
            Some(section) => headers(section, faults),
            None => HeaderOptions::default(),
        };
        Self { identity, headers }
    }

    pub(super) const fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) const fn headers(&self) -> HeaderOptions {
        self.headers
    }
}

fn identity(mut section: Section<'_>, faults: &mut Faults<'_>) -> Identity {
    let mut identity = Identity::new();
    for network in section.texts("trusted_proxies", faults) {
        match identity.clone().trusted_proxies([network.value]) {
            Ok(trusting) => identity = trusting,
            Err(error) => faults.at(Some(network.span), error.to_string()),
        }
    }
    let words = [
        ("x-forwarded-for", ForwardedHeader::XForwardedFor),
        ("forwarded", ForwardedHeader::Rfc7239),
        ("none", ForwardedHeader::Ignored),
    ];
    if let Some(forwarded) = section.word("forwarded", &words, faults) {
        identity = identity.forwarded_header(forwarded.value);
    }
    if let Some(name) = header(&mut section, "api_key_header", faults) {
        identity = identity.api_key_header(name);
    }
    if let Some(name) = header(&mut section, "user_id_header", faults) {
        identity = identity.user_id_header(name);
    }
    if let Some(bits) = section.number("ipv6_prefix", (1, 128), faults) {
        identity = identity.ipv6_prefix(u8::try_from(bits.value).unwrap_or(128));
    }
    section.finish(faults);
    identity
}

fn header(
    section: &mut Section<'_>,
    key: &'static str,
    faults: &mut Faults<'_>,
) -> Option<HeaderName> {
    let text = section.text(key, faults)?;
    let name = HeaderName::from_bytes(text.value.as_bytes());
    if name.is_err() {
        faults.at(Some(text.span), format!("`{key}` is no name of a header"));
    }
    name.ok()
}

fn headers(mut section: Section<'_>, faults: &mut Faults<'_>) -> HeaderOptions {
    let mut headers = HeaderOptions::default();
    let words = [
        ("seconds", ResetFormat::Seconds),
        ("unix", ResetFormat::UnixTime),
    ];
    if let Some(reset) = section.word("reset", &words, faults) {
        headers = headers.reset(reset.value);
    }
    if section
        .flag("x_ratelimit", faults)
        .is_some_and(|at| !at.value)
    {
        headers = headers.without_x_fields();
    }
    if section.flag("ietf", faults).is_some_and(|at| !at.value) {
        headers = headers.without_ietf_fields();
    }
    section.finish(faults);
    headers
}
