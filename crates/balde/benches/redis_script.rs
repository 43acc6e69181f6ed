//! Server time per call: balde's script against the classic float bucket in a hash (`classic.lua`).
//!
//! What counts is what Redis itself measures (`INFO commandstats`), because scripts run one after
//! another there. The cases take turns, so that a busy machine slows all of them.
//!
//! `cargo bench -p balde --features redis --bench redis_script`

#[expect(dead_code, reason = "nothing is killed or frozen here")]
#[path = "../tests/support/redis_server.rs"]
mod redis_server;

use balde::store::redis::script::{self, Header, LimitBlob, Step};
use balde_core::{Command, Limit};
use redis::{Client, Connection, Pipeline};
use redis_server::RedisServer;

const ROUNDS: usize = 15;
const PIPELINES: usize = 200;
const KEYS: usize = 50;
const LIMIT: &str = "100/s burst 100000";

struct Case {
    name: &'static str,
    calls: Pipeline,
    us: Vec<f64>,
}

fn main() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let client = Client::open(server.url()).expect("an address");
    let mut connection = client.get_connection().expect("a connection");
    let classic = load(&mut connection, include_str!("classic.lua"));
    let decide = load(&mut connection, script::DECIDE);
    let one = Command::Take { n: 1 };
    let stepwise = format!("{LIMIT} stepwise");

    let mut cases = vec![Case::new("classic", |calls, key| {
        let command = calls.cmd("EVALSHA").arg(&classic).arg(1);
        command.arg(key).arg(100_000).arg(100).arg(1);
    })];
    for (name, limit, command, buckets) in [
        ("take", LIMIT, one, 1),
        ("take, refused", LIMIT, Command::Take { n: 100_001 }, 1),
        ("take, stepwise", &stepwise, one, 1),
        ("take, window", "100000/h window", one, 1),
        ("take up to", LIMIT, Command::TakeUpTo { n: 1 }, 1),
        ("charge", LIMIT, Command::Charge { n: 1 }, 1),
        ("take from 2 buckets", LIMIT, one, 2),
        ("take from 4 buckets", LIMIT, one, 4),
    ] {
        let limit: Limit = limit.parse().expect("a limit");
        let step = |command| vec![Step::new(limit, LimitBlob::new(&limit), command); buckets];
        let call = |calls: &mut Pipeline, key: &str, command| {
            let to = calls.cmd("EVALSHA").arg(&decide).arg(buckets);
            for n in 0..buckets {
                to.arg(format!("{{{name}:{key}}}:{n}"));
            }
            to.arg(script::encode(&step(command), Header::default()));
        };
        // Every bucket is known when it is measured.
        let first = Case::new(name, |calls, key| {
            call(calls, key, Command::Charge { n: 50_000 });
        });
        first.calls.exec(&mut connection).expect("answers");
        cases.push(Case::new(name, |calls, key| call(calls, key, command)));
    }

    for _ in 0..ROUNDS {
        for case in &mut cases {
            let us = case.measure(&mut connection);
            case.us.push(us);
        }
    }
    println!("server time per call, median of {ROUNDS} rounds in turns; ratio round by round");
    for case in &cases {
        let ratios = cases[0].us.iter().zip(&case.us).map(|(a, b)| a / b);
        println!(
            "{:20} {:6.2} us   classic / this {:5.2}",
            case.name,
            median(case.us.iter().copied()),
            median(ratios),
        );
    }
}

impl Case {
    fn new(name: &'static str, call: impl Fn(&mut Pipeline, &str)) -> Self {
        let mut calls = Pipeline::new();
        for key in 0..KEYS {
            call(&mut calls, &format!("user:{key}"));
        }
        Self {
            name,
            calls,
            us: Vec::new(),
        }
    }

    fn measure(&self, connection: &mut Connection) -> f64 {
        let mut reset = redis::cmd("CONFIG");
        reset.arg("RESETSTAT").exec(connection).expect("a reset");
        for _ in 0..PIPELINES {
            self.calls.exec(connection).expect("answers");
        }
        let mut stats = redis::cmd("INFO");
        let stats: String = stats.arg("commandstats").query(connection).expect("stats");
        let evalsha = stats.split("cmdstat_evalsha:").nth(1).expect("evalsha");
        let per_call = evalsha.split("usec_per_call=").nth(1).expect("its time");
        let number = per_call.split(',').next().expect("a number");
        number.parse().expect("a number")
    }
}

fn load(connection: &mut Connection, text: &str) -> String {
    let mut command = redis::cmd("SCRIPT");
    command
        .arg("LOAD")
        .arg(text)
        .query(connection)
        .expect("a script")
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
