//! The queues of requests that wait, one per key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use balde_core::{Command, Decision as CoreDecision, Wait};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use super::outcome::{Outcome, Outcomes};
use super::{Refused, WaitResult};
use crate::decision::Decision;
#[cfg(feature = "prometheus")]
use crate::telemetry::WaitCounts;

/// All requests of one limiter that wait.
pub(crate) struct Waiters {
    queues: Mutex<Queues>,
    /// How many wait. Read without the lock: callers that find nobody skip the queues.
    waiting: AtomicUsize,
    outcomes: Outcomes,
    max: usize,
}

#[derive(Default)]
struct Queues {
    by_key: HashMap<Box<[u8]>, Queue>,
    next_id: u64,
}

/// Those who wait for one key, in the order in which they came.
#[derive(Default)]
struct Queue {
    waiters: BTreeMap<u64, Waiter>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Wakes the driver, when the first in line changes or the bucket does.
    changed: Arc<Notify>,
    is_driven: bool,
    /// True if the bucket may have changed otherwise than by time since the driver last asked.
    is_stale: bool,
}

struct Waiter {
    n: u64,
    deadline: Option<Instant>,
    ticket: Arc<Ticket>,
}

/// What a request and its place in the queue share.
#[derive(Debug)]
pub(super) struct Ticket(Mutex<TicketState>);

#[derive(Debug)]
enum TicketState {
    Waiting(Option<Waker>),
    Done(Box<WaitResult>),
    /// The result was taken, or the request was dropped.
    Closed,
}

/// What the driver of a queue knows about the bucket.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    Nothing,
    /// The bucket after this decision, which arrived at this time.
    Decision(CoreDecision, Instant),
    /// The first in line has to wait until then.
    #[cfg(feature = "redis")]
    Until(Instant),
}

/// What the driver of a queue has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Take `n` tokens: those of the first in line, and of those behind it for whom the bucket had
    /// enough too.
    Take { n: u64 },
    /// Sleep until then, or until the queue changes.
    Sleep(Instant),
    /// The queue is empty and has been removed.
    Done,
}

/// Where a request stands in a queue.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) id: u64,
    pub(super) ticket: Arc<Ticket>,
}

impl Waiters {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            queues: Mutex::default(),
            waiting: AtomicUsize::new(0),
            outcomes: Outcomes::default(),
            max,
        }
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// How the requests ended that were not granted at once.
    #[cfg(feature = "prometheus")]
    pub(crate) fn outcomes(&self) -> WaitCounts {
        self.outcomes.read()
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.outcomes.add_one(outcome);
    }

    pub(super) fn has_queue(&self, key: &[u8]) -> bool {
        self.len() > 0 && self.queues.lock().by_key.contains_key(key)
    }

    /// Adds a request at the end of its key's queue. Fails with the maximum if too many wait. The
    /// second value is true if the caller has to start a driver.
    pub(super) fn join(
        &self,
        key: &[u8],
        n: u64,
        deadline: Option<Instant>,
    ) -> Result<(Place, bool), usize> {
        let mut queues = self.queues.lock();
        if self.waiting.load(Ordering::Relaxed) >= self.max {
            return Err(self.max);
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let id = queues.next_id;
        queues.next_id += 1;
        let queue = queues.by_key.entry(key.into()).or_default();
        let ticket = Arc::new(Ticket(Mutex::new(TicketState::Waiting(None))));
        let waiter = Waiter {
            n,
            deadline,
            ticket: Arc::clone(&ticket),
        };
        queue.waiters.insert(id, waiter);
        if let Some(deadline) = deadline {
            let is_earliest = queue
                .deadlines
                .first()
                .is_none_or(|(first, _)| deadline < *first);
            queue.deadlines.insert((deadline, id));
            if is_earliest {
                queue.changed.notify_one();
            }
        }
        let must_drive = !std::mem::replace(&mut queue.is_driven, true);
        Ok((Place { id, ticket }, must_drive))
    }

    /// Takes a request out of its queue, because its future was dropped. Returns its tokens if it
    /// had been granted some that it has not seen.
    pub(super) fn cancel(&self, key: &[u8], place: &Place) -> Option<Decision> {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.by_key.get_mut(key) {
            let was_first = queue.first().is_some_and(|(id, _)| id == place.id);
            if queue.remove(place.id).is_some() {
                self.waiting.fetch_sub(1, Ordering::AcqRel);
                if was_first {
                    queue.changed.notify_one();
                }
            }
            // A driver removes its queue itself.
            if queue.waiters.is_empty() && !queue.is_driven {
                queues.by_key.remove(key);
            }
        }
        match place.ticket.close() {
            TicketState::Done(result) => (*result).ok(),
            TicketState::Waiting(_) | TicketState::Closed => None,
        }
    }

    /// Returns true if the queue of a key has no driver, and the caller has to start one. The driver
    /// is gone if the runtime that it ran in has been shut down.
    pub(super) fn must_drive(&self, key: &[u8]) -> bool {
        let mut queues = self.queues.lock();
        let queue = queues.by_key.get_mut(key);
        queue.is_some_and(|queue| !std::mem::replace(&mut queue.is_driven, true))
    }

    /// The driver of a queue ended early. Whoever waits is woken, and starts another.
    pub(super) fn driver_ended(&self, key: &[u8]) {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.by_key.get_mut(key) {
            queue.is_driven = false;
            for waiter in queue.waiters.values() {
                waiter.ticket.wake();
            }
        }
    }

    /// Tells the driver of a key that its bucket has changed otherwise than by time.
    pub(crate) fn bucket_changed(&self, key: &[u8]) {
        if self.len() > 0
            && let Some(queue) = self.queues.lock().by_key.get_mut(key)
        {
            queue.set_stale();
        }
    }

    /// Tells all drivers that their buckets have changed.
    pub(crate) fn all_buckets_changed(&self) {
        if self.len() > 0 {
            for queue in self.queues.lock().by_key.values_mut() {
                queue.set_stale();
            }
        }
    }

    /// The signal that a queue has changed.
    pub(super) fn changed(&self, key: &[u8]) -> Option<Arc<Notify>> {
        let queues = self.queues.lock();
        Some(Arc::clone(&queues.by_key.get(key)?.changed))
    }

    /// Decides what the driver of a queue does next. Deadlines are checked only while the first in
    /// line has to wait, so that a late timer refuses nobody whose tokens were there in time.
    pub(super) fn next(&self, key: &[u8], known: &Known, now: Instant) -> Next {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.by_key.get_mut(key) else {
            return Next::Done;
        };
        loop {
            let Some((id, n)) = queue.first() else {
                queues.by_key.remove(key);
                return Next::Done;
            };
            let is_stale = std::mem::take(&mut queue.is_stale);
            let due = match known {
                _ if is_stale => return Next::Take { n },
                Known::Nothing => return Next::Take { n },
                #[cfg(feature = "redis")]
                Known::Until(due) => *due,
                Known::Decision(decision, at) => match decision.wait_for(n) {
                    Wait::None => {
                        return Next::Take {
                            n: queue.first_within(decision.remaining()),
                        };
                    }
                    Wait::Us(us) => *at + Duration::from_micros(us),
                    Wait::Never => return Next::Take { n },
                },
            };
            if due <= now {
                return Next::Take { n };
            }
            let refusal = match known {
                Known::Decision(decision, _) => Some(decision),
                _ => None,
            };
            if queue.waiters[&id]
                .deadline
                .is_some_and(|deadline| deadline < due)
            {
                self.end(queue, id, Err(Refused::timed_out(refusal)));
                continue;
            }
            self.expire(queue, refusal, now);
            // Those that have expired may have been first.
            if queue.first().is_some_and(|(first, _)| first == id) {
                let deadline = queue
                    .deadlines
                    .first()
                    .map_or(due, |(deadline, _)| *deadline);
                return Next::Sleep(due.min(deadline));
            }
        }
    }

    /// Refuses whose deadline has passed while a call to the store is in flight. Returns the next
    /// deadline.
    #[cfg(feature = "redis")]
    pub(super) fn expire_now(&self, key: &[u8], now: Instant) -> Option<Instant> {
        let mut queues = self.queues.lock();
        let queue = queues.by_key.get_mut(key)?;
        self.expire(queue, None, now);
        queue.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Hands out the tokens that a decision took, in the order of the queue. Returns the tokens that
    /// are left because a request has been dropped since.
    pub(super) fn grant(&self, key: &[u8], taken: &CoreDecision) -> u64 {
        let mut left = taken.moved();
        let mut queues = self.queues.lock();
        let Some(queue) = queues.by_key.get_mut(key) else {
            return left;
        };
        // Each gets the decision that it would have got by itself at the same time.
        let limit = taken.limit();
        let mut snapshot = taken.snapshot_before();
        while let Some((id, n)) = queue.first()
            && n <= left
        {
            let decision = limit.decide(snapshot, Command::Take { n });
            snapshot = limit.snapshot(decision.state(), taken.now_us());
            left -= n;
            self.end(queue, id, Ok(Decision::of(decision)));
        }
        left
    }

    /// The first in line.
    #[cfg(feature = "redis")]
    pub(super) fn first(&self, key: &[u8]) -> Option<(u64, u64)> {
        self.queues.lock().by_key.get(key)?.first()
    }

    /// Ends the waiting of one request. Returns false if it has gone.
    #[cfg(feature = "redis")]
    pub(super) fn finish(&self, key: &[u8], id: u64, result: WaitResult) -> bool {
        let mut queues = self.queues.lock();
        let queue = queues.by_key.get_mut(key);
        queue.is_some_and(|queue| self.end(queue, id, result))
    }

    /// Refuses the first in line, because it wants more than the capacity.
    pub(super) fn refuse_over_capacity(&self, key: &[u8], refused: &CoreDecision) {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.by_key.get_mut(key)
            && let Some((id, n)) = queue.first()
            && n > refused.limit().capacity()
        {
            self.end(queue, id, Err(Refused::over_capacity(refused)));
        }
    }

    fn expire(&self, queue: &mut Queue, refusal: Option<&CoreDecision>, now: Instant) {
        while let Some((deadline, id)) = queue.deadlines.first().copied()
            && deadline <= now
        {
            self.end(queue, id, Err(Refused::timed_out(refusal)));
        }
    }

    fn end(&self, queue: &mut Queue, id: u64, result: WaitResult) -> bool {
        let Some(waiter) = queue.remove(id) else {
            return false;
        };
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        waiter.ticket.finish(result);
        true
    }
}

impl Queue {
    fn first(&self) -> Option<(u64, u64)> {
        let (id, waiter) = self.waiters.first_key_value()?;
        Some((*id, waiter.n))
    }

    /// The tokens of the first in line, and of as many behind it as fit into `room`.
    fn first_within(&self, room: u64) -> u64 {
        let mut waiters = self.waiters.values();
        let mut sum = waiters.next().map_or(0, |first| first.n);
        for waiter in waiters {
            match sum.checked_add(waiter.n) {
                Some(with_it) if with_it <= room => sum = with_it,
                _ => break,
            }
        }
        sum
    }

    fn remove(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(waiter)
    }

    fn set_stale(&mut self) {
        self.is_stale = true;
        self.changed.notify_one();
    }
}

impl Ticket {
    /// The result, or `None` if the request still waits: then `waker` will be woken.
    pub(super) fn poll(&self, waker: &Waker) -> Option<WaitResult> {
        let mut state = self.0.lock();
        if let TicketState::Waiting(old) = &mut *state {
            if !old.as_ref().is_some_and(|old| old.will_wake(waker)) {
                *old = Some(waker.clone());
            }
            return None;
        }
        match std::mem::replace(&mut *state, TicketState::Closed) {
            TicketState::Done(result) => Some(*result),
            TicketState::Waiting(_) | TicketState::Closed => None,
        }
    }

    fn finish(&self, result: WaitResult) {
        let done = TicketState::Done(Box::new(result));
        if let TicketState::Waiting(Some(waker)) = std::mem::replace(&mut *self.0.lock(), done) {
            waker.wake();
        }
    }

    fn wake(&self) {
        if let TicketState::Waiting(waker) = &mut *self.0.lock()
            && let Some(waker) = waker.take()
        {
            waker.wake();
        }
    }

    fn close(&self) -> TicketState {
        std::mem::replace(&mut *self.0.lock(), TicketState::Closed)
    }
}
