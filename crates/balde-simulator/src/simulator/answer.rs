//! Responses before they are HTTP: status, content and headers.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap,
    HeaderName, HeaderValue, RETRY_AFTER, VARY,
};
use http::{Response, StatusCode};
use http_body_util::Full;

use crate::wire::{PROBLEM_XML, Problem};

/// The body type of every response.
pub(crate) type Body = Full<Bytes>;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const KEEP_ALIVE_FOR: HeaderValue = HeaderValue::from_static("timeout=60");
const XML: HeaderValue = HeaderValue::from_static("application/xml;charset=utf-8");
const PROBLEM: HeaderValue = HeaderValue::from_static(PROBLEM_XML);
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain;charset=utf-8");

/// A response before it is encoded for HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    content: ContentKind,
    body: String,
    /// What the body will be made of, once it is known how problems are written.
    problem: Option<Problem>,
    retry_after_s: Option<u64>,
    cache_control: Option<HeaderValue>,
    closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContentKind {
    Xml,
    Problem,
    Json,
    Text,
}

impl Answer {
    /// A DICT document.
    pub(crate) fn xml(status: u16, body: String) -> Self {
        Self::new(status, ContentKind::Xml, body)
    }

    /// A problem document.
    pub(crate) fn problem(problem: Problem) -> Self {
        let mut answer = Self::new(problem.status(), ContentKind::Problem, String::new());
        answer.problem = Some(problem);
        answer
    }

    /// Writes the body of a problem: with the type URIs of a version and, if it is wanted, with the id
    /// by which support finds the request. As published, a 429 has neither details nor an id.
    pub(crate) fn with_problem_written(
        mut self,
        error_base: &str,
        correlation_id: impl FnOnce() -> Option<String>,
    ) -> Self {
        if let Some(mut problem) = self.problem.take() {
            if problem.status() != 429
                && let Some(id) = correlation_id()
            {
                problem = problem.with_correlation_id(id);
            }
            self.body = problem.to_xml_in(error_base);
        }
        self
    }

    /// A response of the inspection endpoints.
    pub(crate) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::new(status, ContentKind::Json, format!("{body:#}\n"))
    }

    /// A text file.
    pub(crate) fn text(body: String) -> Self {
        Self::new(200, ContentKind::Text, body)
    }

    fn new(status: u16, content: ContentKind, body: String) -> Self {
        Self {
            status,
            content,
            body,
            problem: None,
            retry_after_s: None,
            cache_control: None,
            closes: false,
        }
    }

    /// Sets Retry-After.
    pub(crate) fn retry_after(mut self, seconds: Option<u64>) -> Self {
        self.retry_after_s = seconds;
        self
    }

    /// Sets Cache-Control: for how many seconds the response may be used again, or not at all.
    pub(crate) fn cache_for(mut self, seconds: Option<u64>) -> Self {
        self.cache_control = Some(match seconds {
            Some(seconds) => HeaderValue::from_str(&format!("max-age={seconds}"))
                .unwrap_or(HeaderValue::from_static("no-store")),
            None => HeaderValue::from_static("no-store"),
        });
        self
    }

    /// Closes the connection after the response, because the request was not read completely.
    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// Whether DICT signs it: all documents, and problems too.
    pub(crate) fn is_signed(&self) -> bool {
        matches!(self.content, ContentKind::Xml | ContentKind::Problem)
    }

    pub(crate) fn body(&self) -> &str {
        &self.body
    }

    /// Replaces the body.
    pub(crate) fn with_body(mut self, body: String) -> Self {
        self.body = body;
        self
    }

    /// Creates the HTTP response, compressed if the request accepts gzip.
    pub(crate) fn into_response(self, request: &HeaderMap) -> Response<Body> {
        let is_compressed = accepts_gzip(request);
        let body = if is_compressed {
            compress(self.body.as_bytes())
        } else {
            Bytes::from(self.body)
        };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            match self.content {
                ContentKind::Xml => XML,
                ContentKind::Problem => PROBLEM,
                ContentKind::Json => JSON,
                ContentKind::Text => TEXT,
            },
        );
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        } else {
            headers.insert(KEEP_ALIVE, KEEP_ALIVE_FOR);
        }
        if is_compressed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        if let Some(cache_control) = self.cache_control {
            headers.insert(CACHE_CONTROL, cache_control);
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Returns true if the client accepts gzip with a weight above zero.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let mut is_accepted = false;
    for coding in codings {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        if !name.eq_ignore_ascii_case("gzip") {
            continue;
        }
        let weight = parts
            .find_map(|part| part.strip_prefix("q="))
            .unwrap_or("1");
        is_accepted = weight.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    }
    is_accepted
}

fn compress(body: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 2), Compression::fast());
    let _writing_to_a_vec_cannot_fail = encoder.write_all(body);
    Bytes::from(encoder.finish().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_only_if_accepted() {
        for (value, expected) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip;q=0.000", false),
            ("identity", false),
            ("xgzip", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(accepts_gzip(&headers), expected, "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
