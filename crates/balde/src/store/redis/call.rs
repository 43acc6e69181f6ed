//! One call of the script: the round trip, and what may be sent again.
//!
//! A take may be sent again only where it certainly did not happen: the server did not know the
//! script, or sent us to another node. A charge or credit carries an operation's id, so after a
//! broken connection it is sent once more within its time.

use std::sync::Arc;

use balde_core::{Command, Limit};
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::RedisStore;
use super::fault::failure_of;
use super::link::{Connection, Link};
use super::script::{CommandBlob, DECIDE, Header, LimitBlob, Step};
use super::stats::add_one;
use crate::failure::StoreFailure;
use crate::log::{self, Storm};
use crate::telemetry::span;

/// Redirections that one call follows.
const REDIRECTS_MAX: u32 = 4;

/// The script, by the name the server gives it.
pub(super) struct Script {
    sha: String,
    /// Everybody who is under way when a server forgets the script finds out by himself.
    reloads: Storm,
    started: Instant,
}

impl Script {
    pub(super) fn new() -> Self {
        Self {
            sha: redis::Script::new(DECIDE).get_hash().to_owned(),
            reloads: Storm::default(),
            started: Instant::now(),
        }
    }

    fn log_reload(&self) {
        let now_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        if let Some(held_back) = self.reloads.passes(now_us) {
            log::script_reloaded(held_back);
        }
    }

    fn command(&self, call: &Call, by: By) -> Cmd {
        let (verb, script) = match by {
            By::Name => ("EVALSHA", self.sha.as_str()),
            // Runs the script and makes it known, in one round trip.
            By::Text => ("EVAL", DECIDE),
        };
        // Keys, two arguments to each, the header, and what comes before them.
        let mut command = Cmd::with_capacity(4 + 3 * call.keys.len(), 256);
        command.arg(verb).arg(script).arg(call.keys.len());
        for key in &call.keys {
            command.arg(key.as_slice());
        }
        for step in &call.steps {
            command.arg(step.limit_blob().as_bytes());
            command.arg(CommandBlob::new(step.limit(), step.command()).as_bytes());
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

/// Some commands on some buckets that one call can reach.
pub(super) struct Call {
    /// The buckets, and the operation's own key after them where there is one.
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) steps: Vec<Step>,
    pub(super) header: Header,
}

impl Call {
    /// Whether it takes tokens that would have to be given back if nobody were to use them.
    fn takes(&self) -> bool {
        let takes = |step: &Step| {
            matches!(
                step.command(),
                Command::Take { .. } | Command::TakeUpTo { .. }
            )
        };
        self.steps.iter().any(takes)
    }

    /// Whether it makes no difference if it happens twice.
    fn is_repeatable(&self) -> bool {
        self.header.has_operation() || self.steps.iter().all(|step| !step.command().is_write())
    }
}

impl RedisStore {
    /// The script's answer, if the breaker lets anybody ask.
    pub(super) async fn run(
        &self,
        call: &Arc<Call>,
        deadline: Instant,
    ) -> Result<Vec<u8>, StoreFailure> {
        let part = self.breaker(&call.keys[0]);
        let breaker = &self.0.breakers[part];
        let leave = breaker
            .admit()
            .inspect_err(|failure| self.0.counts.failed(*failure))?;
        let span = span::redis_call(call.steps.len());
        let answer = if call.takes() {
            let asking = self.ask_or_undo(call, deadline);
            asking.instrument(span.clone()).await
        } else {
            let asking = self.request(call, deadline);
            asking.instrument(span.clone()).await
        };
        span::answered(&span, answer.as_ref().err());
        match &answer {
            Ok(_) => breaker.succeeded(),
            Err(failure) => {
                self.0.counts.failed(*failure);
                if breaker.failed(leave, *failure) {
                    log::breaker_opened(*failure);
                    self.send_prober(part, &call.keys[0]);
                }
            }
        }
        answer
    }

    /// Looks whether the store would decide and write. A replica or a server without memory does
    /// not, and it is no use asking those.
    pub(super) async fn look(&self, name: &[u8]) -> Result<(), StoreFailure> {
        let limit = Limit::per_second(1).expect("one token per second is a limit");
        let command = Command::SetLevel { level: 0 };
        let call = Call {
            keys: vec![name.to_vec()],
            steps: vec![Step::new(limit, LimitBlob::new(&limit), command)],
            header: Header::default(),
        };
        let deadline = Instant::now() + self.timeout();
        self.request(&call, deadline).await.map(drop)
    }

    /// The script's answer, whatever the breaker says.
    pub(super) async fn request(
        &self,
        call: &Call,
        deadline: Instant,
    ) -> Result<Vec<u8>, StoreFailure> {
        let asking = self.ask_until_answered(call, deadline);
        timeout_at(deadline, asking)
            .await
            .unwrap_or(Err(StoreFailure::Timeout))
    }

    /// The same for a call that takes. One that was sent and not answered in time may still be
    /// decided: its caller has been told otherwise by then, so what it took is given back.
    async fn ask_or_undo(
        &self,
        call: &Arc<Call>,
        deadline: Instant,
    ) -> Result<Vec<u8>, StoreFailure> {
        let (store, asked) = (self.clone(), Arc::clone(call));
        let mut asking = Box::pin(async move { store.ask_until_answered(&asked, deadline).await });
        if let Ok(answer) = timeout_at(deadline, asking.as_mut()).await {
            return answer;
        }
        self.undo_when_answered(Arc::clone(call), asking);
        Err(StoreFailure::Timeout)
    }

    /// Nothing is sent after the deadline, however long the caller waits for what was.
    async fn ask_until_answered(
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
                Ok(Value::BulkString(reply)) => return Ok(reply),
                Ok(_) => return Err(StoreFailure::Script),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::Server(ServerErrorKind::NoScript) if by == By::Name => {
                    add_one(&self.0.counts.reloads);
                    self.0.script.log_reload();
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
                        && matches!(connection, Connection::Single(_))
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

    /// The next connection whose turn it is; one that is there before one that has to be made.
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
