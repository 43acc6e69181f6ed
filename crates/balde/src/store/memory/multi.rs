//! Several buckets in one decision: all of them grant, or none does.
//!
//! The shards of all buckets are locked in one order, and the buckets frozen, so that no other
//! thread sees or changes a part of the decision. Checks of other keys in those shards continue.

use balde_core::{Command, Decision, State};
use smallvec::SmallVec;

use super::fingerprint::Fingerprint;
use super::shard::Locked;
use super::table::{Table, converted, fresh};
use super::tag::TierId;
use super::word::Packing;

/// One command on one bucket, of a decision over several.
#[derive(Clone, Copy)]
pub(crate) struct MemoryStep<'a> {
    pub(crate) table: &'a Table,
    pub(crate) key: &'a [u8],
    /// The tier of the key, or `None` if the table knows it.
    pub(crate) tier: Option<TierId>,
    pub(crate) command: Command,
    pub(crate) now_us: u64,
}

/// Runs one command.
pub(crate) fn run(step: &MemoryStep<'_>) -> Decision {
    if step.table.has_holds() {
        return run_held(step);
    }
    step.table
        .run_in(step.key, step.tier, step.command, step.now_us)
}

/// [`run`], after an attempt without a lock has failed.
pub(crate) fn run_locked(step: &MemoryStep<'_>) -> Decision {
    if step.table.has_holds() {
        return run_held(step);
    }
    step.table
        .run_locked(step.key, step.tier, step.command, step.now_us)
}

/// Runs one command on a bucket of a table with holds.
fn run_held(step: &MemoryStep<'_>) -> Decision {
    let mut decisions = run_all(std::slice::from_ref(step), |decision| decision);
    decisions.pop().expect("one decision for each step")
}

/// Runs all commands, or none. If one is refused, the decisions on the others are peeks. There are at
/// most 64 steps; `of` makes the results.
pub(crate) fn run_all<T>(steps: &[MemoryStep<'_>], of: impl Fn(Decision) -> T) -> Vec<T> {
    // Most decisions are over two or three buckets, which take no allocation here.
    let mut keys = Keys::new();
    for step in steps {
        keys.push(step.table.fingerprint(step.key));
    }
    let mut shards = Shards::lock(steps, &keys);
    let mut buckets: SmallVec<[Bucket<'_>; 3]> = SmallVec::new();
    let mut results = Vec::with_capacity(steps.len());
    // A bit for each step.
    let mut refused = 0_u64;
    for (number, (step, &key)) in steps.iter().zip(&keys).enumerate() {
        // Two steps on one bucket share its state.
        let index = position(&buckets, step, key).unwrap_or_else(|| {
            buckets.push(Bucket::freeze(&shards, step, key));
            buckets.len() - 1
        });
        let bucket = &mut buckets[index];
        let decision = bucket.decide(step.command, step.now_us);
        bucket.state = decision.state();
        bucket.held = decision.held();
        bucket.must_be_kept |= decision.must_be_kept();
        refused |= u64::from(!decision.is_allowed()) << number;
        results.push(of(decision));
    }

    let is_allowed = refused == 0;
    if !is_allowed {
        for bucket in &mut buckets {
            bucket.state = bucket.state_before;
            bucket.held = bucket.held_before;
        }
        for (number, (step, &key)) in steps.iter().zip(&keys).enumerate() {
            if refused >> number & 1 == 0
                && let Some(index) = position(&buckets, step, key)
            {
                results[number] = of(buckets[index].decide(Command::Peek, step.now_us));
            }
        }
    }
    // First thaw all frozen buckets, then add new ones: adding may move the others.
    for bucket in &buckets {
        bucket.keep_held();
        bucket.thaw(&shards);
    }
    for bucket in &buckets {
        bucket.add(&mut shards, is_allowed);
    }
    // Last, because splitting moves keys.
    for bucket in &buckets {
        shards.split_if_crowded(bucket);
    }
    results
}

fn position(buckets: &[Bucket<'_>], step: &MemoryStep<'_>, key: Fingerprint) -> Option<usize> {
    let is_same = |bucket: &Bucket<'_>| bucket.key == key && std::ptr::eq(bucket.table, step.table);
    buckets.iter().position(is_same)
}

struct Bucket<'a> {
    table: &'a Table,
    key: Fingerprint,
    /// The index of its shard among those that are locked.
    shard: usize,
    tier: TierId,
    packing: Packing,
    now_us: u64,
    /// The slot where it is frozen, and its word under the limit of its tier, unless it equals a
    /// bucket that was never used; `None` if there is no slot.
    at: Option<(usize, Option<u64>)>,
    state_before: Option<State>,
    state: Option<State>,
    held_before: u64,
    held: u64,
    must_be_kept: bool,
}

impl<'a> Bucket<'a> {
    fn freeze(shards: &Shards<'a>, step: &MemoryStep<'a>, key: Fingerprint) -> Self {
        let shard = shards.index(step.table, key);
        let locked = &shards.0[shard].1;
        let at = locked.position(key);
        let known = at.map(|at| locked.tier(at));
        let tier = step.tier.or(known).unwrap_or_default();
        let packing = step.table.packing(locked, tier);
        let at = at.map(|at| {
            let word = locked.freeze(at);
            if known == Some(tier) {
                return (at, Some(word));
            }
            let from = step.table.packing(locked, locked.tier(at));
            (at, converted(&from, &packing, word, step.now_us))
        });
        let word = at.and_then(|(_, word)| word);
        let state = word.map(|word| packing.state(word, step.now_us));
        let held = step.table.held().map_or(0, |held| held.of(key));
        Self {
            table: step.table,
            key,
            shard,
            tier,
            packing,
            now_us: step.now_us,
            at,
            state_before: state,
            state,
            held_before: held,
            held,
            must_be_kept: false,
        }
    }

    fn decide(&self, command: Command, now_us: u64) -> Decision {
        let limit = &self.packing.limit;
        let snapshot = limit.snapshot(self.state, now_us);
        if self.table.has_holds() {
            limit.decide_held(snapshot, self.held, command)
        } else {
            limit.decide(snapshot, command)
        }
    }

    fn keep_held(&self) {
        if self.held != self.held_before
            && let Some(held) = self.table.held()
        {
            held.set(self.key, self.held);
        }
    }

    fn thaw(&self, shards: &Shards<'_>) {
        let Some((at, word_before)) = self.at else {
            return;
        };
        let word = match (self.state, word_before) {
            (unchanged, Some(word)) if unchanged == self.state_before => word,
            (Some(state), _) => self.packing.pack_state(state),
            (None, _) => fresh(&self.packing, self.now_us),
        };
        shards.0[self.shard].1.thaw(at, self.tier, word);
    }

    fn add(&self, shards: &mut Shards<'_>, is_allowed: bool) {
        if self.at.is_some() || !self.must_be_kept {
            return;
        }
        let state = if is_allowed {
            self.state
        } else {
            // Refused as a whole; a bucket that starts empty still begins to refill.
            let nothing = Command::Take { n: 0 };
            self.packing.limit.apply(None, nothing, self.now_us).state()
        };
        if let Some(state) = state {
            let locked = &mut shards.0[self.shard].1;
            let word = self.packing.pack_state(state);
            self.table
                .add(locked, self.key, self.tier, word, self.now_us);
        }
    }
}

/// The locked shards, in the order in which they were locked.
struct Shards<'a>(SmallVec<[((usize, usize), Locked<'a>); 3]>);

/// The fingerprint of each step's key.
type Keys = SmallVec<[Fingerprint; 4]>;

impl<'a> Shards<'a> {
    fn lock(steps: &[MemoryStep<'a>], keys: &Keys) -> Self {
        loop {
            let locked = Self::lock_once(steps, keys);
            // A shard may have split before it was locked, and the key moved.
            let mut ids = steps.iter().zip(keys);
            if ids.all(|(step, key)| locked.position(shard_id(step.table, *key)).is_some()) {
                return locked;
            }
        }
    }

    fn lock_once(steps: &[MemoryStep<'a>], keys: &Keys) -> Self {
        let lock = |id: (usize, usize), step: &MemoryStep<'a>| {
            (id, step.table.lock_shard(id.1, step.now_us))
        };
        let mut locked = Self(SmallVec::new());
        if let ([step], [key]) = (steps, &keys[..]) {
            locked.0.push(lock(shard_id(step.table, *key), step));
            return locked;
        }
        let mut wanted: SmallVec<[_; 4]> = SmallVec::new();
        for (step, key) in steps.iter().zip(keys) {
            wanted.push((shard_id(step.table, *key), step));
        }
        // All threads lock in this order, so that there is no deadlock.
        wanted.sort_by_key(|(id, _)| *id);
        wanted.dedup_by_key(|(id, _)| *id);
        for (id, step) in &wanted {
            locked.0.push(lock(*id, step));
        }
        locked
    }

    fn split_if_crowded(&mut self, bucket: &Bucket<'_>) {
        // A split changes which shard some keys are in, so only those still found are split here;
        // the others are in shards that have just been made roomy.
        if let Some(index) = self.position(shard_id(bucket.table, bucket.key)) {
            bucket.table.split_if_crowded(&mut self.0[index].1);
        }
    }

    fn index(&self, table: &Table, key: Fingerprint) -> usize {
        self.position(shard_id(table, key))
            .expect("the shard of every step is locked")
    }

    fn position(&self, wanted: (usize, usize)) -> Option<usize> {
        let found = self.0.binary_search_by_key(&wanted, |(id, _)| *id);
        found.ok()
    }
}

/// A table's address and a shard's number: unique, and the same for all threads.
fn shard_id(table: &Table, key: Fingerprint) -> (usize, usize) {
    (std::ptr::from_ref(table).addr(), table.shard_index(key))
}
