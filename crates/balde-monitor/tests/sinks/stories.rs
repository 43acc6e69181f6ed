//! Deliveries through the outbox, in a file.

use std::collections::BTreeSet;
use std::time::Duration;

use balde::Clock;
use balde_monitor::alert::Event;
use balde_monitor::delivery::{Backoff, DeliverySettings, Dispatcher};
use balde_monitor::history::History;
use balde_monitor::sink::{HttpSettings, LogSink, PagerDuty, Sink, Slack, Webhook};

use crate::messages::{SECOND_US, TEN_US, commit_events, episode, history, keys};
use crate::receiver::{Answer, Receiver};

/// Only there to end a test that would otherwise never end.
const WITHIN: Duration = Duration::from_secs(60);

pub(crate) fn webhook(receiver: &Receiver) -> Sink {
    let settings = HttpSettings::default().timeout(WITHIN);
    Sink::Webhook(Webhook::new(receiver.url(), "secret", &settings).unwrap())
}

pub(crate) fn dispatcher(
    history: &History,
    settings: &DeliverySettings,
    sinks: Vec<(&str, Sink)>,
) -> Dispatcher {
    let sinks = sinks
        .into_iter()
        .map(|(name, sink)| (name.to_owned(), sink));
    Dispatcher::new(history, Clock::precise(), settings, sinks.collect()).expect("dispatcher")
}

/// Waits as little as it may, for tests with the world's own time.
pub(crate) fn impatient() -> DeliverySettings {
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(20));
    DeliverySettings::default().backoff(backoff.unwrap())
}

fn episodes(names: &[&str]) -> Vec<Event> {
    // Told in turn, so that messages of an episode are not next to each other.
    let episodes: Vec<Vec<Event>> = names.iter().map(|name| episode(name)).collect();
    (0..3)
        .flat_map(|n| episodes.iter().map(move |episode| episode[n].clone()))
        .collect()
}

/// Passes from one moment at which something is due to the next, until nothing is left.
pub(crate) async fn deliver_all(history: &History, dispatcher: &Dispatcher, sinks: &[&str]) -> u64 {
    const ROUNDS_MAX: usize = 2_000;
    let mut now_us = TEN_US;
    for _ in 0..ROUNDS_MAX {
        let round = dispatcher
            .deliver_once(now_us, WITHIN)
            .await
            .expect("a database");
        assert_eq!(round.unfinished, 0);
        let mut next_us = None;
        for sink in sinks {
            let due_us = history.next_due_us(sink).await.expect("a database");
            next_us = next_us.into_iter().chain(due_us).min();
        }
        match next_us {
            // What is due and was not tried belongs to a sink with a Retry-After.
            Some(us) => now_us = us.max(now_us + SECOND_US),
            None => return now_us,
        }
    }
    panic!("not everything arrived in {ROUNDS_MAX} rounds");
}

#[tokio::test]
async fn everything_arrives_once_after_deduplication_although_half_of_it_fails() {
    const SEED: u64 = 0xba1de;
    println!("seed {SEED}");
    let mut receivers = Vec::new();
    for n in 0..3 {
        let mut random = fastrand::Rng::with_seed(SEED + n);
        let fickle = move |_: &_| match random.u32(..12) {
            0..6 => Answer::Accept,
            6 => Answer::AcceptAndClose,
            7 => Answer::Close,
            8 => Answer::status(500),
            9 => Answer::status(400),
            10 => Answer::Status(429, "retry-after: 3\r\n".to_owned(), String::new()),
            _ => Answer::TruncatedAccept,
        };
        receivers.push(Receiver::start(fickle).await);
    }
    let settings = HttpSettings::default();
    let slack = Slack::new(receivers[1].url(), &settings).unwrap();
    let routing_key = "0123456789abcdef0123456789abcdef";
    let pager = PagerDuty::at(receivers[2].url(), routing_key, &settings).unwrap();
    let (_folder, history) = history().await;
    let names = ["hook", "chat", "pager", "log"];
    let sinks = vec![
        ("hook", webhook(&receivers[0])),
        ("chat", Sink::Slack(slack)),
        ("pager", Sink::PagerDuty(pager)),
        ("log", Sink::Log(LogSink)),
    ];
    let dispatcher = dispatcher(&history, &DeliverySettings::default(), sinks);
    let events = episodes(&["A", "B", "C", "D", "E", "F", "G", "H", "I", "J"]);
    commit_events(&history, &events, &names).await;
    deliver_all(&history, &dispatcher, &names).await;

    assert_eq!(history.backlog().await.unwrap(), []);
    let expected: BTreeSet<String> = keys(&events).into_iter().collect();
    for receiver in &receivers {
        let accepted = receiver.accepted_keys();
        let found: BTreeSet<String> = accepted.iter().cloned().collect();
        assert_eq!(found, expected);
        assert!(
            receiver.requests().len() > events.len(),
            "some were tried again"
        );
        for name in ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J"] {
            let in_order = keys(&episode(name));
            let of_it: Vec<&String> = accepted
                .iter()
                .filter(|key| in_order.contains(key))
                .collect();
            assert_eq!(of_it, in_order.iter().collect::<Vec<_>>(), "{name}");
        }
    }
    for (name, counters) in dispatcher.counters() {
        assert_eq!(counters.delivered(), events.len() as u64, "{name}");
        assert_eq!(counters.waiting(), 0, "{name}");
        assert_eq!(counters.failed() > 0, name != "log", "{name}");
        assert_eq!(counters.rejected() > 0, name != "log", "{name}");
    }
}

#[tokio::test]
async fn a_sink_that_hangs_delays_no_other() {
    let (hanging, working) = (
        Receiver::start(|_| Answer::Hang).await,
        Receiver::start(|_| Answer::Accept).await,
    );
    let (_folder, history) = history().await;
    let sinks = vec![
        ("hanging", webhook(&hanging)),
        ("working", webhook(&working)),
    ];
    let dispatcher = dispatcher(&history, &impatient(), sinks);
    let first = episodes(&["A", "B"]);
    commit_events(&history, &first, &["hanging", "working"]).await;
    let later = episodes(&["C", "D"]);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = dispatcher.run(async { stopped.await.unwrap_or_default() });
    let watching = async {
        // The one hangs before the other has anything at all from the second half on.
        hanging.wait_for(|requests| requests.len() == 2).await;
        commit_events(&history, &later, &["hanging", "working"]).await;
        dispatcher.wake();
        working.wait_for(|requests| requests.len() == 12).await;
        let counters = |name| {
            dispatcher
                .counters()
                .find(|(one, _)| *one == name)
                .unwrap()
                .1
        };
        assert_eq!(counters("hanging").delivered(), 0, "it still hangs");
        hanging.release();
        hanging.wait_for(|requests| requests.len() == 12).await;
        stop.send(()).unwrap();
    };
    tokio::join!(running, watching);
    assert_eq!(history.backlog().await.unwrap(), []);
    for receiver in [&hanging, &working] {
        let found: BTreeSet<String> = receiver.accepted_keys().into_iter().collect();
        let all = keys(&first).into_iter().chain(keys(&later));
        assert_eq!(found, all.collect());
        assert_eq!(receiver.requests().len(), 12, "each once");
    }
}

#[tokio::test]
async fn a_pass_ends_in_time_for_the_others_when_a_sink_hangs() {
    let (hanging, working) = (
        Receiver::start(|_| Answer::Hang).await,
        Receiver::start(|_| Answer::Accept).await,
    );
    let (_folder, history) = history().await;
    let sinks = vec![
        ("hanging", webhook(&hanging)),
        ("working", webhook(&working)),
    ];
    let dispatcher = dispatcher(&history, &DeliverySettings::default(), sinks);
    commit_events(&history, &episodes(&["A"]), &["hanging", "working"]).await;
    // A slow machine may need more than one pass for the one that works; the one that hangs never
    // gets anywhere.
    for _ in 0..200 {
        let pass = dispatcher
            .deliver_once(TEN_US, Duration::from_millis(300))
            .await;
        let pass = pass.expect("a database");
        assert!(pass.unfinished >= 1, "the one that hangs");
        if working.accepted_keys().len() == 3 {
            break;
        }
    }
    assert_eq!(working.accepted_keys(), keys(&episode("A")));
    let waiting = history.backlog().await.unwrap();
    assert_eq!(
        (waiting[0].sink.as_str(), waiting[0].waiting),
        ("hanging", 3)
    );
    // What was given up is not lost, nor is it thought to be on its way for ever.
    hanging.release();
    dispatcher
        .deliver_once(TEN_US, WITHIN)
        .await
        .expect("a database");
    assert_eq!(history.backlog().await.unwrap(), []);
}

#[tokio::test]
async fn several_episodes_are_delivered_at_once_and_never_more_than_that() {
    let receiver = Receiver::start(|_| Answer::Hang).await;
    let (_folder, history) = history().await;
    let settings = DeliverySettings::default().concurrent(3);
    let dispatcher = dispatcher(&history, &settings, vec![("hook", webhook(&receiver))]);
    let events = episodes(&["A", "B", "C", "D", "E"]);
    commit_events(&history, &events, &["hook"]).await;
    let releasing = async {
        receiver.wait_for(|requests| requests.len() == 3).await;
        receiver.release();
    };
    let (round, ()) = tokio::join!(dispatcher.deliver_once(TEN_US, WITHIN), releasing);
    assert_eq!(round.unwrap().delivered, 15);
    assert_eq!(receiver.most_at_once(), 3);
    assert_eq!(receiver.requests().len(), 15);
}

#[tokio::test]
async fn concurrent_passes_do_not_send_the_same_message_twice() {
    let receiver = Receiver::start(|_| Answer::Hang).await;
    let (_folder, history) = history().await;
    let settings = DeliverySettings::default();
    let dispatcher = dispatcher(&history, &settings, vec![("hook", webhook(&receiver))]);
    commit_events(&history, &episodes(&["A", "B"]), &["hook"]).await;
    let first = dispatcher.deliver_once(TEN_US, WITHIN);
    let second = async {
        receiver.wait_for(|requests| requests.len() == 2).await;
        let round = dispatcher.deliver_once(TEN_US, WITHIN).await;
        receiver.release();
        round
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(
        (first.unwrap().delivered, second.unwrap().delivered),
        (6, 0)
    );
    assert_eq!(receiver.requests().len(), 6);
}
