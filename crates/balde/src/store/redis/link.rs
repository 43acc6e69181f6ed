//! One connection that comes back by itself.
//!
//! Redis-rs can reconnect and repeat commands on its own. It cannot know which may be repeated, so
//! none of that is used: here is a plain multiplexed connection, replaced when it breaks.

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

use super::fault::failure_of;
use crate::failure::StoreFailure;

/// A handshake may take longer than a call may: nobody waits for it but calls within their own
/// time.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Where to connect to.
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

    /// Sends to the node that the slot is being moved to.
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

    /// Connections made so far.
    pub(super) fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// The connection, if it is there now, and its number.
    pub(super) fn ready(&self) -> Option<(u64, Connection)> {
        match &*self.state.borrow() {
            (number, State::Up(connection)) => Some((*number, connection.clone())),
            _ => None,
        }
    }

    /// The connection, when it is there, or why it cannot be. The caller watches its own time.
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

    /// Begins to connect, unless it failed to a moment ago: another connection serves meanwhile.
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

    /// Begins to connect, unless it is connected or under way.
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

    /// Connection `number` is broken: away with it, and on to the next.
    pub(super) fn lost(self: &Arc<Self>, number: u64) {
        if self.settle(number, State::Idle) {
            self.connect();
        }
    }

    /// Ends what is under way: the store is gone.
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

/// One attempt to connect. It ends in a settled link even when its runtime goes away under it.
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
            // Told of a broken connection at once, it is replaced before the next call needs it.
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
