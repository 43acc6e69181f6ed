//! The connections to an upstream: HTTP/1.1 connections that are kept for the next request, or one
//! HTTP/2 connection that requests share.
//!
//! A request polls its HTTP/1.1 connection itself until the head of the response has arrived. Small
//! requests with small responses therefore need no other task, and no channel to one: waking tasks
//! costs more than the rest of the pool. Only what is left after the head, such as a long body, is
//! polled by a separate task.

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{PathAndQuery, Uri};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, timeout_at};

use super::SendError;
use super::connector::{ConnectError, Connector};
use crate::config::{Protocol, UpstreamConfig};

/// The longest head of a response, in bytes; also how much of a body is buffered.
const RESPONSE_BUFFER_BYTES_MAX: usize = 64 * 1_024;

/// Unused connections are checked at least this often.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The connections to an upstream.
pub(super) struct Pool<B> {
    connector: Connector,
    connect_timeout: Duration,
    idle_timeout: Duration,
    base: Uri,
    /// One for each HTTP/1.1 connection that is in use. A connection is opened only if none is unused,
    /// so that they also limit all connections.
    permits: Arc<Semaphore>,
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
}

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

impl<B> Pool<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    pub(super) fn new(config: &UpstreamConfig, connector: Connector) -> Self {
        let is_http2 = config.protocol == Protocol::Http2;
        Self {
            connector,
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            base: config.uri(),
            permits: Arc::new(Semaphore::new(config.connections_max)),
            unused: Mutex::new(Unused {
                http1: Vec::new(),
                http2: None,
                is_checked: false,
            }),
            opening: is_http2.then(tokio::sync::Mutex::default),
        }
    }

    /// Sends a request and waits for the head of its response. A request that was not sent because
    /// its pooled connection had been closed is sent on another one.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<B>,
    ) -> Result<Response<Incoming>, SendError> {
        loop {
            let connection = self.connection().await;
            let (connection, is_reused) = connection.map_err(SendError::NotSent)?;
            let sent = match connection {
                Connection::Http1(connection) => {
                    set_origin_form(request.uri_mut());
                    connection.send(request).await
                }
                Connection::Http2(mut sender) => {
                    set_base(request.uri_mut(), &self.base);
                    sender.try_send_request(request).await
                }
            };
            match sent {
                Ok(response) => return Ok(response),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_reused => request = unsent,
                    _ => return Err(SendError::Lost),
                },
            }
        }
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
            let Some((mut http1, _)) = popped else {
                return Err(permit);
            };
            if http1.is_usable() {
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

    /// A connection, and whether it has been used before.
    async fn connection(self: &Arc<Self>) -> Result<(Connection<B>, bool), ConnectError> {
        if let Some(sender) = self.shared() {
            return Ok((Connection::Http2(sender), true));
        }
        let permits = Arc::clone(&self.permits);
        let (permit, deadline) = if let Ok(permit) = permits.try_acquire_owned() {
            (permit, None)
        } else {
            let deadline = Instant::now() + self.connect_timeout;
            let waiting = Arc::clone(&self.permits).acquire_owned();
            let permit = timeout_at(deadline, waiting).await;
            let permit = permit.ok().and_then(Result::ok);
            (permit.ok_or(ConnectError::TooMany)?, Some(deadline))
        };
        match self.unused(permit) {
            Ok(connection) => Ok((Connection::Http1(connection), true)),
            Err(permit) => {
                let deadline = deadline.unwrap_or_else(|| Instant::now() + self.connect_timeout);
                self.open(permit, deadline).await
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
        let stream = TokioIo::new(stream);
        let failed = |_| ConnectError::Failed(std::io::ErrorKind::InvalidData);
        if is_http2 {
            let handshake = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .adaptive_window(true)
                .handshake(stream);
            let (sender, connection) = handshake.await.map_err(failed)?;
            tokio::spawn(connection);
            let mut unused = self.unused.lock();
            unused.http2 = Some((sender.clone(), Instant::now()));
            self.check(&mut unused);
            return Ok((Connection::Http2(sender), false));
        }
        let handshake = http1::Builder::new()
            .max_buf_size(RESPONSE_BUFFER_BYTES_MAX)
            .handshake(stream);
        let (sender, connection) = handshake.await.map_err(failed)?;
        let http1 = Http1 {
            sender,
            connection: Some(Box::pin(connection.with_upgrades())),
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
    B: Body<Data = Bytes> + Send + Unpin + 'static,
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

impl<B> Http1<B> {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(cx).is_ready()
        {
            self.connection = None;
        }
    }

    /// Whether the next request can be sent.
    fn is_ready(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Whether an unused connection is still open. Polling it also notices that it was closed.
    fn is_usable(&mut self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop()));
        self.is_ready()
    }
}

impl<B> InUse<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Sends a request and waits for the head of its response. Dropping the future closes the
    /// connection.
    async fn send(
        mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, TrySendError<Request<B>>> {
        // Only the connection below completes this future, so it needs no waker; and no budget, which
        // it would need a waker for.
        let responding = unconstrained(self.http1.sender.try_send_request(request));
        let mut responding = pin!(responding);
        let response = poll_fn(|cx| {
            self.http1.poll(cx);
            let mut no_waker = Context::from_waker(Waker::noop());
            responding.as_mut().poll(&mut no_waker)
        });
        let response = response.await?;
        if self.http1.is_ready() {
            self.put_back();
        } else if self.http1.connection.is_some() {
            // A body is still on its way, in either direction, or the protocol is switched.
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

/// HTTP/2 also has scheme and authority.
fn set_base(uri: &mut Uri, base: &Uri) {
    let mut parts = base.clone().into_parts();
    let path = std::mem::take(uri).into_parts().path_and_query;
    parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    *uri = Uri::from_parts(parts).expect("scheme, authority and path make a URI");
}
