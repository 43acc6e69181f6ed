//! A client's connection: one that accepts no bytes is given up, and what is read is shown to the
//! framing check.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::framing::RawFraming;
use crate::body::Stall;
use crate::config::ServerConfig;

/// What a connection begins with if it speaks HTTP/2 without being asked.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client's connection.
pub(crate) struct ClientStream<S> {
    stream: S,
    stall: Stall,
    framing: RawFraming,
    /// How much of [`PREFACE`] was read; `None` once the version of HTTP is known. Until then nothing
    /// else limits how long a client may take.
    opening: Option<usize>,
    opening_stall: Stall,
    /// Present once the client has closed its half of the connection and waits for a response.
    half_closed: Option<HalfClosed>,
    half_close_timeout: Duration,
    /// Whether bytes of a response are not flushed yet.
    is_writing: bool,
}

/// A client that sends nothing any longer and may still read. hyper would take it for one that is
/// gone, so it learns of it only when the response has ended, or does not begin in time: a client that
/// is gone and one that waits look the same until something is written to them.
struct HalfClosed {
    stall: Stall,
    /// From then on, writing shows whether somebody reads.
    has_response_begun: bool,
}

impl<S> ClientStream<S> {
    pub(crate) fn new(stream: S, server: &ServerConfig, framing: RawFraming) -> Self {
        Self {
            stream,
            stall: Stall::new(server.write_timeout),
            framing,
            opening: Some(0),
            opening_stall: Stall::new(server.header_timeout),
            half_closed: None,
            half_close_timeout: server.half_close_timeout,
            is_writing: false,
        }
    }

    /// Ready when the reader may know that the client has closed its half.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_in_flight = self.framing.is_in_flight(cx.waker());
        let Some(half_closed) = &mut self.half_closed else {
            return Poll::Ready(Ok(()));
        };
        if !is_in_flight && !self.is_writing {
            return Poll::Ready(Ok(()));
        }
        if half_closed.has_response_begun {
            return Poll::Pending;
        }
        half_closed.stall.poll(cx).map(Ok)
    }

    /// Notes that bytes of a response were written.
    fn wrote(&mut self) {
        self.is_writing = true;
        if let Some(half_closed) = &mut self.half_closed {
            half_closed.has_response_begun = true;
        }
    }

    /// Notes what was read while the version of HTTP is not known.
    fn open(&mut self, read: &[u8]) {
        let Some(seen) = self.opening else { return };
        let expected = &PREFACE[seen..];
        let is_preface = expected.starts_with(&read[..read.len().min(expected.len())]);
        self.opening = (is_preface && read.len() < expected.len()).then(|| seen + read.len());
        if self.opening.is_none() {
            if is_preface {
                self.framing.give_up();
            }
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
        if self.half_closed.is_some() {
            return self.poll_end(cx);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if matches!(read, Poll::Ready(Ok(()))) {
            let is_end = buffer.filled().len() == before && buffer.remaining() > 0;
            if is_end && self.framing.is_awaited() {
                self.half_closed = Some(HalfClosed {
                    stall: Stall::new(self.half_close_timeout),
                    has_response_begun: self.is_writing,
                });
                return self.poll_end(cx);
            }
            let read = &buffer.filled()[before..];
            self.open(read);
            self.framing.push(read);
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
        this.wrote();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        Self::check(&mut this.stall, cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.wrote();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        Self::check(&mut this.stall, cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        if flushed.is_ready() && std::mem::take(&mut this.is_writing) && this.half_closed.is_some()
        {
            // The reader may have waited for this.
            cx.waker().wake_by_ref();
        }
        Self::check(&mut this.stall, cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
