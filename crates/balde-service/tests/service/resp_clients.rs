//! Stock clients of Redis: redis-cli, redis-py and the redis crate.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use redis::{Value, cmd, pipe};

use crate::running::Running;

const LIMITS: &str = "[limits.users]\nlimit = \"10000/day\"\n";

/// Runs a program that talks to the service, on a thread of its own.
async fn output(mut command: Command, input: &str) -> String {
    let input = input.to_owned();
    let ran = tokio::task::spawn_blocking(move || -> Output {
        use std::io::Write as _;
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    });
    let ran = ran.await.unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    String::from_utf8(ran.stdout).unwrap()
}

/// A program of the Python environment for tests; `None`, loudly, if there is none.
pub(crate) fn python() -> Option<Command> {
    let tools = std::env::var_os("BALDE_TEST_TOOLS").map(PathBuf::from)?;
    Some(Command::new(tools.join("bin/python")))
}

fn is_required() -> bool {
    std::env::var_os("BALDE_REQUIRE_SERVICES").is_some_and(|value| value == "1")
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cli_throttles_and_pipes_a_thousand_commands() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        assert!(!is_required(), "redis-cli is missing");
        return;
    }
    let service = Running::start(LIMITS).await;
    let port = service.address("resp").port().to_string();
    for version in ["-2", "-3"] {
        let mut redis_cli = Command::new("redis-cli");
        redis_cli.args([
            version,
            "-p",
            &port,
            "CL.THROTTLE",
            version,
            "15",
            "30",
            "60",
        ]);
        assert_eq!(output(redis_cli, "").await, "0\n16\n15\n-1\n2\n");
    }
    let mut redis_cli = Command::new("redis-cli");
    redis_cli.args(["-p", &port, "--pipe"]);
    let commands =
        "*4\r\n$11\r\nBALDE.CHECK\r\n$5\r\nusers\r\n$1\r\na\r\n$1\r\n1\r\n".repeat(1_000);
    let piped = output(redis_cli, &commands).await;
    assert!(piped.contains("errors: 0, replies: 1000"), "{piped}");
    assert_eq!(service.level("users", "a").await, 9_000);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_py_throttles_and_pipes_a_thousand_commands() {
    let Some(mut python) = python() else {
        assert!(
            !is_required(),
            "BALDE_TEST_TOOLS names no Python environment"
        );
        return;
    };
    let service = Running::start(LIMITS).await;
    python.args(["-c", SCRIPT, &service.address("resp").port().to_string()]);
    assert_eq!(output(python, "").await, "ok\n");
    assert_eq!(service.level("users", "py2").await, 9_000);
    assert_eq!(service.level("users", "py3").await, 9_000);
    service.stop().await;
}

const SCRIPT: &str = r#"
import redis, sys
for protocol in (2, 3):
    client = redis.Redis(port=int(sys.argv[1]), protocol=protocol)
    assert client.ping()
    key = f"py{protocol}"
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 60) == [0, 16, 15, -1, 2]
    pipeline = client.pipeline(transaction=False)
    for _ in range(1000):
        pipeline.execute_command("BALDE.CHECK", "users", key)
    answers = pipeline.execute()
    assert len(answers) == 1000
    last = answers[-1]
    if isinstance(last, list):
        last = dict(zip(last[::2], last[1::2]))
    assert last[b"allowed"] == 1 and last[b"remaining"] == 9000, last
    try:
        client.execute_command("BALDE.CHECK", "nobody", "k")
        assert False
    except redis.ResponseError as error:
        assert "there is no limit" in str(error)
print("ok")
"#;

#[tokio::test]
async fn the_redis_crate_throttles_and_pipes_a_thousand_commands() {
    let service = Running::start(LIMITS).await;
    let port = service.address("resp").port();
    for (protocol, key) in [("2", "rust2"), ("3", "rust3")] {
        let url = format!("redis://127.0.0.1:{port}/?protocol=resp{protocol}");
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let throttle = cmd("CL.THROTTLE").arg(key).arg(15).arg(30).arg(60).clone();
        let answer: Vec<i64> = throttle.query_async(&mut connection).await.unwrap();
        assert_eq!(answer, [0, 16, 15, -1, 2]);
        let mut pipeline = pipe();
        for _ in 0..1_000 {
            pipeline.cmd("BALDE.CHECK").arg("users").arg(key);
        }
        let answers: Vec<Value> = pipeline.query_async(&mut connection).await.unwrap();
        assert_eq!(answers.len(), 1_000);
        assert_eq!(service.level("users", key).await, 9_000);
    }
    service.stop().await;
}
