//! Records on a topic of Kafka, read back with Confluent's client. The broker is librdkafka's own, behind
//! a front that adds TLS and SASL (servers/kafka.py).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use balde_monitor::alert::SinkClass;
use balde_monitor::delivery::DeliverySettings;
use balde_monitor::sink::{
    KafkaSettings, KafkaTopic, SaslMechanism, SendError, SendErrorKind, Sink, Wording, event_json,
};
use serde_json::Value;

use crate::messages::{TEN_US, commit_events, episode, history, message};
use crate::servers::{Authority, Server};
use crate::stories::{deliver_all, dispatcher};

const SCRIPT: &str = include_str!("servers/kafka.py");
const TOPIC: &str = "balde-alerts";
const WITHIN: Duration = Duration::from_secs(60);

/// A broker with a topic. The arguments are those of the script.
fn broker(arguments: [&str; 6]) -> Option<Server> {
    let mut server = Server::start("confluent_kafka", SCRIPT, &arguments)?;
    server.tell(&format!("create {TOPIC}"));
    Some(server)
}

fn settings(scheme: &str, server: &Server) -> KafkaSettings {
    let url = format!("{scheme}://127.0.0.1:{}", server.port());
    KafkaSettings::new(url, TOPIC).timeout(WITHIN)
}

fn sink(settings: KafkaSettings) -> Sink {
    Sink::Kafka(KafkaTopic::new(settings).expect("settings that make sense"))
}

async fn attempt(settings: KafkaSettings) -> Result<(), SendError> {
    let message = message(episode("A").remove(0), SinkClass::Event);
    sink(settings)
        .deliver(&message, TEN_US, &Wording::default())
        .await
}

fn records(server: &mut Server) -> Vec<Value> {
    let mut printed = server.tell(&format!("read {TOPIC}"));
    printed.retain(|line| line["event"] == "record");
    printed
}

#[tokio::test]
async fn what_the_sink_delivers_is_read_back_in_order_also_after_an_outage() {
    let Some(mut server) = broker([""; 6]) else {
        return;
    };
    let (_folder, history) = history().await;
    let sinks = vec![("topic", sink(settings("kafka", &server)))];
    let dispatcher = dispatcher(&history, &DeliverySettings::default(), sinks);
    let policies = ["A", "B", "C", "D", "E", "AÇÃO 😀 & <b>"];
    let events: Vec<_> = policies.iter().flat_map(|policy| episode(policy)).collect();
    let (before, after) = events.split_at(9);
    commit_events(&history, before, &["topic"]).await;
    deliver_all(&history, &dispatcher, &["topic"]).await;
    server.tell("down");
    commit_events(&history, after, &["topic"]).await;
    let down = dispatcher.deliver_once(TEN_US, WITHIN).await.unwrap();
    assert_eq!(down.delivered, 0);
    assert!(down.failed > 0);
    let counters = dispatcher.counters().next().expect("a sink").1;
    assert_eq!(
        counters.rejected(),
        0,
        "an unavailable broker rejects nothing"
    );
    server.tell("up");
    deliver_all(&history, &dispatcher, &["topic"]).await;

    let records = records(&mut server);
    assert_eq!(records.len(), events.len(), "each once");
    let mut by_key: BTreeMap<&str, &Value> = BTreeMap::new();
    for record in &records {
        by_key.insert(record["headers"]["key"].as_str().unwrap(), record);
    }
    for event in &events {
        let record = by_key[event.key.as_str()];
        let value: Value = serde_json::from_str(record["value"].as_str().unwrap()).unwrap();
        assert_eq!(value, event_json(event, &Wording::default()));
        assert_eq!(
            record["key"],
            format!("12345678/{}", event.policy.as_deref().unwrap())
        );
        assert_eq!(record["at_ms"], event.at_us / 1_000);
        assert_eq!(record["headers"]["episode"], event.episode);
        assert_eq!(record["headers"]["kind"], event.kind.label());
        assert_eq!(record["headers"]["severity"], "CRITICAL");
    }
    for pair in events
        .windows(2)
        .filter(|pair| pair[0].episode == pair[1].episode)
    {
        let [first, second] = [&pair[0], &pair[1]].map(|event| by_key[event.key.as_str()]);
        assert_eq!(first["partition"], second["partition"]);
        assert!(first["offset"].as_u64() < second["offset"].as_u64());
    }
    let partitions: BTreeSet<u64> = records
        .iter()
        .filter_map(|one| one["partition"].as_u64())
        .collect();
    assert!(partitions.len() > 1, "buckets are spread");
}

#[tokio::test]
async fn tls_and_every_mechanism_of_sasl() {
    let (authority, other) = (Authority::new(), Authority::new());
    let ca_pem = authority.ca_pem.as_bytes();
    let (cert, key, ca) = (
        authority.path("cert"),
        authority.path("key"),
        authority.path("ca"),
    );
    for (mechanism, name) in [
        (SaslMechanism::Plain, "PLAIN"),
        (SaslMechanism::ScramSha256, "SCRAM-SHA-256"),
        (SaslMechanism::ScramSha512, "SCRAM-SHA-512"),
    ] {
        let Some(mut server) = broker([&cert, &key, "", name, "balde", "hunter2"]) else {
            return;
        };
        let tls = || settings("kafka+ssl", &server).ca_pem(ca_pem);
        let sent = attempt(tls().sasl(mechanism, "balde", "hunter2")).await;
        assert_eq!(sent, Ok(()), "{name}");
        let failure = attempt(tls().sasl(mechanism, "balde", "wrong-pass"))
            .await
            .unwrap_err();
        assert!(
            matches!(failure.kind(), SendErrorKind::Rejected { .. }),
            "{name}: {failure}"
        );
        assert!(!failure.to_string().contains("wrong-pass"), "{failure}");
        let stranger = settings("kafka+ssl", &server).ca_pem(other.ca_pem.as_bytes());
        let failure = attempt(stranger.sasl(mechanism, "balde", "hunter2"))
            .await
            .unwrap_err();
        assert!(failure.is_transient(), "{failure}");
        assert!(failure.to_string().contains("certificate"), "{failure}");
        assert_eq!(records(&mut server).len(), 1, "{name}");
    }
    // A broker that wants a certificate of its clients.
    let Some(mut server) = broker([&cert, &key, &ca, "", "", ""]) else {
        return;
    };
    let with_certificate = settings("kafka+ssl", &server)
        .ca_pem(ca_pem)
        .identity_pem(authority.cert_pem.as_bytes(), authority.key_pem.as_bytes());
    assert_eq!(attempt(with_certificate).await, Ok(()));
    let without = attempt(settings("kafka+ssl", &server).ca_pem(ca_pem)).await;
    assert!(without.unwrap_err().is_transient());
    assert_eq!(records(&mut server).len(), 1);
}

#[tokio::test]
async fn a_missing_topic_is_named_and_a_silent_broker_is_a_timeout() {
    let Some(server) = broker([""; 6]) else {
        return;
    };
    let url = format!("kafka://127.0.0.1:{}", server.port());
    let failure = attempt(KafkaSettings::new(url, "another"))
        .await
        .unwrap_err();
    assert!(
        matches!(failure.kind(), SendErrorKind::Rejected { .. }),
        "{failure}"
    );
    assert!(
        failure
            .to_string()
            .contains("the topic another does not exist"),
        "{failure}"
    );

    // Somebody listens and never says a word.
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let url = format!("kafka://{}", silent.local_addr().unwrap());
    let settings = KafkaSettings::new(url, TOPIC).timeout(Duration::from_millis(100));
    let failure = attempt(settings).await.unwrap_err();
    assert_eq!(*failure.kind(), SendErrorKind::Timeout);
}
