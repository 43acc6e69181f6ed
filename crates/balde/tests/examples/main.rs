//! The examples do what their first lines say: each is started as a user would start it, and asked
//! what its curl lines ask. `cargo test` builds them; alone, `cargo build --examples` does.

mod readmes;

#[path = "../support/redis_server.rs"]
#[expect(dead_code, reason = "other tests do more to their servers")]
mod redis_server;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis_server::RedisServer;

struct Example {
    child: Child,
    address: String,
}

impl Example {
    fn start(name: &str, environment: &[(&str, &str)]) -> Self {
        let own = std::env::current_exe().unwrap();
        let folder = own.parent().and_then(|deps| deps.parent()).unwrap();
        let program = folder.join("examples").join(name);
        assert!(
            program.exists(),
            "{} is not built: cargo build -p balde --all-features --examples",
            program.display()
        );
        let mut child = Command::new(program)
            .arg("127.0.0.1:0")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut first).unwrap();
        let address = first.trim().strip_prefix("listening on http://");
        let address = address
            .unwrap_or_else(|| panic!("{name} said {first}"))
            .to_owned();
        Self { child, address }
    }

    /// The whole answer, as curl -i shows it.
    fn request(&self, head: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let length = body.len();
        let request = format!(
            "{head}\r\nhost: here\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        // A refusal may be there before the whole body is sent.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).to_lowercase()
    }

    fn status(&self, head: &str) -> u16 {
        status(&self.request(head, b""))
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn status(answer: &str) -> u16 {
    let code = answer.split(' ').nth(1);
    code.and_then(|code| code.parse().ok())
        .unwrap_or_else(|| panic!("no status in {answer:?}"))
}

const GET: &str = "GET / HTTP/1.1";

#[test]
fn axum_in_memory_lets_five_pass_and_tells_the_sixth_when_to_return() {
    let example = Example::start("axum_memory", &[]);
    // A busy machine may be in time for a token that has just landed: so as many as it takes.
    let answers: Vec<String> = (0..50).map(|_| example.request(GET, b"")).collect();
    let passed = answers.iter().filter(|answer| status(answer) == 200);
    assert!(passed.count() >= 5);
    let refused = answers.iter().find(|answer| status(answer) == 429);
    let refused = refused.expect("fifty at once are too many");
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    assert!(refused.contains("x-ratelimit-limit: 5\r\n"), "{refused}");
}

#[test]
fn axum_over_redis_keeps_half_of_the_limit_while_redis_is_away() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let address = server.addr().to_string();
    let example = Example::start("axum_redis", &[("REDIS_ADDR", &address)]);
    let passed = |requests: usize| {
        let statuses = (0..requests).map(|_| example.status(GET));
        statuses.filter(|status| *status == 200).count()
    };
    // While it connects, the share of this process may let some pass, too.
    let shared = passed(60);
    assert!((20..=31).contains(&shared), "{shared}");
    server.kill();
    let alone = passed(60);
    assert!(alone <= 11, "{alone}");
}

#[test]
fn tenants_have_a_limit_each_and_one_together() {
    let example = Example::start("axum_tenants", &[]);
    let of = |tenant: &str| {
        let head = format!("{GET}\r\nauthorization: Bearer {tenant}-token");
        example.request(&head, b"")
    };
    let statuses = |tenant: &str| [(); 4].map(|()| status(&of(tenant)));
    assert_eq!(statuses("red"), [200, 200, 200, 429]);
    assert_eq!(statuses("blue"), [200, 200, 200, 429]);
    let refused = of("green");
    assert_eq!(status(&refused), 429);
    assert!(refused.contains("[\"overall\"]"), "{refused}");
    assert_eq!(example.status(GET), 401);
}

#[test]
fn cost_follows_size_and_outcome() {
    let example = Example::start("axum_cost", &[]);
    let post = "POST / HTTP/1.1";
    let first = example.request(post, &vec![0; 30_000]);
    assert_eq!(status(&first), 201);
    assert!(first.contains("x-ratelimit-remaining: 70\r\n"), "{first}");
    let second = example.request(post, &vec![0; 90_000]);
    assert_eq!(status(&second), 429);
    assert!(second.contains("retry-after: "), "{second}");
    assert_eq!(example.status("GET /nothing HTTP/1.1"), 404);
}

#[test]
fn tonic_refuses_with_a_status_of_its_own() {
    let example = Example::start("tonic", &[]);
    let answers = (0..20).map(|_| {
        let curl = Command::new("curl")
            .args(["-s", "-i", "--http2-prior-knowledge", "--max-time", "10"])
            .args(["-H", "te: trailers", "-H", "content-type: application/grpc"])
            .args(["--data-binary", "@-"])
            .arg(format!(
                "http://{}/grpc.health.v1.Health/Check",
                example.address
            ))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut curl = curl.expect("curl is there");
        let mut stdin = curl.stdin.take().unwrap();
        stdin.write_all(&[0; 5]).unwrap();
        drop(stdin);
        let output = curl.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let answers: Vec<String> = answers.collect();
    let first = &answers[0];
    assert!(first.contains("ratelimit: "), "{first}");
    assert!(!first.contains("grpc-status: 8"), "{first}");
    let refused = |answer: &&String| answer.contains("grpc-status: 8\r\n");
    let refused = answers.iter().find(refused).expect("twenty are too many");
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
}
