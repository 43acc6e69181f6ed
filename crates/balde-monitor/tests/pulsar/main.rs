//! Alerts on a topic: produced by the sink, read back with the official Python client.
//!
//! The broker is one that the test starts, unless `BALDE_PULSAR_URL` names another, such as
//! Apache's own; see docs/alerts.md.

mod broker;
#[path = "../sinks/messages.rs"]
#[expect(dead_code, reason = "the other tests need more of it")]
mod messages;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use balde::Clock;
use balde_monitor::alert::{Event, SinkClass};
use balde_monitor::delivery::{Backoff, DeliverySettings, Dispatcher};
use balde_monitor::history::History;
use balde_monitor::sink::{PulsarSettings, PulsarTopic, Sink, event_json};
use tokio::sync::oneshot;

use crate::broker::{Broker, Message};
use crate::messages::{TEN_US, commit_events, episode, history, message};

/// Only there to end a test that would otherwise never end.
const WITHIN: Duration = Duration::from_secs(90);

fn sink(url: &str, topic: &str) -> Sink {
    let settings = PulsarSettings::new(url, topic).timeout(Duration::from_secs(5));
    Sink::Pulsar(PulsarTopic::new(settings).expect("settings that make sense"))
}

fn dispatcher(history: &History, sink: Sink) -> Dispatcher {
    let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    let settings = DeliverySettings::default().backoff(backoff.unwrap());
    let sinks = vec![("topic".to_owned(), sink)];
    Dispatcher::new(history, Clock::precise(), &settings, sinks).expect("dispatcher")
}

/// Looks again and again, with a deadline that only a fault reaches.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < WITHIN, "it did not come to that: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Every event is on the topic, whole, and those of an episode are in order; repetitions have the
/// key of what they repeat.
fn check(events: &[Event], messages: &[Message]) {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, message) in messages.iter().enumerate() {
        first
            .entry(message.properties["key"].as_str())
            .or_insert(place);
    }
    assert_eq!(first.len(), events.len(), "each once after deduplication");
    for event in events {
        let message = &messages[first[event.key.as_str()]];
        assert_eq!(
            message.payload,
            event_json(event, &balde_monitor::sink::Wording::default())
        );
        let key = format!("{}/{}", event.participant, event.policy.as_deref().unwrap());
        assert_eq!(message.partition_key, key);
        assert_eq!(message.event_ms, event.at_us / 1_000);
        assert_eq!(message.properties["episode"], event.episode);
        assert_eq!(message.properties["severity"], "CRITICAL");
        assert_eq!(message.properties["kind"], event.kind.label());
    }
    for pair in events
        .windows(2)
        .filter(|pair| pair[0].episode == pair[1].episode)
    {
        assert!(first[pair[0].key.as_str()] < first[pair[1].key.as_str()]);
    }
}

#[tokio::test]
async fn what_the_sink_delivers_is_read_back_by_the_official_client() {
    let Some(broker) = Broker::start() else {
        return;
    };
    let topic = Broker::new_topic();
    let (_folder, history) = history().await;
    let dispatcher = dispatcher(&history, sink(broker.url(), &topic));
    let events = [episode("ENTRIES_WRITE"), episode("AÇÃO 😀 & <b>")].concat();
    commit_events(&history, &events, &["topic"]).await;
    let round = dispatcher
        .deliver_once(TEN_US, WITHIN)
        .await
        .expect("a database");
    assert_eq!((round.delivered, round.failed, round.unfinished), (6, 0, 0));
    check(&events, &broker.read_back(&topic, events.len()));
}

#[tokio::test]
async fn a_broker_that_is_killed_and_comes_back_has_everything() {
    let Some(mut broker) = Broker::start() else {
        return;
    };
    if broker.is_foreign() {
        eprintln!("\n*** SKIPPED: a broker that the test did not start is not killed ***\n");
        return;
    }
    let topic = Broker::new_topic();
    let (_folder, history) = history().await;
    let dispatcher = dispatcher(&history, sink(broker.url(), &topic));
    let is_empty = async || {
        history
            .backlog()
            .await
            .is_ok_and(|backlog| backlog.is_empty())
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let running = dispatcher.run(async { stopped.await.unwrap_or_default() });
    let (before, during) = ([episode("A"), episode("B")].concat(), episode("C"));
    let story = async {
        let counters = || dispatcher.counters().next().expect("a sink").1;
        commit_events(&history, &before, &["topic"]).await;
        dispatcher.wake();
        until("all before", is_empty).await;

        broker.kill();
        let failed = counters().failed();
        commit_events(&history, &during, &["topic"]).await;
        dispatcher.wake();
        until("a failure", async || counters().failed() > failed).await;
        assert_eq!(
            counters().rejected(),
            0,
            "an unavailable broker rejects nothing"
        );

        broker.restart();
        until("all after", is_empty).await;
        assert_eq!(counters().delivered(), 9);
        stop.send(()).unwrap();
    };
    tokio::join!(running, story);
    let events = [before, during].concat();
    check(&events, &broker.read_back(&topic, events.len()));
}

#[tokio::test]
async fn no_broker_at_all_is_a_failure_that_can_pass_in_the_time_that_was_given() {
    // Nothing listens on a port that this socket holds.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!("pulsar://{}", socket.local_addr().unwrap());
    let message = message(episode("A").remove(0), SinkClass::Event);
    let failure = sink(&url, "alerts")
        .deliver(&message, TEN_US, &balde_monitor::sink::Wording::default())
        .await
        .unwrap_err();
    assert!(failure.is_transient(), "{failure}");

    // Somebody listens and never says a word.
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let url = format!("pulsar://{}", silent.local_addr().unwrap());
    let settings = PulsarSettings::new(url, "alerts").timeout(Duration::from_millis(100));
    let sink = Sink::Pulsar(PulsarTopic::new(settings).unwrap());
    let failure = sink
        .deliver(&message, TEN_US, &balde_monitor::sink::Wording::default())
        .await
        .unwrap_err();
    assert!(failure.is_transient(), "{failure}");
    assert!(failure.to_string().contains("time"), "{failure}");
}
