//! Connections: accepted, perhaps over TLS, served one request after the other, and let go.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming as HyperBody;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Simulator;
use crate::tls::certificate_ispb;

/// The most connections at once; others wait to be accepted.
pub const CONNECTIONS_MAX: usize = 10_000;

/// How long a connection may be idle, and a request's head may take.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// How long agreeing on TLS may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long requests may take to end once the end has come.
const GRACE: Duration = Duration::from_secs(10);

/// Serves a simulated DICT until `shutdown` is there; then requests under way are answered and
/// settled, and connections closed.
pub async fn run(
    listener: TcpListener,
    simulator: Simulator,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (end, ended) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        // Connections that have ended are forgotten as we go.
        while connections.try_join_next().is_some() {}
        let accepted = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let simulator = simulator.clone();
                let ended = ended.clone();
                connections.spawn(async move {
                    serve(stream, simulator, ended).await;
                    drop(place);
                });
            }
            // Out of file descriptors, or a client that left in between: neither is the end.
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    drop(listener);
    let _nobody_may_be_left = end.send(true);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, all).await.is_err() {
        tracing::warn!("some connections were cut: their requests took too long");
        connections.shutdown().await;
    }
    Ok(())
}

async fn serve(stream: TcpStream, simulator: Simulator, ended: watch::Receiver<bool>) {
    let _slower_without = stream.set_nodelay(true);
    let Some(config) = simulator.0.tls.clone() else {
        return serve_stream(stream, simulator, None, ended).await;
    };
    let handshake = TlsAcceptor::from(config).accept(stream);
    match tokio::time::timeout(HANDSHAKE_MAX, handshake).await {
        Ok(Ok(stream)) => {
            let certificates = stream.get_ref().1.peer_certificates();
            let certificate = certificates.and_then(|chain| certificate_ispb(chain.first()?));
            serve_stream(stream, simulator, certificate, ended).await;
        }
        Ok(Err(error)) => tracing::info!(%error, "no agreement about TLS"),
        Err(_) => tracing::info!("agreeing about TLS took too long"),
    }
}

async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    simulator: Simulator,
    certificate: Option<String>,
    mut ended: watch::Receiver<bool>,
) {
    let certificate = certificate.map(Arc::<str>::from);
    let service = service_fn(|request: http::Request<HyperBody>| {
        let simulator = simulator.clone();
        let certificate = certificate.clone();
        async move { Ok::<_, Infallible>(simulator.serve(request, certificate).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .keep_alive(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let the_end = async {
        let _gone_is_the_end_too = ended.wait_for(|ended| *ended).await.map(drop);
    };
    let outcome = tokio::select! {
        outcome = &mut connection => outcome,
        () = the_end => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection ended");
    }
}
