//! Incidents and their timelines.

use balde_monitor::alert::SinkClass::{Incident, Log};
use balde_monitor::alert::{Event, EventKind};
use balde_monitor::analyse::Change;
use balde_monitor::severity::Severity::{Critical, Exhausted, Warning};

use crate::fixture::{commit_events, raised, reminder, resolved, routed};
use crate::test_database::TestDatabase;

pub(crate) async fn an_incident_opens_grows_and_closes(database: TestDatabase) {
    let history = database.open().await;
    let warning = raised(0, "level-0", Warning, 10);
    let exhausted = raised(1, "level-0", Exhausted, 20);
    let still = reminder(2, "level-0", Exhausted, 30);
    // Every alert is an incident, wherever it is routed to.
    commit_events(&history, vec![routed(warning.clone(), &[Log], &[])]).await;
    assert_eq!(history.incidents(10).await.unwrap().len(), 1);
    commit_events(
        &history,
        vec![routed(exhausted.clone(), &[Log, Incident], &[])],
    )
    .await;
    // Of the same episode, also where it is not routed to incidents, as in a silence.
    commit_events(&history, vec![routed(still.clone(), &[Log], &[])]).await;
    let open = history.incidents(10).await.unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(
        (open[0].opened_us, open[0].closed_us, open[0].severity),
        (10, None, Exhausted)
    );
    assert_eq!(
        (open[0].policy.as_deref(), &open[0].episode),
        (Some("A"), &exhausted.episode)
    );
    assert_eq!(
        open[0].timeline,
        [warning.clone(), exhausted.clone(), still.clone()]
    );
    let over = resolved(3, "level-0", Exhausted, 40);
    commit_events(&history, vec![routed(over.clone(), &[Log, Incident], &[])]).await;
    // The next one is another.
    let next = raised(4, "level-4", Exhausted, 50);
    commit_events(&history, vec![routed(next.clone(), &[Incident], &[])]).await;
    let incidents = history.incidents(10).await.unwrap();
    assert_eq!(incidents.len(), 2);
    assert_eq!((incidents[0].opened_us, incidents[0].closed_us), (50, None));
    assert_eq!(incidents[0].timeline, [next]);
    assert_eq!(
        (incidents[1].opened_us, incidents[1].closed_us),
        (10, Some(40))
    );
    assert_eq!(incidents[1].timeline, [warning, exhausted, still, over]);
    let newest = history.incidents(1).await.unwrap();
    assert_eq!(newest, incidents[..1]);
}

pub(crate) async fn ends_and_operators_open_no_incident(database: TestDatabase) {
    let history = database.open().await;
    // An end opens nothing, whatever its routes, and neither does a silence.
    let silenced = Event {
        kind: EventKind::Silenced {
            by: "Ana".to_owned(),
            until_us: 100,
            up_to: Critical,
        },
        ..raised(0, "silence-0", Critical, 10)
    };
    commit_events(&history, vec![routed(silenced, &[Log], &[])]).await;
    commit_events(
        &history,
        vec![routed(
            resolved(1, "level-0", Critical, 20),
            &[Incident],
            &[],
        )],
    )
    .await;
    assert!(history.incidents(10).await.unwrap().is_empty());
    // A change is an incident that is over at once: nothing will ever end it.
    let changed = Event {
        kind: EventKind::Changed(Change::PolicyAdded {
            policy: "A".to_owned(),
        }),
        ..raised(2, "change-2", Critical, 30)
    };
    commit_events(&history, vec![routed(changed, &[Incident], &[])]).await;
    let incidents = history.incidents(10).await.unwrap();
    assert_eq!(
        (incidents[0].opened_us, incidents[0].closed_us),
        (30, Some(30))
    );
}
