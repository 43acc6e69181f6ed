//! Judging samples, as pure functions: alert states and samples in, alert states and events out.
//!
//! Samples are judged one by one in the order in which they were taken, each at the time it was
//! taken. A monitor that crashed between storing and judging a poll therefore produces the same
//! events with the same keys after a restart, and skips no sample.

use std::collections::BTreeMap;

use crate::alert::{self, Alarm, Event, Rulebook, Silence, Watch, WatchRule};
use crate::analyse::{Assessment, SettingsByPolicy, changes};
use crate::sample::{Poll, Sample};

/// How far in the future a sample may be. More than the usual difference between the clocks of two
/// machines, less than any clock step that matters.
const AHEAD_MAX_US: u64 = 5_000_000;

/// The rules and settings that samples are judged by.
pub(super) struct JudgeContext<'a> {
    pub(super) rules: &'a Rulebook,
    pub(super) watch: &'a WatchRule,
    pub(super) analysis: &'a SettingsByPolicy,
    pub(super) silences: &'a [Silence],
    pub(super) now_us: u64,
}

/// The result of judging samples.
pub(super) struct Verdict {
    pub(super) watch: Watch,
    /// Only the states that changed.
    pub(super) alarms: Vec<Alarm>,
    pub(super) events: Vec<Event>,
}

impl JudgeContext<'_> {
    /// Judges `samples`, which are grouped by policy, the oldest first. `before` is the newest poll
    /// that has been judged already.
    pub(super) fn judge(
        &self,
        watch: &Watch,
        alarms: &[Alarm],
        samples: &[Vec<Sample>],
        before: Option<Poll>,
    ) -> Verdict {
        let (watch, mut events) = self.judge_watch(watch, samples, before);
        let newest_us = newest_us(samples);
        let mut changed = Vec::new();
        for alarm in alarms {
            let own = samples
                .iter()
                .find(|own| own.first().is_some_and(|s| *s.bucket() == alarm.bucket));
            let own = own.map_or(&[][..], Vec::as_slice);
            let (next, told) = self.judge_alarm(alarm, own, newest_us);
            events.extend(told);
            if next != *alarm {
                changed.push(next);
            }
        }
        Verdict {
            watch,
            alarms: changed,
            events,
        }
    }

    fn judge_alarm(
        &self,
        alarm: &Alarm,
        own: &[Sample],
        newest_us: Option<u64>,
    ) -> (Alarm, Vec<Event>) {
        let rule = self.rules.rule(&alarm.bucket);
        let settings = self.analysis.settings(alarm.bucket.policy());
        let mut events = Vec::new();
        let mut now = alarm.clone();
        for end in self.unjudged(alarm, own) {
            let seen = Assessment::of(&own[..=end], rule.thresholds(), settings);
            let at_us = own[end].taken_us();
            let (next, told) = alert::step(&now, seen.as_ref(), at_us, rule, self.silences);
            now = next;
            events.extend(told);
        }
        let is_listed = own.last().map(Sample::taken_us) == newest_us;
        let (next, told) = if newest_us.is_some() && !is_listed {
            alert::vanish(&now, self.now_us, rule)
        } else {
            alert::step(&now, None, self.now_us, rule, self.silences)
        };
        events.extend(told);
        (next, events)
    }

    /// The positions of the samples that have not been judged. If the clock was set back to before
    /// the last judged sample, only the newest one is judged.
    fn unjudged(&self, alarm: &Alarm, own: &[Sample]) -> std::ops::Range<usize> {
        match alarm.sampled_us {
            Some(us) if us > self.now_us.saturating_add(AHEAD_MAX_US) => {
                own.len().saturating_sub(1)..own.len()
            }
            Some(us) => own.partition_point(|sample| sample.taken_us() <= us)..own.len(),
            None => 0..own.len(),
        }
    }

    fn judge_watch(
        &self,
        watch: &Watch,
        samples: &[Vec<Sample>],
        before: Option<Poll>,
    ) -> (Watch, Vec<Event>) {
        let mut by_moment: BTreeMap<u64, Vec<Sample>> = BTreeMap::new();
        for sample in samples.iter().flatten() {
            let moment = by_moment.entry(sample.taken_us()).or_default();
            moment.push(sample.clone());
        }
        let known_us = watch
            .newest_us
            .filter(|us| *us <= self.now_us.saturating_add(AHEAD_MAX_US));
        let mut events = Vec::new();
        let mut now = watch.clone();
        let mut before = before;
        for (us, moment) in by_moment {
            if known_us.is_some_and(|known_us| us <= known_us) {
                continue;
            }
            let Ok(after) = Poll::new(moment) else {
                continue;
            };
            let changed = before.as_ref().map(|before| changes(before, &after));
            let (next, told) = alert::step_watch(
                &now,
                Some(us),
                &changed.unwrap_or_default(),
                us,
                self.watch,
                self.silences,
            );
            now = next;
            events.extend(told);
            before = Some(after);
        }
        let (next, told) =
            alert::step_watch(&now, None, &[], self.now_us, self.watch, self.silences);
        events.extend(told);
        (next, events)
    }
}

/// Removes samples with timestamps in the future, taken before the clock was set back.
pub(super) fn drop_future_samples(samples: &mut Vec<Vec<Sample>>, now_us: u64) {
    let latest_us = now_us.saturating_add(AHEAD_MAX_US);
    for own in samples.iter_mut() {
        own.retain(|sample| sample.taken_us() <= latest_us);
    }
    samples.retain(|own| !own.is_empty());
}

/// Creates the alert states of buckets that have none yet.
pub(super) fn new_alarms(alarms: &[Alarm], samples: &[Vec<Sample>], now_us: u64) -> Vec<Alarm> {
    samples
        .iter()
        .filter_map(|own| own.first())
        .map(Sample::bucket)
        .filter(|bucket| alarms.iter().all(|alarm| alarm.bucket != **bucket))
        .map(|bucket| Alarm::new(bucket.clone(), now_us))
        .collect()
}

/// Analyses the buckets of the newest poll.
pub(super) fn assessments<'a>(
    samples: &'a [Vec<Sample>],
    rules: &Rulebook,
    analysis: &SettingsByPolicy,
) -> Vec<Assessment<'a>> {
    let newest_us = newest_us(samples);
    samples
        .iter()
        .filter(|own| own.last().map(Sample::taken_us) == newest_us)
        .filter_map(|own| {
            let bucket = own.last()?.bucket();
            let thresholds = rules.rule(bucket).thresholds();
            Assessment::of(own, thresholds, analysis.settings(bucket.policy()))
        })
        .collect()
}

fn newest_us(samples: &[Vec<Sample>]) -> Option<u64> {
    let newest = samples.iter().filter_map(|own| own.last());
    newest.map(Sample::taken_us).max()
}
