//! What a request asks for: one host and one path, each in one spelling.

use std::borrow::Cow;
use std::fmt;

use balde_policy::PathError;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri, Version};
use parking_lot::Mutex;

use super::head_fields::HeadFields;
use crate::config::{ForwardedPath, MethodOverride, PathsConfig};
use crate::host;

/// What a request asks for.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// The path by which routes and rules are chosen, if it is not that of the URI.
    path: Option<Box<str>>,
}

/// The host of the last request of a connection, which is usually that of the next.
#[derive(Debug)]
pub(super) struct KnownHost {
    default_port: u16,
    /// A valid host in its one spelling.
    host: Mutex<Option<HeaderValue>>,
}

impl KnownHost {
    pub(super) fn new(is_tls: bool) -> Self {
        Self {
            default_port: if is_tls { 443 } else { 80 },
            host: Mutex::new(None),
        }
    }

    /// Whether the request's only host is the known one.
    fn is_of<B>(&self, request: &Request<B>) -> bool {
        if request.uri().authority().is_some() {
            return false;
        }
        let mut lines = request.headers().get_all(HOST).iter();
        let first = lines.next();
        first.is_some() && lines.next().is_none() && self.host.lock().as_ref() == first
    }

    fn remember<B>(&self, request: &Request<B>) {
        *self.host.lock() = request.headers().get(HOST).cloned();
    }
}

/// Why a request is refused with 400.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TargetError {
    /// The method is a known one in other letters, or another field overrides it.
    Method(&'static str),
    Host(&'static str),
    /// The request line is none of a reverse proxy.
    Form(&'static str),
    Path(PathError),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(detail) | Self::Host(detail) | Self::Form(detail) => f.write_str(detail),
            Self::Path(error) => error.fmt(f),
        }
    }
}

impl Target {
    /// Finds what a request asks for. The request's `Host`, and if the configuration says so its path,
    /// are brought into the one spelling, so that whatever reads them later reads the same.
    pub(super) fn take<B>(
        request: &mut Request<B>,
        fields: HeadFields,
        config: PathsConfig,
        known_host: &KnownHost,
    ) -> Result<Self, TargetError> {
        let is_override_refused = config.method_override == MethodOverride::Refuse
            && fields.has(HeadFields::METHOD_OVERRIDE);
        check_method(request.method(), request.headers(), is_override_refused)?;
        check_form(request)?;
        if !known_host.is_of(request) {
            set_host(request, known_host.default_port)?;
            known_host.remember(request);
        }
        let uri = request.uri_mut();
        let path = uri.path();
        let normal = config.rules.normalized(path).map_err(TargetError::Path)?;
        let Cow::Owned(normal) = normal else {
            return Ok(Self::default());
        };
        if config.forwarded == ForwardedPath::Normalized {
            let forwarded = config.rules.forwarded(path).map_err(TargetError::Path)?;
            if let Cow::Owned(forwarded) = forwarded {
                set_path(uri, forwarded)?;
            }
        }
        Ok(Self {
            path: (normal != uri.path()).then(|| normal.into()),
        })
    }

    /// The path by which routes and rules are chosen. `uri` is the request's.
    pub(super) fn path<'t>(&'t self, uri: &'t Uri) -> &'t str {
        self.path.as_deref().unwrap_or_else(|| uri.path())
    }
}

/// Methods are case-sensitive, but some servers read `get` as `GET`, and some read another method in a
/// header field. Either would be another method than the one that was counted.
fn check_method(
    method: &Method,
    headers: &HeaderMap,
    is_override_refused: bool,
) -> Result<(), TargetError> {
    let text = method.as_str();
    if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        let known = Method::from_bytes(text.to_ascii_uppercase().as_bytes());
        if known.is_ok_and(|known| is_standard(&known)) {
            return Err(TargetError::Method("the method must be in capitals"));
        }
    }
    let is_overridden = || {
        let names = headers.keys().filter(|name| is_override(name));
        let mut values = names.flat_map(|name| headers.get_all(name));
        values.any(|value| !value.as_bytes().eq_ignore_ascii_case(text.as_bytes()))
    };
    if is_override_refused && is_overridden() {
        let detail = "a header field that overrides the method is not accepted";
        return Err(TargetError::Method(detail));
    }
    Ok(())
}

fn is_standard(method: &Method) -> bool {
    matches!(
        method.as_str(),
        "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "PATCH" | "OPTIONS" | "TRACE" | "CONNECT"
    )
}

pub(super) fn is_override(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "x-http-method-override" | "x-http-method" | "x-method-override"
    )
}

fn check_form<B>(request: &Request<B>) -> Result<(), TargetError> {
    let uri = request.uri();
    match uri.scheme_str() {
        None | Some("http" | "https") => {}
        Some(_) => return Err(TargetError::Form("the scheme must be http or https")),
    }
    if uri.scheme().is_none() && uri.authority().is_some() {
        return Err(TargetError::Form("the target must be a path or a URL"));
    }
    match uri.path() {
        "*" if request.method() == Method::OPTIONS => Ok(()),
        path if path.starts_with('/') => Ok(()),
        _ => Err(TargetError::Form("the target must be a path or a URL")),
    }
}

/// Makes `Host` the only and valid host of a request, in one spelling.
fn set_host<B>(request: &mut Request<B>, default_port: u16) -> Result<(), TargetError> {
    const INVALID: TargetError = TargetError::Host("the host is not valid");
    let version = request.version();
    let mut lines = request.headers().get_all(HOST).iter();
    let line = lines.next();
    if lines.next().is_some() {
        return Err(TargetError::Host("there are several hosts"));
    }
    if line.is_none() && version == Version::HTTP_11 {
        return Err(TargetError::Host("there is no host"));
    }
    let of_line = match line {
        None => None,
        Some(line) => {
            let text = line.to_str().map_err(|_| INVALID)?;
            Some((text, host::canonical(text, default_port).ok_or(INVALID)?))
        }
    };
    // The target of HTTP/1.1 may be a whole URL; HTTP/2 has `:authority`.
    let of_target = match request.uri().authority() {
        None => None,
        Some(authority) => Some(host::canonical(authority.as_str(), default_port).ok_or(INVALID)?),
    };
    let changed = match (of_line, of_target) {
        (Some((_, of_line)), Some(of_target)) if of_line != of_target => {
            return Err(TargetError::Host(
                "the target and `Host` name different hosts",
            ));
        }
        (Some((text, canonical)), _) if canonical == text => None,
        (Some((_, canonical)), _) | (None, Some(canonical)) => Some(canonical.into_owned()),
        (None, None) if version <= Version::HTTP_10 => None,
        (None, None) => return Err(TargetError::Host("there is no host")),
    };
    if let Some(host) = changed {
        let host = HeaderValue::try_from(host).map_err(|_| INVALID)?;
        request.headers_mut().insert(HOST, host);
    }
    Ok(())
}

fn set_path(uri: &mut Uri, mut path: String) -> Result<(), TargetError> {
    if let Some(query) = uri.query() {
        path.push('?');
        path.push_str(query);
    }
    let invalid = TargetError::Form("the target must be a path or a URL");
    let Ok(path) = PathAndQuery::try_from(path) else {
        return Err(invalid);
    };
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = Some(path);
    *uri = Uri::from_parts(parts).map_err(|_| invalid)?;
    Ok(())
}
