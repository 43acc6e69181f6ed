//! Requests that wait for tokens: in order, bounded in number, each until its own deadline.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use balde_policy::{AdmitError, Engine, KeyPart, Outcome, Policy, Request, Ticket};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The first in a line asks again at least this often: tokens may come back before they are refilled.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Requests that wait for tokens, in one line for each bucket.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    waiting: AtomicUsize,
    waiting_max: AtomicUsize,
    lines: Mutex<HashMap<String, Arc<Line>>>,
}

/// The requests that wait for one bucket. tokio's mutex is fair, so its queue is the line.
#[derive(Debug, Default)]
struct Line {
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

/// Why a request was not admitted.
#[derive(Debug)]
pub(crate) enum NotAdmitted {
    /// The engine refused it.
    Refused(AdmitError),
    /// Requests that came earlier wait for the same bucket.
    Overtaking {
        /// The bucket's policy.
        policy: String,
    },
    /// The calls that this gateway has in flight hold as much of a shared bucket as they may.
    InFlight {
        /// The bucket's policy.
        policy: String,
    },
}

impl WaitQueue {
    pub(crate) fn new(waiting_max: usize) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            waiting_max: AtomicUsize::new(waiting_max),
            lines: Mutex::default(),
        }
    }

    pub(crate) fn set_max(&self, waiting_max: usize) {
        self.waiting_max.store(waiting_max, Ordering::Relaxed);
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Admits a request, and waits up to `wait` for tokens. A request that comes while others wait
    /// for one of its buckets joins their line, or is refused if it does not wait.
    ///
    /// `attempt` is called before each attempt, and may refuse it. What it returned for the one that
    /// succeeded comes with the ticket.
    pub(crate) async fn admit<A>(
        &self,
        engine: &Engine,
        request: &Request<'_>,
        wait: Duration,
        attempt: impl Fn() -> Result<A, NotAdmitted>,
    ) -> Result<(Ticket, A), NotAdmitted> {
        let mut line = None;
        if self.len() > 0 {
            line = self.line_of(engine, request);
        }
        let mut refusal = None;
        match line {
            Some((_, policy)) if wait.is_zero() => {
                return Err(NotAdmitted::Overtaking { policy });
            }
            Some(_) => {}
            None => {
                let attempted = attempt()?;
                match engine.admit(request).await {
                    Ok(ticket) => return Ok((ticket, attempted)),
                    Err(AdmitError::Refused(refused)) if !wait.is_zero() => {
                        let name = name_of(refused.policy(), request);
                        line = Some((name, refused.policy().name().to_owned()));
                        refusal = Some(AdmitError::Refused(refused));
                    }
                    Err(error) => return Err(NotAdmitted::Refused(error)),
                }
            }
        }
        let (name, policy) = line.expect("there is a line to join");
        let not_admitted = |refusal: Option<AdmitError>| match refusal {
            Some(error) => NotAdmitted::Refused(error),
            None => NotAdmitted::Overtaking { policy },
        };
        let deadline = Instant::now() + wait;
        let Some(place) = Place::take(self, name) else {
            return Err(not_admitted(refusal));
        };
        let Ok(_turn) = timeout_at(deadline, place.line.turn.lock()).await else {
            return Err(not_admitted(refusal));
        };
        loop {
            let attempted = attempt()?;
            let wait = match engine.admit(request).await {
                Ok(ticket) => return Ok((ticket, attempted)),
                Err(AdmitError::Refused(refused)) => {
                    let wait = refused.retry_after();
                    refusal = Some(AdmitError::Refused(refused));
                    wait
                }
                Err(error) => return Err(NotAdmitted::Refused(error)),
            };
            drop(attempted);
            let now = Instant::now();
            // A request that cannot be admitted in time need not wait for that.
            let in_time = wait.filter(|wait| now + *wait <= deadline);
            let Some(wait) = in_time else {
                return Err(not_admitted(refusal));
            };
            sleep_until(now + wait.min(RETRY_MAX)).await;
        }
    }

    /// The line in which others wait for one of the request's buckets, with its policy.
    fn line_of(&self, engine: &Engine, request: &Request<'_>) -> Option<(String, String)> {
        let profile = engine.profile();
        let counting = engine.prices(request, Outcome::Failed);
        let lines = self.lines.lock();
        counting.into_iter().find_map(|(policy, _)| {
            let name = name_of(profile.policy(&policy)?, request);
            lines
                .contains_key(&name)
                .then(|| (name, policy.into_string()))
        })
    }
}

/// The name of the line of a request's bucket under a policy.
fn name_of(policy: &Policy, request: &Request<'_>) -> String {
    let mut name = policy.name().to_owned();
    // Classes of callers do not wait for each other: one of them may have a reserve.
    name.push('@');
    name.push_str(request.class.unwrap_or_default());
    for part in policy.scope().parts() {
        let value = match part {
            KeyPart::Participant => request.participant,
            KeyPart::User => request.user,
            KeyPart::Header(header) => request.headers.value_of(header),
            KeyPart::Value(value) => request.value(value),
            // Buckets by query or path share a line, which is fair to all but slower than need be.
            _ => None,
        };
        name.push('/');
        name.push_str(value.unwrap_or_default());
    }
    name
}

/// A place in a line, which is given up when the request is admitted, refused or gone.
struct Place<'q> {
    queue: &'q WaitQueue,
    name: String,
    line: Arc<Line>,
}

impl<'q> Place<'q> {
    /// `None` if too many wait already.
    fn take(queue: &'q WaitQueue, name: String) -> Option<Self> {
        let waiting_max = queue.waiting_max.load(Ordering::Relaxed);
        let more = |waiting: usize| (waiting < waiting_max).then_some(waiting + 1);
        let relaxed = Ordering::Relaxed;
        queue.waiting.fetch_update(relaxed, relaxed, more).ok()?;
        let mut lines = queue.lines.lock();
        let line = Arc::clone(lines.entry(name.clone()).or_default());
        line.waiting.fetch_add(1, Ordering::Relaxed);
        Some(Self { queue, name, line })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.queue.lines.lock();
        if self.line.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
            lines.remove(&self.name);
        }
        self.queue.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
