//! `balde inspect`, run as its users run it, over a real redis-server.

#[expect(dead_code, reason = "an address is enough here")]
#[path = "../../balde/tests/support/redis_server.rs"]
mod redis_server;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use balde::{OnFailure, RateLimiter, RedisStore};
use redis_server::RedisServer;
use serde_json::Value;

const SALT: &str = "pepper";

fn command(server: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    command.args(["inspect", "--redis", server]).args(arguments);
    command
        .env_remove("REDIS_PASSWORD")
        .env("RL_LOG_SALT", SALT);
    command
}

fn stdout(server: &str, arguments: &[&str]) -> String {
    let output = command(server, arguments)
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(server: &str, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    serde_json::from_str(&stdout(server, &arguments)).expect("JSON")
}

fn stderr_of(output: Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("text")
}

fn limiter(store: &RedisStore, name: &str, limit: &str) -> RateLimiter {
    let builder = RateLimiter::builder().name(name).limit(limit);
    builder
        .redis(store, OnFailure::Deny)
        .build()
        .expect("a limiter")
}

/// Takes tokens until the store has answered.
fn take(limiter: &RateLimiter, key: &str, n: u64) {
    for _ in 0..200 {
        let decision = limiter.blocking().check_n(key, n);
        if !decision.is_fallback() {
            assert!(decision.is_allowed(), "{decision:?}");
            return;
        }
    }
    panic!("the store did not answer");
}

#[test]
fn buckets_are_shown_by_key_by_hash_and_by_what_is_left() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let url = server.url();
    let store = RedisStore::builder()
        .address(&url)
        .timeout(balde::REDIS_TIMEOUT_MAX)
        .build()
        .expect("a store");
    let users = limiter(&store, "per-user", "1/h burst 100 debt 50");
    take(&users, "alice", 30);
    take(&users, "b}o{b:!%", 99);
    users.blocking().charge("carol", 120).expect("an answer");
    let tenants = limiter(&store, "per-tenant", "60/day window");
    take(&tenants, "acme", 6);
    for n in 0..150 {
        take(&tenants, &format!("tenant {n}"), 1);
    }

    // One, by its key.
    let alice = json(&url, &["per-user", "alice"]);
    assert_eq!(alice["limiter"], "per-user");
    assert_eq!(alice["key"], "alice");
    assert_eq!(alice["level"], 70);
    assert_eq!(alice["capacity"], 100);
    assert_eq!(alice["limit"], "1/h burst 100 debt 50");
    assert_eq!(alice["next_token_in_us"], 0);
    let full_s = alice["full_in_us"].as_u64().expect("a number") / 1_000_000;
    assert!((29 * 3_600..=30 * 3_600).contains(&full_s), "{full_s} s");
    let table = stdout(&url, &["per-user", "alice"]);
    assert!(table.contains("alice") && table.contains("70 %"), "{table}");
    assert!(table.contains("UTC +"), "{table}");
    assert_eq!(json(&url, &["per-user", "b}o{b:!%"])["level"], 1);
    assert_eq!(json(&url, &["per-user", "carol"])["level"], -20);
    let nobody = json(&url, &["per-user", "nobody"]);
    assert_eq!(nobody["is_stored"], false);
    assert!(stdout(&url, &["per-user", "nobody"]).contains("nobody: full."));

    // By the hash that a log line shows.
    let hash = balde::telemetry::key_hash(SALT.as_bytes(), b"acme");
    let by_hash = json(&url, &["per-tenant", "--hash", &hash[..12]]);
    assert_eq!(by_hash["buckets"][0]["key"], "acme");
    assert_eq!(by_hash["buckets"][0]["level"], 54);
    let over_all = json(&url, &["--hash", &hash.to_uppercase()]);
    assert_eq!(over_all["buckets"][0]["limiter"], "per-tenant");

    // The emptiest, of one limiter and of all.
    let lowest = json(&url, &["--lowest", "3"]);
    let keys: Vec<_> = (0..3)
        .map(|n| lowest["buckets"][n]["key"].clone())
        .collect();
    assert_eq!(keys, ["carol", "b}o{b:!%", "alice"]);
    assert_eq!(lowest["scanned"]["buckets"], 154);
    assert_eq!(lowest["scanned"]["is_complete"], true);
    let tenants = json(&url, &["per-tenant", "--lowest", "1000"]);
    let tenants = tenants["buckets"].as_array().expect("a list");
    assert_eq!(tenants.len(), 151);
    assert_eq!(tenants[0]["key"], "acme");

    // A scan stops at its bound, and says so.
    let cut = json(&url, &["--scan-max", "50"]);
    assert_eq!(cut["scanned"]["is_complete"], false);
    assert!(stdout(&url, &["--scan-max", "50"]).contains("see --scan-max"));

    // Again and again, one object per line.
    let mut watching = command(&url, &["per-user", "alice", "--watch", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let lines = BufReader::new(watching.stdout.take().expect("its output")).lines();
    for line in lines.take(2) {
        let look: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        assert_eq!(look["level"], 70);
    }
    watching.kill().expect("it was running");
    watching.wait().expect("a child to wait for");
}

#[test]
fn errors_say_what_to_do() {
    let run = |arguments: &[&str]| {
        let output = command("127.0.0.1:1", arguments)
            .output()
            .expect("the binary runs");
        stderr_of(output)
    };
    let refused = run(&["per-user", "alice"]);
    assert!(refused.contains("Redis at 127.0.0.1:1"), "{refused}");
    assert!(refused.contains("is the server running"), "{refused}");
    let secret = command("redis://user:hunter2@127.0.0.1:1", &["per-user"]).output();
    let secret = stderr_of(secret.expect("the binary runs"));
    assert!(
        secret.contains("127.0.0.1:1") && !secret.contains("hunter2"),
        "{secret}"
    );
    assert!(run(&["--hash", "xyz"]).contains("hexadecimal digits"));
    let unsalted = command("127.0.0.1:1", &["--hash", "b1b68da4"])
        .env_remove("RL_LOG_SALT")
        .output()
        .expect("the binary runs");
    assert!(stderr_of(unsalted).contains("RL_LOG_SALT"));

    let Some(server) = RedisServer::start_with(&["--requirepass", "secret"]) else {
        return;
    };
    let locked = command(&server.url(), &["per-user"]).output();
    let locked = stderr_of(locked.expect("the binary runs"));
    assert!(locked.contains("REDIS_PASSWORD"), "{locked}");
    let open = command(&server.url(), &["per-user"])
        .env("REDIS_PASSWORD", "secret")
        .output()
        .expect("the binary runs");
    assert!(open.status.success());
    let mut hidden = Command::new(env!("CARGO_BIN_EXE_balde"));
    hidden
        .args(["inspect", "per-user"])
        .env_remove("REDIS_ADDR");
    let nowhere = stderr_of(hidden.output().expect("the binary runs"));
    assert!(nowhere.contains("--redis HOST:PORT"), "{nowhere}");
}
