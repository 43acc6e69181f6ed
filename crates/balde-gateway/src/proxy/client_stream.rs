//! A client's connection: one that accepts no bytes is given up, and the heads of requests are kept
//! until they are checked.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::body::Stall;

/// The raw bytes that were read since the last request, as far as its head may reach.
///
/// hyper follows RFC 9112 and drops `Content-Length` from a request that also has
/// `Transfer-Encoding`. Such a request is an attempt to smuggle another one, or a broken client, and
/// is refused here; by then only the raw head shows it.
#[derive(Clone, Debug)]
pub(crate) struct RawHead {
    bytes: Arc<Mutex<Vec<u8>>>,
    bytes_max: usize,
}

impl RawHead {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Arc::default(),
            bytes_max,
        }
    }

    fn push(&self, read: &[u8]) {
        let mut bytes = self.bytes.lock();
        let room = self.bytes_max.saturating_sub(bytes.len());
        if read.len() <= room {
            bytes.extend_from_slice(read);
        } else {
            // A body went by. The next head begins somewhere in what was read last.
            bytes.clear();
            let tail = read.len().saturating_sub(self.bytes_max);
            bytes.extend_from_slice(&read[tail..]);
        }
    }

    /// Forgets what was read, because a request was parsed from it.
    pub(crate) fn clear(&self) {
        self.bytes.lock().clear();
    }

    /// Whether the head that ends with this request line's fields has a `Content-Length`.
    pub(crate) fn has_content_length(&self, request_line: &str) -> bool {
        let bytes = self.bytes.lock();
        let line = request_line.as_bytes();
        let Some(start) = (0..bytes.len().saturating_sub(line.len()))
            .rev()
            .find(|at| bytes[*at..].starts_with(line))
        else {
            return false;
        };
        let head = &bytes[start..];
        let end = head.windows(4).position(|end| end == b"\r\n\r\n");
        let head = &head[..end.unwrap_or(head.len())];
        head.split(|byte| *byte == b'\n').any(|line| {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            name.trim_ascii().eq_ignore_ascii_case(b"content-length")
        })
    }
}

/// What a connection begins with if it speaks HTTP/2 without being asked.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client's connection.
pub(crate) struct ClientStream<S> {
    stream: S,
    stall: Stall,
    head: RawHead,
    /// How much of [`PREFACE`] was read; `None` once the version of HTTP is known. Until then nothing
    /// else limits how long a client may take.
    opening: Option<usize>,
    opening_stall: Stall,
}

impl<S> ClientStream<S> {
    pub(crate) fn new(
        stream: S,
        read_timeout: Duration,
        write_timeout: Duration,
        head: RawHead,
    ) -> Self {
        Self {
            stream,
            stall: Stall::new(write_timeout),
            head,
            opening: Some(0),
            opening_stall: Stall::new(read_timeout),
        }
    }

    /// Notes what was read while the version of HTTP is not known.
    fn open(&mut self, read: &[u8]) {
        let Some(seen) = self.opening else { return };
        let expected = &PREFACE[seen..];
        let is_preface = expected.starts_with(&read[..read.len().min(expected.len())]);
        self.opening = (is_preface && read.len() < expected.len()).then(|| seen + read.len());
        if self.opening.is_none() {
            self.opening_stall.reset();
        }
    }

    fn check<T>(
        stall: &mut Stall,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            stall.reset();
            return written;
        }
        match stall.poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if matches!(read, Poll::Ready(Ok(()))) {
            let read = &buffer.filled()[before..];
            self.head.push(read);
            self.open(read);
        }
        if read.is_pending() && self.opening.is_some() && self.opening_stall.poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        Self::check(&mut this.stall, cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        Self::check(&mut this.stall, cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        Self::check(&mut this.stall, cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_length_beside_a_transfer_encoding_is_found_in_the_right_head() {
        let head = RawHead::new(1_000);
        head.push(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
        head.push(b"POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        assert!(head.has_content_length("POST /a HTTP/1.1\r\n"));
        assert!(!head.has_content_length("POST /b HTTP/1.1\r\n"));
        head.clear();
        head.push(b"POST /b HTTP/1.1\r\ncontent-LENGTH : 3\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert!(head.has_content_length("POST /b HTTP/1.1\r\n"));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let head = RawHead::new(16);
        for _ in 0..100 {
            head.push(&[b'x'; 11]);
        }
        head.push(&[b'y'; 1_000]);
        assert!(head.bytes.lock().len() <= 16);
    }
}
