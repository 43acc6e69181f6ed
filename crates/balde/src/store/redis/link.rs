//! One connection that reconnects by itself.
//!
//! The redis crate can reconnect and retry commands. It cannot know which commands are safe to
//! retry, so this uses its plain multiplexed connection and replaces it when it breaks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, PushInfo, PushKind, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::error::failure_of;
use crate::failure::StoreFailure;

/// A handshake may take longer than a call: calls wait for it only until their own deadline.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The server or Cluster to connect to.
pub(super) enum Target {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
}

#[derive(Clone)]
pub(super) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Single(connection) => command.query_async(connection).await,
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
}

#[derive(Clone)]
enum State {
    /// Not tried, or lost.
    Idle,
    Connecting,
    Up(Connection),
    Failed(StoreFailure, Instant),
}

pub(super) struct Link {
    target: Arc<Target>,
    handle: Handle,
    state: watch::Sender<(u64, State)>,
    attempt: Mutex<Option<AbortHandle>>,
    connects: AtomicU64,
}

impl Link {
    pub(super) fn new(target: Arc<Target>, handle: Handle) -> Arc<Self> {
        Arc::new(Self {
            target,
            handle,
            state: watch::Sender::new((0, State::Idle)),
            attempt: Mutex::new(None),
            connects: AtomicU64::new(0),
        })
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

    /// Waits for the connection, or returns why it cannot be opened. The caller sets the timeout.
    pub(super) async fn connected(self: &Arc<Self>) -> Result<(u64, Connection), StoreFailure> {
        let mut watched = self.state.subscribe();
        self.connect();
        let is_over = |state: &(u64, State)| !matches!(state.1, State::Idle | State::Connecting);
        match watched.wait_for(is_over).await.as_deref() {
            Ok((number, State::Up(connection))) => Ok((*number, connection.clone())),
            Ok((_, State::Failed(failure, _))) => Err(*failure),
            _ => Err(StoreFailure::Disconnected),
        }
    }

    /// Starts to connect, unless that failed a moment ago.
    pub(super) fn connect_if_due(self: &Arc<Self>) {
        let is_due = match self.state.borrow().1 {
            State::Idle => true,
            State::Failed(_, at) => at.elapsed() > CONNECT_AGAIN_AFTER,
            State::Connecting | State::Up(_) => false,
        };
        if is_due {
            self.connect();
        }
    }

    /// Starts to connect, unless it is connected or connecting.
    pub(super) fn connect(self: &Arc<Self>) {
        let mut number = 0;
        let begins = self.state.send_if_modified(|state| {
            let begins = matches!(state.1, State::Idle | State::Failed(..));
            if begins {
                number = state.0 + 1;
                *state = (number, State::Connecting);
            }
            begins
        });
        if begins {
            let attempt = Attempt {
                link: Arc::clone(self),
                number,
            };
            let task = self.handle.spawn(attempt.run());
            *self.attempt.lock() = Some(task.abort_handle());
        }
    }

    /// Replaces connection `number`, which is broken.
    pub(super) fn lost(self: &Arc<Self>, number: u64) {
        if self.settle(number, State::Idle) {
            self.connect();
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
            let is_current = state.0 == number && !matches!(state.1, State::Failed(..));
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
}

impl Attempt {
    async fn run(self) {
        let connecting = connect(&self.link.target, Arc::downgrade(&self.link), self.number);
        let state = match tokio::time::timeout(CONNECT_WITHIN, connecting).await {
            Ok(Ok(connection)) => {
                self.link.connects.fetch_add(1, Ordering::Relaxed);
                State::Up(connection)
            }
            Ok(Err(error)) => State::Failed(failure_of(&error), Instant::now()),
            Err(_) => State::Failed(StoreFailure::Timeout, Instant::now()),
        };
        self.link.settle(self.number, state);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.link.state.send_if_modified(|state| {
            let is_open = state.0 == self.number && matches!(state.1, State::Connecting);
            if is_open {
                state.1 = State::Failed(StoreFailure::Disconnected, Instant::now());
            }
            is_open
        });
    }
}

async fn connect(target: &Target, link: Weak<Link>, number: u64) -> Result<Connection, RedisError> {
    match target {
        Target::Single(client) => {
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
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            Ok(Connection::Single(connection.await?))
        }
        Target::Cluster(client) => {
            let connection = client.get_async_connection().await?;
            Ok(Connection::Cluster(connection))
        }
    }
}
