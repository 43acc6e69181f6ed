//! Reads request bodies, within limits on size and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming as HyperBody};

use super::answer::Answer;
use crate::wire::Problem;
use balde_dict::Operation;

/// The longest request body, in bytes. A checkKeys with 200 keys has about 20 kB.
const BODY_BYTES_MAX: usize = 256 * 1_024;

/// How much of a body that is too long is read and discarded, so that the client gets the response.
const DISCARDED_BYTES_MAX: usize = 64 << 20;

/// The most pieces that a body is read in. A body of the longest length in chunks of one byte has
/// fewer.
const FRAMES_MAX: usize = 300_000;

/// How long reading a body may take.
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns true if requests of the operation have an XML body.
pub(super) fn has_body(operation: Operation) -> bool {
    matches!(operation.method(), "POST" | "PUT")
}

/// Reads the body of a DICT request and checks its type.
pub(super) async fn read_request_body(
    operation: Operation,
    parts: &Parts,
    body: HyperBody,
) -> Result<Bytes, Answer> {
    if !has_body(operation) {
        // The body of a GET is ignored.
        return read_body(body).await;
    }
    let encoding = parts.headers.get(CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        let detail = "Compressed requests are not supported";
        let _unread = read_body(body).await;
        let problem = Problem::new(415, "BadRequest").with_detail(detail);
        return Err(Answer::problem(problem));
    }
    if !is_xml(&parts.headers) {
        let detail = "The Content-Type of a request must be application/xml";
        let _unread = read_body(body).await;
        let problem = Problem::new(415, "BadRequest").with_detail(detail);
        return Err(Answer::problem(problem));
    }
    read_body(body).await
}

/// Returns true for XML content types, and for the form type that curl sends by default.
fn is_xml(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return true;
    };
    let Ok(value) = value.to_str() else {
        return false;
    };
    let kind = value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    matches!(
        kind.as_str(),
        "" | "application/xml" | "text/xml" | "application/x-www-form-urlencoded"
    ) || kind.ends_with("+xml")
}

/// Returns true for JSON content types. A web page cannot send those to another site without the
/// site's consent.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok());
    value.is_some_and(|value| {
        let kind = value.split(';').next().unwrap_or_default().trim();
        let kind = kind.to_ascii_lowercase();
        kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
    })
}

/// Reads a body of at most [`BODY_BYTES_MAX`]. The rest of a longer body is discarded, because a client
/// that is still sending would not read the response. A body in more than [`FRAMES_MAX`] pieces is not
/// read to its end: each piece costs more than the byte in it.
pub(super) async fn read_body(mut body: HyperBody) -> Result<Bytes, Answer> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let reading = async {
        let mut pieces = Pieces::default();
        let mut length = 0;
        let mut frames = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                let problem = Problem::bad_request("The body is incomplete");
                return Err(Answer::problem(problem).closing());
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            length += data.len();
            frames += 1;
            if length > DISCARDED_BYTES_MAX || frames > FRAMES_MAX {
                return Err(too_long().closing());
            }
            if length <= BODY_BYTES_MAX {
                pieces.push(data);
            }
        }
        if length > BODY_BYTES_MAX {
            return Err(too_long());
        }
        Ok(pieces.into_bytes())
    };
    tokio::time::timeout(BODY_READ_TIMEOUT, reading)
        .await
        .unwrap_or_else(|_| {
            let problem = Problem::new(408, "BadRequest").with_detail("Reading the body timed out");
            Err(Answer::problem(problem).closing())
        })
}

/// The pieces of a body. A body in one piece, as nearly all are, is not copied; every byte of another
/// is copied into a buffer that grows by doubling.
#[derive(Default)]
struct Pieces {
    first: Bytes,
    joined: BytesMut,
}

impl Pieces {
    fn push(&mut self, data: Bytes) {
        if self.first.is_empty() {
            self.first = data;
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&self.first);
        }
        self.joined.extend_from_slice(&data);
    }

    fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() {
            self.first
        } else {
            self.joined.freeze()
        }
    }
}

fn too_long() -> Answer {
    let detail = format!("The body has more than {BODY_BYTES_MAX} bytes, or too many chunks");
    Answer::problem(Problem::new(413, "BadRequest").with_detail(detail))
}
