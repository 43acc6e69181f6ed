//! One call of the script: the round trip, and what may be sent again.
//!
//! A take may be sent again only where it certainly did not happen: the server did not know the
//! script, or sent us to another node. A charge or credit carries an operation's id, so after a
//! broken connection it is sent once more within its time.

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

use super::RedisStore;
use super::fault::failure_of;
use super::link::{Connection, Link};
use super::script::{self, DECIDE, Header, LimitBlob, Step};
use super::stats::add_one;
use crate::failure::StoreFailure;
use balde_core::{Command, Limit};

/// Redirections that one call follows.
const REDIRECTS_MAX: u32 = 4;

/// The script, by the name the server gives it.
pub(super) struct Script {
    sha: String,
}

impl Script {
    pub(super) fn new() -> Self {
        Self {
            sha: redis::Script::new(DECIDE).get_hash().to_owned(),
        }
    }

    fn command(&self, call: &Call, by: By) -> Cmd {
        let (verb, script) = match by {
            By::Name => ("EVALSHA", self.sha.as_str()),
            // Runs the script and makes it known, in one round trip.
            By::Text => ("EVAL", DECIDE),
        };
        let mut command = Cmd::with_capacity(3 + 3 * call.keys.len() + 1, 256);
        command.arg(verb).arg(script).arg(call.keys.len());
        for key in &call.keys {
            command.arg(key.as_slice());
        }
        for argument in script::encode(&call.steps, call.header) {
            command.arg(argument);
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
    /// Whether it makes no difference if it happens twice.
    fn is_repeatable(&self) -> bool {
        self.header.has_operation() || self.steps.iter().all(|step| !step.command().is_write())
    }
}

impl RedisStore {
    /// The script's answer, if the breaker lets anybody ask.
    pub(super) async fn run(
        &self,
        call: &Call,
        deadline: Instant,
    ) -> Result<Vec<u8>, StoreFailure> {
        let part = self.breaker(&call.keys[0]);
        let breaker = &self.0.breakers[part];
        let leave = breaker
            .admit()
            .inspect_err(|failure| self.0.counts.failed(*failure))?;
        let answer = self.ask(call, deadline).await;
        match &answer {
            Ok(_) => breaker.succeeded(),
            Err(failure) => {
                self.0.counts.failed(*failure);
                if breaker.failed(leave, *failure) {
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
        self.ask(&call, deadline).await.map(drop)
    }

    async fn ask(&self, call: &Call, deadline: Instant) -> Result<Vec<u8>, StoreFailure> {
        add_one(&self.0.counts.calls);
        let asking = self.ask_until_answered(call);
        timeout_at(deadline, asking)
            .await
            .unwrap_or(Err(StoreFailure::Timeout))
    }

    async fn ask_until_answered(&self, call: &Call) -> Result<Vec<u8>, StoreFailure> {
        let mut by = By::Name;
        let mut command = self.0.script.command(call, by);
        let mut redirects_left = REDIRECTS_MAX;
        let mut repeats_left = u32::from(call.is_repeatable());
        let mut asking = None;
        loop {
            let (link, number, mut connection) = self.connection().await?;
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
    async fn connection(&self) -> Result<(Arc<Link>, u64, Connection), StoreFailure> {
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
