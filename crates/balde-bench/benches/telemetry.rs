//! What being watched costs: `cargo bench -p balde-bench --bench telemetry`.
//!
//! Who listens is a matter of the whole process, so every sample is taken in a process of its own.
//! They take turns, so that what else the machine does falls on all of them alike. The least over the
//! rounds is what it costs on a core that nobody else wanted; the median says how it was on this
//! machine. A timing fails nothing.
//!
//! `--quick` makes it short, for trying things out, and then writes no report.

use std::hint::black_box;
use std::io;
use std::process::Command;
use std::sync::Barrier;
use std::time::Instant;

use balde::RateLimiter;
use balde::telemetry::{Metrics, Otlp, OtlpGuard, json_logs_to};
use balde_bench as report;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const KEYS: usize = 1_000;

/// Never reached, so that every check takes a token: the dear case.
const WIDE: &str = "1000/s burst 1000000000";
const NARROW: &str = "1/97day";

const SUBJECTS: [(&str, &str); 9] = [
    ("bare", "nobody counts, nobody listens"),
    ("metrics", "metrics"),
    ("logs", "JSON lines (INFO), no metrics"),
    ("metrics-logs", "metrics and JSON lines (INFO)"),
    ("refused", "refused: nobody counts, nobody listens"),
    (
        "refused-metrics-logs",
        "refused: metrics and JSON lines (INFO)",
    ),
    (
        "spans",
        "spans made for a listener that does nothing with them",
    ),
    ("spans-one-in-100", "spans exported, one trace in 100"),
    (
        "spans-all",
        "spans exported, every one (the collector is away)",
    ),
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    let is_quick = args.iter().any(|arg| arg == "--quick");
    // Short samples, and many: on a busy machine a long one is never left alone.
    let checks = 100_000;
    let rounds = if is_quick { 3 } else { 41 };
    if let Some(subject) = after("--subject") {
        let threads = after("--threads").and_then(|n| n.parse().ok()).unwrap_or(1);
        println!("{}", sample(&subject, threads, checks));
        return;
    }

    let mut table = report::Table::new(&[
        "checks with",
        "1 thread, least, ns",
        "more than bare",
        "1 thread, median",
        "2 threads, median",
    ]);
    let mut bare = None;
    for ((_, text), [one, two]) in SUBJECTS.iter().zip(measure(rounds)) {
        let least = one.iter().copied().fold(f64::INFINITY, f64::min);
        let bare = *bare.get_or_insert(least);
        table.row(&[
            (*text).to_owned(),
            format!("{least:.1}"),
            format!("{:+.1}", least - bare),
            format!("{:.1}", report::median(one)),
            format!("{:.1}", report::median(two)),
        ]);
        eprintln!("{}", table.last_line());
    }
    let text = format!(
        "Nanoseconds per check in memory as each thread sees it, {KEYS} keys, precise clock; \
         {rounds} rounds of {checks} checks (spans: a fifth of that) per thread, each sample in a \
         process of its own.\n\n{table}",
    );
    println!("{text}");
    if !is_quick {
        let command = "cargo bench -p balde-bench --bench telemetry";
        report::write("telemetry", command, &text);
    }
}

/// All samples of each subject, with one thread and with two.
fn measure(rounds: usize) -> Vec<[Vec<f64>; 2]> {
    let own = std::env::current_exe().expect("this program has a path");
    let mut samples = vec![[Vec::new(), Vec::new()]; SUBJECTS.len()];
    for round in 0..rounds {
        for ((name, _), samples) in SUBJECTS.iter().zip(&mut samples) {
            for (threads, samples) in ["1", "2"].iter().zip(samples) {
                let mut child = Command::new(&own);
                child.args(["--subject", name, "--threads", threads]);
                let output = child.output().expect("this program can be started again");
                let ns = String::from_utf8_lossy(&output.stdout).trim().parse();
                samples.push(ns.expect("a number"));
            }
        }
        eprintln!("round {} of {rounds}", round + 1);
    }
    samples
}

/// Nanoseconds per check, with every thread doing all of them.
fn sample(subject: &str, threads: usize, checks: usize) -> f64 {
    let _guard = listen(subject);
    let checks = if subject.starts_with("spans") {
        checks / 5
    } else {
        checks
    };
    let is_refused = subject.starts_with("refused");
    let builder = RateLimiter::builder().limit(if is_refused { NARROW } else { WIDE });
    let limiter = if subject.contains("metrics") {
        builder.metrics(&Metrics::new()).build()
    } else {
        builder.build()
    };
    let limiter = limiter.expect("the limit is valid");
    let keys: Vec<String> = (0..KEYS)
        .map(|n| format!("tenant-{n:05}/user-{n:06}"))
        .collect();
    // All keys are known before anything is timed.
    for key in &keys {
        assert!(limiter.blocking().check(key).is_allowed());
    }
    let barrier = Barrier::new(threads);
    let run = |thread: usize| {
        let limiter = limiter.blocking();
        barrier.wait();
        let start = Instant::now();
        let mut allowed = 0_usize;
        for at in 0..checks {
            // A step that is prime to the number of keys visits them all, in no simple order.
            let key = &keys[(at * 619 + thread * 311) % KEYS];
            allowed += usize::from(limiter.check(black_box(key)).is_allowed());
        }
        let elapsed = start.elapsed();
        assert_eq!(allowed, if is_refused { 0 } else { checks });
        elapsed
    };
    let slowest = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|n| scope.spawn(move || run(n))).collect();
        let joined = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|time| time.expect("no worker panics")).max()
    });
    #[expect(clippy::cast_precision_loss, reason = "a count of checks fits")]
    let checks = checks as f64;
    slowest.unwrap_or_default().as_secs_f64() * 1e9 / checks
}

struct Silent;

impl<S: tracing::Subscriber> Layer<S> for Silent {}

/// Who listens, for the whole process.
fn listen(subject: &str) -> Option<OtlpGuard> {
    let registry = tracing_subscriber::registry();
    let export = |one_in| {
        let otlp = Otlp::grpc("http://127.0.0.1:9").sample_one_in(one_in);
        otlp.timeout(std::time::Duration::from_millis(100)).layer()
    };
    match subject {
        "spans" => registry.with(Silent.with_filter(LevelFilter::DEBUG)).init(),
        "spans-one-in-100" | "spans-all" => {
            let one_in = if subject == "spans-all" { 1 } else { 100 };
            let (layer, guard) = export(one_in).expect("the address is one");
            registry.with(layer).init();
            return Some(guard);
        }
        _ if subject.ends_with("logs") => registry.with(json_logs_to(io::sink)).init(),
        _ => {}
    }
    None
}
