//! Alert states, steps and the events that they commit.

use std::slice;

use balde_monitor::alert::{AlertState, SinkClass, StalenessCheck};
use balde_monitor::history::{AlertCount, EventFilter, HistoryError, StateUpdate};
use balde_monitor::severity::Severity;

use crate::fixture::{PARTICIPANT, bucket, commit_events, raised, resolved, routed, to_hook};
use crate::test_database::TestDatabase;

pub(crate) async fn a_new_staleness_check_is_committed_before_its_first_use(
    database: TestDatabase,
) {
    let history = database.open().await;
    let made = history.participant_state(PARTICIPANT, 1_000).await.unwrap();
    assert_eq!(
        (made.version, made.staleness.epoch_us, made.alerts.len()),
        (1, 1_000, 0)
    );
    // Later calls, also by other monitors, return the same epoch.
    let another = database.another(&history).await;
    assert_eq!(
        another.participant_state(PARTICIPANT, 2_000).await.unwrap(),
        made
    );
}

pub(crate) async fn an_alert_state_is_added_once(database: TestDatabase) {
    let history = database.open().await;
    let early = [
        AlertState::new(bucket("B"), 1),
        AlertState::new(bucket("A"), 1),
    ];
    assert_eq!(history.add_alert_states(&early).await.unwrap(), early);
    let late = [
        AlertState::new(bucket("A"), 2),
        AlertState::new(bucket("C"), 2),
    ];
    let kept = history.add_alert_states(&late).await.unwrap();
    assert_eq!(kept, [early[1].clone(), late[1].clone()]);
    assert!(history.add_alert_states(&[]).await.unwrap().is_empty());
    let state = history.participant_state(PARTICIPANT, 3).await.unwrap();
    let policies: Vec<&str> = state.alerts.iter().map(|a| a.bucket.policy()).collect();
    assert_eq!(policies, ["A", "B", "C"]);
}

pub(crate) async fn a_step_is_committed_as_a_whole(database: TestDatabase) {
    let history = database.open().await;
    let read = history.participant_state(PARTICIPANT, 1).await.unwrap();
    let mut alert = AlertState::new(bucket("A"), 1);
    history.add_alert_states(&[alert.clone()]).await.unwrap();
    alert.sequence = 1;
    alert.severity = Severity::Critical;
    let mut staleness = read.staleness.clone();
    staleness.newest_us = Some(55);
    let event = raised(0, "level-0", Severity::Critical, 60);
    let sinks = [("pager", SinkClass::Page), ("chat", SinkClass::Chat)];
    let update = StateUpdate {
        version: read.version,
        staleness: staleness.clone(),
        alerts: vec![alert.clone()],
        events: vec![routed(
            event.clone(),
            &[SinkClass::Page, SinkClass::Chat],
            &sinks,
        )],
    };
    history.commit(&update).await.unwrap();
    let state = history.participant_state(PARTICIPANT, 2).await.unwrap();
    assert_eq!(
        (state.version, state.staleness, state.alerts),
        (2, staleness, vec![alert])
    );
    assert_eq!(
        history.events(&EventFilter::default(), 10).await.unwrap(),
        slice::from_ref(&event)
    );
    for (sink, class) in sinks {
        let messages = history.due_messages(sink, 60, 10).await.unwrap();
        assert_eq!(messages.len(), 1);
        assert_eq!((&messages[0].event, messages[0].class), (&event, class));
        assert_eq!((messages[0].sink.as_str(), messages[0].attempts), (sink, 0));
    }
    let count = AlertCount {
        participant: PARTICIPANT.to_owned(),
        policy: Some("A".to_owned()),
        severity: Severity::Critical,
        alerts: 1,
    };
    assert_eq!(history.alert_counts().await.unwrap(), [count]);
}

pub(crate) async fn an_update_of_an_old_version_is_a_conflict(database: TestDatabase) {
    let history = database.open().await;
    let read = history.participant_state(PARTICIPANT, 1).await.unwrap();
    let update = |event| StateUpdate {
        version: read.version,
        staleness: read.staleness.clone(),
        alerts: vec![AlertState::new(bucket("A"), 9)],
        events: vec![to_hook(event)],
    };
    let first = update(raised(0, "level-0", Severity::Warning, 1));
    history.commit(&first).await.unwrap();
    let second = update(raised(1, "level-1", Severity::Warning, 1));
    let late = history.commit(&second).await.unwrap_err();
    assert!(matches!(late, HistoryError::Conflict) && late.is_transient());
    // And nothing of it was kept.
    let events = history.events(&EventFilter::default(), 10).await.unwrap();
    assert_eq!(events, [first.events[0].event.clone()]);
    assert_eq!(history.due_messages("hook", 1, 10).await.unwrap().len(), 1);
    // The same holds for a participant without a state.
    let stranger = StateUpdate {
        staleness: StalenessCheck::new("87654321", 1),
        alerts: Vec::new(),
        ..first.clone()
    };
    assert!(matches!(
        history.commit(&stranger).await,
        Err(HistoryError::Conflict)
    ));
}

pub(crate) async fn of_two_committers_at_once_one_wins(database: TestDatabase) {
    const ROUNDS: u64 = 25;
    let history = database.open().await;
    let another = database.another(&history).await;
    for round in 0..ROUNDS {
        let read = history.participant_state(PARTICIPANT, 1).await.unwrap();
        assert_eq!(read.version, round + 1);
        let update = |who: u64| StateUpdate {
            version: read.version,
            staleness: read.staleness.clone(),
            alerts: Vec::new(),
            events: vec![to_hook(raised(
                round * 2 + who,
                "level-0",
                Severity::Warning,
                round,
            ))],
        };
        let (one, two) = (update(0), update(1));
        let (one, two) = tokio::join!(history.commit(&one), another.commit(&two));
        let lost = match (one, two) {
            (Ok(()), Err(lost)) | (Err(lost), Ok(())) => lost,
            both => panic!("{both:?}"),
        };
        assert!(matches!(lost, HistoryError::Conflict), "{lost:?}");
    }
    let events = history.events(&EventFilter::default(), 100).await.unwrap();
    assert_eq!(events.len() as u64, ROUNDS);
}

pub(crate) async fn an_event_committed_twice_is_sent_once(database: TestDatabase) {
    let history = database.open().await;
    let event = raised(0, "level-0", Severity::Warning, 5);
    commit_events(&history, vec![to_hook(event.clone())]).await;
    // Worked out again after a crash, a little differently, with the same key.
    let again = balde_monitor::alert::Event {
        at_us: 9,
        ..event.clone()
    };
    let next = resolved(1, "level-0", Severity::Warning, 10);
    commit_events(&history, vec![to_hook(again), to_hook(next.clone())]).await;
    let events = history.events(&EventFilter::default(), 10).await.unwrap();
    assert_eq!(events, [next, event.clone()]);
    let backlog = history.backlog().await.unwrap();
    assert_eq!((backlog.len(), backlog[0].waiting), (1, 2));
    assert_eq!(history.alert_counts().await.unwrap()[0].alerts, 1);
}

pub(crate) async fn events_are_found_by_what_they_are_about(database: TestDatabase) {
    let history = database.open().await;
    let mut events = [
        raised(0, "level-0", Severity::Warning, 100),
        raised(1, "level-0", Severity::Critical, 200),
        raised(2, "level-0", Severity::Exhausted, 300),
    ];
    events[1].policy = Some("B".to_owned());
    events[2].policy = None;
    commit_events(&history, events.iter().cloned().map(to_hook).collect()).await;
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
