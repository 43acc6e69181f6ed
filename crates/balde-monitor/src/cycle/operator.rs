//! What operators change: acknowledgements and silences. A change that the database does not accept is
//! kept in memory, counts at once, and is written when the database is back.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Components, Cycle};
use crate::alert::{self, Event, OpenAlert, Silence, StorageAlert, Via};
use crate::history::{
    HistoryError, ParticipantState, RoutedEvent, SILENCES_MAX, SilenceChange, StateUpdate,
};

/// The longest that a change waits for the database before it is kept in memory.
const WRITE_MAX: Duration = Duration::from_secs(1);

/// The attempts to close an alert while other commits come in between.
const CLOSE_ATTEMPTS: usize = 5;

/// Where a change of an operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// In the database.
    InDatabase,
    /// In memory, until the database is back.
    InMemory,
}

/// Changes that the database has not accepted yet, in their order.
#[derive(Debug, Default)]
pub(super) struct UnstoredChanges {
    changes: Mutex<VecDeque<(SilenceChange, RoutedEvent)>>,
    /// Held while changes are written, so that they are written in their order.
    storing: tokio::sync::Mutex<()>,
}

impl UnstoredChanges {
    pub(super) fn len(&self) -> usize {
        self.changes.lock().len()
    }

    pub(super) fn events(&self) -> Vec<Event> {
        let changes = self.changes.lock();
        let events = changes.iter().map(|(_, routed)| routed.event.clone());
        events.collect()
    }

    /// Makes these changes in silences that were read from the database.
    pub(super) fn overlay(&self, silences: &mut Vec<Silence>) {
        for (change, _) in &*self.changes.lock() {
            change.apply(silences);
        }
    }

    fn push(&self, change: SilenceChange, event: RoutedEvent) -> Result<(), HistoryError> {
        let mut changes = self.changes.lock();
        if changes.len() >= SILENCES_MAX {
            let reason = format!("{SILENCES_MAX} changes wait in memory for the database already");
            return Err(HistoryError::Rejected { reason });
        }
        changes.push_back((change, event));
        Ok(())
    }
}

impl Cycle {
    /// Makes a change of an operator, and records and sends the event that says so.
    pub(crate) async fn change(
        &self,
        change: SilenceChange,
        event: Event,
    ) -> Result<Stored, HistoryError> {
        let Components {
            history,
            dispatcher,
            ..
        } = self.components();
        let event = self.route(event);
        // A later change must not overtake an earlier one that waits in memory.
        if history.health().failure().is_none() && self.changes.len() == 0 {
            let writing = history.change_silences(&change, &event);
            match tokio::time::timeout(WRITE_MAX, writing).await {
                Ok(Ok(())) => {
                    self.memory.change_silences(&change);
                    dispatcher.wake();
                    return Ok(Stored::InDatabase);
                }
                Ok(Err(error)) if !error.is_transient() => return Err(error),
                Ok(Err(_)) | Err(_) => history.health().suspect(),
            }
        }
        self.changes.push(change.clone(), event.clone())?;
        self.memory.change_silences(&change);
        tracing::warn!(
            target: "balde_monitor",
            event_type = "change_kept_in_memory",
            kind = event.event.kind.label(),
            participant = event.event.participant,
            policy = event.event.policy,
            "the database does not accept an operator's change: it counts from memory, and is \
             written when the database is back"
        );
        dispatcher.send_from_memory(&[event]);
        Ok(Stored::InMemory)
    }

    /// Writes the changes that wait in memory.
    pub(crate) async fn flush_changes(&self) -> Result<(), HistoryError> {
        let _in_order = self.changes.storing.lock().await;
        loop {
            let Some((change, event)) = self.changes.changes.lock().front().cloned() else {
                return Ok(());
            };
            let history = &self.components.history;
            match history.change_silences(&change, &event).await {
                // A change that will never be accepted must not keep the others out.
                Err(HistoryError::Rejected { reason }) => tracing::error!(
                    target: "balde_monitor",
                    event_type = "change_rejected",
                    kind = event.event.kind.label(),
                    reason,
                    "the database rejected an operator's change that waited in memory; it is dropped"
                ),
                written => written?,
            }
            self.changes.changes.lock().pop_front();
            self.components.dispatcher.wake();
        }
    }

    /// The silences in the database, with the changes that wait in memory.
    pub(super) async fn read_silences(&self, now_us: u64) -> Result<Vec<Silence>, HistoryError> {
        let mut silences = self.components.history.silences(now_us).await?;
        self.changes.overlay(&mut silences);
        Ok(silences)
    }

    /// The state of the alert about the database.
    pub(crate) fn storage_alert(&self) -> parking_lot::MutexGuard<'_, StorageAlert> {
        self.storage_alert.lock()
    }

    /// The silences as they were last read or changed, without asking the database.
    pub(crate) fn remembered_silences(&self) -> Vec<Silence> {
        self.memory.silences()
    }

    /// The first open alert whose episode is meant: of a bucket's level, a forecast, stale data, or the
    /// database.
    pub(crate) async fn find_open_alert(
        &self,
        is_meant: impl Fn(&str) -> bool,
    ) -> Result<Option<OpenAlert>, HistoryError> {
        let is_meant = |alert: &OpenAlert| is_meant(&alert.episode);
        let about_storage = self.storage_alert().open_alert();
        if let Some(alert) = about_storage.filter(is_meant) {
            return Ok(Some(alert));
        }
        let components = self.components();
        for participant in components.sources.keys() {
            let (state, _) = self.snapshot(participant).await?;
            let stale = state.staleness.open_alert(&components.staleness);
            let of_buckets = state.alerts.iter().flat_map(|alert| alert.open_alerts());
            if let Some(alert) = stale.into_iter().chain(of_buckets).find(is_meant) {
                return Ok(Some(alert));
            }
        }
        Ok(None)
    }

    /// Closes an open alert, because somebody closed it elsewhere. Returns false if the episode is
    /// over, and for the alert about the database, which is over when the database is back.
    pub(crate) async fn close_alert(
        &self,
        participant: &str,
        episode: &str,
        by: &str,
        via: Via,
    ) -> Result<bool, HistoryError> {
        let Components { history, time, .. } = self.components();
        let mut conflict = HistoryError::Conflict;
        for _ in 0..CLOSE_ATTEMPTS {
            let now_us = time.now_us();
            let state = history.participant_state(participant, now_us).await?;
            let Some(update) = self.closing(state, episode, by, via, now_us) else {
                return Ok(false);
            };
            match history.commit(&update).await {
                Ok(()) => {
                    self.components.dispatcher.wake();
                    return Ok(true);
                }
                Err(HistoryError::Conflict) => conflict = HistoryError::Conflict,
                Err(error) => return Err(error),
            }
        }
        Err(conflict)
    }

    /// The update that closes an alert; `None` if it is over.
    fn closing(
        &self,
        state: ParticipantState,
        episode: &str,
        by: &str,
        via: Via,
        now_us: u64,
    ) -> Option<StateUpdate> {
        let rule = &self.components.staleness;
        let stale = alert::close_stale(&state.staleness, episode, by, via, now_us, rule);
        let (staleness, alerts, events) = if let Some((staleness, events)) = stale {
            (staleness, Vec::new(), events)
        } else {
            let mut alerts = state.alerts.iter();
            let closed = alerts.find_map(|open| alert::close(open, episode, by, via, now_us));
            let (closed, events) = closed?;
            (state.staleness, vec![closed], events)
        };
        Some(StateUpdate {
            version: state.version,
            staleness,
            alerts,
            events: events.into_iter().map(|event| self.route(event)).collect(),
        })
    }
}
