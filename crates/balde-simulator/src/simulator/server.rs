//! Accepts connections, optionally over TLS, serves their requests and shuts down gracefully.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use balde::http::{ConnectionSlots, SlotStream, descriptor_limits};
use hyper::body::Incoming as HyperBody;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Simulator;
use crate::tls::ClientCertificate;

/// The most concurrent connections. A further one takes the place of the one that has been idle for the
/// longest time.
const CONNECTIONS_MAX: usize = 10_000;

/// How long a client may accept no byte of a response.
const WRITE_MAX: Duration = Duration::from_secs(30);

/// How long a connection may be idle, and reading a request's head may take.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// How long the TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long requests may take to finish after shutdown has started.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// Serves a simulated DICT until `shutdown` completes. Requests in flight are then answered and
/// settled, and connections are closed.
pub async fn run(
    listener: TcpListener,
    simulator: Simulator,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let finished = simulator.clone();
    let slots = ConnectionSlots::new(connections_max());
    let (shutdown_sender, shutdown_receiver) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        // Removes connections that have ended.
        while connections.try_join_next().is_some() {}
        // The shutdown is polled first: its signal handler must be installed before the first client
        // is accepted.
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let simulator = simulator.clone();
                let shutdown_receiver = shutdown_receiver.clone();
                let _only_slower_without = stream.set_nodelay(true);
                let stream = slots.open(stream, WRITE_MAX);
                connections.spawn(serve(stream, simulator, shutdown_receiver));
            }
            // Out of file descriptors, or the client has disconnected: the listener still works.
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    drop(listener);
    let _no_connection_is_open = shutdown_sender.send(true);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_GRACE, all).await.is_err() {
        tracing::warn!("closed connections whose requests did not finish in time");
        connections.shutdown().await;
    }
    if let Some(transcript) = &finished.0.transcript {
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
    let Some(config) = simulator.0.tls.clone() else {
        return serve_stream(stream, simulator, None, shutdown).await;
    };
    let handshake = TlsAcceptor::from(config).accept(stream);
    match tokio::time::timeout(HANDSHAKE_MAX, handshake).await {
        Ok(Ok(stream)) => {
            let certificates = stream.get_ref().1.peer_certificates();
            let certificate = certificates.and_then(|chain| chain.first());
            let certificate = certificate.map(|der| ClientCertificate::of(der));
            serve_stream(stream, simulator, certificate, shutdown).await;
        }
        Ok(Err(error)) => tracing::info!(%error, "TLS handshake failed"),
        Err(_) => tracing::info!("TLS handshake timed out"),
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
    let shutdown_started = async {
        let _closed_channel_counts_too = shutdown.wait_for(|started| *started).await.map(drop);
    };
    let result = tokio::select! {
        result = &mut connection => result,
        () = shutdown_started => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection closed with an error");
    }
}
