//! Serving those who wait, as far as time allows.

use std::task::Waker;

use crate::error::Refused;
use crate::scheduler::partition::Spot;
use crate::scheduler::waiters::{Fate, Place};
use crate::scheduler::{Core, Need, Source, Verdict};

/// How many are woken before the lock is let go. A crowd is then served in several goes, and
/// nobody who comes by waits for all of it.
const WAKES_MAX: usize = 32;

/// Those to wake when the lock has been let go.
#[derive(Debug, Default)]
pub(crate) struct Wakes(Vec<Waker>);

impl Wakes {
    pub(crate) fn push(&mut self, waker: Option<Waker>) {
        self.0.extend(waker);
    }

    pub(crate) fn wake_all(&mut self) {
        for waker in self.0.drain(..) {
            waker.wake();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn is_full(&self) -> bool {
        self.0.len() >= WAKES_MAX
    }
}

/// Whether there is more to settle at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    All,
    /// Wake those, and settle again.
    Part,
}

impl Core {
    /// Serves and refuses everybody whose time has come.
    pub(crate) fn settle(&mut self, now_us: u64, wakes: &mut Wakes) -> Settled {
        self.blocked_until_us = None;
        while let Some(&(due_us, place)) = self.deadlines.first() {
            if due_us > now_us {
                break;
            }
            if wakes.is_full() {
                return Settled::Part;
            }
            let index = self.waiters.get(place).part;
            wakes.push(self.refuse(place, Refused::Deadline, now_us));
            self.place(index, now_us);
        }
        while let Some(index) = self.flushed.last().copied() {
            if wakes.is_full() {
                return Settled::Part;
            }
            self.flush_one(index, now_us, wakes);
        }
        while let Some(&(due_us, index)) = self.timed.first() {
            if due_us > now_us {
                break;
            }
            self.place(index, now_us);
        }
        while let Some(&(turn, index)) = self.ready.first() {
            if wakes.is_full() {
                return Settled::Part;
            }
            if let Some(blocked_us) = self.serve(index, turn, now_us, wakes) {
                self.blocked_until_us = Some(now_us.saturating_add(blocked_us));
                break;
            }
        }
        if self.flushed.is_empty() {
            Settled::All
        } else {
            Settled::Part
        }
    }

    /// When there will be something to settle again, if nothing else happens.
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        let timed = self.timed.first().map(|(due_us, _)| *due_us);
        let deadline = self.deadlines.first().map(|(due_us, _)| *due_us);
        [timed, deadline, self.blocked_until_us]
            .into_iter()
            .flatten()
            .min()
    }

    /// Finds out what the first in the line of `index` waits for, and remembers it.
    pub(crate) fn place(&mut self, index: u32, now_us: u64) {
        self.unplace(index);
        let Some(first) = self.part(index).line.first() else {
            return;
        };
        if self.part(index).is_flushed {
            return;
        }
        let waiter = self.waiters.get(first);
        let left = waiter.n - waiter.taken;
        let spot = match self.need(index, left, now_us) {
            Need::Global { .. } => {
                let turn = self.part(index).turn.max(self.turn);
                self.part_mut(index).turn = turn;
                self.ready.insert((turn, index));
                Spot::Ready { turn }
            }
            Need::Time { due_us } => {
                self.timed.insert((due_us, index));
                Spot::Timed { due_us }
            }
            Need::Feeding => {
                if !self.part(index).is_fed {
                    self.part_mut(index).is_fed = true;
                    self.hungry.push(index);
                }
                Spot::Nowhere
            }
            Need::Refusal(_) => {
                // The first is refused now; whoever is behind it is looked at after that.
                self.flush(index);
                Spot::Nowhere
            }
        };
        self.part_mut(index).spot = spot;
    }

    pub(crate) fn unplace(&mut self, index: u32) {
        let spot = std::mem::replace(&mut self.part_mut(index).spot, Spot::Nowhere);
        match spot {
            Spot::Nowhere => {}
            Spot::Ready { turn } => {
                self.ready.remove(&(turn, index));
            }
            Spot::Timed { due_us } => {
                self.timed.remove(&(due_us, index));
            }
        }
    }

    /// One slice for whoever is first, or how long until the global bucket has it.
    fn serve(&mut self, index: u32, turn: u64, now_us: u64, wakes: &mut Wakes) -> Option<u64> {
        let Some(first) = self.part(index).line.first() else {
            self.unplace(index);
            return None;
        };
        let waiter = self.waiters.get(first);
        let left = waiter.n - waiter.taken;
        let Need::Global { slice } = self.need(index, left, now_us) else {
            self.place(index, now_us);
            return None;
        };
        if let Some(us) = self.global_wait_us(slice, now_us) {
            return Some(us);
        }
        self.take(index, slice, now_us);
        self.turn = turn;
        if self.source == Source::Here {
            self.part_mut(index).turn = turn.saturating_add(slice);
        }
        self.waiters.get_mut(first).taken += slice;
        if slice == left {
            wakes.push(self.grant(first, now_us));
        }
        self.place(index, now_us);
        None
    }

    fn grant(&mut self, place: Place, now_us: u64) -> Option<Waker> {
        self.leave(place, now_us);
        let waiter = self.waiters.get(place);
        let (index, n, since_us) = (waiter.part, waiter.n, waiter.since_us);
        if let Verdict::Granted { epoch } = self.granted(index, n, Some(since_us), now_us) {
            self.waiters.get_mut(place).fate = Fate::Granted { epoch };
        }
        self.waiters.get_mut(place).waker.take()
    }

    /// Refuses the first in a line that is being flushed.
    fn flush_one(&mut self, index: u32, now_us: u64, wakes: &mut Wakes) {
        let first = self.part(index).line.first();
        let refused = first.and_then(|first| {
            if self.is_closed {
                return Some(Refused::Closed);
            }
            let waiter = self.waiters.get(first);
            let left = waiter.n - waiter.taken;
            match self.need(index, left, now_us) {
                Need::Refusal(refused) => Some(refused),
                _ => None,
            }
        });
        if let (Some(first), Some(refused)) = (first, refused) {
            wakes.push(self.refuse(first, refused, now_us));
        } else {
            self.flushed.pop();
            self.part_mut(index).is_flushed = false;
            self.place(index, now_us);
        }
    }
}
