//! The waiting requests: a slab of waiters, linked into one queue per partition. Joining, leaving from
//! any position and being served take constant time.

use std::task::Waker;

use crate::error::Refusal;

const NONE: u32 = u32::MAX;

/// A waiter's slot in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterId(u32);

/// What has become of a waiter. Only its own future frees its slot, so a slot is never reused while a
/// future still refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterState {
    Waiting,
    /// It has its tokens, granted in this epoch of its partition.
    Granted {
        epoch: u32,
    },
    Refused(Refusal),
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) partition: u32,
    /// The tokens that it requested, and how many of them it has already.
    pub(crate) n: u64,
    pub(crate) taken: u64,
    pub(crate) since_us: u64,
    pub(crate) deadline_us: Option<u64>,
    pub(crate) state: WaiterState,
    pub(crate) waker: Option<Waker>,
    previous: u32,
    next: u32,
}

impl Waiter {
    /// The tokens that it still lacks.
    pub(crate) const fn missing(&self) -> u64 {
        self.n - self.taken
    }
}

/// A first-in, first-out queue of waiters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
            len: 0,
        }
    }
}

impl Queue {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn first(&self) -> Option<WaiterId> {
        (self.first != NONE).then_some(WaiterId(self.first))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    slots: Vec<Option<Waiter>>,
    free: Vec<u32>,
}

impl Waiters {
    /// How many slots are in use, including those of waiters that were served and whose future has
    /// not been polled since.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn join(
        &mut self,
        queue: &mut Queue,
        partition: u32,
        n: u64,
        since_us: u64,
        deadline_us: Option<u64>,
    ) -> WaiterId {
        let waiter = Waiter {
            partition,
            n,
            taken: 0,
            since_us,
            deadline_us,
            state: WaiterState::Waiting,
            waker: None,
            previous: queue.last,
            next: NONE,
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(waiter);
            slot
        } else {
            self.slots.push(Some(waiter));
            u32::try_from(self.slots.len() - 1).expect("waiters_max is below 2^32")
        };
        match queue.last {
            NONE => queue.first = slot,
            last => self.get_mut(WaiterId(last)).next = slot,
        }
        queue.last = slot;
        queue.len += 1;
        WaiterId(slot)
    }

    /// Takes a waiter out of its queue. It keeps its slot until its future frees it.
    pub(crate) fn leave(&mut self, queue: &mut Queue, id: WaiterId) {
        let (previous, next) = {
            let waiter = self.get_mut(id);
            let links = (waiter.previous, waiter.next);
            (waiter.previous, waiter.next) = (NONE, NONE);
            links
        };
        match previous {
            NONE => queue.first = next,
            slot => self.get_mut(WaiterId(slot)).next = next,
        }
        match next {
            NONE => queue.last = previous,
            slot => self.get_mut(WaiterId(slot)).previous = previous,
        }
        queue.len -= 1;
    }

    pub(crate) fn get(&self, id: WaiterId) -> &Waiter {
        self.slots[id.0 as usize]
            .as_ref()
            .expect("a slot is freed by its own waiter, once")
    }

    pub(crate) fn get_mut(&mut self, id: WaiterId) -> &mut Waiter {
        self.slots[id.0 as usize]
            .as_mut()
            .expect("a slot is freed by its own waiter, once")
    }

    /// The tokens that the first waiters of a queue lack together: at most `most`, unless the first one
    /// alone lacks more.
    #[cfg(feature = "redis")]
    pub(crate) fn missing(&self, queue: &Queue, most: u64) -> u64 {
        const WAITERS_COUNTED_MAX: usize = 64;
        let (mut sum, mut slot) = (0_u64, queue.first);
        for _ in 0..WAITERS_COUNTED_MAX {
            if slot == NONE {
                break;
            }
            let waiter = self.get(WaiterId(slot));
            let with_it = sum.saturating_add(waiter.missing());
            if sum > 0 && with_it > most {
                break;
            }
            sum = with_it;
            slot = waiter.next;
        }
        sum
    }

    /// Frees a slot. When all are free, the memory of a large slab is released.
    pub(crate) fn free(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.slots[id.0 as usize].take();
        self.free.push(id.0);
        if self.free.len() == self.slots.len() && self.slots.capacity() > 1_024 {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
        waiter
    }

    /// Takes the wakers of all waiters, to wake them when the task that served them has ended.
    pub(crate) fn wakers(&mut self) -> Vec<Waker> {
        let waiters = self.slots.iter_mut().flatten();
        waiters.filter_map(|waiter| waiter.waker.take()).collect()
    }
}
