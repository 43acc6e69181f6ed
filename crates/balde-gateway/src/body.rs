//! Bodies on their way through: counted, timed, never collected as a whole.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

use crate::held_responses::HeldResponse;

/// What went wrong with a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BodyFault {
    /// Nothing, as far as it was read.
    None = 0,
    /// It is longer than allowed.
    TooLong = 1,
    /// The client stopped sending.
    Timeout = 2,
    /// The client's connection was lost, or the encoding is broken.
    Broken = 3,
}

/// What a [`FaultCell`] notes once the whole body was read; otherwise a [`BodyFault`].
const COMPLETE: u8 = 4;

/// Where the body of a request notes what went wrong, for the one who answers, and whether it was read
/// completely.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultCell(Option<Arc<AtomicU8>>);

impl FaultCell {
    /// For a request whose body cannot fail: it has none, or it is there already.
    pub(crate) const fn without_body() -> Self {
        Self(None)
    }

    /// Whether the whole body was read. True for a request without one.
    pub(crate) fn is_complete(&self) -> bool {
        let noted = self.0.as_ref();
        noted.is_none_or(|noted| noted.load(Ordering::Acquire) == COMPLETE)
    }

    /// For a request whose body is read.
    pub(crate) fn of_body() -> Self {
        Self(Some(Arc::default()))
    }

    pub(crate) fn get(&self) -> BodyFault {
        match self.0.as_ref().map(|fault| fault.load(Ordering::Acquire)) {
            Some(1) => BodyFault::TooLong,
            Some(2) => BodyFault::Timeout,
            Some(3) => BodyFault::Broken,
            _ => BodyFault::None,
        }
    }

    fn set_complete(&self) {
        if let Some(noted) = &self.0 {
            noted.store(COMPLETE, Ordering::Release);
        }
    }

    fn set(&self, fault: BodyFault) {
        if let Some(noted) = &self.0 {
            noted.store(fault as u8, Ordering::Release);
        }
    }
}

/// A body could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyError;

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body could not be read to its end")
    }
}

impl std::error::Error for BodyError {}

/// The body of a request to an upstream.
pub(crate) enum RequestBody {
    /// One that is there already.
    Full(Full<Bytes>),
    /// The client's, as it arrives.
    Streaming(Box<Streaming>),
}

/// A client's body: at most so long, with at most so much time between its parts.
pub(crate) struct Streaming {
    incoming: Incoming,
    left: u64,
    stall: Stall,
    fault: FaultCell,
    /// What was read ahead.
    ahead: VecDeque<Frame<Bytes>>,
    ahead_bytes: u64,
    /// Whether everything was read.
    is_complete: bool,
    /// What the body occupies until everything was read.
    slot: Option<OwnedSemaphorePermit>,
}

impl RequestBody {
    pub(crate) fn empty() -> Self {
        Self::Full(Full::default())
    }

    pub(crate) fn full(bytes: Bytes) -> Self {
        Self::Full(Full::new(bytes))
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::full(bytes)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Full(full) => Pin::new(full).poll_frame(cx).map_err(|_| BodyError),
            Self::Streaming(streaming) => streaming.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(full) => full.is_end_stream(),
            Self::Streaming(streaming) => streaming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(full) => full.size_hint(),
            Self::Streaming(streaming) => streaming.size_hint(),
        }
    }
}

impl Streaming {
    pub(crate) fn new(
        incoming: Incoming,
        bytes_max: u64,
        timeout: Duration,
        fault: FaultCell,
    ) -> Self {
        Self {
            incoming,
            left: bytes_max,
            stall: Stall::new(timeout),
            fault,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            is_complete: false,
            slot: None,
        }
    }

    /// Keeps a permit until everything was read.
    pub(crate) fn occupy(&mut self, slot: OwnedSemaphorePermit) {
        if !self.is_complete {
            self.slot = Some(slot);
        }
    }

    /// Reads the next part ahead of the upstream. Returns how many bytes were read ahead, or `None`
    /// once everything was. A future that is dropped loses nothing.
    pub(crate) async fn read_ahead(&mut self) -> Result<Option<u64>, BodyError> {
        let frame = std::future::poll_fn(|cx| self.poll_incoming(cx)).await;
        if let Some(frame) = frame.transpose()? {
            self.ahead_bytes += length_of(&frame);
            self.ahead.push_back(frame);
        }
        Ok((!self.is_complete).then_some(self.ahead_bytes))
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.ahead.pop_front() {
            Some(frame) => {
                self.ahead_bytes -= length_of(&frame);
                Poll::Ready(Some(Ok(frame)))
            }
            None => self.poll_incoming(cx),
        }
    }

    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_complete {
            return Poll::Ready(None);
        }
        let fault = match Pin::new(&mut self.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.stall.reset();
                match self.left.checked_sub(length_of(&frame)) {
                    Some(left) => {
                        self.left = left;
                        if self.incoming.is_end_stream() {
                            self.complete();
                        }
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    None => BodyFault::TooLong,
                }
            }
            Poll::Ready(Some(Err(_))) => BodyFault::Broken,
            Poll::Ready(None) => {
                self.complete();
                return Poll::Ready(None);
            }
            Poll::Pending if self.stall.poll(cx).is_ready() => BodyFault::Timeout,
            Poll::Pending => return Poll::Pending,
        };
        self.fault.set(fault);
        Poll::Ready(Some(Err(BodyError)))
    }

    fn complete(&mut self) {
        self.is_complete = true;
        self.fault.set_complete();
        self.slot = None;
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && (self.is_complete || self.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_complete {
            return SizeHint::with_exact(self.ahead_bytes);
        }
        let rest = self.incoming.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(self.ahead_bytes));
        }
        hint.set_lower(rest.lower().saturating_add(self.ahead_bytes));
        hint
    }
}

fn length_of(frame: &Frame<Bytes>) -> u64 {
    let length = frame.data_ref().map_or(0, Bytes::len);
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The body of a response to a client.
pub(crate) enum ResponseBody {
    /// One that the gateway wrote.
    Own(Full<Bytes>),
    /// The upstream's, as it arrives.
    Upstream(UpstreamBody),
}

/// The body of an upstream's response.
pub(crate) struct UpstreamBody {
    incoming: Incoming,
    stall: Stall,
    /// Present if the body holds a connection to the upstream.
    held: Option<Arc<HeldResponse>>,
}

impl ResponseBody {
    pub(crate) fn own(bytes: impl Into<Bytes>) -> Self {
        Self::Own(Full::new(bytes.into()))
    }

    /// The upstream's body, with at most `timeout` between its parts.
    pub(crate) fn upstream(
        incoming: Incoming,
        timeout: Duration,
        held: Option<Arc<HeldResponse>>,
    ) -> Self {
        if incoming.is_end_stream() {
            return Self::Own(Full::default());
        }
        Self::Upstream(UpstreamBody {
            incoming,
            stall: Stall::new(timeout),
            held,
        })
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Own(full) => Pin::new(full).poll_frame(cx).map_err(|_| BodyError),
            Self::Upstream(body) => match Pin::new(&mut body.incoming).poll_frame(cx) {
                Poll::Ready(frame) => {
                    body.stall.reset();
                    if let (Some(held), Some(Ok(frame))) = (&body.held, &frame) {
                        held.taken(length_of(frame));
                    }
                    Poll::Ready(frame.map(|frame| frame.map_err(|_| BodyError)))
                }
                Poll::Pending if body.stall.poll(cx).is_ready() => {
                    Poll::Ready(Some(Err(BodyError)))
                }
                Poll::Pending => {
                    if let Some(held) = &body.held {
                        held.awaits_upstream();
                    }
                    Poll::Pending
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(full) => full.is_end_stream(),
            Self::Upstream(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(full) => full.size_hint(),
            Self::Upstream(body) => body.incoming.size_hint(),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

impl fmt::Debug for UpstreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamBody").finish_non_exhaustive()
    }
}

/// A timer that exists only while something is waited for.
pub(crate) struct Stall {
    timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            timer: None,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.timer = None;
    }

    /// Ready once the timeout has passed since the first poll after a reset.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(self.timeout)));
        timer.as_mut().poll(cx)
    }
}
