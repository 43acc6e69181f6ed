//! What the ends of requests do to a partition.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Note, What};
use crate::health::{Change, Circuit, whole_us};
use crate::rate::Pace;
use crate::scheduler::{Core, Event, Source};
use crate::signal::{Outcome, Report};

/// Events of one partition that wait for being told. So many have long opened its circuit.
const UNTOLD_MAX: usize = 1_024;

impl Core {
    /// Somebody will report how its request ended.
    pub(crate) fn hold(&mut self, index: u32, n: u64) {
        let part = self.part_mut(index);
        part.permits += 1;
        part.under_way = part.under_way.saturating_add(n);
    }

    /// It has, or never will.
    pub(crate) fn release(&mut self, index: u32, n: u64) {
        let part = self.part_mut(index);
        part.permits -= 1;
        part.under_way = part.under_way.saturating_sub(n);
    }

    /// How a request ended.
    pub(crate) fn report(&mut self, index: u32, epoch: Option<u32>, report: &Report, now_us: u64) {
        self.recall(index, now_us);
        let settings = Arc::clone(&self.settings);
        let how = &settings.degradation;
        let is_failure = (settings.counts)(report.outcome);
        let part = self.part_mut(index);
        // Requests that were under way when the other side asked for a pause are answered in the
        // same way: that is one event and not many.
        let is_known = part.brake.is_paused(now_us) && matches!(report.outcome, Outcome::Pushback);
        let under_way = part.under_way;
        let pause_max_us = whole_us(settings.pause_max);
        part.brake.heed(report, under_way, pause_max_us, now_us);
        part.tally.failures += u64::from(is_failure);
        let health = &mut self.part_mut(index).health;
        let before = *health;
        let (event, change) = if is_failure && is_known {
            health.abandoned(epoch);
            (None, Change::default())
        } else if is_failure {
            let change = health.error(how, epoch, now_us);
            (Some(Event::Error), change)
        } else if report.outcome == Outcome::Unknown {
            health.abandoned(epoch);
            (None, Change::default())
        } else {
            (Some(Event::Success), health.success(how, epoch, now_us))
        };
        let event = event.filter(|_| change != Change::default() || before != *health);
        if let Some(event) = event {
            self.tell_others(index, event, change);
        }
        self.apply(index, change, now_us);
        self.place(index, now_us);
    }

    /// Where processes share a partition, they hear of what changes it: every error, and each success
    /// that raised it or closed its circuit.
    fn tell_others(&mut self, index: u32, event: Event, change: Change) {
        let is_heard = event == Event::Error || change != Change::default();
        if self.source == Source::Elsewhere && is_heard {
            let part = self.part_mut(index);
            if part.untold.len() < UNTOLD_MAX {
                part.untold.push(event);
            }
            if !part.is_telling {
                part.is_telling = true;
                let name = Arc::clone(&part.name);
                self.news.push(name);
            }
        }
    }

    /// Puts a change of health into effect and on record.
    pub(crate) fn apply(&mut self, index: u32, change: Change, now_us: u64) {
        if change == Change::default() {
            return;
        }
        let share = self.settings.share;
        let part = self.part_mut(index);
        let before = part.pace;
        if change.rate.is_some() {
            part.pace = Pace::new(part.rate.with_tokens(part.health.current()), share);
            part.bucket.change(*part.pace.limit(), now_us);
        }
        let note = |what| Note {
            partition: Arc::clone(&part.name),
            what,
            before,
            after: part.pace,
        };
        let is_restored = part.health.is_sound();
        let mut notes = Vec::new();
        if let Some((from, to)) = change.rate {
            notes.push(note(if to < from {
                What::Degraded
            } else if is_restored {
                What::Restored
            } else {
                What::Raised
            }));
        }
        if let Some(circuit) = change.circuit {
            let open_for = part.health.open_until_us().unwrap_or(now_us) - now_us;
            notes.push(note(match circuit {
                Circuit::Open => What::Opened {
                    for_: Duration::from_micros(open_for),
                },
                Circuit::HalfOpen => What::HalfOpened,
                Circuit::Closed => What::Reset,
            }));
        }
        self.notes.extend(notes);
        if change.circuit == Some(Circuit::Open) {
            self.flush(index);
        }
    }
}
