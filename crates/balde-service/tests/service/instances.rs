//! Several services over one Redis.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use serde_json::json;

use crate::redis_server::RedisServer;
use crate::running::{Running, eventually};

fn file(redis: &RedisServer, leases: bool) -> String {
    format!(
        "[limits.users]\nlimit = \"500/day\"\nstorage = \"redis\"\non_failure = \"deny\"\n\
         leases = {leases}\n[dynamic]\nstorage = \"redis\"\non_failure = \"deny\"\n\
         [redis]\naddress = \"{}\"\ntimeout = \"100 ms\"\n",
        redis.url()
    )
}

#[tokio::test]
async fn two_services_share_their_buckets() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    for leases in [false, true] {
        let text = file(&redis, leases);
        let (one, two) = (Running::start(&text).await, Running::start(&text).await);
        let check = json!({"limit": "users", "key": format!("k{leases}")});
        let mut allowed = 0;
        for _ in 0..400 {
            for service in [&one, &two] {
                let (_, verdict) = service.post("/v1/check", &check).await;
                allowed += u64::from(verdict["allowed"] == true);
            }
        }
        // With leases, tokens that one has taken ahead of use are missing for the other.
        assert!(
            if leases {
                (400..=500).contains(&allowed)
            } else {
                allowed == 500
            },
            "{allowed}"
        );
        one.stop().await;
        two.stop().await;
    }
}

#[tokio::test]
async fn dynamic_limits_are_shared_too() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let text = file(&redis, false);
    let (one, two) = (Running::start(&text).await, Running::start(&text).await);
    let (mut first, mut second) = (one.resp().await, two.resp().await);
    first
        .expect(
            "CL.THROTTLE k 9 10 86400 4\r\n",
            "*5\r\n:0\r\n:10\r\n:6\r\n:-1\r\n:34560\r\n",
        )
        .await;
    second
        .expect(
            "CL.THROTTLE k 9 10 86400 4\r\n",
            "*5\r\n:0\r\n:10\r\n:2\r\n:-1\r\n:69120\r\n",
        )
        .await;
    // Another limit for the same key, which the other service sees as well.
    second
        .expect(
            "CL.THROTTLE k 19 10 86400 1\r\n",
            "*5\r\n:0\r\n:20\r\n:11\r\n:-1\r\n:77760\r\n",
        )
        .await;
    first
        .expect(
            "CL.THROTTLE k 9 10 86400 0\r\n",
            "*5\r\n:0\r\n:10\r\n:1\r\n:-1\r\n:77760\r\n",
        )
        .await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn the_emptiest_and_the_fullest_buckets_are_listed() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let memory = "[limits.here]\nlimit = \"1/day\"\n";
    let service = Running::start(&format!("{}{memory}", file(&redis, false))).await;
    for (key, tokens) in [("a", 3), ("b", 200), ("c", 10), ("d", 499)] {
        let check = json!({"limit": "users", "key": key, "tokens": tokens});
        service.post("/v1/check", &check).await;
    }
    let list = async |order: &str, most: u64| {
        let body = json!({"limit": "users", "order": order, "most": most});
        let (status, listed) = service.admin("/v1/admin/buckets", &body).await;
        assert_eq!(status, 200, "{listed}");
        let listed = listed["buckets"].as_array().unwrap().clone();
        let pair = |bucket: &serde_json::Value| {
            (
                bucket["key"].as_str().unwrap().to_owned(),
                bucket["level"].as_i64().unwrap(),
            )
        };
        listed.iter().map(pair).collect::<Vec<_>>()
    };
    let pairs = |pairs: &[(&str, i64)]| -> Vec<(String, i64)> {
        pairs
            .iter()
            .map(|(key, level)| ((*key).to_owned(), *level))
            .collect()
    };
    assert_eq!(list("emptiest", 2).await, pairs(&[("d", 1), ("b", 300)]));
    assert_eq!(
        list("fullest", 3).await,
        pairs(&[("a", 497), ("c", 490), ("b", 300)])
    );
    let (status, problem) = service
        .admin("/v1/admin/buckets", &json!({"limit": "here"}))
        .await;
    assert_eq!(status, 409, "{problem}");
    let mut resp = service.resp().await;
    let admin = crate::running::ADMIN;
    resp.expect(&format!("AUTH {admin}\r\n"), "+OK\r\n").await;
    resp.expect(
        "BALDE.BUCKETS users emptiest 1\r\n",
        "*1\r\n*8\r\n$3\r\nkey\r\n$1\r\nd\r\n$5\r\nlevel\r\n:1\r\n",
    )
    .await;
    service.stop().await;
}

#[tokio::test]
async fn without_redis_the_failure_policy_decides_and_commands_say_so() {
    let Some(mut redis) = RedisServer::start() else {
        return;
    };
    let state = "[state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"STATE\"\n";
    let service = Running::start(&format!("{}{state}", file(&redis, false))).await;
    let check = json!({"limit": "users", "key": "k"});
    assert_eq!(service.post("/v1/check", &check).await.1["allowed"], true);
    redis.kill();
    eventually("Redis is gone", async || {
        let (status, verdict) = service.post("/v1/check", &check).await;
        assert_eq!(status, 200);
        verdict["reason"] == "store_unavailable"
            && verdict["fallback"] == true
            && verdict["allowed"] == false
    })
    .await;
    let (status, problem) = service.post("/v1/charge", &check).await;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("store_unavailable"))
    );
    let mut resp = service.resp().await;
    resp.expect("BALDE.PEEK users k\r\n", "-TRYAGAIN ").await;
    let state = service.state.unwrap();
    let ready = service
        .client
        .get(format!("http://{state}/readyz"))
        .send()
        .await
        .unwrap();
    assert_eq!(ready.status(), 503);
    redis.restart();
    eventually("Redis is back", async || {
        let (_, verdict) = service.post("/v1/check", &check).await;
        verdict["fallback"] == false && verdict["allowed"] == true
    })
    .await;
    service.stop().await;
}

/// While Redis does not answer, one decision is under way, and further ones are refused at once with each
/// protocol's own error. A caller whose deadline has passed makes room.
#[tokio::test(flavor = "multi_thread")]
async fn overload_is_answered_at_once_in_each_protocol() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let rls = "[rls]\naddress = \"127.0.0.1:0\"\n[[rls.rule]]\ndomain = \"d\"\nmatch = [\"k\"]\n\
               limit = \"users\"\n[server]\nin_flight_max = 1\n";
    let service = Running::start(&format!("{}{rls}", file(&redis, false))).await;
    let check = json!({"limit": "users", "key": "k"});
    assert_eq!(service.post("/v1/check", &check).await.0, 200);
    let address = format!("http://{}", service.address("rls"));
    let mut envoy = RateLimitServiceClient::connect(address).await.unwrap();
    redis.pause();
    // It would wait for as long as the tests are patient with Redis, but gives up.
    let deadline = async |client: &mut RateLimitServiceClient<tonic::transport::Channel>,
                          ms: u64| {
        let mut request = tonic::Request::new(descriptor());
        request
            .metadata_mut()
            .insert("grpc-timeout", format!("{ms}m").parse().unwrap());
        client.should_rate_limit(request).await.unwrap_err().code()
    };
    let mut first = envoy.clone();
    let first = tokio::spawn(async move {
        let mut request = tonic::Request::new(descriptor());
        request
            .metadata_mut()
            .insert("grpc-timeout", "3000m".parse().unwrap());
        first.should_rate_limit(request).await.unwrap_err().code()
    });
    eventually("the first is under way", async || {
        service.metric("balde_service_in_flight") == Some(1)
    })
    .await;
    let begun = std::time::Instant::now();
    let (status, problem) = service.post("/v1/check", &check).await;
    assert_eq!((status, &problem["code"]), (503, &json!("overloaded")));
    let mut resp = service.resp().await;
    resp.expect("BALDE.CHECK users k\r\n", "-BUSY the service is overloaded")
        .await;
    assert_eq!(deadline(&mut envoy, 60_000).await, tonic::Code::Unavailable);
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    // The client's own timer ends at the same time as the server's.
    let is_over = |code| matches!(code, tonic::Code::DeadlineExceeded | tonic::Code::Cancelled);
    assert!(is_over(first.await.unwrap()));
    eventually("there is room again", async || {
        service.metric("balde_service_in_flight") == Some(0)
    })
    .await;
    // For the next, whose deadline passes, too: it is not refused as overload.
    assert!(is_over(deadline(&mut envoy, 100).await));
    let elapsed = begun.elapsed();
    assert!(
        elapsed < std::time::Duration::from_secs(9),
        "Redis was not waited for: {elapsed:?}"
    );
    redis.resume();
    eventually("it decides again", async || {
        service.post("/v1/check", &check).await.1["allowed"] == true
    })
    .await;
    assert!(service.metric("balde_service_overloads_total").unwrap() >= 3);
    drop(envoy);
    service.stop().await;
}

fn descriptor() -> RateLimitRequest {
    let entry = Entry {
        key: "k".to_owned(),
        value: "v".to_owned(),
    };
    RateLimitRequest {
        domain: "d".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![entry],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 1,
    }
}
