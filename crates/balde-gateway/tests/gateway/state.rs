//! The state endpoint.

use serde_json::json;

use crate::backend::Backend;
use crate::running::{Running, TOKEN, simple};
use crate::simulated::{Dict, PARTICIPANT, PAYER, USER_POLICY, key, no_key, order};

#[tokio::test]
async fn nothing_is_answered_without_the_token() {
    let backend = Backend::start().await;
    let more = "[state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"TOKEN\"\n";
    let gateway = Running::start(&simple(backend.address, more)).await;
    let url = |path: &str| format!("http://{}{path}", gateway.state.unwrap());
    for path in ["/balde/states", "/metrics", "/balde/orders", "/"] {
        for token in [None, Some("wrong"), Some("")] {
            let mut request = gateway.client.get(url(path));
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 401, "{path} {token:?}");
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
        }
    }
    let with = async |path: &str| {
        let request = gateway.client.get(url(path)).bearer_auth(TOKEN);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(with("/metrics").await, 200);
    for (value, status) in [
        (format!("bearer {TOKEN}"), 200),
        (format!("BEARER {TOKEN}"), 200),
        (format!("Bearer  {TOKEN}"), 200),
        (format!("Basic {TOKEN}"), 401),
        (format!("Bearer{TOKEN}"), 401),
        (format!("Bearer {}", TOKEN.to_uppercase()), 401),
        (TOKEN.to_owned(), 401),
    ] {
        let request = gateway.client.get(url("/metrics"));
        let request = request.header("authorization", &value);
        assert_eq!(request.send().await.unwrap().status(), status, "{value}");
    }
    assert_eq!(with("/elsewhere").await, 404);
    // A health check needs no token, and learns nothing else.
    let healthy = gateway.client.get(url("/healthz")).send().await.unwrap();
    assert_eq!(healthy.status(), 200);
    assert_eq!(healthy.text().await.unwrap(), "{\"status\":\"ok\"}");
    let posted = gateway.client.post(url("/healthz")).send().await.unwrap();
    assert_eq!(posted.status(), 401);
    // Without policies there are no states; and the proxy's own address has no such endpoint.
    assert_eq!(with("/balde/states").await, 404);
    assert_eq!(gateway.status("/balde/states").await, 200);
    assert_eq!(backend.only().parts.uri, "/balde/states");
}

#[tokio::test]
async fn a_participants_and_a_payers_buckets_are_reported_with_everything_an_operator_asks() {
    let dict = Dict::start('F').await;
    let gateway = dict.gateway("reconcile_every = '0 ms'", "").await;
    gateway.gateway.reconcile().await;
    for number in 0..30 {
        gateway.look_up(&key(1), PAYER, &order(number)).await;
    }
    assert_eq!(
        gateway
            .look_up(&no_key(1), PAYER, &order(40))
            .await
            .status(),
        404
    );
    let states = gateway.states(&format!("participant={PARTICIPANT}")).await;
    assert_eq!(states["category"], "F");
    assert_eq!(states["answered_us"], dict.clock.now_us());
    let policies = states["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 29, "all but the payers'");
    let lookups = &policies[0];
    assert_eq!(lookups["policy"], "ENTRIES_READ_PARTICIPANT_ANTISCAN");
    // As DICT reports it, and what of it is certainly there if it refills in steps.
    assert_eq!(
        (&lookups["level"], &lookups["certain_level"]),
        (&json!(467), &json!(217))
    );
    assert_eq!(
        (&lookups["capacity"], &lookups["refill_tokens"]),
        (&json!(500), &json!(250))
    );
    assert_eq!(
        (&lookups["period_us"], &lookups["drift"]),
        (&json!(60_000_000), &json!(0))
    );
    assert_eq!(lookups["full_after_ms"], 7_920);
    assert_eq!(
        dict.level("ENTRIES_READ_PARTICIPANT_ANTISCAN", None).await,
        467
    );
    let duties = &states["duties"];
    assert_eq!(
        (&duties["lookups"], &duties["not_found"]),
        (&json!(31), &json!(1))
    );
    assert_eq!(duties["not_found_permille"], 32);
    let worst = &duties["worst_payers"][0];
    assert_eq!(worst["lookups"], 31);
    assert!(!states.to_string().contains(PAYER), "payers are hashed");

    let payer = gateway.bucket(USER_POLICY, Some(PAYER)).await;
    assert_eq!(
        (&payer["level"], &payer["capacity"], &payer["for"]),
        (&json!(50), &json!(100), &json!("PF"))
    );
    let states = gateway
        .states(&format!("participant={PARTICIPANT}&payer={PAYER}"))
        .await;
    assert_eq!(states["policies"].as_array().unwrap().len(), 2);
    assert_eq!(states["payer_kind"], "PF");
}

#[tokio::test]
async fn refusals_belong_to_their_participant_and_scanning_payers_are_reported() {
    let dict = Dict::start('F').await;
    let file = crate::simulated::configuration(
        dict.address,
        &format!(
            "{}\nworst_payer_lookups = 300\n",
            crate::simulated::exact('F')
        ),
        "",
    );
    let own = format!("participants = [\"{PARTICIPANT}\"]");
    let file = file.replace(&own, "participants = [\"12345678\", \"87654321\"]");
    let config = crate::running::parse(&file);
    let gateway = Running::start_with(&config, balde::Clock::manual(&dict.clock)).await;
    for number in 0..300 {
        let status = gateway
            .look_up(&no_key(number), PAYER, &order(number))
            .await;
        let expected = if number < 5 { 404 } else { 429 };
        assert_eq!(status.status(), expected, "{number}");
    }
    let states = gateway.states(&format!("participant={PARTICIPANT}")).await;
    // The payer's bucket is none of the participant's, but its refusals are there.
    assert_eq!(
        states["refusals"],
        json!([{"policy": USER_POLICY, "scope": "USER", "refusals": 295}])
    );
    assert_eq!(states["refusals_minutes"], 5);
    let duties = &states["duties"];
    assert_eq!(
        (&duties["lookups"], &duties["refused"]),
        (&json!(5), &json!(295))
    );
    let worst = duties["worst_payers"].as_array().unwrap();
    assert_eq!(worst.len(), 1, "{states}");
    assert_eq!(
        (
            &worst[0]["lookups"],
            &worst[0]["not_found"],
            &worst[0]["refused"]
        ),
        (&json!(5), &json!(5), &json!(295))
    );
    let other = gateway.states("participant=87654321").await;
    assert_eq!(other["refusals"], json!([]));
    assert_eq!(other["duties"]["worst_payers"], json!([]));
    let metrics = gateway.metrics();
    for line in [
        "gateway_refusals_total{participant=\"12345678\",policy=\"ENTRIES_READ_USER_ANTISCAN\"} 295",
        "gateway_dict_worst_payer_refused_lookups{participant=\"12345678\",payer_hash=",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn a_participant_that_the_gateway_or_dict_does_not_know_is_404() {
    let dict = Dict::start_knowing(&[PARTICIPANT]).await;
    // The last one is in the gateway's file, but DICT does not know it.
    let file = crate::simulated::configuration(dict.address, "reconcile_every = '0 ms'", "");
    let own = format!("participants = [\"{PARTICIPANT}\"]");
    assert!(file.contains(&own), "{file}");
    let file = file.replace(&own, "participants = [\"12345678\", \"1234567A\"]");
    let config = crate::running::parse(&file);
    let gateway = Running::start_with(&config, balde::Clock::manual(&dict.clock)).await;
    let ask = async |participant: &str| {
        let state = gateway.state.unwrap();
        let url = format!("http://{state}/balde/states?participant={participant}");
        let response = gateway.client.get(url).bearer_auth(TOKEN).send().await;
        let response = response.unwrap();
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    };
    // One swapped digit.
    let (status, body) = ask("12345687").await;
    assert_eq!(status, 404, "{body}");
    assert!(body.contains("participant 12345687 is none of this gateway's"));
    assert_eq!(ask("12345687&payer=11122233300").await.0, 404);
    // Until DICT was asked, what it knows is not known.
    assert_eq!(ask("1234567A").await.0, 200);
    gateway.gateway.reconcile().await;
    assert_eq!(ask(PARTICIPANT).await.0, 200);
    let (status, body) = ask("1234567a").await;
    assert_eq!(status, 404, "{body}");
    assert!(body.contains("DICT does not accept participant 1234567A: it answered with 403"));
}

const STATE: &str = "[state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"TOKEN\"\n";

#[tokio::test]
async fn connections_that_read_nothing_do_not_keep_health_checks_out() {
    use tokio::io::AsyncWriteExt as _;
    let backend = Backend::start().await;
    let gateway = Running::start(&simple(backend.address, STATE)).await;
    let state = gateway.state.unwrap();
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut stream = tokio::net::TcpStream::connect(state).await.unwrap();
        let requests = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500);
        // Some of them are closed already.
        let writing = stream.write_all(&requests);
        let _ = tokio::time::timeout(std::time::Duration::from_millis(1), writing).await;
        held.push(stream);
    }
    for _ in 0..20 {
        let url = format!("http://{state}/healthz");
        let asked = crate::running::client().get(url).send();
        let answer = tokio::time::timeout(crate::running::PATIENCE, asked).await;
        assert_eq!(answer.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn readiness_tells_what_is_missing() {
    let Some(redis) = crate::redis_server::RedisServer::start() else {
        return;
    };
    let backend = Backend::start().await;
    let more = format!(
        "{STATE}[limiting]\nstorage = \"redis\"\n[redis]\naddress = \"{}\"\n\
         [[policies.policy]]\nname = \"all\"\nscope = \"user\"\nlimit = \"1000/s\"\n",
        redis.addr()
    );
    let gateway = Running::start(&simple(backend.address, &more)).await;
    let ready = async || {
        let url = format!("http://{}/readyz", gateway.state.unwrap());
        let answer = gateway.client.get(url).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let until = async |status: u16, text: &str| {
        let waiting = async {
            loop {
                let (found, body) = ready().await;
                if found == status && body.contains(text) {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        let waited = tokio::time::timeout(crate::running::PATIENCE, waiting).await;
        waited.unwrap_or_else(|_| panic!("{status} {text}"));
    };
    until(200, "\"ready\"").await;
    drop(redis);
    until(503, "Redis is unavailable").await;
    drop(backend);
    until(503, "no upstream is up: backend").await;
    gateway.gateway.drain();
    until(503, "shutting down").await;
}
