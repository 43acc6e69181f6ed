//! One connection that reconnects by itself.
//!
//! The redis crate can reconnect and retry commands. It cannot know which commands are safe to
//! retry, so this uses its plain multiplexed connection and replaces it when it breaks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, Pipeline, PushInfo, PushKind, RedisError, Value,
};
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::pacing::{Begun, ConnectPacer};
use super::place::{ConnectError, Place};
use super::reply_limit::ReplyLimit;
use super::stream;
use crate::failure::StoreFailure;

/// A handshake may take longer than a call: calls wait for it only until their own deadline.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// The server or Cluster to connect to.
pub(super) enum Target {
    Single(Box<SingleServer>),
    Cluster(Box<ClusterClient>),
}

pub(super) struct SingleServer {
    pub(super) info: ConnectionInfo,
    /// For addresses with `rediss://`.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

#[derive(Clone)]
pub(super) enum Connection {
    Single {
        connection: MultiplexedConnection,
        /// Ends with the last clone, and with it calls that are never answered.
        _driver: Arc<Driver>,
    },
    Cluster(ClusterConnection),
}

/// The task that reads and writes for a connection.
pub(super) struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Single { connection, .. } => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }

    /// Sends to the node that the slot is being migrated to.
    pub(super) async fn send_asking(
        &mut self,
        command: &Cmd,
        node: (String, u16),
    ) -> Result<Value, RedisError> {
        let Self::Cluster(connection) = self else {
            return self.send(command).await;
        };
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command.clone());
        let (host, port) = node;
        let node = SingleNodeRoutingInfo::ByAddress { host, port };
        let mut answers = connection.route_pipeline(pipeline, 1, 1, node).await?;
        answers.pop().unwrap_or(Value::Nil).extract_error()
    }

    /// Sends `count` commands to one server, and returns their replies; an error in one of them is a
    /// value.
    pub(super) async fn send_all(
        &mut self,
        commands: &Pipeline,
        count: usize,
        node: &Node,
    ) -> Result<Vec<Value>, RedisError> {
        match (self, node) {
            (Self::Single { connection, .. }, _) => {
                connection.req_packed_commands(commands, 0, count).await
            }
            (Self::Cluster(connection), Node::Only) => {
                connection.req_packed_commands(commands, 0, count).await
            }
            (Self::Cluster(connection), Node::At(host, port)) => {
                let (host, port) = (host.clone(), *port);
                let node = SingleNodeRoutingInfo::ByAddress { host, port };
                connection
                    .route_pipeline(commands.clone(), 0, count, node)
                    .await
            }
        }
    }
}

/// A server to send commands to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// The one that there is.
    Only,
    /// A node of a Cluster.
    At(String, u16),
}

#[derive(Clone)]
enum State {
    /// Not tried, lost, or failed to connect.
    Down(StoreFailure),
    Connecting,
    Up(Connection),
}

pub(super) struct Link {
    target: Arc<Target>,
    handle: Handle,
    pacer: Arc<ConnectPacer>,
    place: Arc<Place>,
    state: watch::Sender<(u64, State)>,
    attempt: Mutex<Option<AbortHandle>>,
    attempts: AtomicU64,
    connects: AtomicU64,
}

impl Link {
    pub(super) fn new(
        target: Arc<Target>,
        handle: Handle,
        pacer: Arc<ConnectPacer>,
        place: Arc<Place>,
    ) -> Arc<Self> {
        Arc::new(Self {
            target,
            handle,
            pacer,
            place,
            state: watch::Sender::new((0, State::Down(StoreFailure::Disconnected))),
            attempt: Mutex::new(None),
            attempts: AtomicU64::new(0),
            connects: AtomicU64::new(0),
        })
    }

    /// Attempts to connect so far.
    pub(super) fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Connections opened so far.
    pub(super) fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// The connection, if it is open, and its number.
    pub(super) fn ready(&self) -> Option<(u64, Connection)> {
        match &*self.state.borrow() {
            (number, State::Up(connection)) => Some((*number, connection.clone())),
            _ => None,
        }
    }

    /// Returns whether it is neither connected nor connecting.
    pub(super) fn is_down(&self) -> bool {
        matches!(self.state.borrow().1, State::Down(_))
    }

    /// Waits for the connection, or returns why it cannot be opened. The caller sets the timeout.
    pub(super) async fn connected(self: &Arc<Self>) -> Result<(u64, Connection), StoreFailure> {
        let mut watched = self.state.subscribe();
        self.connect_if_due();
        let is_over = |state: &(u64, State)| !matches!(state.1, State::Connecting);
        match watched.wait_for(is_over).await.as_deref() {
            Ok((number, State::Up(connection))) => Ok((*number, connection.clone())),
            Ok((_, State::Down(failure))) => Err(*failure),
            _ => Err(StoreFailure::Disconnected),
        }
    }

    /// Starts to connect, unless it is connected or connecting, or the pacer does not allow it yet.
    pub(super) fn connect_if_due(self: &Arc<Self>) {
        if !self.is_down() {
            return;
        }
        let mut attempt = None;
        self.state.send_if_modified(|state| {
            if let State::Down(_) = state.1
                && let Some(begun) = self.pacer.try_begin()
            {
                let number = state.0 + 1;
                *state = (number, State::Connecting);
                attempt = Some((number, begun));
            }
            attempt.is_some()
        });
        if let Some((number, begun)) = attempt {
            self.attempts.fetch_add(1, Ordering::Relaxed);
            let attempt = Attempt {
                link: Arc::clone(self),
                number,
                begun,
            };
            let task = self.handle.spawn(attempt.run());
            *self.attempt.lock() = Some(task.abort_handle());
        }
    }

    /// Replaces connection `number`, which is broken.
    pub(super) fn lost(self: &Arc<Self>, number: u64) {
        if self.settle(number, State::Down(StoreFailure::Disconnected)) {
            self.connect_if_due();
        }
    }

    /// Aborts the attempt to connect: the store was dropped.
    pub(super) fn stop(&self) {
        if let Some(task) = self.attempt.lock().take() {
            task.abort();
        }
    }

    fn settle(&self, number: u64, next: State) -> bool {
        self.state.send_if_modified(|state| {
            let is_current = state.0 == number && !matches!(state.1, State::Down(_));
            if is_current {
                state.1 = next;
            }
            is_current
        })
    }
}

/// One attempt to connect. It leaves the link in a final state even if its runtime shuts down.
struct Attempt {
    link: Arc<Link>,
    number: u64,
    begun: Begun,
}

impl Attempt {
    async fn run(self) {
        let connecting = connect(&self.link.target, Arc::downgrade(&self.link), self.number);
        let result = tokio::time::timeout(CONNECT_WITHIN, connecting).await;
        let state = match result.unwrap_or(Err(ConnectError::Timeout)) {
            Ok(connection) => {
                self.link.connects.fetch_add(1, Ordering::Relaxed);
                self.link.pacer.succeeded();
                self.link.place.connected();
                State::Up(connection)
            }
            Err(error) => {
                self.link.pacer.failed(self.begun);
                self.link.place.not_connected(&error);
                State::Down(error.failure())
            }
        };
        self.link.settle(self.number, state);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.link.state.send_if_modified(|state| {
            let is_open = state.0 == self.number && matches!(state.1, State::Connecting);
            if is_open {
                state.1 = State::Down(StoreFailure::Disconnected);
            }
            is_open
        });
    }
}

async fn connect(
    target: &Target,
    link: Weak<Link>,
    number: u64,
) -> Result<Connection, ConnectError> {
    match target {
        Target::Single(server) => {
            // A broken connection is reported here at once, so that it is replaced before the next
            // call.
            let on_push = move |push: PushInfo| {
                if push.kind == PushKind::Disconnection
                    && let Some(link) = link.upgrade()
                {
                    link.lost(number);
                }
                Ok::<(), redis::aio::SendError>(())
            };
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None)
                .set_push_sender(on_push);
            let stream = stream::open(server.info.addr(), server.tls.as_ref()).await?;
            let stream = ReplyLimit::new(stream);
            let settings = server.info.redis_settings();
            let connecting = MultiplexedConnection::new_with_config(settings, stream, config);
            let (connection, driving) = connecting.await?;
            let driver = Arc::new(Driver(tokio::spawn(driving).abort_handle()));
            Ok(Connection::Single {
                connection,
                _driver: driver,
            })
        }
        // The client opens these streams itself, so their replies have no maximum.
        Target::Cluster(client) => {
            let connection = client.get_async_connection().await?;
            Ok(Connection::Cluster(connection))
        }
    }
}
