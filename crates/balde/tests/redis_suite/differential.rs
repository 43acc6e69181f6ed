//! Law 8: the script and the core give the same answer and keep the same state for the same state,
//! command and time. The core is the oracle; a real redis-server runs the script.
//!
//! `BALDE_SEED` repeats a run, `BALDE_STEPS` makes it longer.

use std::env;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::redis_oracle::{Bucket, Kept, Step};
use crate::redis_server::RedisServer;
use crate::{chance, redis_oracle};
use balde::store::redis::script::{self, Header, LimitBlob, Stored};
use balde_core::{Command, Decision, Limit, State, Wait};
use fastrand::Rng;
use redis::{Client, Cmd, Commands, Connection, FromRedisValue, Pipeline, RedisResult, Value};

/// Worlds that know nothing of each other, so that one pipeline carries a step of each.
const LANES: usize = 200;
const STEPS_DEFAULT: usize = 240_000;
const BUCKETS: usize = 3;
const DAY_MS: u64 = 86_400_000;
const REPLY_TTL_MS: u64 = 3_600_000;

#[test]
fn the_script_and_the_core_agree() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let seed = env_number("BALDE_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = env_number("BALDE_STEPS").map_or(STEPS_DEFAULT, |n| usize::try_from(n).unwrap());
    println!("BALDE_SEED={seed} BALDE_STEPS={steps}");
    let mut random = Rng::with_seed(seed);
    let (mut connection, sha) = connect(&server);
    let mut lanes: Vec<Lane> = (0..LANES).map(|id| Lane::new(&mut random, id)).collect();
    let mut seen = Seen::default();

    for round in 0..steps.div_ceil(LANES) {
        let mut pipeline = Pipeline::new();
        let calls: Vec<Call> = lanes
            .iter_mut()
            .map(|lane| lane.next_call(&mut random))
            .collect();
        for (lane, call) in lanes.iter().zip(&calls) {
            if let Some((bucket, limit, state)) = call.planted {
                let stored = stored(&limit, as_double(state.owed()), as_double(state.at_us()));
                pipeline.set(&lane.keys[bucket], stored).ignore();
            }
            pipeline.add_command(call.command(&sha, lane));
            pipeline.cmd("MGET").arg(&lane.keys);
            pipeline.cmd("PTTL").arg(&lane.keys[call.steps[0].bucket]);
        }
        let answers: Vec<Value> = pipeline.query(&mut connection).unwrap();
        for ((lane, call), answer) in lanes.iter_mut().zip(&calls).zip(answers.chunks(3)) {
            let context = format!("seed {seed}, round {round}, lane {}: {call:?}", lane.id);
            lane.check(call, answer, &context, &mut seen);
        }
        // A lane that has lived long enough makes room for other limits.
        if round % 50 == 49 {
            for lane in &mut lanes {
                *lane = Lane::new(&mut random, lane.id + LANES);
            }
        }
    }
    println!("{seen:?}");
    // Dice that never fell where it matters would prove nothing.
    for (what, count, least) in [
        ("allowed", seen.allowed, 20),
        ("refused", seen.refused, 20),
        ("refused calls of several", seen.refused_calls, 40),
        ("found under another limit", seen.changed, 40),
        ("stored although refused", seen.found, 400),
        ("deleted", seen.deleted, 100),
        ("replayed", seen.replayed, 200),
        ("in debt", seen.in_debt, 40),
        ("clock stepped back", seen.backwards, 100),
        ("times to live checked", seen.ttls, 20),
        ("same bucket twice", seen.twice, 40),
        ("held", seen.held, 10),
        ("settled", seen.settled, 40),
        ("expired", seen.expired, 100),
    ] {
        assert!(count >= steps / least, "{what}: only {count} of {steps}");
    }
}

#[derive(Debug, Default)]
struct Seen {
    allowed: usize,
    refused: usize,
    refused_calls: usize,
    changed: usize,
    found: usize,
    deleted: usize,
    replayed: usize,
    in_debt: usize,
    backwards: usize,
    ttls: usize,
    twice: usize,
    held: usize,
    settled: usize,
    expired: usize,
}

/// A few buckets with a clock of their own.
struct Lane {
    id: usize,
    keys: Vec<String>,
    limits: Vec<Limit>,
    kept: Vec<Kept>,
    now_us: u64,
    last: Option<Decision>,
    operations: u64,
    operation: Option<Operation>,
}

/// A call with an id, and what it was answered once it had passed.
#[derive(Clone, Debug)]
struct Operation {
    key: String,
    steps: Vec<Step>,
    answer: Option<(u64, Vec<Decision>)>,
}

#[derive(Debug)]
struct Call {
    steps: Vec<Step>,
    now_us: u64,
    operation: Option<String>,
    /// A state that somebody else put into a bucket before.
    planted: Option<(usize, Limit, State)>,
}

impl Call {
    fn command(&self, sha: &str, lane: &Lane) -> Cmd {
        let mut header = Header::default().at(self.now_us).unwrap();
        if self.operation.is_some() {
            header = header.with_operation(REPLY_TTL_MS);
        }
        let keys: Vec<&str> = self
            .steps
            .iter()
            .map(|step| lane.keys[step.bucket].as_str())
            .chain(self.operation.as_deref())
            .collect();
        let steps = script_steps(&self.steps);
        evalsha(sha, &keys, &script::encode(&steps, header))
    }
}

impl Lane {
    fn new(random: &mut Rng, id: usize) -> Self {
        Self {
            id,
            keys: (0..BUCKETS).map(|n| format!("{{{id}}}:{n}")).collect(),
            limits: (0..BUCKETS).map(|_| chance::limit(random)).collect(),
            kept: vec![None; BUCKETS],
            now_us: random.u64(0..=script::NOW_MAX_US / 2),
            last: None,
            operations: 0,
            operation: None,
        }
    }

    fn next_call(&mut self, random: &mut Rng) -> Call {
        let now_us = chance::moment(random, self.now_us, self.last.as_ref());
        if random.u8(..24) == 0
            && let Some(Operation { key, steps, .. }) = self.operation.clone()
        {
            return Call {
                steps,
                now_us,
                operation: Some(key),
                planted: None,
            };
        }
        let count = [1, 1, 1, 1, 1, 2, 2, 3, 4][random.usize(..9)];
        let steps = (0..count)
            .map(|_| {
                let bucket = random.usize(..BUCKETS);
                let mut limit = self.limits[bucket];
                if random.u8(..16) == 0 {
                    limit = chance::another_limit(random, &limit);
                    // Sometimes only one caller knows of the new limit, as during a deployment.
                    if random.u8(..4) > 0 {
                        self.limits[bucket] = limit;
                    }
                }
                let holder = chance::holder(random);
                Step {
                    bucket,
                    limit,
                    command: chance::command(random, &limit),
                    holder: (random.u8(..8) > 0).then_some(holder),
                }
            })
            .collect();
        let operation = (random.u8(..8) == 0).then(|| {
            self.operations += 1;
            format!("{{{}}}:op:{}", self.id, self.operations)
        });
        // The script would not have left every state that the core understands.
        let planted = (random.u8(..32) == 0).then(|| {
            let bucket = random.usize(..BUCKETS);
            let limit = self.limits[bucket];
            let state = chance::state(random, &limit, now_us);
            self.kept[bucket] = Some(Bucket::new(limit, state));
            (bucket, limit, state)
        });
        Call {
            steps,
            now_us,
            operation,
            planted,
        }
    }

    fn check(&mut self, call: &Call, answer: &[Value], context: &str, seen: &mut Seen) {
        let before = self.kept.clone();
        let (now_us, decisions) = self.expect(call, seen);

        let bytes: Vec<u8> = read(&answer[0]);
        let reply = script::decode(&script_steps(&call.steps), &bytes)
            .unwrap_or_else(|error| panic!("{error}: {bytes:?}\n{context}"));
        assert_eq!(reply.now_us, now_us, "{context}");
        for (found, expected) in reply.decisions.iter().zip(&decisions) {
            assert_eq!(
                told(found),
                told(expected),
                "{found:?}\n{expected:?}\n{context}\n{before:?}"
            );
        }
        assert_eq!(reply.decisions, decisions, "{context}\n{before:?}");

        let stored: Vec<Option<Vec<u8>>> = read(&answer[1]);
        for (found, expected) in stored.iter().zip(&self.kept) {
            let found = found
                .as_ref()
                .map(|bytes| script::decode_stored(bytes).unwrap());
            let expected = expected.as_ref().map(|bucket| Stored {
                limit: LimitBlob::new(&bucket.limit),
                state: bucket.state,
                held: bucket.held.clone(),
            });
            assert_eq!(found, expected, "{context}\n{before:?}");
        }

        // The time to live of what this call wrote: until full, to the millisecond, and a day.
        let bucket = call.steps[0].bucket;
        if before[bucket] != self.kept[bucket]
            && let Some(kept) = &self.kept[bucket]
        {
            let ttl_ms: u64 = read(&answer[2]);
            let least_ms = full_us(kept, call.now_us).div_ceil(1_000) + DAY_MS;
            // What is held is charged at different times, but kept as if it were charged at the last.
            let most_ms = match kept.held.len() {
                0 => least_ms + 1,
                _ => u64::MAX,
            };
            let range = least_ms - 10_000..=most_ms;
            assert!(range.contains(&ttl_ms), "{ttl_ms} in {range:?}\n{context}");
            seen.ttls += 1;
        }

        seen.backwards += usize::from(call.now_us < self.now_us);
        self.now_us = call.now_us;
        // One that was refused, if there is one: it has a wait to come true.
        let refused = decisions.iter().find(|decision| !decision.is_allowed());
        self.last = refused.or(decisions.last()).copied();
    }

    /// What the call must answer, and the lane as it must be afterwards.
    fn expect(&mut self, call: &Call, seen: &mut Seen) -> (u64, Vec<Decision>) {
        let again = self
            .operation
            .as_ref()
            .filter(|operation| call.operation.as_ref() == Some(&operation.key));
        if let Some(answer) = again.and_then(|operation| operation.answer.clone()) {
            seen.replayed += 1;
            return answer;
        }
        let before = self.kept.clone();
        let decisions = redis_oracle::decide(&mut self.kept, &call.steps, call.now_us);
        let is_refused = decisions.iter().any(|decision| !decision.is_allowed());
        let has_writes = call.steps.iter().any(|step| step.command.is_write());
        let answer = (call.now_us, decisions.clone());
        if let Some(key) = call.operation.clone() {
            self.operation = Some(Operation {
                key,
                steps: call.steps.clone(),
                answer: (has_writes && !is_refused).then_some(answer.clone()),
            });
        }

        seen.allowed += usize::from(!is_refused);
        seen.refused += usize::from(is_refused);
        seen.refused_calls += usize::from(is_refused && call.steps.len() > 1);
        seen.found += usize::from(is_refused && before != self.kept);
        seen.held += usize::from(decisions.iter().any(|decision| decision.held() > 0));
        seen.in_debt += usize::from(decisions.iter().any(|decision| decision.level() < 0));
        for (step, i) in call.steps.iter().zip(0..) {
            let was = &before[step.bucket];
            let is_changed = |bucket: &Bucket| bucket.limit != step.limit;
            seen.changed += usize::from(was.as_ref().is_some_and(is_changed));
            let held = was.iter().flat_map(|bucket| &bucket.held);
            let expired = held.filter(|(_, held)| held.expires_us <= call.now_us);
            seen.expired += usize::from(expired.count() > 0);
            let is_settled = matches!(step.command, Command::Settle { .. });
            seen.settled += usize::from(!is_refused && is_settled && step.holder.is_some());
            seen.deleted += usize::from(was.is_some() && self.kept[step.bucket].is_none());
            let earlier = &call.steps[..i];
            seen.twice += usize::from(earlier.iter().any(|other| other.bucket == step.bucket));
        }
        answer
    }
}

/// How long until a bucket is full, if all that is held is charged when it expires.
fn full_us(kept: &Bucket, now_us: u64) -> u64 {
    let mut state = kept.state;
    let mut held = kept.held.clone();
    held.sort_by_key(|(_, held)| held.expires_us);
    for (_, held) in &held {
        state = kept.limit.expire(state, held);
    }
    let last_us = held.last().map_or(now_us, |(_, held)| held.expires_us);
    let full = kept.limit.apply(state, Command::Peek, last_us);
    (last_us + full.full_after_us()).saturating_sub(now_us)
}

/// Everything that a decision tells its caller.
fn told(decision: &Decision) -> (bool, [u64; 6], [i64; 2], Wait, u64, Option<State>) {
    (
        decision.is_allowed(),
        [
            decision.held(),
            decision.owed_before(),
            decision.owed(),
            decision.at_us(),
            decision.now_us(),
            decision.moved(),
        ],
        [decision.level_before(), decision.level()],
        decision.wait(),
        decision.full_after_us(),
        decision.state(),
    )
}

#[test]
fn by_the_servers_clock_promised_waits_come_true_and_full_buckets_go() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let (mut connection, sha) = connect(&server);
    let mut take = |limit: &str, key: &str, command: Command| {
        let limit: Limit = limit.parse().unwrap();
        let step = script::Step::new(limit, LimitBlob::new(&limit), command);
        let args = script::encode(&[step], Header::default());
        let mut pipeline = Pipeline::new();
        pipeline.add_command(evalsha(&sha, &[key], &args));
        pipeline.cmd("PTTL").arg(key);
        let (reply, ttl_ms): (Vec<u8>, i64) = pipeline.query(&mut connection).unwrap();
        (script::decode_one(&step, &reply).unwrap(), ttl_ms)
    };
    let one = Command::Take { n: 1 };
    let absent = -2;

    let wall_us = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_micros();
    let (first, ttl_ms) = take("2/s", "a", Command::Take { n: 2 });
    assert!(first.is_allowed());
    assert!(u128::from(first.now_us()).abs_diff(wall_us) < 60_000_000);
    assert!((900..=1_001).contains(&ttl_ms), "{ttl_ms}");
    let (refused, _) = take("2/s", "a", one);
    let wait = refused.retry_after().unwrap();
    assert!(wait <= Duration::from_millis(500));
    thread::sleep(wait);
    assert!(take("2/s", "a", one).0.is_allowed());
    // A second after it was full nothing is left of it, and a look brings nothing back.
    thread::sleep(Duration::from_millis(1_100));
    assert_eq!(take("2/s", "a", Command::Peek).1, absent);

    // Full again within a microsecond: too short for a time to live, but kept for one.
    assert!(take("1000000/s", "b", one).0.is_allowed());
    assert!(take("1/h", "c", one).1 > 3_500_000);
    assert_eq!(take("1/h", "c", Command::Credit { n: 1 }).1, absent);

    // A bucket that starts empty begins with the first refusal, and outlives being full by a day.
    assert_eq!(take("1/min empty", "d", Command::Peek).1, absent);
    let (refused, ttl_ms) = take("1/min empty", "d", one);
    assert!(!refused.is_allowed());
    let day_ms = i64::try_from(DAY_MS).unwrap();
    assert!(
        (day_ms + 59_000..=day_ms + 60_001).contains(&ttl_ms),
        "{ttl_ms}"
    );
    // Full, and kept; with the refill of a whole day, too, whose last boundary was long ago.
    let full = Command::SetLevel { level: 5 };
    for limit in ["5/min empty", "5/3days stepwise empty"] {
        let (_, ttl_ms) = take(limit, limit, full);
        assert!(
            (day_ms - 1_000..=day_ms + 1).contains(&ttl_ms),
            "{limit}: {ttl_ms}"
        );
    }
    assert!((59_000..=60_001).contains(&take("9/min window", "e", one).1));
}

#[test]
fn what_is_not_a_bucket_is_an_error_and_stays_what_it_is() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let (mut connection, sha) = connect(&server);
    let limit: Limit = "10/s".parse().unwrap();
    let other: Limit = "11/s".parse().unwrap();
    let step = script::Step::new(limit, LimitBlob::new(&limit), Command::Take { n: 1 });
    let mut foreign = vec![b"42".to_vec(), b"".to_vec(), vec![b'x'; 61]];
    let mut other_version = stored(&limit, 1.0, 1.0);
    other_version[3] = b'2';
    foreign.push(other_version);
    for limit in [&limit, &other] {
        foreign.push(stored(limit, f64::NAN, 0.0));
        foreign.push(stored(limit, -1.0, 0.0));
        foreign.push(stored(limit, 1e300, 0.0));
        foreign.push(stored(limit, 1.0, f64::NAN));
        foreign.push(stored(limit, 1.0, -1.0));
        foreign.push(stored(limit, 1.0, 1e300));
    }
    for value in &foreign {
        let _: () = connection.set("foreign", value).unwrap();
        for keys in [&["foreign"][..], &["mine", "foreign"], &["foreign", "mine"]] {
            let args = script::encode(&vec![step; keys.len()], Header::default());
            let answer: RedisResult<Value> = evalsha(&sha, keys, &args).query(&mut connection);
            assert_eq!(answer.unwrap_err().code(), Some("FOREIGN"), "{value:?}");
        }
        let kept: Vec<u8> = connection.get("foreign").unwrap();
        assert_eq!(&kept, value);
    }
    let _: () = connection.lpush("list", 1).unwrap();
    let args = script::encode(&[step, step], Header::default());
    let answer: RedisResult<Value> = evalsha(&sha, &["mine", "list"], &args).query(&mut connection);
    // Before Redis 7, the error of a command inside a script is wrapped in another one.
    let error = answer.unwrap_err().to_string();
    assert!(error.contains("WRONGTYPE"), "{error}");

    // Neither is an operation's key that holds something else, or the reply to another call.
    let header = Header::default().with_operation(REPLY_TTL_MS);
    let one = script::encode(&[step], header);
    let two = script::encode(&[step, step], header);
    let _: () = connection.set("op", "42").unwrap();
    let answer: RedisResult<Value> = evalsha(&sha, &["mine", "op"], &one).query(&mut connection);
    assert_eq!(answer.unwrap_err().code(), Some("FOREIGN"));
    let exists: bool = connection.exists("mine").unwrap();
    assert!(!exists, "no error came after a write");
    let _: Value = evalsha(&sha, &["mine", "op2"], &one)
        .query(&mut connection)
        .unwrap();
    let keys = ["mine", "yours", "op2"];
    let answer: RedisResult<Value> = evalsha(&sha, &keys, &two).query(&mut connection);
    assert_eq!(answer.unwrap_err().code(), Some("FOREIGN"));

    // And a call that says too little does nothing.
    for (keys, args) in [
        (&[][..], &one[..2]),
        (&["k"], &one[..1]),
        (&["k"], &two[..4]),
    ] {
        let answer: RedisResult<Value> = evalsha(&sha, keys, args).query(&mut connection);
        assert!(answer.is_err());
    }
}

fn connect(server: &RedisServer) -> (Connection, String) {
    let mut connection = Client::open(server.url())
        .unwrap()
        .get_connection()
        .unwrap();
    let sha = redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(script::DECIDE)
        .query(&mut connection)
        .unwrap();
    (connection, sha)
}

fn evalsha(sha: &str, keys: &[&str], args: &[Vec<u8>]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(sha).arg(keys.len()).arg(keys).arg(args);
    command
}

/// A bucket as the script keeps it.
fn stored(limit: &Limit, owed: f64, at: f64) -> Vec<u8> {
    let blob = LimitBlob::new(limit);
    [blob.as_bytes(), &owed.to_le_bytes(), &at.to_le_bytes()].concat()
}

#[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
fn as_double(number: u64) -> f64 {
    number as f64
}

fn script_steps(steps: &[Step]) -> Vec<script::Step> {
    steps
        .iter()
        .map(|step| {
            let blob = LimitBlob::new(&step.limit);
            script::Step::new(step.limit, blob, step.command).held_by(step.holder)
        })
        .collect()
}

fn read<T: FromRedisValue>(value: &Value) -> T {
    T::from_redis_value(value.clone()).unwrap()
}

fn env_number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|error| panic!("{name}={text}: {error}")),
    )
}
