//! Accepts connections, optionally over TLS, serves their requests and shuts down gracefully.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use balde::http::{ConnectionSlots, SlotStream, descriptor_limits};
use balde_net::{MaybeTlsStream, Serving, accept, shutdown_begun};
use hyper::body::Incoming as HyperBody;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Simulator;
use crate::tls::ClientCertificate;

/// The most concurrent connections. A further one takes the place of the one that has been idle for the
/// longest time.
const CONNECTIONS_MAX: usize = 10_000;

/// How long a client may accept no byte of a response.
const WRITE_MAX: Duration = Duration::from_secs(30);

/// How long a connection may be idle, and reading a request's head may take.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// How long requests may take to finish after shutdown has started.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// Serves a simulated DICT until `shutdown` completes. Requests in flight are then answered and
/// settled, and connections are closed.
pub async fn run(
    listener: TcpListener,
    simulator: Simulator,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let slots = ConnectionSlots::new(connections_max());
    let (shutdown_sender, shutdown_receiver) = watch::channel(false);
    let shutdown = async {
        shutdown.await;
        shutdown_sender.send_replace(true);
    };
    let prepare = |stream, _| {
        let stream = slots.open(stream, WRITE_MAX);
        let serving = serve(stream, simulator.clone(), shutdown_receiver.clone());
        std::future::ready::<Serving>(Box::pin(serving))
    };
    accept(listener, shutdown, || SHUTDOWN_GRACE, prepare).await;
    if let Some(transcript) = &simulator.0.transcript {
        transcript.finish();
    }
    Ok(())
}

/// [`CONNECTIONS_MAX`], or half of the file descriptors that the process may open, if that is less.
fn connections_max() -> usize {
    let soft = descriptor_limits().and_then(|limits| usize::try_from(limits.soft).ok());
    soft.map_or(CONNECTIONS_MAX, |soft| (soft / 2).clamp(8, CONNECTIONS_MAX))
}

async fn serve(
    stream: SlotStream<TcpStream>,
    simulator: Simulator,
    shutdown: watch::Receiver<bool>,
) {
    match MaybeTlsStream::accept(stream, simulator.0.tls.clone()).await {
        Ok(stream) => {
            let certificate = stream.client_certificate();
            let certificate = certificate.map(|der| ClientCertificate::of(der));
            serve_stream(stream, simulator, certificate, shutdown).await;
        }
        Err(error) => tracing::info!(%error, "TLS handshake failed"),
    }
}

async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    simulator: Simulator,
    certificate: Option<ClientCertificate>,
    mut shutdown: watch::Receiver<bool>,
) {
    let certificate = certificate.map(Arc::new);
    let service = service_fn(|request: http::Request<HyperBody>| {
        let simulator = simulator.clone();
        let certificate = certificate.clone();
        async move { Ok::<_, Infallible>(simulator.serve(request, certificate).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .keep_alive(true)
        // A client that closes its half after a request still gets the response. Requests are short, so
        // one that is gone costs little.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = &mut connection => result,
        () = shutdown_begun(&mut shutdown) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection closed with an error");
    }
}
