//! A simulated Redis: it speaks the protocol over a Unix socket, and answers calls of the script with the
//! core, which `the_script_and_the_core_agree` has shown to be the same. Its clock, the time that requests and
//! replies are under way, and what it forgets are those of the simulation.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use balde::OnExpiry;
use balde::store::redis::script::{Holder, decode_stored};
use balde_core::{Command, Limit};
use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::redis_oracle::{self, Kept, Step};

const START_US: u64 = 1_800_000_000_000_000;
const LIMIT_BYTES: usize = 45;

/// What one key has seen. It is part of the data: a failover that loses writes loses these, too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Tokens that takes have moved.
    pub(crate) taken: u64,
    /// Tokens that credits have returned, or would have, had the bucket had room.
    pub(crate) returned: u64,
}

#[derive(Clone, Default)]
struct Data {
    buckets: BTreeMap<Vec<u8>, (Kept, Counts)>,
    /// Replies of operations with an id.
    replies: HashMap<Vec<u8>, Vec<u8>>,
}

/// How the network and the server behave at the moment.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    /// The longest time that a request or a reply is under way.
    pub(crate) delay_max: Duration,
    /// One of so many calls is run, and then its connection breaks before the reply; 0 for none.
    pub(crate) lose_one_in: u32,
    pub(crate) is_down: bool,
}

struct State {
    random: Rng,
    data: Data,
    /// What the replica had at these times.
    copies: Vec<(Instant, Data)>,
    knows_script: bool,
    weather: Weather,
    /// Parts of a million by which its clock is fast.
    drift_ppm: i64,
    step_us: i64,
    latest_us: u64,
    /// What failovers have forgotten, by key.
    lost: BTreeMap<Vec<u8>, Counts>,
    /// How many tokens less are owed because of them.
    forgiven: BTreeMap<Vec<u8>, u64>,
    calls: u64,
}

/// One server, with a socket for each node.
#[derive(Clone)]
pub(crate) struct Store {
    state: Arc<Mutex<State>>,
    folder: PathBuf,
    started: Instant,
    /// Changes when all connections break.
    generation: tokio::sync::watch::Sender<u64>,
}

impl Store {
    pub(crate) fn new(folder: &Path, mut random: Rng) -> Self {
        let drift_ppm = random.i64(-20_000..20_000);
        let state = State {
            random,
            data: Data::default(),
            copies: Vec::new(),
            knows_script: false,
            weather: Weather {
                delay_max: Duration::from_millis(2),
                lose_one_in: 0,
                is_down: false,
            },
            drift_ppm,
            step_us: 0,
            latest_us: START_US,
            lost: BTreeMap::new(),
            forgiven: BTreeMap::new(),
            calls: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            folder: folder.to_owned(),
            started: Instant::now(),
            generation: tokio::sync::watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens for a node. The socket and its connections end with the returned tasks.
    pub(crate) fn listen(&self, node: usize) -> (String, JoinSet<()>) {
        let path = self.folder.join(format!("{node}.sock"));
        let listener = UnixListener::bind(&path).expect("a socket");
        let store = self.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                // A server that is down accepts nobody: the connection is closed at once.
                if !store.lock().weather.is_down {
                    let store = store.clone();
                    connections.spawn(async move {
                        let mut generation = store.generation.subscribe();
                        tokio::select! {
                            () = store.serve(stream) => {}
                            _ = generation.changed() => {}
                        }
                    });
                }
            }
        });
        (format!("unix://{}", path.display()), tasks)
    }

    async fn serve(&self, mut stream: UnixStream) {
        let mut buffer = Vec::new();
        loop {
            while let Some((words, length)) = parse(&buffer) {
                buffer.drain(..length);
                self.travel().await;
                let (reply, is_lost) = self.answer(&words);
                self.travel().await;
                if is_lost || stream.write_all(&reply).await.is_err() {
                    return;
                }
            }
            match stream.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    async fn travel(&self) {
        let us = {
            let mut state = self.lock();
            let max = u64::try_from(state.weather.delay_max.as_micros()).expect("short");
            state.random.u64(..=max)
        };
        sleep(Duration::from_micros(us)).await;
    }

    /// Runs a command, and returns its reply and whether that is lost on the way.
    fn answer(&self, words: &[Vec<u8>]) -> (Vec<u8>, bool) {
        let now_us = self.now_us();
        let mut state = self.lock();
        let is_script = match words[0].as_slice() {
            b"HELLO" => return (b"%1\r\n$5\r\nproto\r\n:3\r\n".to_vec(), false),
            b"EVAL" => true,
            b"EVALSHA" => {
                if !state.knows_script {
                    return (b"-NOSCRIPT No matching script.\r\n".to_vec(), false);
                }
                true
            }
            _ => false,
        };
        if !is_script {
            return (b"+OK\r\n".to_vec(), false);
        }
        state.knows_script = true;
        state.calls += 1;
        let reply = state.data.run(&words[2..], now_us);
        let one_in = state.weather.lose_one_in;
        let is_lost = one_in > 0 && state.random.u32(..one_in) == 0;
        let mut bulk = format!("${}\r\n", reply.len()).into_bytes();
        bulk.extend(reply);
        bulk.extend(b"\r\n");
        (bulk, is_lost)
    }

    /// The time by the server's clock, in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        let elapsed = i64::try_from(self.started.elapsed().as_micros()).expect("short");
        let mut state = self.lock();
        let shift = elapsed + elapsed * state.drift_ppm / 1_000_000 + state.step_us;
        let now_us = START_US.saturating_add_signed(shift);
        state.latest_us = state.latest_us.max(now_us);
        now_us
    }

    /// The time from the beginning to the latest that the server's clock has shown.
    pub(crate) fn elapsed_us(&self) -> u64 {
        self.now_us();
        self.lock().latest_us - START_US
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    pub(crate) fn weather(&self) -> Weather {
        self.lock().weather.clone()
    }

    pub(crate) fn break_connections(&self) {
        self.generation.send_modify(|number| *number += 1);
    }

    pub(crate) fn flush_script(&self) {
        self.lock().knows_script = false;
    }

    /// Copies the data to the replica.
    pub(crate) fn replicate(&self) {
        let mut state = self.lock();
        let data = state.data.clone();
        state.copies.push((Instant::now(), data));
    }

    /// The replica becomes the primary: what it does not have is lost, and its clock is another one.
    pub(crate) fn fail_over(&self) {
        let now_us = self.now_us();
        let mut state = self.lock();
        let copy = state.copies.last().map(|(_, data)| data.clone());
        let before = std::mem::replace(&mut state.data, copy.unwrap_or_default());
        for (key, (bucket, counts)) in before.buckets {
            let (kept, now) = state.data.buckets.get(&key).cloned().unwrap_or_default();
            let forgiven = owed(bucket, now_us).saturating_sub(owed(kept, now_us));
            *state.forgiven.entry(key.clone()).or_default() += forgiven;
            let lost = state.lost.entry(key).or_default();
            lost.taken += counts.taken - now.taken;
            lost.returned += counts.returned - now.returned;
        }
        state.step_us += state.random.i64(-30_000..30_000);
        state.knows_script = false;
        state.weather.is_down = false;
    }

    /// What a key has seen, and what failovers have forgotten of it. Zeros for a key that was never used.
    pub(crate) fn counts(&self, limiter: &str, key: &str) -> (Counts, Counts) {
        let state = self.lock();
        let Some(name) = state.name_of(limiter, key) else {
            return Default::default();
        };
        let lost = state.lost.get(&name).copied().unwrap_or_default();
        let now = state.data.buckets.get(&name).map(|(_, counts)| *counts);
        (now.unwrap_or_default(), lost)
    }

    /// The tokens that a bucket is below full, with what is held, and those that failovers have forgiven.
    pub(crate) fn owed(&self, limiter: &str, key: &str) -> (u64, u64) {
        let now_us = self.now_us();
        let state = self.lock();
        let Some(name) = state.name_of(limiter, key) else {
            return (0, 0);
        };
        let bucket = state
            .data
            .buckets
            .get(&name)
            .and_then(|(kept, _)| kept.clone());
        let forgiven = state.forgiven.get(&name).copied().unwrap_or_default();
        (owed(bucket, now_us), forgiven)
    }

    pub(crate) fn calls(&self) -> u64 {
        self.lock().calls
    }
}

impl State {
    fn name_of(&self, limiter: &str, key: &str) -> Option<Vec<u8>> {
        let names = self.data.buckets.keys().chain(self.lost.keys());
        let is_it = |name: &&Vec<u8>| {
            let name = String::from_utf8_lossy(name);
            name.contains(&format!("{limiter}:{{")) && name.ends_with(&format!("{key}}}"))
        };
        names.into_iter().find(is_it).cloned()
    }
}

/// Whole tokens below full, rounded up.
fn owed(kept: Kept, now_us: u64) -> u64 {
    let Some(bucket) = kept else { return 0 };
    let decision = bucket.limit.apply(bucket.state, Command::Peek, now_us);
    let held: u64 = bucket.held.iter().map(|(_, held)| held.tokens).sum();
    decision.owed().div_ceil(bucket.limit.token_units()) + held
}

impl Data {
    /// Runs the script: the number of keys, the keys, and the arguments.
    fn run(&mut self, words: &[Vec<u8>], now_us: u64) -> Vec<u8> {
        let number = std::str::from_utf8(&words[0]).expect("a number");
        let number: usize = number.parse().expect("a number");
        let (keys, arguments) = words[1..].split_at(number);
        // Two arguments for each bucket, and perhaps a header. Whose time it names is not this server's.
        let count = arguments.len() / 2;
        let operation = keys.get(count).cloned();
        if let Some(reply) = operation.as_ref().and_then(|key| self.replies.get(key)) {
            return reply.clone();
        }
        let keys = &keys[..count];
        let mut names: Vec<&Vec<u8>> = keys.iter().collect();
        names.sort_unstable();
        names.dedup();
        let mut kept: Vec<Kept> = Vec::new();
        for name in &names {
            kept.push(self.buckets.get(*name).and_then(|(kept, _)| kept.clone()));
        }
        let steps: Vec<Step> = (0..count)
            .map(|index| {
                let bucket = names.binary_search(&&keys[index]).expect("its name");
                let stored = kept[bucket].as_ref().map(|bucket| bucket.limit);
                step(
                    bucket,
                    stored,
                    &arguments[2 * index],
                    &arguments[2 * index + 1],
                )
            })
            .collect();
        let decisions = redis_oracle::decide(&mut kept, &steps, now_us);
        let have_passed = decisions.iter().all(balde_core::Decision::is_allowed);
        for (name, kept) in names.iter().zip(kept) {
            self.buckets.entry((*name).clone()).or_default().0 = kept;
        }
        let mut reply = double(now_us).to_vec();
        for (step, decision) in steps.iter().zip(&decisions) {
            if have_passed {
                let counts = &mut self
                    .buckets
                    .entry(names[step.bucket].clone())
                    .or_default()
                    .1;
                match step.command {
                    Command::Take { n } | Command::TakeIf { n, .. } => counts.taken += n,
                    Command::TakeUpTo { .. } => counts.taken += decision.moved(),
                    Command::Credit { n } => counts.returned += n,
                    _ => {}
                }
            }
            let has_holds = decision.held() > 0 || step.holder.is_some();
            reply.push(u8::from(decision.is_allowed()) + 2 * u8::from(has_holds));
            for number in [decision.owed_before(), decision.owed(), decision.at_us()] {
                reply.extend(double(number));
            }
            if has_holds {
                reply.extend(double(decision.held()));
            }
        }
        if let Some(key) = operation.filter(|_| have_passed) {
            self.replies.insert(key, reply.clone());
        }
        reply
    }
}

/// Decodes the limit and the command of one bucket.
fn step(bucket: usize, stored: Option<Limit>, limit: &[u8], command: &[u8]) -> Step {
    assert_eq!(limit.len(), LIMIT_BYTES);
    let empty = [limit, &double(0), &double(0)].concat();
    let limit = decode_stored(&empty).expect("a limit").limit.limit();
    let limit = limit.expect("a limit");
    let (operation, rest) = command.split_first().expect("a command");
    let number = |index: usize| {
        let bytes = rest[8 * index..][..8].try_into().expect("eight bytes");
        whole(f64::from_le_bytes(bytes))
    };
    let token = limit.token_units();
    let tokens = |units: u64| units.div_ceil(token);
    let holder = |rest: &[u8]| Holder {
        id: rest[..8].try_into().expect("an id"),
        on_expiry: match rest[8] {
            0 => OnExpiry::Charge,
            _ => OnExpiry::GiveBack,
        },
        ttl_us: whole(f64::from_le_bytes(
            rest[9..17].try_into().expect("eight bytes"),
        )),
    };
    let (limit, command, holder) = match operation {
        0 => (limit, Command::Peek, None),
        1 => (
            limit,
            Command::Take {
                n: tokens(number(0)),
            },
            None,
        ),
        2 => (limit, Command::TakeUpTo { n: number(0) }, None),
        3 => (
            limit,
            Command::Charge {
                n: tokens(number(0)),
            },
            None,
        ),
        4 => (
            limit,
            Command::Credit {
                n: tokens(number(0)),
            },
            None,
        ),
        5 => {
            let capacity = i64::try_from(limit.capacity()).expect("a small limit");
            let level = capacity - i64::try_from(tokens(number(0))).expect("a small limit");
            (limit, Command::SetLevel { level }, None)
        }
        6 => {
            let (n, needed) = (tokens(number(0)), tokens(number(1)));
            (limit, Command::TakeIf { n, needed }, None)
        }
        7 | 9 => {
            let needed = tokens(number(1));
            let limit = stored.filter(|_| *operation == 9).unwrap_or(limit);
            let n = number(0);
            (
                limit,
                Command::Hold { n, needed },
                Some(holder(&rest[16..])),
            )
        }
        8 => {
            let (held, price) = (number(0), number(1));
            (
                limit,
                Command::Settle { held, price },
                Some(holder(&rest[16..])),
            )
        }
        other => panic!("no such operation: {other}"),
    };
    Step {
        bucket,
        limit,
        command,
        holder,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of the script are below 2^53"
)]
fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of the script are whole and not negative"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

/// Parses a command, and returns its words and its length.
fn parse(buffer: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut at = 0;
    let line = |at: &mut usize| -> Option<usize> {
        let end = buffer[*at..].windows(2).position(|two| two == b"\r\n")?;
        let text = std::str::from_utf8(&buffer[*at + 1..*at + end]).expect("a number");
        *at += end + 2;
        Some(text.parse().expect("a number"))
    };
    let count = line(&mut at)?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        if at >= buffer.len() {
            return None;
        }
        let length = line(&mut at)?;
        words.push(buffer.get(at..at + length)?.to_vec());
        at += length + 2;
    }
    (at <= buffer.len()).then_some((words, at))
}
