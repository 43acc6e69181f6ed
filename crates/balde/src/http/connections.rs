//! A limit on the connections of a server that keeps nobody out: a new connection takes the place of
//! the one that has been idle for the longest time.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::clock::Stopwatch;

/// The places for a server's connections. Clones share them.
///
/// Clients that are slow, that read nothing or that do not say what they want are closed in favour of
/// new ones, so that a health check always gets through.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use balde::http::ConnectionSlots;
/// use tokio::io::AsyncReadExt;
///
/// let slots = ConnectionSlots::new(1);
/// let (server, _client) = tokio::io::duplex(64);
/// let mut first = slots.open(server, Duration::from_secs(10));
/// let (server, _client) = tokio::io::duplex(64);
/// let _second = slots.open(server, Duration::from_secs(10));
/// assert!(first.read_u8().await.is_err(), "it was closed for the second");
/// # });
/// ```
#[derive(Clone)]
pub struct ConnectionSlots(Arc<Slots>);

struct Slots {
    connections_max: usize,
    clock: Stopwatch,
    last_id: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Slot>>>,
    evicted: AtomicU64,
}

struct Slot {
    /// When the client last took bytes, in microseconds; at first, when the connection was opened.
    active_us: AtomicU64,
    /// Requests in progress.
    busy: AtomicUsize,
    is_evicted: AtomicBool,
    /// Of the tasks that read and write.
    wakers: Mutex<[Option<Waker>; 2]>,
}

impl ConnectionSlots {
    /// Creates places for so many connections, at least one.
    pub fn new(connections_max: usize) -> Self {
        Self(Arc::new(Slots {
            connections_max: connections_max.max(1),
            clock: Stopwatch::start(),
            last_id: AtomicU64::new(0),
            open: Mutex::default(),
            evicted: AtomicU64::new(0),
        }))
    }

    /// Gives a connection a place. If all are taken, the connection that has been idle for the longest
    /// time is closed: its reads and writes fail. Connections with a request in progress are closed
    /// only if there are no others.
    ///
    /// A write that makes no progress for `write_timeout` fails, too.
    pub fn open<S>(&self, stream: S, write_timeout: Duration) -> SlotStream<S> {
        let slots = &*self.0;
        let slot = Arc::new(Slot {
            active_us: AtomicU64::new(slots.now_us()),
            busy: AtomicUsize::new(0),
            is_evicted: AtomicBool::new(false),
            wakers: Mutex::default(),
        });
        let id = slots.last_id.fetch_add(1, Ordering::Relaxed);
        let mut open = slots.open.lock();
        if open.len() >= slots.connections_max {
            let is_idle = |slot: &Slot| slot.busy.load(Ordering::Relaxed) == 0;
            if !slots.evict(&mut open, is_idle) {
                slots.evict(&mut open, |_| true);
            }
        }
        open.insert(id, Arc::clone(&slot));
        drop(open);
        SlotStream {
            stream,
            write_timeout,
            stalled: None,
            place: Place {
                id,
                slot,
                slots: Arc::clone(&self.0),
            },
        }
    }

    /// Closes the connection without a request in progress that has been idle for the longest time,
    /// for a server that limits its connections itself. Returns false if there is none.
    pub fn evict_idle(&self) -> bool {
        let mut open = self.0.open.lock();
        let is_idle = |slot: &Slot| slot.busy.load(Ordering::Relaxed) == 0;
        self.0.evict(&mut open, is_idle)
    }

    /// How many connections were closed for others so far.
    pub fn evicted(&self) -> u64 {
        self.0.evicted.load(Ordering::Relaxed)
    }

    /// How many connections are open.
    pub fn len(&self) -> usize {
        self.0.open.lock().len()
    }

    /// Returns whether no connection is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Slots {
    fn now_us(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn evict(&self, open: &mut HashMap<u64, Arc<Slot>>, is_victim: impl Fn(&Slot) -> bool) -> bool {
        let victims = open.iter().filter(|(_, slot)| is_victim(slot));
        let oldest =
            victims.min_by_key(|(id, slot)| (slot.active_us.load(Ordering::Relaxed), **id));
        let oldest = oldest.map(|(id, _)| *id);
        // It makes room at once, even if its task takes a while to notice.
        let Some(slot) = oldest.and_then(|id| open.remove(&id)) else {
            return false;
        };
        self.evicted.fetch_add(1, Ordering::Relaxed);
        slot.is_evicted.store(true, Ordering::Release);
        let wakers = std::mem::take(&mut *slot.wakers.lock());
        wakers.into_iter().flatten().for_each(Waker::wake);
        true
    }
}

/// A connection with its place, which it gives up when it is dropped.
pub struct SlotStream<S> {
    stream: S,
    write_timeout: Duration,
    /// Set while a write makes no progress.
    stalled: Option<Pin<Box<Sleep>>>,
    place: Place,
}

struct Place {
    id: u64,
    slot: Arc<Slot>,
    slots: Arc<Slots>,
}

/// A handle with which a server says that a connection has requests in progress.
#[derive(Clone)]
pub struct BusyConnection {
    slot: Arc<Slot>,
    slots: Arc<Slots>,
}

impl<S> SlotStream<S> {
    /// Returns a handle to say that the connection has requests in progress.
    pub fn busy(&self) -> BusyConnection {
        BusyConnection {
            slot: Arc::clone(&self.place.slot),
            slots: Arc::clone(&self.place.slots),
        }
    }

    fn check<T>(
        &mut self,
        cx: &mut Context<'_>,
        is_write: bool,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let slot = &self.place.slot;
        if result.is_ready() {
            if is_write {
                self.stalled = None;
                let now_us = self.place.slots.now_us();
                slot.active_us.store(now_us, Ordering::Relaxed);
            }
            return result;
        }
        {
            let waker = &mut slot.wakers.lock()[usize::from(is_write)];
            if !waker.as_ref().is_some_and(|own| own.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        if slot.is_evicted.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if is_write {
            let timeout = self.write_timeout;
            let stalled = self
                .stalled
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
            if stalled.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        Poll::Pending
    }
}

impl BusyConnection {
    /// Returns a guard for one request: the request is in progress until the guard is dropped.
    pub fn request(&self) -> impl Drop + Send + '_ {
        self.slot.busy.fetch_add(1, Ordering::Relaxed);
        RequestInProgress(self)
    }

    /// Returns a guard that keeps the connection in use for as long as it exists, such as after a switch
    /// to another protocol.
    pub fn hold(&self) -> impl Drop + Send + Sync + use<> {
        self.slot.busy.fetch_add(1, Ordering::Relaxed);
        Held(self.clone())
    }

    fn end(&self) {
        let now_us = self.slots.now_us();
        self.slot.active_us.store(now_us, Ordering::Relaxed);
        self.slot.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Held(BusyConnection);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct RequestInProgress<'c>(&'c BusyConnection);

impl Drop for RequestInProgress<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SlotStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.check(cx, false, read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SlotStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(cx, true, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.check(cx, true, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            // A flush of nothing is no sign of a client that reads.
            Poll::Ready(flushed) => Poll::Ready(flushed),
            Poll::Pending => self.check(cx, true, Poll::Pending),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.slots.open.lock().remove(&self.id);
    }
}

impl fmt::Debug for ConnectionSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionSlots")
            .field("connections_max", &self.0.connections_max)
            .field("open", &self.len())
            .finish()
    }
}

impl<S> fmt::Debug for SlotStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotStream").finish_non_exhaustive()
    }
}

impl fmt::Debug for BusyConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyConnection").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_new_connection_replaces_the_one_that_is_idle_for_longest() {
        let slots = ConnectionSlots::new(2);
        let (server, mut reader) = duplex(64);
        let mut first = slots.open(server, TIMEOUT);
        let (server, _client) = duplex(64);
        let mut second = slots.open(server, TIMEOUT);
        tokio::time::sleep(Duration::from_millis(1)).await;
        first.write_all(b"x").await.unwrap();
        assert_eq!(reader.read_u8().await.unwrap(), b'x');
        let (server, _client) = duplex(64);
        let reading = tokio::spawn(async move { second.read_u8().await });
        tokio::task::yield_now().await;
        let third = slots.open(server, TIMEOUT);
        assert!(reading.await.unwrap().is_err());
        assert_eq!((slots.len(), slots.evicted()), (2, 1));
        first.write_all(b"y").await.unwrap();
        drop((first, third));
        assert!(slots.is_empty());
    }

    #[tokio::test]
    async fn a_request_in_progress_is_kept() {
        let slots = ConnectionSlots::new(1);
        let (server, _client) = duplex(64);
        let first = slots.open(server, TIMEOUT);
        let busy = first.busy();
        let request = busy.request();
        assert!(!slots.evict_idle());
        drop(request);
        let held = busy.hold();
        assert!(!slots.evict_idle());
        drop(held);
        assert!(slots.evict_idle());
        assert!(slots.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_given_up() {
        let slots = ConnectionSlots::new(1);
        let (server, _client) = duplex(4);
        let mut stream = slots.open(server, TIMEOUT);
        let error = stream.write_all(b"more than fits").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
