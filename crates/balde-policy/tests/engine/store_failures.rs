//! What policies decide while Redis is unavailable, and that a settlement is made once it is back.

use std::time::Duration;

use balde::RedisStore;
use balde_policy::{AdmitError, Engine, Outcome, Subject};

use crate::fixture::{get, parsed};
use crate::redis_server::RedisServer;

const PROFILE: &str = r#"
profile = "p"
[[policy]]
name = "denying"
match = ["GET /deny"]
limit = "1/s burst 40"
on_failure = "deny"
[[policy]]
name = "allowing"
match = ["GET /allow", "GET /both"]
limit = "1/s burst 40"
on_failure = "allow"
[[policy]]
name = "sharing"
match = ["GET /local", "GET /both"]
limit = "1/day burst 40"
on_failure = "local 25%"
"#;

fn engine(server: &RedisServer) -> Engine {
    let store = RedisStore::builder().address(server.addr().to_string());
    let store = store.build().unwrap();
    let builder = Engine::builder(parsed(PROFILE)).redis(&store);
    builder.build().unwrap()
}

async fn admitted(engine: &Engine, path: &str, requests: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += usize::from(engine.admit(&get(path, "")).await.is_ok());
    }
    admitted
}

/// Waits until Redis answers; a breaker may still be open.
async fn ready(engine: &Engine) {
    let anybody = Subject::new();
    while engine.state("denying", &anybody).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_policy_obeys_its_own_failure_policy() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let engine = engine(&server);
    ready(&engine).await;
    assert_eq!(admitted(&engine, "/deny", 3).await, 3);
    server.kill();
    // The first calls find the connection gone; whatever they are told, they take nothing.
    assert_eq!(admitted(&engine, "/deny", 5).await, 0);
    let error = engine.admit(&get("/deny", "")).await.unwrap_err();
    let AdmitError::Unavailable(unavailable) = error else {
        panic!("{error}");
    };
    assert_eq!(unavailable.policy(), "denying");
    assert_eq!(admitted(&engine, "/allow", 60).await, 60);
    // A quarter of the limit for this process alone.
    assert_eq!(admitted(&engine, "/local", 60).await, 10);
    // All or nothing: what allows does not outvote what refuses.
    assert_eq!(admitted(&engine, "/both", 10).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_is_made_once_when_redis_is_back() {
    let Some(server) = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "no"])
    else {
        return;
    };
    let engine = engine(&server);
    ready(&engine).await;
    let anybody = Subject::new();
    let tickets = [
        engine.admit(&get("/local", "")).await.unwrap(),
        engine.admit(&get("/local", "")).await.unwrap(),
    ];
    server.pause();
    let [settled, dropped] = tickets;
    // The first attempt times out; the others go on in the background.
    settled.settle(Outcome::Status(200)).await;
    drop(dropped);
    server.resume();
    ready(&engine).await;
    engine.settled().await;
    let level = engine.state("sharing", &anybody).await.unwrap().level();
    assert_eq!(level, 38);
}
