//! One call of the script: the round trip, and its retries.
//!
//! A take is retried only if it certainly did not happen: the server did not know the script, or
//! redirected the call. A charge or credit carries an operation id, so after a broken connection it
//! is retried once before its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use balde_core::{Command, Limit};
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::RedisStore;
use super::error::failure_of;
use super::link::{Connection, Link};
use super::observer;
use super::place::Place;
use super::script::{self, DECIDE, Header, LimitBlob, ReplyError, Step};
use super::stats::add_one;
use crate::failure::StoreFailure;
use crate::log_throttle::LogThrottle;

/// The most redirections that one call follows.
const REDIRECTS_MAX: u32 = 4;

/// The script, and the hash that the server knows it by.
pub(super) struct Script {
    sha: String,
    /// When a server loses the script, every call in flight gets NOSCRIPT: one line is enough.
    reloads: LogThrottle,
    failures: [LogThrottle; StoreFailure::ALL.len()],
    /// The parts of the keys whose server has run the script. A server that has not run it need not
    /// have it, and has lost nothing.
    has_run: Vec<AtomicBool>,
    started: Instant,
}

impl Script {
    /// `parts` is how many parts the keys are divided into, each on one server.
    pub(super) fn new(parts: usize) -> Self {
        Self {
            sha: redis::Script::new(DECIDE).get_hash().to_owned(),
            reloads: LogThrottle::new(),
            failures: Default::default(),
            has_run: (0..parts).map(|_| AtomicBool::new(false)).collect(),
            started: Instant::now(),
        }
    }

    /// Records that the server of a part has run the script.
    fn ran(&self, part: usize) {
        if !self.has_run[part].load(Ordering::Relaxed) {
            self.has_run[part].store(true, Ordering::Relaxed);
        }
    }

    fn has_run(&self, part: usize) -> bool {
        self.has_run[part].load(Ordering::Relaxed)
    }

    fn log_reload(&self) {
        if let Some(suppressed) = self.reloads.allow(self.now_us()) {
            observer::script_reloaded(suppressed);
        }
    }

    /// Logs a failure that an operator has to do something about, once a second for each kind.
    pub(super) fn log_failure(&self, failure: StoreFailure, place: &Place) {
        let is_passing = match failure {
            // A call that waited for a connection in vain.
            StoreFailure::Timeout => !place.has_cause(),
            StoreFailure::BreakerOpen | StoreFailure::NotReady => true,
            _ => false,
        };
        if !is_passing && let Some(suppressed) = self.failures[failure.index()].allow(self.now_us())
        {
            observer::call_failed(failure, place, suppressed);
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn command(&self, call: &Call, by: By) -> Cmd {
        let (verb, script) = match by {
            By::Name => ("EVALSHA", self.sha.as_str()),
            // Runs the script and loads it, in one round trip.
            By::Text => ("EVAL", DECIDE),
        };
        // The verb, script and number of keys; the keys; two arguments per key; the header.
        let mut command = Cmd::with_capacity(4 + 3 * call.keys.len(), 256);
        command.arg(verb).arg(script).arg(call.keys.len());
        for key in &call.keys {
            command.arg(key.as_slice());
        }
        for step in &call.steps {
            command.arg(step.limit_blob().as_bytes());
            command.arg(step.command_blob().as_bytes());
        }
        if let Some(header) = call.header.encode() {
            command.arg(&header);
        }
        command
    }
}

#[derive(Clone, Copy, PartialEq)]
enum By {
    Name,
    Text,
}

/// Commands on buckets that one call can reach.
pub(super) struct Call {
    /// The buckets, and after them the key of the operation if there is one.
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) steps: Vec<Step>,
    pub(super) header: Header,
}

impl Call {
    /// Returns whether it takes tokens that have to be given back if the caller does not get them.
    fn takes(&self) -> bool {
        let takes = |step: &Step| {
            matches!(
                step.command(),
                Command::Take { .. }
                    | Command::TakeIf { .. }
                    | Command::TakeUpTo { .. }
                    | Command::Hold { .. }
            )
        };
        self.steps.iter().any(takes)
    }

    /// Returns whether it can safely be sent twice.
    fn is_repeatable(&self) -> bool {
        self.header.has_operation() || self.steps.iter().all(|step| !step.command().is_write())
    }
}

impl RedisStore {
    /// Calls the script, unless the circuit breaker is open, and decodes its reply. A reply that
    /// cannot be decoded is a failure of the server like any other.
    pub(super) async fn run<T>(
        &self,
        call: &Arc<Call>,
        deadline: Instant,
        decode: impl FnOnce(&[u8]) -> Result<T, ReplyError>,
    ) -> Result<T, StoreFailure> {
        let index = self.breaker(&call.keys[0]);
        let breaker = &self.0.breakers[index];
        let permit = breaker
            .admit()
            .inspect_err(|failure| self.0.counts.failed(*failure))?;
        let span = observer::call_span(call.steps.len());
        let reply = if call.takes() {
            let requesting = self.request_or_undo(call, deadline);
            requesting.instrument(span.clone()).await
        } else {
            let requesting = self.request(call, deadline);
            requesting.instrument(span.clone()).await
        };
        let reply = reply.and_then(|bytes| decode(&bytes).map_err(|_| StoreFailure::Rejected));
        observer::record_end(&span, reply.as_ref().err());
        match &reply {
            Ok(_) => breaker.succeeded(),
            Err(failure) => {
                self.0.counts.failed(*failure);
                self.0.script.log_failure(*failure, &self.0.place);
                if breaker.failed(permit, *failure) {
                    observer::breaker_opened(*failure, &self.0.place);
                    self.start_prober(index, &call.keys[0]);
                }
            }
        }
        reply
    }

    /// Tests whether the store decides and writes. A replica, or a server without memory, does not.
    pub(super) async fn probe(&self, name: &[u8]) -> Result<(), StoreFailure> {
        let limit = Limit::per_second(1).expect("one token per second is a limit");
        let command = Command::SetLevel { level: 0 };
        let call = Call {
            keys: vec![name.to_vec()],
            steps: vec![Step::new(limit, LimitBlob::new(&limit), command)],
            header: Header::default(),
        };
        let deadline = Instant::now() + self.timeout();
        let reply = self.request(&call, deadline).await?;
        match script::decode(&call.steps, &reply) {
            Ok(_) => Ok(()),
            Err(_) => Err(StoreFailure::Rejected),
        }
    }

    /// Calls the script, whatever the state of the circuit breaker.
    pub(super) async fn request(
        &self,
        call: &Call,
        deadline: Instant,
    ) -> Result<Vec<u8>, StoreFailure> {
        let requesting = self.request_until_answered(call, deadline);
        timeout_at(deadline, requesting)
            .await
            .unwrap_or(Err(StoreFailure::Timeout))
    }

    /// [`request`](RedisStore::request) for a call that takes tokens. A call that times out may still
    /// be decided later, when its caller has another decision already; then its tokens are given
    /// back.
    async fn request_or_undo(
        &self,
        call: &Arc<Call>,
        deadline: Instant,
    ) -> Result<Vec<u8>, StoreFailure> {
        let (store, sent) = (self.clone(), Arc::clone(call));
        let mut requesting =
            Box::pin(async move { store.request_until_answered(&sent, deadline).await });
        if let Ok(reply) = timeout_at(deadline, requesting.as_mut()).await {
            return reply;
        }
        self.undo_when_answered(Arc::clone(call), requesting);
        Err(StoreFailure::Timeout)
    }

    /// Sends the call, with retries and redirections, until it has a reply. Nothing is sent after the
    /// deadline.
    async fn request_until_answered(
        &self,
        call: &Call,
        deadline: Instant,
    ) -> Result<Vec<u8>, StoreFailure> {
        add_one(&self.0.counts.calls);
        let mut by = By::Name;
        let mut command = self.0.script.command(call, by);
        let mut redirects_left = REDIRECTS_MAX;
        let mut repeats_left = u32::from(call.is_repeatable());
        let mut asking = None;
        let part = self.breaker(&call.keys[0]);
        loop {
            let (link, number, mut connection) = self.connection().await?;
            if Instant::now() >= deadline {
                return Err(StoreFailure::Timeout);
            }
            let answer = match asking.take() {
                Some(node) => connection.send_asking(&command, node).await,
                None => connection.send(&command).await,
            };
            let error = match answer {
                Ok(Value::BulkString(reply)) => {
                    self.0.script.ran(part);
                    return Ok(reply);
                }
                Ok(_) => return Err(StoreFailure::Rejected),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::Server(ServerErrorKind::NoScript) if by == By::Name => {
                    if self.0.script.has_run(part) {
                        add_one(&self.0.counts.reloads);
                        self.0.script.log_reload();
                    }
                    by = By::Text;
                    command = self.0.script.command(call, by);
                }
                ErrorKind::Server(ServerErrorKind::Moved) if redirects_left > 0 => {
                    redirects_left -= 1;
                }
                ErrorKind::Server(ServerErrorKind::Ask) if redirects_left > 0 => {
                    redirects_left -= 1;
                    asking = node_of(&error);
                }
                _ => {
                    let failure = failure_of(&error);
                    if failure == StoreFailure::Disconnected
                        && matches!(connection, Connection::Single { .. })
                    {
                        link.lost(number);
                    }
                    if failure != StoreFailure::Disconnected || repeats_left == 0 {
                        return Err(failure);
                    }
                    repeats_left -= 1;
                }
            }
        }
    }

    /// The next connection in turn. Open connections are preferred to those that have to be opened.
    pub(super) async fn connection(&self) -> Result<(Arc<Link>, u64, Connection), StoreFailure> {
        let links = &self.0.links;
        let turn = self.next_turn();
        for i in 0..links.len() {
            let link = &links[(turn + i) % links.len()];
            if let Some((number, connection)) = link.ready() {
                return Ok((Arc::clone(link), number, connection));
            }
            link.connect_if_due();
        }
        let link = &links[turn % links.len()];
        let (number, connection) = link.connected().await?;
        Ok((Arc::clone(link), number, connection))
    }
}

fn node_of(error: &RedisError) -> Option<(String, u16)> {
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}
