//! What the cycle remembers of the database, to go on judging while the database accepts no writes.
//!
//! In normal operation this is a copy of what was last committed. During an outage it is the truth:
//! samples are judged from it, and the resulting states and events are kept until they can be
//! committed, with the same keys under which they have been sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use parking_lot::Mutex;

use super::judge::{self, Verdict};
use crate::alert::{AlertState, Event, Silence};
use crate::analyse::LOOKBACK_SAMPLES_MAX;
use crate::history::{
    History, HistoryError, ParticipantState, RoutedEvent, SilenceChange, StateUpdate,
};
use crate::sample::{Poll, Sample};

/// The most events that wait in memory; beyond, the oldest are dropped. They have been sent.
const EVENTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Memory {
    participants: Mutex<BTreeMap<String, Remembered>>,
    silences: Mutex<Vec<Silence>>,
    /// Held while uncommitted states are committed, so that nothing is committed twice.
    committing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Remembered {
    /// The version is that of the last commit; the states may be ahead of it.
    state: ParticipantState,
    samples: Vec<Vec<Sample>>,
    uncommitted: Option<Uncommitted>,
}

/// What has been judged, but not committed.
#[derive(Clone, Debug, Default)]
struct Uncommitted {
    policies: BTreeSet<String>,
    events: VecDeque<RoutedEvent>,
    /// Counts the additions, so that a commit notices those that were made meanwhile.
    generation: u64,
}

impl Memory {
    /// Remembers what the database holds. States that are ahead of the database are kept.
    pub(super) fn remember(
        &self,
        participant: &str,
        state: ParticipantState,
        samples: Option<&[Vec<Sample>]>,
        silences: &[Silence],
    ) {
        silences.clone_into(&mut self.silences.lock());
        let mut participants = self.participants.lock();
        match participants.get_mut(participant) {
            Some(known) if known.uncommitted.is_some() => {}
            Some(known) => {
                known.state = state;
                if let Some(samples) = samples {
                    samples.clone_into(&mut known.samples);
                }
            }
            None => {
                let remembered = Remembered {
                    state,
                    samples: samples.unwrap_or_default().to_vec(),
                    uncommitted: None,
                };
                participants.insert(participant.to_owned(), remembered);
            }
        }
    }

    /// Adds the samples of a poll, whether or not they can be stored.
    pub(super) fn observe(&self, poll: &Poll, lookback_us: u64) {
        let mut participants = self.participants.lock();
        let Some(known) = participants.get_mut(poll.participant()) else {
            return;
        };
        let since_us = poll.taken_us().saturating_sub(lookback_us);
        for sample in poll.samples() {
            let own = known.samples.iter_mut().find(|own| {
                own.first()
                    .is_some_and(|one| one.bucket() == sample.bucket())
            });
            let Some(own) = own else {
                known.samples.push(vec![sample.clone()]);
                continue;
            };
            let at = own.partition_point(|one| one.taken_us() < sample.taken_us());
            if own
                .get(at)
                .is_none_or(|one| one.taken_us() != sample.taken_us())
            {
                own.insert(at, sample.clone());
            }
            let extra = own.len().saturating_sub(LOOKBACK_SAMPLES_MAX);
            let old = own.partition_point(|one| one.taken_us() < since_us);
            own.drain(..old.max(extra).min(own.len().saturating_sub(1)));
        }
        known
            .samples
            .sort_by(|one, other| one[0].bucket().cmp(other[0].bucket()));
    }

    /// The last known state and samples of a participant.
    pub(super) fn recall(&self, participant: &str) -> Option<(ParticipantState, Vec<Vec<Sample>>)> {
        let participants = self.participants.lock();
        let known = participants.get(participant)?;
        Some((known.state.clone(), known.samples.clone()))
    }

    pub(super) fn remember_silences(&self, silences: &[Silence]) {
        silences.clone_into(&mut self.silences.lock());
    }

    pub(super) fn change_silences(&self, change: &SilenceChange) {
        change.apply(&mut self.silences.lock());
    }

    pub(super) fn silences(&self) -> Vec<Silence> {
        self.silences.lock().clone()
    }

    /// Judges from memory and keeps the result until it can be committed. `judge` gets the states
    /// with those of new buckets, the samples, and the newest poll that was judged. Returns the
    /// samples and the routed events; `None` if the participant is not known.
    pub(super) fn judge(
        &self,
        participant: &str,
        now_us: u64,
        judge: impl FnOnce(&ParticipantState, &[Vec<Sample>], Option<Poll>) -> Verdict,
        route: impl Fn(Event) -> RoutedEvent,
    ) -> Option<(Vec<Vec<Sample>>, Vec<RoutedEvent>)> {
        let mut participants = self.participants.lock();
        let known = participants.get_mut(participant)?;
        let mut samples = known.samples.clone();
        judge::drop_future_samples(&mut samples, now_us);
        let mut state = known.state.clone();
        let new = judge::new_alert_states(&state.alerts, &samples, now_us);
        let is_new: BTreeSet<String> = new.iter().map(policy).collect();
        state.alerts.extend(new);
        let newest_us = state.staleness.newest_us;
        let before = newest_us.and_then(|us| poll_at(&samples, us));
        let verdict = judge(&state, &samples, before);
        let is_changed = verdict.staleness != state.staleness || !verdict.alerts.is_empty();
        if !is_changed && is_new.is_empty() {
            return Some((samples, Vec::new()));
        }
        let uncommitted = known.uncommitted.get_or_insert_default();
        uncommitted.generation += 1;
        uncommitted.policies.extend(is_new);
        uncommitted
            .policies
            .extend(verdict.alerts.iter().map(policy));
        state.staleness = verdict.staleness;
        for changed in verdict.alerts {
            match state
                .alerts
                .iter_mut()
                .find(|own| own.bucket == changed.bucket)
            {
                Some(own) => *own = changed,
                None => state.alerts.push(changed),
            }
        }
        state
            .alerts
            .sort_by(|one, other| one.bucket.cmp(&other.bucket));
        known.state = state;
        let events: Vec<RoutedEvent> = verdict.events.into_iter().map(route).collect();
        uncommitted.events.extend(events.iter().cloned());
        let extra = uncommitted.events.len().saturating_sub(EVENTS_MAX);
        if extra > 0 {
            uncommitted.events.drain(..extra);
            tracing::error!(
                event_type = "events_dropped",
                participant,
                events = extra,
                "the database has been unavailable for too long: events that were sent will not be \
                 in the history"
            );
        }
        Some((samples, events))
    }

    /// The events that wait to be committed, the oldest of each participant first.
    pub(super) fn unstored_events(&self) -> Vec<Event> {
        let participants = self.participants.lock();
        let uncommitted = participants
            .values()
            .filter_map(|known| known.uncommitted.as_ref());
        let events = uncommitted.flat_map(|one| &one.events);
        events.map(|routed| routed.event.clone()).collect()
    }

    /// The number of events that wait to be committed.
    pub(super) fn uncommitted_events(&self) -> usize {
        let participants = self.participants.lock();
        let uncommitted = participants
            .values()
            .filter_map(|known| known.uncommitted.as_ref());
        uncommitted.map(|one| one.events.len()).sum()
    }

    /// The participants with uncommitted states.
    pub(super) fn uncommitted(&self) -> Vec<String> {
        let participants = self.participants.lock();
        let uncommitted = participants
            .iter()
            .filter(|(_, known)| known.uncommitted.is_some());
        uncommitted
            .map(|(participant, _)| participant.clone())
            .collect()
    }

    /// Commits what was judged from memory. If another monitor has committed in between, its states
    /// win, and the stored samples are judged again from those.
    pub(super) async fn commit(
        &self,
        history: &History,
        participant: &str,
    ) -> Result<(), HistoryError> {
        let _once = self.committing.lock().await;
        loop {
            let Some((mut update, all, generation)) = self.update(participant) else {
                return Ok(());
            };
            let mut committed = history.commit(&update).await;
            if matches!(committed, Err(HistoryError::Conflict)) {
                // Accepted if the database knows nothing of the participant, which is the case
                // after a damaged file was replaced by an empty one.
                update.version = 0;
                update.alerts = all;
                committed = history.commit(&update).await;
            }
            let is_committed = match committed {
                Ok(()) => true,
                Err(HistoryError::Conflict) => false,
                Err(error) => return Err(error),
            };
            let mut participants = self.participants.lock();
            let Some(known) = participants.get_mut(participant) else {
                return Ok(());
            };
            if !is_committed {
                tracing::warn!(
                    event_type = "states_discarded",
                    participant,
                    events = update.events.len(),
                    "another monitor committed while this one could not; its alert states win"
                );
                known.uncommitted = None;
                return Ok(());
            }
            known.state.version = update.version + 1;
            let Some(uncommitted) = &mut known.uncommitted else {
                return Ok(());
            };
            if uncommitted.generation == generation {
                known.uncommitted = None;
                return Ok(());
            }
            // Something was judged meanwhile: that is committed next.
            uncommitted
                .events
                .drain(..update.events.len().min(uncommitted.events.len()));
        }
    }

    fn update(&self, participant: &str) -> Option<(StateUpdate, Vec<AlertState>, u64)> {
        let participants = self.participants.lock();
        let known = participants.get(participant)?;
        let uncommitted = known.uncommitted.as_ref()?;
        let alerts = known.state.alerts.iter();
        let changed = alerts.filter(|alert| uncommitted.policies.contains(alert.bucket.policy()));
        let update = StateUpdate {
            version: known.state.version,
            staleness: known.state.staleness.clone(),
            alerts: changed.cloned().collect(),
            events: uncommitted.events.iter().cloned().collect(),
        };
        Some((update, known.state.alerts.clone(), uncommitted.generation))
    }
}

fn policy(alert: &AlertState) -> String {
    alert.bucket.policy().to_owned()
}

fn poll_at(samples: &[Vec<Sample>], us: u64) -> Option<Poll> {
    let at = samples.iter().flatten().filter(|one| one.taken_us() == us);
    Poll::new(at.cloned().collect()).ok()
}
