//! Bodies of requests, within their limit.

use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming as HyperBody};

use super::answer::Answer;
use crate::Operation;
use crate::wire::Problem;

/// The longest body of a request. A checkKeys with 200 keys has some 20 kB.
pub const BODY_BYTES_MAX: usize = 256 * 1_024;

/// What is read of a body that is too long, so that its sender hears the answer.
const DISCARDED_BYTES_MAX: usize = 64 << 20;

/// How long a body may take.
const BODY_READ_MAX: Duration = Duration::from_secs(30);

/// Whether an operation's requests have a document.
pub(super) fn has_body(operation: Operation) -> bool {
    matches!(operation.method(), "POST" | "PUT")
}

/// Reads the body of one of DICT's requests.
pub(super) async fn read_request_body(
    operation: Operation,
    parts: &Parts,
    body: HyperBody,
) -> Result<Bytes, Answer> {
    if !has_body(operation) {
        // Whatever a GET brings along means nothing.
        return read_body(body).await;
    }
    let encoding = parts.headers.get(CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        let detail = "Compressed requests are not supported";
        let _unread = read_body(body).await;
        let problem = Problem::new(415, "BadRequest").with_detail(detail);
        return Err(Answer::problem(&problem));
    }
    if !is_xml(&parts.headers) {
        let detail = "The body of a request is application/xml";
        let _unread = read_body(body).await;
        let problem = Problem::new(415, "BadRequest").with_detail(detail);
        return Err(Answer::problem(&problem));
    }
    read_body(body).await
}

/// XML by any of its names; and what curl says when nobody tells it what it sends.
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

/// Reads a body within its limit. One that is too long is read on and thrown away for a while: a
/// client that is still sending would not hear the answer.
pub(super) async fn read_body(mut body: HyperBody) -> Result<Bytes, Answer> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let reading = async {
        let mut whole: Option<Bytes> = None;
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                let problem = Problem::bad_request("The body ends before its end");
                return Err(Answer::problem(&problem).closing());
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            length += data.len();
            if length > DISCARDED_BYTES_MAX {
                return Err(too_long().closing());
            }
            if length > BODY_BYTES_MAX {
                continue;
            }
            whole = Some(match whole {
                None => data,
                Some(before) => {
                    let mut joined = before.chain(data);
                    joined.copy_to_bytes(joined.remaining())
                }
            });
        }
        if length > BODY_BYTES_MAX {
            return Err(too_long());
        }
        Ok(whole.unwrap_or_default())
    };
    tokio::time::timeout(BODY_READ_MAX, reading)
        .await
        .unwrap_or_else(|_| {
            let problem = Problem::new(408, "BadRequest").with_detail("The body took too long");
            Err(Answer::problem(&problem).closing())
        })
}

fn too_long() -> Answer {
    let detail = format!("The body has more than {BODY_BYTES_MAX} bytes");
    Answer::problem(&Problem::new(413, "BadRequest").with_detail(detail))
}
