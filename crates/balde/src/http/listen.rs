//! Listening with a long queue of connections.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// How many connections wait to be accepted. The system may allow fewer (on Linux
/// `net.core.somaxconn`).
const BACKLOG: u32 = 4_096;

/// Listens on an address, with a queue of 4,096 connections instead of the usual 1,024: if the queue is
/// full, the system drops a client's first packet, and the client tries again only a second later. So a
/// burst of connections delays a health check less. It is a future because it needs a tokio runtime.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let listener = balde::http::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
/// assert!(listener.local_addr().unwrap().port() > 0);
/// # });
/// ```
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // As `TcpListener::bind` does: a service can be restarted while old connections linger.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
