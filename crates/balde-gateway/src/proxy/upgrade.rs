//! Connections that switch to another protocol, such as WebSocket: bytes pass both ways.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::sync::watch;

use crate::shutdown;

const BUFFER_BYTES: usize = 16 * 1_024;

/// Passes bytes between a client and an upstream until one of them closes the connection, or the
/// gateway shuts down.
pub(super) fn spawn(client: OnUpgrade, upstream: OnUpgrade, mut shutdown: watch::Receiver<bool>) {
    tokio::spawn(async move {
        let (client, upstream) = match tokio::try_join!(client, upstream) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(%error, "a connection was not upgraded");
                return;
            }
        };
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        let passing =
            copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER_BYTES, BUFFER_BYTES);
        tokio::select! {
            passed = passing => {
                if let Err(error) = passed {
                    tracing::debug!(%error, "an upgraded connection ended with an error");
                }
            }
            () = shutdown::begun(&mut shutdown) => {}
        }
    });
}
