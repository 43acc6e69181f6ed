//! Server time per call: balde's script against the classic float bucket in a hash (`classic.lua`).
//!
//! What counts is what Redis itself measures (`INFO commandstats`), because scripts run one after
//! another there.

use balde::store::redis::script::{self, Header, LimitBlob, Step};
use balde_core::{Command, Limit};
use redis::{Connection, Pipeline};

use super::peer;
use balde_bench::{Table, median};

const KEYS: usize = 50;
const LIMIT: &str = "100/s burst 100000";

struct Case {
    name: &'static str,
    calls: Pipeline,
    us: Vec<f64>,
}

/// Microseconds per call of each kind, in a table.
pub(crate) fn measure(connection: &mut Connection, rounds: usize, pipelines: usize) -> Table {
    let classic = load(connection, include_str!("classic.lua"));
    let decide = load(connection, script::DECIDE);
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
        first.calls.exec(connection).expect("answers");
        cases.push(Case::new(name, |calls, key| call(calls, key, command)));
    }
    let limit: Limit = LIMIT.parse().expect("a limit");
    let step = Step::new(limit, LimitBlob::new(&limit), one);
    let constant = load(connection, &peer::constant(step));
    cases.push(Case::new("take, constant", |calls, key| {
        let to = calls.cmd("EVALSHA").arg(&constant).arg(1).arg(key);
        to.arg(peer::stand_ins(step));
    }));

    for _ in 0..rounds {
        for case in &mut cases {
            let us = case.measure(connection, pipelines);
            case.us.push(us);
        }
    }
    let mut table = Table::new(&["call", "server µs", "classic / this"]);
    for case in &cases {
        let ratios = cases[0].us.iter().zip(&case.us).map(|(a, b)| a / b);
        table.row(&[
            case.name.to_owned(),
            format!("{:.2}", median(case.us.clone())),
            format!("{:.2}", median(ratios.collect())),
        ]);
        eprintln!("{}", table.last_line());
    }
    table
}

impl Case {
    fn new(name: &'static str, call: impl Fn(&mut Pipeline, &str)) -> Self {
        let mut calls = Pipeline::new();
        for key in 0..KEYS {
            call(&mut calls, &format!("{name}:user:{key}"));
        }
        Self {
            name,
            calls,
            us: Vec::new(),
        }
    }

    fn measure(&self, connection: &mut Connection, pipelines: usize) -> f64 {
        let mut reset = redis::cmd("CONFIG");
        reset.arg("RESETSTAT").exec(connection).expect("a reset");
        for _ in 0..pipelines {
            self.calls.exec(connection).expect("answers");
        }
        evalsha(connection, "usec_per_call")
    }
}

pub(crate) fn load(connection: &mut Connection, text: &str) -> String {
    let mut command = redis::cmd("SCRIPT");
    let command = command.arg("LOAD").arg(text);
    command.query(connection).expect("a script")
}

/// One of the numbers that the server keeps about EVALSHA.
pub(crate) fn evalsha(connection: &mut Connection, number: &str) -> f64 {
    let mut stats = redis::cmd("INFO");
    let stats: String = stats.arg("commandstats").query(connection).expect("stats");
    let Some(evalsha) = stats.split("cmdstat_evalsha:").nth(1) else {
        return 0.0;
    };
    let text = evalsha.split(&format!("{number}=")).nth(1).expect("it");
    let digits = text.split([',', '\r']).next().expect("a number");
    digits.parse().expect("a number")
}
