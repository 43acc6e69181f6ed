//! Those who wait: a slab of places, linked into a line for each partition. Joining, leaving from
//! anywhere and being served take the same short time, however many there are.

use std::task::Waker;

use crate::error::Refused;

/// No place.
const NOBODY: u32 = u32::MAX;

/// Somebody's place in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u32);

/// What has become of a waiter. Only its own future frees its place, so a place is never another's
/// while somebody still looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Waiting,
    /// It has its tokens; they were given in this epoch of its partition.
    Granted {
        epoch: u32,
    },
    Refused(Refused),
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) part: u32,
    /// What it asked for, and how much of that has been put aside for it.
    pub(crate) n: u64,
    pub(crate) taken: u64,
    pub(crate) since_us: u64,
    pub(crate) deadline_us: Option<u64>,
    pub(crate) fate: Fate,
    pub(crate) waker: Option<Waker>,
    before: u32,
    behind: u32,
}

/// A line of waiters, first come first served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            first: NOBODY,
            last: NOBODY,
            len: 0,
        }
    }
}

impl Line {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn first(&self) -> Option<Place> {
        (self.first != NOBODY).then_some(Place(self.first))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    slots: Vec<Option<Waiter>>,
    free: Vec<u32>,
}

impl Waiters {
    /// How many places are in use, by those who wait and by those who do not know yet that they
    /// need not wait any longer.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn join(
        &mut self,
        line: &mut Line,
        part: u32,
        n: u64,
        since_us: u64,
        deadline_us: Option<u64>,
    ) -> Place {
        let waiter = Waiter {
            part,
            n,
            taken: 0,
            since_us,
            deadline_us,
            fate: Fate::Waiting,
            waker: None,
            before: line.last,
            behind: NOBODY,
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(waiter);
            slot
        } else {
            self.slots.push(Some(waiter));
            u32::try_from(self.slots.len() - 1).expect("waiters_max is below 2^32")
        };
        match line.last {
            NOBODY => line.first = slot,
            last => self.get_mut(Place(last)).behind = slot,
        }
        line.last = slot;
        line.len += 1;
        Place(slot)
    }

    /// Takes a waiter out of its line. It keeps its place in the slab until its future frees it.
    pub(crate) fn leave(&mut self, line: &mut Line, place: Place) {
        let (before, behind) = {
            let waiter = self.get_mut(place);
            let links = (waiter.before, waiter.behind);
            (waiter.before, waiter.behind) = (NOBODY, NOBODY);
            links
        };
        match before {
            NOBODY => line.first = behind,
            slot => self.get_mut(Place(slot)).behind = behind,
        }
        match behind {
            NOBODY => line.last = before,
            slot => self.get_mut(Place(slot)).before = before,
        }
        line.len -= 1;
    }

    pub(crate) fn get(&self, place: Place) -> &Waiter {
        self.slots[place.0 as usize]
            .as_ref()
            .expect("a place is freed by its own waiter, once")
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> &mut Waiter {
        self.slots[place.0 as usize]
            .as_mut()
            .expect("a place is freed by its own waiter, once")
    }

    /// What the first few in a line need together, but no more than `most` unless the first alone does.
    #[cfg(feature = "redis")]
    pub(crate) fn needed(&self, line: &Line, most: u64) -> u64 {
        const LOOKS_MAX: usize = 64;
        let (mut sum, mut at) = (0_u64, line.first);
        for _ in 0..LOOKS_MAX {
            if at == NOBODY {
                break;
            }
            let waiter = self.get(Place(at));
            let with_it = sum.saturating_add(waiter.n - waiter.taken);
            if sum > 0 && with_it > most {
                break;
            }
            sum = with_it;
            at = waiter.behind;
        }
        sum
    }

    /// Frees a place. Memory that a crowd has left behind is given back when all are gone.
    pub(crate) fn free(&mut self, place: Place) -> Option<Waiter> {
        let waiter = self.slots[place.0 as usize].take();
        self.free.push(place.0);
        if self.free.len() == self.slots.len() && self.slots.capacity() > 1_024 {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
        waiter
    }

    /// Everybody's wakers, for when nobody serves them any more.
    pub(crate) fn wakers(&mut self) -> Vec<Waker> {
        let waiters = self.slots.iter_mut().flatten();
        waiters.filter_map(|waiter| waiter.waker.take()).collect()
    }
}
