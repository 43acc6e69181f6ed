//! A simulated DICT in this process, and a gateway in front of it with the same clock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use balde::{Clock, ManualClock};
use balde_dict::{Category, profiles};
use balde_simulator::{self as simulator, Simulator, SimulatorBuilder};
use reqwest::Response;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::running::{Running, client, parse};

pub(crate) const PARTICIPANT: &str = "12345678";
pub(crate) const HOLDER: &str = "87654321";
/// A person.
pub(crate) const PAYER: &str = "11122233300";
/// How many keys there are: `key(1)` to `key(ENTRIES)`.
pub(crate) const ENTRIES: usize = 50;
pub(crate) const START_US: u64 = 1_767_225_600_000_000;

pub(crate) const USER_POLICY: &str = "ENTRIES_READ_USER_ANTISCAN";
pub(crate) const PSP_POLICY: &str = "ENTRIES_READ_PARTICIPANT_ANTISCAN";

pub(crate) struct Dict {
    pub(crate) address: SocketAddr,
    pub(crate) clock: ManualClock,
    pub(crate) client: reqwest::Client,
    _stop: oneshot::Sender<()>,
}

impl Dict {
    pub(crate) async fn start(category: char) -> Self {
        Self::start_with(category, &[], START_US).await
    }

    /// With other settings, and with a clock that begins at another time.
    pub(crate) async fn start_with(
        category: char,
        settings: &[(&str, &str)],
        start_us: u64,
    ) -> Self {
        let clock = ManualClock::at_us(start_us);
        let builder = Simulator::builder().manual_clock(&clock);
        Self::build(builder, category, settings, clock).await
    }

    /// With a file of participants: DICT refuses all others.
    pub(crate) async fn start_knowing(participants: &[&str]) -> Self {
        let sections = participants.iter();
        let sections = sections.map(|ispb| format!("[[participant]]\nispb = \"{ispb}\"\n"));
        let file = balde_config::Source::new("participants.toml", sections.collect::<String>());
        let participants = simulator::Participants::read(&file).unwrap();
        let clock = ManualClock::at_us(START_US);
        let builder = Simulator::builder().manual_clock(&clock);
        Self::build(builder.participants(participants), 'F', &[], clock).await
    }

    /// With the clock of the machine, as Redis has it. `clock` does nothing.
    pub(crate) async fn start_in_real_time(category: char) -> Self {
        let clock = ManualClock::at_us(START_US);
        Self::build(Simulator::builder(), category, &[], clock).await
    }

    async fn build(
        builder: SimulatorBuilder,
        category: char,
        settings: &[(&str, &str)],
        clock: ManualClock,
    ) -> Self {
        let profile = profiles::named_with(profiles::DEFAULT, settings)
            .unwrap()
            .unwrap();
        let simulator = builder.profile(profile).build().unwrap();
        let category = Category::new(category).unwrap();
        simulator.assign(PARTICIPANT, category).await.unwrap();
        simulator
            .directory()
            .seed_generated(HOLDER, ENTRIES, |_, _| ())
            .await
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(async move {
            let shutdown = async {
                let _a_dropped_sender_stops_it_too = stopped.await;
            };
            simulator::run(listener, simulator, shutdown).await.unwrap();
        });
        Self {
            address,
            clock,
            client: client(),
            _stop: stop,
        }
    }

    /// A gateway that mirrors the buckets of a category exactly, and reconciles only when asked to.
    pub(crate) async fn exact_gateway(&self, category: char) -> Running {
        self.gateway(&exact(category), "").await
    }

    /// A gateway in front of it; `of_dict` goes into `[dict]`, `more` before it.
    pub(crate) async fn gateway(&self, of_dict: &str, more: &str) -> Running {
        self.gateway_with(of_dict, more, &self.clock).await
    }

    pub(crate) async fn gateway_with(
        &self,
        of_dict: &str,
        more: &str,
        clock: &ManualClock,
    ) -> Running {
        let config = parse(&configuration(self.address, of_dict, more));
        Running::start_with(&config, Clock::manual(clock)).await
    }

    pub(crate) async fn level(&self, policy: &str, payer: Option<&str>) -> i64 {
        self.level_of(PARTICIPANT, policy, payer).await
    }

    pub(crate) async fn level_of(
        &self,
        participant: &str,
        policy: &str,
        payer: Option<&str>,
    ) -> i64 {
        let payer = payer.map_or(String::new(), |payer| format!("&payer={payer}"));
        let url = format!(
            "http://{}/sim/buckets?participant={participant}&policy={policy}{payer}",
            self.address
        );
        let shown: Value = self
            .client
            .get(url)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        shown["buckets"][0]["level"].as_i64().unwrap()
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) {
        let url = format!("http://{}/sim/{path}", self.address);
        let response = self.client.put(url).json(body).send().await.unwrap();
        assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
    }

    pub(crate) async fn set_level(&self, policy: &str, payer: Option<&str>, level: i64) {
        let body = json!({
            "policy": policy, "participant": PARTICIPANT, "payer": payer, "level": level,
        });
        self.put("buckets", &body).await;
    }

    /// Lets the payment system receive an order.
    pub(crate) async fn receive_order(&self, payer: &str, order: &str) {
        let url = format!("http://{}/sim/payment-orders", self.address);
        let body = json!({
            "participant": PARTICIPANT, "payer": payer, "end_to_end_id": order,
        });
        let response = self.client.post(url).json(&body).send().await.unwrap();
        let shown: Value = response.json().await.unwrap();
        assert_eq!(shown["credited"], true, "{shown}");
    }

    /// How many requests it has refused.
    pub(crate) async fn refusals(&self) -> usize {
        let url = format!("http://{}/sim/refusals?limit=1000", self.address);
        let shown: Value = self
            .client
            .get(url)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        shown["refusals"].as_array().unwrap().len()
    }

    /// Lets somebody else spend the participant's tokens, who knows nothing of the gateway: lookups of
    /// many payers and the keys of `key_of`, one after the other, past the gateway. After those for
    /// which `is_draining` returns true, the participant's bucket is empty.
    pub(crate) fn spend(
        self: &Arc<Self>,
        key_of: fn(usize) -> String,
        is_draining: fn(usize) -> bool,
    ) -> Spending {
        let is_over = Arc::new(AtomicBool::new(false));
        let (dict, ended) = (Arc::clone(self), Arc::clone(&is_over));
        let task = tokio::spawn(async move {
            let mut number = 0;
            while !ended.load(Ordering::SeqCst) {
                number += 1;
                let payer = format!("9{:010}", number % 1_000);
                let (key, order) = (key_of(number), order(500_000 + number));
                dict.look_up(&key, &payer, &order).await;
                if is_draining(number) {
                    dict.set_level(PSP_POLICY, None, 0).await;
                }
            }
            number
        });
        Spending { is_over, task }
    }

    /// Sends a lookup to DICT, past the gateway.
    pub(crate) async fn look_up(&self, key: &str, payer: &str, order: &str) -> Response {
        look_up(&self.client, self.address, key, payer, order).await
    }
}

/// Somebody else who spends the same tokens.
pub(crate) struct Spending {
    is_over: Arc<AtomicBool>,
    task: JoinHandle<usize>,
}

impl Spending {
    /// Ends it, and returns how many requests it has sent.
    pub(crate) async fn end(self) -> usize {
        self.is_over.store(true, Ordering::SeqCst);
        self.task.await.unwrap()
    }
}

/// The keys of `[dict]` for a gateway that mirrors the buckets of a category exactly.
pub(crate) fn exact(category: char) -> String {
    format!("refill = \"profile\"\ncategory = \"{category}\"\nreconcile_every = '0 s'")
}

pub(crate) fn configuration(dict: SocketAddr, of_dict: &str, more: &str) -> String {
    format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"dict\"\nurl = \"http://{dict}\"\nresponse_timeout = '20 s'\n\
         [[route]]\npath = \"/\"\nupstream = \"dict\"\n{more}\n\
         [state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"TOKEN\"\n\
         [dict]\nupstream = \"dict\"\nparticipants = [\"{PARTICIPANT}\"]\n{of_dict}\n"
    )
}

pub(crate) async fn look_up(
    client: &reqwest::Client,
    address: SocketAddr,
    key: &str,
    payer: &str,
    order: &str,
) -> Response {
    client
        .get(format!("http://{address}/api/v2/entries/{key}"))
        .header("PI-RequestingParticipant", PARTICIPANT)
        .header("PI-PayerId", payer)
        .header("PI-EndToEndId", order)
        .send()
        .await
        .unwrap()
}

pub(crate) fn key(number: usize) -> String {
    format!("pessoa{number:07}@exemplo.com.br")
}

pub(crate) fn no_key(number: usize) -> String {
    format!("ninguem{number:07}@exemplo.com.br")
}

pub(crate) fn order(number: usize) -> String {
    format!("E{PARTICIPANT}202601010000{number:011}")
}

impl Running {
    pub(crate) async fn look_up(&self, key: &str, payer: &str, order: &str) -> Response {
        look_up(&self.client, self.address, key, payer, order).await
    }

    /// A request with the participant's header only.
    pub(crate) async fn ask(&self, path: &str) -> Response {
        let request = self.client.get(self.url(&format!("/api/v2{path}")));
        let request = request.header("PI-RequestingParticipant", PARTICIPANT);
        request.send().await.unwrap()
    }

    /// A bucket of the participant, or of a payer.
    pub(crate) async fn bucket(&self, policy: &str, payer: Option<&str>) -> Value {
        let payer = payer.map_or(String::new(), |payer| format!("&payer={payer}"));
        let states = self
            .states(&format!("participant={PARTICIPANT}{payer}"))
            .await;
        let policies = states["policies"].as_array().unwrap().clone();
        let found = policies.into_iter().find(|one| one["policy"] == policy);
        found.unwrap_or_else(|| panic!("{policy} is not in {states}"))
    }

    pub(crate) async fn mirrored(&self, policy: &str, payer: Option<&str>) -> i64 {
        self.bucket(policy, payer).await["level"].as_i64().unwrap()
    }

    /// How many requests DICT has answered with 429.
    pub(crate) fn dict_refusals(&self) -> u64 {
        self.counter("gateway_dict_refusals_total")
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let metrics = self.metrics();
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("{name} is not in\n{metrics}"))
    }

    pub(crate) async fn post_order(&self, payer: &str, order: &str) -> Value {
        let url = format!("http://{}/balde/orders", self.state.unwrap());
        let body = json!({
            "end_to_end_id": order, "payer": payer, "participant": PARTICIPANT,
        });
        let request = self.client.post(url).bearer_auth(crate::running::TOKEN);
        let response = request.json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.json().await.unwrap()
    }
}

/// Keeps a duration in one place for tests that move the clock.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
