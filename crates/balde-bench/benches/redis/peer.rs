//! redis-benchmark, told to do what we do.

use std::fmt::Write as _;
use std::process::Command;

use balde::store::redis::script::{self, Header, Step};

use super::callers::Figures;

/// The name of a bucket, with a place for the number of the key. As long as balde's own.
pub(crate) const BUCKET: &str = "peers:bench:{user-__rand_int__}";

/// The script with its arguments in it: redis-benchmark takes its own from the command line, where
/// there are no zero bytes. `stand_ins` are sent instead, for the length.
pub(crate) fn constant(step: Step) -> String {
    let [limit, command]: [Vec<u8>; 2] = script::encode(&[step], Header::default())
        .try_into()
        .expect("a limit and a command");
    let [limit, command] = [literal(&limit), literal(&command)];
    format!("local ARGV = {{{limit}, {command}}}\n{}", script::DECIDE)
}

pub(crate) fn stand_ins(step: Step) -> Vec<String> {
    let args = script::encode(&[step], Header::default());
    args.iter().map(|arg| "x".repeat(arg.len())).collect()
}

fn literal(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in bytes {
        write!(text, "\\{byte:03}").expect("text takes all");
    }
    text + "\""
}

/// How many connections, how many calls under way on each, and over how many keys.
#[derive(Clone, Copy)]
pub(crate) struct Depth {
    pub(crate) connections: usize,
    pub(crate) pipeline: usize,
    pub(crate) keys: usize,
    pub(crate) calls: usize,
}

impl Depth {
    pub(crate) fn measure(self, port: u16, command: &[&str]) -> Figures {
        let output = Command::new("redis-benchmark")
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "--csv"])
            .args(["-c", &self.connections.to_string()])
            .args(["-P", &self.pipeline.to_string()])
            .args(["-n", &self.calls.to_string()])
            .args(["-r", &self.keys.to_string()])
            .args(command)
            .output()
            .expect("redis-benchmark is installed");
        let text = String::from_utf8_lossy(&output.stdout);
        // The last line: a name, calls per second, then average, least, p50, p95, p99 and most in ms.
        let line = text.lines().last().unwrap_or_default();
        let numbers: Vec<f64> = line
            .rsplit("\",\"")
            .map(|cell| cell.trim_matches('"').parse().unwrap_or(f64::NAN))
            .collect();
        let [_most, p99, _p95, p50, _least, _average, per_second, ..] = numbers[..] else {
            panic!("redis-benchmark said {text}");
        };
        Figures {
            per_second,
            p50_us: p50 * 1e3,
            p99_us: p99 * 1e3,
            fallbacks: 0,
        }
    }
}
