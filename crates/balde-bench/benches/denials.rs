//! What a line for every denial costs the decisions: `cargo bench -p balde-bench --bench denials`.
//!
//! Denials are decided in processes of their own that take turns, in three ways:
//!
//! - with `Denials::Summary`;
//! - with `Denials::Every`;
//! - with `Denials::Summary`, while another thread of the process has another limiter with
//!   `Denials::Every` deny as often. The log thread then does the same work, but the timed decisions
//!   queue nothing: what they take longer than in the first way is the log's share of two cores, of
//!   their caches and of memory.
//!
//! The log of each process goes into a pipe, as in a container, and this program reads it and counts:
//! lines and counted drops must add up to the denials. Each decision is timed by itself. A timing
//! fails nothing.
//!
//! `--quick` makes it short, for trying things out, and then writes no report.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use balde::RateLimiter;
use balde::http::{PeerAddr, RateLimitLayer};
use balde::telemetry::{Denials, LogFormat, Logs};
use balde_bench as report;
use http::{Request, Response};
use tower::{Layer, Service, service_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const KEYS: usize = 1_000;

/// How denials are made: checks as fast as one thread can, checks at a rate that the log keeps up
/// with, and requests to a service with the layer, whose decision ends with the answer of a refusal.
const PACES: [(&str, &str); 3] = [
    ("flood", "checks, as fast as one thread can"),
    ("paced", "checks, 100,000 a second"),
    ("layer", "requests through the layer, 100,000 a second"),
];

const PACE: Duration = Duration::from_micros(10);

/// In a flood the log thread always has work; so it has with denials at this pace.
const PACE_BESIDE_FLOOD: Duration = Duration::from_micros(2);

/// The other thread denies in bursts, so that it uses little of a processor by itself.
const BURST_EVERY: Duration = Duration::from_millis(5);

const MODES: [&str; 3] = ["summary", "every", "summary, every beside"];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    if let (Some(mode), Some(pace)) = (after("--mode"), after("--pace")) {
        let checks = after("--checks").and_then(|n| n.parse().ok());
        sample(&mode, &pace, checks.unwrap_or(100_000));
        return;
    }
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let rounds = if is_quick { 7 } else { 21 };
    let mut table = report::Table::new(&[
        "denials",
        "logged",
        "p50, ns",
        "p99, ns",
        "p99.9, ns",
        "p99 to summary",
        "lines",
        "counted drops",
    ]);
    for (pace, text) in PACES {
        // A flood must be longer than the queue.
        let checks = if pace == "flood" { 1_000_000 } else { 50_000 };
        let mut samples = MODES.map(|_| Vec::new());
        for round in 0..rounds {
            // Each mode is the first equally often.
            for at in 0..MODES.len() {
                let at = (round + at) % MODES.len();
                samples[at].push(run(MODES[at], pace, checks));
            }
            eprintln!("{pace}: round {} of {rounds}", round + 1);
        }
        for (mode, of_mode) in MODES.iter().zip(&samples) {
            let in_turn = of_mode.iter().zip(&samples[0]);
            let ratios = in_turn.map(|(own, summary)| own.quantiles[1] / summary.quantiles[1]);
            table.row(&[
                text.to_owned(),
                (*mode).to_owned(),
                format!("{:.0}", median(of_mode, |sample| sample.quantiles[0])),
                format!("{:.0}", median(of_mode, |sample| sample.quantiles[1])),
                format!("{:.0}", median(of_mode, |sample| sample.quantiles[2])),
                format!("{:.2}", report::median(ratios.collect())),
                format!("{:.0}", median(of_mode, |sample| sample.lines)),
                format!("{:.0}", median(of_mode, |sample| sample.dropped)),
            ]);
            eprintln!("{}", table.last_line());
        }
    }
    let text = format!(
        "Durations of single denials in memory, as `Instant` measures them (two readings of the \
         clock included), {KEYS} keys, one thread; the log is read from a pipe. Medians of {rounds} \
         rounds in turn, each in a process of its own; the ratio is the median of the rounds' \
         ratios. A round has 1,000,000 denials of a flood, 50,000 of the others. Lines and counted \
         drops add up to the denials in every round.\n\n\
         \"Summary, every beside\" is the baseline with a busy log thread: the timed limiter logs \
         summaries, while a second limiter in another thread denies as often and logs every \
         denial.\n\n{table}",
    );
    println!("{text}");
    if !is_quick {
        let command = "cargo bench -p balde-bench --bench denials";
        report::write("denials", command, &text);
    }
}

struct Sample {
    /// p50, p99 and p99.9, in nanoseconds.
    quantiles: [f64; 3],
    lines: f64,
    dropped: f64,
}

fn median(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    report::median(samples.iter().map(value).collect())
}

/// Runs one sample in a process of its own, and reads its log.
#[expect(clippy::cast_precision_loss, reason = "counts of lines fit")]
fn run(mode: &str, pace: &str, checks: u64) -> Sample {
    let own = std::env::current_exe().expect("this program has a path");
    let mut child = Command::new(own)
        .args(["--mode", mode, "--pace", pace])
        .args(["--checks", &checks.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program can be started again");
    let log = BufReader::new(child.stdout.take().expect("its output"));
    let (mut lines, mut dropped) = (0_u64, 0_u64);
    for line in log.lines() {
        let line = line.expect("text");
        if line.contains(r#""event_type":"denied""#) {
            lines += 1;
        } else if let Some((_, rest)) = line.split_once(r#""dropped":"#) {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            dropped += digits.parse::<u64>().expect("a number");
        }
    }
    let mut numbers = String::new();
    let mut result = child.stderr.take().expect("its result");
    result.read_to_string(&mut numbers).expect("text");
    assert!(child.wait().expect("it ends").success(), "{numbers}");
    if mode == "every" {
        assert_eq!(lines + dropped, checks, "one line each or a counted drop");
    }
    let quantiles: Vec<f64> = numbers
        .split_whitespace()
        .map(|number| number.parse().expect("a number"))
        .collect();
    Sample {
        quantiles: quantiles.try_into().expect("three numbers"),
        lines: lines as f64,
        dropped: dropped as f64,
    }
}

/// Decides and prints the quantiles to standard error; the log is on standard output.
fn sample(mode: &str, pace: &str, checks: usize) {
    let (layer, guard) = Logs::new().format(LogFormat::Json).layer();
    tracing_subscriber::registry().with(layer).init();
    let denials = match mode {
        "every" => Denials::Every,
        _ => Denials::Summary,
    };
    let build = |denials| {
        let builder = RateLimiter::builder().name("per-user").limit("1/97day");
        let built = builder.denials(denials).build();
        built.expect("the limit is valid")
    };
    let limiter = build(denials);
    let is_done = AtomicBool::new(false);
    let mut took = thread::scope(|scope| {
        if mode == MODES[2] {
            let every = match pace {
                "flood" => PACE_BESIDE_FLOOD,
                _ => PACE,
            };
            let other = build(Denials::Every);
            let is_done = &is_done;
            scope.spawn(move || deny_beside(&other, every, is_done));
        }
        let took = match pace {
            "layer" => requests(&limiter, checks),
            _ => direct(&limiter, pace == "paced", checks),
        };
        is_done.store(true, Ordering::Relaxed);
        took
    });
    drop(guard);
    took.sort_unstable();
    let quantile = |thousandths: usize| took[took.len() * thousandths / 1_000].as_nanos();
    eprintln!("{} {} {}", quantile(500), quantile(990), quantile(999));
}

/// Makes the denials of another limiter, in bursts, until the timed ones are done.
fn deny_beside(limiter: &RateLimiter, every: Duration, is_done: &AtomicBool) {
    let keys = keys();
    let check = limiter.blocking();
    for key in &keys {
        assert!(check.check(key).is_allowed());
    }
    let start = Instant::now();
    let mut at = 0;
    while !is_done.load(Ordering::Relaxed) {
        thread::sleep(BURST_EVERY);
        let due = start.elapsed().as_nanos() / every.as_nanos();
        while at < usize::try_from(due).expect("a number of checks") {
            black_box(check.check(&keys[at * 619 % KEYS]));
            at += 1;
        }
    }
}

fn keys() -> Vec<String> {
    let key = |n| format!("tenant-{n:05}/user-{n:06}");
    (0..KEYS).map(key).collect()
}

/// Waits until the time of the next denial.
fn pace(start: Instant, at: usize) {
    let due = PACE * u32::try_from(at).expect("a number of checks");
    while start.elapsed() < due {
        std::hint::spin_loop();
    }
}

fn direct(limiter: &RateLimiter, is_paced: bool, checks: usize) -> Vec<Duration> {
    let keys = keys();
    let check = limiter.blocking();
    for key in &keys {
        assert!(check.check(key).is_allowed());
    }
    let mut took = Vec::with_capacity(checks);
    let start = Instant::now();
    for at in 0..checks {
        if is_paced {
            pace(start, at);
        }
        let key = &keys[at * 619 % KEYS];
        let begin = Instant::now();
        let decision = check.check(black_box(key));
        took.push(begin.elapsed());
        assert!(!decision.is_allowed());
    }
    took
}

fn requests(limiter: &RateLimiter, checks: usize) -> Vec<Duration> {
    let answer =
        |_request: Request<String>| ready(Ok::<_, Infallible>(Response::new(String::new())));
    let mut service = RateLimitLayer::new(limiter.clone()).layer(service_fn(answer));
    let mut status = |caller: usize| {
        let low = u16::try_from(caller).expect("few callers");
        let peer = SocketAddr::from((Ipv4Addr::from_bits(0xC633_0000 | u32::from(low)), 4_711));
        let mut request = Request::new(String::new());
        request.extensions_mut().insert(PeerAddr(peer));
        let begin = Instant::now();
        let mut answered = pin!(service.call(black_box(request)));
        let polled = answered
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let took = begin.elapsed();
        match polled {
            Poll::Ready(Ok(answer)) => (answer.status(), took),
            _ => panic!("in memory nothing waits"),
        }
    };
    for caller in 0..KEYS {
        assert_eq!(status(caller).0, 200);
    }
    let mut took = Vec::with_capacity(checks);
    let start = Instant::now();
    for at in 0..checks {
        pace(start, at);
        let (status, elapsed) = status(at * 619 % KEYS);
        assert_eq!(status, 429);
        took.push(elapsed);
    }
    took
}
