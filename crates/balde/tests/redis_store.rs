//! The Redis store against real servers.

#[path = "support/redis_server.rs"]
mod redis_server;

use std::time::{Duration, Instant};

use balde::{OnFailure, RateLimiter, RedisStore};
use redis_server::RedisServer;

#[tokio::test]
async fn smoke() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let store = RedisStore::new(server.url()).unwrap();
    let limiter = RateLimiter::builder()
        .name("a:b")
        .limit("10/s burst 20")
        .redis(&store, OnFailure::Allow)
        .build()
        .unwrap();
    let d = limiter.check("alice").await;
    println!("{d:?} {:?}", d.reason());
    assert_eq!(d.remaining(), 19);
    limiter.charge("alice", 30).await.unwrap();
    println!("{:?}", limiter.check("alice").await.reason());
    println!("{:?}", store.stats());
    server.kill();
    for _ in 0..6 {
        let t = Instant::now();
        let d = limiter.check("alice").await;
        println!("{:?} {:?}", d.reason(), t.elapsed());
    }
    println!("{:?}", store.stats());
    server.restart();
    let t = Instant::now();
    while limiter.check("alice").await.is_fallback() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("back after {:?} {:?}", t.elapsed(), store.stats());
    let t = Instant::now();
    for _ in 0..5000 {
        limiter.check("bob").await;
    }
    println!("per check {:?}", t.elapsed() / 5000);
}
