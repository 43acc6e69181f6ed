//! Serving the waiters whose time has come.

use std::task::Waker;

use crate::error::Refusal;
use crate::scheduler::partition::QueuePosition;
use crate::scheduler::waiters::{WaiterId, WaiterState};
use crate::scheduler::{Need, Scheduler, TokenSource};

/// How many waiters are woken before the lock is released. Many waiters are then served in several
/// steps, and other callers need not wait for all of them.
const WAKES_MAX: usize = 32;

/// The wakers to call once the lock has been released.
#[derive(Debug, Default)]
pub(crate) struct WakeList(Vec<Waker>);

impl WakeList {
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

/// Whether more waiters can be served at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// The wake list is full: wake it, and serve again.
    More,
}

impl Scheduler {
    /// Serves and refuses all waiters whose time has come.
    pub(crate) fn serve_due(&mut self, now_us: u64, wake_list: &mut WakeList) -> Progress {
        self.blocked_until_us = None;
        while let Some(&(due_us, id)) = self.deadlines.first() {
            if due_us > now_us {
                break;
            }
            if wake_list.is_full() {
                return Progress::More;
            }
            let index = self.waiters.get(id).partition;
            wake_list.push(self.refuse(id, Refusal::Deadline, now_us));
            self.reschedule(index, now_us);
        }
        while let Some(index) = self.flushing.last().copied() {
            if wake_list.is_full() {
                return Progress::More;
            }
            self.flush_one(index, now_us, wake_list);
        }
        while let Some(&(due_us, index)) = self.timed.first() {
            if due_us > now_us {
                break;
            }
            self.reschedule(index, now_us);
        }
        while let Some(&(turn, index)) = self.ready.first() {
            if wake_list.is_full() {
                return Progress::More;
            }
            if let Some(blocked_us) = self.serve(index, turn, now_us, wake_list) {
                self.blocked_until_us = Some(now_us.saturating_add(blocked_us));
                break;
            }
        }
        if self.flushing.is_empty() {
            Progress::Done
        } else {
            Progress::More
        }
    }

    /// The next moment at which a waiter can be served or refused, if nothing else happens before.
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        let timed = self.timed.first().map(|(due_us, _)| *due_us);
        let deadline = self.deadlines.first().map(|(due_us, _)| *due_us);
        [timed, deadline, self.blocked_until_us]
            .into_iter()
            .flatten()
            .min()
    }

    /// Determines what the first waiter of partition `index` waits for, and puts the partition into the
    /// set that matches.
    pub(crate) fn reschedule(&mut self, index: u32, now_us: u64) {
        self.unschedule(index);
        let Some(first) = self.partition(index).queue.first() else {
            self.relax(index, now_us);
            return;
        };
        if self.partition(index).is_flushing {
            return;
        }
        let missing = self.waiters.get(first).missing();
        let position = match self.need(index, missing, now_us) {
            Need::GlobalTokens { .. } => {
                let turn = self.partition(index).turn.max(self.turn);
                self.partition_mut(index).turn = turn;
                self.ready.insert((turn, index));
                QueuePosition::Ready { turn }
            }
            Need::Time { due_us } => {
                self.timed.insert((due_us, index));
                QueuePosition::Timed { due_us }
            }
            Need::RemoteTokens => {
                if !self.partition(index).is_fetching {
                    self.partition_mut(index).is_fetching = true;
                    self.needs_tokens.push(index);
                }
                QueuePosition::Unscheduled
            }
            Need::Refusal(_) => {
                // The first is refused now; those behind it are looked at after that.
                self.flush(index);
                QueuePosition::Unscheduled
            }
        };
        self.partition_mut(index).position = position;
    }

    pub(crate) fn unschedule(&mut self, index: u32) {
        let position = &mut self.partition_mut(index).position;
        match std::mem::replace(position, QueuePosition::Unscheduled) {
            QueuePosition::Unscheduled => {}
            QueuePosition::Ready { turn } => {
                self.ready.remove(&(turn, index));
            }
            QueuePosition::Timed { due_us } => {
                self.timed.remove(&(due_us, index));
            }
        }
    }

    /// Gives one slice to the first waiter, or returns how long until the global bucket has it.
    fn serve(
        &mut self,
        index: u32,
        turn: u64,
        now_us: u64,
        wake_list: &mut WakeList,
    ) -> Option<u64> {
        let Some(first) = self.partition(index).queue.first() else {
            self.unschedule(index);
            return None;
        };
        let missing = self.waiters.get(first).missing();
        let Need::GlobalTokens { slice } = self.need(index, missing, now_us) else {
            self.reschedule(index, now_us);
            return None;
        };
        if let Some(us) = self.global_wait_us(slice, now_us) {
            return Some(us);
        }
        self.take(index, slice, now_us);
        self.turn = turn;
        if self.source == TokenSource::Local {
            self.partition_mut(index).turn = turn.saturating_add(slice);
        }
        self.waiters.get_mut(first).taken += slice;
        if slice == missing {
            wake_list.push(self.grant(first, now_us));
        }
        self.reschedule(index, now_us);
        None
    }

    fn grant(&mut self, id: WaiterId, now_us: u64) -> Option<Waker> {
        self.leave(id, now_us);
        let waiter = self.waiters.get(id);
        let (index, n, since_us) = (waiter.partition, waiter.n, waiter.since_us);
        let epoch = self.record_grant(index, n, Some(since_us), now_us);
        let waiter = self.waiters.get_mut(id);
        waiter.state = WaiterState::Granted { epoch };
        waiter.waker.take()
    }

    /// Refuses the first waiter of a queue that is being flushed, or ends the flush.
    fn flush_one(&mut self, index: u32, now_us: u64, wake_list: &mut WakeList) {
        let first = self.partition(index).queue.first();
        let refusal = first.and_then(|first| {
            if self.is_closed {
                return Some(Refusal::Closed);
            }
            let missing = self.waiters.get(first).missing();
            self.refusal(index, missing, now_us)
        });
        if let (Some(first), Some(refusal)) = (first, refusal) {
            wake_list.push(self.refuse(first, refusal, now_us));
        } else {
            self.flushing.pop();
            self.partition_mut(index).is_flushing = false;
            self.reschedule(index, now_us);
        }
    }
}
