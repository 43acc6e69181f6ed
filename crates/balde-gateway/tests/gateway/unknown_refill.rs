//! A DICT that refills in steps of a phase that the gateway does not know, and whose clock is off.
//!
//! `BALDE_GATEWAY_REQUESTS` is as in the other stories of the promise: from 100,000 on, all buckets are
//! driven, and for longer.

use std::collections::BTreeMap;
use std::sync::Arc;

use balde::ManualClock;

use crate::promise::{Storm, requests};
use crate::running::Running;
use crate::simulated::{Dict, MINUTE, PARTICIPANT, PSP_POLICY, START_US, order};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_an_unknown_phase_and_a_clock_that_is_off_do_not_matter() {
    for (round, phase) in [2_000_000, 17_300_000, 59_999_999].into_iter().enumerate() {
        // DICT's clock is two seconds and a phase ahead, and it refills in steps.
        let dict = Dict::start_with('F', &[("refill", "stepwise")], START_US + phase).await;
        let own = ManualClock::at_us(START_US);
        let gateway = dict
            .gateway_with("category = \"F\"\nreconcile_every = '0 s'", "", &own)
            .await;
        let gateway = Arc::new(gateway);
        let clocks = [dict.clock.clone(), own];
        // Fewer do not always empty a bucket.
        let count = (requests() / 8).max(2_000);
        let seen = Storm::new(&gateway, &clocks, 5 + round as u64)
            .send(count)
            .await;
        assert!(seen.of(429) > 0, "{seen:?}");
        assert_eq!(gateway.dict_refusals(), 0, "phase {phase}: {seen:?}");
    }
}

/// A request for each bucket of a participant that refills by the minute: method and path. Most are of
/// things that do not exist, which costs as much.
const REQUESTS: [(&str, &str, &str); 28] = [
    (PSP_POLICY, "GET", "/entries/pessoa0000001@exemplo.com.br"),
    (
        "ENTRIES_STATISTICS_READ",
        "GET",
        "/entries/a@b.br/statistics",
    ),
    ("ENTRIES_WRITE", "POST", "/entries/a@b.br/delete"),
    ("ENTRIES_UPDATE", "PUT", "/entries/a@b.br"),
    ("CLAIMS_READ", "GET", "/claims/1"),
    ("CLAIMS_WRITE", "POST", "/claims/1/cancel"),
    (
        "CLAIMS_LIST_WITH_ROLE",
        "GET",
        "/claims/?Participant=12345678&IsDonor=true",
    ),
    (
        "CLAIMS_LIST_WITHOUT_ROLE",
        "GET",
        "/claims/?Participant=12345678",
    ),
    ("SYNC_VERIFICATIONS_WRITE", "POST", "/sync-verifications/"),
    ("CIDS_FILES_READ", "GET", "/cids/files/1"),
    (
        "CIDS_EVENTS_LIST",
        "GET",
        "/cids/events?Participant=12345678&KeyType=EMAIL",
    ),
    ("CIDS_ENTRIES_READ", "GET", "/cids/entries/1"),
    ("INFRACTION_REPORTS_READ", "GET", "/infraction-reports/1"),
    (
        "INFRACTION_REPORTS_WRITE",
        "POST",
        "/infraction-reports/1/cancel",
    ),
    (
        "INFRACTION_REPORTS_LIST_WITH_ROLE",
        "GET",
        "/infraction-reports/?Participant=12345678&IsReporter=true",
    ),
    (
        "INFRACTION_REPORTS_LIST_WITHOUT_ROLE",
        "GET",
        "/infraction-reports/?Participant=12345678",
    ),
    ("KEYS_CHECK", "POST", "/keys/check"),
    ("REFUNDS_READ", "GET", "/refunds/1"),
    ("REFUNDS_WRITE", "POST", "/refunds/1/cancel"),
    (
        "REFUND_LIST_WITH_ROLE",
        "GET",
        "/refunds/?Participant=12345678&ParticipantRole=REQUESTING",
    ),
    (
        "REFUND_LIST_WITHOUT_ROLE",
        "GET",
        "/refunds/?Participant=12345678",
    ),
    ("FRAUD_MARKERS_READ", "GET", "/fraud-markers/1"),
    ("FRAUD_MARKERS_WRITE", "POST", "/fraud-markers/1/cancel"),
    (
        "FRAUD_MARKERS_LIST",
        "GET",
        "/fraud-markers/?Participant=12345678",
    ),
    (
        "PERSONS_STATISTICS_READ",
        "GET",
        "/persons/11122233300/statistics",
    ),
    ("POLICIES_READ", "GET", "/policies/EVENT_LIST"),
    ("POLICIES_LIST", "GET", "/policies/"),
    (
        "EVENT_LIST",
        "GET",
        "/event-notifications?Participant=12345678",
    ),
];

/// Sends a request again and again until the gateway refuses it; returns how often it did not.
async fn send_all(gateway: &Running, method: &str, path: &str) -> u64 {
    let body = format!(
        "<Request><Participant>{PARTICIPANT}</Participant>\
         <Account><Participant>{PARTICIPANT}</Participant></Account>\
         <SyncVerification><Participant>{PARTICIPANT}</Participant></SyncVerification>\
         <Keys><Key>a@b.br</Key></Keys></Request>"
    );
    let mut granted = 0;
    loop {
        let url = gateway.url(&format!("/api/v2{path}"));
        let request = gateway.client.request(method.parse().unwrap(), url);
        let request = request
            .header("PI-RequestingParticipant", PARTICIPANT)
            // Each time another payer, whose bucket is full.
            .header(
                "PI-PayerId",
                format!("{:011}", fastrand::u64(..100_000_000_000)),
            )
            .header("PI-EndToEndId", order(1));
        let request = if method == "GET" {
            request
        } else {
            let request = request.header("content-type", "application/xml");
            request.body(body.clone())
        };
        if request.send().await.unwrap().status() == 429 {
            return granted;
        }
        granted += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_refill_leaves_at_most_one_step_unused_per_bucket_and_minute() {
    /// Often enough that no mirrored bucket is full in between.
    const TIMES_A_MINUTE: u32 = 12;
    // A long campaign drives all buckets; otherwise those that refill slowly.
    let is_long = requests() >= 100_000;
    let (minutes, step_max) = if is_long { (3, u64::MAX) } else { (1, 70) };
    let mut worst: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    // How far DICT's steps are off the minutes of the gateway's clock, two seconds included.
    let phases_ms: &[u64] = if is_long {
        &[2_000, 19_300, 61_999]
    } else {
        &[2_000, 34_700]
    };
    for phase_ms in phases_ms {
        let start_us = START_US + phase_ms * 1_000;
        let dict = Dict::start_with('H', &[("refill", "stepwise")], start_us).await;
        let own = ManualClock::at_us(START_US);
        let of_dict = "category = \"H\"\nreconcile_every = '0 s'";
        let gateway = Arc::new(dict.gateway_with(of_dict, "", &own).await);
        let states = gateway.states(&format!("participant={PARTICIPANT}")).await;
        let mut driven = Vec::new();
        for (policy, method, path) in REQUESTS {
            let mut buckets = states["policies"].as_array().unwrap().iter();
            let bucket = buckets.find(|bucket| bucket["policy"] == policy).unwrap();
            let number = |name: &str| bucket[name].as_u64().unwrap();
            let (capacity, step) = (number("capacity"), number("refill_tokens"));
            assert_eq!(number("period_us"), 60_000_000);
            if step > step_max {
                continue;
            }
            // The long way down from a full bucket says nothing about minutes.
            let level = capacity.min(2 * step);
            let signed = i64::try_from(level).unwrap();
            dict.set_level(policy, None, signed).await;
            driven.push((policy, method, path, step, level, 0));
        }
        gateway.gateway.reconcile().await;
        // One call of each is the reconciliation's.
        for bucket in &mut driven {
            bucket.5 = u64::from(["POLICIES_LIST", "POLICIES_READ"].contains(&bucket.0));
        }
        for moment in 0..=minutes * TIMES_A_MINUTE {
            if moment > 0 {
                dict.clock.advance(MINUTE / TIMES_A_MINUTE);
                own.advance(MINUTE / TIMES_A_MINUTE);
            }
            let sending: Vec<_> = driven
                .iter()
                .map(|(_, method, path, ..)| {
                    let (gateway, method, path) = (gateway.clone(), *method, *path);
                    tokio::spawn(async move { send_all(&gateway, method, path).await })
                })
                .collect();
            for (sent, bucket) in sending.into_iter().zip(&mut driven) {
                bucket.5 += sent.await.unwrap();
            }
            let minute = u64::from(moment / TIMES_A_MINUTE);
            let is_whole = moment % TIMES_A_MINUTE == 0;
            for (policy, _, _, step, level, granted) in driven.iter().filter(|_| is_whole) {
                // What DICT would have granted by now, to somebody who knows its steps.
                let unused = level + minute * step - granted;
                if moment == 0 {
                    let left = dict.level(policy, None).await;
                    assert_eq!(
                        left,
                        i64::try_from(unused).unwrap(),
                        "{policy}: DICT counts it"
                    );
                    continue;
                }
                assert!(
                    unused <= minute * step,
                    "{policy}: {unused} unused in {minute} minutes, phase {phase_ms} ms"
                );
                let worst = worst.entry(policy).or_default();
                *worst = (*step, unused.max(worst.1), minute);
            }
        }
        assert_eq!(gateway.dict_refusals(), 0, "phase {phase_ms} ms");
        assert_eq!(dict.refusals().await, 0);
    }
    for (policy, (step, unused, minutes)) in &worst {
        println!("{policy}: step {step}, at most {unused} unused in {minutes} minutes");
    }
    assert_eq!(worst.len(), if is_long { REQUESTS.len() } else { 15 });
}
