//! What the outcomes of requests do to a partition.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Event, EventKind};
use crate::health::{Change, Circuit};
use crate::micros::whole_us;
use crate::outcome::{Outcome, Report};
use crate::rate::Pace;
use crate::scheduler::{HealthEvent, Scheduler, TokenSource};

/// The most health events of one partition that wait to be published. Fewer open any circuit.
const UNPUBLISHED_MAX: usize = 1_024;

impl Scheduler {
    /// Counts a permit whose outcome will be reported.
    pub(crate) fn open_permit(&mut self, index: u32, n: u64) {
        let partition = self.partition_mut(index);
        partition.permits += 1;
        partition.in_flight = partition.in_flight.saturating_add(n);
    }

    /// Ends a permit, reported or dropped.
    pub(crate) fn close_permit(&mut self, index: u32, n: u64) {
        let partition = self.partition_mut(index);
        partition.permits -= 1;
        partition.in_flight = partition.in_flight.saturating_sub(n);
    }

    /// Applies the outcome of a request.
    pub(crate) fn report(&mut self, index: u32, epoch: Option<u32>, report: &Report, now_us: u64) {
        self.reclaim(index, now_us);
        let settings = Arc::clone(&self.settings);
        let degradation = &settings.degradation;
        let is_failure = (settings.counts_as_error)(report.outcome);
        let partition = self.partition_mut(index);
        // Requests that were in flight when the server asked for a pause get the same answer. That is
        // one event, so only the first degrades the rate.
        let is_repeated =
            partition.hints.is_paused(now_us) && matches!(report.outcome, Outcome::Pushback);
        let in_flight = partition.in_flight;
        let requests_in_flight = u64::try_from(partition.permits).unwrap_or(u64::MAX);
        let pause_max_us = whole_us(settings.pause_max);
        partition
            .hints
            .apply(report, in_flight, pause_max_us, now_us);
        partition.counters.failures += u64::from(is_failure);
        let health = &mut partition.health;
        let before = *health;
        let (event, change) = if is_failure && is_repeated {
            health.record_abandoned(epoch);
            (None, Change::default())
        } else if is_failure {
            let change = health.record_error(degradation, epoch, requests_in_flight, now_us);
            let is_down = before.circuit() == Circuit::Closed
                && change.circuit == Some(Circuit::Open)
                && change.rate.is_none();
            let event = if is_down {
                HealthEvent::Down
            } else {
                HealthEvent::Error
            };
            (
                Some(event).filter(|_| health.concerns_others(&before)),
                change,
            )
        } else if report.outcome == Outcome::Unknown {
            health.record_abandoned(epoch);
            (None, Change::default())
        } else {
            let change = health.record_success(degradation, epoch, now_us);
            let event = Some(HealthEvent::Success);
            (event.filter(|_| change != Change::default()), change)
        };
        if let Some(event) = event {
            self.queue_health_event(index, event);
        }
        self.apply(index, change, now_us);
        self.reschedule(index, now_us);
    }

    /// Queues an event for the other processes that share the partition.
    fn queue_health_event(&mut self, index: u32, event: HealthEvent) {
        if self.source == TokenSource::Remote {
            let partition = self.partition_mut(index);
            if partition.unpublished.len() < UNPUBLISHED_MAX {
                partition.unpublished.push(event);
            }
            if !partition.is_publishing {
                partition.is_publishing = true;
                let name = Arc::clone(&partition.name);
                self.to_publish.push(name);
            }
        }
    }

    /// Puts a change of health into effect, and queues its log events.
    pub(crate) fn apply(&mut self, index: u32, change: Change, now_us: u64) {
        if change == Change::default() {
            return;
        }
        let share = self.settings.burst_share;
        let partition = self.partition_mut(index);
        let before = partition.pace;
        if change.rate.is_some() {
            let rate = partition.rate.with_tokens(partition.health.current());
            partition.pace = Pace::new(rate, share);
            partition.bucket.change(*partition.pace.limit(), now_us);
        }
        let event = |kind| Event {
            partition: Arc::clone(&partition.name),
            kind,
            before,
            after: partition.pace,
        };
        let is_restored = partition.health.is_healthy();
        let mut events = Vec::new();
        if let Some((from, to)) = change.rate {
            events.push(event(if to < from {
                EventKind::Degraded
            } else if is_restored {
                EventKind::Restored
            } else {
                EventKind::Raised
            }));
        }
        if let Some(circuit) = change.circuit {
            let open_us = partition.health.open_until_us().unwrap_or(now_us) - now_us;
            events.push(event(match circuit {
                Circuit::Open => EventKind::CircuitOpened {
                    open_for: Duration::from_micros(open_us),
                },
                Circuit::HalfOpen => EventKind::CircuitHalfOpened,
                Circuit::Closed => EventKind::CircuitClosed,
            }));
        }
        self.events.extend(events);
        if change.circuit == Some(Circuit::Open) {
            self.flush(index);
        }
    }
}
