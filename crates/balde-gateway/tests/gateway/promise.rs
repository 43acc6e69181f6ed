//! The promise: DICT never refuses what the gateway forwards, and the gateway refuses nothing that
//! DICT would have admitted by more than the calls in flight.
//!
//! `BALDE_GATEWAY_REQUESTS` sets how many requests the first story sends, and from 100,000 on the
//! others are as long, too; by default few enough for an unoptimised build.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use balde::ManualClock;
use parking_lot::Mutex;

use crate::running::Running;
use crate::simulated::{
    Dict, MINUTE, PARTICIPANT, PSP_POLICY, START_US, USER_POLICY, key, no_key, order,
};

/// Callers at a time.
const CALLERS: usize = 16;

pub(crate) fn requests() -> usize {
    let asked = std::env::var("BALDE_GATEWAY_REQUESTS").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(4_000)
}

/// What callers saw.
#[derive(Debug, Default)]
struct Seen {
    statuses: Mutex<HashMap<u16, usize>>,
}

impl Seen {
    fn count(&self, status: u16) {
        *self.statuses.lock().entry(status).or_default() += 1;
    }

    fn of(&self, status: u16) -> usize {
        self.statuses.lock().get(&status).copied().unwrap_or(0)
    }

    fn all(&self) -> usize {
        self.statuses.lock().values().sum()
    }
}

/// How many callers share their payers.
const SHARING: usize = 2;

/// One of a caller's payers: six persons and two companies. They are so many that both their buckets
/// and the participant's run dry.
fn payer_of(caller: usize, random: &mut fastrand::Rng) -> String {
    let group = caller / SHARING;
    match random.u32(..8) {
        company @ 0..2 => format!("112223330{group:04}{company}"),
        person => format!("111222{group:04}{person}"),
    }
}

/// One of few payers, whose buckets run dry long before the participant's.
fn few_payers(_: usize, random: &mut fastrand::Rng) -> String {
    let payers = [
        "11122233300",
        "22233344400",
        "33344455500",
        "11222333000181",
    ];
    payers[random.usize(..payers.len())].to_owned()
}

/// One of many kinds of request.
async fn send(
    gateway: &Running,
    number: usize,
    payer: &str,
    random: &mut fastrand::Rng,
) -> reqwest::Response {
    let lists = format!("Participant={PARTICIPANT}");
    match random.u32(..100) {
        0..45 => {
            let key = key(1 + random.usize(..40));
            gateway.look_up(&key, payer, &order(number)).await
        }
        45..55 => {
            gateway
                .look_up(&no_key(number), payer, &order(number))
                .await
        }
        55..65 => {
            gateway
                .ask(&format!("/entries/{}/statistics", key(1)))
                .await
        }
        65..75 => {
            gateway
                .ask("/claims/8f6d1b1e-0000-4000-8000-000000000000")
                .await
        }
        75..80 => gateway.ask(&format!("/claims/?{lists}")).await,
        80..85 => gateway.ask(&format!("/claims/?{lists}&IsDonor=true")).await,
        85..90 => {
            gateway
                .ask(&format!("/cids/events?{lists}&KeyType=EMAIL"))
                .await
        }
        90..95 => {
            let body = "<CheckKeysRequest><Keys><Key>a@b.br</Key></Keys></CheckKeysRequest>";
            let request = gateway.client.post(gateway.url("/api-np/v2/keys/check"));
            let request = request
                .header("content-type", "application/xml")
                .header("PI-RequestingParticipant", PARTICIPANT);
            request.body(body).send().await.unwrap()
        }
        _ => gateway.ask("/policies/KEYS_CHECK").await,
    }
}

/// Sends requests from many callers while the clocks run on, and checks each refusal.
async fn storm(
    gateway: &Arc<Running>,
    clocks: &[ManualClock],
    count: usize,
    seed: u64,
    payer_of: fn(usize, &mut fastrand::Rng) -> String,
    refusals: Option<&Arc<Refusals>>,
) -> Seen {
    let seen = Arc::new(Seen::default());
    let next = Arc::new(AtomicUsize::new(0));
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let (gateway, seen, next) = (gateway.clone(), seen.clone(), next.clone());
        let (clocks, refusals) = (clocks.to_vec(), refusals.cloned());
        callers.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed + caller as u64);
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= count {
                    return;
                }
                // About a minute in a thousand requests, in uneven steps and while calls are in
                // flight. All clocks run at the same pace.
                if random.u32(..10) == 0 {
                    let step = Duration::from_millis(random.u64(..1_200));
                    for clock in &clocks {
                        clock.advance(step);
                    }
                }
                let payer = payer_of(caller, &mut random);
                let began_us = clocks[0].now_us();
                let response = send(&gateway, number, &payer, &mut random).await;
                seen.count(response.status().as_u16());
                if response.status() == 429
                    && let Some(refusals) = &refusals
                {
                    refusals.check(response, &payer, began_us).await;
                }
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    Arc::try_unwrap(seen).unwrap()
}

/// Checks refusals of a gateway that mirrors DICT exactly: but for the calls in flight, DICT would
/// have refused them, too.
struct Refusals {
    dict: Arc<Dict>,
    /// By policy: how many DICT has refilled, and in which time.
    refills: HashMap<String, (u64, u64)>,
    /// By policy: how many refusals, the most tokens that DICT had at one, and the most that calls in
    /// flight explain.
    seen: Mutex<BTreeMap<String, (usize, i64, i64)>>,
}

impl Refusals {
    async fn new(dict: &Arc<Dict>, gateway: &Running) -> Arc<Self> {
        let mut refills = HashMap::new();
        // A company's bucket refills faster than a person's.
        let payers = gateway.bucket(USER_POLICY, Some("11222333000181")).await;
        let states = gateway.states(&format!("participant={PARTICIPANT}")).await;
        let of_participant = states["policies"].as_array().unwrap();
        for bucket in of_participant.iter().chain([&payers]) {
            let number = |name: &str| bucket[name].as_u64().unwrap();
            let refill = (number("refill_tokens"), number("period_us"));
            refills.insert(bucket["policy"].as_str().unwrap().to_owned(), refill);
        }
        Arc::new(Self {
            dict: dict.clone(),
            refills,
            seen: Mutex::default(),
        })
    }

    async fn check(&self, response: reqwest::Response, payer: &str, began_us: u64) {
        let policy = refusing_policy(response).await;
        let is_payers = policy == USER_POLICY;
        let level = self.dict.level(&policy, is_payers.then_some(payer)).await;
        // The clock ran on since the gateway decided.
        let passed_us = self.dict.clock.now_us() - began_us;
        let (tokens, period_us) = self.refills[&policy];
        let refilled = (tokens * passed_us).div_ceil(period_us);
        let (callers, price) = match policy.as_str() {
            USER_POLICY => (SHARING, 20),
            PSP_POLICY => (CALLERS, 3),
            _ => (CALLERS, 1),
        };
        // Each of the others holds at most the highest price. And while a bucket is full here, because
        // the calls that DICT has counted are in flight, it does not refill, where DICT's does: that
        // is at most what all of them cost.
        let explained = price * (callers - 1) + price * callers;
        let explained = i64::try_from(explained).unwrap();
        let most = explained + i64::try_from(refilled).unwrap();
        assert!(
            level <= most,
            "{policy}: DICT has {level}, more than {most}"
        );
        let mut seen = self.seen.lock();
        let (count, highest, _) = seen.entry(policy).or_insert((0, 0, explained));
        *count += 1;
        *highest = level.max(*highest);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dict_never_refuses_what_the_gateway_forwards() {
    let dict = Arc::new(Dict::start('F').await);
    let gateway = Arc::new(dict.exact_gateway('F').await);
    let seed = 20_261_115;
    let count = requests();
    let clocks = std::slice::from_ref(&dict.clock);
    let refusals = Refusals::new(&dict, &gateway).await;
    let seen = storm(&gateway, clocks, count, seed, payer_of, Some(&refusals)).await;
    println!("seed {seed}: {count} requests, {:?}", seen.statuses.lock());
    println!(
        "refusals, most tokens at DICT, explained: {:?}",
        refusals.seen.lock()
    );
    let checked: usize = refusals.seen.lock().values().map(|(count, ..)| count).sum();
    assert_eq!(checked, seen.of(429), "each refusal was checked");
    assert_eq!(seen.all(), count);
    assert!(seen.of(429) > count / 20, "buckets ran dry: {seen:?}");
    assert!(seen.of(200) > count / 20, "{seen:?}");
    assert_eq!(gateway.dict_refusals(), 0, "DICT refused nothing");
    assert_eq!(dict.refusals().await, 0);
    // With nothing in flight, both have the same tokens.
    let states = gateway.states(&format!("participant={PARTICIPANT}")).await;
    for bucket in states["policies"].as_array().unwrap() {
        let policy = bucket["policy"].as_str().unwrap();
        assert_eq!(bucket["in_flight"], 0, "{policy}");
        let (own, of_dict) = (
            bucket["level"].as_i64().unwrap(),
            dict.level(policy, None).await,
        );
        assert!(own <= of_dict, "{policy}: {own} of {of_dict}");
        // Only a call in flight may have been counted a moment later here than there.
        let calls = i64::try_from(CALLERS).unwrap();
        assert!(of_dict - own <= calls, "{policy}: {own} of {of_dict}");
    }
}

#[tokio::test]
async fn without_calls_in_flight_the_gateway_refuses_exactly_what_dict_would() {
    let dict = Dict::start('H').await;
    let gateway = dict.exact_gateway('H').await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut refused = 0;
    for number in 0..400 {
        if random.u32(..8) == 0 {
            dict.clock
                .advance(Duration::from_millis(random.u64(..4_000)));
        }
        let payer = payer_of(0, &mut random);
        let response = send(&gateway, number, &payer, &mut random).await;
        if response.status() != 429 {
            continue;
        }
        refused += 1;
        // The gateway says which bucket is empty, and in DICT it is.
        let policy = refusing_policy(response).await;
        let payer = (policy == USER_POLICY).then_some(payer.as_str());
        let level = dict.level(&policy, payer).await;
        assert!(level < 1, "{policy}: {level}");
    }
    assert!(refused > 20, "{refused}");
    assert_eq!(gateway.dict_refusals(), 0);
}

/// The bucket that a refusal of the gateway names.
async fn refusing_policy(response: reqwest::Response) -> String {
    let body = response.text().await.unwrap();
    let named = body
        .split_once("<detail>")
        .and_then(|(_, rest)| rest.split_once(':'));
    named
        .unwrap_or_else(|| panic!("DICT's own: {body}"))
        .0
        .to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_explain_every_refusal() {
    // As few as this, so that what they hold is less than a bucket.
    const CALLERS: usize = 4;
    const EACH: usize = 250;
    let dict = Arc::new(Dict::start('H').await);
    let gateway = Arc::new(dict.exact_gateway('H').await);
    let callers = (0..CALLERS).map(|caller| {
        let (dict, gateway) = (dict.clone(), gateway.clone());
        tokio::spawn(async move {
            let mut refused = 0;
            for number in 0..EACH {
                // One payer for each caller: only its own calls draw on the payer's bucket.
                let payer = format!("1112223330{caller}");
                let number = caller * EACH + number;
                let key = match number % 4 {
                    0 => no_key(number),
                    _ => key(1 + number % 40),
                };
                let response = gateway.look_up(&key, &payer, &order(number)).await;
                if response.status() != 429 {
                    continue;
                }
                refused += 1;
                let policy = refusing_policy(response).await;
                let (level, in_flight) = if policy == USER_POLICY {
                    (dict.level(&policy, Some(&payer)).await, 0)
                } else {
                    // Each of the others holds at most the price of a key that is not found.
                    let others = i64::try_from(CALLERS - 1).unwrap() * 3;
                    (dict.level(&policy, None).await, others)
                };
                assert!(level < 1 + in_flight, "{policy}: DICT has {level}");
            }
            refused
        })
    });
    let mut refused = 0;
    for caller in callers.collect::<Vec<_>>() {
        refused += caller.await.unwrap();
    }
    assert!(refused > 100, "{refused}");
    assert_eq!(dict.refusals().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_spender_is_noticed_and_the_refusals_stop() {
    let count = requests() / 4;
    let refused = beside_another_spender(count, few_payers).await;
    if count < 25_000 {
        return;
    }
    // What is in flight when a bucket is drained is refused, whatever the gateway does: the share is
    // that of a long campaign.
    assert!(refused * 1_000 < count as u64, "{refused} of {count}");
    // Where the two compete for each token of an empty bucket, nothing foresees what the other takes.
    beside_another_spender(count, payer_of).await;
}

/// Sends requests while somebody else spends the same tokens, and then without. Returns how many DICT
/// has refused.
async fn beside_another_spender(
    count: usize,
    payer_of: fn(usize, &mut fastrand::Rng) -> String,
) -> u64 {
    let dict = Arc::new(Dict::start('F').await);
    let gateway = dict
        .gateway(
            "refill = \"profile\"\ncategory = \"F\"\nreconcile_seconds = 3600",
            "",
        )
        .await;
    let gateway = Arc::new(gateway);
    gateway.gateway.reconcile().await;
    let is_over = Arc::new(AtomicBool::new(false));
    // Somebody else spends the same participant's tokens, and knows nothing of the gateway.
    let spending = {
        let (dict, is_over) = (dict.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut number = 0;
            while !is_over.load(Ordering::SeqCst) {
                number += 1;
                let payer = format!("9{:010}", number % 1_000);
                dict.look_up(&key(1), &payer, &order(500_000 + number))
                    .await;
                // Now and then it takes everything at once.
                if number % 1_000 == 20 {
                    dict.set_level(PSP_POLICY, None, 0).await;
                }
            }
            number
        })
    };
    let clocks = std::slice::from_ref(&dict.clock);
    let seen = storm(&gateway, clocks, count, 99, payer_of, None).await;
    is_over.store(true, Ordering::SeqCst);
    let spent = spending.await.unwrap();
    let refused = gateway.dict_refusals();
    println!("{count} requests beside {spent} of another: DICT refused {refused}, {seen:?}");
    let reconciled = gateway.counter("gateway_dict_reconciliations_total{result=\"ok\"}");
    // One when it started, one above.
    assert!(
        refused == 0 || reconciled > 2,
        "refusals lead to reconciliations"
    );
    // The other one is gone. After the next reconciliation, DICT refuses nothing any more.
    gateway.gateway.reconcile().await;
    let before = gateway.dict_refusals();
    storm(&gateway, clocks, count, 123, payer_of, None).await;
    assert_eq!(gateway.dict_refusals(), before);
    let own = gateway.mirrored(PSP_POLICY, None).await;
    let of_dict = dict.level(PSP_POLICY, None).await;
    assert!(own <= of_dict, "{own} of {of_dict}");
    refused
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_an_unknown_phase_and_a_clock_that_is_off_do_not_matter() {
    for (round, phase) in [2_000_000, 17_300_000, 59_999_999].into_iter().enumerate() {
        // DICT's clock is two seconds and a phase ahead, and it refills in steps.
        let dict = Dict::start_with('F', &[("refill", "stepwise")], START_US + phase).await;
        let own = ManualClock::at_us(START_US);
        let gateway = dict
            .gateway_with("category = \"F\"\nreconcile_seconds = 0", "", &own)
            .await;
        let gateway = Arc::new(gateway);
        let clocks = [dict.clock.clone(), own];
        let count = requests() / 8;
        let seen = storm(&gateway, &clocks, count, 5 + round as u64, payer_of, None).await;
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
        let of_dict = "category = \"H\"\nreconcile_seconds = 0";
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
        for bucket in driven.iter_mut().filter(|one| one.0 == "POLICIES_LIST") {
            bucket.5 = 1;
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
                // The reconciliation above may have been counted before or after the level that it
                // returned, so the mirror counts it twice.
                let doubt = u64::from(*policy == "POLICIES_LIST");
                assert!(
                    unused <= minute * step + doubt,
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
