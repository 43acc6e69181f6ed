//! Requests that wait for tokens: in order, bounded in number, each until its own deadline.
//!
//! A queue belongs to one bucket. The places in all queues are shared among the callers: one that has
//! its share gets another place only while fewer than half of all places are taken.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use balde_policy::{AdmitError, Engine, Request, Ticket};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The first in a line asks again at least this often: tokens may come back before they are refilled.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Requests that wait for tokens, in one line for each bucket.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    len: AtomicUsize,
    waiters_max: AtomicUsize,
    /// How many places a caller may have while half of them are taken.
    waiting_share_max: AtomicUsize,
    waiting: Mutex<Waiting>,
}

/// Who waits for what.
#[derive(Debug, Default)]
struct Waiting {
    lines: HashMap<LineName, Arc<Line>>,
    /// How many requests of a caller wait.
    callers: HashMap<Box<str>, usize>,
}

/// A bucket, and the class of the callers that wait for it. Classes do not wait for each other: one of
/// them may have a reserve.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LineName {
    policy: Box<str>,
    class: Box<str>,
    key: Box<[u8]>,
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
}

impl NotAdmitted {
    /// The policy that refused; `None` if no policy did, for instance because Redis is unavailable.
    pub(crate) fn policy(&self) -> Option<&str> {
        match self {
            Self::Refused(AdmitError::Refused(refusal)) => Some(refusal.policy().name()),
            Self::Overtaking { policy } => Some(policy),
            Self::Refused(_) => None,
        }
    }
}

impl WaitQueue {
    pub(crate) fn new(waiters_max: usize, share_percent: usize) -> Self {
        let queue = Self {
            len: AtomicUsize::new(0),
            waiters_max: AtomicUsize::new(0),
            waiting_share_max: AtomicUsize::new(0),
            waiting: Mutex::default(),
        };
        queue.set_max(waiters_max, share_percent);
        queue
    }

    /// Sets how many requests wait at most, and the share of these places that one caller may have
    /// while half of them are taken, in percent.
    pub(crate) fn set_max(&self, waiters_max: usize, share_percent: usize) {
        let share_max = waiters_max.saturating_mul(share_percent) / 100;
        self.waiters_max.store(waiters_max, Ordering::Relaxed);
        self.waiting_share_max
            .store(share_max.max(1), Ordering::Relaxed);
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Admits a request, and waits up to `wait` for tokens. A request that comes while others wait
    /// for one of its buckets joins their line, or is refused if it does not wait.
    pub(crate) async fn admit(
        &self,
        engine: &Engine,
        request: &Request<'_>,
        caller: &str,
        wait: Duration,
    ) -> Result<Ticket, NotAdmitted> {
        let mut line = None;
        if self.len() > 0 {
            line = self.line_of(engine, request);
        }
        let mut refusal = None;
        match line {
            Some(line) if wait.is_zero() => {
                let policy = line.policy.into_string();
                return Err(NotAdmitted::Overtaking { policy });
            }
            Some(_) => {}
            None => match engine.admit(request).await {
                Ok(ticket) => return Ok(ticket),
                Err(AdmitError::Refused(refused)) if !wait.is_zero() => {
                    line = line_for(engine, request, refused.policy().name());
                    refusal = Some(AdmitError::Refused(refused));
                }
                Err(error) => return Err(NotAdmitted::Refused(error)),
            },
        }
        Box::pin(self.wait_in_line(engine, request, caller, wait, line, refusal)).await
    }

    /// Waits for tokens in the line of a bucket. `refusal` is that of the first attempt, if there was
    /// one.
    async fn wait_in_line(
        &self,
        engine: &Engine,
        request: &Request<'_>,
        caller: &str,
        wait: Duration,
        line: Option<LineName>,
        mut refusal: Option<AdmitError>,
    ) -> Result<Ticket, NotAdmitted> {
        let policy = line.as_ref().map(|line| line.policy.to_string());
        let not_admitted = |refusal: Option<AdmitError>| match refusal {
            Some(error) => NotAdmitted::Refused(error),
            None => NotAdmitted::Overtaking {
                policy: policy.unwrap_or_default(),
            },
        };
        let deadline = Instant::now() + wait;
        let place = line.and_then(|line| Place::take(self, line, caller));
        let Some(place) = place else {
            return Err(not_admitted(refusal));
        };
        let Ok(_turn) = timeout_at(deadline, place.line.turn.lock()).await else {
            return Err(not_admitted(refusal));
        };
        loop {
            let wait = match engine.admit(request).await {
                Ok(ticket) => return Ok(ticket),
                Err(AdmitError::Refused(refused)) => {
                    let wait = refused.retry_after();
                    refusal = Some(AdmitError::Refused(refused));
                    wait
                }
                Err(error) => return Err(NotAdmitted::Refused(error)),
            };
            let now = Instant::now();
            // A request that cannot be admitted in time need not wait for that.
            let in_time = wait.filter(|wait| now + *wait <= deadline);
            let Some(wait) = in_time else {
                return Err(not_admitted(refusal));
            };
            sleep_until(now + wait.min(RETRY_MAX)).await;
        }
    }

    /// The line in which others wait for one of the request's buckets.
    fn line_of(&self, engine: &Engine, request: &Request<'_>) -> Option<LineName> {
        let buckets = engine.bucket_keys(request);
        let waiting = self.waiting.lock();
        let mut names = buckets.into_iter().map(|bucket| line(request, bucket));
        names.find(|name| waiting.lines.contains_key(name))
    }
}

/// The line of the request's bucket under a policy; `None` if another profile has replaced the policy
/// meanwhile.
fn line_for(engine: &Engine, request: &Request<'_>, policy: &str) -> Option<LineName> {
    let mut buckets = engine.bucket_keys(request).into_iter();
    let bucket = buckets.find(|(name, _)| **name == *policy)?;
    Some(line(request, bucket))
}

fn line(request: &Request<'_>, (policy, key): (Box<str>, Box<[u8]>)) -> LineName {
    LineName {
        policy,
        class: request.class.unwrap_or_default().into(),
        key,
    }
}

/// A place in a line, which is given up when the request is admitted, refused or gone.
struct Place<'q> {
    queue: &'q WaitQueue,
    name: LineName,
    caller: Box<str>,
    line: Arc<Line>,
}

impl<'q> Place<'q> {
    /// `None` if too many wait already, or the caller has its share of the places.
    fn take(queue: &'q WaitQueue, name: LineName, caller: &str) -> Option<Self> {
        let waiters_max = queue.waiters_max.load(Ordering::Relaxed);
        let share_max = queue.waiting_share_max.load(Ordering::Relaxed);
        let mut waiting = queue.waiting.lock();
        let len = queue.len();
        let own = waiting.callers.get(caller).copied().unwrap_or(0);
        let is_free = len < waiters_max && (own < share_max || len < waiters_max / 2);
        if !is_free {
            return None;
        }
        queue.len.fetch_add(1, Ordering::Relaxed);
        match waiting.callers.get_mut(caller) {
            Some(own) => *own += 1,
            None => {
                waiting.callers.insert(caller.into(), 1);
            }
        }
        let line = Arc::clone(waiting.lines.entry(name.clone()).or_default());
        line.waiting.fetch_add(1, Ordering::Relaxed);
        Some(Self {
            queue,
            name,
            caller: caller.into(),
            line,
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.queue.waiting.lock();
        if self.line.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
            waiting.lines.remove(&self.name);
        }
        if let Some(own) = waiting.callers.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                waiting.callers.remove(&self.caller);
            }
        }
        self.queue.len.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> LineName {
        LineName {
            policy: "p".into(),
            class: "".into(),
            key: key.as_bytes().into(),
        }
    }

    #[test]
    fn one_caller_leaves_half_of_the_places_to_others() {
        let queue = WaitQueue::new(16, 25);
        let take = |caller: &str| Place::take(&queue, name(caller), caller);
        let greedy: Vec<_> = std::iter::from_fn(|| take("greedy")).collect();
        assert_eq!(greedy.len(), 8);
        let others: Vec<_> = (0..8)
            .map(|number| take(&number.to_string()).expect("there is a place"))
            .collect();
        assert_eq!(queue.len(), 16);
        assert!(take("late").is_none());
        drop(others);
        // Another caller has its share beside the greedy one, and no more.
        let modest: Vec<_> = std::iter::from_fn(|| take("modest")).collect();
        assert_eq!(modest.len(), 4);
        drop((greedy, modest));
        assert_eq!(queue.len(), 0);
        assert!(queue.waiting.lock().lines.is_empty());
        assert!(queue.waiting.lock().callers.is_empty());
    }
}
