//! Days of polling in virtual time against the simulator: a simulated DICT on a manual clock, random
//! traffic of one participant, and the client, the planner, the analysis and the filter of unchanged
//! reads that watch its buckets over HTTP.
//!
//! A second copy of each bucket, computed by the core, says what happens between two polls. Every
//! level that the simulator answers must be the level of the copy.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use balde::{Clock, ManualClock};
use balde_core::{Command, Limit, State};
use balde_dict::client::Client;
use balde_monitor::analyse::{Assessment, SettingsByPolicy};
use balde_monitor::sample::{Poll, Sample};
use balde_monitor::schedule::{
    NextAction, POLICIES_LIST, POLICIES_READ, Planner, PollBudget, PollSchedule, UnchangedReads,
};
use balde_monitor::severity::{Severity, Thresholds};
use balde_monitor::source::Source;
use balde_simulator::{self as simulator, Simulator};
use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SECOND_US: u64 = 1_000_000;
const PARTICIPANT: &str = "12345678";

/// The first second of 2026.
const START_US: u64 = 1_767_225_600 * SECOND_US;

/// Policies whose traffic is sent as requests, each of which takes one token.
const REQUESTS: [(&str, &str); 5] = [
    ("CLAIMS_LIST_WITHOUT_ROLE", "claims/?"),
    ("CLAIMS_LIST_WITH_ROLE", "claims/?IsDonor=true&"),
    (
        "INFRACTION_REPORTS_LIST_WITHOUT_ROLE",
        "infraction-reports/?",
    ),
    (
        "INFRACTION_REPORTS_LIST_WITH_ROLE",
        "infraction-reports/?IsCounterparty=true&",
    ),
    (
        "REFUND_LIST_WITH_ROLE",
        "refunds/?ParticipantRole=REQUESTING&",
    ),
];

/// How long the days are, and what happens in them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) hours: u64,
    pub(crate) seed: u64,
    /// One in so many changes of the traffic is a rush that empties the bucket.
    pub(crate) rush_in: u8,
    /// Whether the buckets refill once per period instead of continuously.
    pub(crate) is_stepwise: bool,
}

/// The simulated DICT, and a connection to it for the traffic.
struct Dict {
    clock: ManualClock,
    source: Source,
    connection: TcpStream,
    requests: u64,
}

impl Dict {
    async fn start(is_stepwise: bool) -> Self {
        let clock = ManualClock::at_us(START_US);
        let refill = if is_stepwise {
            "stepwise"
        } else {
            "continuous"
        };
        let profile = balde_dict::profiles::named_with("dict-2.12.1", &[("refill", refill)]);
        let simulator = Simulator::builder()
            .profile(profile.unwrap().unwrap())
            .manual_clock(&clock)
            .build()
            .unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(simulator::run(listener, simulator, std::future::pending()));
        let client = Client::builder(&format!("http://{address}/api/v2/"), PARTICIPANT)
            .clock(Clock::manual(&clock))
            .build()
            .unwrap();
        let connection = TcpStream::connect(address).await.unwrap();
        connection.set_nodelay(true).unwrap();
        Self {
            clock,
            source: Source::Dict(client),
            connection,
            requests: 0,
        }
    }

    async fn poll(&self, only: Option<&str>) -> Poll {
        let now_us = || self.clock.now_us();
        let poll = match only {
            Some(policy) => self.source.fetch_policy(PARTICIPANT, policy, now_us).await,
            None => self.source.fetch(PARTICIPANT, now_us).await,
        };
        poll.expect("the limits of polling itself are never exhausted")
    }

    /// Sends one request of a policy. Returns true if it was allowed.
    async fn request(&mut self, path: &str) -> bool {
        let target = format!("/api/v2/{path}Participant={PARTICIPANT}");
        let status = self.exchange("GET", &target, "").await;
        assert!(matches!(status, 200 | 429), "{target}: {status}");
        status == 200
    }

    async fn set_level(&mut self, policy: &str, level: i64) {
        let body =
            format!(r#"{{"policy":"{policy}","participant":"{PARTICIPANT}","level":{level}}}"#);
        let status = self.exchange("PUT", "/sim/buckets", &body).await;
        assert_eq!(status, 200, "{body}");
    }

    /// Sends a request over the connection and reads the whole answer. Returns its status.
    async fn exchange(&mut self, method: &str, target: &str, body: &str) -> u16 {
        self.requests += 1;
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nPI-RequestingParticipant: {PARTICIPANT}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::with_capacity(2_048);
        loop {
            let read = self.connection.read_buf(&mut answer).await.unwrap();
            assert!(read > 0, "the simulator closed the connection");
            let text = std::str::from_utf8(&answer).unwrap();
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.parse::<usize>().unwrap())
            });
            if body.len() >= length.expect("every answer states its length") {
                return head[9..12].parse().unwrap();
            }
        }
    }
}

/// One bucket and its traffic: a base below the refill, and now and then a rush that empties it.
struct Traffic {
    policy: String,
    /// The requests that take its tokens; `None` if its level is set instead.
    path: Option<&'static str>,
    limit: Limit,
    reported: balde_monitor::sample::ReportedLimit,
    state: Option<State>,
    /// Tokens per second in thousandths, until this second.
    rate_milli: u64,
    until: u64,
    is_rush: bool,
    carry_milli: u64,
    /// Since which second the bucket has been at WARNING or worse, and whether a sample has shown
    /// it.
    low: Option<(u64, bool)>,
    /// The longest coverage that was reported in the meantime.
    covered_us: u64,
    history: Vec<Sample>,
}

impl Traffic {
    fn new(sample: &Sample, is_stepwise: bool) -> Self {
        let reported = sample.limit();
        let period = Duration::from_micros(reported.period_us());
        let limit = Limit::bucket_of(reported.capacity(), reported.refill_tokens(), period);
        let limit = limit.unwrap();
        let policy = sample.bucket().policy().to_owned();
        let known = REQUESTS.iter().find(|(name, _)| *name == policy);
        Self {
            path: known.map(|(_, path)| *path),
            policy,
            limit: if is_stepwise { limit.stepwise() } else { limit },
            reported,
            state: None,
            rate_milli: 0,
            until: 0,
            is_rush: false,
            carry_milli: 0,
            low: None,
            covered_us: 0,
            history: Vec::new(),
        }
    }

    fn is_own(&self) -> bool {
        matches!(self.policy.as_str(), POLICIES_LIST | POLICIES_READ)
    }

    /// Sends the traffic of one second to the simulator, and to the copy.
    async fn pass(&mut self, second: u64, plan: Plan, dict: &mut Dict, rng: &mut Rng) {
        let now_us = dict.clock.now_us();
        if second >= self.until {
            let refill_milli =
                self.limit.refill_tokens() * 1_000 * SECOND_US / self.limit.period_us();
            self.is_rush = rng.u8(..plan.rush_in) == 0;
            self.rate_milli = if self.is_rush {
                // Emptied from full within 5 seconds to 15 minutes.
                refill_milli + self.limit.capacity() * 1_000 / rng.u64(5..900)
            } else {
                refill_milli * rng.u64(..90) / 100
            };
            self.until = second
                + if self.is_rush {
                    rng.u64(10..1_200)
                } else {
                    rng.u64(600..7_200)
                };
        }
        self.carry_milli += self.rate_milli;
        let n = self.carry_milli / 1_000;
        self.carry_milli %= 1_000;
        match self.path {
            Some(path) => {
                for _ in 0..n {
                    let taken = self.limit.apply(self.state, Command::Take { n: 1 }, now_us);
                    self.state = taken.state();
                    let is_allowed = dict.request(path).await;
                    assert_eq!(
                        is_allowed,
                        taken.is_allowed(),
                        "{} at {second}",
                        self.policy
                    );
                    if !is_allowed {
                        break;
                    }
                }
            }
            // Tens of thousands of requests a minute would take days, so the level says what they
            // would have left. Traffic below the refill leaves such a bucket full.
            None if self.is_rush => {
                let taken = i64::try_from(n).unwrap();
                let level = (self.level(now_us) - taken).max(0);
                let set = Command::SetLevel { level };
                self.state = self.limit.apply(self.state, set, now_us).state();
                dict.set_level(&self.policy, level).await;
            }
            None => {}
        }
    }

    fn level(&self, now_us: u64) -> i64 {
        self.limit.apply(self.state, Command::Peek, now_us).level()
    }

    /// Takes note of a sample, which must show the level of the copy.
    fn seen(&mut self, sample: &Sample, now_us: u64) {
        assert_eq!(
            sample.level(),
            self.level(now_us),
            "{} at {now_us}",
            self.policy
        );
        if let Some((_, is_seen)) = &mut self.low {
            *is_seen = true;
        }
        let since_us = now_us.saturating_sub(4_500 * SECOND_US);
        let old = self
            .history
            .partition_point(|one| one.taken_us() < since_us);
        self.history.drain(..old);
        self.history.push(sample.clone());
    }
}

/// What happened in some days.
#[derive(Debug, Default)]
pub(crate) struct Week {
    seconds: u64,
    lists: u64,
    reads: u64,
    rows: u64,
    requests: u64,
    lowest_pct: BTreeMap<&'static str, i64>,
    /// Times at WARNING or worse, those that were seen, and the longest that was not, by policy.
    lows: u64,
    seen: u64,
    missed_s: BTreeMap<String, u64>,
    /// Times that were missed although they were longer than the coverage.
    uncovered: Vec<(String, u64, u64)>,
    coverage_s: BTreeMap<String, (u64, u64)>,
}

impl Week {
    /// Lets the time of a plan pass.
    pub(crate) async fn of(plan: Plan) -> Self {
        let mut rng = Rng::with_seed(plan.seed);
        let mut dict = Dict::start(plan.is_stepwise).await;
        let settings = SettingsByPolicy::default();
        let thresholds = Thresholds::default();
        let mut planner = Planner::new(PollSchedule::default(), PollBudget::default()).unwrap();
        planner.add(PARTICIPANT, START_US, &[]).unwrap();
        let mut unchanged = UnchangedReads::default();
        let mut week = Self {
            seconds: plan.hours * 3_600,
            ..Self::default()
        };
        // The first list names the buckets.
        let mut buckets: Vec<Traffic> = Vec::new();
        for second in 0..week.seconds {
            let now_us = dict.clock.now_us();
            for bucket in buckets.iter_mut().filter(|one| !one.is_own()) {
                bucket.pass(second, plan, &mut dict, &mut rng).await;
            }
            loop {
                let only = match planner.next(now_us) {
                    NextAction::Poll { .. } => None,
                    NextAction::Read { policy, .. } => Some(policy),
                    NextAction::Wait { .. } | NextAction::Idle => break,
                };
                let poll = dict.poll(only.as_deref()).await;
                if buckets.is_empty() {
                    let named = poll.samples().iter();
                    buckets = named
                        .map(|one| Traffic::new(one, plan.is_stepwise))
                        .collect();
                }
                week.pay(&mut buckets, only.is_some(), now_us);
                let asked = |one: &Traffic| only.as_deref().is_none_or(|only| only == one.policy);
                for bucket in buckets.iter_mut().filter(|one| asked(one)) {
                    let sample = poll.sample(&bucket.policy);
                    bucket.seen(sample.expect("no policy disappears"), now_us);
                }
                let stored = unchanged.to_store(poll);
                week.rows += stored
                    .iter()
                    .map(|poll| poll.samples().len() as u64)
                    .sum::<u64>();
                let assessments = buckets.iter().filter(|one| asked(one));
                let assessments: Vec<Assessment<'_>> = assessments
                    .filter_map(|one| {
                        Assessment::of(&one.history, thresholds, settings.settings(&one.policy))
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
            week.watch(&mut buckets, second, now_us);
            dict.clock.advance(Duration::from_secs(1));
        }
        week.requests = dict.requests;
        week
    }

    /// Takes a call from the copy of DICT's own limit.
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
    fn watch(&mut self, buckets: &mut [Traffic], second: u64, now_us: u64) {
        for bucket in buckets.iter_mut().filter(|one| !one.is_own()) {
            let level = bucket.level(now_us);
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
                        let longest = self.missed_s.entry(bucket.policy.clone()).or_default();
                        *longest = lasted.max(*longest);
                        let covered_s = bucket.covered_us.div_ceil(SECOND_US);
                        if bucket.covered_us > 0 && lasted > covered_s {
                            let missed = (bucket.policy.clone(), lasted, covered_s);
                            self.uncovered.push(missed);
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
        let per_day = |count: u64| count * 86_400 / self.seconds.max(1);
        writeln!(
            f,
            "{} requests of traffic; a day {} lists, {} reads, {} rows",
            self.requests,
            per_day(self.lists),
            per_day(self.reads),
            per_day(self.rows)
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
