//! Bodies of refusals: what went wrong, for programs and people, as RFC 9457 writes it.
//!
//! | Problem | Status | Type |
//! |--|--|--|
//! | a limit refused | 429 | `quota-exceeded`, with the policies that did |
//! | the limiter itself failed | 503 | `temporary-reduced-capacity`, with the policies that could not be asked |
//! | nobody can tell who asks | 403 | `about:blank` |
//!
//! A caller without a usable key gets 403: the request was understood, there is nothing wrong with
//! the server, and sending the same again does not help. None of the bodies holds a key.

use std::borrow::Cow;

use ::http::{HeaderValue, StatusCode};

use super::headers::retry_after_s;
use super::identity::IdentityError;
use crate::decision::{Decision, Reason};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// How a body is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProblemFormat {
    /// `application/problem+json`.
    #[default]
    Json,
    /// `application/problem+xml`.
    Xml,
}

impl ProblemFormat {
    /// What to put into `Content-Type`.
    pub const fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/problem+json",
            Self::Xml => "application/problem+xml",
        })
    }
}

/// What went wrong.
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
    /// Why these decisions, each with its limit's name, refuse: 429 where a limit was reached, 403
    /// where the key was bad, 503 where a store could not be asked and
    /// [`OnFailure::Deny`](crate::OnFailure::Deny) holds.
    pub fn from_decisions(parts: &[(&str, &Decision)]) -> Self {
        let refused = || parts.iter().filter(|(_, part)| !part.is_allowed());
        let policies = || refused().map(|(name, _)| (*name).to_owned()).collect();
        let is = |wanted: fn(Reason) -> bool| refused().any(|(_, part)| wanted(part.reason()));
        if is(|reason| matches!(reason, Reason::BadKey(_))) {
            return Self::forbidden();
        }
        let decisions: Vec<Decision> = refused().map(|(_, part)| **part).collect();
        let retry_after_s = retry_after_s(&decisions);
        // A limit that was reached is the caller's own affair, and says more than an outage.
        if is(|reason| matches!(reason, Reason::OverLimit | Reason::OverCapacity)) {
            return Self::quota_exceeded(policies(), retry_after_s);
        }
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: Cow::Borrowed(REDUCED_CAPACITY),
            title: Cow::Borrowed("The request cannot be counted at the moment"),
            detail: Cow::Borrowed("The limit could not be checked, so the request was refused."),
            policies: policies(),
            retry_after_s,
        }
    }

    /// Why a request without a usable key is refused.
    pub fn of_no_key(_why: IdentityError) -> Self {
        // Why it is so concerns the operator, who finds it in the log.
        Self::forbidden()
    }

    fn quota_exceeded(policies: Vec<String>, retry_after_s: Option<u64>) -> Self {
        let detail = match retry_after_s {
            Some(1) => Cow::Borrowed("The same request can pass in 1 second."),
            Some(seconds) => format!("The same request can pass in {seconds} seconds.").into(),
            None => Cow::Borrowed("The request asks for more than the limit ever grants at once."),
        };
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: Cow::Borrowed(QUOTA_EXCEEDED),
            title: Cow::Borrowed("The quota is used up"),
            detail,
            policies,
            retry_after_s,
        }
    }

    fn forbidden() -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            kind: Cow::Borrowed("about:blank"),
            title: Cow::Borrowed("Forbidden"),
            detail: Cow::Borrowed("It cannot be told who sent the request."),
            policies: Vec::new(),
            retry_after_s: None,
        }
    }

    /// Another type: a URI of yours.
    pub fn with_type(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.kind = uri.into();
        self
    }

    /// Another title.
    pub fn with_title(mut self, title: impl Into<Cow<'static, str>>) -> Self {
        self.title = title.into();
        self
    }

    /// Another explanation.
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = detail.into();
        self
    }

    /// The status to answer with.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The names of the policies that refused.
    pub fn policies(&self) -> &[String] {
        &self.policies
    }

    /// The body.
    pub fn body(&self, format: ProblemFormat) -> String {
        match format {
            ProblemFormat::Json => self.to_json(),
            ProblemFormat::Xml => self.to_xml(),
        }
    }

    /// The body as JSON, of RFC 9457.
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

    /// The body as XML, in the namespace of RFC 7807.
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

fn json(text: &str) -> String {
    // A string has no way to fail.
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
            // XML has no way to write these.
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push('\u{fffd}');
            }
            _ => escaped.push(character),
        }
    }
    format!("<{name}>{escaped}</{name}>")
}
