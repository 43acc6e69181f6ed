//! Days of polling in virtual time, without any I/O: the buckets of a participant with random
//! traffic, and the planner, the analysis and the filter of unchanged reads that watch them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use balde_core::{Command, Limit, State};
use balde_monitor::analyse::{Assessment, SettingsByPolicy};
use balde_monitor::sample::{BucketId, Poll, ReportedLimit, Sample};
use balde_monitor::schedule::{
    NextAction, POLICIES_LIST, POLICIES_READ, Planner, PollBudget, PollSchedule, UnchangedReads,
};
use balde_monitor::severity::{Severity, Thresholds};
use fastrand::Rng;

const SECOND_US: u64 = 1_000_000;
const PARTICIPANT: &str = "12345678";

/// DICT's table for category F: policy, capacity, refill, period in seconds.
const POLICIES: [(&str, u64, u64, u64); 31] = [
    ("CIDS_ENTRIES_READ", 36_000, 1_200, 60),
    ("CIDS_EVENTS_LIST", 100, 20, 60),
    ("CIDS_FILES_READ", 50, 10, 60),
    ("CIDS_FILES_WRITE", 200, 40, 86_400),
    ("CLAIMS_LIST_WITHOUT_ROLE", 50, 10, 60),
    ("CLAIMS_LIST_WITH_ROLE", 200, 40, 60),
    ("CLAIMS_READ", 18_000, 600, 60),
    ("CLAIMS_WRITE", 36_000, 1_200, 60),
    ("ENTRIES_READ_PARTICIPANT_ANTISCAN", 500, 250, 60),
    ("ENTRIES_READ_USER_ANTISCAN", 100, 2, 60),
    ("ENTRIES_READ_USER_ANTISCAN_V2", 100, 2, 60),
    ("ENTRIES_STATISTICS_READ", 500, 250, 60),
    ("ENTRIES_UPDATE", 600, 600, 60),
    ("ENTRIES_WRITE", 36_000, 1_200, 60),
    ("EVENT_LIST", 200, 40, 60),
    ("FRAUD_MARKERS_LIST", 18_000, 600, 60),
    ("FRAUD_MARKERS_READ", 18_000, 600, 60),
    ("FRAUD_MARKERS_WRITE", 36_000, 1_200, 60),
    ("INFRACTION_REPORTS_LIST_WITHOUT_ROLE", 50, 10, 60),
    ("INFRACTION_REPORTS_LIST_WITH_ROLE", 200, 40, 60),
    ("INFRACTION_REPORTS_READ", 18_000, 600, 60),
    ("INFRACTION_REPORTS_WRITE", 36_000, 1_200, 60),
    ("KEYS_CHECK", 70, 70, 60),
    ("PERSONS_STATISTICS_READ", 36_000, 12_000, 60),
    (POLICIES_LIST, 20, 6, 60),
    (POLICIES_READ, 200, 60, 60),
    ("REFUNDS_READ", 36_000, 1_200, 60),
    ("REFUNDS_WRITE", 72_000, 2_400, 60),
    ("REFUND_LIST_WITHOUT_ROLE", 50, 10, 60),
    ("REFUND_LIST_WITH_ROLE", 200, 40, 60),
    ("SYNC_VERIFICATIONS_WRITE", 50, 10, 60),
];

/// One bucket and its traffic: a base below the refill, and now and then a rush that empties it.
struct Traffic {
    policy: &'static str,
    bucket: BucketId,
    limit: Limit,
    reported: ReportedLimit,
    state: Option<State>,
    /// Tokens per second in thousandths, until this second.
    rate_milli: u64,
    until: u64,
    carry_milli: u64,
    /// Since which second the bucket has been at WARNING or worse, and whether a sample has shown
    /// it.
    low: Option<(u64, bool)>,
    /// The longest coverage that was reported in the meantime.
    covered_us: u64,
    history: Vec<Sample>,
}

impl Traffic {
    fn new(
        &(policy, capacity, refill, period_s): &(&'static str, u64, u64, u64),
        rng: &mut Rng,
    ) -> Self {
        let limit = Limit::bucket_of(capacity, refill, Duration::from_secs(period_s)).unwrap();
        Self {
            policy,
            bucket: BucketId::new(PARTICIPANT, policy).unwrap(),
            limit: if rng.bool() { limit.stepwise() } else { limit },
            reported: ReportedLimit::new(capacity, refill, period_s * SECOND_US).unwrap(),
            state: None,
            rate_milli: 0,
            until: 0,
            carry_milli: 0,
            low: None,
            covered_us: 0,
            history: Vec::new(),
        }
    }

    fn is_own(&self) -> bool {
        matches!(self.policy, POLICIES_LIST | POLICIES_READ)
    }

    fn pass(&mut self, second: u64, rng: &mut Rng) {
        let now_us = second * SECOND_US;
        if second >= self.until {
            let refill_milli =
                self.limit.refill_tokens() * 1_000 * SECOND_US / self.limit.period_us();
            let is_rush = rng.u8(..20) == 0;
            self.rate_milli = if is_rush {
                // Emptied from full within 5 seconds to 15 minutes.
                refill_milli + self.limit.capacity() * 1_000 / rng.u64(5..900)
            } else {
                refill_milli * rng.u64(..90) / 100
            };
            self.until = second
                + if is_rush {
                    rng.u64(10..1_200)
                } else {
                    rng.u64(600..7_200)
                };
        }
        self.carry_milli += self.rate_milli;
        let n = self.carry_milli / 1_000;
        self.carry_milli %= 1_000;
        let taken = self
            .limit
            .apply(self.state, Command::TakeUpTo { n }, now_us);
        self.state = taken.state();
    }

    fn level(&self, now_us: u64) -> i64 {
        self.limit.apply(self.state, Command::Peek, now_us).level()
    }

    fn sample(&mut self, now_us: u64) -> Sample {
        let level = self.level(now_us);
        let sample = Sample::new(self.bucket.clone(), self.reported, level, now_us).unwrap();
        if let Some((_, is_seen)) = &mut self.low {
            *is_seen = true;
        }
        let since_us = now_us.saturating_sub(4_500 * SECOND_US);
        let old = self
            .history
            .partition_point(|one| one.taken_us() < since_us);
        self.history.drain(..old);
        self.history.push(sample.clone());
        sample
    }
}

/// What happened in some days.
#[derive(Debug, Default)]
pub(crate) struct Week {
    days: u64,
    lists: u64,
    reads: u64,
    rows: u64,
    lowest_pct: BTreeMap<&'static str, i64>,
    /// Times at WARNING or worse, those that were seen, and the longest that was not, by policy.
    lows: u64,
    seen: u64,
    missed_s: BTreeMap<&'static str, u64>,
    /// Times that were missed although they were longer than the coverage.
    uncovered: Vec<(&'static str, u64, u64)>,
    coverage_s: BTreeMap<String, (u64, u64)>,
}

impl Week {
    /// Lets the days of a seed pass.
    pub(crate) fn of(days: u64, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut buckets: Vec<Traffic> = POLICIES
            .iter()
            .map(|one| Traffic::new(one, &mut rng))
            .collect();
        let settings = SettingsByPolicy::default();
        let thresholds = Thresholds::default();
        let mut planner = Planner::new(PollSchedule::default(), PollBudget::default()).unwrap();
        planner.add(PARTICIPANT, 0, &[]).unwrap();
        let mut unchanged = UnchangedReads::default();
        let mut week = Self {
            days,
            ..Self::default()
        };
        for second in 0..days * 86_400 {
            let now_us = second * SECOND_US;
            for bucket in &mut buckets {
                if !bucket.is_own() {
                    bucket.pass(second, &mut rng);
                }
            }
            loop {
                let only = match planner.next(now_us) {
                    NextAction::Poll { .. } => None,
                    NextAction::Read { policy, .. } => Some(policy),
                    NextAction::Wait { .. } | NextAction::Idle => break,
                };
                week.pay(&mut buckets, only.is_some(), now_us);
                let asked =
                    |one: &&mut Traffic| only.as_deref().is_none_or(|only| only == one.policy);
                let samples = buckets.iter_mut().filter(asked).map(|one| {
                    let sample = one.sample(now_us);
                    if only.is_some() {
                        sample.read_singly()
                    } else {
                        sample
                    }
                });
                let poll = Poll::new(samples.collect()).unwrap();
                let stored = unchanged.to_store(poll);
                week.rows += stored
                    .iter()
                    .map(|poll| poll.samples().len() as u64)
                    .sum::<u64>();
                let assessments = buckets
                    .iter()
                    .filter(|one| only.as_deref().is_none_or(|only| only == one.policy));
                let assessments: Vec<Assessment<'_>> = assessments
                    .filter_map(|one| {
                        Assessment::of(&one.history, thresholds, settings.settings(one.policy))
                    })
                    .collect();
                planner.polled(PARTICIPANT, now_us, &assessments);
                for coverage in planner.coverage(PARTICIPANT) {
                    let known = week.coverage_s.entry(coverage.policy.clone());
                    let (shortest, longest) = known.or_insert((u64::MAX, 0));
                    let interval_s = coverage.interval_us / SECOND_US;
                    *shortest = interval_s.min(*shortest);
                    *longest = interval_s.max(*longest);
                    if let Some(own) = buckets.iter_mut().find(|one| one.policy == coverage.policy)
                    {
                        own.covered_us = own.covered_us.max(coverage.interval_us);
                    }
                }
            }
            week.watch(&mut buckets, second);
        }
        week
    }

    /// Takes a call from DICT's own limit.
    fn pay(&mut self, buckets: &mut [Traffic], is_read: bool, now_us: u64) {
        let policy = if is_read {
            POLICIES_READ
        } else {
            POLICIES_LIST
        };
        self.reads += u64::from(is_read);
        self.lists += u64::from(!is_read);
        let own = buckets.iter_mut().find(|one| one.policy == policy).unwrap();
        let taken = own.limit.apply(own.state, Command::Take { n: 1 }, now_us);
        assert!(taken.is_allowed(), "{policy} refused a call");
        own.state = taken.state();
        let capacity = i64::try_from(own.limit.capacity()).unwrap();
        let left_pct = taken.level() * 100 / capacity;
        let lowest = self.lowest_pct.entry(policy).or_insert(100);
        *lowest = left_pct.min(*lowest);
    }

    /// Notes when a bucket becomes low and recovers.
    fn watch(&mut self, buckets: &mut [Traffic], second: u64) {
        for bucket in buckets.iter_mut().filter(|one| !one.is_own()) {
            let level = bucket.level(second * SECOND_US);
            let is_low =
                Thresholds::default().severity(level, bucket.reported) >= Severity::Warning;
            match (is_low, bucket.low) {
                (true, None) => {
                    bucket.low = Some((second, false));
                    bucket.covered_us = 0;
                }
                (false, Some((since, is_seen))) => {
                    bucket.low = None;
                    self.lows += 1;
                    self.seen += u64::from(is_seen);
                    let lasted = second - since;
                    if !is_seen {
                        let longest = self.missed_s.entry(bucket.policy).or_default();
                        *longest = lasted.max(*longest);
                        let covered_s = bucket.covered_us.div_ceil(SECOND_US);
                        if bucket.covered_us > 0 && lasted > covered_s {
                            self.uncovered.push((bucket.policy, lasted, covered_s));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Fails if polling used more than a third of a limit, or missed what it claims to see.
    pub(crate) fn check(&self) {
        for (policy, lowest_pct) in &self.lowest_pct {
            assert!(*lowest_pct >= 66, "{policy} fell to {lowest_pct} %");
        }
        assert_eq!(self.uncovered, [], "missed, although covered");
        assert!(self.lows > 0 && self.seen > 0);
    }
}

impl fmt::Display for Week {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.days.max(1);
        writeln!(
            f,
            "a day {} lists, {} reads, {} rows",
            self.lists / days,
            self.reads / days,
            self.rows / days
        )?;
        writeln!(
            f,
            "lowest level in percent of capacity: {:?}",
            self.lowest_pct
        )?;
        writeln!(
            f,
            "{} times at WARNING or worse, {} seen; longest missed, in seconds: {:?}",
            self.lows, self.seen, self.missed_s
        )?;
        writeln!(
            f,
            "coverage in seconds, shortest and longest: {:?}",
            self.coverage_s
        )
    }
}
