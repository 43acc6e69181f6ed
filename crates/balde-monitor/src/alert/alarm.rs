//! The state machine of one bucket.

use serde::{Deserialize, Serialize};

use crate::alert::event::{episode, key};
use crate::alert::silence::covering;
use crate::alert::{Event, Forecast, Kind, Outcome, Rule, Silence, Why, forecast};
use crate::analyse::Assessment;
use crate::sample::BucketId;
use crate::severity::Severity;

/// What is known about one bucket's alert, to be kept between steps. Plain fields, for whichever
/// table keeps them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Whose bucket, under which policy.
    pub bucket: BucketId,
    /// When this alarm was made: part of every key, so that a database that was lost and begun
    /// anew gives new ones.
    pub epoch_us: u64,
    /// How many events it has given: the next one's number.
    pub sequence: u64,
    /// What was told last, or would have been but for a silence.
    pub severity: Severity,
    /// Since when.
    pub since_us: u64,
    /// The number of the event that opened the present episode.
    pub episode: u64,
    /// The worst of the present episode.
    pub peak: Severity,
    /// The worst of the present episode that no silence covered.
    pub told: Severity,
    /// When it was told last.
    pub told_us: u64,
    /// Better than `severity`, but not for long enough yet.
    pub clearing: Option<Clearing>,
    /// The prediction that is open.
    pub forecast: Option<Forecast>,
    /// The newest sample that was taken into account.
    pub sampled_us: Option<u64>,
    /// Its level.
    pub level: Option<i64>,
    /// Its capacity.
    pub capacity: Option<u64>,
}

/// A severity on its way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clearing {
    /// Since when it is better.
    pub since_us: u64,
    /// The worst it was since then.
    pub worst: Severity,
}

impl Alarm {
    /// A bucket about which nothing was told yet. Keep it before its first step: events that are
    /// worked out again have the same keys only if they start from the same alarm.
    pub fn new(bucket: BucketId, now_us: u64) -> Self {
        Self {
            bucket,
            epoch_us: now_us,
            sequence: 0,
            severity: Severity::Normal,
            since_us: now_us,
            episode: 0,
            peak: Severity::Normal,
            told: Severity::Normal,
            told_us: now_us,
            clearing: None,
            forecast: None,
            sampled_us: None,
            level: None,
            capacity: None,
        }
    }

    fn is_news(&self, seen: &Assessment<'_>, now_us: u64) -> bool {
        let taken_us = seen.sample().taken_us();
        // A sample that was taken into account already says nothing new. But when the clock went
        // back behind it, older samples are the news.
        let is_later = |sampled_us| taken_us > sampled_us || sampled_us > now_us;
        *seen.sample().bucket() == self.bucket && self.sampled_us.is_none_or(is_later)
    }
}

/// One step: the state afterwards, and what to tell.
///
/// `seen` is the newest assessment of the alarm's bucket, if there is one; of another bucket, or
/// one seen already, it says nothing. Without news only reminders come. It got worse: told at
/// once. It got better: told when it has been better than the band above the threshold for the
/// rule's calm.
pub fn step(
    alarm: &Alarm,
    seen: Option<&Assessment<'_>>,
    now_us: u64,
    rule: &Rule,
    silences: &[Silence],
) -> (Alarm, Vec<Event>) {
    let mut telling = Telling::new(alarm, now_us, silences);
    if let Some(seen) = seen.filter(|seen| alarm.is_news(seen, now_us)) {
        let sample = seen.sample();
        telling.alarm.sampled_us = Some(sample.taken_us());
        telling.alarm.level = Some(sample.level());
        telling.alarm.capacity = Some(sample.terms().capacity());
        judge_level(&mut telling, seen, rule);
        forecast::judge(&mut telling, seen, rule);
    }
    remind(&mut telling, rule);
    (telling.alarm, telling.events)
}

/// The policy is no longer listed: what was open about it is over.
pub fn vanish(alarm: &Alarm, now_us: u64, rule: &Rule) -> (Alarm, Vec<Event>) {
    let mut telling = Telling::new(alarm, now_us, &[]);
    forecast::end(&mut telling, Outcome::Averted, rule);
    if telling.alarm.severity > Severity::Normal {
        telling.better(Severity::Normal, Why::Vanished, now_us);
    }
    telling.alarm.clearing = None;
    (telling.alarm, telling.events)
}

fn judge_level(telling: &mut Telling<'_>, seen: &Assessment<'_>, rule: &Rule) {
    let (level, terms) = (seen.sample().level(), seen.sample().terms());
    let taken_us = seen.sample().taken_us();
    let is = rule.thresholds().severity(level, terms);
    let still = rule.thresholds().severity_with_band(level, terms);
    let was = telling.alarm.severity;
    if is > was {
        telling.alarm.clearing = None;
        telling.worse(is, taken_us);
    } else if still < was {
        let clearing = telling.alarm.clearing.map_or(
            Clearing {
                since_us: taken_us,
                worst: still,
            },
            |begun| Clearing {
                // A clock that went back makes nothing calm for longer.
                since_us: begun.since_us.min(taken_us),
                worst: begun.worst.max(still),
            },
        );
        telling.alarm.clearing = Some(clearing);
        if taken_us - clearing.since_us >= rule.calm_us() {
            telling.alarm.clearing = None;
            telling.better(clearing.worst, Why::Recovered, taken_us);
        }
    } else {
        telling.alarm.clearing = None;
    }
}

/// Tells an open alert again when its time has come, or when the silence that covered it is over.
fn remind(telling: &mut Telling<'_>, rule: &Rule) {
    let alarm = &telling.alarm;
    let severity = alarm.severity;
    if severity == Severity::Normal || telling.silence(severity).is_some() {
        return;
    }
    let waited_us = telling.now_us.saturating_sub(alarm.told_us);
    let is_due = rule.remind_us(severity).is_some_and(|us| waited_us >= us);
    if is_due || alarm.told < severity {
        let since_us = alarm.since_us;
        telling.alarm.told = alarm.told.max(severity);
        telling.alarm.told_us = telling.now_us;
        let group = telling.alarm.episode;
        telling.tell(Kind::Reminder { since_us }, severity, None, "level", group);
    }
}

/// A step being taken: the state so far and what it tells.
pub(crate) struct Telling<'a> {
    pub(crate) alarm: Alarm,
    pub(crate) events: Vec<Event>,
    pub(crate) now_us: u64,
    silences: &'a [Silence],
}

impl<'a> Telling<'a> {
    fn new(alarm: &Alarm, now_us: u64, silences: &'a [Silence]) -> Self {
        Self {
            alarm: alarm.clone(),
            events: Vec::new(),
            now_us,
            silences,
        }
    }

    fn worse(&mut self, to: Severity, at_us: u64) {
        let from = self.alarm.severity;
        if from == Severity::Normal {
            self.alarm.episode = self.alarm.sequence;
            self.alarm.peak = Severity::Normal;
            self.alarm.told = Severity::Normal;
        }
        let silence = self.silence(to);
        self.alarm.severity = to;
        self.alarm.since_us = at_us;
        self.alarm.peak = self.alarm.peak.max(to);
        if silence.is_none() {
            self.alarm.told = self.alarm.told.max(to);
            self.alarm.told_us = self.now_us;
        }
        let group = self.alarm.episode;
        self.tell(Kind::Raised { from, to }, to, silence, "level", group);
    }

    fn better(&mut self, to: Severity, why: Why, at_us: u64) {
        let from = self.alarm.severity;
        let (kind, concerns) = match to {
            Severity::Normal => (Kind::Resolved { from, why }, self.alarm.peak),
            _ => (Kind::Lowered { from, to }, from),
        };
        // Whoever was told that it is bad is told that it is better, silence or not: a page that
        // nobody takes back is worse than one too many.
        let silence = match self.alarm.told {
            Severity::Normal => self.silence(concerns),
            _ => None,
        };
        self.alarm.severity = to;
        self.alarm.since_us = at_us;
        // If it gets worse again within a silence, that has to be told anew.
        self.alarm.told = self.alarm.told.min(to);
        self.alarm.told_us = self.now_us;
        let group = self.alarm.episode;
        self.tell(kind, concerns, silence, "level", group);
    }

    /// The silence that covers a severity of this bucket now.
    pub(crate) fn silence(&self, severity: Severity) -> Option<String> {
        let bucket = &self.alarm.bucket;
        let policy = Some(bucket.policy());
        covering(
            self.silences,
            bucket.participant(),
            policy,
            severity,
            self.now_us,
        )
        .map(str::to_owned)
    }

    pub(crate) fn tell(
        &mut self,
        kind: Kind,
        severity: Severity,
        silenced_by: Option<String>,
        group: &str,
        group_sequence: u64,
    ) {
        let alarm = &mut self.alarm;
        let subject = format!("{}/{}", alarm.bucket.participant(), alarm.bucket.policy());
        self.events.push(Event {
            key: key(&subject, alarm.epoch_us, alarm.sequence, &kind.label()),
            episode: episode(&subject, alarm.epoch_us, group_sequence, group),
            participant: alarm.bucket.participant().to_owned(),
            policy: Some(alarm.bucket.policy().to_owned()),
            at_us: self.now_us,
            kind,
            severity,
            level: alarm.level,
            capacity: alarm.capacity,
            silenced_by,
        });
        alarm.sequence += 1;
    }
}
