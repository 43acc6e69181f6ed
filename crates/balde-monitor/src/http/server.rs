//! Accepts connections, within limits: clients of the pages must never take what polling and delivery
//! need.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use balde::http::{ConnectionSlots, descriptor_limits};
use balde_net::{MaybeTlsStream, Serving, accept};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::authenticate::Peer;

/// The most concurrent connections. A further one takes the place of the one that has been idle for the
/// longest time, so that health checks always get an answer.
const CONNECTIONS_MAX: usize = 128;

/// How long a client may accept no byte of a response.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// The part of the process's file descriptors that connections may take. The rest is in reserve for
/// the database, the sources and the sinks.
const DESCRIPTORS_SHARE: usize = 4;

/// How long a connection may be idle, and reading the head of a request may take.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// How long a request may take, from its head to the response.
const REQUEST_MAX: Duration = Duration::from_secs(20);

/// How long a connection may last, so that clients that read slowly, or not at all, do not keep
/// others out. After that the response in progress is finished and the connection closed.
const CONNECTION_MAX: Duration = Duration::from_secs(120);

/// How long that may take.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// Serves until `shutdown` completes, and then finishes the requests in flight.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<rustls::ServerConfig>>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let slots = ConnectionSlots::new(connections_max());
    let (stop, stopped) = watch::channel(false);
    let shutdown = async {
        shutdown.await;
        stop.send_replace(true);
    };
    let prepare = |stream, address: SocketAddr| {
        let stream = slots.open(stream, WRITE_MAX);
        let (router, stopped, tls) = (router.clone(), stopped.clone(), tls.clone());
        let serving: Serving = Box::pin(async move {
            if let Ok(stream) = MaybeTlsStream::accept(stream, tls).await {
                serve_connection(stream, Peer(address.ip()), router, stopped).await;
            }
        });
        std::future::ready(serving)
    };
    accept(listener, shutdown, || CLOSE_MAX, prepare).await;
    Ok(())
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        respond(router.clone(), request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(16 * 1024)
        // A client that closes its half after a request still gets the response, and one that is gone
        // costs no more than `REQUEST_MAX`, or a stream until its next event.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = async {
        tokio::select! {
            () = tokio::time::sleep(CONNECTION_MAX) => {}
            _ = stopped.wait_for(|is_stopped| *is_stopped) => {}
        }
    };
    // Errors of a connection are the client's business: it left, or was too slow.
    tokio::select! {
        _ = &mut connection => return,
        () = ended => connection.as_mut().graceful_shutdown(),
    }
    let _closed_or_cut = tokio::time::timeout(CLOSE_MAX, connection).await;
}

async fn respond(
    router: Router,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::convert::Infallible> {
    let response = router.oneshot(request.map(Body::new));
    let response = tokio::time::timeout(REQUEST_MAX, response).await;
    response.unwrap_or_else(|_| {
        let why = "the monitor is too busy to respond in time; try again later\n";
        Ok((StatusCode::SERVICE_UNAVAILABLE, why).into_response())
    })
}

/// The most event streams: half of the connections, so that the other half is for requests that end.
pub(super) fn event_streams_max() -> usize {
    connections_max() / 2
}

/// The most connections: [`CONNECTIONS_MAX`], or fewer where the process may open few files.
fn connections_max() -> usize {
    let soft = descriptor_limits().and_then(|limits| usize::try_from(limits.soft).ok());
    soft.map_or(CONNECTIONS_MAX, |soft| {
        (soft / DESCRIPTORS_SHARE).clamp(8, CONNECTIONS_MAX)
    })
}
