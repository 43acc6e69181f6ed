//! Seeded tests of the scheduler. One compares it with a slow, obviously correct model: one partition
//! whose global bucket is never the limit, tokens in exact fractions, and a plain list as its queue. The
//! other checks, over several partitions, the laws that hold in every sequence.

use std::collections::VecDeque;
use std::task::Waker;

use balde::Share;
use fastrand::Rng;

use super::fast_path::FastPath;
use super::serve::{Progress, WakeList};
use super::*;
use crate::health::Degradation;
use crate::outcome::Outcome;
use crate::settings::Oversize;

fn scheduler(global: u64, partition: u64) -> Scheduler {
    let settings = Settings {
        name: "test".to_owned(),
        global_rate: Rate::per_second(global),
        partition_rate: Rate::per_second(partition),
        partition_rates: HashMap::new(),
        burst_share: Share::percent(10),
        degradation: Degradation::new(),
        counts_as_error: Arc::new(Outcome::is_failure),
        oversize: Oversize::Slices,
        partitions_max: 8,
        waiters_max: 1_000,
        pause_max: std::time::Duration::from_secs(60),
    };
    let prefetch = Prefetch::new(&FastPath::new(8), false);
    Scheduler::new(Arc::new(settings), TokenSource::Local, prefetch, 0)
}

fn serve_due(scheduler: &mut Scheduler, now_us: u64) {
    let mut wake_list = WakeList::default();
    while scheduler.serve_due(now_us, &mut wake_list) == Progress::More {
        wake_list.wake_all();
    }
}

/// The waiters, and tokens in millionths.
struct Model {
    rate: u64,
    burst: u64,
    millionths: u64,
    at_us: u64,
    queue: VecDeque<(u32, u64)>,
    served: Vec<u32>,
}

impl Model {
    fn pass(&mut self, now_us: u64) {
        while self.at_us < now_us {
            // One microsecond at a time, serving everyone who can be served in each.
            self.at_us += 1;
            self.millionths += self.rate;
            self.serve();
        }
    }

    /// There is room for the burst, or for the first in line if it wants more.
    fn serve(&mut self) {
        loop {
            let first = self.queue.front().copied();
            let room = first.map_or(0, |(_, n)| n).max(self.burst);
            self.millionths = self.millionths.min(room * 1_000_000);
            match first {
                Some((who, n)) if n * 1_000_000 <= self.millionths => {
                    self.millionths -= n * 1_000_000;
                    self.queue.pop_front();
                    self.served.push(who);
                }
                _ => return,
            }
        }
    }

    fn leave(&mut self, who: u32) {
        self.queue.retain(|(one, _)| *one != who);
        self.serve();
    }
}

#[test]
fn one_queue_is_served_at_the_very_microsecond_and_in_the_order_of_a_slow_model() {
    let mut in_all = 0;
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let rate = [37, 100, 1_000, 7_919][random.usize(..4)];
        let mut scheduler = scheduler(1_000_000, rate);
        let index = scheduler.find("store", 0).unwrap();
        let mut model = Model {
            rate,
            burst: (rate / 10).max(1),
            millionths: 0,
            at_us: 0,
            queue: VecDeque::new(),
            served: Vec::new(),
        };
        let mut waiting: Vec<(u32, WaiterId)> = Vec::new();
        let mut served = Vec::new();
        let (mut now_us, mut next) = (0, 0);
        for _ in 0..60 {
            now_us += random.u64(..40_000);
            // Time passes as the driver lets it: from one due moment to the next.
            while let Some(due_us) = scheduler.next_due_us().filter(|due_us| *due_us <= now_us) {
                serve_due(&mut scheduler, due_us);
                collect(&mut scheduler, &mut waiting, &mut served);
            }
            model.pass(now_us);
            serve_due(&mut scheduler, now_us);
            collect(&mut scheduler, &mut waiting, &mut served);
            assert_eq!(served, model.served, "seed {seed} at {now_us} µs");
            if random.u8(..4) > 0 || waiting.is_empty() {
                let n = random.u64(1..=model.burst * 3);
                let verdict = scheduler.begin(index, n, now_us);
                model.queue.push_back((next, n));
                model.serve();
                if matches!(verdict, Verdict::Granted { .. }) {
                    served.push(next);
                } else {
                    let id = scheduler.join(index, n, None, now_us).unwrap();
                    waiting.push((next, id));
                }
                next += 1;
            } else {
                let (who, id) = waiting.remove(random.usize(..waiting.len()));
                scheduler.cancel(id, now_us);
                model.leave(who);
            }
            serve_due(&mut scheduler, now_us);
            collect(&mut scheduler, &mut waiting, &mut served);
            assert_eq!(served, model.served, "seed {seed} at {now_us} µs");
        }
        in_all += served.len();
    }
    assert!(in_all > 300, "{in_all} served");
}

/// Moves those who have been served from `waiting` to `served`, in order.
fn collect(scheduler: &mut Scheduler, waiting: &mut Vec<(u32, WaiterId)>, served: &mut Vec<u32>) {
    waiting.retain(
        |(who, id)| match scheduler.poll_waiter(*id, Waker::noop()) {
            None => true,
            Some(result) => {
                result.expect("no request is refused here");
                served.push(*who);
                false
            }
        },
    );
}

#[test]
fn in_every_sequence_both_levels_keep_their_rate_and_every_token_is_accounted_for() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let (global, partition) = (
            [300, 1_000][random.usize(..2)],
            [150, 1_000][random.usize(..2)],
        );
        let mut scheduler = scheduler(global, partition);
        let names = ["a", "b", "c"];
        let mut waiting: Vec<(usize, u64, WaiterId)> = Vec::new();
        // Every grant that a caller has seen: when, in which partition, how many tokens.
        let mut grants: Vec<(u64, usize, u64)> = Vec::new();
        let mut now_us = 0;
        for _ in 0..400 {
            now_us += random.u64(..20_000);
            serve_due(&mut scheduler, now_us);
            let at = random.usize(..3);
            let index = scheduler.find(names[at], now_us).unwrap();
            match random.u8(..10) {
                0..=5 => {
                    let n = random.u64(1..=40);
                    let deadline_us = random.bool().then(|| now_us + random.u64(..500_000));
                    match scheduler.begin(index, n, now_us) {
                        Verdict::Granted { .. } => grants.push((now_us, at, n)),
                        Verdict::MustWait { .. } => {
                            let id = scheduler.join(index, n, deadline_us, now_us).unwrap();
                            waiting.push((at, n, id));
                        }
                        Verdict::Refused(_) => {}
                    }
                }
                6 if !waiting.is_empty() => {
                    let (_, _, id) = waiting.remove(random.usize(..waiting.len()));
                    scheduler.cancel(id, now_us);
                }
                7 => scheduler.report(index, None, &Outcome::Error.into(), now_us),
                _ => scheduler.report(index, None, &Outcome::Success.into(), now_us),
            }
            serve_due(&mut scheduler, now_us);
            waiting.retain(
                |(at, n, id)| match scheduler.poll_waiter(*id, Waker::noop()) {
                    None => true,
                    Some(Ok(_)) => {
                        grants.push((now_us, *at, *n));
                        false
                    }
                    Some(Err(refusal)) => {
                        let expected =
                            matches!(refusal, Refusal::Deadline | Refusal::CircuitOpen { .. });
                        assert!(expected, "seed {seed}: {refusal}");
                        false
                    }
                },
            );
        }
        // Law 1, from every grant on. Where a request is larger than the burst, it counts instead.
        let most = |rate: u64| (rate / 10).max(40);
        for (from, (start_us, _, _)) in grants.iter().enumerate() {
            let mut sums = [0_u64; 4];
            for (at_us, at, n) in &grants[from..] {
                sums[*at] += n;
                sums[3] += n;
                let refill = |rate: u64| (at_us - start_us) * rate / 1_000_000 + 1;
                assert!(sums[3] <= most(global) + refill(global), "seed {seed}");
                for sum in &sums[..3] {
                    assert!(*sum <= most(partition) + refill(partition), "seed {seed}");
                }
            }
        }
        let counted: u64 = scheduler.stats().iter().map(PartitionStats::granted).sum();
        assert_eq!(
            counted,
            grants.iter().map(|(_, _, n)| n).sum::<u64>(),
            "seed {seed}"
        );
        // When all waiters have left, no set holds anything.
        for (_, _, id) in waiting {
            scheduler.cancel(id, now_us);
        }
        serve_due(&mut scheduler, now_us);
        assert_eq!((scheduler.waiting, scheduler.waiters.len()), (0, 0));
        assert!(
            scheduler.ready.is_empty()
                && scheduler.timed.is_empty()
                && scheduler.deadlines.is_empty()
        );
    }
}
