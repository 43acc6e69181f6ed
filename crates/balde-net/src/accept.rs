//! The accept loop of every server.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use balde::Clock;
use balde::telemetry::LogThrottle;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long to wait after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);

/// Serves one connection. Boxed, because the type of a whole server would be nested too deeply for the
/// compiler.
pub type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Accepts connections until `shutdown` completes. `prepare` is awaited before the next connection is
/// accepted, and what it returns runs as a separate task. After `shutdown`, connections that are open may
/// take as long as `grace` returns; then they are closed.
pub async fn accept<Prepare>(
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
    grace: impl FnOnce() -> Duration,
    mut prepare: impl FnMut(TcpStream, SocketAddr) -> Prepare,
) where
    Prepare: Future<Output = Serving>,
{
    let (failures, clock) = (LogThrottle::new(), Clock::wall());
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = async {
            let (stream, peer) = listener.accept().await?;
            let _slower_without = stream.set_nodelay(true);
            Ok::<_, std::io::Error>(prepare(stream, peer).await)
        };
        let accepted = tokio::select! {
            // First, so that a handler of signals is installed before the first client is served.
            biased;
            () = &mut shutdown => break,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok(serve) => {
                connections.spawn(serve);
            }
            // Out of file descriptors, or the client is gone already: the listener still works.
            Err(error) => {
                if let Some(suppressed) = failures.allow(clock.now_us()) {
                    tracing::warn!(
                        event_type = "accept_failed", suppressed, %error,
                        "a connection could not be accepted"
                    );
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    let grace = grace();
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, all).await.is_err() {
        if !grace.is_zero() {
            tracing::warn!("closed connections whose requests did not end in time");
        }
        connections.shutdown().await;
    }
}

/// Waits until `shutdown` is true, or its sender is gone.
pub async fn shutdown_begun(shutdown: &mut watch::Receiver<bool>) {
    let _either_way = shutdown.wait_for(|is_over| *is_over).await.map(drop);
}
