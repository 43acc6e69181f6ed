//! The Redis store on a Cluster of three primaries.

use std::time::{Duration, Instant};

use crate::redis_cluster::RedisCluster;
use balde::{OnFailure, RateLimiter, RedisStore, check_all};

fn limiter(store: &RedisStore, name: &str, limit: &str) -> RateLimiter {
    RateLimiter::builder()
        .name(name)
        .limit(limit)
        .redis(store, OnFailure::Deny)
        .build()
        .unwrap()
}

/// The nodes know the script when every primary has run it.
async fn warm(limiter: &RateLimiter) {
    let started = Instant::now();
    let mut served = 0;
    while served < 64 {
        let decision = limiter.check(format!("warm {served}")).await;
        served = if decision.is_fallback() {
            0
        } else {
            served + 1
        };
        assert!(started.elapsed() < Duration::from_secs(20), "{decision:?}");
    }
}

#[tokio::test]
async fn keys_of_one_slot_are_one_call_and_of_several_are_given_back() {
    let Some(cluster) = RedisCluster::start(0) else {
        return;
    };
    let store = RedisStore::builder()
        .cluster(cluster.urls())
        .timeout(Duration::from_millis(100))
        .build()
        .unwrap();
    let user = limiter(&store, "user", "10/min");
    let route = limiter(&store, "route", "3/min");
    warm(&user).await;

    // The same key: one slot, whatever the limiter is called.
    let calls = store.stats().calls_total;
    let together = [user.request("alice"), route.request_n("alice", 2)];
    assert!(check_all(&together).await.is_allowed());
    assert_eq!(store.stats().calls_total, calls + 1);
    let refused = check_all(&together).await;
    assert_eq!(refused.refused_by(), Some("route"));
    assert_eq!(refused.parts()[0].level(), 9);
    assert_eq!(store.stats().calls_total, calls + 2);

    // Different keys: asked in order, and given back.
    let apart = [user.request_n("bob", 4), route.request_n("everyone", 2)];
    let calls = store.stats().calls_total;
    assert!(check_all(&apart).await.is_allowed());
    assert_eq!(store.stats().calls_total, calls + 2);
    let refused = check_all(&apart).await;
    assert_eq!(refused.refused_by(), Some("route"));
    assert_eq!(refused.parts()[0].level(), 6);
    assert_eq!(user.peek("bob").await.unwrap().level(), 6);
    assert_eq!(route.peek("everyone").await.unwrap().level(), 1);

    // What refuses first leaves the rest untouched, but says how it stands.
    let other_way = [route.request_n("everyone", 2), user.request_n("bob", 4)];
    let refused = check_all(&other_way).await;
    assert_eq!(refused.refused_index(), Some(0));
    assert_eq!(refused.parts()[1].level(), 6);

    // A tag of their own brings different keys together.
    let tagged = |name: &str| {
        RateLimiter::builder()
            .name(name)
            .limit("10/min")
            .hash_tag("shop")
            .redis(&store, OnFailure::Deny)
            .build()
            .unwrap()
    };
    let (one, two) = (tagged("one"), tagged("two"));
    let calls = store.stats().calls_total;
    assert!(
        check_all(&[one.request("x"), two.request("y")])
            .await
            .is_allowed()
    );
    assert_eq!(store.stats().calls_total, calls + 1);
    assert_eq!(store.stats().fallbacks_total, 0);
}
