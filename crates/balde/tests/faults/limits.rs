//! A server at its own limits, or one that is no Redis server at all.
//!
//! `BALDE_STORM_SECONDS` says how long the storm at `maxclients` lasts, 2 unless told otherwise;
//! `scripts/storm-redis.sh` says 10.

use std::env;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use balde::StoreFailure::{BreakerOpen, Disconnected, Rejected, Timeout};
use balde::{Decision, OnFailure, RateLimiter, Share, StoreFailure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::redis_server::RedisServer;
use super::{BACK_WITHIN, LOCAL_ONE_IN, Mode, OPEN_P99_WITHIN, for_a_while, limiter, store, story};

const MAXCLIENTS: usize = 12;
const REQUESTS_PER_SECOND: u32 = 1_000;
const ATTEMPTS_PER_SECOND_MAX: u64 = 10;

/// What a client may be sent before it hangs up: a reply of the largest size, and the buffers of the
/// sockets at both ends.
const ACCEPTED_BYTES_MAX: u64 = 16 << 20;

static NOISE: [u8; 65_536] = [b'x'; 65_536];

/// A connection that somebody else holds.
struct Held(TcpStream);

impl Held {
    fn open(server: &RedisServer) -> Self {
        let mut held = Self(TcpStream::connect(server.addr()).expect("a slot"));
        assert_eq!(held.ask("PING"), "+PONG\r\n");
        held
    }

    fn ask(&mut self, command: &str) -> String {
        self.0
            .write_all(format!("{command}\r\n").as_bytes())
            .expect("sent");
        let mut reply = vec![0; 64 * 1_024];
        let read = self.0.read(&mut reply).expect("a reply");
        String::from_utf8_lossy(&reply[..read]).into_owned()
    }

    /// Connections that the server has turned away.
    fn rejected(&mut self) -> u64 {
        let info = self.ask("INFO stats");
        let count = info
            .lines()
            .find_map(|line| line.strip_prefix("rejected_connections:"));
        count.expect("a count").trim().parse().expect("a number")
    }
}

#[test]
fn at_maxclients_nobody_storms_the_server_and_nobody_waits_for_it() {
    let seconds = env::var("BALDE_STORM_SECONDS").map_or(2, |text| {
        text.parse().expect("BALDE_STORM_SECONDS is a number")
    });
    story(async move {
        let Some(server) = RedisServer::start_with(&["--maxclients", &MAXCLIENTS.to_string()])
        else {
            return;
        };
        let mut held: Vec<_> = (0..MAXCLIENTS).map(|_| Held::open(&server)).collect();
        let rejected_before = held[0].rejected();
        let store = store(server.url());
        let share = Share::one_in(LOCAL_ONE_IN);
        let limiter = limiter(&store, Mode::Plain, OnFailure::Local { share });

        let mut seen = Vec::new();
        let mut attempts = Vec::new();
        for _ in 0..seconds {
            let attempts_before = store.stats().connect_attempts_total;
            seen.extend(requests_for_a_second(&limiter).await);
            attempts.push(store.stats().connect_attempts_total - attempts_before);
        }
        let stats = store.stats();
        let rejected = held[0].rejected() - rejected_before;
        let mut times: Vec<_> = seen.iter().map(|(took, _)| *took).collect();
        times.sort_unstable();
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!(
            "maxclients: {} requests in {seconds} s, {rejected} connections turned away, attempts \
             by second {attempts:?}; fallbacks answered in {p50:?} (median), {p99:?} (99 %); {stats:?}",
            seen.len(),
        );
        for (_, decision) in &seen {
            assert!(decision.is_fallback(), "{decision:?}");
            let failure = decision.failure().expect("a fallback says why");
            // The server says why and hangs up: whichever arrives first.
            assert!(
                [Rejected, Disconnected, BreakerOpen].contains(&failure),
                "{failure}"
            );
        }
        assert!(stats.failures(Rejected) > 0);
        // The first second has the attempts that opened the store.
        let allowed = ATTEMPTS_PER_SECOND_MAX * seconds;
        assert!(stats.connect_attempts_total <= allowed, "{attempts:?}");
        assert!(rejected <= allowed, "{rejected} in {seconds} s");
        assert!(p99 < OPEN_P99_WITHIN, "{p99:?}");

        drop(held.pop());
        let freed = Instant::now();
        let is_served = async || !limiter.check("late").await.is_fallback();
        super::until("a decision from Redis", BACK_WITHIN, is_served).await;
        println!(
            "maxclients: back {:?} after a slot was free",
            freed.elapsed()
        );
    });
}

/// Sends requests whether or not those before them have been answered.
async fn requests_for_a_second(limiter: &RateLimiter) -> Vec<(Duration, Decision)> {
    let mut tick = tokio::time::interval(Duration::from_secs(1) / REQUESTS_PER_SECOND);
    let mut requests = JoinSet::new();
    for _ in 0..REQUESTS_PER_SECOND {
        tick.tick().await;
        let limiter = limiter.clone();
        requests.spawn(async move {
            let began = Instant::now();
            let decision = limiter.check("storm").await;
            (began.elapsed(), decision)
        });
    }
    requests.join_all().await
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Nonsense {
    /// An error, whatever is asked.
    Error,
    /// A greeting, and then errors.
    ErrorAfterGreeting,
    /// A greeting, and then `OK` to everything.
    Okay,
    /// A greeting, and then a string as long as a reply of the script, of noise.
    Noise,
    /// A line that does not end.
    EndlessLine,
    /// A greeting, and then a line that does not end.
    EndlessLineAfterGreeting,
    /// A greeting, and then a string of 512 MiB.
    HugeString,
    /// A greeting, and then the connection is closed at the first question.
    HangUp,
}

/// A server that answers every command with nonsense.
struct NonsenseServer {
    url: String,
    accepted: Arc<AtomicU64>,
    /// The most bytes that one client was sent.
    sent_most: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl NonsenseServer {
    async fn start(nonsense: Nonsense) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("its address"));
        let (accepted, sent_most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (count, most) = (Arc::clone(&accepted), Arc::clone(&sent_most));
        let task = tokio::spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let most = Arc::clone(&most);
                clients.spawn(async move { answer(stream, nonsense, &most).await });
            }
        });
        Self {
            url,
            accepted,
            sent_most,
            task,
        }
    }
}

impl Drop for NonsenseServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: tokio::net::TcpStream, nonsense: Nonsense, sent_most: &AtomicU64) {
    let mut question = vec![0; 64 * 1_024];
    let mut is_greeted = matches!(nonsense, Nonsense::Error | Nonsense::EndlessLine);
    let mut sent = 0;
    while let Ok(1..) = stream.read(&mut question).await {
        if !is_greeted {
            is_greeted = true;
            if stream.write_all(b"%1\r\n+proto\r\n:3\r\n").await.is_err() {
                return;
            }
            continue;
        }
        let (begin, repeat): (&[u8], &[u8]) = match nonsense {
            Nonsense::Error | Nonsense::ErrorAfterGreeting => (b"-ERR no\r\n", b""),
            Nonsense::Okay => (b"+OK\r\n", b""),
            Nonsense::Noise => (b"$33\r\n\xff23456789012345678901234567890123\r\n", b""),
            Nonsense::EndlessLine | Nonsense::EndlessLineAfterGreeting => (b"+", &NOISE),
            Nonsense::HugeString => (b"$536870912\r\n", &NOISE),
            Nonsense::HangUp => return,
        };
        if stream.write_all(begin).await.is_err() {
            return;
        }
        // Until the client hangs up, but not for ever.
        while !repeat.is_empty() && sent < 1 << 30 {
            let Ok(written) = stream.write(repeat).await else {
                return;
            };
            sent += written as u64;
            sent_most.fetch_max(sent, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_server_that_answers_nonsense_opens_the_breaker_and_is_left_alone() {
    for nonsense in [
        Nonsense::Error,
        Nonsense::ErrorAfterGreeting,
        Nonsense::Okay,
        Nonsense::Noise,
        Nonsense::EndlessLine,
        Nonsense::EndlessLineAfterGreeting,
        Nonsense::HugeString,
        Nonsense::HangUp,
    ] {
        story(async move {
            let server = NonsenseServer::start(nonsense).await;
            let store = store(server.url.clone());
            let limiter = limiter(&store, Mode::Plain, OnFailure::Deny);
            let began = Instant::now();
            let mut decisions = 0_u64;
            while began.elapsed() < Duration::from_millis(700) {
                let decision = limiter.check("key").await;
                decisions += 1;
                let failure = decision
                    .failure()
                    .expect("no decision comes from this server");
                assert!(
                    failures_of(nonsense).contains(&failure),
                    "{nonsense:?}: {failure}"
                );
                for_a_while(1).await;
            }
            let stats = store.stats();
            let accepted = server.accepted.load(Ordering::Relaxed);
            let sent = server.sent_most.load(Ordering::Relaxed);
            println!("{nonsense:?}: {decisions} decisions, {accepted} connections, {sent} bytes");
            assert!(stats.is_open, "{nonsense:?}: {stats:?}");
            assert!(stats.failures(BreakerOpen) > 0, "{nonsense:?}: {stats:?}");
            assert!(
                accepted <= ATTEMPTS_PER_SECOND_MAX,
                "{nonsense:?}: {accepted}"
            );
            assert!(sent <= ACCEPTED_BYTES_MAX, "{nonsense:?}: {sent} bytes");
        });
    }
}

fn failures_of(nonsense: Nonsense) -> &'static [StoreFailure] {
    match nonsense {
        Nonsense::Error | Nonsense::ErrorAfterGreeting | Nonsense::Okay | Nonsense::Noise => {
            &[Rejected, BreakerOpen]
        }
        _ => &[Disconnected, Timeout, BreakerOpen],
    }
}
