//! The core against a slow model that is obviously right, in stories told by a seed: one partition and
//! a global bucket that is never the limit, counted in exact fractions of a token, with a line that is a
//! plain list. And, over several partitions, the laws that hold whatever happens.

use std::collections::VecDeque;
use std::task::Waker;

use fastrand::Rng;

use super::*;
use crate::health::Degradation;
use crate::scheduler::prefetch::{Ahead, Counters};
use crate::scheduler::serve::{Settled, Wakes};
use crate::settings::Oversize;
use crate::signal::Outcome;
use balde::Share;

fn core(global: u64, partition: u64) -> Core {
    let settings = Settings {
        name: "test".to_owned(),
        global: Rate::per_second(global),
        partition: Rate::per_second(partition),
        own_rates: HashMap::new(),
        share: Share::percent(10),
        degradation: Degradation::new(),
        counts: Arc::new(Outcome::is_failure),
        oversize: Oversize::Slices,
        partitions_max: 8,
        waiters_max: 1_000,
        pause_max: std::time::Duration::from_secs(60),
    };
    let ahead = Ahead::new(8);
    let counters = Counters::new(&ahead, false);
    Core::new(Arc::new(settings), Source::Here, counters, 0)
}

fn settle(core: &mut Core, now_us: u64) {
    let mut wakes = Wakes::default();
    while core.settle(now_us, &mut wakes) == Settled::Part {
        wakes.wake_all();
    }
}

/// Everybody in line, and tokens in millionths. `taken` is what has been put aside for the first.
struct Model {
    rate: u64,
    burst: u64,
    millionths: u64,
    at_us: u64,
    line: VecDeque<(u32, u64)>,
    taken: u64,
    served: Vec<u32>,
}

impl Model {
    fn pass(&mut self, now_us: u64) {
        while self.at_us < now_us {
            // One microsecond at a time: whoever can be served is, before the next.
            self.at_us += 1;
            let full = self.burst * 1_000_000;
            self.millionths = (self.millionths + self.rate).min(full);
            self.serve();
        }
    }

    fn serve(&mut self) {
        while let Some((who, n)) = self.line.front().copied() {
            let slice = (n - self.taken).min(self.burst);
            if self.millionths < slice * 1_000_000 {
                return;
            }
            self.millionths -= slice * 1_000_000;
            self.taken += slice;
            if self.taken == n {
                self.line.pop_front();
                self.taken = 0;
                self.served.push(who);
            }
        }
    }

    fn leave(&mut self, who: u32) {
        let Some(at) = self.line.iter().position(|(one, _)| *one == who) else {
            return;
        };
        self.line.remove(at);
        if at == 0 {
            let back = std::mem::take(&mut self.taken) * 1_000_000;
            self.millionths = (self.millionths + back).min(self.burst * 1_000_000);
        }
        self.serve();
    }
}

#[test]
fn one_line_is_served_at_the_very_microsecond_and_in_the_order_of_a_slow_model() {
    let mut in_all = 0;
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let rate = [37, 100, 1_000, 7_919][random.usize(..4)];
        let mut core = core(1_000_000, rate);
        let index = core.find("store", 0).unwrap();
        let mut model = Model {
            rate,
            burst: (rate / 10).max(1),
            millionths: 0,
            at_us: 0,
            line: VecDeque::new(),
            taken: 0,
            served: Vec::new(),
        };
        let mut places: Vec<(u32, Place)> = Vec::new();
        let mut served = Vec::new();
        let (mut now_us, mut next) = (0, 0);
        for _ in 0..60 {
            now_us += random.u64(..40_000);
            // Time passes for the core as the driver would let it: from due moment to due moment.
            while let Some(due_us) = core.next_due_us().filter(|due_us| *due_us <= now_us) {
                settle(&mut core, due_us);
                collect(&mut core, &mut places, &mut served);
            }
            model.pass(now_us);
            settle(&mut core, now_us);
            collect(&mut core, &mut places, &mut served);
            assert_eq!(served, model.served, "seed {seed} at {now_us} µs");
            if random.u8(..4) > 0 || places.is_empty() {
                let n = random.u64(1..=model.burst * 3);
                let verdict = core.begin(index, n, now_us);
                model.line.push_back((next, n));
                model.serve();
                if matches!(verdict, Verdict::Granted { .. }) {
                    served.push(next);
                } else {
                    let place = core.join(index, n, None, now_us).unwrap();
                    places.push((next, place));
                }
                next += 1;
            } else {
                let (who, place) = places.remove(random.usize(..places.len()));
                core.cancel(place, now_us);
                model.leave(who);
            }
            settle(&mut core, now_us);
            collect(&mut core, &mut places, &mut served);
            assert_eq!(served, model.served, "seed {seed} at {now_us} µs");
        }
        in_all += served.len();
    }
    assert!(in_all > 300, "{in_all} served");
}

/// Those who have been served, as they would find out: first come first.
fn collect(core: &mut Core, places: &mut Vec<(u32, Place)>, served: &mut Vec<u32>) {
    places.retain(|(who, place)| match core.look(*place, Waker::noop()) {
        None => true,
        Some(fate) => {
            fate.expect("nobody is refused here");
            served.push(*who);
            false
        }
    });
}

#[test]
fn whatever_happens_both_levels_keep_their_rate_and_every_token_is_accounted_for() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let (global, partition) = (
            [300, 1_000][random.usize(..2)],
            [150, 1_000][random.usize(..2)],
        );
        let mut core = core(global, partition);
        let names = ["a", "b", "c"];
        let mut places: Vec<(usize, u64, Place)> = Vec::new();
        // Every grant that somebody got to know of: when, where, how much.
        let mut grants: Vec<(u64, usize, u64)> = Vec::new();
        let mut now_us = 0;
        for _ in 0..400 {
            now_us += random.u64(..20_000);
            settle(&mut core, now_us);
            let at = random.usize(..3);
            let index = core.find(names[at], now_us).unwrap();
            match random.u8(..10) {
                0..=5 => {
                    let n = random.u64(1..=40);
                    let deadline_us = random.bool().then(|| now_us + random.u64(..500_000));
                    match core.begin(index, n, now_us) {
                        Verdict::Granted { .. } => grants.push((now_us, at, n)),
                        Verdict::MustWait { .. } => {
                            let place = core.join(index, n, deadline_us, now_us).unwrap();
                            places.push((at, n, place));
                        }
                        Verdict::Refused(_) => {}
                    }
                }
                6 if !places.is_empty() => {
                    let (_, _, place) = places.remove(random.usize(..places.len()));
                    core.cancel(place, now_us);
                }
                7 => core.report(index, None, &Outcome::Error.into(), now_us),
                _ => core.report(index, None, &Outcome::Success.into(), now_us),
            }
            settle(&mut core, now_us);
            places.retain(|(at, n, place)| match core.look(*place, Waker::noop()) {
                None => true,
                Some(Ok(_)) => {
                    grants.push((now_us, *at, *n));
                    false
                }
                Some(Err(refused)) => {
                    let expected =
                        matches!(refused, Refused::Deadline | Refused::CircuitOpen { .. });
                    assert!(expected, "seed {seed}: {refused}");
                    false
                }
            });
        }
        // Law 1, from every grant on. Somebody who collects slices has been granted them earlier
        // than it gets to know, so up to what one request wants may come on top of the burst.
        let most = 40 * 3;
        for (from, (start_us, _, _)) in grants.iter().enumerate() {
            let mut sums = [0_u64; 4];
            for (at_us, at, n) in &grants[from..] {
                sums[*at] += n;
                sums[3] += n;
                let refill = |rate: u64| (at_us - start_us) * rate / 1_000_000 + 1;
                assert!(
                    sums[3] <= global / 10 + refill(global) + most,
                    "seed {seed}"
                );
                for sum in &sums[..3] {
                    assert!(
                        *sum <= partition / 10 + refill(partition) + 40,
                        "seed {seed}"
                    );
                }
            }
        }
        let told: u64 = core.stats().iter().map(PartitionStats::granted).sum();
        assert_eq!(
            told,
            grants.iter().map(|(_, _, n)| n).sum::<u64>(),
            "seed {seed}"
        );
        // When all have left, nobody is anywhere.
        for (_, _, place) in places {
            core.cancel(place, now_us);
        }
        settle(&mut core, now_us);
        assert_eq!((core.waiting, core.waiters.len()), (0, 0));
        assert!(core.ready.is_empty() && core.timed.is_empty() && core.deadlines.is_empty());
    }
}
