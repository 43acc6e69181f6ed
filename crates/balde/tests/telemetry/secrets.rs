//! A run with known secrets through everything that tells anything, and none of them in it.

use std::fmt::{Debug, Write as _};

use balde::telemetry::{Metrics, Otlp, json_logs_to};
use balde::{
    BadKey, Clock, InvalidOpId, Leases, ManualClock, OnFailure, OpId, RateLimiter, RedisStore,
    Share, StoreFailure, check_all,
};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_default;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;

use crate::otlp_collector::Collector;
use crate::redis_server::RedisServer;
use crate::{Written, patience};

const PASSWORD: &str = "hunter2-redis-password";
const SALT: &str = "pepper-and-salt";
const API_KEY: &str = "sk_live_4711";
const ADDRESS: &str = "203.0.113.77";
const OPERATION: &str = "payment-0815";

/// Whatever is said, by whatever means.
#[derive(Default)]
struct Said(String);

impl Said {
    fn debug(&mut self, value: &dyn Debug) {
        let _ = writeln!(self.0, "{value:?} {value:#?}");
    }

    fn display(&mut self, value: &dyn std::fmt::Display) {
        let _ = writeln!(self.0, "{value}");
    }
}

#[tokio::test]
async fn no_key_address_password_or_salt_gets_out() {
    let Some(mut server) = RedisServer::start_with(&["--requirepass", PASSWORD]) else {
        return;
    };
    let mut said = Said::default();
    let collector = Collector::start();
    let otlp = Otlp::grpc(collector.url());
    said.debug(&otlp);
    let (layer, guard) = otlp.layer().unwrap();
    let (json, plain) = (Written::default(), Written::default());
    // Not only what is meant to be seen: everything that anybody says, at the most talkative level.
    let everything = tracing_subscriber::fmt::layer()
        .with_writer(plain.clone())
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .with_filter(LevelFilter::TRACE);
    let subscriber = tracing_subscriber::registry()
        .with(layer)
        .with(json_logs_to(json.clone()))
        .with(everything);
    crate::have_two_listeners();
    let _listening = set_default(subscriber);

    let metrics = Metrics::new();
    said.debug(&(&metrics, &guard));
    in_memory(&mut said, &metrics).await;
    in_redis(&mut said, &metrics, &mut server).await;
    errors(&mut said);

    said.display(&metrics.encode());
    guard.flush().unwrap();
    said.display(&collector.text());
    said.display(&json.text());
    said.display(&plain.text());

    // Everybody has spoken.
    for spoken in ["denied", "bad_key", "fallback", "breaker_opened"] {
        assert!(!json.of(spoken).is_empty(), "{spoken}");
    }
    assert!(collector.text().contains("rate_limiter.redis"));
    assert!(plain.text().contains("rate_limiter.check"));
    // Where Redis should be is no secret: whoever repairs it has to know.
    for secret in [PASSWORD, SALT, API_KEY, ADDRESS, OPERATION] {
        if let Some(at) = said.0.find(secret) {
            let (from, to) = (at.saturating_sub(200), (at + 100).min(said.0.len()));
            let around = String::from_utf8_lossy(&said.0.as_bytes()[from..to]);
            panic!("{secret} got out: …{around}…");
        }
    }
}

async fn in_memory(said: &mut Said, metrics: &Metrics) {
    let clock = ManualClock::new();
    let builder = RateLimiter::builder()
        .name("memory")
        .limit("1/h")
        .clock(Clock::manual(&clock))
        .log_salt(SALT)
        .metrics(metrics);
    said.debug(&builder);
    let limiter = builder.build().unwrap();
    let id = OpId::new(OPERATION).unwrap();
    for key in [API_KEY, ADDRESS] {
        for _ in 0..3 {
            said.debug(&limiter.check(key).await);
        }
        said.debug(&limiter.peek(key).await);
        said.debug(&limiter.charge_once(key, 1, &id).await);
        said.debug(&limiter.blocking().credit(key, 1));
        let ask = limiter.request(key);
        said.debug(&check_all(&[ask]).await);
    }
    let long = API_KEY.repeat(1_000);
    said.debug(&limiter.check(&long).await);
    said.debug(&limiter.peek(&long).await);
    said.debug(&limiter.check("").await);
    said.debug(&(
        &limiter,
        limiter.blocking(),
        limiter.memory_stats(),
        &id,
        limiter.limit(),
    ));
}

async fn in_redis(said: &mut Said, metrics: &Metrics, server: &mut RedisServer) {
    let settings = |password: &'static str| {
        let address = format!("redis://:{password}@127.0.0.1:{}/", server.port());
        move |name: &str| match name {
            "RL_STORAGE_MODE" => Some("redis".to_owned()),
            "REDIS_ADDR" => Some(address.clone()),
            "RL_LOG_SALT" => Some(SALT.to_owned()),
            _ => None,
        }
    };
    let builder = RateLimiter::builder()
        .name("from-settings")
        .limit("1/h")
        .metrics(metrics)
        .storage_from(
            settings(PASSWORD),
            OnFailure::Local {
                share: Share::one_in(2),
            },
        );
    said.debug(&builder);
    let limiter = builder.build().unwrap();
    let store = RedisStore::builder()
        .address(server.url())
        .password(PASSWORD);
    said.debug(&store);
    let store = store.build().unwrap();
    let leased = RateLimiter::builder()
        .name("leased")
        .limit("2/h")
        .log_salt(SALT)
        .redis(&store, OnFailure::Deny)
        .leases(Leases::new())
        .metrics(metrics)
        .build()
        .unwrap();
    let wrong = RateLimiter::builder()
        .name("wrong-password")
        .limit("1/h")
        .storage_from(settings("not-it"), OnFailure::Deny)
        .build()
        .unwrap();
    let in_time = patience("the stores answer");
    while limiter.check(API_KEY).await.is_fallback() || leased.check(API_KEY).await.is_fallback() {
        in_time();
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    for _ in 0..5 {
        said.debug(&wrong.check(ADDRESS).await);
        for key in [API_KEY, ADDRESS, ""] {
            said.debug(&limiter.check(key).await);
            said.debug(&leased.check(key).await);
            said.debug(&check_all(&[limiter.request(key), leased.request(key)]).await);
            said.debug(&limiter.charge(key, 1).await);
        }
    }
    said.debug(&(
        &limiter,
        &leased,
        &store,
        store.stats(),
        leased.lease_stats(),
    ));
    server.kill();
    let in_time = patience("the breaker opens");
    while !store.stats().is_open {
        in_time();
        said.debug(&leased.check(ADDRESS).await);
    }
    for _ in 0..5 {
        said.debug(&limiter.check(ADDRESS).await);
        said.debug(&leased.check(API_KEY).await);
        said.debug(&limiter.peek(API_KEY).await);
        said.debug(&check_all(&[limiter.request(ADDRESS), leased.request(API_KEY)]).await);
    }
    said.debug(&(&limiter, &leased, &store));
}

fn errors(said: &mut Said) {
    said.display(&RedisStore::new(format!("http://:{PASSWORD}@{ADDRESS}")).unwrap_err());
    let bad = RedisStore::builder().address(format!("redis://:{PASSWORD}@{ADDRESS}:port"));
    said.debug(&bad);
    said.display(&bad.build().unwrap_err());
    let bad_id: InvalidOpId = OpId::new(OPERATION.repeat(100)).unwrap_err();
    said.display(&bad_id);
    said.display(&BadKey::TooLong { bytes: 5_000 });
    said.display(&StoreFailure::Unauthorized);
    let collector = format!("https://user:{PASSWORD}@{ADDRESS}");
    let refused = Otlp::grpc(collector.clone()).layer::<tracing_subscriber::Registry>();
    said.display(&refused.map(drop).unwrap_err());
    said.debug(&Otlp::http(collector));
}
