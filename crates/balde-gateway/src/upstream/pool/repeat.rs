//! Requests that are sent a second time.
//!
//! An upstream may close an unused connection at the moment at which the gateway sends a request on
//! it. A request that was not written is then sent on a new connection, once. One that was written is
//! sent again only if its method is idempotent, no byte of a response was read, and the upstream's
//! configuration allows it.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request};

/// The most header fields of a request that is sent again.
const HEADERS_MAX: usize = 256;

/// Whether a second execution of a request has the same effect as one (RFC 9110, section 9.2.2).
pub(super) fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::PUT | Method::DELETE | Method::OPTIONS
    )
}

/// The request that was written as `bytes`. `None` if they are not one whole request: the rest of its
/// body was not written, or the body is chunked, so that its end is not known.
pub(super) fn parse(bytes: Vec<u8>) -> Option<Request<Bytes>> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(head_length) = head.parse(&bytes).ok()? else {
        return None;
    };
    let mut request = Request::builder().method(head.method?).uri(head.path?);
    let headers = request.headers_mut()?;
    for field in &*head.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    let length = match headers.get(CONTENT_LENGTH) {
        None => 0,
        Some(length) => length.to_str().ok()?.parse().ok()?,
    };
    let is_whole = !headers.contains_key(TRANSFER_ENCODING) && bytes.len() - head_length == length;
    let body = Bytes::from(bytes).slice(head_length..);
    request.body(body).ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_request_is_read_back_and_a_part_is_not() {
        let text = "PUT /a?b=%20 HTTP/1.1\r\nhost: x\r\nx-a: 1\r\nx-a: \u{e9}\r\ncontent-length: 5\r\n\r\nhello";
        let request = parse(text.as_bytes().to_vec()).unwrap();
        assert_eq!(request.method(), Method::PUT);
        assert_eq!(request.uri(), "/a?b=%20");
        let values: Vec<_> = request.headers().get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "\u{e9}"]);
        assert_eq!(request.into_body(), "hello");
        for part in [
            &text[..text.len() - 1],
            &text[..20],
            "PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "",
        ] {
            let parsed = parse(part.as_bytes().to_vec());
            assert!(parsed.is_none(), "{part}");
        }
    }
}
