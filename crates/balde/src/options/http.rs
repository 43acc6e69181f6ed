//! The sections `[identity]` and `[headers]`.

use ::http::HeaderName;
use balde_config::{Diagnostics, Section};

use crate::http::{ForwardedHeader, HeaderOptions, Identity, ResetFormat};

#[derive(Clone, Debug, Default)]
pub(super) struct HttpOptions {
    identity: Identity,
    headers: HeaderOptions,
}

impl HttpOptions {
    /// Reads `[identity]` and `[headers]`.
    pub(super) fn read(root: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Self {
        let identity = match root.table("identity", diagnostics) {
            Some(section) => identity(section, diagnostics),
            None => Identity::new(),
        };
        let headers = match root.table("headers", diagnostics) {
            Some(section) => headers(section, diagnostics),
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

fn identity(mut section: Section<'_>, diagnostics: &mut Diagnostics) -> Identity {
    let mut identity = Identity::new();
    for network in section.strings("trusted_proxies", diagnostics) {
        match identity.clone().trusted_proxies([network.value]) {
            Ok(trusting) => identity = trusting,
            Err(error) => diagnostics.at(network.span, error.to_string()),
        }
    }
    let words = [
        ("x-forwarded-for", ForwardedHeader::XForwardedFor),
        ("forwarded", ForwardedHeader::Rfc7239),
        ("none", ForwardedHeader::Ignored),
    ];
    if let Some(forwarded) = section.choice("forwarded", &words, diagnostics) {
        identity = identity.forwarded_header(forwarded.value);
    }
    let is_trusting = section.contains("trusted_proxies");
    if let Some(name) = header(&mut section, "api_key_header", is_trusting, diagnostics) {
        identity = identity.api_key_header(name);
    }
    if let Some(name) = header(&mut section, "user_id_header", is_trusting, diagnostics) {
        identity = identity.user_id_header(name);
    }
    if let Some(bits) = section.integer("ipv6_prefix", 1..=128, diagnostics) {
        identity = identity.ipv6_prefix(u8::try_from(bits.value).unwrap_or(128));
    }
    section.finish(diagnostics);
    identity
}

/// A header in which trusted proxies name clients. If no proxy is trusted, the header of every request
/// would be ignored, and clients would be told apart by their addresses instead.
fn header(
    section: &mut Section<'_>,
    key: &'static str,
    is_trusting: bool,
    diagnostics: &mut Diagnostics,
) -> Option<HeaderName> {
    let text = section.string(key, diagnostics)?;
    let name = HeaderName::from_bytes(text.value.as_bytes());
    if name.is_err() {
        diagnostics.at(text.span, format!("`{key}` must be the name of a header"));
    } else if !is_trusting {
        let message = format!(
            "nobody is trusted to send this header: `{key}` needs `trusted_proxies`, the networks of \
             the proxies that set it, such as [\"10.0.0.0/8\"]"
        );
        diagnostics.at(text.span, message);
    }
    name.ok()
}

fn headers(mut section: Section<'_>, diagnostics: &mut Diagnostics) -> HeaderOptions {
    let mut headers = HeaderOptions::default();
    let words = [
        ("seconds", ResetFormat::Seconds),
        ("unix", ResetFormat::UnixTime),
    ];
    if let Some(reset) = section.choice("reset", &words, diagnostics) {
        headers = headers.reset(reset.value);
    }
    if section
        .boolean("x_ratelimit", diagnostics)
        .is_some_and(|enabled| !enabled.value)
    {
        headers = headers.without_x_fields();
    }
    if section
        .boolean("ietf", diagnostics)
        .is_some_and(|enabled| !enabled.value)
    {
        headers = headers.without_ietf_fields();
    }
    section.finish(diagnostics);
    headers
}
