//! The promise: DICT never refuses what the gateway forwards, and the gateway refuses nothing that
//! DICT would have admitted by more than the calls in flight.
//!
//! `BALDE_GATEWAY_REQUESTS` sets how many requests the first story sends, and from 100,000 on the
//! others are as long, too; by default few enough for an unoptimised build.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use balde::ManualClock;
use parking_lot::Mutex;

use crate::running::Running;
use crate::simulated::{Dict, MINUTE, PARTICIPANT, PSP_POLICY, USER_POLICY, key, no_key, order};

/// Callers at a time.
const CALLERS: usize = 16;

pub(crate) fn requests() -> usize {
    let asked = std::env::var("BALDE_GATEWAY_REQUESTS").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(4_000)
}

/// What callers saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    statuses: Mutex<HashMap<u16, usize>>,
}

impl Seen {
    fn count(&self, status: u16) {
        *self.statuses.lock().entry(status).or_default() += 1;
    }

    pub(crate) fn of(&self, status: u16) -> usize {
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
pub(crate) fn payer_of(caller: usize, random: &mut fastrand::Rng) -> String {
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

/// Requests of many callers, while the clocks run on.
pub(crate) struct Storm {
    pub(crate) gateway: Arc<Running>,
    pub(crate) clocks: Vec<ManualClock>,
    pub(crate) seed: u64,
    pub(crate) payer_of: fn(usize, &mut fastrand::Rng) -> String,
    /// Checks each refusal.
    refusals: Option<Arc<Refusals>>,
    /// The minute of the last reconciliation, if there is one in every minute.
    reconciled: Option<AtomicU64>,
}

impl Storm {
    pub(crate) fn new(gateway: &Arc<Running>, clocks: &[ManualClock], seed: u64) -> Self {
        Self {
            gateway: gateway.clone(),
            clocks: clocks.to_vec(),
            seed,
            payer_of,
            refusals: None,
            reconciled: None,
        }
    }

    fn minute(&self) -> u64 {
        self.clocks[0].now_us() / u64::try_from(MINUTE.as_micros()).unwrap()
    }

    /// Sends so many requests.
    pub(crate) async fn send(self, count: usize) -> Seen {
        let seen = Arc::new(Seen::default());
        let next = Arc::new(AtomicUsize::new(0));
        let storm = Arc::new(self);
        let mut callers = Vec::new();
        for caller in 0..CALLERS {
            let (storm, seen, next) = (storm.clone(), seen.clone(), next.clone());
            callers.push(tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(storm.seed + caller as u64);
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return;
                    }
                    storm.send_one(caller, number, &mut random, &seen).await;
                }
            }));
        }
        for caller in callers {
            caller.await.unwrap();
        }
        Arc::try_unwrap(seen).unwrap()
    }

    async fn send_one(
        &self,
        caller: usize,
        number: usize,
        random: &mut fastrand::Rng,
        seen: &Seen,
    ) {
        // About a minute in a thousand requests, in uneven steps and while calls are in flight. All
        // clocks run at the same pace.
        if random.u32(..10) == 0 {
            let step = Duration::from_millis(random.u64(..1_200));
            for clock in &self.clocks {
                clock.advance(step);
            }
        }
        if let Some(reconciled) = &self.reconciled {
            let minute = self.minute();
            if reconciled.swap(minute, Ordering::SeqCst) != minute {
                self.gateway.gateway.reconcile().await;
            }
        }
        let payer = (self.payer_of)(caller, random);
        let began_us = self.clocks[0].now_us();
        let response = send(&self.gateway, number, &payer, random).await;
        seen.count(response.status().as_u16());
        if response.status() == 429
            && let Some(refusals) = &self.refusals
        {
            refusals.check(response, &payer, began_us).await;
        }
    }
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
    let mut storm = Storm::new(&gateway, clocks, seed);
    storm.refusals = Some(refusals.clone());
    let seen = storm.send(count).await;
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

/// A gateway and somebody else who spend the same tokens.
#[derive(Clone, Copy, Debug)]
struct Rivals {
    name: &'static str,
    /// The gateway's payers.
    payer_of: fn(usize, &mut fastrand::Rng) -> String,
    /// The keys that the other looks up.
    key_of: fn(usize) -> String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_spender_that_uses_a_third_is_noticed_and_the_refusals_stop() {
    let rivals = Rivals {
        name: "a third",
        payer_of: few_payers,
        key_of: |_| key(1),
    };
    beside_another_spender(rivals).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_spender_that_competes_for_every_token_is_noticed_and_the_refusals_stop() {
    let rivals = Rivals {
        name: "every token",
        payer_of,
        // Three tokens each: together with the gateway's payers, more than is refilled.
        key_of: no_key,
    };
    beside_another_spender(rivals).await;
}

/// Sends requests while somebody else spends the same tokens, with a reconciliation every minute, and
/// then without.
async fn beside_another_spender(rivals: Rivals) {
    let Rivals { name, key_of, .. } = rivals;
    let count = requests() / 4;
    let dict = Arc::new(Dict::start('F').await);
    let of_dict = "refill = \"profile\"\ncategory = \"F\"\nreconcile_every = '1 min'";
    let gateway = Arc::new(dict.gateway(of_dict, "").await);
    // Returns how many DICT has refused, after a reconciliation.
    let send = async |seed: u64| {
        gateway.gateway.reconcile().await;
        let before = gateway.dict_refusals();
        let clocks = std::slice::from_ref(&dict.clock);
        let mut storm = Storm::new(&gateway, clocks, seed);
        storm.payer_of = rivals.payer_of;
        storm.reconciled = Some(AtomicU64::new(storm.minute()));
        let seen = storm.send(count).await;
        let refused = gateway.dict_refusals() - before;
        println!("{name}: of {count} requests DICT refused {refused}, {seen:?}");
        refused
    };
    // Now and then it takes everything at once. What is in flight then is refused, whatever the gateway
    // does: the share is that of a long campaign.
    let spending = dict.spend(key_of, |number| number % 1_000 == 20);
    let refused = send(99).await;
    println!("beside {} that drain, too", spending.end().await);
    if count >= 25_000 {
        assert!(refused * 1_000 < count as u64, "{refused} of {count}");
    }
    // It goes on as before, without draining. Whenever it uses more than in each of the five minutes
    // before, which depends on the scheduler, a call may still be refused.
    let spending = dict.spend(key_of, |_| false);
    let refused = send(111).await;
    println!("beside {}", spending.end().await);
    if count >= 25_000 {
        assert!(refused * 5_000 <= count as u64, "{refused} of {count}");
    }
    // It is gone: DICT refuses nothing any more.
    assert_eq!(send(123).await, 0);
    let own = gateway.bucket(PSP_POLICY, None).await;
    let of_dict = dict.level(PSP_POLICY, None).await;
    assert!(
        own["level"].as_i64().unwrap() <= of_dict,
        "{own} of {of_dict}"
    );
    if count >= 25_000 {
        assert_eq!(own["withheld_for_others"], 0, "{own}");
    }
}
