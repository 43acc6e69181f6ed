//! A stream to an upstream that notes what became of the current request: whether any byte of it was
//! written, whether any byte of a response was read, and a copy of it if it may be sent again.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest request that is copied, in bytes. A longer one is not sent again.
const COPY_BYTES_MAX: usize = 16 * 1_024;

/// A copy's buffer above this size is not kept for the next request.
const COPY_BYTES_KEPT: usize = 2 * 1_024;

/// A stream that notes what passes over it.
pub(super) struct Watched<S> {
    stream: S,
    traffic: Arc<Traffic>,
}

/// What passed over a connection since the current request began.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    is_written: AtomicBool,
    is_read: AtomicBool,
    /// Whether everything that was written is in `copy`.
    is_copied: AtomicBool,
    copy: Mutex<Vec<u8>>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, traffic: Arc<Traffic>) -> Self {
        Self { stream, traffic }
    }
}

impl Traffic {
    /// Begins a request, of which a copy is kept or not.
    pub(super) fn begin(&self, is_copied: bool) {
        // One task at a time uses a connection, and synchronizes with the next one by the pool's lock.
        self.is_written.store(false, Ordering::Relaxed);
        self.is_read.store(false, Ordering::Relaxed);
        self.is_copied.store(is_copied, Ordering::Relaxed);
        if is_copied {
            let mut copy = self.copy.lock();
            copy.clear();
            copy.shrink_to(COPY_BYTES_KEPT);
        }
    }

    /// Whether any byte of the request was written.
    pub(super) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }

    /// Everything that was written of a request to which no byte of a response was read; `None` if no
    /// copy was kept.
    pub(super) fn unanswered(&self) -> Option<Vec<u8>> {
        let is_unanswered = !self.is_read.load(Ordering::Relaxed);
        (is_unanswered && self.is_copied.load(Ordering::Relaxed))
            .then(|| std::mem::take(&mut *self.copy.lock()))
    }

    fn wrote<'b>(&self, written: usize, slices: impl Iterator<Item = &'b [u8]>) {
        if written == 0 {
            return;
        }
        self.is_written.store(true, Ordering::Relaxed);
        if !self.is_copied.load(Ordering::Relaxed) {
            return;
        }
        let mut copy = self.copy.lock();
        if copy.len() + written > COPY_BYTES_MAX {
            self.is_copied.store(false, Ordering::Relaxed);
            *copy = Vec::new();
            return;
        }
        let mut left = written;
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            copy.extend_from_slice(part);
            left -= part.len();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if buffer.filled().len() > before {
            self.traffic.is_read.store(true, Ordering::Relaxed);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.traffic.wrote(written, std::iter::once(bytes));
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        self.traffic
            .wrote(written, slices.iter().map(|slice| &**slice));
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_copy_has_everything_or_is_not_kept() {
        let traffic = Arc::new(Traffic::default());
        let (near, mut far) = duplex(64 * 1_024);
        let mut stream = Watched::new(near, Arc::clone(&traffic));
        traffic.begin(true);
        assert!(!traffic.is_written());
        let slices = [IoSlice::new(b"GET /"), IoSlice::new(b" HTTP/1.1")];
        assert_eq!(stream.write_vectored(&slices).await.unwrap(), 14);
        stream.write_all(b"\r\n\r\n").await.unwrap();
        assert!(traffic.is_written());
        assert_eq!(traffic.unanswered().unwrap(), b"GET / HTTP/1.1\r\n\r\n");

        traffic.begin(false);
        stream.write_all(b"POST").await.unwrap();
        assert_eq!((traffic.is_written(), traffic.unanswered()), (true, None));

        traffic.begin(true);
        stream.write_all(&[b'x'; COPY_BYTES_MAX]).await.unwrap();
        stream.write_all(b"x").await.unwrap();
        assert_eq!(traffic.unanswered(), None, "it is too long");

        traffic.begin(true);
        stream.write_all(b"GET").await.unwrap();
        far.write_all(b"H").await.unwrap();
        stream.read_u8().await.unwrap();
        assert_eq!(traffic.unanswered(), None, "a response has begun");
    }
}
