//! The example, started as a user starts it: with buckets in memory and in a real Redis.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::redis_server::RedisServer;

struct Example {
    child: Child,
    address: String,
}

impl Example {
    fn start(environment: &[(&str, &str)]) -> Self {
        let own = std::env::current_exe().unwrap();
        let folder = own.parent().and_then(|deps| deps.parent()).unwrap();
        let program = folder.join("examples").join("axum_profile");
        assert!(
            program.exists(),
            "{} is not built: cargo build -p balde-policy --all-features --examples",
            program.display()
        );
        let mut child = Command::new(program)
            .env_remove("REDIS_ADDR")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut first).unwrap();
        let address = first.trim().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("{first}")).to_owned();
        Self { child, address }
    }

    /// The status and the header field `x-ratelimit-remaining` of a response.
    fn request(&self, head: &str) -> (u16, Option<i64>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let timeout = Some(Duration::from_secs(10));
        stream.set_read_timeout(timeout).unwrap();
        let request = format!(
            "{head} HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let response = response.to_lowercase();
        let status = response
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok());
        let remaining = response.lines().find_map(|line| {
            let value = line.strip_prefix("x-ratelimit-remaining: ")?;
            value.trim().parse().ok()
        });
        (status.unwrap_or_else(|| panic!("{response}")), remaining)
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Limits, prices by status and credits are those of the file beside the example.
fn follows_its_profile(example: &Example) {
    // While it connects to Redis the policy denies.
    let mut first = example.request("GET /items/42");
    while first.0 == 503 {
        first = example.request("GET /items/42");
    }
    assert_eq!(first, (200, Some(99)));
    for remaining in [79, 59, 39, 19] {
        assert_eq!(example.request("GET /items/7"), (404, Some(remaining)));
    }
    // The same order gives its token back once.
    for _ in 0..3 {
        assert_eq!(example.request("POST /orders/a").0, 200);
    }
    assert_eq!(example.request("GET /items/7"), (404, Some(0)));
    let (status, remaining) = example.request("GET /items/42");
    assert_eq!((status, remaining), (429, Some(0)));
}

#[test]
fn the_example_follows_its_profile_in_memory() {
    follows_its_profile(&Example::start(&[]));
}

#[test]
fn the_example_follows_its_profile_over_redis() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let address = server.addr().to_string();
    follows_its_profile(&Example::start(&[("REDIS_ADDR", &address)]));
}
