//! The same commands give the same decisions over every protocol and from the SDK in this process.

use balde::{Hold, RateLimiter};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::google::protobuf::UInt64Value;
use serde_json::{Value, json};

use crate::redis_server::RedisServer;
use crate::running::{ADMIN, Running};

/// Nothing refills while the test runs, so that decisions do not depend on when they are made.
const LIMIT: &str = "40/day debt 30";

const STEPS: usize = 300;

type RlsClient = RateLimitServiceClient<tonic::transport::Channel>;

/// A command on one of a few keys.
#[derive(Clone, Copy, Debug)]
enum Step {
    Check(u64),
    CheckBoth(u64),
    Charge(u64),
    Credit(u64),
    Peek,
    SetLevel(i64),
    Reset,
    HoldAndSettle(u64, u64),
}

/// What must be equal: whether it was allowed, why, and the level.
type Outcome = (bool, String, i64);

fn steps(random: &mut fastrand::Rng) -> Vec<(Step, String)> {
    let mut step = || match random.u8(0..20) {
        0..8 => Step::Check(random.u64(1..=9)),
        8..10 => Step::Check(random.u64(39..=42)),
        10..12 => Step::CheckBoth(random.u64(1..=6)),
        12..14 => Step::Charge(random.u64(0..=50)),
        14..16 => Step::Credit(random.u64(0..=20)),
        16 => Step::Peek,
        17 => Step::SetLevel(random.i64(-10..=40)),
        18 => Step::Reset,
        _ => Step::HoldAndSettle(random.u64(1..=9), random.u64(0..=15)),
    };
    let steps: Vec<Step> = (0..STEPS).map(|_| step()).collect();
    let key = |step| (step, format!("key-{}", random.u8(0..3)));
    steps.into_iter().map(key).collect()
}

/// The second key of a step on two keys.
fn other(key: &str) -> String {
    format!("{key}-other")
}

async fn in_process(limiter: &RateLimiter, step: Step, key: &str) -> Outcome {
    let one = |decision: &balde::Decision| {
        let reason = match decision.reason() {
            balde::Reason::Granted => "granted",
            balde::Reason::OverLimit => "over_limit",
            balde::Reason::OverCapacity => "over_capacity",
            other => panic!("{other:?}"),
        };
        (decision.is_allowed(), reason.to_owned(), decision.level())
    };
    match step {
        Step::Check(n) => one(&limiter.check_n(key, n).await),
        Step::CheckBoth(n) => {
            let other = other(key);
            let requests = [limiter.request_n(key, n), limiter.request_n(&other, n)];
            let decided = balde::check_all(&requests).await;
            let first = one(&decided.parts()[0]);
            (decided.is_allowed(), String::new(), first.2)
        }
        Step::Charge(n) => one(&limiter.charge(key, n).await.unwrap()),
        Step::Credit(n) => one(&limiter.credit(key, n).await.unwrap()),
        Step::Peek => {
            let peeked = limiter.peek(key).await.unwrap();
            let is_allowed = peeked.remaining() > 0;
            let reason = if is_allowed { "granted" } else { "over_limit" };
            (is_allowed, reason.to_owned(), peeked.level())
        }
        Step::SetLevel(level) => one(&limiter.set_level(key, level).await.unwrap()),
        Step::Reset => {
            limiter.forget(key).await.unwrap();
            (true, String::new(), 0)
        }
        Step::HoldAndSettle(n, price) => match Hold::take(&[limiter.request_n(key, n)]).await {
            Ok(hold) => (true, String::new(), hold.settle(price).await[0].level()),
            Err(refused) => (false, String::new(), one(&refused.parts()[0]).2),
        },
    }
}

async fn over_http(service: &Running, limit: &str, step: Step, key: &str) -> Outcome {
    let body = |n: u64| json!({"limit": limit, "key": key, "tokens": n});
    let bucket = json!({"limit": limit, "key": key});
    let post = async |path: &str, body: Value| {
        let (status, answer) = service.admin(path, &body).await;
        assert_eq!(status, 200, "{path} {answer}");
        answer
    };
    let one = |answer: &Value| {
        let reason = answer["reason"].as_str().unwrap().to_owned();
        (
            answer["allowed"].as_bool().unwrap(),
            reason,
            answer["level"].as_i64().unwrap(),
        )
    };
    match step {
        Step::Check(n) => one(&post("/v1/check", body(n)).await),
        Step::CheckBoth(n) => {
            let second = json!({"limit": limit, "key": other(key), "tokens": n});
            let answer = post("/v1/check-all", json!({"requests": [body(n), second]})).await;
            let level = answer["buckets"][0]["level"].as_i64().unwrap();
            (answer["allowed"].as_bool().unwrap(), String::new(), level)
        }
        Step::Charge(n) => one(&post("/v1/charge", body(n)).await),
        Step::Credit(n) => one(&post("/v1/credit", body(n)).await),
        Step::Peek => one(&post("/v1/peek", bucket).await),
        Step::SetLevel(level) => {
            let body = json!({"limit": limit, "key": key, "level": level});
            one(&post("/v1/admin/set-level", body).await)
        }
        Step::Reset => {
            post("/v1/admin/reset", bucket).await;
            (true, String::new(), 0)
        }
        Step::HoldAndSettle(n, price) => {
            let held = post("/v1/hold", json!({"requests": [body(n)]})).await;
            if held["allowed"] == false {
                return (
                    false,
                    String::new(),
                    held["buckets"][0]["level"].as_i64().unwrap(),
                );
            }
            let settled = post("/v1/settle", json!({"hold": held["hold"], "tokens": price})).await;
            (
                true,
                String::new(),
                settled["buckets"][0]["level"].as_i64().unwrap(),
            )
        }
    }
}

/// The key under which the service keeps the bucket of a descriptor.
fn descriptor_key(key: &str) -> String {
    format!("edge|k={key}|")
}

/// What Envoy can ask for is asked as Envoy does; the rest is done to the same bucket over JSON. Answers
/// have no reason, and the level is read afterwards.
async fn over_rls(service: &Running, client: &mut RlsClient, step: Step, key: &str) -> Outcome {
    let descriptor = |key: &str, hits: u64, is_negative_hits: bool| RateLimitDescriptor {
        entries: vec![Entry {
            key: "k".to_owned(),
            value: key.to_owned(),
        }],
        hits_addend: Some(UInt64Value { value: hits }),
        is_negative_hits,
        limit: None,
    };
    let descriptors = match step {
        Step::Check(n) => vec![descriptor(key, n, false)],
        Step::CheckBoth(n) => vec![descriptor(key, n, false), descriptor(&other(key), n, false)],
        // Nothing to give back is nothing to ask for, which Envoy's zero is not.
        Step::Credit(n) if n > 0 => vec![descriptor(key, n, true)],
        Step::Peek => vec![descriptor(key, 0, false)],
        _ => Vec::new(),
    };
    let stored = descriptor_key(key);
    let is_allowed = if descriptors.is_empty() {
        over_http(service, "rls", step, &stored).await.0
    } else {
        let request = RateLimitRequest {
            domain: "edge".to_owned(),
            descriptors,
            hits_addend: 0,
        };
        let answer = client
            .should_rate_limit(request)
            .await
            .unwrap()
            .into_inner();
        answer.overall_code == 1
    };
    let level = over_http(service, "rls", Step::Peek, &stored).await.2;
    (is_allowed, String::new(), level)
}

/// The fields of a map, in either version of the protocol.
fn field<'v>(map: &'v redis::Value, name: &str) -> &'v redis::Value {
    let is_name = |key: &redis::Value| matches!(key, redis::Value::BulkString(bytes) if bytes == name.as_bytes());
    match map {
        redis::Value::Map(pairs) => &pairs.iter().find(|(key, _)| is_name(key)).unwrap().1,
        redis::Value::Array(flat) => {
            let mut pairs = flat.chunks(2);
            &pairs.find(|pair| is_name(&pair[0])).unwrap()[1]
        }
        other => panic!("{other:?}"),
    }
}

fn integer(value: &redis::Value) -> i64 {
    match value {
        redis::Value::Int(number) => *number,
        other => panic!("{other:?}"),
    }
}

fn text(value: &redis::Value) -> String {
    redis::from_redis_value(value.clone()).unwrap()
}

fn first_level(answer: &redis::Value) -> i64 {
    match field(answer, "buckets") {
        redis::Value::Array(buckets) => integer(field(&buckets[0], "level")),
        other => panic!("{other:?}"),
    }
}

async fn over_resp(
    connection: &mut redis::aio::MultiplexedConnection,
    limit: &str,
    step: Step,
    key: &str,
) -> Outcome {
    let mut send = async |words: &[&str]| -> redis::Value {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        command.query_async(&mut *connection).await.unwrap()
    };
    let one = |answer: redis::Value| {
        let is_allowed = integer(field(&answer, "allowed")) == 1;
        (
            is_allowed,
            text(field(&answer, "reason")),
            integer(field(&answer, "level")),
        )
    };
    match step {
        Step::Check(n) => one(send(&["BALDE.CHECK", limit, key, &n.to_string()]).await),
        Step::CheckBoth(n) => {
            let (n, other) = (n.to_string(), other(key));
            let answer = send(&["BALDE.CHECKALL", limit, key, &n, limit, &other, &n]).await;
            let is_allowed = integer(field(&answer, "allowed")) == 1;
            (is_allowed, String::new(), first_level(&answer))
        }
        Step::Charge(n) => one(send(&["BALDE.CHARGE", limit, key, &n.to_string()]).await),
        Step::Credit(n) => one(send(&["BALDE.CREDIT", limit, key, &n.to_string()]).await),
        Step::Peek => one(send(&["BALDE.PEEK", limit, key]).await),
        Step::SetLevel(level) => {
            one(send(&["BALDE.SETLEVEL", limit, key, &level.to_string()]).await)
        }
        Step::Reset => {
            send(&["BALDE.RESET", limit, key]).await;
            (true, String::new(), 0)
        }
        Step::HoldAndSettle(n, price) => {
            let held = send(&["BALDE.HOLD", "30000", "charge", limit, key, &n.to_string()]).await;
            if integer(field(&held, "allowed")) == 0 {
                return (false, String::new(), first_level(&held));
            }
            let id = text(field(&held, "hold"));
            let settled = send(&["BALDE.SETTLE", &id, &price.to_string()]).await;
            (true, String::new(), first_level(&settled))
        }
    }
}

/// The limits of the paths that are compared. Each has buckets of its own.
fn file(storage: &str) -> String {
    let limit = |name: &str| format!("[limits.{name}]\nlimit = \"{LIMIT}\"\n{storage}\n");
    ["http", "resp2", "resp3", "rls"].map(limit).concat()
}

/// The listener of Envoy's rate limit service, and its one rule.
const RLS: &str = "\n[rls]\naddress = \"127.0.0.1:0\"\n[[rls.rule]]\ndomain = \"edge\"\n\
                   match = [\"k\"]\nlimit = \"rls\"\n";

async fn compare(file: &str, limiter: &RateLimiter) {
    let seed = std::env::var("BALDE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("BALDE_SEED={seed}");
    let service = Running::start(&format!("{file}{RLS}")).await;
    let address = format!("http://{}", service.address("rls"));
    let mut envoy = RlsClient::connect(address).await.unwrap();
    let port = service.address("resp").port();
    let mut connections = Vec::new();
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://ops:{ADMIN}@127.0.0.1:{port}/?protocol={protocol}");
        let client = redis::Client::open(url).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        connections.push((protocol, connection));
    }
    let steps = steps(&mut fastrand::Rng::with_seed(seed));
    for (index, (step, key)) in steps.into_iter().enumerate() {
        let place = format!("step {index} of seed {seed}: {step:?} of {key}");
        let expected = in_process(limiter, step, &key).await;
        assert_eq!(
            over_http(&service, "http", step, &key).await,
            expected,
            "HTTP, {place}"
        );
        let (is_allowed, _, level) = over_rls(&service, &mut envoy, step, &key).await;
        let after = in_process(limiter, Step::Peek, &key).await.2;
        assert_eq!((is_allowed, level), (expected.0, after), "Envoy, {place}");
        for (protocol, connection) in &mut connections {
            let outcome = over_resp(connection, protocol, step, &key).await;
            assert_eq!(outcome, expected, "{protocol}, {place}");
        }
    }
    service.stop().await;
}

#[tokio::test]
async fn all_protocols_decide_like_the_sdk_in_memory() {
    compare(&file(""), &RateLimiter::new(LIMIT).unwrap()).await;
}

#[tokio::test]
async fn all_protocols_decide_like_the_sdk_in_redis() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let limits = file("storage = \"redis\"\non_failure = \"deny\"");
    // The longest, which a busy machine may prolong.
    let builder = balde::RedisStore::builder().address(redis.url());
    let store = builder.timeout(balde::REDIS_TIMEOUT_MAX).build().unwrap();
    let builder = RateLimiter::builder().name("sdk").limit(LIMIT);
    let limiter = builder
        .redis(&store, balde::OnFailure::Deny)
        .build()
        .unwrap();
    compare(
        &format!(
            "{limits}\n[redis]\naddress = \"{}\"\ntimeout = \"100 ms\"\n",
            redis.url()
        ),
        &limiter,
    )
    .await;
}

/// Proxies ask for one token at a time, and get no level: who is admitted must be the same.
#[tokio::test]
async fn the_questions_of_proxies_are_decided_like_the_sdk() {
    let policies = |storage: &str| {
        format!(
            "[proxy]\naddress = \"127.0.0.1:0\"\n[identity]\ntrusted_proxies = [\"127.0.0.1\"]\n\
             [limiting]\nstorage = \"{storage}\"\n[[policies.policy]]\nname = \"all\"\n\
             scope = \"user\"\nlimit = \"{LIMIT}\"\n"
        )
    };
    let redis = RedisServer::start();
    let in_redis = redis.as_ref().map(|redis| {
        format!(
            "{}[redis]\naddress = \"{}\"\ntimeout = \"100 ms\"\n",
            policies("redis"),
            redis.url()
        )
    });
    for file in [Some(policies("memory")), in_redis].into_iter().flatten() {
        let service = Running::start_only(&file).await;
        let limiter = RateLimiter::new(LIMIT).unwrap();
        for index in 0..100 {
            let client = format!("203.0.113.{}", index % 2);
            let url = format!("http://{}/ext-authz/a", service.address("proxy"));
            let asked = service.client.get(url).header("x-forwarded-for", &client);
            let answered = asked.send().await.unwrap().status().as_u16();
            let expected = limiter.check(&client).await.is_allowed();
            assert_eq!(
                answered,
                if expected { 200 } else { 429 },
                "question {index}"
            );
        }
        service.stop().await;
    }
}
