//! Judging samples, as pure functions: alert states and samples in, alert states and events out.
//!
//! Samples are judged one by one in the order in which they were taken, each at the time it was
//! taken. A monitor that crashed between storing and judging a poll therefore produces the same
//! events with the same keys after a restart, and skips no sample.

use std::collections::BTreeMap;

use crate::alert::{
    self, AlertRules, AlertState, Event, Silence, SourceAnswer, StalenessCheck, StalenessRule,
};
use crate::analyse::{Assessment, SettingsByPolicy, changes};
use crate::sample::{Poll, Sample};

/// How far in the future a sample may be. More than the usual difference between the clocks of two
/// machines, less than any clock step that matters.
const AHEAD_MAX_US: u64 = 5_000_000;

/// The rules and settings that samples are judged by.
pub(super) struct JudgeContext<'a> {
    pub(super) rules: &'a AlertRules,
    pub(super) staleness: &'a StalenessRule,
    pub(super) analysis: &'a SettingsByPolicy,
    pub(super) silences: &'a [Silence],
    /// Whether the source refused the newest poll.
    pub(super) is_refused: bool,
    pub(super) now_us: u64,
}

/// The result of judging samples.
pub(super) struct Verdict {
    pub(super) staleness: StalenessCheck,
    /// Only the states that changed.
    pub(super) alerts: Vec<AlertState>,
    pub(super) events: Vec<Event>,
}

impl JudgeContext<'_> {
    /// Judges `samples`, which are grouped by policy, the oldest first. `before` is the newest poll
    /// that has been judged already.
    pub(super) fn judge(
        &self,
        staleness: &StalenessCheck,
        alerts: &[AlertState],
        samples: &[Vec<Sample>],
        before: Option<Poll>,
    ) -> Verdict {
        let (staleness, mut events) = self.judge_staleness(staleness, samples, before);
        let listed_us = newest_list_us(samples);
        let mut changed = Vec::new();
        for alert in alerts {
            let own = samples
                .iter()
                .find(|own| own.first().is_some_and(|s| *s.bucket() == alert.bucket));
            let own = own.map_or(&[][..], Vec::as_slice);
            let (next, raised) = self.judge_alert(alert, own, listed_us);
            events.extend(raised);
            if next != *alert {
                changed.push(next);
            }
        }
        Verdict {
            staleness,
            alerts: changed,
            events,
        }
    }

    fn judge_alert(
        &self,
        alert: &AlertState,
        own: &[Sample],
        listed_us: Option<u64>,
    ) -> (AlertState, Vec<Event>) {
        let rule = self.rules.rule(&alert.bucket);
        let settings = self.analysis.settings(alert.bucket.policy());
        let mut events = Vec::new();
        let mut now = alert.clone();
        for end in self.unjudged(alert, own) {
            let seen = Assessment::of(&own[..=end], rule.thresholds(), settings);
            let at_us = own[end].taken_us();
            let (next, raised) = alert::evaluate(&now, seen.as_ref(), at_us, rule, self.silences);
            now = next;
            events.extend(raised);
        }
        let (next, raised) = if listed_us.is_some() && !is_listed(own, listed_us) {
            alert::resolve_vanished(&now, self.now_us)
        } else {
            alert::evaluate(&now, None, self.now_us, rule, self.silences)
        };
        events.extend(raised);
        (next, events)
    }

    /// The positions of the samples that have not been judged. If the clock was set back to before
    /// the last judged sample, only the newest one is judged.
    fn unjudged(&self, alert: &AlertState, own: &[Sample]) -> std::ops::Range<usize> {
        match alert.sampled_us {
            Some(us) if us > self.now_us.saturating_add(AHEAD_MAX_US) => {
                own.len().saturating_sub(1)..own.len()
            }
            Some(us) => own.partition_point(|sample| sample.taken_us() <= us)..own.len(),
            None => 0..own.len(),
        }
    }

    fn judge_staleness(
        &self,
        staleness: &StalenessCheck,
        samples: &[Vec<Sample>],
        before: Option<Poll>,
    ) -> (StalenessCheck, Vec<Event>) {
        let mut by_moment: BTreeMap<u64, Vec<Sample>> = BTreeMap::new();
        // A bucket that was read by itself says nothing about the list of policies.
        for sample in samples.iter().flatten().filter(|one| !one.is_single()) {
            let moment = by_moment.entry(sample.taken_us()).or_default();
            moment.push(sample.clone());
        }
        let known_us = staleness
            .newest_us
            .filter(|us| *us <= self.now_us.saturating_add(AHEAD_MAX_US));
        let mut events = Vec::new();
        let mut now = staleness.clone();
        let mut before = before;
        for (us, moment) in by_moment {
            if known_us.is_some_and(|known_us| us <= known_us) {
                continue;
            }
            let Ok(after) = Poll::new(moment) else {
                continue;
            };
            let changed = before.as_ref().map(|before| changes(before, &after));
            let (next, raised) = alert::check_staleness(
                &now,
                SourceAnswer::Poll { taken_us: us },
                &changed.unwrap_or_default(),
                us,
                self.staleness,
                self.silences,
            );
            now = next;
            events.extend(raised);
            before = Some(after);
        }
        let answer = if self.is_refused {
            SourceAnswer::Refused
        } else {
            SourceAnswer::None
        };
        let (next, raised) = alert::check_staleness(
            &now,
            answer,
            &[],
            self.now_us,
            self.staleness,
            self.silences,
        );
        events.extend(raised);
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
pub(super) fn new_alert_states(
    alerts: &[AlertState],
    samples: &[Vec<Sample>],
    now_us: u64,
) -> Vec<AlertState> {
    samples
        .iter()
        .filter_map(|own| own.first())
        .map(Sample::bucket)
        .filter(|bucket| alerts.iter().all(|alert| alert.bucket != **bucket))
        .map(|bucket| AlertState::new(bucket.clone(), now_us))
        .collect()
}

/// Analyses the buckets that the newest list names.
pub(super) fn assessments<'a>(
    samples: &'a [Vec<Sample>],
    rules: &AlertRules,
    analysis: &SettingsByPolicy,
) -> Vec<Assessment<'a>> {
    let listed_us = newest_list_us(samples);
    samples
        .iter()
        .filter(|own| is_listed(own, listed_us))
        .filter_map(|own| {
            let bucket = own.last()?.bucket();
            let thresholds = rules.rule(bucket).thresholds();
            Assessment::of(own, thresholds, analysis.settings(bucket.policy()))
        })
        .collect()
}

/// When the newest list of all policies was taken.
fn newest_list_us(samples: &[Vec<Sample>]) -> Option<u64> {
    let lists = samples
        .iter()
        .filter_map(|own| own.iter().rev().find(|one| !one.is_single()));
    lists.map(Sample::taken_us).max()
}

/// Returns true if the newest list has the bucket, or if there is no list yet.
fn is_listed(own: &[Sample], listed_us: Option<u64>) -> bool {
    let newest = own.iter().rev().find(|one| !one.is_single());
    newest.map(Sample::taken_us) == listed_us
}
