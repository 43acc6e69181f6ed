//! What is measured, in which order, and what is made of it.

use std::time::Duration;

use balde::store::redis::script::{LimitBlob, Step};
use balde::{Leases, OnFailure, RateLimiter, RedisStore};
use balde_core::{Command, Limit};
use redis::Connection;
use tokio::runtime::{self, Runtime};

use super::callers::{self, Figures};
use super::peer::{self, BUCKET, Depth};
use super::redis_server::RedisServer;
use super::server_time;
use balde_bench::{self as report, Table, median};

/// Never reached, so that every check takes a token: the dear case.
const LIMIT: &str = "1000/s burst 1000000000";
const CONNECTIONS: usize = 2;

const SUBJECTS: usize = 7;

struct Bench {
    server: RedisServer,
    admin: Connection,
    /// One thread, as redis-benchmark has: the server needs the other core.
    runtime: Runtime,
    /// A thread to each core, as programs have.
    spread_runtime: Runtime,
    spread: RateLimiter,
    plain: RateLimiter,
    leased: RateLimiter,
    constant: String,
    classic: String,
    stand_ins: Vec<String>,
}

pub(crate) fn run(is_quick: bool) {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let (rounds, seconds) = if is_quick { (1, 0.3) } else { (5, 0.5) };
    let mut bench = Bench::new(server);
    let script = server_time::measure(
        &mut bench.admin,
        rounds * 3,
        if is_quick { 50 } else { 200 },
    );

    let mut speed = Table::new(&[
        "keys",
        "callers",
        "balde /s",
        "p50, p99 µs",
        "balde, a thread to each core /s",
        "on leases /s",
        "p50, p99 µs",
        "same script /s",
        "one connection to each caller /s",
        "SET /s",
        "classic /s",
        "balde / same script",
        "a thread to each core / same script",
        "balde / SET",
        "leases / balde",
        "calls per 1,000 on leases",
    ]);
    let mut fallbacks = 0;
    for keys in [1, 10_000] {
        for callers in [1, 64, 256] {
            let samples: Vec<_> = (0..rounds)
                .map(|_| bench.round(callers, keys, Duration::from_secs_f64(seconds)))
                .collect();
            let all = samples.iter().flat_map(|one| &one.figures);
            fallbacks += all.map(|figures| figures.fallbacks).sum::<usize>();
            speed.row(&row(keys, callers, &samples));
            eprintln!("{}", speed.last_line());
        }
    }
    let text = format!(
        "Server time per call in microseconds, as Redis itself measures it; median of {} rounds, \
         ratios within a round.\n\n{script}\n\
         Decisions per second, each of which takes a token; median of {rounds} rounds of {seconds} \
         s each. The client, redis-benchmark and the server share this machine's {} cores with \
         whatever else runs there. balde runs in one thread, as redis-benchmark does, unless the \
         column says otherwise. Both use {CONNECTIONS} connections (one for one caller) with as \
         many calls under way as there are callers; where it says so, redis-benchmark has \
         a connection to each caller instead. Decisions that did not come \
         from Redis because the machine stalled: {fallbacks}, not counted.\n\n{speed}",
        rounds * 3,
        std::thread::available_parallelism().map_or(0, usize::from),
    );
    println!("{text}");
    if !is_quick {
        report::write("redis", "cargo bench -p balde-bench --bench redis", &text);
    }
}

/// What one round saw of each subject, and the calls per 1,000 decisions on leases.
struct Sample {
    figures: [Figures; SUBJECTS],
    calls_per_1000: f64,
}

impl Bench {
    fn new(server: RedisServer) -> Self {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let spread_runtime = Runtime::new().expect("a runtime");
        let client = redis::Client::open(server.url()).expect("an address");
        let mut admin = client.get_connection().expect("a connection");
        let limit: Limit = LIMIT.parse().expect("a limit");
        let step = Step::new(limit, LimitBlob::new(&limit), Command::Take { n: 1 });
        let limiter = |runtime: &Runtime, leases: Option<Leases>| {
            let _inside = runtime.enter();
            let store = RedisStore::builder()
                .address(server.url())
                .connections(CONNECTIONS)
                .timeout(balde::REDIS_TIMEOUT_MAX)
                .build()
                .expect("a store");
            let mut builder = RateLimiter::builder().name("bench").limit(LIMIT);
            builder = builder.redis(&store, OnFailure::Deny);
            if let Some(leases) = leases {
                builder = builder.leases(leases);
            }
            let limiter = builder.build().expect("a limiter");
            // Connected, and the script known.
            while runtime.block_on(limiter.check("first")).is_fallback() {}
            limiter
        };
        Self {
            plain: limiter(&runtime, None),
            leased: limiter(&runtime, Some(Leases::new())),
            spread: limiter(&spread_runtime, None),
            spread_runtime,
            constant: server_time::load(&mut admin, &peer::constant(step)),
            classic: server_time::load(&mut admin, include_str!("classic.lua")),
            stand_ins: peer::stand_ins(step),
            server,
            admin,
            runtime,
        }
    }

    fn round(&mut self, callers: usize, keys: usize, runs: Duration) -> Sample {
        let connections = CONNECTIONS.min(callers);
        let ours = |runtime: &Runtime, limiter| {
            runtime.block_on(callers::measure(limiter, callers, keys, runs))
        };
        let plain = ours(&self.runtime, &self.plain);
        let spread = ours(&self.spread_runtime, &self.spread);
        let before = server_time::evalsha(&mut self.admin, "calls");
        let leased = ours(&self.runtime, &self.leased);
        let calls = server_time::evalsha(&mut self.admin, "calls") - before;
        let decisions = leased.per_second * runs.as_secs_f64();

        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of calls"
        )]
        let calls_wanted = (plain.per_second * runs.as_secs_f64()) as usize;
        let depth = Depth {
            connections,
            pipeline: callers / connections,
            keys,
            calls: calls_wanted.max(1_000),
        };
        let apart = Depth {
            connections: callers,
            pipeline: 1,
            ..depth
        };
        let port = self.server.port();
        let mut script = vec!["EVALSHA", self.constant.as_str(), "1", BUCKET];
        script.extend(self.stand_ins.iter().map(String::as_str));
        let value = "x".repeat(61);
        let set = ["SET", BUCKET, &value];
        let classic_bucket = format!("classic:{BUCKET}");
        let classic = [
            "EVALSHA",
            &self.classic,
            "1",
            &classic_bucket,
            "1000000000",
            "1000",
            "1",
        ];
        let peers = [
            depth.measure(port, &script),
            apart.measure(port, &script),
            depth.measure(port, &classic),
            // Last, and then away: the script does not take strangers for buckets.
            depth.measure(port, &set),
        ];
        redis::cmd("FLUSHALL").exec(&mut self.admin).expect("done");
        let failed = server_time::evalsha(&mut self.admin, "failed_calls");
        assert!(failed == 0.0, "{failed} calls of a script failed");
        let [same, apart, classic, set] = peers;
        Sample {
            figures: [plain, leased, same, apart, set, classic, spread],
            calls_per_1000: calls * 1e3 / decisions,
        }
    }
}

fn row(keys: usize, callers: usize, samples: &[Sample]) -> Vec<String> {
    let of = |what: &dyn Fn(&Sample) -> f64| median(samples.iter().map(what).collect());
    let rate = |subject: usize| format!("{:.0}", of(&|one| one.figures[subject].per_second));
    let times = |subject: usize| {
        let p50 = of(&|one| one.figures[subject].p50_us);
        let p99 = of(&|one| one.figures[subject].p99_us);
        format!("{p50:.1}, {p99:.1}")
    };
    let ratio = |a: usize, b: usize| {
        let ratio = of(&|one| one.figures[a].per_second / one.figures[b].per_second);
        format!("{ratio:.2}")
    };
    let [plain, leased, same, apart, set, classic, spread] = [0, 1, 2, 3, 4, 5, 6];
    vec![
        keys.to_string(),
        callers.to_string(),
        rate(plain),
        times(plain),
        rate(spread),
        rate(leased),
        times(leased),
        rate(same),
        rate(apart),
        rate(set),
        rate(classic),
        ratio(plain, same),
        ratio(spread, same),
        ratio(plain, set),
        ratio(leased, plain),
        format!("{:.1}", of(&|one| one.calls_per_1000)),
    ]
}
