//! The Redis store against real servers: how it comes up, who may come in, what it says and does
//! when they go away.

#[path = "support/redis_server.rs"]
mod redis_server;

use std::future::Future;
use std::net::{Ipv4Addr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use balde::{
    BuildError, Decision, Error, OnFailure, OpId, RateLimiter, Reason, RedisBuilder,
    RedisConfigError, RedisStore, Share, StoreFailure, check_all, check_all_blocking,
};
use redis_server::RedisServer;

/// How soon after its return decisions come from the store again.
const BACK_WITHIN: Duration = Duration::from_secs(1);

fn limiter(store: &RedisStore, on_failure: OnFailure) -> RateLimiter {
    RateLimiter::builder()
        .name("per-user")
        .limit("10/min burst 20")
        .redis(store, on_failure)
        .build()
        .unwrap()
}

/// A store for stories about something else than time.
fn patient(address: impl Into<String>) -> RedisBuilder {
    RedisStore::builder()
        .address(address)
        .timeout(Duration::from_millis(100))
}

/// Checks until the store itself answers, and says how long that took.
async fn until_back(limiter: &RateLimiter) -> (Decision, Duration) {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(20) {
        let decision = limiter.check("until back").await;
        if !decision.is_fallback() {
            return (decision, started.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("the store did not come back: {limiter:?}");
}

/// Checks until the failure is the one that is expected.
async fn until_failing(limiter: &RateLimiter, failure: StoreFailure) -> Decision {
    let started = Instant::now();
    loop {
        let decision = limiter.check("alice").await;
        if decision.failure() == Some(failure) {
            return decision;
        }
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{decision:?} and not {failure:?}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_program_starts_without_redis_and_finds_it_when_it_comes() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    server.kill();
    let store = RedisStore::new(server.url()).unwrap();
    let limiter = limiter(&store, OnFailure::Deny);
    let refused = limiter.check("alice").await;
    assert!(!refused.is_allowed() && refused.is_fallback());
    assert_eq!(
        refused.reason(),
        Reason::StoreUnavailable(StoreFailure::Disconnected)
    );
    until_failing(&limiter, StoreFailure::BreakerOpen).await;
    assert!(store.stats().is_open);

    server.restart();
    let (decision, took) = until_back(&limiter).await;
    assert!(took < BACK_WITHIN, "{took:?}");
    assert_eq!(decision.remaining(), 19);
    let stats = store.stats();
    assert!(!stats.is_open);
    assert_eq!(stats.opened_total, 1);
    // None of the refusals was counted.
    assert_eq!(limiter.peek("alice").await.unwrap().level(), 20);
}

#[tokio::test]
async fn each_policy_answers_as_it_says_while_redis_is_dead() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let store = patient(server.url()).build().unwrap();
    let share = Share::percent(10);
    let [deny, allow, local] = [
        OnFailure::Deny,
        OnFailure::Allow,
        OnFailure::Local { share },
    ]
    .map(|on_failure| limiter(&store, on_failure));
    assert_eq!(deny.check("alice").await.remaining(), 19);
    server.kill();

    for _ in 0..5 {
        let denied = deny.check("alice").await;
        assert!(!denied.is_allowed() && denied.is_fallback());
        assert!(matches!(denied.reason(), Reason::StoreUnavailable(_)));
        assert!(denied.retry_after().unwrap() < BACK_WITHIN);
        let allowed = allow.check_n("alice", 20).await;
        assert!(allowed.is_allowed() && allowed.is_fallback());
        assert!(matches!(allowed.reason(), Reason::StoreUnavailable(_)));
        assert_eq!(allowed.moved(), 20);
    }
    // What could never pass does not pass now.
    let never = allow.check_n("alice", 21).await;
    assert_eq!(never.reason(), Reason::OverCapacity);
    // A tenth of 20 is 2, and this process's own.
    let local: Vec<_> = [local.check("alice").await, local.check("alice").await].into();
    assert!(local.iter().all(|d| d.is_allowed() && d.is_fallback()));
    assert_eq!(local[1].reason(), Reason::Granted);

    let error = deny.charge("alice", 1).await.unwrap_err();
    assert_eq!(error, Error::Store(StoreFailure::BreakerOpen));
    assert!(store.stats().fallbacks_total >= 13);
}

#[tokio::test]
async fn a_local_share_runs_out() {
    let store = RedisStore::new(format!("127.0.0.1:{}", closed_port())).unwrap();
    let share = Share::one_in(10);
    let limiter = limiter(&store, OnFailure::Local { share });
    assert!(limiter.check_n("alice", 2).await.is_allowed());
    let refused = limiter.check("alice").await;
    assert!(refused.is_fallback());
    assert_eq!(refused.reason(), Reason::OverLimit);
    // One token a minute, and some of the first has passed.
    let wait = refused.retry_after().unwrap();
    assert!((59..=60).contains(&wait.as_secs()), "{wait:?}");
}

#[tokio::test]
async fn a_frozen_redis_costs_a_few_timeouts_and_then_microseconds() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = RedisStore::new(server.url()).unwrap();
    let limiter = limiter(&store, OnFailure::Allow);
    assert!(limiter.check("alice").await.is_allowed());
    server.pause();
    let mut waits = Vec::new();
    for _ in 0..1_000 {
        let started = Instant::now();
        assert!(limiter.check("alice").await.is_allowed());
        waits.push(started.elapsed());
    }
    waits.sort();
    assert!(waits[999] < Duration::from_millis(100), "{:?}", waits[999]);
    assert!(waits[990] < Duration::from_millis(1), "{:?}", waits[990]);
    assert!(store.stats().failures(StoreFailure::Timeout) >= 3);

    server.resume();
    let (_, took) = until_back(&limiter).await;
    assert!(took < BACK_WITHIN, "{took:?}");
    // Those that timed out were on their way and are decided now; they are given back.
    let started = Instant::now();
    while limiter.peek("alice").await.unwrap().level() < 19 {
        assert!(started.elapsed() < BACK_WITHIN);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_forgotten_script_is_loaded_again_and_nothing_happens_twice() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = patient(server.url()).build().unwrap();
    let limiter = limiter(&store, OnFailure::Deny);
    assert_eq!(limiter.check("alice").await.remaining(), 19);
    let mut admin = redis::Client::open(server.url())
        .unwrap()
        .get_connection()
        .unwrap();
    let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut admin).unwrap();
    assert_eq!(limiter.check("alice").await.remaining(), 18);
    assert_eq!(limiter.check("alice").await.remaining(), 17);
    // The first call found a server that had never had the script.
    assert_eq!(store.stats().reloads_total, 1);
}

#[tokio::test]
async fn who_may_come_in_and_who_may_not() {
    let Some(server) = RedisServer::start_with(&["--requirepass", "open sesame"]) else {
        return;
    };
    let mut admin = redis::Client::open(format!(
        "redis://:open%20sesame@127.0.0.1:{}",
        server.port()
    ))
    .unwrap()
    .get_connection()
    .unwrap();
    let rules = "on >pw2 ~balde:* +evalsha +eval +get +set +del +time";
    let mut acl = redis::cmd("ACL");
    acl.arg("SETUSER").arg("limits");
    let () = acl
        .arg(rules.split(' ').collect::<Vec<_>>())
        .query(&mut admin)
        .unwrap();

    let address = || format!("127.0.0.1:{}", server.port());
    let insiders = [
        patient(address()).password("open sesame"),
        patient(format!("redis://:open%20sesame@{}", address())),
        patient(address()).user("limits").password("pw2"),
    ];
    for builder in insiders {
        let store = builder.build().unwrap();
        let decision = limiter(&store, OnFailure::Deny).check("alice").await;
        assert!(!decision.is_fallback(), "{decision:?}");
    }
    let outsiders = [
        patient(address()),
        patient(address()).password("hunter2"),
        patient(address()).user("nobody").password("hunter2"),
        patient(address())
            .user("limits")
            .password("pw2")
            .prefix("not allowed"),
    ];
    for builder in outsiders {
        assert!(!format!("{builder:?}").contains("hunter2"));
        let store = builder.build().unwrap();
        let limiter = limiter(&store, OnFailure::Deny);
        let refused = limiter.check("alice").await;
        assert_eq!(refused.failure(), Some(StoreFailure::Unauthorized));
        assert!(!StoreFailure::Unauthorized.is_transient());
        let error = limiter.peek("alice").await.unwrap_err();
        let shown = format!("{store:?} {limiter:?} {refused:?} {error:?} {error}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(!shown.contains("alice"), "{shown}");
    }
}

#[test]
fn what_cannot_work_is_said_before_anything_is_tried() {
    let bad = |builder: RedisBuilder| builder.build().unwrap_err();
    let address = || RedisStore::builder().address("127.0.0.1:1");
    let slow = bad(address().timeout(Duration::from_millis(101)));
    assert!(slow.to_string().contains("at most 100 ms"), "{slow}");
    let none = address().connections(0);
    assert_eq!(bad(none), RedisConfigError::Connections { connections: 0 });
    assert_eq!(bad(RedisStore::builder()), RedisConfigError::NoAddress);
    assert!(matches!(
        bad(address().ca_pem("")),
        RedisConfigError::Tls { .. }
    ));
    let secret = bad(RedisStore::builder().address("http://user:hunter2@[oops"));
    assert_eq!(secret, RedisConfigError::Address);
    assert!(!secret.to_string().contains("hunter2"));

    let store = address().build().unwrap();
    let share = OnFailure::Local {
        share: Share::one_in(0),
    };
    let builder = RateLimiter::builder().limit("1/s").redis(&store, share);
    assert_eq!(builder.build().unwrap_err(), BuildError::Share);
}

#[tokio::test]
async fn a_full_or_read_only_server_is_told_apart_from_a_dead_one() {
    let Some(full) = RedisServer::start_with(&["--maxmemory", "1"]) else {
        return;
    };
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", "1"]).unwrap();
    for (server, failure) in [
        (full, StoreFailure::OutOfMemory),
        (replica, StoreFailure::ReadOnly),
    ] {
        let store = patient(server.url()).build().unwrap();
        let limiter = limiter(&store, OnFailure::Deny);
        let refused = limiter.check("alice").await;
        assert_eq!(refused.failure(), Some(failure));
        // It answers, but it takes no writes, so it stays open.
        until_failing(&limiter, StoreFailure::BreakerOpen).await;
        assert_eq!(store.stats().failures(failure), 3);
    }
}

#[tokio::test]
async fn what_somebody_else_wrote_under_a_key_is_that_keys_trouble_alone() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = patient(server.url()).build().unwrap();
    let limiter = limiter(&store, OnFailure::Deny);
    let mut admin = redis::Client::open(server.url())
        .unwrap()
        .get_connection()
        .unwrap();
    let mut set = redis::cmd("SET");
    let () = set
        .arg("balde:per-user:{alice}")
        .arg("not ours")
        .query(&mut admin)
        .unwrap();
    for _ in 0..10 {
        let refused = limiter.check("alice").await;
        assert_eq!(refused.failure(), Some(StoreFailure::ForeignValue));
    }
    assert!(limiter.check("bob").await.is_allowed());
    assert!(!store.stats().is_open);
}

#[test]
fn a_program_without_a_runtime_decides_too() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = patient(server.url()).build().unwrap();
    let limiter = limiter(&store, OnFailure::Deny);
    let blocking = limiter.blocking();
    assert_eq!(blocking.check("alice").remaining(), 19);
    assert_eq!(blocking.take_up_to("alice", 100).moved(), 19);
    assert!(!blocking.check("alice").is_allowed());
    let id = OpId::new("refund 1").unwrap();
    for _ in 0..2 {
        assert_eq!(blocking.credit_once("alice", 5, &id).unwrap().level(), 5);
    }
    let requests = [limiter.request_n("alice", 3), limiter.request("bob")];
    assert!(check_all_blocking(&requests).is_allowed());
    assert_eq!(blocking.peek("alice").unwrap().level(), 2);

    // Any executor will do.
    assert_eq!(block_on(limiter.check("alice")).remaining(), 1);
    assert_eq!(block_on(limiter.peek("bob")).unwrap().level(), 19);
    assert!(block_on(check_all(&requests[1..])).is_allowed());
}

#[tokio::test]
async fn blocking_where_it_cannot_work_is_a_timeout_and_no_panic() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = RedisStore::new(server.url()).unwrap();
    let limiter = limiter(&store, OnFailure::Allow);
    assert!(!limiter.check("alice").await.is_fallback());
    let decision = limiter.blocking().check("alice");
    assert_eq!(decision.failure(), Some(StoreFailure::Timeout));
    // And the call that was given up is not made later.
    assert_eq!(limiter.peek("alice").await.unwrap().level(), 19);
}

#[tokio::test]
async fn the_last_clone_takes_its_connections_with_it() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let mut admin = redis::Client::open(server.url())
        .unwrap()
        .get_connection()
        .unwrap();
    let mut clients = || -> usize {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut admin).unwrap();
        list.lines().count()
    };
    for _ in 0..5 {
        let store = patient(server.url()).connections(4).build().unwrap();
        let limiter = limiter(&store, OnFailure::Deny);
        drop(store);
        assert!(limiter.check("alice").await.is_allowed());
        assert!(clients() > 1);
    }
    let started = Instant::now();
    while clients() > 1 {
        assert!(started.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn buckets_in_memory_and_in_redis_give_together_or_not_at_all() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = patient(server.url()).build().unwrap();
    let shared = limiter(&store, OnFailure::Deny);
    let own = RateLimiter::builder().name("own").limit("2/min").build();
    let own = own.unwrap();
    for requests in [
        [shared.request("alice"), own.request("alice")],
        [own.request("bob"), shared.request("bob")],
    ] {
        assert!(check_all(&requests).await.is_allowed());
        assert!(check_all(&requests).await.is_allowed());
        let refused = check_all(&requests).await;
        assert_eq!(refused.refused_by(), Some("own"));
    }
    for key in ["alice", "bob"] {
        assert_eq!(shared.peek(key).await.unwrap().level(), 18, "{key}");
    }

    // The other way round: memory gives, and gets it back.
    let requests = [own.request("carol"), shared.request_n("carol", 21)];
    let refused = check_all(&requests).await;
    assert_eq!(refused.reason(), Reason::OverCapacity);
    assert_eq!(refused.parts()[0].level(), 2);
    assert_eq!(own.peek("carol").await.unwrap().level(), 2);
}

/// A port that nobody listens on.
fn closed_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// The smallest executor: it knows nothing of tokio.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}
