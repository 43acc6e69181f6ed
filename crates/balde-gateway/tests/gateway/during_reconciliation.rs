//! Payment orders and calls while a reconciliation is under way, with buckets in Redis.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde::Clock;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use crate::redis_server::RedisServer;
use crate::running::{PATIENCE, Running, TOKEN, parse};
use crate::simulated::{
    Dict, PARTICIPANT, PAYER, PSP_POLICY, USER_POLICY, configuration, key, no_key, order,
};

/// Reconciled after the first.
const SECOND_PARTICIPANT: &str = "23456789";

/// Stands between a gateway and DICT, and keeps the answers of listBucketStates until the test releases
/// them.
struct LateDict {
    address: SocketAddr,
    held: Arc<Semaphore>,
    released: Arc<Semaphore>,
    task: JoinHandle<()>,
}

impl LateDict {
    async fn start(dict: &Dict) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (held, released) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (client, upstream) = (dict.client.clone(), dict.address);
        let gates = (held.clone(), released.clone());
        let task = tokio::spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (client, gates) = (client.clone(), gates.clone());
                serving.spawn(async move {
                    let service = service_fn(|request: Request<Incoming>| async {
                        let is_list = request.uri().path().ends_with("/policies/");
                        let answer = relay(&client, upstream, request).await;
                        if is_list {
                            gates.0.add_permits(1);
                            gates.1.acquire().await.unwrap().forget();
                        }
                        Ok::<_, Infallible>(answer)
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    // The gateway may close it at any time.
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self {
            address,
            held,
            released,
            task,
        }
    }

    /// Waits until DICT has answered, and the gateway has not received it.
    async fn answer_is_held(&self) {
        let held = tokio::time::timeout(PATIENCE, self.held.acquire()).await;
        held.unwrap().unwrap().forget();
    }

    /// Lets one answer pass, now or when it comes.
    fn release(&self) {
        self.released.add_permits(1);
    }
}

impl Drop for LateDict {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends a request without a body to DICT.
async fn relay(
    client: &reqwest::Client,
    dict: SocketAddr,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let (parts, _) = request.into_parts();
    let url = format!("http://{dict}{}", parts.uri);
    let sent = client.request(parts.method, url).headers(parts.headers);
    let answer = sent.send().await.unwrap();
    let mut response = Response::builder().status(answer.status());
    if let Some(media_type) = answer.headers().get("content-type") {
        response = response.header("content-type", media_type);
    }
    let body = answer.bytes().await.unwrap();
    response.body(Full::new(body)).unwrap()
}

/// Stands between a gateway and Redis, and delays what Redis answers.
struct SlowRedis {
    address: SocketAddr,
    delay_ms: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl SlowRedis {
    async fn start(redis: &RedisServer) -> Self {
        let upstream = redis.addr();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let delay_ms = Arc::new(AtomicU64::new(0));
        let delay = delay_ms.clone();
        let task = tokio::spawn(async move {
            let mut relays = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(upstream).await.unwrap();
                let (mut commands, mut replies) = client.into_split();
                let (mut from_redis, mut to_redis) = server.into_split();
                relays.spawn(async move {
                    let _ends_with_the_gateway =
                        tokio::io::copy(&mut commands, &mut to_redis).await;
                });
                let delay = delay.clone();
                relays.spawn(async move {
                    let mut buffer = vec![0; 64 << 10];
                    while let Ok(read @ 1..) = from_redis.read(&mut buffer).await {
                        tokio::time::sleep(Duration::from_millis(delay.load(Ordering::SeqCst)))
                            .await;
                        if replies.write_all(&buffer[..read]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self {
            address,
            delay_ms,
            task,
        }
    }

    fn delay(&self, delay_ms: u64) {
        self.delay_ms.store(delay_ms, Ordering::SeqCst);
    }
}

impl Drop for SlowRedis {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn gateway(dict: &LateDict, redis: &SlowRedis) -> Arc<Running> {
    let more = format!(
        "[limiting]\nstorage = \"redis\"\n[redis]\naddress = \"{}\"\ntimeout = '100 ms'\n",
        redis.address
    );
    let of_dict = "refill = \"profile\"\ncategory = \"H\"\nreconcile_every = '0 s'";
    let text = configuration(dict.address, of_dict, &more);
    let one = format!("[\"{PARTICIPANT}\"]");
    let both = format!("[\"{PARTICIPANT}\", \"{SECOND_PARTICIPANT}\"]");
    let config = parse(&text.replace(&one, &both));
    Arc::new(Running::start_with(&config, Clock::precise()).await)
}

/// Reconciles both participants, the first one first.
fn reconcile(gateway: &Arc<Running>) -> JoinHandle<()> {
    let gateway = gateway.clone();
    tokio::spawn(async move { gateway.gateway.reconcile().await })
}

async fn ended(reconciliation: JoinHandle<()>) {
    let ended = tokio::time::timeout(PATIENCE, reconciliation).await;
    ended.unwrap().unwrap();
}

async fn look_up(gateway: &Running, participant: &str, number: usize) {
    let url = gateway.url(&format!("/api/v2/entries/{}", key(1)));
    let request = gateway.client.get(url);
    let request = request
        .header("PI-RequestingParticipant", participant)
        .header("PI-PayerId", PAYER)
        .header("PI-EndToEndId", order(number));
    assert_eq!(request.send().await.unwrap().status(), 200);
}

/// Reports an order, and returns the policies that it gave tokens back to.
async fn report(gateway: &Running, participant: &str, number: usize) -> Vec<String> {
    let url = format!("http://{}/balde/orders", gateway.state.unwrap());
    let body = json!({
        "end_to_end_id": order(number), "payer": PAYER, "participant": participant,
    });
    let request = gateway.client.post(url).bearer_auth(TOKEN).json(&body);
    let credited: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(credited["credited"], true, "{credited}");
    let buckets = credited["buckets"].as_array().unwrap();
    let policies = buckets.iter().map(|one| one["policy"].as_str().unwrap());
    policies.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_reported_while_dict_is_asked_does_not_count_twice() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let dict = Dict::start_in_real_time('H').await;
    let (late, redis) = (LateDict::start(&dict).await, SlowRedis::start(&redis).await);
    let gateway = gateway(&late, &redis).await;
    dict.set_level(PSP_POLICY, None, 30).await;
    late.release();
    late.release();
    gateway.gateway.reconcile().await;
    late.answer_is_held().await;
    late.answer_is_held().await;
    // What DICT has more than the mirror. DICT is read last, so a token refilled in between counts as
    // its own.
    let dict_has_more = async || {
        let own = gateway.mirrored(PSP_POLICY, None).await;
        dict.level(PSP_POLICY, None).await - own
    };
    assert!((0..=2).contains(&dict_has_more().await));
    for number in 1..=6 {
        look_up(&gateway, PARTICIPANT, number).await;
        dict.receive_order(PAYER, &order(number)).await;
    }
    assert!(dict_has_more().await >= 6);
    // DICT's answer, which includes the tokens of the orders, is on its way while five of them are
    // reported.
    let reconciliation = reconcile(&gateway);
    late.answer_is_held().await;
    let mut credited = Vec::new();
    for number in 1..=5 {
        credited.extend(report(&gateway, PARTICIPANT, number).await);
    }
    // Three calls that the answer does not include, with three tokens each.
    for number in 0..3 {
        let payer = format!("2223334440{number}");
        let response = gateway.look_up(&no_key(number), &payer, &order(10)).await;
        assert_eq!(response.status(), 404);
    }
    late.release();
    late.release();
    ended(reconciliation).await;
    let more = dict_has_more().await;
    assert!(
        (0..=2).contains(&more),
        "DICT has {more} more: {credited:?}"
    );
    assert_eq!(credited, [USER_POLICY; 5]);
    // The sixth is reported afterwards.
    assert_eq!(report(&gateway, PARTICIPANT, 6).await, [USER_POLICY]);
    let more = dict_has_more().await;
    assert!((0..=2).contains(&more), "DICT has {more} more");
    // A lookup after the reconciliation, and its order.
    look_up(&gateway, PARTICIPANT, 7).await;
    assert_eq!(report(&gateway, PARTICIPANT, 7).await.len(), 2);
    assert_eq!(dict.refusals().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_that_reconcile_at_once_correct_a_bucket_once() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let dict = Dict::start_in_real_time('H').await;
    let (late, redis) = (LateDict::start(&dict).await, SlowRedis::start(&redis).await);
    let one = gateway(&late, &redis).await;
    let other = gateway(&late, &redis).await;
    dict.set_level(PSP_POLICY, None, 2).await;
    late.release();
    late.release();
    one.gateway.reconcile().await;
    late.answer_is_held().await;
    late.answer_is_held().await;
    assert!(one.mirrored(PSP_POLICY, None).await <= 2);
    // DICT has more tokens. Gateways that both ask for them would learn it from answers that arrive
    // together; they have time to.
    dict.set_level(PSP_POLICY, None, 30).await;
    let reconciliations = [reconcile(&one), reconcile(&other)];
    late.answer_is_held().await;
    let both = tokio::time::timeout(Duration::from_millis(300), late.answer_is_held()).await;
    assert!(both.is_err(), "both have asked for the same buckets");
    (0..4).for_each(|_| late.release());
    for reconciliation in reconciliations {
        ended(reconciliation).await;
    }
    let own = one.mirrored(PSP_POLICY, None).await;
    let of_dict = dict.level(PSP_POLICY, None).await;
    println!("DICT has {of_dict}, the mirror {own}");
    assert!(own <= of_dict, "the mirror has {own}, DICT {of_dict}");
    assert!(own > 2, "the mirror has {own}, DICT {of_dict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_do_not_wait_for_a_reconciliation() {
    // A reconciliation makes more than fifty round trips, an order very few.
    const ROUND_TRIP_MS: u64 = 10;
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let dict = Dict::start_in_real_time('H').await;
    let (late, redis) = (LateDict::start(&dict).await, SlowRedis::start(&redis).await);
    let gateway = gateway(&late, &redis).await;
    for number in 1..=2 {
        look_up(&gateway, PARTICIPANT, number).await;
        look_up(&gateway, SECOND_PARTICIPANT, number).await;
    }
    let reconciliation = reconcile(&gateway);
    late.answer_is_held().await;
    // DICT has not answered yet.
    assert_eq!(report(&gateway, PARTICIPANT, 1).await, [USER_POLICY]);
    assert_eq!(report(&gateway, SECOND_PARTICIPANT, 1).await.len(), 2);
    // The levels of the first participant are being corrected.
    let corrected = || {
        let label = format!("gateway_dict_drift_tokens{{participant=\"{PARTICIPANT}\"");
        let metrics = gateway.metrics();
        metrics
            .lines()
            .filter(|line| line.starts_with(&label))
            .count()
    };
    redis.delay(ROUND_TRIP_MS);
    late.release();
    let begun = async {
        while corrected() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, begun).await.unwrap();
    let second = report(&gateway, SECOND_PARTICIPANT, 2).await;
    let by_then = corrected();
    let first = report(&gateway, PARTICIPANT, 2).await;
    let at_last = corrected();
    redis.delay(0);
    late.release();
    ended(reconciliation).await;
    let all = corrected();
    println!("{by_then} and {at_last} of {all} buckets were corrected when the orders ended");
    // Orders that waited would end after all of them, or all but one. Without waiting it is some three;
    // the rest is for a slow machine.
    assert!(at_last + 5 < all, "{by_then} and {at_last} of {all}");
    assert_eq!((second.len(), first), (2, vec![USER_POLICY.to_owned()]));
}
