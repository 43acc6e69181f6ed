//! All small limits: every sequence of commands on buckets of one to three tokens.
//!
//! A small limit has a capacity of 1, 2 or 3; one token in 2 µs or two in 3 µs, continuous or
//! stepwise, starting full or empty; or a window of 3 µs; each without debt and with a debt of up
//! to two tokens. That makes 54 limits.
//!
//! A move is one of 12 commands at one of 6 instants, in any order, so that the clock stays, goes
//! forward and steps back in every way there is. Of sequences of up to six moves there are
//! 72 + 72² + … + 72⁶ = 141 276 239 496 under each limit, 7 628 916 932 784 in all.
//!
//! They are walked depth first. Two sequences that lead to the same bucket (the same in the
//! implementation and in the model) have the same future, because both are functions of nothing
//! but the bucket, the command and the moment; so that future is walked once and counted twice.

mod small_limit;

use std::collections::HashMap;

use balde_core::{Command, Limit};

use crate::small_limit::{Bucket, SmallLimit};

const MOVES_MAX: u32 = 6;

/// A boundary of both periods and moments around it; after the last, any debt here is repaid.
const INSTANTS_US: [u64; 6] = [600, 601, 602, 603, 605, 612];

const COMMANDS: [Command; 13] = [
    Command::Peek,
    Command::Take { n: 0 },
    Command::Take { n: 1 },
    Command::Take { n: 2 },
    Command::Take { n: 4 },
    Command::TakeIf { n: 2, needed: 1 },
    Command::TakeUpTo { n: 2 },
    Command::Charge { n: 1 },
    Command::Charge { n: 4 },
    Command::Credit { n: 1 },
    Command::Credit { n: 3 },
    Command::SetLevel { level: 1 },
    Command::SetLevel { level: -1 },
];

/// A small limit, and the buckets that were visited.
struct Walk {
    small: SmallLimit,
    limit: Limit,
    /// How many sequences of so many moves begin at a bucket.
    seen: HashMap<(Bucket, u32), u64>,
}

impl Walk {
    /// Walks every sequence of at most `moves_max` moves from `bucket`, and counts them.
    fn from(&mut self, bucket: Bucket, moves_max: u32) -> u64 {
        if moves_max == 0 {
            return 0;
        }
        if let Some(count) = self.seen.get(&(bucket, moves_max)) {
            return *count;
        }
        let mut count = 0;
        for now_us in INSTANTS_US {
            for command in COMMANDS {
                let next = self.small.step(&self.limit, bucket, command, now_us);
                count += 1 + self.from(next, moves_max - 1);
            }
        }
        self.seen.insert((bucket, moves_max), count);
        count
    }
}

#[test]
fn every_sequence_under_every_small_limit_agrees_with_the_model() {
    let mut count = 0;
    for small in SmallLimit::all() {
        let mut walk = Walk {
            small,
            limit: small.limit(),
            seen: HashMap::new(),
        };
        count += walk.from((None, None), MOVES_MAX);
    }
    assert_eq!(count, 12_318_710_625_468);
}

/// The same without merging, in shorter sequences: if merging hid anything, this would not.
#[test]
fn every_short_sequence_is_walked_on_its_own_as_well() {
    fn walk(small: &SmallLimit, limit: &Limit, bucket: Bucket, moves: u32) -> u64 {
        if moves == 0 {
            return 1;
        }
        let mut count = 0;
        for now_us in INSTANTS_US {
            for command in COMMANDS {
                let next = small.step(limit, bucket, command, now_us);
                count += walk(small, limit, next, moves - 1);
            }
        }
        count
    }
    let count: u64 = SmallLimit::all()
        .iter()
        .map(|small| walk(small, &small.limit(), (None, None), 3))
        .sum();
    assert_eq!(count, 54 * 78_u64.pow(3));
}
