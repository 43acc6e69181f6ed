//! Problem documents (RFC 9457): the bodies of refused requests.
//!
//! | Cause | Status | Type |
//! |--|--|--|
//! | a bucket has too few tokens | 429 | `quota-exceeded`, with the names of the policies |
//! | the store is unavailable | 503 | `temporary-reduced-capacity`, with the names of the policies |
//! | the request has no usable key | 403 | `about:blank` |
//! | the service does not provide the peer's address | 500 | `about:blank` |
//!
//! A request without a usable key gets 403 because the server understood it, the server works, and
//! sending the same request again does not help. Without the peer's address it gets 500: the service
//! is at fault, not the caller. No document contains a key.

use std::borrow::Cow;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::headers::{longest_wait, retry_after_s};
use super::identity::IdentityError;
use crate::decision::{Decision, Reason};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// The format of a problem document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProblemFormat {
    /// `application/problem+json`.
    #[default]
    Json,
    /// `application/problem+xml`.
    Xml,
}

impl ProblemFormat {
    /// The value of `Content-Type` for this format.
    pub const fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/problem+json",
            Self::Xml => "application/problem+xml",
        })
    }
}

/// A problem document (RFC 9457): why a request was refused, for programs and people.
///
/// ```
/// use balde::RateLimiter;
/// use balde::http::Problem;
///
/// let limiter = RateLimiter::new("1/min")?;
/// let limiter = limiter.blocking();
/// assert!(limiter.check("alice").is_allowed());
///
/// let problem = Problem::from_decisions(&[("per-user", &limiter.check("alice"))]);
/// assert_eq!(problem.status(), 429);
/// assert!(problem.to_json().contains(r#""violated-policies":["per-user"]"#));
/// # Ok::<(), balde::BuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    kind: Cow<'static, str>,
    title: Cow<'static, str>,
    detail: Cow<'static, str>,
    policies: Vec<String>,
    retry_after_s: Option<u64>,
}

impl Problem {
    /// The problem of a request that these decisions refused, each with the name of its policy: 403
    /// if a key was invalid, else 429 if a bucket had too few tokens, else 503 because the store was
    /// unavailable and [`OnFailure::Deny`](crate::OnFailure::Deny) applied.
    pub fn from_decisions(decisions: &[(&str, &Decision)]) -> Self {
        let refused = || decisions.iter().filter(|(_, one)| !one.is_allowed());
        let has = |wanted: fn(Reason) -> bool| refused().any(|(_, one)| wanted(one.reason()));
        if has(|reason| matches!(reason, Reason::BadKey(_))) {
            return Self::missing_key();
        }
        let policies = refused().map(|(name, _)| *name);
        let retry_after = longest_wait(refused().map(|(_, one)| *one));
        // If both apply, 429 is reported: the client can act on its own quota, not on an outage.
        if has(|reason| matches!(reason, Reason::OverLimit | Reason::OverCapacity)) {
            Self::quota_exceeded(policies, retry_after)
        } else {
            Self::unavailable(policies, retry_after)
        }
    }

    /// 429: these policies have too few tokens. `retry_after` is the time after which the same
    /// request would pass, or `None` if it never will.
    pub fn quota_exceeded<'a>(
        policies: impl IntoIterator<Item = &'a str>,
        retry_after: Option<Duration>,
    ) -> Self {
        let retry_after_s = retry_after.map(retry_after_s);
        let detail = match retry_after_s {
            Some(1) => Cow::Borrowed("The same request can pass in 1 second."),
            Some(seconds) => format!("The same request can pass in {seconds} seconds.").into(),
            None => {
                Cow::Borrowed("The request needs more tokens than the limit ever grants at once.")
            }
        };
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: Cow::Borrowed(QUOTA_EXCEEDED),
            title: Cow::Borrowed("The quota is used up"),
            detail,
            policies: policies.into_iter().map(str::to_owned).collect(),
            retry_after_s,
        }
    }

    /// 503: these policies could not be checked, because their store is unavailable. `retry_after`
    /// is the time after which it is worth trying again.
    pub fn unavailable<'a>(
        policies: impl IntoIterator<Item = &'a str>,
        retry_after: Option<Duration>,
    ) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: Cow::Borrowed(REDUCED_CAPACITY),
            title: Cow::Borrowed("The request cannot be counted at the moment"),
            detail: Cow::Borrowed("The limit could not be checked, so the request was refused."),
            policies: policies.into_iter().map(str::to_owned).collect(),
            retry_after_s: retry_after.map(retry_after_s),
        }
    }

    /// 400: the request is not one that a server can answer. `detail` says what is wrong with it, in a
    /// sentence without any value of the request.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: Cow::Borrowed("about:blank"),
            title: Cow::Borrowed("Bad Request"),
            detail: detail.into(),
            policies: Vec::new(),
            retry_after_s: None,
        }
    }

    /// 403: the request has no usable key. The document does not say why; the log does.
    pub fn missing_key() -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            kind: Cow::Borrowed("about:blank"),
            title: Cow::Borrowed("Forbidden"),
            detail: Cow::Borrowed("The sender of the request could not be identified."),
            policies: Vec::new(),
            retry_after_s: None,
        }
    }

    /// 500: the service does not provide the address of its peers, so that no caller can be
    /// identified ([`IdentityError::UnknownPeer`]). In debug builds the detail says how to correct the
    /// service; in release builds only the log does.
    pub fn missing_peer() -> Self {
        let detail = if cfg!(debug_assertions) {
            let mut text = IdentityError::UnknownPeer.to_string();
            // The first letter is ASCII.
            text[..1].make_ascii_uppercase();
            text.push('.');
            Cow::Owned(text)
        } else {
            Cow::Borrowed("The service does not know who sent the request.")
        };
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            kind: Cow::Borrowed("about:blank"),
            title: Cow::Borrowed("Internal Server Error"),
            detail,
            policies: Vec::new(),
            retry_after_s: None,
        }
    }

    /// Replaces the problem type, a URI.
    pub fn with_type(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.kind = uri.into();
        self
    }

    /// Replaces the title.
    pub fn with_title(mut self, title: impl Into<Cow<'static, str>>) -> Self {
        self.title = title.into();
        self
    }

    /// Replaces the detail, a sentence about this occurrence of the problem.
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = detail.into();
        self
    }

    /// The status code of the response.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The names of the policies that refused the request.
    pub fn policies(&self) -> &[String] {
        &self.policies
    }

    /// Builds the complete response: status, `Content-Type` and the document as body.
    ///
    /// A gRPC request, recognised by the `Content-Type` in `request_headers`, gets a gRPC status
    /// without a message instead: `RESOURCE_EXHAUSTED`, `UNAVAILABLE`, `PERMISSION_DENIED` or
    /// `INTERNAL`.
    ///
    /// The response has no rate-limit header fields;
    /// [`HeaderOptions::write`](super::HeaderOptions::write) adds them.
    pub fn to_response(
        &self,
        request_headers: &HeaderMap,
        format: ProblemFormat,
    ) -> Response<String> {
        if is_grpc(request_headers) {
            return self.to_grpc_response();
        }
        let mut response = Response::new(self.body(format));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, format.content_type());
        response
    }

    /// A gRPC response without a message carries its status in the header fields.
    fn to_grpc_response(&self) -> Response<String> {
        let (status, message) = match self.status {
            StatusCode::TOO_MANY_REQUESTS => ("8", "rate limited"),
            StatusCode::SERVICE_UNAVAILABLE => ("14", "the rate limit could not be checked"),
            StatusCode::INTERNAL_SERVER_ERROR => ("13", "the service does not know its callers"),
            _ => ("7", "the sender of the request could not be identified"),
        };
        let mut response = Response::new(String::new());
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_static("application/grpc");
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert("grpc-status", HeaderValue::from_static(status));
        headers.insert("grpc-message", HeaderValue::from_static(message));
        response
    }

    /// The document in the given format.
    pub fn body(&self, format: ProblemFormat) -> String {
        match format {
            ProblemFormat::Json => self.to_json(),
            ProblemFormat::Xml => self.to_xml(),
        }
    }

    /// The document as JSON, as RFC 9457 defines it.
    pub fn to_json(&self) -> String {
        let mut text = format!(
            r#"{{"type":{},"title":{},"status":{},"detail":{}"#,
            json(&self.kind),
            json(&self.title),
            self.status.as_u16(),
            json(&self.detail)
        );
        if !self.policies.is_empty() {
            let names: Vec<String> = self.policies.iter().map(|name| json(name)).collect();
            text += r#","violated-policies":["#;
            text += &names.join(",");
            text.push(']');
        }
        if let Some(seconds) = self.retry_after_s {
            text += r#","retry-after":"#;
            text += &seconds.to_string();
        }
        text.push('}');
        text
    }

    /// The document as XML, in the namespace of RFC 7807.
    pub fn to_xml(&self) -> String {
        let mut text = String::from(r#"<?xml version="1.0" encoding="UTF-8"?>"#);
        text += "\n<problem xmlns=\"urn:ietf:rfc:7807\">";
        text += &element("type", &self.kind);
        text += &element("title", &self.title);
        text += &element("status", self.status.as_str());
        text += &element("detail", &self.detail);
        if !self.policies.is_empty() {
            text += "<violated-policies>";
            text.extend(self.policies.iter().map(|name| element("i", name)));
            text += "</violated-policies>";
        }
        if let Some(seconds) = self.retry_after_s {
            text += &element("retry-after", &seconds.to_string());
        }
        text += "</problem>\n";
        text
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

fn json(text: &str) -> String {
    // Serialising a string cannot fail.
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned())
}

fn element(name: &str, text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '\r' => escaped += "&#13;",
            // XML 1.0 cannot represent these characters.
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push('\u{fffd}');
            }
            _ => escaped.push(character),
        }
    }
    format!("<{name}>{escaped}</{name}>")
}
