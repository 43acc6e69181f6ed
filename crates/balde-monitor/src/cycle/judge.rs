//! The analysis itself, pure: machines and samples in, machines and events out.
//!
//! Samples are judged one by one in the order they were taken, each at the moment it was taken. So
//! a monitor that stored an answer and crashed before it could judge it does so afterwards, with the
//! same events and the same keys, and no state that was seen is passed over.

use std::collections::BTreeMap;

use crate::alert::{self, Alarm, Event, Rulebook, Silence, Watch, WatchRule};
use crate::analyse::{Assessment, SettingsByPolicy, changes};
use crate::sample::{Poll, Sample};

/// How far ahead of the clock a sample may be: less than any step back that matters, more than two
/// machines' clocks differ.
const AHEAD_MAX_US: u64 = 5_000_000;

/// What a judgement goes by.
pub(super) struct JudgeContext<'a> {
    pub(super) rules: &'a Rulebook,
    pub(super) watch: &'a WatchRule,
    pub(super) analysis: &'a SettingsByPolicy,
    pub(super) silences: &'a [Silence],
    pub(super) now_us: u64,
}

/// What came of it.
pub(super) struct Verdict {
    pub(super) watch: Watch,
    /// Only those that changed.
    pub(super) alarms: Vec<Alarm>,
    pub(super) events: Vec<Event>,
}

impl JudgeContext<'_> {
    /// `samples` are by policy, the oldest first; `before` is the answer that the watch saw last.
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

    /// The positions of samples that the alarm has not seen. After the clock went back behind what
    /// it saw, only the newest is.
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

/// Takes away samples that were taken by a clock that was ahead and has been put right since.
pub(super) fn drop_future_samples(samples: &mut Vec<Vec<Sample>>, now_us: u64) {
    let latest_us = now_us.saturating_add(AHEAD_MAX_US);
    for own in samples.iter_mut() {
        own.retain(|sample| sample.taken_us() <= latest_us);
    }
    samples.retain(|own| !own.is_empty());
}

/// Alarms for buckets that have none yet.
pub(super) fn new_alarms(alarms: &[Alarm], samples: &[Vec<Sample>], now_us: u64) -> Vec<Alarm> {
    samples
        .iter()
        .filter_map(|own| own.first())
        .map(Sample::bucket)
        .filter(|bucket| alarms.iter().all(|alarm| alarm.bucket != **bucket))
        .map(|bucket| Alarm::new(bucket.clone(), now_us))
        .collect()
}

/// How the buckets of the newest answer look.
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
