//! The Redis protocol: `CL.THROTTLE` as redis-cell has it, and `BALDE.*` for the rest.
//!
//! | File | Holds |
//! |--|--|
//! | `frame.rs` | commands out of bytes, within limits |
//! | `commands.rs` | commands out of words |
//! | `session.rs` | the state of a connection, and what clients send when they connect |
//! | `reply.rs` | answers in both versions of the protocol |

mod commands;
mod frame;
mod reply;
mod session;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde_net::shutdown_begun;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use self::frame::FrameReader;
use self::session::{Next, Session};
use crate::access::SharedAccess;
use crate::config::RespConfig;
use crate::decisions::Decisions;
use crate::input_budget::{InputBudget, InputShare};
use crate::listener::{ClientStream, Connection, Protocol};
use crate::metrics::ProtocolMetrics;

/// How many bytes are read at a time: few from a connection that is mostly idle, and more from one that
/// sends long pipelines.
const READ_BYTES_MIN: usize = 2 << 10;
const READ_BYTES_MAX: usize = 64 << 10;

/// Incomplete commands that are shorter do not count as input of all connections.
const UNCOUNTED_BYTES_MAX: usize = 16 << 10;

/// The most bytes that are read ahead of a command that waits for tokens.
const READ_AHEAD_BYTES_MAX: usize = 64 << 10;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct RespServer {
    decisions: Decisions,
    access: SharedAccess,
    metrics: Arc<ProtocolMetrics>,
    frames: FrameReader,
    reply_bytes_max: usize,
    idle_timeout: Duration,
    input: InputBudget,
    connections: AtomicU64,
}

impl RespServer {
    pub(crate) fn new(
        config: &RespConfig,
        decisions: Decisions,
        access: SharedAccess,
        metrics: Arc<ProtocolMetrics>,
    ) -> Self {
        Self {
            decisions,
            access,
            metrics,
            frames: FrameReader {
                argument_bytes_max: config.argument_bytes_max,
                arguments_max: config.arguments_max,
            },
            reply_bytes_max: config.reply_bytes_max,
            idle_timeout: config.listener.idle_timeout,
            input: InputBudget::default(),
            connections: AtomicU64::new(0),
        }
    }
}

impl Protocol for RespServer {
    async fn serve(self: Arc<Self>, connection: Connection) {
        let Connection {
            stream, shutdown, ..
        } = connection;
        let id = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let mut client = Client {
            session: Session::new(Arc::clone(&self), id),
            share: self.input.share(),
            server: self,
            stream,
            received: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
            shutdown,
        };
        if let Err(error) = client.serve().await {
            tracing::debug!(%error, "a connection ended with an error");
        }
    }

    fn too_many(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        &[]
    }
}

struct Client {
    server: Arc<RespServer>,
    session: Session,
    stream: ClientStream,
    received: BytesMut,
    /// How many bytes to read next.
    read_bytes: usize,
    /// What of the input of all connections is this one's.
    share: InputShare,
    shutdown: watch::Receiver<bool>,
}

impl Client {
    /// Answers commands until the client closes the connection, is idle for too long, sends what is no
    /// command, or shutdown begins.
    async fn serve(&mut self) -> io::Result<()> {
        loop {
            match self.server.frames.next(&mut self.received) {
                Ok(Some(words)) => {
                    let next = self.answer(&words).await?;
                    let waiting = self.session.replies.bytes.len();
                    if next == Next::Close || waiting >= self.server.reply_bytes_max {
                        self.flush().await?;
                    }
                    if next == Next::Close {
                        return self.stream.shutdown().await;
                    }
                    // A long pipeline must not keep others from this thread.
                    tokio::task::consume_budget().await;
                }
                Ok(None) => {
                    self.flush().await?;
                    let waiting = self.received.len();
                    let counted = if waiting <= UNCOUNTED_BYTES_MAX {
                        0
                    } else {
                        waiting
                    };
                    if !self.share.resize(counted) {
                        let text = "BUSY too many incomplete commands on all connections";
                        self.session.replies.error(&text);
                        self.flush().await?;
                        return self.stream.shutdown().await;
                    }
                    if !self.receive().await? {
                        return Ok(());
                    }
                }
                Err(error) => {
                    self.session.replies.error(&format_args!("ERR {error}"));
                    self.flush().await?;
                    return self.stream.shutdown().await;
                }
            }
        }
    }

    /// Runs a command. If the client goes away while it waits for tokens, the wait ends.
    async fn answer(&mut self, words: &[Bytes]) -> io::Result<Next> {
        let is_waiting = words
            .first()
            .is_some_and(|name| name.eq_ignore_ascii_case(b"balde.wait"));
        if !is_waiting {
            return Ok(self.session.run(words).await);
        }
        self.flush().await?;
        let mut running = std::pin::pin!(self.session.run(words));
        loop {
            let is_room = self.received.len() < READ_AHEAD_BYTES_MAX;
            tokio::select! {
                next = &mut running => return Ok(next),
                read = self.stream.read_buf(&mut self.received), if is_room => {
                    if read? == 0 {
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                }
            }
        }
    }

    /// Reads more bytes. Returns false if there are no more to come.
    async fn receive(&mut self) -> io::Result<bool> {
        if self.received.is_empty() {
            // A connection that is idle keeps no buffer of the time when it was busy.
            self.received = BytesMut::new();
        }
        self.received.reserve(self.read_bytes);
        let room = self.received.capacity() - self.received.len();
        let read = tokio::time::timeout(
            self.server.idle_timeout,
            self.stream.read_buf(&mut self.received),
        );
        let read = tokio::select! {
            read = read => match read {
                Ok(read) => read?,
                Err(_) => 0,
            },
            () = shutdown_begun(&mut self.shutdown) => 0,
        };
        self.read_bytes = if read == room {
            (2 * self.read_bytes).min(READ_BYTES_MAX)
        } else {
            (self.read_bytes / 2).max(READ_BYTES_MIN)
        };
        Ok(read > 0)
    }

    async fn flush(&mut self) -> io::Result<()> {
        let replies = &mut self.session.replies.bytes;
        if !replies.is_empty() {
            self.stream.write_all(replies).await?;
            self.stream.flush().await?;
            replies.clear();
            replies.shrink_to(self.server.reply_bytes_max);
        }
        Ok(())
    }
}
