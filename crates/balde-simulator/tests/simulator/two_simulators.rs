//! Two simulators over one Redis give the same answers as one.

use balde::ManualClock;
use balde_simulator::{Simulator, SimulatorBuildError};
use reqwest::Method;
use serde_json::json;

use crate::redis_server::RedisServer;
use crate::test_server::{
    CALLER, KEY, KEY_HOLDER, NO_KEY, PERSON, READ_PARTICIPANT, READ_USER, TestServer, account,
    create_entry, delete_entry, end_to_end_id, error_type, person, text_of,
};

async fn two(server: &RedisServer) -> [TestServer; 2] {
    let simulator = || {
        Simulator::builder()
            .redis(server.url(), "shared")
            .build()
            .unwrap()
    };
    let clock = ManualClock::new();
    [
        TestServer::start(simulator(), clock.clone()).await,
        TestServer::start(simulator(), clock).await,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_directory_and_orders_are_shared() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let [a, b] = two(&server).await;

    // Buckets: a debt made at one simulator refuses requests at the other. (Buckets refill by the
    // server's clock, at two tokens a minute, so a level may have grown by one.)
    a.set_level(READ_USER, CALLER, Some(PERSON), 5).await;
    assert_eq!(b.get_entry_status(NO_KEY, PERSON).await, 404);
    let level = a.level(READ_USER, CALLER, Some(PERSON)).await;
    assert!((-15..=-14).contains(&level), "{level}");
    assert_eq!(a.get_entry_status(KEY, PERSON).await, 429);
    assert_eq!(b.get_entry_status(KEY, PERSON).await, 429);

    // The directory: an entry created at one simulator is read, changed and deleted at the other.
    let phone = "+5561988880000";
    let path = "/entries/%2B5561988880000";
    let body = create_entry("PHONE", phone, KEY_HOLDER, "11122233301", 1);
    assert_eq!(a.post("/entries/", body.clone()).await.0, 201);
    let payer = "11122233399";
    assert_eq!(b.get_entry_status(phone, payer).await, 200);
    let twice = b.post("/entries/", body).await;
    assert_eq!(twice.0, 201, "the same request: {}", twice.1);
    assert_eq!(
        b.post(&format!("{path}/delete"), delete_entry(phone, KEY_HOLDER))
            .await
            .0,
        200
    );
    assert_eq!(a.get_entry_status(phone, payer).await, 404);

    // Orders: looked up at one simulator, credited at the other, once.
    let id = end_to_end_id(5);
    assert_eq!(a.get_entry(KEY, "22222222222", &id).await.status(), 200);
    assert!(b.send_order(CALLER, "22222222222", &id).await);
    assert!(!a.send_order(CALLER, "22222222222", &id).await);
    assert!(!b.send_order(CALLER, "22222222222", &id).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn categories_limits_and_faults_hold_for_both() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let [a, b] = two(&server).await;
    // In category A some hundred tokens a second are refilled between two calls, by the server's clock.
    // A smaller category refills slowly enough to compare levels.
    a.set_category(CALLER, "G").await;
    a.set_level(READ_PARTICIPANT, CALLER, None, 240).await;
    b.set_category(CALLER, "H").await;
    for simulator in [&a, &b] {
        let bucket = simulator.bucket(READ_PARTICIPANT, CALLER, None).await;
        assert_eq!(bucket["capacity"], 50);
        // As many tokens below full as before, refilled at two a minute from now on.
        let level = bucket["level"].as_i64().unwrap();
        assert!((40..=45).contains(&level), "{level}");
        let (_, body) = simulator.get("/policies/POLICIES_LIST", CALLER).await;
        assert!(body.contains("<Category>H</Category>"), "{body}");
    }
    let body = json!({"policy": "POLICIES_READ", "limit": "1/min burst 3"});
    assert_eq!(a.sim(Method::PUT, "/sim/limits", Some(body)).await.0, 200);
    assert_eq!(
        b.bucket("POLICIES_READ", KEY_HOLDER, None).await["capacity"],
        3
    );
    a.set_level(READ_PARTICIPANT, CALLER, None, 40).await;
    let fault = json!({"operation": "getEntry", "status": 503});
    assert_eq!(b.sim(Method::PUT, "/sim/faults", Some(fault)).await.0, 200);
    assert_eq!(a.get_entry_status(KEY, PERSON).await, 503);
    assert_eq!(a.sim(Method::DELETE, "/sim/faults", None).await.0, 200);
    assert_eq!(b.get_entry_status(KEY, PERSON).await, 200);
    let (status, shown) = a
        .sim(Method::POST, "/sim/clock", Some(json!({"advance_ms": 1})))
        .await;
    assert_eq!(status, 409);
    assert!(
        shown["detail"].as_str().unwrap().contains("Redis"),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_simulator_carries_out_the_actions_of_a_claim() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let [a, b] = two(&server).await;
    let claim = format!(
        "<CreateClaimRequest><Claim><Type>PORTABILITY</Type><Key>{KEY}</Key><KeyType>EMAIL</KeyType>\
         {}{}</Claim></CreateClaimRequest>",
        account("ClaimerAccount", CALLER),
        person("Claimer", "99988877700"),
    );
    let (status, opened) = a.post("/claims/", claim).await;
    assert_eq!(status, 201, "{opened}");
    let id = text_of(&opened, "Id").to_owned();
    let step = |what: &str, participant: &str| {
        format!(
            "<{what}ClaimRequest><ClaimId>{id}</ClaimId><Participant>{participant}</Participant>\
             <Reason>USER_REQUESTED</Reason><RequestId>b946d533-7f22-42a5-9a9b-e87cd55c0f4d</RequestId>\
             </{what}ClaimRequest>"
        )
    };
    assert!(
        b.get("/claims/?Participant=87654321", KEY_HOLDER)
            .await
            .1
            .contains(&id)
    );
    assert_eq!(
        b.post(
            &format!("/claims/{id}/acknowledge"),
            step("Acknowledge", KEY_HOLDER)
        )
        .await
        .0,
        200
    );
    assert_eq!(
        a.post(
            &format!("/claims/{id}/confirm"),
            step("Confirm", KEY_HOLDER)
        )
        .await
        .0,
        200
    );
    assert_eq!(
        b.post(&format!("/claims/{id}/complete"), step("Complete", CALLER))
            .await
            .0,
        200
    );
    let (status, late) = a
        .post(&format!("/claims/{id}/cancel"), step("Cancel", CALLER))
        .await;
    assert_eq!((status, error_type(&late)), (400, "ClaimOperationInvalid"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_concurrent_requests_for_the_same_key_one_succeeds() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let [a, b] = two(&server).await;
    for round in 0..20_u64 {
        let phone = format!("+556198888{round:04}");
        let ours = create_entry("PHONE", &phone, CALLER, "11122233301", 2 * round)
            .replace("0007654321", &format!("{}", round + 1));
        let theirs = create_entry("PHONE", &phone, KEY_HOLDER, "11122233302", 2 * round + 1)
            .replace("0007654321", &format!("{}", round + 1));
        let (one, other) = tokio::join!(a.post("/entries/", ours), b.post("/entries/", theirs));
        let mut statuses = [one.0, other.0];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 400], "{round}: {} {}", one.1, other.1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_unavailable_the_response_is_503() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let [a, _b] = two(&server).await;
    assert_eq!(a.get_entry_status(KEY, PERSON).await, 200);
    server.kill();
    let response = a.get_entry(KEY, PERSON, &end_to_end_id(0)).await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(
        error_type(&response.text().await.unwrap()),
        "ServiceUnavailable"
    );
    server.restart();
    // The new server has no data, and takes a moment to accept connections.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while a.get_entry_status(KEY, PERSON).await != 404 {
        assert!(
            std::time::Instant::now() < deadline,
            "it does not come back"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[test]
fn a_virtual_clock_over_redis_is_refused() {
    let clock = ManualClock::new();
    let built = Simulator::builder()
        .manual_clock(&clock)
        .redis("127.0.0.1:1", "shared")
        .build();
    assert!(matches!(
        built,
        Err(SimulatorBuildError::ManualClockOverRedis)
    ));
}
