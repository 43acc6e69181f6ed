//! Connections that switch to another protocol, such as WebSocket: bytes pass both ways.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use balde::http::BusyConnection;
use balde_net::shutdown_begun;
use http::HeaderValue;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::server::OpenConnection;
use crate::upstream::TunnelPermit;

const BUFFER_BYTES: usize = 16 * 1_024;

/// The protocols of a list, as `Upgrade` has it, that a route allows; `None` if there is none.
pub(super) fn allowed(offered: &HeaderValue, allowed: &[String]) -> Option<HeaderValue> {
    let offered = offered.to_str().ok()?.split(',').map(str::trim);
    let is_allowed = |protocol: &&str| {
        let mut allowed = allowed.iter();
        allowed.any(|own| own.eq_ignore_ascii_case(protocol))
    };
    let passing: Vec<&str> = offered.filter(is_allowed).collect();
    if passing.is_empty() {
        return None;
    }
    HeaderValue::try_from(passing.join(", ")).ok()
}

/// Whether the upstream switches to one of the protocols that it was offered.
pub(super) fn is_offered(chosen: &HeaderValue, offered: &HeaderValue) -> bool {
    let (Ok(chosen), Ok(offered)) = (chosen.to_str(), offered.to_str()) else {
        return false;
    };
    let mut offered = offered.split(',').map(str::trim);
    offered.any(|protocol| protocol.eq_ignore_ascii_case(chosen.trim()))
}

/// What a tunnel holds until it ends, and when that is.
pub(super) struct Tunnel {
    /// The client's connection, which counts towards `connections_max` of the server.
    pub(super) client: Arc<OpenConnection>,
    /// Says that the client's connection is in use, so that it does not make room for another one.
    pub(super) busy: BusyConnection,
    /// The upstream's connection, which counts towards its `connections_max`.
    pub(super) upstream: Option<TunnelPermit>,
    pub(super) idle_timeout: Duration,
    pub(super) shutdown: watch::Receiver<bool>,
}

impl Tunnel {
    /// Passes bytes between a client and an upstream until one of them closes the connection, nothing
    /// has passed for long, or the gateway shuts down.
    pub(super) fn spawn(mut self, client: OnUpgrade, upstream: OnUpgrade) {
        let in_use = self.busy.hold();
        tokio::spawn(async move {
            let _in_use = in_use;
            let (client, upstream) = match tokio::try_join!(client, upstream) {
                Ok(both) => both,
                Err(error) => {
                    tracing::debug!(%error, "a connection was not upgraded");
                    return;
                }
            };
            let activity = Activity::default();
            let mut client = activity.watch(TokioIo::new(client));
            let mut upstream = activity.watch(TokioIo::new(upstream));
            let passing = copy_bidirectional_with_sizes(
                &mut client,
                &mut upstream,
                BUFFER_BYTES,
                BUFFER_BYTES,
            );
            tokio::select! {
                passed = passing => {
                    if let Err(error) = passed {
                        tracing::debug!(%error, "an upgraded connection ended with an error");
                    }
                }
                () = activity.idle(self.idle_timeout) => {
                    tracing::debug!("an upgraded connection was idle for too long");
                }
                () = shutdown_begun(&mut self.shutdown) => {}
            }
            drop((self.client, self.upstream));
        });
    }
}

/// When bytes last passed.
#[derive(Clone)]
struct Activity {
    start: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            last_ms: Arc::default(),
        }
    }
}

impl Activity {
    fn watch<S>(&self, stream: S) -> Watched<S> {
        Watched {
            stream,
            activity: self.clone(),
        }
    }

    fn note(&self) {
        let ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(ms, Ordering::Relaxed);
    }

    /// Waits until nothing has passed for this time.
    async fn idle(&self, timeout: Duration) {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let end = self.start + last + timeout;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }
}

/// A connection that notes when bytes pass.
struct Watched<S> {
    stream: S,
    activity: Activity,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.activity.note();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if written.is_ready() {
            self.activity.note();
        }
        written
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
    use super::*;

    #[test]
    fn only_protocols_that_a_route_allows_are_offered() {
        let route = ["websocket".to_owned(), "echo".to_owned()];
        let offer = |text: &'static str| allowed(&HeaderValue::from_static(text), &route);
        assert_eq!(offer("websocket").unwrap(), "websocket");
        assert_eq!(offer("WebSocket").unwrap(), "WebSocket");
        assert_eq!(offer("h2c, echo , x,websocket").unwrap(), "echo, websocket");
        assert_eq!(offer("h2c"), None);
        assert_eq!(offer("websocket2"), None);
        assert_eq!(offer(""), None);
        let offered = HeaderValue::from_static("echo, websocket");
        assert!(is_offered(&HeaderValue::from_static("WebSocket"), &offered));
        assert!(!is_offered(&HeaderValue::from_static("h2c"), &offered));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_is_idle_when_nothing_passes() {
        let activity = Activity::default();
        let start = Instant::now();
        let noting = activity.clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(40)).await;
                noting.note();
            }
        });
        activity.idle(Duration::from_secs(60)).await;
        assert_eq!(start.elapsed().as_secs(), 260);
    }
}
