//! A simulator for one test: on a free port, with a clock that the test moves.

use std::net::SocketAddr;
use std::time::Duration;

use balde::ManualClock;
use balde_simulator::{self as simulator, Simulator, SimulatorBuilder};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The participant that sends most requests, and the one that holds the keys.
pub(crate) const CALLER: &str = "12345678";
pub(crate) const KEY_HOLDER: &str = "87654321";
/// Payers: a person and a company.
pub(crate) const PERSON: &str = "11122233300";
pub(crate) const COMPANY: &str = "11222333000150";
/// A key that has an entry, and one that has none.
pub(crate) const KEY: &str = "ana@example.com";
pub(crate) const NO_KEY: &str = "ninguem@example.com";

pub(crate) const READ_USER: &str = "ENTRIES_READ_USER_ANTISCAN";
pub(crate) const READ_PARTICIPANT: &str = "ENTRIES_READ_PARTICIPANT_ANTISCAN";

/// The start of 2026, on a full minute, so that stepwise refills are easy to predict.
pub(crate) const START_US: u64 = 1_767_225_600_000_000;

/// A running simulator. It is stopped when dropped.
pub(crate) struct TestServer {
    pub(crate) scheme: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) clock: ManualClock,
    pub(crate) client: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl TestServer {
    /// Starts a simulator in memory, with an entry of [`KEY`].
    pub(crate) async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    /// Starts a simulator with other options.
    pub(crate) async fn with(configure: impl FnOnce(SimulatorBuilder) -> SimulatorBuilder) -> Self {
        let clock = ManualClock::at_us(START_US);
        let builder = configure(Simulator::builder().manual_clock(&clock));
        Self::start(builder.build().expect("a simulator"), clock).await
    }

    /// Starts a simulator that the test has built.
    pub(crate) async fn start(simulator: Simulator, clock: ManualClock) -> Self {
        let seed = format!(
            r#"{{"key": "{KEY}", "participant": "{KEY_HOLDER}", "tax_id": "99988877700"}}"#
        );
        simulator
            .directory()
            .seed(&seed, |_, _| ())
            .await
            .expect("a good seed");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let shutdown = async {
                let _a_dropped_sender_stops_it_too = stopped.await;
            };
            simulator::run(listener, simulator, shutdown)
                .await
                .expect("it serves");
        });
        Self {
            scheme: "http",
            address,
            clock,
            client: client(),
            stop: Some(stop),
            task,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Response {
        let mut request = self.client.request(method, self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/xml").body(body);
        }
        request.send().await.expect("an answer")
    }

    /// Sends a GET as a participant.
    pub(crate) async fn get(&self, path: &str, participant: &str) -> (u16, String) {
        let headers = [("PI-RequestingParticipant", participant)];
        let response = self
            .send(Method::GET, &format!("/api/v2{path}"), &headers, None)
            .await;
        (
            response.status().as_u16(),
            response.text().await.expect("a body"),
        )
    }

    /// Sends a document by POST or PUT.
    pub(crate) async fn write(&self, method: Method, path: &str, body: String) -> (u16, String) {
        let response = self
            .send(method, &format!("/api/v2{path}"), &[], Some(body))
            .await;
        (
            response.status().as_u16(),
            response.text().await.expect("a body"),
        )
    }

    pub(crate) async fn post(&self, path: &str, body: String) -> (u16, String) {
        self.write(Method::POST, path, body).await
    }

    /// Sends a getEntry as [`CALLER`] for a payer.
    pub(crate) async fn get_entry(&self, key: &str, payer: &str, end_to_end_id: &str) -> Response {
        self.get_entry_as(CALLER, key, payer, end_to_end_id).await
    }

    pub(crate) async fn get_entry_as(
        &self,
        participant: &str,
        key: &str,
        payer: &str,
        end_to_end_id: &str,
    ) -> Response {
        let headers = [
            ("PI-RequestingParticipant", participant),
            ("PI-PayerId", payer),
            ("PI-EndToEndId", end_to_end_id),
        ];
        let key = key.replace('+', "%2B");
        self.send(
            Method::GET,
            &format!("/api/v2/entries/{key}"),
            &headers,
            None,
        )
        .await
    }

    /// Sends a getEntry as [`CALLER`] and returns the status.
    pub(crate) async fn get_entry_status(&self, key: &str, payer: &str) -> u16 {
        let response = self.get_entry(key, payer, &end_to_end_id(0)).await;
        response.status().as_u16()
    }

    /// Calls an inspection endpoint.
    pub(crate) async fn sim(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let mut request = self.client.request(method, self.url(path));
        if let Some(body) = body {
            request = request
                .header("Content-Type", "application/json")
                .body(body.to_string());
        }
        let response = request.send().await.expect("an answer");
        let status = response.status().as_u16();
        let text = response.text().await.expect("a body");
        (status, serde_json::from_str(&text).expect("JSON"))
    }

    /// Returns one bucket from the inspection endpoint.
    pub(crate) async fn bucket(
        &self,
        policy: &str,
        participant: &str,
        payer: Option<&str>,
    ) -> Value {
        let payer = payer
            .map(|payer| format!("&payer={payer}"))
            .unwrap_or_default();
        let path = format!("/sim/buckets?policy={policy}&participant={participant}{payer}");
        let (status, shown) = self.sim(Method::GET, &path, None).await;
        assert_eq!(status, 200, "{shown}");
        shown["buckets"][0].clone()
    }

    pub(crate) async fn level(&self, policy: &str, participant: &str, payer: Option<&str>) -> i64 {
        self.bucket(policy, participant, payer).await["level"]
            .as_i64()
            .expect("a level")
    }

    pub(crate) async fn set_level(
        &self,
        policy: &str,
        participant: &str,
        payer: Option<&str>,
        level: i64,
    ) {
        let body =
            json!({"policy": policy, "participant": participant, "payer": payer, "level": level});
        let (status, shown) = self.sim(Method::PUT, "/sim/buckets", Some(body)).await;
        assert_eq!(status, 200, "{shown}");
        assert_eq!(shown["level"], level);
    }

    pub(crate) async fn set_category(&self, participant: &str, category: &str) {
        let body = json!({"participant": participant, "category": category});
        let (status, shown) = self.sim(Method::PUT, "/sim/participants", Some(body)).await;
        assert_eq!(status, 200, "{shown}");
    }

    /// Sends a payment order and returns whether it was credited.
    pub(crate) async fn send_order(&self, participant: &str, payer: &str, id: &str) -> bool {
        let body = json!({"end_to_end_id": id, "payer": payer, "participant": participant});
        let (status, shown) = self
            .sim(Method::POST, "/sim/payment-orders", Some(body))
            .await;
        assert_eq!(status, 200, "{shown}");
        shown["credited"].as_bool().expect("yes or no")
    }

    pub(crate) async fn advance(&self, by: Duration) {
        let body = json!({"advance_ms": u64::try_from(by.as_millis()).unwrap()});
        let (status, shown) = self.sim(Method::POST, "/sim/clock", Some(body)).await;
        assert_eq!(status, 200, "{shown}");
    }

    /// Stops the simulator and waits until it has stopped.
    pub(crate) async fn stop(mut self) {
        self.stop.take();
        (&mut self.task).await.expect("it ends well");
    }
}

pub(crate) fn client() -> reqwest::Client {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _chosen_meanwhile = rustls::crypto::ring::default_provider().install_default();
    }
    reqwest::Client::builder()
        .no_proxy()
        .no_gzip()
        .build()
        .expect("a client")
}

pub(crate) fn end_to_end_id(number: u64) -> String {
    format!("E{CALLER}202601010000{number:011}")
}

/// An account and its owner, as XML.
pub(crate) fn account(name: &str, participant: &str) -> String {
    format!(
        "<{name}><Participant>{participant}</Participant><Branch>0001</Branch>\
         <AccountNumber>0007654321</AccountNumber><AccountType>CACC</AccountType>\
         <OpeningDate>2010-01-10T03:00:00Z</OpeningDate></{name}>"
    )
}

pub(crate) fn person(name: &str, tax_id: &str) -> String {
    format!(
        "<{name}><Type>NATURAL_PERSON</Type><TaxIdNumber>{tax_id}</TaxIdNumber>\
         <Name>João Silva</Name></{name}>"
    )
}

/// A createEntry request whose id is derived from a number.
pub(crate) fn create_entry(
    key_type: &str,
    key: &str,
    participant: &str,
    tax_id: &str,
    number: u64,
) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><CreateEntryRequest><Signature></Signature><Entry>\
         <Key>{key}</Key><KeyType>{key_type}</KeyType>{}{}</Entry><Reason>USER_REQUESTED</Reason>\
         <RequestId>a946d533-7f22-42a5-9a9b-{number:012x}</RequestId></CreateEntryRequest>",
        account("Account", participant),
        person("Owner", tax_id),
    )
}

pub(crate) fn delete_entry(key: &str, participant: &str) -> String {
    format!(
        "<DeleteEntryRequest><Signature/><Key>{key}</Key><Participant>{participant}</Participant>\
         <Reason>USER_REQUESTED</Reason></DeleteEntryRequest>"
    )
}

/// The text of the first element of this name.
pub(crate) fn text_of<'x>(xml: &'x str, name: &str) -> &'x str {
    let open = format!("<{name}>");
    let start = xml
        .find(&open)
        .unwrap_or_else(|| panic!("no <{name}> in {xml}"))
        + open.len();
    let end = xml[start..].find("</").expect("an end") + start;
    &xml[start..end]
}

/// The last segment of a problem's type.
pub(crate) fn error_type(xml: &str) -> &str {
    text_of(xml, "type").rsplit('/').next().unwrap_or_default()
}
