//! Problem documents (RFC 7807) as XML: DICT's error responses.

use std::fmt;

use super::element::{Element, XmlError};
use super::writer::Writer;

/// The content type of a problem document.
pub const PROBLEM_XML: &str = "application/problem+xml";

const NAMESPACE: &str = "urn:ietf:rfc:7807";
/// What the type URI of an error begins with, in version 2 of the API.
pub const ERROR_BASE: &str = "https://dict.pi.rsfn.net.br/api/v2/error/";
/// The same in version 1.
pub const ERROR_BASE_V1: &str = "https://dict.pi.rsfn.net.br/api/v1/error/";

/// Every error type of version 2.12.1 with its status, and the title where an example has one.
const ERROR_TYPES: [(&str, u16, Option<&str>); 62] = [
    ("Forbidden", 403, Some("Forbidden")),
    ("BadRequest", 400, Some("Bad Request")),
    ("NotFound", 404, Some("Not found")),
    ("ResourceConflict", 409, Some("Conflict")),
    ("Gone", 410, Some("Gone")),
    ("RateLimited", 429, Some("Rate limited")),
    ("InternalServerError", 500, None),
    ("ServiceUnavailable", 503, Some("Service Unavailable")),
    ("RequestSignatureInvalid", 400, None),
    ("RequestIdAlreadyUsed", 400, None),
    ("InvalidReason", 400, None),
    ("ParticipantInvalid", 400, None),
    ("TaxIdNumberBlocked", 400, None),
    ("UserOrAccountWithFraudRelatedRestriction", 400, None),
    ("DeprecatedResource", 410, None),
    ("EntryInvalid", 400, Some("Entry is invalid")),
    ("EntryLimitExceeded", 400, None),
    ("EntryAlreadyExists", 400, None),
    ("EntryCannotBeQueriedForBookTransfer", 400, None),
    ("EntryKeyOwnedByDifferentPerson", 400, None),
    ("EntryKeyInCustodyOfDifferentParticipant", 400, None),
    ("EntryLockedByClaim", 400, None),
    ("EntryTaxIdNumberByDifferentOwner", 400, None),
    ("EntryBlocked", 400, None),
    ("EntryWithFraudRelatedRestriction", 400, None),
    ("ClaimInvalid", 400, Some("Claim is invalid")),
    ("ClaimTypeInconsistent", 400, None),
    ("ClaimKeyNotFound", 404, None),
    ("ClaimAlreadyExistsForKey", 400, None),
    ("ClaimResultingEntryAlreadyExists", 400, None),
    ("ClaimOperationInvalid", 400, None),
    ("ClaimResolutionPeriodNotEnded", 400, None),
    ("ClaimCompletionPeriodNotEnded", 400, None),
    (
        "InfractionReportInvalid",
        400,
        Some("InfractionReport is invalid"),
    ),
    ("InfractionReportOperationInvalid", 400, None),
    ("InfractionReportTransactionNotFound", 400, None),
    ("InfractionReportTransactionNotSettled", 400, None),
    (
        "InfractionReportAlreadyBeingProcessedForTransaction",
        400,
        None,
    ),
    ("InfractionReportAlreadyProcessedForTransaction", 400, None),
    ("InfractionReportPeriodExpired", 400, None),
    ("FraudMarkerInvalid", 400, None),
    ("RefundInvalid", 400, None),
    ("RefundOperationInvalid", 400, None),
    ("RefundTransactionNotFound", 400, None),
    ("RefundTransactionNotSettled", 400, None),
    ("RefundTransactionInvalid", 400, None),
    ("RefundAlreadyProcessedForTransaction", 400, None),
    ("RefundAlreadyBeingProcessedForTransaction", 400, None),
    ("RefundPeriodExpired", 400, None),
    ("TransactionNotRefundable", 400, None),
    ("RefundInfractionReportNotFound", 400, None),
    ("TransactionRefundable", 400, None),
    ("TransactionTypeInvalid", 400, None),
    ("FundsRecoveryInvalid", 400, None),
    ("FundsRecoveryOperationInvalid", 400, None),
    ("FundsRecoveryTrackingGraphParameterInvalid", 400, None),
    ("FundsRecoveryTrackingTimeout", 400, None),
    ("FundsRecoveryTransactionNotIndexed", 400, None),
    ("FundsRecoveryForTransactionAlreadyExists", 400, None),
    ("FundsRecoveryTransactionNotEligible", 400, None),
    ("FundsRecoveryPrioritizationInvalid", 400, None),
    ("FundsRecoveryTransactionNotSettled", 400, None),
];

/// The status of an error type, if it is one of DICT's.
pub fn status_of(error_type: &str) -> Option<u16> {
    let mut types = ERROR_TYPES.iter();
    let found = types.find(|(own, _, _)| *own == error_type);
    found.map(|(_, status, _)| *status)
}

/// DICT's general error type for a status.
pub fn error_type_of(status: u16) -> &'static str {
    match status {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "ResourceConflict",
        410 => "Gone",
        429 => "RateLimited",
        503 => "ServiceUnavailable",
        500..=599 => "InternalServerError",
        _ => "BadRequest",
    }
}

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
    /// The field, such as `entry.account.participant`.
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

    /// The id by which the operator's support finds the request, if there is one.
    pub fn correlation_id(&self) -> Option<&str> {
        self.0.correlation_id.as_deref()
    }

    /// Writes the document.
    pub fn to_xml(&self) -> String {
        self.to_xml_in(ERROR_BASE)
    }

    /// Writes the document with the type URIs of another version.
    pub fn to_xml_in(&self, error_base: &str) -> String {
        let mut xml = Writer::document(400);
        xml.raw("<problem xmlns=\"").raw(NAMESPACE).raw("\">");
        xml.open("type")
            .raw(error_base)
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

    /// Parses a problem document. Elements may be in any order, and unknown ones are ignored. Of the type
    /// only what follows its last slash is kept. A missing title is made from the type, a status that is
    /// missing or no number is 0, and other missing elements are empty or `None`.
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

/// The published title, or the words of the type: `RateLimited` is titled `Rate limited`.
fn title(error_type: &str) -> String {
    let mut types = ERROR_TYPES.iter();
    if let Some((_, _, Some(title))) = types.find(|(own, _, _)| *own == error_type) {
        return (*title).to_owned();
    }
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
                property: Some("entry.key".to_owned()),
            }]);
        assert_eq!(Problem::read(problem.to_xml().as_bytes()), Ok(problem));
        let odd = b"<p:problem xmlns:p='urn:ietf:rfc:7807'><new>1</new><status>503</status>\
                    <type>about:blank/x/ServiceUnavailable</type></p:problem>";
        let read = Problem::read(odd).unwrap();
        assert_eq!((read.status(), read.title()), (503, "Service Unavailable"));
    }
}
