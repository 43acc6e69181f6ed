//! Traffic for the simulated DICT: payers who look up keys and pay, a company that scans keys, and a
//! batch job that ignores its limits.

use std::net::SocketAddr;
use std::time::Duration;

use balde_monitor::TimeSource;
use reqwest::Client;
use tokio::task::JoinSet;

use super::day::between_payers_us;

const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;

/// How many of a hundred payers who have looked up a key pay.
const PAY_OF_HUNDRED: u32 = 95;

/// The number of payers. Each has its own buckets.
const PAYERS: u64 = 5_000;

/// When the batch job first runs, and its interval.
const BATCH_FIRST_US: u64 = 40 * SECOND_US;
const BATCH_EVERY_US: u64 = 15 * MINUTE_US;

/// Requests to check keys, one every half second: nearly twice the rate of `KEYS_CHECK`.
const BATCH_CHECKS: u32 = 240;
const BATCH_STEP_US: u64 = 500_000;

/// Requests to list claims, one every two seconds, by the same job.
const BATCH_LISTS: u32 = 45;

/// The scan: a company guesses keys, twice an hour.
const SCAN_FIRST_US: u64 = 4 * MINUTE_US;
const SCAN_EVERY_US: u64 = 30 * MINUTE_US;
const SCAN_GUESSES: u32 = 80;

/// The most requests in flight. A slow machine gets less traffic instead of a queue.
const IN_FLIGHT_MAX: usize = 64;

/// Where traffic goes.
pub(super) struct Target {
    /// The gateway in front of DICT.
    pub(super) dict: SocketAddr,
    /// Where the gateway takes payment orders, and the token for it.
    pub(super) orders: SocketAddr,
    pub(super) token: String,
    /// The simulator, which takes payment orders as SPI sends them.
    pub(super) simulator: SocketAddr,
    pub(super) participant: &'static str,
    pub(super) entries: usize,
}

/// Sends traffic until `shutdown` resolves. Failed requests are ignored.
pub(super) async fn run(target: Target, time: TimeSource, shutdown: impl Future<Output = ()>) {
    let Ok(http) = Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(5))
        .build()
    else {
        return;
    };
    let bank = Bank {
        http,
        dict: format!("http://{}/api/v2", target.dict),
        sim: format!("http://{}/sim", target.simulator),
        orders: format!("http://{}/balde/orders", target.orders),
        token: target.token,
        participant: target.participant,
        entries: target.entries,
        time,
    };
    let began_us = bank.time.now_us();
    tokio::select! {
        () = bank.payers(began_us) => {}
        () = bank.batches(began_us) => {}
        () = bank.scans(began_us) => {}
        () = shutdown => {}
    }
}

#[derive(Clone)]
struct Bank {
    http: Client,
    dict: String,
    sim: String,
    orders: String,
    token: String,
    participant: &'static str,
    entries: usize,
    time: TimeSource,
}

impl Bank {
    async fn payers(&self, began_us: u64) {
        let mut in_flight = JoinSet::new();
        let mut number = 0_u64;
        let mut next_us = began_us;
        loop {
            self.time.sleep_until(next_us).await;
            let now_us = self.time.now_us();
            let step_us = between_payers_us(now_us.saturating_sub(began_us));
            next_us = (next_us + step_us).max(now_us.saturating_sub(10 * step_us));
            while in_flight.try_join_next().is_some() {}
            if in_flight.len() < IN_FLIGHT_MAX {
                number += 1;
                let bank = self.clone();
                in_flight.spawn(async move { bank.pay(number).await });
            }
        }
    }

    /// Looks a key up and, in most cases, pays after a few seconds.
    async fn pay(&self, number: u64) {
        let payer = format!("{:011}", 10_000_000_000 + fastrand::u64(0..PAYERS));
        let order = format!("E{}202601010000{number:011}", self.participant);
        let key = fastrand::usize(1..=self.entries.max(1));
        let key = format!("pessoa{key:07}@exemplo.com.br");
        if !self.look_up(&key, &payer, &order).await || fastrand::u32(0..100) >= PAY_OF_HUNDRED {
            return;
        }
        let pays_at_us = self.time.now_us() + fastrand::u64(2..=8) * SECOND_US;
        self.time.sleep_until(pays_at_us).await;
        let body = serde_json::json!({
            "end_to_end_id": order, "payer": payer, "participant": self.participant,
        });
        let url = format!("{}/payment-orders", self.sim);
        let _ignored = self.http.post(url).json(&body).send().await;
        // The gateway hears of it after DICT, so that its mirror is never ahead.
        let request = self.http.post(&self.orders).bearer_auth(&self.token);
        let _ignored = request.json(&body).send().await;
    }

    async fn look_up(&self, key: &str, payer: &str, order: &str) -> bool {
        let request = self
            .http
            .get(format!("{}/entries/{key}", self.dict))
            .header("PI-RequestingParticipant", self.participant)
            .header("PI-PayerId", payer)
            .header("PI-EndToEndId", order);
        request
            .send()
            .await
            .is_ok_and(|answer| answer.status().is_success())
    }

    /// A job that checks keys and lists claims at a fixed rate, whatever the answers are.
    async fn batches(&self, began_us: u64) {
        let mut next_us = began_us + BATCH_FIRST_US;
        loop {
            self.time.sleep_until(next_us).await;
            for step in 0..BATCH_CHECKS {
                let at_us = next_us + u64::from(step) * BATCH_STEP_US;
                self.time.sleep_until(at_us).await;
                self.check_keys().await;
                if step % 4 == 0 && step / 4 < BATCH_LISTS {
                    self.list_claims().await;
                }
            }
            next_us += BATCH_EVERY_US;
        }
    }

    async fn check_keys(&self) {
        let body = "<CheckKeysRequest><Keys><Key>pessoa0000001@exemplo.com.br</Key>\
                    <Key>ninguem@exemplo.com.br</Key></Keys></CheckKeysRequest>";
        let request = self
            .http
            .post(format!("{}/keys/check", self.dict))
            .header("PI-RequestingParticipant", self.participant)
            .header("Content-Type", "application/xml")
            .body(body);
        let _ignored = request.send().await;
    }

    async fn list_claims(&self) {
        let url = format!("{}/claims/?Participant={}", self.dict, self.participant);
        let _ignored = self.http.get(url).send().await;
    }

    /// A company that guesses keys until its bucket is in debt.
    async fn scans(&self, began_us: u64) {
        let mut next_us = began_us + SCAN_FIRST_US;
        let mut number = 90_000_000_000_u64;
        loop {
            for step in 0..SCAN_GUESSES {
                let at_us = next_us + u64::from(step) * SECOND_US / 2;
                self.time.sleep_until(at_us).await;
                number += 1;
                let order = format!("E{}202601010000{number:011}", self.participant);
                let key = format!("palpite{number}@exemplo.com.br");
                self.look_up(&key, "11222333000181", &order).await;
            }
            next_us += SCAN_EVERY_US;
        }
    }
}
