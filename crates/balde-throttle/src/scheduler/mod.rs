//! Who gets tokens when: two levels of buckets and a line for each partition. Pure, with time as an
//! argument; the shell around it holds the lock, wakes and sleeps.
//!
//! **Order.** Within a partition, first come first served: the first in line waits for all it asked
//! for, and nobody behind it is served before. Across partitions, the first of each line whose own
//! bucket would give competes for the global bucket, and the partition that has had the fewest
//! tokens goes first. It keeps that turn until the global bucket has enough, so a large request is
//! not starved by small ones; and a partition that waits for itself (its bucket, a pause, its
//! circuit) competes for nothing, so it slows nobody.
//!
//! **Nothing is lost.** Tokens are taken from both buckets in one step, for somebody who has a place.
//! Whoever leaves before it has been told gives back what was put aside for it.

pub(crate) mod partition;
pub(crate) mod prefetch;
mod reports;
pub(crate) mod serve;
mod tokens;
pub(crate) mod waiters;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use crate::bucket::Bucket;
use crate::error::Refused;
use crate::event::Note;
use crate::rate::{Pace, Rate};
use crate::scheduler::partition::{Part, PartitionStats};
use crate::scheduler::prefetch::Counters;
use crate::scheduler::waiters::{Fate, Place, Waiters};
use crate::settings::{Settings, is_name};

/// How many partitions are looked at for one that can be forgotten.
const FORGET_LOOKS_MAX: usize = 256;

/// Where the tokens are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// In this process.
    Here,
    /// In a shared store, from where somebody brings them.
    Elsewhere,
}

pub(crate) struct Core {
    pub(crate) settings: Arc<Settings>,
    pub(crate) source: Source,
    pub(crate) global: Bucket,
    pub(crate) global_pace: Pace,
    pub(crate) parts: Vec<Option<Part>>,
    free_parts: Vec<u32>,
    pub(crate) by_name: HashMap<Arc<str>, u32>,
    hand: usize,
    pub(crate) waiters: Waiters,
    /// How many stand in lines.
    pub(crate) waiting: usize,
    pub(crate) ready: BTreeSet<(u64, u32)>,
    pub(crate) timed: BTreeSet<(u64, u32)>,
    pub(crate) deadlines: BTreeSet<(u64, Place)>,
    pub(crate) flushed: Vec<u32>,
    /// Partitions whose lines need tokens from elsewhere.
    pub(crate) hungry: Vec<u32>,
    /// The turn that was served last.
    pub(crate) turn: u64,
    /// When the global bucket has enough for whoever is first.
    pub(crate) blocked_until_us: Option<u64>,
    pub(crate) notes: VecDeque<Note>,
    /// Partitions to which something happened here that is of interest elsewhere.
    pub(crate) news: Vec<Arc<str>>,
    pub(crate) ahead: Counters,
    pub(crate) is_closed: bool,
}

/// What processes tell each other about a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Error,
    Success,
}

/// The answer to somebody who would rather not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted { epoch: u32 },
    Refused(Refused),
    MustWait { retry_us: Option<u64> },
}

/// What the first in a line waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Its own bucket would give so much; now for the global one.
    Global { slice: u64 },
    /// Nothing before then.
    Time { due_us: u64 },
    /// Somebody to bring tokens.
    Feeding,
    /// It is refused, and with it everybody behind it where the circuit is open.
    Refusal(Refused),
}

impl Core {
    pub(crate) fn new(
        settings: Arc<Settings>,
        source: Source,
        ahead: Counters,
        now_us: u64,
    ) -> Self {
        let global_pace = settings.pace(settings.global);
        Self {
            global: Bucket::new(*global_pace.limit(), now_us),
            global_pace,
            settings,
            source,
            parts: Vec::new(),
            free_parts: Vec::new(),
            by_name: HashMap::new(),
            hand: 0,
            waiters: Waiters::default(),
            waiting: 0,
            ready: BTreeSet::new(),
            timed: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            flushed: Vec::new(),
            hungry: Vec::new(),
            turn: 0,
            blocked_until_us: None,
            notes: VecDeque::new(),
            news: Vec::new(),
            ahead,
            is_closed: false,
        }
    }

    pub(crate) fn part(&self, index: u32) -> &Part {
        self.parts[index as usize]
            .as_ref()
            .expect("a partition in use is not forgotten")
    }

    pub(crate) fn part_mut(&mut self, index: u32) -> &mut Part {
        self.parts[index as usize]
            .as_mut()
            .expect("a partition in use is not forgotten")
    }

    /// The partition of this name, new if need be.
    pub(crate) fn find(&mut self, name: &str, now_us: u64) -> Result<u32, Refused> {
        if self.is_closed {
            return Err(Refused::Closed);
        }
        if let Some(index) = self.by_name.get(name) {
            return Ok(*index);
        }
        if !is_name(name) {
            return Err(Refused::BadPartition);
        }
        if self.by_name.len() >= self.settings.partitions_max && !self.forget_one(now_us) {
            return Err(Refused::TooManyPartitions {
                partitions_max: self.settings.partitions_max,
            });
        }
        let name: Arc<str> = name.into();
        let part = Part::new(Arc::clone(&name), &self.settings, self.turn, now_us);
        let index = self.free_parts.pop().unwrap_or_else(|| {
            self.parts.push(None);
            u32::try_from(self.parts.len() - 1).expect("partitions_max is below 2^32")
        });
        self.parts[index as usize] = Some(part);
        self.ahead.named(index, &name);
        self.by_name.insert(name, index);
        Ok(index)
    }

    /// Tokens at once, or why not. Nobody who waits is overtaken: whoever calls this has settled.
    pub(crate) fn begin(&mut self, index: u32, n: u64, now_us: u64) -> Verdict {
        if self.is_closed {
            return Verdict::Refused(Refused::Closed);
        }
        self.recall(index, now_us);
        self.part_mut(index).used_at_us = now_us;
        if !self.part(index).line.is_empty() || !self.ready.is_empty() {
            return match self.refusal(index, n, now_us) {
                Some(refused) => self.refuse_at_once(index, refused),
                None => Verdict::MustWait { retry_us: None },
            };
        }
        let verdict = match self.need(index, n, now_us) {
            Need::Refusal(refused) => return self.refuse_at_once(index, refused),
            Need::Time { due_us } => Verdict::MustWait {
                retry_us: Some(due_us.saturating_sub(now_us)),
            },
            Need::Feeding => Verdict::MustWait { retry_us: None },
            Need::Global { slice } if slice < n => Verdict::MustWait { retry_us: None },
            Need::Global { .. } => {
                if let Some(us) = self.global_wait_us(n, now_us) {
                    Verdict::MustWait { retry_us: Some(us) }
                } else {
                    self.take(index, n, now_us);
                    self.granted(index, n, None, now_us)
                }
            }
        };
        if matches!(verdict, Verdict::Granted { .. }) {
            self.lend(index, now_us);
        }
        verdict
    }

    /// A place in the line.
    pub(crate) fn join(
        &mut self,
        index: u32,
        n: u64,
        deadline_us: Option<u64>,
        now_us: u64,
    ) -> Result<Place, Refused> {
        let waiters_max = self.settings.waiters_max;
        if self.waiters.len() >= waiters_max {
            self.part_mut(index).tally.refused += 1;
            return Err(Refused::TooManyWaiters { waiters_max });
        }
        self.recall_all(now_us);
        let part = self.parts[index as usize]
            .as_mut()
            .expect("a partition in use is not forgotten");
        let place = self
            .waiters
            .join(&mut part.line, index, n, now_us, deadline_us);
        part.places += 1;
        self.waiting += 1;
        if let Some(deadline_us) = deadline_us {
            self.deadlines.insert((deadline_us, place));
        }
        if self.part(index).line.len() == 1 {
            self.place(index, now_us);
        }
        Ok(place)
    }

    /// What has become of a waiter. Its place is free once it is told that it need not wait.
    pub(crate) fn look(&mut self, place: Place, waker: &Waker) -> Option<Result<u32, Refused>> {
        let waiter = self.waiters.get_mut(place);
        let fate = match waiter.fate {
            Fate::Waiting => {
                if !waiter
                    .waker
                    .as_ref()
                    .is_some_and(|old| old.will_wake(waker))
                {
                    waiter.waker = Some(waker.clone());
                }
                return None;
            }
            Fate::Granted { epoch } => Ok(epoch),
            Fate::Refused(refused) => Err(refused),
        };
        self.free(place);
        Some(fate)
    }

    /// A waiter has gone away. What was put aside for it, or given without its knowing, goes back;
    /// the next in line is looked at.
    pub(crate) fn cancel(&mut self, place: Place, now_us: u64) {
        let waiter = self.waiters.get(place);
        let (index, fate, taken) = (waiter.part, waiter.fate, waiter.taken);
        if fate == Fate::Waiting {
            self.leave(place, now_us);
        }
        self.free(place);
        if let Fate::Granted { epoch } = fate {
            let part = self.part_mut(index);
            part.tally.granted -= taken;
            part.health.abandoned(Some(epoch));
        }
        if !matches!(fate, Fate::Refused(_)) {
            self.give_back(index, taken, now_us);
        }
        self.place(index, now_us);
    }

    /// Another global rate, with its burst.
    pub(crate) fn set_rate(&mut self, rate: Rate, now_us: u64) {
        self.recall_all(now_us);
        self.global_pace = self.settings.pace(rate);
        self.global.change(*self.global_pace.limit(), now_us);
        // Slices depend on both bursts.
        for index in self.by_name.values().copied().collect::<Vec<_>>() {
            self.place(index, now_us);
        }
    }

    /// Nobody is served any more. The waiters are told with the next settling.
    pub(crate) fn close(&mut self, now_us: u64) {
        self.recall_all(now_us);
        self.is_closed = true;
        for index in self.by_name.values().copied().collect::<Vec<_>>() {
            self.flush(index);
        }
    }

    /// The most that `index` can have at once.
    pub(crate) fn burst_of(&self, index: u32) -> u64 {
        self.part(index).bucket.burst().min(self.global.burst())
    }

    pub(crate) fn level(&self, index: u32, now_us: u64) -> u64 {
        match self.source {
            Source::Here => self.part(index).bucket.level(now_us),
            Source::Elsewhere => 0,
        }
    }

    pub(crate) fn stats(&self) -> Vec<PartitionStats> {
        let mut all: Vec<_> = self.parts.iter().flatten().map(Part::stats).collect();
        all.sort_by(|one, other| one.name().cmp(other.name()));
        all
    }

    /// Why `n` tokens will not be given, whoever waits in front.
    fn refusal(&mut self, index: u32, n: u64, now_us: u64) -> Option<Refused> {
        match self.need(index, n, now_us) {
            Need::Refusal(refused) => Some(refused),
            _ => None,
        }
    }

    fn refuse_at_once(&mut self, index: u32, refused: Refused) -> Verdict {
        self.part_mut(index).tally.refused += 1;
        Verdict::Refused(refused)
    }

    fn free(&mut self, place: Place) {
        if let Some(waiter) = self.waiters.free(place) {
            self.part_mut(waiter.part).places -= 1;
        }
    }

    /// Whether there is nobody to serve and nothing to tell.
    #[inline]
    pub(crate) fn is_calm(&self) -> bool {
        self.waiting == 0 && self.notes.is_empty() && self.news.is_empty()
    }

    /// Refuses everybody in the line, with the next settling.
    pub(crate) fn flush(&mut self, index: u32) {
        let part = self.part_mut(index);
        if !part.is_flushed && !part.line.is_empty() {
            part.is_flushed = true;
            self.flushed.push(index);
        }
    }

    pub(crate) fn leave(&mut self, place: Place, now_us: u64) {
        let waiter = self.waiters.get(place);
        let (index, deadline_us) = (waiter.part, waiter.deadline_us);
        if let Some(deadline_us) = deadline_us {
            self.deadlines.remove(&(deadline_us, place));
        }
        let part = self.parts[index as usize]
            .as_mut()
            .expect("a partition in use is not forgotten");
        self.waiters.leave(&mut part.line, place);
        part.used_at_us = now_us;
        self.waiting -= 1;
    }

    /// Refuses one waiter; what was put aside for it goes back.
    pub(crate) fn refuse(&mut self, place: Place, refused: Refused, now_us: u64) -> Option<Waker> {
        self.leave(place, now_us);
        let waiter = self.waiters.get_mut(place);
        waiter.fate = Fate::Refused(refused);
        let (index, taken) = (waiter.part, std::mem::take(&mut waiter.taken));
        let waker = waiter.waker.take();
        self.part_mut(index).tally.refused += 1;
        self.give_back(index, taken, now_us);
        waker
    }

    fn forget_one(&mut self, now_us: u64) -> bool {
        for _ in 0..FORGET_LOOKS_MAX.min(self.parts.len()) {
            self.hand = (self.hand + 1) % self.parts.len();
            let index = u32::try_from(self.hand).unwrap_or(0);
            let is_idle = |part: &Part| part.is_idle(now_us);
            if self.parts[self.hand].as_ref().is_some_and(is_idle) {
                self.forget(index, now_us);
                return true;
            }
        }
        false
    }

    fn forget(&mut self, index: u32, now_us: u64) {
        self.recall(index, now_us);
        self.unplace(index);
        if let Some(part) = self.parts[index as usize].take() {
            self.ahead.unnamed(index, &part.name);
            self.by_name.remove(&part.name);
            self.free_parts.push(index);
        }
    }
}

#[cfg(test)]
mod tests;
