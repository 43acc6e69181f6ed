//! Requests that are refused before they are routed, and responses that are not passed on, because
//! another server could read them differently or because nobody should send them.

use http::header::{ALLOW, CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request, Response, StatusCode, Version};

use super::answer::{self, Format};
use super::framing::Ambiguity;
use super::head_fields::HeadFields;
use crate::body::ResponseBody;
use crate::config::ServerConfig;

/// The methods that a response with status 405 names. Others are forwarded, too.
const METHODS: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// Why a request is refused. Its connection is closed, because what follows on it cannot be trusted or
/// is not worth reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    status: StatusCode,
    detail: &'static str,
}

impl Refused {
    fn new(status: StatusCode, detail: &'static str) -> Self {
        Self { status, detail }
    }

    pub(super) fn response(self, format: Format) -> Response<ResponseBody> {
        let mut response = answer::problem_and_close(format, self.status, self.detail);
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, METHODS);
        }
        response
    }
}

/// Checks the head of a request.
pub(super) fn request<B>(
    request: &Request<B>,
    fields: HeadFields,
    ambiguity: Option<Ambiguity>,
    server: &ServerConfig,
) -> Result<(), Refused> {
    match ambiguity {
        None => {}
        Some(Ambiguity::LengthAndEncoding) => {
            let detail = "Content-Length and Transfer-Encoding exclude each other";
            return Err(Refused::new(StatusCode::BAD_REQUEST, detail));
        }
        Some(Ambiguity::SeveralLengths) => return Err(SEVERAL_LENGTHS),
    }
    // hyper counts the fields of HTTP/1 itself.
    if request.version() > Version::HTTP_11 && request.headers().len() > server.headers_max {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        let detail = "the request has too many header fields";
        return Err(Refused::new(status, detail));
    }
    if fields.has(HeadFields::CONTENT_LENGTH) {
        lengths(request.headers()).map_err(|_| SEVERAL_LENGTHS)?;
    }
    if fields.has(HeadFields::TRANSFER_ENCODING) {
        transfer_encoding(request.headers())?;
    }
    method(request.method())
}

const SEVERAL_LENGTHS: Refused = Refused {
    status: StatusCode::BAD_REQUEST,
    detail: "Content-Length must be one number",
};

/// Checks the head of an upstream's response; the error says what is wrong with it.
pub(super) fn response(headers: &HeaderMap) -> Result<(), &'static str> {
    lengths(headers).map_err(|_| "the upstream's response has several lengths")?;
    if !headers.contains_key(TRANSFER_ENCODING) {
        return Ok(());
    }
    if transfer_encoding(headers).is_err() {
        return Err("the upstream's response has a transfer coding other than chunked");
    }
    if headers.contains_key(CONTENT_LENGTH) {
        return Err("the upstream's response has both Content-Length and Transfer-Encoding");
    }
    Ok(())
}

/// There is more than one length, or one that is not a number.
struct NotOneLength;

fn lengths(headers: &HeaderMap) -> Result<(), NotOneLength> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lines.next() else {
        return Ok(());
    };
    let is_number = length.as_bytes().iter().all(u8::is_ascii_digit) && !length.is_empty();
    if is_number && lines.next().is_none() {
        return Ok(());
    }
    Err(NotOneLength)
}

/// Only `chunked` can be decoded. Any other coding would be lost, because `Transfer-Encoding` is not
/// forwarded.
fn transfer_encoding(headers: &HeaderMap) -> Result<(), Refused> {
    let lines = headers.get_all(TRANSFER_ENCODING);
    let mut codings = lines.iter().flat_map(|line| {
        let codings = line.as_bytes().split(|byte| *byte == b',');
        codings.map(<[u8]>::trim_ascii)
    });
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    match (codings.next(), codings.next()) {
        (None, _) => return Ok(()),
        (Some(first), None) if is_chunked(first) => return Ok(()),
        (Some(first), Some(second)) if is_chunked(first) && is_chunked(second) => {
            let detail = "the transfer coding chunked can be applied only once";
            return Err(Refused::new(StatusCode::BAD_REQUEST, detail));
        }
        _ => {}
    }
    let detail = "only the transfer coding chunked is supported";
    Err(Refused::new(StatusCode::NOT_IMPLEMENTED, detail))
}

fn method(method: &Method) -> Result<(), Refused> {
    let refuse = |detail| Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, detail));
    if method == Method::CONNECT {
        return refuse("this is not a forward proxy");
    }
    // Some servers ignore the case of methods. Both methods send the header fields of a request back,
    // among them those that the gateway has added.
    let name = method.as_str();
    let is_echo = |echo: &str| name.eq_ignore_ascii_case(echo);
    if is_echo("TRACE") || is_echo("TRACK") {
        return refuse("TRACE and TRACK are not forwarded");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| {
            let name = http::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn only_chunked_and_only_once() {
        for (lines, expected) in [
            (&["chunked"][..], None),
            (&["Chunked "], None),
            (&["gzip, chunked"], Some(501)),
            (&["gzip", "chunked"], Some(501)),
            (&["chunked, gzip"], Some(501)),
            (&["identity"], Some(501)),
            (&["chunked, chunked"], Some(400)),
            (&["chunked", "CHUNKED"], Some(400)),
            (&["chunked,"], Some(501)),
            (&[""], Some(501)),
        ] {
            let lines: Vec<_> = lines
                .iter()
                .map(|line| ("transfer-encoding", *line))
                .collect();
            let refused = transfer_encoding(&headers(&lines)).err();
            assert_eq!(
                refused.map(|refused| refused.status.as_u16()),
                expected,
                "{lines:?}"
            );
        }
    }

    #[test]
    fn a_response_has_one_length_or_one_encoding() {
        for (lines, is_sound) in [
            (&[][..], true),
            (&[("content-length", "5")], true),
            (&[("transfer-encoding", "chunked")], true),
            (&[("content-length", "5"), ("content-length", "5")], false),
            (&[("content-length", "5, 5")], false),
            (&[("content-length", "")], false),
            (&[("transfer-encoding", "gzip")], false),
            (&[("transfer-encoding", "gzip, chunked")], false),
            (
                &[("transfer-encoding", "chunked"), ("content-length", "5")],
                false,
            ),
        ] {
            assert_eq!(response(&headers(lines)).is_ok(), is_sound, "{lines:?}");
        }
    }
}
