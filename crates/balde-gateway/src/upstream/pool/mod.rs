//! The connections to an upstream: HTTP/1.1 connections that are kept for the next request, or one
//! HTTP/2 connection that requests share.
//!
//! A request polls its HTTP/1.1 connection itself until the head of the response has arrived. Small
//! requests with small responses therefore need no other task, and no channel to one: waking tasks
//! costs more than the rest of the pool. Only what is left after the head, such as a long body, is
//! polled by a separate task.
//!
//! | File | Holds |
//! |--|--|
//! | `watched` | what passes over a connection while it serves a request |
//! | `repeat` | which requests are sent a second time, if their connection was closed |

mod repeat;
mod watched;

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery, Uri};
use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::watched::{Traffic, Watched};
use super::connector::{ConnectError, Connector};
use super::fair_line::{ClientId, FairLine};
use super::{SendError, Sending};
use crate::config::{Protocol, Retry, UpstreamConfig};
use crate::deadline::DeadlineTimer;
use crate::held_responses::{HeldResponse, HeldResponses};

/// The longest head of a response, in bytes; also how much of a body is buffered.
const RESPONSE_BUFFER_BYTES_MAX: usize = 64 * 1_024;

/// Unused connections are checked at least this often.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// While a request waits for a connection, slow clients are looked for this often.
const CUT_INTERVAL: Duration = Duration::from_millis(5);

/// How much of a response an HTTP/2 upstream may send before the client takes it, for one response
/// and for all of them. With hyper's adaptive windows both are the same, so that one client that
/// takes nothing would stop the responses of all others.
const STREAM_WINDOW_BYTES: u32 = 128 * 1_024;
const CONNECTION_WINDOW_BYTES: u32 = 64 * 1_024 * 1_024;

/// The connections to an upstream.
pub(super) struct Pool<B> {
    connector: Connector,
    connect_timeout: Duration,
    response_timeout: Duration,
    idle_timeout: Duration,
    retry: Retry,
    base: Uri,
    /// One for each HTTP/1.1 connection that is in use. A connection is opened only if none is unused,
    /// so that they also limit all connections.
    permits: Arc<Semaphore>,
    /// The requests that wait for a permit.
    line: FairLine,
    held_responses: Arc<HeldResponses>,
    unused: Mutex<Unused<B>>,
    /// Held while an HTTP/2 connection is opened, if the upstream speaks nothing else: one is enough.
    opening: Option<tokio::sync::Mutex<()>>,
}

/// Connections that wait for a request.
struct Unused<B> {
    /// The one that was used last comes first.
    http1: Vec<(Http1<B>, Instant)>,
    http2: Option<(http2::SendRequest<B>, Instant)>,
    /// Whether a task checks them.
    is_checked: bool,
}

/// An HTTP/1.1 connection. It makes progress only when it is polled.
struct Http1<B> {
    sender: http1::SendRequest<B>,
    /// `None` once the connection is closed.
    connection: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    task: Arc<CurrentTask>,
    /// The waker that the connection is polled with. It wakes the task that uses the connection now.
    waker: Waker,
    traffic: Arc<Traffic>,
    timer: DeadlineTimer,
}

/// The task that polls a connection now; `None` while the connection is unused.
#[derive(Debug, Default)]
struct CurrentTask(Mutex<Option<Waker>>);

/// The place of a connection that has become a tunnel among the upstream's connections, as an extension
/// of the response.
#[derive(Clone, Debug)]
pub(crate) struct TunnelPermit(#[expect(dead_code, reason = "held")] Arc<OwnedSemaphorePermit>);

/// An HTTP/1.1 connection for one request, after which it goes back to the pool.
struct InUse<B> {
    http1: Http1<B>,
    pool: Arc<Pool<B>>,
    permit: OwnedSemaphorePermit,
}

enum Connection<B> {
    Http1(InUse<B>),
    Http2(http2::SendRequest<B>),
}

/// Why a connection has no response to a request.
enum Unanswered<B> {
    /// There was no response in time.
    TimedOut,
    /// The connection was closed. The request comes back if it may be sent on another one.
    Closed(Option<Box<Request<B>>>),
}

impl<B> Pool<B>
where
    B: Body<Data = Bytes> + From<Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    pub(super) fn new(
        config: &UpstreamConfig,
        connections_max: usize,
        connector: Connector,
    ) -> Self {
        let is_http2 = config.protocol == Protocol::Http2;
        Self {
            connector,
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
            idle_timeout: config.idle_timeout,
            retry: config.retry,
            base: config.uri(),
            permits: Arc::new(Semaphore::new(connections_max)),
            line: FairLine::default(),
            held_responses: Arc::new(HeldResponses::new(connections_max)),
            unused: Mutex::new(Unused {
                http1: Vec::new(),
                http2: None,
                is_checked: false,
            }),
            opening: is_http2.then(tokio::sync::Mutex::default),
        }
    }

    /// Whether a connection can be opened. It is closed again.
    pub(super) async fn is_reachable(&self) -> bool {
        let deadline = Instant::now() + self.connect_timeout;
        self.connector.connect(deadline).await.is_ok()
    }

    pub(super) fn held_responses(&self) -> &Arc<HeldResponses> {
        &self.held_responses
    }

    /// Sends a request, which is taken, and waits for the head of its response. If a connection that was used before
    /// turns out to be closed, the request is sent once more on a new one, unless the upstream may have
    /// processed it and the configuration does not allow that.
    ///
    /// A response that holds a connection has a [`HeldResponse`] among its extensions.
    pub(super) async fn send(
        self: &Arc<Self>,
        request: &mut Option<Request<B>>,
        sending: &Sending,
    ) -> Result<Response<Incoming>, SendError> {
        let deadline = Instant::now() + self.response_timeout;
        loop {
            let is_retry = sending.is_retried();
            let unused = self.unused_now().filter(|_| !is_retry);
            let connection = if let Some(connection) = unused {
                Ok((Connection::Http1(connection), true))
            } else {
                // What few requests do is on the heap: this future is copied before it is polled.
                let connection = Box::pin(self.connection(sending.client(), is_retry));
                let connection = timeout_at(deadline, connection).await;
                connection.map_err(|_| SendError::Timeout)?
            };
            let (connection, is_reused) = match connection {
                Ok(connection) => connection,
                // The first attempt may have reached the upstream.
                Err(_) if sending.is_written() => return Err(SendError::Lost),
                Err(error) => return Err(SendError::NotSent(error)),
            };
            let Some(taken) = request.take() else {
                return Err(SendError::Lost);
            };
            let sent = match connection {
                Connection::Http1(connection) => {
                    let may_repeat = is_reused && self.may_repeat(&taken);
                    connection.send(taken, deadline, may_repeat, sending).await
                }
                Connection::Http2(sender) => {
                    Box::pin(self.send_http2(sender, taken, deadline, sending)).await
                }
            };
            match sent {
                Ok(response) => return Ok(response),
                Err(Unanswered::Closed(Some(again))) if is_reused && !is_retry => {
                    sending.retried();
                    *request = Some(*again);
                }
                Err(Unanswered::Closed(_)) if !sending.is_written() => {
                    return Err(SendError::NotSent(ConnectError::Closed));
                }
                Err(Unanswered::Closed(_)) => return Err(SendError::Lost),
                Err(Unanswered::TimedOut) => return Err(SendError::Timeout),
            }
        }
    }

    /// Whether a request may be sent again although it was written.
    fn may_repeat(&self, request: &Request<B>) -> bool {
        self.retry == Retry::Idempotent && repeat::is_idempotent(request.method())
    }

    async fn send_http2(
        &self,
        mut sender: http2::SendRequest<B>,
        mut request: Request<B>,
        deadline: Instant,
        sending: &Sending,
    ) -> Result<Response<Incoming>, Unanswered<B>> {
        set_base(&mut request, &self.base);
        // Other requests use the connection at the same time, so that there is nothing to copy from.
        let copy = (self.may_repeat(&request) && request.body().is_end_stream()).then(|| {
            let mut copy = Request::new(B::from(Bytes::new()));
            *copy.method_mut() = request.method().clone();
            *copy.uri_mut() = request.uri().clone();
            *copy.headers_mut() = request.headers().clone();
            copy
        });
        let was_written = sending.is_written();
        sending.written();
        match timeout_at(deadline, sender.try_send_request(request)).await {
            Ok(Ok(mut response)) => {
                if !response.body().is_end_stream() {
                    self.hold(&mut response);
                    self.held_responses.cut_slowest();
                }
                Ok(response)
            }
            Ok(Err(mut error)) => {
                let unsent = error.take_message();
                if unsent.is_some() && !was_written {
                    sending.not_written();
                }
                Err(Unanswered::Closed(unsent.or(copy).map(Box::new)))
            }
            Err(_) => Err(Unanswered::TimedOut),
        }
    }

    fn hold(&self, response: &mut Response<Incoming>) {
        let held: Arc<HeldResponse> = self.held_responses.hold();
        response.extensions_mut().insert(held);
    }

    /// An HTTP/1.1 connection that no request uses, if there is one.
    fn unused_now(self: &Arc<Self>) -> Option<InUse<B>> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        self.unused(permit).ok()
    }

    /// The HTTP/2 connection, if there is one.
    fn shared(&self) -> Option<http2::SendRequest<B>> {
        let mut unused = self.unused.lock();
        let (sender, used) = unused.http2.as_mut()?;
        if sender.is_closed() {
            unused.http2 = None;
            return None;
        }
        *used = Instant::now();
        Some(sender.clone())
    }

    /// An HTTP/1.1 connection that no request uses, or the permit back.
    fn unused(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
    ) -> Result<InUse<B>, OwnedSemaphorePermit> {
        loop {
            let popped = self.unused.lock().http1.pop();
            let Some((http1, _)) = popped else {
                return Err(permit);
            };
            // If the upstream has closed it, sending notices it before anything is written.
            if http1.is_ready() {
                return Ok(self.in_use(http1, permit));
            }
        }
    }

    fn in_use(self: &Arc<Self>, http1: Http1<B>, permit: OwnedSemaphorePermit) -> InUse<B> {
        InUse {
            http1,
            pool: Arc::clone(self),
            permit,
        }
    }

    /// A connection, and whether it has been used before. For a retry it is a new one, unless the
    /// upstream speaks HTTP/2 and its connection is still open.
    async fn connection(
        self: &Arc<Self>,
        client: ClientId,
        is_retry: bool,
    ) -> Result<(Connection<B>, bool), ConnectError> {
        if let Some(sender) = self.shared() {
            return Ok((Connection::Http2(sender), true));
        }
        let permits = Arc::clone(&self.permits);
        let (permit, deadline) = if let Ok(permit) = permits.try_acquire_owned() {
            (permit, None)
        } else {
            let deadline = Instant::now() + self.connect_timeout;
            let permit = timeout_at(deadline, self.permit(client)).await;
            (permit.map_err(|_| ConnectError::TooMany)?, Some(deadline))
        };
        let permit = match self.unused(permit) {
            // The new connection takes the place of the unused one.
            Ok(connection) if is_retry => connection.permit,
            Ok(connection) => return Ok((Connection::Http1(connection), true)),
            Err(permit) => permit,
        };
        let deadline = deadline.unwrap_or_else(|| Instant::now() + self.connect_timeout);
        self.open(permit, deadline).await
    }

    /// Waits for a permit. Meanwhile the responses of slow clients are cut, if these hold more than
    /// their share.
    async fn permit(&self, client: ClientId) -> OwnedSemaphorePermit {
        let _turn = self.line.turn(client).await;
        let mut permit = pin!(Arc::clone(&self.permits).acquire_owned());
        loop {
            self.held_responses.cut_slowest();
            if let Ok(Ok(permit)) = timeout(CUT_INTERVAL, permit.as_mut()).await {
                return permit;
            }
        }
    }

    async fn open(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        deadline: Instant,
    ) -> Result<(Connection<B>, bool), ConnectError> {
        let _only_one = match &self.opening {
            None => None,
            Some(opening) => {
                let guard = timeout_at(deadline, opening.lock()).await;
                let guard = guard.map_err(|_| ConnectError::Timeout)?;
                if let Some(sender) = self.shared() {
                    return Ok((Connection::Http2(sender), true));
                }
                Some(guard)
            }
        };
        let stream = self.connector.connect(deadline).await?;
        let is_http2 = stream.is_http2();
        let failed = |_| ConnectError::Failed(std::io::ErrorKind::InvalidData);
        if is_http2 {
            let handshake = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .handshake(TokioIo::new(stream));
            let (sender, connection) = handshake.await.map_err(failed)?;
            tokio::spawn(connection);
            let mut unused = self.unused.lock();
            unused.http2 = Some((sender.clone(), Instant::now()));
            self.check(&mut unused);
            return Ok((Connection::Http2(sender), false));
        }
        let traffic = Arc::new(Traffic::default());
        let stream = Watched::new(stream, Arc::clone(&traffic));
        let handshake = http1::Builder::new()
            .max_buf_size(RESPONSE_BUFFER_BYTES_MAX)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(failed)?;
        let task = Arc::new(CurrentTask::default());
        let http1 = Http1 {
            sender,
            connection: Some(Box::pin(connection.with_upgrades())),
            waker: Waker::from(Arc::clone(&task)),
            task,
            traffic,
            timer: DeadlineTimer::default(),
        };
        Ok((Connection::Http1(self.in_use(http1, permit)), false))
    }

    /// Starts the task that closes unused connections, unless it runs.
    fn check(self: &Arc<Self>, unused: &mut Unused<B>) {
        if !unused.is_checked {
            unused.is_checked = true;
            tokio::spawn(close_unused(
                Arc::downgrade(self),
                self.idle_timeout.min(CHECK_INTERVAL_MAX),
            ));
        }
    }
}

/// Closes connections that have not been used for long, and those that the upstream has closed, until
/// none is left.
async fn close_unused<B>(pool: Weak<Pool<B>>, interval: Duration)
where
    B: Body<Data = Bytes> + From<Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    loop {
        sleep(interval).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut unused = pool.unused.lock();
        let is_recent = |used: &Instant| used.elapsed() < pool.idle_timeout;
        unused
            .http1
            .retain_mut(|(http1, used)| is_recent(used) && http1.is_usable());
        unused
            .http2
            .take_if(|(sender, used)| !is_recent(used) || sender.is_closed());
        if unused.http1.is_empty() && unused.http2.is_none() {
            unused.http1.shrink_to_fit();
            unused.is_checked = false;
            return;
        }
    }
}

impl Wake for CurrentTask {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl CurrentTask {
    fn set(&self, waker: &Waker) {
        let mut current = self.0.lock();
        if !current.as_ref().is_some_and(|one| one.will_wake(waker)) {
            *current = Some(waker.clone());
        }
    }

    fn remove(&self) {
        *self.0.lock() = None;
    }
}

impl<B> Http1<B> {
    /// Makes progress for a task, which is woken when there is more to do.
    fn poll(&mut self, cx: &Context<'_>) {
        self.task.set(cx.waker());
        self.poll_connection();
    }

    fn poll_connection(&mut self) {
        let mut cx = Context::from_waker(&self.waker);
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(&mut cx).is_ready()
        {
            self.connection = None;
        }
    }

    /// Polls a connection that switches protocols until it is handed over.
    async fn hand_over(mut self) {
        poll_fn(|cx| {
            self.poll(cx);
            match self.connection {
                None => Poll::Ready(()),
                Some(_) => Poll::Pending,
            }
        })
        .await;
    }

    /// Whether the next request can be sent.
    fn is_ready(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Whether an unused connection is still open. Polling it also notices that it was closed.
    fn is_usable(&mut self) -> bool {
        self.poll_connection();
        self.is_ready()
    }
}

impl<B> InUse<B>
where
    B: Body<Data = Bytes> + From<Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Sends a request and waits for the head of its response. A request comes back if it was not
    /// written, or may be repeated and was not answered. Dropping the future closes the connection.
    async fn send(
        mut self,
        mut request: Request<B>,
        deadline: Instant,
        may_repeat: bool,
        sending: &Sending,
    ) -> Result<Response<Incoming>, Unanswered<B>> {
        set_origin_form(request.uri_mut());
        set_chunked(&mut request);
        self.http1.traffic.begin(may_repeat);
        // Only the connection below completes this future, so it needs no waker; and no budget, which
        // it would need a waker for.
        let responding = unconstrained(self.http1.sender.try_send_request(request));
        let mut responding = pin!(responding);
        let responded = poll_fn(|cx| {
            self.http1.poll(cx);
            if self.http1.traffic.is_written() {
                sending.written();
            }
            let mut no_waker = Context::from_waker(Waker::noop());
            match responding.as_mut().poll(&mut no_waker) {
                Poll::Ready(responded) => Poll::Ready(Ok(responded)),
                Poll::Pending => {
                    let timed_out = self.http1.timer.poll(deadline, cx);
                    timed_out.map(|()| Err(Unanswered::TimedOut))
                }
            }
        });
        let mut response = match responded.await? {
            Ok(response) => response,
            Err(mut error) => {
                let traffic = &self.http1.traffic;
                let again = error.take_message().filter(|_| !traffic.is_written());
                let again = again.or_else(|| {
                    let written = repeat::parse(traffic.unanswered()?)?;
                    Some(written.map(B::from))
                });
                return Err(Unanswered::Closed(again.map(Box::new)));
            }
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // The connection is the tunnel's now, and counts until the tunnel ends.
            let Self { http1, permit, .. } = self;
            let permit = TunnelPermit(Arc::new(permit));
            response.extensions_mut().insert(permit);
            if http1.connection.is_some() {
                tokio::spawn(http1.hand_over());
            }
            return Ok(response);
        }
        if self.http1.is_ready() {
            self.put_back();
        } else if self.http1.connection.is_some() {
            // A body is still on its way, in either direction.
            self.pool.hold(&mut response);
            tokio::spawn(self.finish());
        }
        Ok(response)
    }

    async fn finish(mut self) {
        poll_fn(|cx| {
            self.http1.poll(cx);
            if self.http1.is_ready() || self.http1.connection.is_none() {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
        if self.http1.is_ready() {
            self.put_back();
        }
    }

    fn put_back(self) {
        let Self {
            http1,
            pool,
            permit,
        } = self;
        // The response's body, which may still be read, wakes the connection.
        http1.task.remove();
        let mut unused = pool.unused.lock();
        unused.http1.push((http1, Instant::now()));
        pool.check(&mut unused);
        drop(unused);
        // Only now, so that whoever gets the permit finds the connection.
        drop(permit);
    }
}

/// HTTP/1.1 has only path and query in the request line.
fn set_origin_form(uri: &mut Uri) {
    if uri.authority().is_some() {
        *uri = match uri.path_and_query() {
            Some(path) if path != "/" => Uri::from(path.clone()),
            _ => Uri::default(),
        };
    }
}

/// hyper sends no body with a GET or HEAD whose length is not known, unless it is told to.
fn set_chunked<B: Body>(request: &mut Request<B>) {
    if request.body().is_end_stream() || request.body().size_hint().exact().is_some() {
        return;
    }
    let headers = request.headers_mut();
    if !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// HTTP/2 also has scheme and authority. The authority must be what `Host` says, because a server may
/// read either.
fn set_base<B>(request: &mut Request<B>, base: &Uri) {
    let mut parts = base.clone().into_parts();
    let host = request.headers().get(HOST);
    if let Some(host) = host.and_then(|host| Authority::try_from(host.as_bytes()).ok()) {
        parts.authority = Some(host);
    }
    let uri = request.uri_mut();
    let path = std::mem::take(uri).into_parts().path_and_query;
    parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    *uri = Uri::from_parts(parts).expect("scheme, authority and path make a URI");
}

#[cfg(test)]
mod tests;
