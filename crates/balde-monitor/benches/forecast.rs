//! How well the monitor forecasts and warns, over thousands of random traffic stories: for each
//! confidence the share of forecasts whose bounds held, how long before the first refusal a person
//! was told, and how many of those alarms were false.
//!
//! `cargo bench -p balde-monitor --bench forecast -- [STORIES] [SEED]` prints the figures. They
//! depend on the seed alone, not on the machine.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts and seconds are small"
)]

#[path = "../tests/support/stories.rs"]
mod stories;

use std::collections::{BTreeMap, BTreeSet};

use balde_monitor::alert::{AlertRule, AlertState, Event, EventKind, Routes, SinkClass, evaluate};
use balde_monitor::analyse::{Assessment, Confidence, SettingsByPolicy};
use balde_monitor::sample::{BucketId, ReportedLimit, Sample};
use balde_monitor::schedule::{NextAction, Planner, PollBudget, PollSchedule};
use stories::{Kind, Second, Story};

const STORIES: u64 = 4_000;
const SEED: u64 = 14;
const SECOND_US: u64 = 1_000_000;
const PARTICIPANT: &str = "12345678";

/// An alarm is false if nothing is refused in this time after it.
const FALSE_AFTER: Second = 1_800;

/// How fast a bucket was emptied.
const PACES: [&str; 6] = [
    "all",
    "emptied from half in under 30 s",
    "in 30 s to 2 min",
    "in 2 to 10 min",
    "in over 10 min",
    "while polls fail",
];

/// A story's second is the resolution of its truth.
const RESOLUTION_US: u64 = SECOND_US;

fn main() {
    let numbers: Vec<u64> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    let stories = numbers.first().copied().unwrap_or(STORIES);
    let seed = numbers.get(1).copied().unwrap_or(SEED);
    let rules = frontier();
    let mut reports: Vec<Report> = rules.iter().map(|_| Report::default()).collect();
    for number in 0..stories {
        let story = Story::of(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let mut watched = watch(&story, &rules);
        for (report, events) in reports.iter_mut().zip(std::mem::take(&mut watched.events)) {
            report.add(&story, &watched, &events);
        }
    }
    println!("{stories} stories, seed {seed}");
    let (default, _) = reports.split_first_mut().expect("the default is the first");
    default.print();
    println!(
        "\n| Forecasts that are sent | told before | median | median from half in 30 s to 2 min | in 2 to 10 min | in over 10 min | false a day, predicted | by level | true a day |"
    );
    println!("|--|--|--|--|--|--|--|--|--|");
    for ((name, _), report) in rules.iter().zip(&mut reports) {
        report.print_line(name);
    }
}

/// The default rule, and others that send more or fewer forecasts.
fn frontier() -> Vec<(String, AlertRule)> {
    let rule = AlertRule::default();
    let within_us = rule.predict_within_us();
    let severity = rule.predicted_severity();
    let mut rules = vec![("the default".to_owned(), rule)];
    for (name, confidence) in [("medium", Confidence::Medium), ("high", Confidence::High)] {
        let only = rule.with_predictions(within_us, confidence, severity);
        rules.push((format!("of {name} confidence or more"), only));
    }
    rules.push((
        "none".to_owned(),
        rule.with_predictions(0, Confidence::Low, severity),
    ));
    for below_pct in [100, 50, 40, 30, 25] {
        for confirm_s in [0, 1, 10, 30, 60] {
            let name = format!("at {below_pct} % or less, for {confirm_s} s");
            let other = rule.with_confirmation(confirm_s * SECOND_US, below_pct * 100);
            rules.push((name, other));
        }
    }
    rules
}

/// What a monitor saw of a story, and the events it sent.
#[derive(Default)]
struct Watched {
    polls: usize,
    reads: usize,
    forecasts: Vec<Made>,
    /// By rule.
    events: Vec<Vec<SentEvent>>,
}

struct Made {
    at: Second,
    earliest_us: u64,
    expected_us: Option<u64>,
    latest_us: Option<u64>,
    confidence: Confidence,
}

struct SentEvent {
    at: Second,
    event: Event,
    is_to_person: bool,
}

fn watch(story: &Story, rules: &[(String, AlertRule)]) -> Watched {
    let routes = Routes::default();
    let settings = SettingsByPolicy::default();
    let settings = settings.settings(story.policy);
    let mut planner = Planner::new(PollSchedule::default(), PollBudget::default())
        .expect("the default plan is valid");
    planner.add(PARTICIPANT, 0, &[]).expect("a valid name");
    let bucket = BucketId::new(PARTICIPANT, story.policy).expect("a valid name");
    let limit = ReportedLimit::new(
        story.limit.capacity(),
        story.limit.refill_tokens(),
        story.limit.period_us(),
    );
    let limit = limit.expect("a valid limit");
    let mut alerts: Vec<AlertState> = rules
        .iter()
        .map(|_| AlertState::new(bucket.clone(), 0))
        .collect();
    let mut history: Vec<Sample> = Vec::new();
    let mut watched = Watched::default();
    watched.events.resize_with(rules.len(), Vec::new);
    // The frontier does not change them.
    let thresholds = AlertRule::default().thresholds();
    for at in 0..story.watched {
        let now_us = at as u64 * SECOND_US;
        let participant = match planner.next(now_us) {
            NextAction::Poll { participant } => participant,
            NextAction::Read { participant, .. } => {
                watched.reads += 1;
                participant
            }
            NextAction::Wait { .. } | NextAction::Idle => continue,
        };
        if story.is_poll_failing[at] {
            planner.failed(&participant, now_us, None);
            continue;
        }
        watched.polls += 1;
        let sample = Sample::new(bucket.clone(), limit, story.levels[at], now_us);
        history.push(sample.expect("a valid sample"));
        let recent = &history[history.len().saturating_sub(512)..];
        let assessment = Assessment::of(recent, thresholds, settings).expect("there is a sample");
        if let Some(forecast) = assessment.time_to_empty()
            && story.levels[at] > 0
        {
            watched.forecasts.push(Made {
                at,
                earliest_us: forecast.earliest_us(),
                expected_us: forecast.expected_us(),
                latest_us: forecast.latest_us(),
                confidence: forecast.confidence(),
            });
        }
        let states = alerts.iter_mut().zip(rules).zip(&mut watched.events);
        for ((alert, (_, rule)), told) in states {
            let (next, events) = evaluate(alert, Some(&assessment), now_us, rule, &[]);
            *alert = next;
            told.extend(events.into_iter().map(|event| {
                let classes = routes.sinks(&event);
                let person = [SinkClass::Chat, SinkClass::Page, SinkClass::PageUrgent];
                SentEvent {
                    at,
                    is_to_person: person.iter().any(|class| classes.contains(class)),
                    event,
                }
            }));
        }
        planner.polled(&participant, now_us, &[assessment]);
    }
    watched
}

/// The forecasts of one confidence.
#[derive(Default)]
struct Calibration {
    forecasts: u64,
    too_early: u64,
    too_late: u64,
    stories: u64,
    /// The sum over stories of the share of forecasts that held, and those in which all did.
    shares: f64,
    all_held: u64,
    /// Expected over true time, for those that came true.
    ratios: Vec<f64>,
    /// Latest over earliest, of those that have both.
    widths: Vec<f64>,
}

#[derive(Default)]
struct Report {
    by_confidence: BTreeMap<&'static str, Calibration>,
    /// Seconds between telling a person and the first refusal; negative if told afterwards.
    warnings: BTreeMap<&'static str, Vec<i64>>,
    never_told: u64,
    false_predicted: BTreeMap<Kind, u64>,
    false_level: BTreeMap<Kind, u64>,
    true_alarms: u64,
    watched_s: u64,
    polls: u64,
    reads: u64,
    refusals: u64,
}

impl Report {
    fn add(&mut self, story: &Story, watched: &Watched, events: &[SentEvent]) {
        self.watched_s += story.watched as u64;
        self.polls += watched.polls as u64;
        self.reads += watched.reads as u64;
        self.add_forecasts(story, watched);
        self.add_warnings(story, events);
        self.add_alarms(story, events);
    }

    fn add_forecasts(&mut self, story: &Story, watched: &Watched) {
        let mut own: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
        for made in &watched.forecasts {
            let truth_us = story
                .empty_at(made.at)
                .map(|at| (at - made.at) as u64 * SECOND_US);
            let end_us = (story.levels.len() - made.at) as u64 * SECOND_US;
            // Beyond the end of the story nothing is known.
            let is_early = truth_us.is_some_and(|us| us + RESOLUTION_US < made.earliest_us);
            let is_late = made.latest_us.is_some_and(|latest_us| match truth_us {
                Some(us) => us > latest_us.saturating_add(RESOLUTION_US),
                None => latest_us < end_us,
            });
            for name in [name(made.confidence), "all"] {
                let calibration = self.by_confidence.entry(name).or_default();
                calibration.forecasts += 1;
                calibration.too_early += u64::from(is_early);
                calibration.too_late += u64::from(is_late);
                if let (Some(truth_us), Some(expected_us)) = (truth_us, made.expected_us)
                    && truth_us >= 5 * SECOND_US
                {
                    let ratio = expected_us as f64 / truth_us as f64;
                    calibration.ratios.push(ratio);
                }
                if let Some(latest_us) = made.latest_us {
                    let earliest_us = made.earliest_us.max(SECOND_US);
                    let width = latest_us as f64 / earliest_us as f64;
                    calibration.widths.push(width);
                }
                let (all, held) = own.entry(name).or_default();
                *all += 1;
                *held += u64::from(!is_early && !is_late);
            }
        }
        for (name, (all, held)) in own {
            let calibration = self.by_confidence.entry(name).or_default();
            calibration.stories += 1;
            calibration.shares += held as f64 / all as f64;
            calibration.all_held += u64::from(all == held);
        }
    }

    fn add_warnings(&mut self, story: &Story, events: &[SentEvent]) {
        for &refused in &story.first_refusals {
            if refused >= story.watched {
                continue;
            }
            self.refusals += 1;
            // The first of the messages that a person has not been told the end of.
            let mut open: BTreeMap<&str, Second> = BTreeMap::new();
            let before = events.iter().filter(|told| told.at <= refused);
            for told in before.filter(|told| told.is_to_person) {
                match told.event.kind {
                    EventKind::Raised { .. } | EventKind::Predicted { .. } => {
                        open.entry(&told.event.episode).or_insert(told.at);
                    }
                    EventKind::Resolved { .. } | EventKind::ForecastOver { .. } => {
                        open.remove(told.event.episode.as_str());
                    }
                    _ => {}
                }
            }
            let after = events.iter().find(|told| {
                told.at > refused && told.is_to_person && told.at < refused + FALSE_AFTER
            });
            let warned = match (open.values().min(), after) {
                (Some(&at), _) => (refused - at) as i64,
                (None, Some(told)) => -((told.at - refused) as i64),
                (None, None) => {
                    self.never_told += 1;
                    continue;
                }
            };
            // How long the bucket took to empty from half full: what could be warned of at all.
            let half = i64::try_from(story.limit.capacity() / 2).unwrap_or(i64::MAX);
            let above = story.levels[..refused]
                .iter()
                .rposition(|&level| level > half);
            let fell_in = refused - above.unwrap_or(0);
            let is_blind = story.is_poll_failing[refused.saturating_sub(600)..refused]
                .iter()
                .any(|is_failing| *is_failing);
            let pace = match fell_in {
                _ if is_blind => PACES[5],
                0..30 => PACES[1],
                30..120 => PACES[2],
                120..600 => PACES[3],
                _ => PACES[4],
            };
            for name in [pace, PACES[0]] {
                self.warnings.entry(name).or_default().push(warned);
            }
        }
    }

    fn add_alarms(&mut self, story: &Story, events: &[SentEvent]) {
        let mut counted: BTreeSet<&str> = BTreeSet::new();
        for told in events.iter().filter(|told| told.is_to_person) {
            let is_prediction = matches!(told.event.kind, EventKind::Predicted { .. });
            let is_level = matches!(told.event.kind, EventKind::Raised { .. });
            if !(is_prediction || is_level) || !counted.insert(&told.event.episode) {
                continue;
            }
            let until = (told.at + FALSE_AFTER).min(story.levels.len());
            let comes_true = story.empty_at(told.at).is_some_and(|at| at < until);
            if comes_true {
                self.true_alarms += 1;
            } else if is_prediction {
                *self.false_predicted.entry(story.kind).or_default() += 1;
            } else {
                *self.false_level.entry(story.kind).or_default() += 1;
            }
        }
    }

    fn print(&mut self) {
        let days = self.watched_s as f64 / 86_400.0;
        println!(
            "{days:.0} days of one bucket watched; a day {:.0} samples, {:.0} of them read singly",
            self.polls as f64 / days,
            self.reads as f64 / days
        );
        println!(
            "\n| Confidence | Stories | Forecasts | within the bounds | earliest after the truth | latest before it | mean share per story | stories where all held | expected / truth (10 %, median, 90 %) | latest / earliest (median) |"
        );
        println!("|--|--|--|--|--|--|--|--|--|--|");
        for (name, one) in &mut self.by_confidence {
            let share = |count: u64| 100.0 * count as f64 / one.forecasts as f64;
            one.ratios.sort_by(f64::total_cmp);
            one.widths.sort_by(f64::total_cmp);
            println!(
                "| {name} | {} | {} | {:.2} % | {:.2} % | {:.2} % | {:.2} % | {:.2} % | {:.2}, {:.2}, {:.2} | {:.2} |",
                one.stories,
                one.forecasts,
                share(one.forecasts - one.too_early - one.too_late),
                share(one.too_early),
                share(one.too_late),
                100.0 * one.shares / one.stories as f64,
                100.0 * one.all_held as f64 / one.stories as f64,
                quantile(&one.ratios, 0.1),
                quantile(&one.ratios, 0.5),
                quantile(&one.ratios, 0.9),
                quantile(&one.widths, 0.5),
            );
        }
        println!(
            "\n| Warning to a person before the first refusal | Refusals | told before | median | 10 % | worst |"
        );
        println!("|--|--|--|--|--|--|");
        for (name, one) in &mut self.warnings {
            one.sort_unstable();
            let before = one.iter().filter(|&&s| s > 0).count();
            let at = |share: f64| one[((one.len() - 1) as f64 * share) as usize];
            println!(
                "| {name} | {} | {:.1} % | {} s | {} s | {} s |",
                one.len(),
                100.0 * before as f64 / one.len() as f64,
                at(0.5),
                at(0.1),
                one[0]
            );
        }
        println!(
            "\n{} first refusals, of {} nobody was told within half an hour",
            self.refusals, self.never_told
        );
        let sum = |counts: &BTreeMap<Kind, u64>| counts.values().sum::<u64>() as f64;
        println!(
            "true alarms to a person per day of a bucket: {:.2}; false: {:.2} predicted, {:.2} by level",
            self.true_alarms as f64 / days,
            sum(&self.false_predicted) / days,
            sum(&self.false_level) / days
        );
        println!(
            "false predicted {:?}; false by level {:?}",
            self.false_predicted, self.false_level
        );
    }
}

impl Report {
    /// Prints one line of the frontier.
    fn print_line(&mut self, name: &str) {
        let days = self.watched_s as f64 / 86_400.0;
        let mut median = |pace: &'static str| {
            let one = self.warnings.entry(pace).or_default();
            one.sort_unstable();
            one.get(one.len().saturating_sub(1) / 2)
                .copied()
                .unwrap_or(0)
        };
        let medians = [PACES[0], PACES[2], PACES[3], PACES[4]].map(&mut median);
        let all = &self.warnings[PACES[0]];
        let before = all.iter().filter(|&&s| s > 0).count();
        let sum = |counts: &BTreeMap<Kind, u64>| counts.values().sum::<u64>() as f64 / days;
        println!(
            "| {name} | {:.1} % | {} s | {} s | {} s | {} s | {:.2} | {:.2} | {:.2} |",
            100.0 * before as f64 / all.len().max(1) as f64,
            medians[0],
            medians[1],
            medians[2],
            medians[3],
            sum(&self.false_predicted),
            sum(&self.false_level),
            self.true_alarms as f64 / days,
        );
    }
}

fn name(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Low => "low",
        Confidence::Medium => "medium",
        Confidence::High => "high",
    }
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}
