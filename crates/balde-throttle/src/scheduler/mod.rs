//! Which request gets tokens when: a global bucket, and a bucket and a queue for each partition. Pure,
//! with time as an argument; [`Inner`](crate::inner::Inner) holds the lock and the timer around it.
//!
//! **Order.** Within a partition, first come, first served: the first waiter gets all its tokens before
//! any waiter behind it gets one. Between partitions, the first waiters whose own bucket has their
//! tokens compete for the global bucket, and the partition that has had the fewest tokens goes first.
//! It keeps that turn until the global bucket has enough, so small requests do not starve a large one.
//! A partition that waits for its own bucket, a pause or its circuit does not compete, so it delays no
//! other.
//!
//! **No token is lost.** Tokens are taken from both buckets in one step, for a waiter that exists. A
//! waiter that is cancelled before it has seen its grant gives its tokens back.

pub(crate) mod fast_path;
pub(crate) mod partition;
mod prefetch;
mod reports;
pub(crate) mod serve;
#[cfg(test)]
mod tests;
mod tokens;
pub(crate) mod waiters;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use self::fast_path::Prefetch;
use self::partition::{PartitionState, PartitionStats};
use self::waiters::{WaiterId, WaiterState, Waiters};
use crate::bucket::Bucket;
use crate::error::Refusal;
use crate::event::Event;
use crate::name::is_partition_name;
use crate::rate::{Pace, Rate};
use crate::settings::Settings;

/// How many partitions are examined to find an idle one that can be removed.
const EXAMINED_MAX: usize = 256;

/// Where the buckets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenSource {
    /// In this process.
    Local,
    /// In a shared store, from which a task fetches tokens.
    Remote,
}

pub(crate) struct Scheduler {
    pub(crate) settings: Arc<Settings>,
    pub(crate) source: TokenSource,
    pub(crate) global: Bucket,
    pub(crate) global_pace: Pace,
    pub(crate) partitions: Vec<Option<PartitionState>>,
    free_partitions: Vec<u32>,
    pub(crate) by_name: HashMap<Arc<str>, u32>,
    /// The partition that was examined last for removal.
    sweep_at: usize,
    pub(crate) waiters: Waiters,
    /// How many waiters are in queues.
    pub(crate) waiting: usize,
    pub(crate) ready: BTreeSet<(u64, u32)>,
    pub(crate) timed: BTreeSet<(u64, u32)>,
    pub(crate) deadlines: BTreeSet<(u64, WaiterId)>,
    pub(crate) flushing: Vec<u32>,
    /// Partitions whose queues need tokens from the shared store.
    pub(crate) needs_tokens: Vec<u32>,
    /// The turn that was served last.
    pub(crate) turn: u64,
    /// When the global bucket has enough for the partition whose turn it is.
    pub(crate) blocked_until_us: Option<u64>,
    /// Events that have not been logged yet.
    pub(crate) events: VecDeque<Event>,
    /// Partitions with health events to publish to other processes.
    pub(crate) to_publish: Vec<Arc<str>>,
    pub(crate) prefetch: Prefetch,
    pub(crate) is_closed: bool,
}

/// What one process concluded from outcomes, for others to apply to a partition that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthEvent {
    /// An error that lowered the rate, or that recovery has to wait for.
    Error,
    /// A success that raised the rate or closed the circuit.
    Success,
    /// Nothing but errors: the circuit opened above the floor.
    Down,
}

/// The answer to a request before it has joined a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted { epoch: u32 },
    Refused(Refusal),
    MustWait { retry_us: Option<u64> },
}

/// What the first waiter of a queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The global bucket: its own bucket has these tokens. Fewer than it lacks only if they come from
    /// the shared store.
    GlobalTokens { slice: u64 },
    /// Time: nothing changes before `due_us`.
    Time { due_us: u64 },
    /// Tokens from the shared store.
    RemoteTokens,
    /// Nothing: it is refused.
    Refusal(Refusal),
}

impl Scheduler {
    pub(crate) fn new(
        settings: Arc<Settings>,
        source: TokenSource,
        prefetch: Prefetch,
        now_us: u64,
    ) -> Self {
        let global_pace = settings.pace(settings.global_rate);
        Self {
            global: Bucket::new(*global_pace.limit(), now_us),
            global_pace,
            settings,
            source,
            partitions: Vec::new(),
            free_partitions: Vec::new(),
            by_name: HashMap::new(),
            sweep_at: 0,
            waiters: Waiters::default(),
            waiting: 0,
            ready: BTreeSet::new(),
            timed: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            flushing: Vec::new(),
            needs_tokens: Vec::new(),
            turn: 0,
            blocked_until_us: None,
            events: VecDeque::new(),
            to_publish: Vec::new(),
            prefetch,
            is_closed: false,
        }
    }

    pub(crate) fn partition(&self, index: u32) -> &PartitionState {
        self.partitions[index as usize]
            .as_ref()
            .expect("a partition in use is not removed")
    }

    pub(crate) fn partition_mut(&mut self, index: u32) -> &mut PartitionState {
        self.partitions[index as usize]
            .as_mut()
            .expect("a partition in use is not removed")
    }

    /// Finds the partition of this name, or creates it.
    pub(crate) fn find(&mut self, name: &str, now_us: u64) -> Result<u32, Refusal> {
        if self.is_closed {
            return Err(Refusal::Closed);
        }
        if let Some(index) = self.by_name.get(name) {
            return Ok(*index);
        }
        if !is_partition_name(name) {
            return Err(Refusal::BadPartition);
        }
        if self.by_name.len() >= self.settings.partitions_max && !self.remove_idle(now_us) {
            return Err(Refusal::TooManyPartitions {
                partitions_max: self.settings.partitions_max,
            });
        }
        let name: Arc<str> = name.into();
        let partition = PartitionState::new(Arc::clone(&name), &self.settings, self.turn, now_us);
        let index = self.free_partitions.pop().unwrap_or_else(|| {
            self.partitions.push(None);
            u32::try_from(self.partitions.len() - 1).expect("partitions_max is below 2^32")
        });
        self.partitions[index as usize] = Some(partition);
        self.prefetch.add(index, &name);
        self.by_name.insert(name, index);
        Ok(index)
    }

    /// Grants tokens at once, or returns why not. The caller has served those who wait before, so no
    /// waiter is overtaken.
    pub(crate) fn begin(&mut self, index: u32, n: u64, now_us: u64) -> Verdict {
        if self.is_closed {
            return Verdict::Refused(Refusal::Closed);
        }
        self.reclaim(index, now_us);
        self.partition_mut(index).used_at_us = now_us;
        if !self.partition(index).queue.is_empty() || !self.ready.is_empty() {
            return match self.refusal(index, n, now_us) {
                Some(refusal) => self.refuse_at_once(index, refusal),
                None => Verdict::MustWait { retry_us: None },
            };
        }
        let verdict = match self.need(index, n, now_us) {
            Need::Refusal(refusal) => return self.refuse_at_once(index, refusal),
            Need::Time { due_us } => Verdict::MustWait {
                retry_us: Some(due_us.saturating_sub(now_us)),
            },
            Need::RemoteTokens => Verdict::MustWait { retry_us: None },
            Need::GlobalTokens { slice } if slice < n => Verdict::MustWait { retry_us: None },
            Need::GlobalTokens { .. } => {
                if let Some(us) = self.global_wait_us(n, now_us) {
                    Verdict::MustWait { retry_us: Some(us) }
                } else {
                    self.take(index, n, now_us);
                    let epoch = self.record_grant(index, n, None, now_us);
                    Verdict::Granted { epoch }
                }
            }
        };
        if matches!(verdict, Verdict::Granted { .. }) {
            self.relax(index, now_us);
            self.fill_slot(index, now_us);
        }
        verdict
    }

    /// Adds a waiter at the end of a partition's queue.
    pub(crate) fn join(
        &mut self,
        index: u32,
        n: u64,
        deadline_us: Option<u64>,
        now_us: u64,
    ) -> Result<WaiterId, Refusal> {
        let waiters_max = self.settings.waiters_max;
        if self.waiters.len() >= waiters_max {
            self.partition_mut(index).counters.refused += 1;
            return Err(Refusal::TooManyWaiters { waiters_max });
        }
        self.reclaim_all(now_us);
        let partition = self.partitions[index as usize]
            .as_mut()
            .expect("a partition in use is not removed");
        let id = self
            .waiters
            .join(&mut partition.queue, index, n, now_us, deadline_us);
        partition.waiter_slots += 1;
        self.waiting += 1;
        if let Some(deadline_us) = deadline_us {
            self.deadlines.insert((deadline_us, id));
        }
        if self.partition(index).queue.len() == 1 {
            self.reschedule(index, now_us);
        }
        Ok(id)
    }

    /// Returns the result of a waiter and frees its slot, or stores `waker` if it still waits.
    pub(crate) fn poll_waiter(
        &mut self,
        id: WaiterId,
        waker: &Waker,
    ) -> Option<Result<u32, Refusal>> {
        let waiter = self.waiters.get_mut(id);
        let result = match waiter.state {
            WaiterState::Waiting => {
                if !waiter
                    .waker
                    .as_ref()
                    .is_some_and(|old| old.will_wake(waker))
                {
                    waiter.waker = Some(waker.clone());
                }
                return None;
            }
            WaiterState::Granted { epoch } => Ok(epoch),
            WaiterState::Refused(refusal) => Err(refusal),
        };
        self.free(id);
        Some(result)
    }

    /// Removes a waiter whose future was dropped. Its tokens, also those of a grant that it has not
    /// seen, go back to the buckets.
    pub(crate) fn cancel(&mut self, id: WaiterId, now_us: u64) {
        let waiter = self.waiters.get(id);
        let (index, state, taken) = (waiter.partition, waiter.state, waiter.taken);
        if state == WaiterState::Waiting {
            self.leave(id, now_us);
        }
        self.free(id);
        if let WaiterState::Granted { epoch } = state {
            let partition = self.partition_mut(index);
            partition.counters.granted -= taken;
            partition.health.record_abandoned(Some(epoch));
        }
        if !matches!(state, WaiterState::Refused(_)) {
            self.give_back(index, taken, now_us);
        }
        self.reschedule(index, now_us);
    }

    /// Changes the global rate, and its burst with it.
    pub(crate) fn set_rate(&mut self, rate: Rate, now_us: u64) {
        self.reclaim_all(now_us);
        self.global_pace = self.settings.pace(rate);
        self.global.change(*self.global_pace.limit(), now_us);
        // Whether a request is too large depends on both bursts.
        for index in self.by_name.values().copied().collect::<Vec<_>>() {
            self.reschedule(index, now_us);
        }
    }

    /// Closes the throttler. The next [`serve_due`](Self::serve_due) refuses all waiters.
    pub(crate) fn close(&mut self, now_us: u64) {
        self.reclaim_all(now_us);
        self.is_closed = true;
        for index in self.by_name.values().copied().collect::<Vec<_>>() {
            self.flush(index);
        }
    }

    /// The most tokens that partition `index` can take at once.
    pub(crate) fn burst_of(&self, index: u32) -> u64 {
        self.partition(index)
            .bucket
            .burst()
            .min(self.global.burst())
    }

    pub(crate) fn level(&self, index: u32, now_us: u64) -> u64 {
        match self.source {
            TokenSource::Local => self.partition(index).bucket.level(now_us),
            TokenSource::Remote => 0,
        }
    }

    pub(crate) fn stats(&self) -> Vec<PartitionStats> {
        let partitions = self.partitions.iter().flatten();
        let mut all: Vec<_> = partitions.map(PartitionState::stats).collect();
        all.sort_by(|one, other| one.name().cmp(other.name()));
        all
    }

    fn refuse_at_once(&mut self, index: u32, refusal: Refusal) -> Verdict {
        self.partition_mut(index).counters.refused += 1;
        Verdict::Refused(refusal)
    }

    fn free(&mut self, id: WaiterId) {
        if let Some(waiter) = self.waiters.free(id) {
            self.partition_mut(waiter.partition).waiter_slots -= 1;
        }
    }

    /// Returns true if there is no waiter to serve, no event to log and nothing to publish.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.events.is_empty() && self.to_publish.is_empty()
    }

    /// Marks a queue whose waiters the next [`serve_due`](Self::serve_due) refuses.
    pub(crate) fn flush(&mut self, index: u32) {
        let partition = self.partition_mut(index);
        if !partition.is_flushing && !partition.queue.is_empty() {
            partition.is_flushing = true;
            self.flushing.push(index);
        }
    }

    fn leave(&mut self, id: WaiterId, now_us: u64) {
        let waiter = self.waiters.get(id);
        let (index, deadline_us) = (waiter.partition, waiter.deadline_us);
        if let Some(deadline_us) = deadline_us {
            self.deadlines.remove(&(deadline_us, id));
        }
        let partition = self.partitions[index as usize]
            .as_mut()
            .expect("a partition in use is not removed");
        self.waiters.leave(&mut partition.queue, id);
        partition.used_at_us = now_us;
        self.waiting -= 1;
    }

    /// Refuses one waiter. The tokens it has taken so far go back to the buckets.
    fn refuse(&mut self, id: WaiterId, refusal: Refusal, now_us: u64) -> Option<Waker> {
        self.leave(id, now_us);
        let waiter = self.waiters.get_mut(id);
        waiter.state = WaiterState::Refused(refusal);
        let (index, taken) = (waiter.partition, std::mem::take(&mut waiter.taken));
        let waker = waiter.waker.take();
        self.partition_mut(index).counters.refused += 1;
        self.give_back(index, taken, now_us);
        waker
    }

    fn remove_idle(&mut self, now_us: u64) -> bool {
        for _ in 0..EXAMINED_MAX.min(self.partitions.len()) {
            self.sweep_at = (self.sweep_at + 1) % self.partitions.len();
            let index = u32::try_from(self.sweep_at).unwrap_or(0);
            let is_idle = |partition: &PartitionState| partition.is_idle(now_us);
            if self.partitions[self.sweep_at].as_ref().is_some_and(is_idle) {
                self.remove(index, now_us);
                return true;
            }
        }
        false
    }

    fn remove(&mut self, index: u32, now_us: u64) {
        self.reclaim(index, now_us);
        self.unschedule(index);
        if let Some(partition) = self.partitions[index as usize].take() {
            self.prefetch.remove(index, &partition.name);
            self.by_name.remove(&partition.name);
            self.free_partitions.push(index);
        }
    }
}
