//! What somebody else uses of a participant's buckets: estimated from what DICT reports, and withheld
//! from the mirror until the next reconciliation.
//!
//! When DICT has fewer tokens than the gateway's own calls explain, somebody else has used them. The
//! estimate is the most that others used within one reconciliation interval, among the last
//! [`INTERVALS`]. The mirror is lowered by what they are expected to use until the next reconciliation.
//! That one starts from DICT's level again, so tokens that others have not used become available.

use std::collections::BTreeMap;

use balde_core::Limit;
use parking_lot::Mutex;

/// How many reconciliation intervals the estimate covers. Use that varies from one interval to the next
/// is withheld at its highest.
const INTERVALS: usize = 5;

/// After this many refusals within one interval, the forecast assumes that others use everything that
/// DICT refills.
const REFUSALS_MAX: u32 = 2;

/// Estimates by participant and policy, for the buckets that DICT lists.
#[derive(Debug, Default)]
pub(crate) struct ExternalUsage(Mutex<BTreeMap<(String, String), Estimate>>);

/// What others use of one bucket.
#[derive(Clone, Debug)]
struct Estimate {
    /// DICT's limit. Levels under different limits cannot be compared.
    limit: Limit,
    /// What others have used within each interval: the current one first. Negative is what DICT had
    /// more than expected, where its refill is not known.
    used: [i64; INTERVALS],
    /// When the current interval began.
    since_us: u64,
    /// How often DICT refused within the current interval what the mirror had admitted.
    refusals: u32,
    /// What refusals alone have added to the current interval. The next reconciliation shows whether
    /// it was this bucket that was empty.
    assumed: i64,
    /// By how much the mirror was lowered.
    withheld: u64,
    /// What the gateway's own calls had cost by then; `None` until levels were compared.
    spent: Option<u64>,
}

/// How DICT's level became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// DICT reported it.
    Reconciliation,
    /// DICT answered 429: it had no token.
    Refusal,
}

/// A bucket of DICT beside its mirror.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub(super) source: Source,
    pub(super) now_us: u64,
    pub(super) limit: Limit,
    /// DICT's level.
    pub(super) level: i64,
    /// What DICT's level would be by the mirror, if nothing were withheld for others.
    pub(super) mirrored: i64,
    /// How many tokens DICT may have less because of calls in flight, and because the mirror has
    /// refilled since DICT was asked.
    pub(super) explained: u64,
    /// By how many tokens `mirrored` may be wrong, because it is not known when DICT refills.
    pub(super) doubt: u64,
    /// What the gateway's own calls had cost before DICT was asked, since the gateway started.
    pub(super) spent_before: u64,
    /// The same, when the mirror was read.
    pub(super) spent: u64,
}

/// When buckets are reconciled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// The interval; `None` if they are not reconciled regularly.
    pub(super) interval_us: Option<u64>,
    /// When the next regular reconciliation is due.
    pub(super) next_us: u64,
    /// Whether no other gateway has corrected the mirror since this one did. Otherwise it is not known
    /// whether what was withheld is still withheld.
    pub(super) is_last_reconciler: bool,
}

impl ExternalUsage {
    /// Adds an observation to the estimate, and returns how many tokens have to be withheld: the mirror
    /// must be set to DICT's level less these.
    pub(super) fn observe(
        &self,
        participant: &str,
        policy: &str,
        seen: &Observation,
        schedule: &Schedule,
    ) -> u64 {
        let mut estimates = self.0.lock();
        let name = (participant.to_owned(), policy.to_owned());
        let estimate = estimates
            .entry(name)
            .or_insert_with(|| Estimate::new(seen.limit, seen.now_us));
        if estimate.limit != seen.limit {
            *estimate = Estimate::new(seen.limit, seen.now_us);
        }
        estimate.observe(seen, schedule)
    }

    /// How many of the tokens withheld from a bucket DICT still has, if others have used none of them.
    /// `mirrored` is the level without them, and `spent` what the gateway's own calls have cost.
    pub(crate) fn withheld(
        &self,
        participant: &str,
        policy: &str,
        mirrored: i64,
        spent: u64,
    ) -> u64 {
        let name = (participant.to_owned(), policy.to_owned());
        let estimates = self.0.lock();
        let estimate = estimates.get(&name);
        estimate.map_or(0, |estimate| estimate.still_there(mirrored, spent))
    }

    /// The tokens that were withheld when levels were last compared, by participant and policy.
    pub(crate) fn all(&self) -> Vec<((String, String), u64)> {
        let estimates = self.0.lock();
        let all = estimates.iter();
        all.map(|(name, estimate)| (name.clone(), estimate.withheld))
            .collect()
    }
}

impl Estimate {
    fn new(limit: Limit, now_us: u64) -> Self {
        Self {
            limit,
            used: [0; INTERVALS],
            since_us: now_us,
            refusals: 0,
            assumed: 0,
            withheld: 0,
            spent: None,
        }
    }

    fn observe(&mut self, seen: &Observation, schedule: &Schedule) -> u64 {
        let mut most = self.used_in_an_interval(seen, schedule);
        // The first comparison has no earlier one: tokens that are missing then were used by anybody.
        let used = match self.spent {
            Some(_) => self.used_since(seen, schedule),
            None => 0,
        };
        self.used[0] = self.used[0].saturating_add(used);
        match seen.source {
            Source::Reconciliation => {
                self.assumed = 0;
                most = self.used_in_an_interval(seen, schedule);
                self.end_interval(seen, schedule);
            }
            // A single refusal says nothing about the future: the bucket may have been drained once.
            Source::Refusal => {
                self.assumed = self.assumed.saturating_add(used.max(0));
                if schedule.interval_us.is_none() {
                    self.forget_old_refusals(seen.now_us);
                }
                self.refusals = self.refusals.saturating_add(1);
            }
        }
        self.withheld = self.forecast(most, seen, schedule);
        self.spent = Some(seen.spent_before);
        self.withheld
    }

    /// What others have used since the last observation.
    fn used_since(&self, seen: &Observation, schedule: &Schedule) -> i64 {
        let withheld = if schedule.is_last_reconciler {
            self.still_there(seen.mirrored, seen.spent)
        } else {
            0
        };
        let expected = seen.mirrored.saturating_add(signed(withheld));
        let least = expected.saturating_sub(signed(seen.explained));
        let used = least.saturating_sub(seen.level);
        // What refusals have added for the wrong bucket is taken back.
        let least_used = match seen.source {
            Source::Reconciliation => -self.assumed,
            Source::Refusal => 0,
        };
        if !schedule.is_last_reconciler {
            return used.saturating_sub(signed(seen.doubt)).max(least_used);
        }
        // An early step of the refill makes up for a late one, in the sum.
        if seen.doubt > 0 {
            return used;
        }
        // Others certainly use the bucket. What calls in flight may explain counts as theirs, too: they
        // would otherwise seem to use less than they do in every interval.
        if used > 0 && seen.source == Source::Reconciliation {
            return expected.saturating_sub(seen.level);
        }
        used.max(least_used)
    }

    /// Without reconciliations nothing else ends a row of refusals: DICT's bucket may have been full
    /// since the last one.
    fn forget_old_refusals(&mut self, now_us: u64) {
        let passed_us = now_us.saturating_sub(self.since_us);
        if passed_us >= self.limit.fill_us().saturating_mul(2) {
            self.refusals = 0;
        }
        self.since_us = now_us;
    }

    /// How many of the withheld tokens DICT has beside those of the mirror: all of them, unless DICT's
    /// bucket may have been full since, and the mirror was not. It then has at least its capacity less
    /// what own calls have cost.
    fn still_there(&self, mirrored: i64, spent: u64) -> u64 {
        let own = spent.saturating_sub(self.spent.unwrap_or(spent));
        let least_if_full = signed(self.limit.capacity()).saturating_sub(signed(own));
        let room = least_if_full.saturating_sub(mirrored);
        self.withheld.min(u64::try_from(room).unwrap_or(0))
    }

    /// The most that others have used within an interval, on average over any number of them. Over more
    /// intervals, the doubt about the refill weighs less.
    fn used_in_an_interval(&self, seen: &Observation, schedule: &Schedule) -> u64 {
        let doubt = if schedule.is_last_reconciler {
            signed(seen.doubt)
        } else {
            0
        };
        let mut used = self.used;
        used[0] = self.used_in_this_interval(seen.now_us, schedule);
        let mut most = 0;
        for first in 0..INTERVALS {
            let mut sum = 0_i64;
            for (count, one) in (1..).zip(&used[first..]) {
                sum = sum.saturating_add(*one);
                most = most.max(sum.saturating_sub(doubt) / count);
            }
        }
        u64::try_from(most).unwrap_or(0)
    }

    fn used_in_this_interval(&self, now_us: u64, schedule: &Schedule) -> i64 {
        let passed_us = now_us.saturating_sub(self.since_us);
        match (schedule.interval_us, u64::try_from(self.used[0])) {
            // A reconciliation is late, or has failed.
            (Some(interval_us), Ok(used)) if passed_us > interval_us => {
                signed(share(used, interval_us, passed_us))
            }
            _ => self.used[0],
        }
    }

    /// Begins another interval, if the current one is over. Reconciliations that refusals ask for are
    /// in between.
    fn end_interval(&mut self, seen: &Observation, schedule: &Schedule) {
        let passed_us = seen.now_us.saturating_sub(self.since_us);
        let interval_us = schedule.interval_us.unwrap_or(0);
        if passed_us < interval_us / 4 * 3 {
            return;
        }
        self.used[0] = self.used_in_this_interval(seen.now_us, schedule);
        self.used.rotate_right(1);
        self.used[0] = 0;
        self.refusals = 0;
        self.since_us = seen.now_us;
    }

    /// What others will use until the next reconciliation, which may be a little late.
    fn forecast(&self, most: u64, seen: &Observation, schedule: &Schedule) -> u64 {
        let Some(interval_us) = schedule.interval_us else {
            // No reconciliation will give it back, so the pause grows with each refusal.
            let tokens = doubled(self.refusals);
            return tokens.min(self.limit.capacity());
        };
        let time_us = schedule.next_us.saturating_sub(seen.now_us) + interval_us / 10;
        let refill = self.limit.refilled_at_most(time_us);
        let mut others = share(most, time_us, interval_us);
        if self.refusals >= REFUSALS_MAX {
            others = others.max(refill);
        }
        let there = signed(refill).saturating_add(seen.level);
        others.min(u64::try_from(there).unwrap_or(0))
    }
}

/// What is withheld after some refusals in a row, where DICT's level is never reported: nothing after
/// the first, and then twice as much with each.
pub(super) fn doubled(refusals: u32) -> u64 {
    let repeated = refusals.checked_sub(REFUSALS_MAX);
    repeated.map_or(0, |repeated| 1 << repeated.min(32))
}

/// `tokens` times `part` over `whole`, rounded up.
fn share(tokens: u64, part: u64, whole: u64) -> u64 {
    let share = (u128::from(tokens) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX)
}

fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
