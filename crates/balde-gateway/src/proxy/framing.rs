//! Where the requests of an HTTP/1 connection begin and end, in the raw bytes.

use std::sync::Arc;
use std::task::Waker;

use http::Request;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use parking_lot::Mutex;

/// How many times the longest head may be kept: hyper reads ahead of the request that it parses.
const READ_AHEAD: usize = 4;

/// An unused buffer above this size is given back.
const BUFFER_BYTES_KEPT: usize = 4_096;

/// Follows the raw bytes of an HTTP/1 connection from request to request, pipelined ones too.
///
/// hyper follows RFC 9112: it drops `Content-Length` from a request that also has
/// `Transfer-Encoding`, and merges several equal `Content-Length` lines into one. Such a request is an
/// attempt to smuggle another one, or a broken client, and is refused here; by then only the raw head
/// shows it. Bodies are skipped by the framing by which hyper reads them, so that a body that looks
/// like a head is not taken for one.
#[derive(Clone, Debug)]
pub(crate) struct RawFraming(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// What was read since the last head, without its body.
    heads: Vec<u8>,
    bytes_max: usize,
    /// What is left of the last request's body.
    body: BodyRest,
    /// False once the boundaries between requests are unknown, or the protocol is not HTTP/1.
    is_followed: bool,
    /// Whether a request is being answered.
    is_in_flight: bool,
    /// Who reads from the connection, while the client has closed its half and waits for a response.
    reader: Option<Waker>,
}

/// Why two servers could disagree on where a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ambiguity {
    /// It has both `Content-Length` and `Transfer-Encoding`, or it has the latter and its head cannot
    /// be found in the raw bytes.
    LengthAndEncoding,
    /// It has several `Content-Length` lines.
    SeveralLengths,
}

#[derive(Debug)]
enum BodyRest {
    Length(u64),
    Chunked(Chunks),
}

impl RawFraming {
    /// For heads of at most so many bytes.
    pub(crate) fn new(head_bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            heads: Vec::new(),
            bytes_max: head_bytes_max.saturating_mul(READ_AHEAD),
            body: BodyRest::Length(0),
            is_followed: true,
            is_in_flight: false,
            reader: None,
        })))
    }

    /// Notes what was read from the connection.
    pub(crate) fn push(&self, read: &[u8]) {
        let mut state = self.0.lock();
        if !state.is_followed {
            return;
        }
        let skipped = state.body.skip(read);
        let rest = &read[skipped..];
        if state.heads.len() + rest.len() > state.bytes_max {
            state.give_up();
        } else {
            state.heads.extend_from_slice(rest);
        }
    }

    /// Notes that the connection does not speak HTTP/1, or not any longer.
    pub(crate) fn give_up(&self) {
        self.0.lock().give_up();
    }

    /// Notes that hyper has parsed a head. Returns what is ambiguous in it, or `None`.
    pub(crate) fn ambiguity<B>(&self, request: &Request<B>) -> Option<Ambiguity> {
        let is_chunked = request.headers().contains_key(TRANSFER_ENCODING);
        let length = request.headers().get(CONTENT_LENGTH);
        let mut state = self.0.lock();
        let method = request.method().as_str().as_bytes();
        let Some((start, end)) = state.find_head(method) else {
            state.give_up();
            return is_chunked.then_some(Ambiguity::LengthAndEncoding);
        };
        // Most requests have neither, and their heads need not be looked at.
        let lengths = if is_chunked || length.is_some() {
            content_lengths(&state.heads[start..end])
        } else {
            0
        };
        let ambiguity = match (is_chunked, lengths) {
            (true, 1..) => Some(Ambiguity::LengthAndEncoding),
            (false, 2..) => Some(Ambiguity::SeveralLengths),
            _ => None,
        };
        state.body = if is_chunked {
            BodyRest::Chunked(Chunks::default())
        } else {
            let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
            BodyRest::Length(length.unwrap_or(0))
        };
        state.is_in_flight = true;
        let State { heads, body, .. } = &mut *state;
        let skipped = body.skip(&heads[end..]);
        heads.drain(..end + skipped);
        if heads.is_empty() && heads.capacity() > BUFFER_BYTES_KEPT {
            *heads = Vec::new();
        }
        ambiguity
    }

    /// Notes that the response to the last request has ended, as far as the gateway has to produce it.
    pub(crate) fn answered(&self) {
        let mut state = self.0.lock();
        state.is_in_flight = false;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Whether the client has sent a whole request and waits for its response. False if the
    /// boundaries between requests are unknown.
    pub(crate) fn is_awaited(&self) -> bool {
        let state = self.0.lock();
        state.is_followed && state.is_in_flight && state.body.is_over()
    }

    /// Whether a request is being answered; the waker is woken once it is.
    pub(crate) fn is_in_flight(&self, reader: &Waker) -> bool {
        let mut state = self.0.lock();
        if state.is_in_flight {
            state.reader = Some(reader.clone());
        }
        state.is_in_flight
    }
}

impl State {
    fn give_up(&mut self) {
        self.is_followed = false;
        self.heads = Vec::new();
    }

    /// Where the next head begins and ends.
    fn find_head(&self, method: &[u8]) -> Option<(usize, usize)> {
        // Empty lines before a request are ignored, as hyper does.
        let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let start = self.heads.iter().position(|byte| !is_line_end(byte))?;
        let head = &self.heads[start..];
        if !head.starts_with(method) {
            return None;
        }
        let mut line = 0;
        loop {
            let length = head[line..].iter().position(|byte| *byte == b'\n')?;
            if matches!(&head[line..line + length], b"" | b"\r") {
                return Some((start, start + line + length + 1));
            }
            line += length + 1;
        }
    }
}

/// How many `Content-Length` lines a head has.
fn content_lengths(head: &[u8]) -> usize {
    let lines = head.split(|byte| *byte == b'\n').filter(|line| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"content-length")
    });
    lines.count()
}

impl BodyRest {
    fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.part == Part::End,
        }
    }

    /// How many of these bytes belong to the body.
    fn skip(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Length(left) => {
                let skipped = usize::try_from(*left).unwrap_or(usize::MAX);
                let skipped = skipped.min(bytes.len());
                *left -= skipped as u64;
                skipped
            }
            Self::Chunked(chunks) => chunks.skip(bytes),
        }
    }
}

/// A chunked body. hyper checks its syntax, and closes the connection if it is broken; here only its
/// end matters.
#[derive(Debug, Default)]
struct Chunks {
    part: Part,
    /// What is left of the chunk, or its size as far as it was read.
    size: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// The digits of a chunk's size.
    #[default]
    Size,
    /// What follows the size on its line.
    Extension,
    Data,
    /// The line end behind the data.
    DataEnd,
    /// A line after the last chunk; the body ends with an empty one.
    Trailer {
        is_empty: bool,
    },
    End,
}

impl Chunks {
    fn skip(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && self.part != Part::End {
            if self.part == Part::Data {
                let left = usize::try_from(self.size).unwrap_or(usize::MAX);
                let skipped = left.min(bytes.len() - at);
                self.size -= skipped as u64;
                at += skipped;
                if self.size == 0 {
                    self.part = Part::DataEnd;
                }
                continue;
            }
            self.step(bytes[at]);
            at += 1;
        }
        at
    }

    fn step(&mut self, byte: u8) {
        self.part = match (self.part, byte) {
            (Part::Size | Part::Extension, b'\n') if self.size == 0 => {
                Part::Trailer { is_empty: true }
            }
            (Part::Size | Part::Extension, b'\n') => Part::Data,
            (Part::Size, digit) => match char::from(digit).to_digit(16) {
                Some(digit) => {
                    self.size = self.size.saturating_mul(16).saturating_add(digit.into());
                    Part::Size
                }
                None => Part::Extension,
            },
            (Part::DataEnd, b'\n') => Part::Size,
            (Part::Trailer { is_empty: true }, b'\n') => Part::End,
            (Part::Trailer { .. }, b'\n') => Part::Trailer { is_empty: true },
            (Part::Trailer { is_empty }, byte) => Part::Trailer {
                is_empty: is_empty && byte == b'\r',
            },
            (part, _) => part,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Option<Ambiguity> = Some(Ambiguity::LengthAndEncoding);

    fn request(method: &str, name: &str, value: &str) -> Request<()> {
        let request = Request::builder().method(method).uri("/");
        request.header(name, value).body(()).unwrap()
    }

    #[test]
    fn each_head_of_a_pipeline_is_found_behind_bodies_that_look_like_heads() {
        let chunked = request("POST", "transfer-encoding", "chunked");
        let sound = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let both = "POST / HTTP/1.1\r\ncontent-LENGTH : 3\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunks = |data: &str| format!("{:x};a=0\r\n{data}\r\n0\r\nX: 1\r\n\r\n", data.len());
        let bytes = format!(
            "GET / HTTP/1.1\r\nX: 1\r\n\r\n\
             POST / HTTP/1.1\nContent-Length: {}\n\n{both}\
             {sound}{}{sound}{}\r\n{both}{}",
            both.len(),
            chunks(both),
            chunks("{}"),
            chunks(sound),
        );
        // However it is cut into reads, and with as much read ahead as there is.
        for size in [1, 2, 7, 64, 10_000] {
            let framing = RawFraming::new(1_000);
            for read in bytes.as_bytes().chunks(size) {
                framing.push(read);
            }
            assert_eq!(framing.ambiguity(&request("GET", "x", "1")), None);
            let length = both.len().to_string();
            assert_eq!(
                framing.ambiguity(&request("POST", "content-length", &length)),
                None
            );
            assert_eq!(framing.ambiguity(&chunked), None, "{size}");
            assert_eq!(framing.ambiguity(&chunked), None, "{size}");
            assert_eq!(framing.ambiguity(&chunked), BOTH, "{size}");
            assert!(framing.0.lock().heads.is_empty(), "{size}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_refused_only_with_an_encoding() {
        let framing = RawFraming::new(16);
        for _ in 0..100 {
            framing.push(&[b'x'; 11]);
        }
        assert!(framing.0.lock().heads.is_empty(), "what is kept is bounded");
        assert_eq!(framing.ambiguity(&request("GET", "x", "1")), None);
        assert_eq!(
            framing.ambiguity(&request("POST", "transfer-encoding", "chunked")),
            BOTH
        );
        let framing = RawFraming::new(100);
        framing.push(b"PUT / HTTP/1.1\r\n\r\n");
        assert_eq!(
            framing.ambiguity(&request("POST", "transfer-encoding", "chunked")),
            BOTH
        );
    }

    #[test]
    fn several_equal_lengths_are_seen_in_the_raw_head_only() {
        let framing = RawFraming::new(200);
        framing.push(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nX: 1\r\ncontent-length:2\r\n\r\nab");
        framing.push(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab");
        let request = request("POST", "content-length", "2");
        let several = Some(Ambiguity::SeveralLengths);
        assert_eq!(framing.ambiguity(&request), several);
        assert_eq!(framing.ambiguity(&request), None);
    }

    #[test]
    fn a_long_body_is_skipped_and_not_kept() {
        let framing = RawFraming::new(100);
        framing.push(b"POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n");
        assert_eq!(
            framing.ambiguity(&request("POST", "content-length", "5000")),
            None
        );
        for _ in 0..50 {
            framing.push(&[b'x'; 100]);
        }
        assert!(framing.0.lock().heads.is_empty());
        framing.push(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(
            framing.ambiguity(&request("POST", "transfer-encoding", "chunked")),
            None
        );
    }
}
