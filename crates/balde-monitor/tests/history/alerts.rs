//! Machines, steps and the events they tell.

use std::slice;

use balde_monitor::alert::{Alarm, SinkClass, Watch};
use balde_monitor::history::{Count, EventFilter, HistoryError, Step};
use balde_monitor::severity::Severity;

use crate::fixture::{PARTICIPANT, bucket, raised, resolved, tell, to_hook, told};
use crate::place::Place;

pub(crate) async fn a_new_watch_is_kept_before_anybody_uses_it(place: Place) {
    let history = place.open().await;
    let made = history.machines(PARTICIPANT, 1_000).await.unwrap();
    assert_eq!(
        (made.version, made.watch.epoch_us, made.alarms.len()),
        (1, 1_000, 0)
    );
    // Whoever asks later, and elsewhere, finds the same epoch.
    let another = place.another(&history).await;
    assert_eq!(another.machines(PARTICIPANT, 2_000).await.unwrap(), made);
}

pub(crate) async fn an_alarm_is_added_once(place: Place) {
    let history = place.open().await;
    let early = [Alarm::new(bucket("B"), 1), Alarm::new(bucket("A"), 1)];
    assert_eq!(history.add_alarms(&early).await.unwrap(), early);
    let late = [Alarm::new(bucket("A"), 2), Alarm::new(bucket("C"), 2)];
    let kept = history.add_alarms(&late).await.unwrap();
    assert_eq!(kept, [early[1].clone(), late[1].clone()]);
    assert!(history.add_alarms(&[]).await.unwrap().is_empty());
    let machines = history.machines(PARTICIPANT, 3).await.unwrap();
    let policies: Vec<&str> = machines.alarms.iter().map(|a| a.bucket.policy()).collect();
    assert_eq!(policies, ["A", "B", "C"]);
}

pub(crate) async fn a_step_is_committed_as_a_whole(place: Place) {
    let history = place.open().await;
    let read = history.machines(PARTICIPANT, 1).await.unwrap();
    let mut alarm = Alarm::new(bucket("A"), 1);
    history.add_alarms(&[alarm.clone()]).await.unwrap();
    alarm.sequence = 1;
    alarm.severity = Severity::Critical;
    let mut watch = read.watch.clone();
    watch.newest_us = Some(55);
    let event = raised(0, "level-0", Severity::Critical, 60);
    let sinks = [("pager", SinkClass::Page), ("chat", SinkClass::Chat)];
    let step = Step {
        version: read.version,
        watch: watch.clone(),
        alarms: vec![alarm.clone()],
        told: vec![told(
            event.clone(),
            &[SinkClass::Page, SinkClass::Chat],
            &sinks,
        )],
    };
    history.commit(&step).await.unwrap();
    let machines = history.machines(PARTICIPANT, 2).await.unwrap();
    assert_eq!(
        (machines.version, machines.watch, machines.alarms),
        (2, watch, vec![alarm])
    );
    assert_eq!(
        history.events(&EventFilter::default(), 10).await.unwrap(),
        slice::from_ref(&event)
    );
    for (sink, class) in sinks {
        let letters = history.due(sink, 60, 10).await.unwrap();
        assert_eq!(letters.len(), 1);
        assert_eq!((&letters[0].event, letters[0].class), (&event, class));
        assert_eq!((letters[0].sink.as_str(), letters[0].attempts), (sink, 0));
    }
    let count = Count {
        participant: PARTICIPANT.to_owned(),
        policy: Some("A".to_owned()),
        severity: Severity::Critical,
        alerts: 1,
    };
    assert_eq!(history.counts().await.unwrap(), [count]);
}

pub(crate) async fn whoever_read_an_old_version_is_overtaken(place: Place) {
    let history = place.open().await;
    let read = history.machines(PARTICIPANT, 1).await.unwrap();
    let step = |told| Step {
        version: read.version,
        watch: read.watch.clone(),
        alarms: vec![Alarm::new(bucket("A"), 9)],
        told: vec![to_hook(told)],
    };
    let first = step(raised(0, "level-0", Severity::Warning, 1));
    history.commit(&first).await.unwrap();
    let second = step(raised(1, "level-1", Severity::Warning, 1));
    let late = history.commit(&second).await.unwrap_err();
    assert!(matches!(late, HistoryError::Overtaken) && late.is_transient());
    // And nothing of it was kept.
    let events = history.events(&EventFilter::default(), 10).await.unwrap();
    assert_eq!(events, [first.told[0].event.clone()]);
    assert_eq!(history.due("hook", 1, 10).await.unwrap().len(), 1);
    // A participant that nobody ever read is no better.
    let stranger = Step {
        watch: Watch::new("87654321", 1),
        alarms: Vec::new(),
        ..first.clone()
    };
    assert!(matches!(
        history.commit(&stranger).await,
        Err(HistoryError::Overtaken)
    ));
}

pub(crate) async fn of_two_committers_at_once_one_wins(place: Place) {
    const ROUNDS: u64 = 25;
    let history = place.open().await;
    let another = place.another(&history).await;
    for round in 0..ROUNDS {
        let read = history.machines(PARTICIPANT, 1).await.unwrap();
        assert_eq!(read.version, round + 1);
        let step = |who: u64| Step {
            version: read.version,
            watch: read.watch.clone(),
            alarms: Vec::new(),
            told: vec![to_hook(raised(
                round * 2 + who,
                "level-0",
                Severity::Warning,
                round,
            ))],
        };
        let (one, two) = (step(0), step(1));
        let (one, two) = tokio::join!(history.commit(&one), another.commit(&two));
        let lost = match (one, two) {
            (Ok(()), Err(lost)) | (Err(lost), Ok(())) => lost,
            both => panic!("{both:?}"),
        };
        assert!(matches!(lost, HistoryError::Overtaken), "{lost:?}");
    }
    let events = history.events(&EventFilter::default(), 100).await.unwrap();
    assert_eq!(events.len() as u64, ROUNDS);
}

pub(crate) async fn an_event_told_again_is_not_sent_again(place: Place) {
    let history = place.open().await;
    let event = raised(0, "level-0", Severity::Warning, 5);
    tell(&history, vec![to_hook(event.clone())]).await;
    // Worked out again after a crash, a little differently, with the same key.
    let again = balde_monitor::alert::Event {
        at_us: 9,
        ..event.clone()
    };
    let next = resolved(1, "level-0", Severity::Warning, 10);
    tell(&history, vec![to_hook(again), to_hook(next.clone())]).await;
    let events = history.events(&EventFilter::default(), 10).await.unwrap();
    assert_eq!(events, [next, event.clone()]);
    let backlog = history.backlog().await.unwrap();
    assert_eq!((backlog.len(), backlog[0].waiting), (1, 2));
    assert_eq!(history.counts().await.unwrap()[0].alerts, 1);
}

pub(crate) async fn events_are_found_by_what_they_are_about(place: Place) {
    let history = place.open().await;
    let mut events = [
        raised(0, "level-0", Severity::Warning, 100),
        raised(1, "level-0", Severity::Critical, 200),
        raised(2, "level-0", Severity::Exhausted, 300),
    ];
    events[1].policy = Some("B".to_owned());
    events[2].policy = None;
    tell(&history, events.iter().cloned().map(to_hook).collect()).await;
    let find = async |filter: EventFilter, max| {
        let found = history.events(&filter, max).await.unwrap();
        found.iter().map(|event| event.at_us).collect::<Vec<_>>()
    };
    let any = EventFilter::default;
    let of = |participant: &str| EventFilter {
        participant: Some(participant.to_owned()),
        ..any()
    };
    assert_eq!(find(any(), 10).await, [300, 200, 100]);
    assert_eq!(find(any(), 2).await, [300, 200]);
    assert_eq!(find(of(PARTICIPANT), 10).await, [300, 200, 100]);
    assert!(find(of("87654321"), 10).await.is_empty());
    let about = EventFilter {
        policy: Some("B".to_owned()),
        ..of(PARTICIPANT)
    };
    assert_eq!(find(about, 10).await, [200]);
    let bad = EventFilter {
        severity: Some(Severity::Critical),
        ..any()
    };
    assert_eq!(find(bad, 10).await, [300, 200]);
    let then = EventFilter {
        from_us: Some(100),
        before_us: Some(300),
        ..of(PARTICIPANT)
    };
    assert_eq!(find(then, 10).await, [200, 100]);
}
