//! Responses that the gateway writes itself.

use std::time::Duration;

use balde::http::headers::write_retry_after;
use balde::http::{CachedHeaders, Problem, ProblemFormat};
use balde_dict::wire;
use balde_policy::AdmitError;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode};

use crate::body::ResponseBody;
use crate::limits::NotAdmitted;

/// The format of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// RFC 9457.
    Json,
    /// As DICT answers.
    DictXml,
}

/// `Retry-After` of a request that came while others wait for the same bucket, or are in flight.
const OTHERS_RETRY: Duration = Duration::from_secs(1);

/// A problem document. `detail` says what is wrong in words, without any value of the request.
pub(crate) fn problem(format: Format, status: StatusCode, detail: &str) -> Response<ResponseBody> {
    let (content_type, body) = match format {
        Format::Json => {
            let title = status.canonical_reason().unwrap_or("Error");
            let document = serde_json::json!({
                "type": "about:blank",
                "title": title,
                "status": status.as_u16(),
                "detail": detail,
            });
            ("application/problem+json", document.to_string())
        }
        Format::DictXml => {
            let problem = wire::Problem::new(status.as_u16(), error_type(status));
            (wire::PROBLEM_XML, problem.with_detail(detail).to_xml())
        }
    };
    response(status, content_type, body)
}

/// The same, after which the connection is closed: what follows on it cannot be trusted, or is not
/// worth reading.
pub(crate) fn problem_and_close(
    format: Format,
    status: StatusCode,
    detail: &str,
) -> Response<ResponseBody> {
    let mut response = problem(format, status, detail);
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

/// The response to a request that was not admitted.
pub(crate) fn not_admitted(
    format: Format,
    error: &NotAdmitted,
    fields: &CachedHeaders,
    request: &HeaderMap,
) -> Response<ResponseBody> {
    let (status, policy, wait, detail) = match error {
        NotAdmitted::Refused(AdmitError::Refused(refusal)) => (
            StatusCode::TOO_MANY_REQUESTS,
            refusal.policy().name(),
            refusal.retry_after(),
            "the gateway did not forward the request",
        ),
        NotAdmitted::Overtaking { policy } => (
            StatusCode::TOO_MANY_REQUESTS,
            policy.as_str(),
            Some(OTHERS_RETRY),
            "earlier requests wait for this policy",
        ),
        NotAdmitted::Refused(AdmitError::Unavailable(unavailable)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            unavailable.policy(),
            unavailable.retry_after().or(Some(OTHERS_RETRY)),
            "the limit could not be checked",
        ),
        NotAdmitted::Refused(error) => {
            tracing::warn!(event_type = "no_key", decision = "deny", "refused: {error}");
            (
                StatusCode::FORBIDDEN,
                "",
                None,
                "the request has no usable key",
            )
        }
    };
    let mut response = match format {
        Format::Json => {
            let problem = match status {
                StatusCode::TOO_MANY_REQUESTS => Problem::quota_exceeded([policy], wait),
                StatusCode::SERVICE_UNAVAILABLE => Problem::unavailable([policy], wait),
                _ => Problem::missing_key(),
            };
            let response = problem.to_response(request, ProblemFormat::default());
            response.map(ResponseBody::own)
        }
        Format::DictXml => {
            let problem = wire::Problem::new(status.as_u16(), error_type(status));
            let detail = match policy {
                "" => detail.to_owned(),
                policy => format!("{policy}: {detail}"),
            };
            let body = problem.with_detail(detail).to_xml();
            response(status, wire::PROBLEM_XML, body)
        }
    };
    if let NotAdmitted::Refused(AdmitError::Refused(refusal)) = error
        && format == Format::Json
    {
        let decisions: Vec<_> = refusal.decisions().collect();
        let now = std::time::SystemTime::now();
        fields.write(response.headers_mut(), &decisions, now);
    }
    if let Some(wait) = wait {
        write_retry_after(response.headers_mut(), wait);
    }
    response
}

fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::own(body));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// DICT's error type for a status.
fn error_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => "Forbidden",
        404 => "NotFound",
        429 => "RateLimited",
        503 => "ServiceUnavailable",
        502 => "BadGateway",
        504 => "GatewayTimeout",
        500..=599 => "InternalServerError",
        _ => "BadRequest",
    }
}
