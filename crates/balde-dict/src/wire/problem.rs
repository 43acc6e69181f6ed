//! Problem documents (RFC 7807) as XML: DICT's error responses.

use std::fmt;

use super::element::{Element, XmlError};
use super::writer::Writer;

/// The content type of a problem document.
pub const PROBLEM_XML: &str = "application/problem+xml";

const NAMESPACE: &str = "urn:ietf:rfc:7807";
const TYPE_BASE: &str = "https://dict.pi.rsfn.net.br/api/v2/error/";

/// A problem document: error type, status, and optionally details and violations.
///
/// ```
/// use balde_dict::wire::Problem;
///
/// let problem = Problem::rate_limited();
/// assert_eq!(problem.status(), 429);
/// assert!(problem.to_xml().contains("<title>Rate limited</title>"));
/// assert_eq!(Problem::read(problem.to_xml().as_bytes())?, problem);
/// # Ok::<(), balde_dict::wire::XmlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem(Box<ProblemFields>);

/// Boxed, so that a `Result` with a problem stays small.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProblemFields {
    error_type: String,
    title: String,
    status: u16,
    detail: Option<String>,
    correlation_id: Option<String>,
    violations: Vec<Violation>,
}

/// One field of a request that is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Why it is invalid.
    pub reason: String,
    /// The value that was sent, if the response repeats it.
    pub value: Option<String>,
    /// The field, such as `Entry.Account.Participant`.
    pub property: Option<String>,
}

impl Problem {
    /// Creates a problem of one of DICT's error types, such as `EntryInvalid`.
    pub fn new(status: u16, error_type: impl Into<String>) -> Self {
        let error_type = error_type.into();
        Self(Box::new(ProblemFields {
            title: title(&error_type),
            error_type,
            status,
            detail: None,
            correlation_id: None,
            violations: Vec::new(),
        }))
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(400, "BadRequest").with_detail(detail)
    }

    /// 400: a required header is missing.
    pub fn missing_header(name: &str) -> Self {
        Self::bad_request(format!("Missing request header '{name}'"))
    }

    /// 403: the participant is not allowed to do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(403, "Forbidden").with_detail(detail)
    }

    /// 404: not found.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(404, "NotFound").with_detail(detail)
    }

    /// 429: rate limited. As in DICT, the document does not name the bucket.
    pub fn rate_limited() -> Self {
        Self::new(429, "RateLimited")
    }

    /// 503: temporarily unavailable.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable").with_detail(detail)
    }

    /// Adds an explanation.
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds the fields that are invalid.
    pub fn with_violations(mut self, violations: Vec<Violation>) -> Self {
        self.0.violations = violations;
        self
    }

    /// Adds the id by which the operator's support finds the request.
    pub fn with_correlation_id(mut self, id: impl Into<String>) -> Self {
        self.0.correlation_id = Some(id.into());
        self
    }

    /// The status of the response.
    pub fn status(&self) -> u16 {
        self.0.status
    }

    /// The last segment of the type URI, such as `RateLimited`.
    pub fn error_type(&self) -> &str {
        &self.0.error_type
    }

    /// The title, such as `Rate limited`.
    pub fn title(&self) -> &str {
        &self.0.title
    }

    /// The explanation, if there is one.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// The fields that are invalid.
    pub fn violations(&self) -> &[Violation] {
        &self.0.violations
    }

    /// Writes the document.
    pub fn to_xml(&self) -> String {
        let mut xml = Writer::document(400);
        xml.raw("<problem xmlns=\"").raw(NAMESPACE).raw("\">");
        xml.open("type")
            .raw(TYPE_BASE)
            .text(&self.0.error_type)
            .close("type");
        xml.element("title", &self.0.title);
        xml.element("status", &self.0.status.to_string());
        xml.optional("detail", self.0.detail.as_deref());
        xml.optional("correlationId", self.0.correlation_id.as_deref());
        if !self.0.violations.is_empty() {
            xml.within("violations", |xml| {
                for violation in &self.0.violations {
                    xml.open("violation").element("reason", &violation.reason);
                    xml.optional("value", violation.value.as_deref());
                    xml.optional("property", violation.property.as_deref());
                    xml.close("violation");
                }
            });
        }
        xml.close("problem");
        xml.finish()
    }

    /// Parses a problem document. Elements may be in any order, unknown ones are ignored and missing
    /// ones stay empty.
    pub fn read(document: &[u8]) -> Result<Self, XmlError> {
        let root = Element::read(document)?;
        let text = |name: &str| root.child(name).map(|child| child.text().to_owned());
        let error_type = text("type").unwrap_or_default();
        let error_type = error_type.rsplit('/').next().unwrap_or_default().to_owned();
        let violations = root.child("violations").map_or(&[][..], Element::children);
        Ok(Self(Box::new(ProblemFields {
            title: text("title").unwrap_or_else(|| title(&error_type)),
            error_type,
            status: text("status")
                .and_then(|status| status.parse().ok())
                .unwrap_or(0),
            detail: text("detail"),
            correlation_id: text("correlationId"),
            violations: violations.iter().map(violation).collect(),
        })))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.status, self.0.error_type)?;
        match &self.0.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

fn violation(element: &Element) -> Violation {
    let text = |name: &str| element.child(name).map(|child| child.text().to_owned());
    Violation {
        reason: text("reason").unwrap_or_default(),
        value: text("value"),
        property: text("property"),
    }
}

/// `RateLimited` is titled `Rate limited`.
fn title(error_type: &str) -> String {
    let mut title = String::with_capacity(error_type.len() + 8);
    for character in error_type.chars() {
        if character.is_ascii_uppercase() && !title.is_empty() {
            title.push(' ');
            title.push(character.to_ascii_lowercase());
        } else {
            title.push(character);
        }
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limited_problem_is_written_as_published() {
        assert_eq!(
            Problem::rate_limited().to_xml(),
            "<?xml version=\"1.0\" encoding=\"UTF-8\" ?>\n\
             <problem xmlns=\"urn:ietf:rfc:7807\">\
             <type>https://dict.pi.rsfn.net.br/api/v2/error/RateLimited</type>\
             <title>Rate limited</title><status>429</status></problem>"
        );
    }

    #[test]
    fn violations_and_details_read_back_in_any_order() {
        let problem = Problem::new(400, "EntryInvalid")
            .with_detail("see <violations>")
            .with_correlation_id("0".repeat(32))
            .with_violations(vec![Violation {
                reason: "is missing".to_owned(),
                value: None,
                property: Some("Entry.Key".to_owned()),
            }]);
        assert_eq!(Problem::read(problem.to_xml().as_bytes()), Ok(problem));
        let odd = b"<p:problem xmlns:p='urn:ietf:rfc:7807'><new>1</new><status>503</status>\
                    <type>about:blank/x/ServiceUnavailable</type></p:problem>";
        let read = Problem::read(odd).unwrap();
        assert_eq!((read.status(), read.title()), (503, "Service unavailable"));
    }
}
